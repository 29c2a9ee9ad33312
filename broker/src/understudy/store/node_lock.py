"""The lock files of a store and the state byte in them (artemis-ha s. 2.1 and 2.6).

``server.lock`` holds the node id of the store and the state of its last owner: byte 0 the state,
byte 1 ``R`` while the store is closed and was released by its last owner, else ``0``, byte 2 ``0``,
bytes 3 to 18 the node id as a raw UUID. ``serverlock.1`` is locked as long as
a node is active, ``serverlock.2`` by the one next in line. ``server.lock`` itself is locked
only while the very first node chooses the id: the state is one byte, written and read whole, and the
file is opened anew for each, which on a network file system makes writes of other hosts visible.

Being active is *proved*, not believed: ``lost`` asks the locks again and compares the modification
time of ``server.lock`` with our own last write; a node that activates touches it, so a node that was
active before and did not notice finds out.

Not here: when to ask, and what follows from the answer (``ha.shared.policy``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.errors import DescriptorsExhausted, DiskFailed, StoreError
from understudy.ids import NodeId, uuid_bytes, uuid_text
from understudy.ports import Disk, Entropy, File, FileLock

FIRST_START: Final = "0"
NOT_STARTED: Final = "N"
OWNED: Final = "L"
WANTED: Final = "F"
STOPPED_CLEANLY: Final = "P"
STATES: Final = frozenset((FIRST_START, NOT_STARTED, OWNED, WANTED, STOPPED_CLEANLY))

_FILE_BYTES: Final = 19
_RELEASED: Final = b"R"
_NOT_RELEASED: Final = b"0"


class NodeLock:
    """The lock files of one store. Implements ``ha.shared.store_lock.StoreLock``."""

    def __init__(self, disk: Disk, directory: str, file_lock: Callable[[str], FileLock], entropy: Entropy) -> None:
        """Nothing is opened yet.

        Args:
            disk: Where the store is.
            directory: node-manager-lock-directory, absolute; it exists.
            file_lock: Makes the lock of a path.
            entropy: Used for a new node id.
        """
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/server.lock"
        self._entropy = entropy
        self._primary = file_lock(f"{directory}/serverlock.1")
        self._backup = file_lock(f"{directory}/serverlock.2")
        self._creation_lock = file_lock(self._path)
        self._primary_held = False
        self._released = False
        """Whether the lock was released by ``release``; read by ``was_released``."""
        self._noted = False
        """The file says that the store was released, as it was read last; ``touch`` withdraws it."""
        self._written_ns: int | None = None
        self._node_id: NodeId | None = None

    def open(self) -> bool:
        """Read the node id; the very first node of a store chooses it. False: another node is
        choosing it right now, ask again.

        Raises:
            DiskFailed: the directory cannot be used.
            StoreError: ``server.lock`` is not one.
        """
        content = self._read()
        if content is None or len(content) < _FILE_BYTES:
            if not self._creation_lock.try_acquire():
                return False
            try:
                self._create()
            finally:
                self._creation_lock.release()
            content = self._read()
        if content is None or len(content) < _FILE_BYTES:
            raise DiskFailed(f"{self._path} cannot be made")
        raw = content[3:_FILE_BYTES]
        if len(content) != _FILE_BYTES or not any(raw):
            raise StoreError(
                f"{self._path} is no lock file: {len(content)} bytes, {_FILE_BYTES} wanted",
                hint="is node-manager-lock-directory the right one?",
            )
        self._node_id = NodeId(uuid_text(raw))
        return True

    def adopt(self, node_id: NodeId) -> None:
        """Take another node id: that of the store that was copied here, or that of the configuration. Durable when it
        returns.

        Raises:
            DiskFailed: it could not be made durable.
        """
        if node_id != self._node_id:
            file = self._open_file()
            try:
                file.write(3, (uuid_bytes(node_id),))
                file.sync()
            finally:
                file.close()
            self._node_id = node_id

    def close(self) -> None:
        """Let go of everything."""
        self.release_primary()
        self.release_backup()

    @property
    def node_id(self) -> NodeId:
        """Node id of the store; known once ``open`` was called."""
        assert self._node_id is not None, "NodeLock.open was not called"
        return self._node_id

    # --- state byte -------------------------------------------------------------------------------

    def read_state(self) -> str:
        """``0`` never active, ``N`` nothing readable, ``L`` owned, ``F`` wanted by a primary, ``P``
        cleanly stopped.

        Raises:
            DiskFailed: the file cannot be read, or holds something else.
        """
        found = self._read()
        if not found:
            self._released = True
            return NOT_STARTED
        state = chr(found[0])
        if state not in STATES:
            raise DiskFailed(f"{self._path}: unknown state byte {found[0]:#04x}")
        self._noted = found[1:2] == _RELEASED
        self._released = self._noted or state in (FIRST_START, NOT_STARTED)
        return state

    def write_state(self, state: str) -> None:
        """Write the byte, sync, and remember the file's time as ours.

        Raises:
            DiskFailed: it could not be made durable.
        """
        assert state in STATES, state
        file = self._open_file()
        try:
            file.write(0, (state.encode("ascii"),))
            file.sync()
        finally:
            file.close()
        if self._primary_held:
            self._written_ns = self._disk.modified_ns(self._path)

    def touch(self) -> None:
        """See ``StoreLock`` (artemis-ha s. 2.3, 2.6)."""
        if self._noted:
            self._write_release(_NOT_RELEASED)
            self._noted = False
        with self._disk.within(self._directory) as here:
            here.touch(self._path)
            self._written_ns = here.modified_ns(self._path)

    def was_released(self) -> bool:
        return self._released

    def note_release(self) -> None:
        """See ``StoreLock``. Raises DiskFailed: the note could not be made durable."""
        self._write_release(_RELEASED)

    def _write_release(self, mark: bytes) -> None:
        file = self._open_file()
        try:
            file.write(1, (mark,))
            file.sync()
        finally:
            file.close()

    # --- locks --------------------------------------------------------------------------------------

    def try_primary(self) -> bool:
        """Take the primary lock without waiting. Raises DiskFailed when it cannot be asked."""
        self._primary_held = self._primary.try_acquire()
        return self._primary_held

    def release_primary(self) -> None:
        """Give the store away."""
        self._primary_held = False
        self._written_ns = None
        self._primary.release()

    def try_backup(self) -> bool:
        """Take the place of the next in line without waiting. Raises DiskFailed."""
        return self._backup.try_acquire()

    def release_backup(self) -> None:
        """Let the next backup stand by."""
        self._backup.release()

    def lost(self) -> str | None:
        """Reason why the primary lock is no longer provably ours; None when it is (artemis-ha s. 2.6).

        Raises:
            DescriptorsExhausted: the state could not be read for want of a file descriptor, which is no answer.
        """
        if not self._primary_held:
            return f"{self._directory}: the primary lock is not held"
        try:
            if not self._primary.verify():
                return f"{self._directory}/serverlock.1 is not locked by us any more"
            # the time before the state: a primary that asks for the store changes both, and must
            # not look like one that has activated
            modified_ns = self._disk.modified_ns(self._path)
            state = self.read_state()
        except FileNotFoundError:
            return f"{self._path} has vanished"
        except DescriptorsExhausted:
            raise
        except StoreError as error:
            return str(error)
        if state == NOT_STARTED:
            return f"{self._path} is empty"
        if state == OWNED and self._written_ns is not None and modified_ns > self._written_ns:
            return f"{self._path} was touched by another node: it has activated"
        return None

    # --- files --------------------------------------------------------------------------------------

    def _read(self) -> bytes | None:
        try:
            file = self._disk.open(self._path, read_only=True)
        except FileNotFoundError:
            return None
        try:
            return file.read(0, _FILE_BYTES + 1)
        finally:
            file.close()

    def _open_file(self) -> File:
        try:
            return self._disk.open(self._path)
        except FileNotFoundError:
            raise DiskFailed(f"{self._path} has vanished") from None

    def _create(self) -> None:
        """Create the identity while the file is locked, so that two nodes choose one id."""
        content = self._read()
        if content is not None and len(content) >= _FILE_BYTES:
            return
        if content is None:
            self._disk.open(self._path, create=True).close()
        file = self._open_file()
        try:
            file.write(0, (b"000" + self._new_id(),))
            file.sync()
        finally:
            file.close()
        self._disk.sync_directory(self._directory)

    def _new_id(self) -> bytes:
        """Random bytes in the form of a UUID of version 1: tools of Artemis read the file and set this version (class
        ``UUID`` of its commons), so that with any other one they would know another node id."""
        raw = bytearray(self._entropy.token(16))
        raw[6] = raw[6] & 0x0F | 0x10
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)


def read_node_id(disk: Disk, directory: str) -> NodeId | None:
    """Node id of the store with this lock directory; None: there is none yet. Nothing is created.

    Raises:
        DiskFailed: the lock file cannot be read.
    """
    path = f"{directory}/server.lock"
    if not disk.exists(path):
        return None
    file = disk.open(path, read_only=True)
    try:
        raw = file.read(0, _FILE_BYTES)[3:]
    finally:
        file.close()
    return NodeId(uuid_text(raw)) if len(raw) == _FILE_BYTES - 3 and any(raw) else None
