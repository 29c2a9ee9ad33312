"""The backup's side of the copy of a store (docs/build/architecture.md, "Replication").

It sends the inventory of its files, then executes the messages of the active node in order. ``CopyTarget`` is driven
by its owner: ``receive`` takes messages on the loop; ``step`` blocks, runs on another thread, one call at a time,
executes the messages received and returns the answers. ``wants_step`` says whether to call it. When the state is
``READY``, ``log`` and ``bodies`` execute the operations that follow (``replica_log``).

``replica.state`` says ``INCOMPLETE`` before the first file changes and ``IN_SYNC`` before ``TargetReady`` is answered.
If the copy ends in between, the next one uses the files that are there. Each finished file is synced, and the
directories after each pass. Only files of a store are touched (``store_files``), and the directories ``oldreplica.N``.

Not here: which bytes are sent (``copy_source``).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final

from understudy.errors import BrokerError, DiskFailed, LimitExceeded, RemoteProtocolError, StoreError
from understudy.limits import (
    COPY_LIST_FILES_MAX,
    COPY_PIECE_BYTES_MAX,
    COPY_WINDOW_BYTES_MAX,
    POOL_FILES_MAX,
    REPLICATED_NAME_BYTES_MAX,
)
from understudy.ports import File, FileReader
from understudy.store.log.applier import appliers_of
from understudy.store.log.operations import CloseFiles
from understudy.store.quarantine import quarantine_path
from understudy.store.replication import old_replicas
from understudy.store.replication.copy_messages import (
    AskBytes,
    CheckFile,
    CommonFiles,
    CopyFailed,
    CopyMessage,
    Directory,
    DropFile,
    EndFile,
    EpochHistory,
    FilesPart,
    FinalState,
    InventoryFile,
    InventoryPart,
    KeepFile,
    PassEnd,
    Piece,
    RenamedFile,
    SetAside,
    TargetReady,
    Written,
)
from understudy.store.replication.divergence import Divergence, complete_note, saved_directories, write_note
from understudy.store.replication.epoch_history import write_history
from understudy.store.replication.fetching import answer_of
from understudy.store.replication.inventory import hash_of, take_inventory
from understudy.store.replication.replica_state import (
    ReplicaState,
    ReplicaStatus,
    incomplete_copy,
    read_replica_state,
    write_replica_state,
)
from understudy.store.replication.store_files import StoreDirectories, belongs, is_entry, list_store
from understudy.store.snapshots.reserve import RESERVE_NAME, keep_reserve

log = logging.getLogger(__name__)

#: Work of one step. Bytes read.
_STEP_BYTES: Final = 1024 * 1024
#: Messages that wait to be executed: bytes of pieces, and number. The active node keeps a smaller window of bytes.
_WAITING_BYTES_MAX: Final = 2 * COPY_WINDOW_BYTES_MAX
_WAITING_MAX: Final = 1_000_000

_Key = tuple[Directory, str]


class TargetState(Enum):
    """Progress of a copy at the backup."""

    TAKING_INVENTORY = auto()
    COPYING = auto()
    READY = auto()
    """The files are a complete copy; ``log`` and ``bodies`` may execute operations."""
    FAILED = auto()


class CopyTarget:
    """One copy of the store of the active node, from the side of the replica."""

    def __init__(self, directories: StoreDirectories, saved_max: int, pool_files: int = POOL_FILES_MAX) -> None:
        """Nothing is touched yet.

        Args:
            directories: Directories of the store; they are created if they do not exist.
            saved_max: max-saved-replicated-journals-size (``old_replicas``).
            pool_files: Number of files of removed segments that are kept.
        """
        self._directories = directories
        self._disk = directories.disk
        self._saved_max = saved_max
        self.state = TargetState.TAKING_INVENTORY
        self.failure: BaseException | None = None
        """Reason why the copy has failed here."""
        self.log, self.bodies = appliers_of(self._disk, directories.log, directories.bodies, pool_files)
        self.sequence = 0
        """Sequence of the last record in the log, when the copy is complete."""
        self.written_bytes = 0
        """Bytes of files received and written."""
        self._waiting: deque[CopyMessage] = deque()
        self._waiting_bytes = 0
        self._answered_bytes = 0
        self.incomplete = incomplete_copy()
        """Content of ``replica.state`` while the copy is not complete; set before the first message is received."""
        self._noted = ReplicaState()
        """Content of ``replica.state``."""
        self._sizes: dict[_Key, int] = {}
        """Files that are kept or were received, with their sizes."""
        self._common: set[_Key] = set()
        """Files that stay when the others are moved away."""
        self._stated: dict[_Key, int] = {}
        self._history = EpochHistory(())
        """History of the log of the active node; without lines if it does not say it."""
        self._open: tuple[_Key, File] | None = None
        self._inventory = self._take_inventory()

    # --- on the loop --------------------------------------------------------------------------------

    def receive(self, message: CopyMessage) -> None:
        """A message of the active node.

        Raises:
            LimitExceeded: more is waiting to be written than the active node may send ahead.
        """
        if isinstance(message, Piece):
            self._waiting_bytes += len(message.data)
        if self._waiting_bytes > _WAITING_BYTES_MAX or len(self._waiting) >= _WAITING_MAX:
            raise LimitExceeded(f"{self._waiting_bytes} bytes of a copy wait to be written")
        self._waiting.append(message)

    @property
    def wants_step(self) -> bool:
        """Whether ``step`` has something to do."""
        return self.state is TargetState.TAKING_INVENTORY or (self.state is TargetState.COPYING and bool(self._waiting))

    def close(self) -> None:
        """Give up; not while a step runs. After ``READY`` the appliers stay as they are."""
        self._inventory.close()
        with suppress(StoreError):
            self._let_go()
        if self.state is not TargetState.READY:
            self._close_appliers()
            self.state = TargetState.FAILED

    # --- on another thread --------------------------------------------------------------------------

    def step(self) -> list[CopyMessage]:
        """Read or write a little; the messages to be sent, in order. An error ends the copy: the last message is
        ``CopyFailed`` then, and ``failure`` is set.
        """
        messages: list[CopyMessage] = []
        try:
            if self.state is TargetState.TAKING_INVENTORY:
                self._read_on(messages)
            else:
                self._execute(messages)
        except (BrokerError, OSError) as error:
            log.error("the copy of the store has failed", extra={"error": str(error)})
            self.failure = error
            self.close()
            code = error.code if isinstance(error, BrokerError) else "os-error"
            reason = str(error).encode("utf-8", "replace")[:REPLICATED_NAME_BYTES_MAX].decode("utf-8", "ignore")
            messages.append(CopyFailed(code, reason))
        return messages

    def _read_on(self, messages: list[CopyMessage]) -> None:
        budget = _STEP_BYTES
        while budget > 0 and self.state is TargetState.TAKING_INVENTORY:
            item = next(self._inventory)
            if isinstance(item, int):
                budget -= item
            else:
                messages.append(item)

    def _take_inventory(self) -> Generator[int | InventoryPart, None, None]:
        disk, directories = self._disk, self._directories
        for directory in Directory:
            disk.make_directory(directories.path(directory))
        state = read_replica_state(disk, directories.log)
        if state.moving_to:
            self._move(state.moving_to)
            state = read_replica_state(disk, directories.log)
        self._noted, copied = state, state.copied
        files: list[InventoryFile] = []
        for item in take_inventory(disk, directories):
            if isinstance(item, int):
                yield item
                continue
            files.append(item)
            self._sizes[item.directory, item.name] = -1
            if len(files) == COPY_LIST_FILES_MAX:
                yield InventoryPart(tuple(files), False, copied)
                files = []
        self.state = TargetState.COPYING
        yield InventoryPart(tuple(files), True, copied)

    def _execute(self, messages: list[CopyMessage]) -> None:
        while self._waiting and self.state is TargetState.COPYING:
            message = self._waiting.popleft()
            if isinstance(message, Piece):
                self._waiting_bytes -= len(message.data)
            if isinstance(message, AskBytes):
                messages.append(answer_of(self._directories, message))
                continue
            execute = _EXECUTE.get(type(message))
            if execute is None:
                raise RemoteProtocolError(f"{type(message).__name__} of an active node")
            if not isinstance(message, (EpochHistory, CommonFiles, SetAside, FilesPart)):
                self._note()
            execute(self, message)
        if self.written_bytes > self._answered_bytes:
            self._answered_bytes = self.written_bytes
            messages.append(Written(self.written_bytes))
        if self.state is TargetState.READY:
            messages.append(TargetReady())

    def _note(self) -> None:
        """Note that the files belong to a copy that is not complete."""
        if self._noted != self.incomplete:
            write_replica_state(self._disk, self._directories.log, self.incomplete)
            self._noted = self.incomplete

    # --- messages -----------------------------------------------------------------------------------

    def _take_history(self, message: EpochHistory) -> None:
        self._history = message

    def _take_common(self, message: CommonFiles) -> None:
        for each in message.files:
            key = (each.directory, each.name)
            if key not in self._sizes or is_entry(*key):
                raise RemoteProtocolError(f"{each.name!r} is not a file that can stay")
            self._common.add(key)

    def _set_aside(self, message: SetAside) -> None:
        if self._noted.copied:
            raise RemoteProtocolError("SetAside after files were changed")
        disk, directories = self._disk, self._directories
        if self._saved_max:
            number = old_replicas.next_number(disk, directories)
            state = replace(self.incomplete, copied=False, moving_to=number)
            write_replica_state(disk, directories.log, state)
            self._move(number)
        else:
            self._note()
            old_replicas.remove_store(disk, directories, self._common)
        self._sizes = {key: size_bytes for key, size_bytes in self._sizes.items() if key in self._common}

    def _move(self, number: int) -> None:
        disk, directories = self._disk, self._directories
        log.warning(
            "earlier data is moved away",
            extra={"directory": directories.log, "number": number, "common_files": len(self._common)},
        )
        old_replicas.move_to(disk, directories, number, self._common)
        disk.make_directory(saved_directories(directories, number).log)
        write_note(disk, saved_directories(directories, number).log, Divergence())
        self._note()
        old_replicas.prune(disk, directories, self._saved_max or 1)

    def _note_divergence(self) -> None:
        """Complete the note of the newest saved copy, once the segments of the active node are here."""
        numbers = old_replicas.saved_numbers(self._disk, self._directories.log)
        note = complete_note(self._disk, self._directories, numbers[-1], self._history.starts) if numbers else None
        if note is not None:
            log.warning(
                "records of earlier data are not in the log of the active node" if note.records else
                "earlier data has no record that is not in the log of the active node",
                extra={"directory": f"{self._directories.log}/oldreplica.{numbers[-1]}", "epoch": note.epoch,
                       "segment": note.segment, "offset": note.offset, "sequence": note.sequence,
                       "records": note.records, "messages": note.messages},
            )  # fmt: skip

    def _keep_file(self, message: KeepFile) -> None:
        file = self._file(message)
        if file.size() < message.length:
            raise DiskFailed(f"{file.path} has {file.size()} bytes, expected {message.length}")
        file.truncate(message.length)

    def _write_piece(self, message: Piece) -> None:
        if len(message.data) > COPY_PIECE_BYTES_MAX:
            raise LimitExceeded(f"{len(message.data)} bytes in a piece of {message.name}")
        self._file(message).write(message.offset, (message.data,))
        self.written_bytes += len(message.data)

    def _end_file(self, message: EndFile) -> None:
        key = (message.directory, message.name)
        if message.name == RESERVE_NAME and message.directory is Directory.LOG:
            self._let_go()
            # without the allocation if there is no space
            keep_reserve(self._disk, self._directories.log, message.size_bytes)
            self._sizes[key] = message.size_bytes
            return
        file = self._file(message)
        size_bytes = file.size()
        if size_bytes < message.size_bytes and message.directory is Directory.LOG and not is_entry(*key):
            # the space is allocated ahead, as for a new file
            file.allocate(message.size_bytes)
        elif size_bytes != message.size_bytes:
            file.truncate(message.size_bytes)
        file.sync()
        self._let_go()
        self._sizes[key] = message.size_bytes

    def _check_file(self, message: CheckFile) -> None:
        """Compare a file with what the active node has; a copy with a difference is not completed."""
        self._let_go()
        path = self._directories.path(message.directory, message.name)
        file = self._disk.open(path, read_only=True)
        try:
            if _hash(file, message.length) == message.hash:
                return
            file.forget_cached(0, message.length)
            if _hash(file, message.length) != message.hash:
                raise DiskFailed(
                    f"{path}: the bytes are not those that the active node has checked",
                    hint="the copy begins again; if this recurs, look at the disk of this node",
                )
        finally:
            file.close()

    def _drop_file(self, message: DropFile) -> None:
        self._check(message.directory, message.name)
        self._let_go()
        self._sizes.pop((message.directory, message.name), None)
        with suppress(FileNotFoundError):
            self._disk.remove(self._directories.path(message.directory, message.name))

    def _rename_file(self, message: RenamedFile) -> None:
        self._check(message.directory, message.name)
        self._check(message.directory, message.target)
        self._let_go()
        path = self._directories.path
        self._disk.rename(path(message.directory, message.name), path(message.directory, message.target))
        size_bytes = self._sizes.pop((message.directory, message.name), -1)
        self._sizes[message.directory, message.target] = size_bytes

    def _end_pass(self, message: PassEnd) -> None:
        log.info("copied", extra={"pass": message.number, "bytes": message.sent_bytes})
        self._sync_directories()
        if message.number == 1:
            self._note_divergence()

    def _take_stated(self, message: FilesPart) -> None:
        for each in message.files:
            self._check(each.directory, each.name)
            self._stated[each.directory, each.name] = each.size_bytes

    def _end(self, message: FinalState) -> None:
        self._let_go()
        reserve = (Directory.LOG, RESERVE_NAME)
        for key, size_bytes in self._stated.items():
            if self._sizes.get(key) != size_bytes and key != reserve:
                raise DiskFailed(f"{key[1]} is stated with {size_bytes} bytes and was not received completely")
        for key in list_store(self._disk, self._directories):
            if key not in self._stated:
                self._disk.remove(self._directories.path(*key))
        self._sync_directories()
        self.log.adopt_pool()
        for directory, open_files in ((Directory.LOG, message.log), (Directory.BODIES, message.bodies)):
            names = [each.name for each in open_files.segments] + [each.name for each in open_files.files]
            for name in names + [each.name for each in open_files.bodies]:
                self._check(directory, name)
        self.log.resume(message.log)
        self.bodies.resume(message.bodies)
        of = message.identity
        write_history(self._disk, self._directories.log, self._history.starts)
        write_replica_state(
            self._disk,
            self._directories.log,
            ReplicaState(
                ReplicaStatus.IN_SYNC,
                node_id=of.node_id,
                epoch=of.epoch,
                activation_sequence=of.activation_sequence,
                active_name=of.active_name,
                wall_ms=of.wall_ms,
            ),
        )
        self.sequence = message.sequence
        self.state = TargetState.READY

    # --- files --------------------------------------------------------------------------------------

    def _check(self, directory: Directory, name: str) -> None:
        if not belongs(directory, name):
            raise RemoteProtocolError(f"{name!r} is no file of a store")

    def _file(self, message: KeepFile | Piece | EndFile) -> File:
        """The file of a message, open; one at a time."""
        key = (message.directory, message.name)
        if self._open is not None and self._open[0] == key:
            return self._open[1]
        self._check(*key)
        self._let_go()
        path = self._directories.path(*key)
        if key in self._sizes:
            file = self._disk.open(path)
        else:
            if is_entry(*key):
                self._disk.make_directory(quarantine_path(self._directories.log))
            with suppress(FileNotFoundError):
                self._disk.remove(path)
            file = self._disk.open(path, create=True)
            self._sizes[key] = -1
        self._open = (key, file)
        return file

    def _let_go(self) -> None:
        held, self._open = self._open, None
        if held is not None:
            held[1].close()

    def _sync_directories(self) -> None:
        quarantine = quarantine_path(self._directories.log)
        if self._disk.exists(quarantine):
            self._disk.sync_directory(quarantine)
        for directory in Directory:
            self._disk.sync_directory(self._directories.path(directory))

    def _close_appliers(self) -> None:
        for applier in (self.log, self.bodies):
            with suppress(StoreError):
                applier.apply([CloseFiles()])


def _hash(file: FileReader, length: int) -> bytes | None:
    """The hash of the first bytes of a file."""
    steps = hash_of(file, length)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            digest: bytes | None = ended.value
            return digest


_EXECUTE: Final[dict[type, Callable[[CopyTarget, Any], None]]] = {
    EpochHistory: CopyTarget._take_history,
    CommonFiles: CopyTarget._take_common,
    SetAside: CopyTarget._set_aside,
    KeepFile: CopyTarget._keep_file,
    Piece: CopyTarget._write_piece,
    EndFile: CopyTarget._end_file,
    CheckFile: CopyTarget._check_file,
    DropFile: CopyTarget._drop_file,
    RenamedFile: CopyTarget._rename_file,
    PassEnd: CopyTarget._end_pass,
    FilesPart: CopyTarget._take_stated,
    FinalState: CopyTarget._end,
}
