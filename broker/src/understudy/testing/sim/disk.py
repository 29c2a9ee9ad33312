"""A file system in memory that loses unsynced data in a crash, shared by several nodes.

``SimVolume`` is the medium. Each node opens it through its own ``SimDisk`` (``volume.disk(owner)``), where the owner is
a machine. All owners see each other's writes at once, as on a coherent network file system, but a write or a directory
change is *pending* until synced, and a ``power_loss`` decides about each sector of each pending write, and about each
creation, rename, link and removal, independently. ``File.sync`` makes the pending writes of its own owner last, not
those another machine has cached. ``crash_process`` is kill -9: the owner's handles and locks are gone, its pending
writes live on in the kernel and may still be lost by a later ``power_loss``.

Faults: ``capacity_bytes`` (full disk), ``fail_next_sync``, ``flip_bit``, ``wrong_reads``, ``revoke_lock``, and
``before_operation``, called with the name of every changing operation, which may raise. Randomness is that of callers.
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, DiskFull
from understudy.ports import Disk, File, Space
from understudy.testing.sim.syncs import sync_each
from understudy.testing.sim.wrong_reads import WrongReads

#: Unit that a medium writes completely or not at all.
SECTOR_BYTES: Final = 512


@dataclass(slots=True)
class _Change:
    """A pending write, or with ``data`` None a change of size."""

    owner: str
    offset: int
    data: bytes | None

    def pieces(self) -> list[_Change]:
        """Cut at sector boundaries."""
        if self.data is None:
            return [self]
        pieces = []
        start = 0
        while start < len(self.data):
            stop = min(start + SECTOR_BYTES - (self.offset + start) % SECTOR_BYTES, len(self.data))
            pieces.append(_Change(self.owner, self.offset + start, self.data[start:stop]))
            start = stop
        return pieces

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            if self.offset < len(content):
                del content[self.offset :]
            else:
                content += bytes(self.offset - len(content))
            return
        end = self.offset + len(self.data)
        if end > len(content):
            content += bytes(end - len(content))
        content[self.offset : end] = self.data


@dataclass(slots=True)
class _Inode:
    """A file: the contents that processes read, and the contents of the medium."""

    visible: bytearray = field(default_factory=bytearray)
    stable: bytearray = field(default_factory=bytearray)
    pending: list[_Change] = field(default_factory=list)
    modified_ns: int = 0

    def change(self, change: _Change) -> None:
        change.apply(self.visible)
        self.pending.append(change)

    def settle(self, survives: Callable[[_Change], bool | None]) -> None:
        """Decide pending changes: True lasts, False is lost, None stays pending."""
        left: list[_Change] = []
        lost = False
        for change in self.pending:
            verdict = survives(change)
            if verdict is None:
                left.append(change)
            elif verdict:
                change.apply(self.stable)
            else:
                lost = True
        self.pending = left
        if lost:
            self.visible = bytearray(self.stable)
            for change in left:
                change.apply(self.visible)


@dataclass(slots=True)
class _NameChange:
    """A pending creation (``source`` None), rename, or removal (``target`` None)."""

    owner: str
    source: str | None
    target: str | None
    inode: _Inode

    def apply(self, names: dict[str, _Inode]) -> None:
        if self.source is not None and names.get(self.source) is self.inode:
            del names[self.source]
        if self.target is not None:
            names[self.target] = self.inode

    @property
    def directory(self) -> str:
        path = self.target if self.target is not None else self.source
        assert path is not None
        return posixpath.dirname(path)


class SimVolume:
    """The medium: synced data, data that is only written, and the effect of a crash on it."""

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        """An empty file system of that size."""
        self.capacity_bytes = capacity_bytes
        self.before_operation: Callable[[str], None] = lambda operation: None
        self.operations = 0
        """Number of operations so far that changed the volume."""
        self._names: dict[str, _Inode] = {}
        self._stable_names: dict[str, _Inode] = {}
        self._pending_names: list[_NameChange] = []
        self._directories: set[str] = {"/"}
        self._generations: dict[str, int] = {}
        self._failing_syncs = 0
        self._ticks = 0
        self._locks: dict[str, SimFileLock] = {}
        self._cut_off: set[str] = set()
        self.wrong_reads = WrongReads()

    def disk(self, owner: str) -> SimDisk:
        """The volume as that owner mounts it."""
        return SimDisk(self, owner)

    def lock(self, path: str, owner: str) -> SimFileLock:
        """A lock object of that owner on a file."""
        return SimFileLock(self, path, owner)

    # --- faults -----------------------------------------------------------------------------------

    def crash_process(self, owner: str) -> None:
        """Close all files of the owner; the kernel keeps written data."""
        self._generations[owner] = self._generations.get(owner, 0) + 1
        self._locks = {path: lock for path, lock in self._locks.items() if lock.owner != owner}

    def power_loss(self, stream: random.Random, owner: str | None = None) -> None:
        """The owner's machine, or every machine, loses its power: random parts of its unsynced data survive."""
        for name in [owner] if owner is not None else sorted({change.owner for change in self._changes()}):
            self.crash_process(name)
        self.lose_unsynced(stream, owner)

    def lose_unsynced(self, stream: random.Random, owner: str | None = None) -> None:
        """Lose unsynced changes, like ``power_loss``, but no process ends: a file server restarts and has lost them."""
        odds = stream.choice((0.0, 1.0, 0.5, stream.random()))
        for inode in self._inodes():
            inode.pending = [
                piece
                for change in inode.pending
                for piece in (change.pieces() if owner in (None, change.owner) else [change])
            ]
            inode.settle(lambda change: stream.random() < odds if owner in (None, change.owner) else None)
        left: list[_NameChange] = []
        for name_change in self._pending_names:
            if owner not in (None, name_change.owner):
                left.append(name_change)
            elif stream.random() < odds:
                name_change.apply(self._stable_names)
        self._pending_names = left
        self._names = dict(self._stable_names)
        for name_change in left:
            name_change.apply(self._names)

    def cut_off(self, owner: str) -> None:
        """Every operation of the owner raises DiskFailed, as over a soft mount whose server does not answer."""
        self._cut_off.add(owner)

    def is_cut_off(self, owner: str) -> bool:
        """Whether the owner does not reach the volume."""
        return owner in self._cut_off

    def join(self, owner: str | None = None) -> None:
        """The owner, or each owner, reaches the volume again."""
        self._cut_off = self._cut_off - {owner} if owner is not None else set()

    def fail_next_sync(self, count: int = 1) -> None:
        """The next syncs of files raise DiskFailed and make nothing last."""
        self._failing_syncs = count

    def flip_bit(self, path: str, offset: int, bit: int) -> None:
        """Change one bit of a file on the medium and in every cache."""
        inode = self._names[path]
        inode.visible[offset] ^= 1 << bit
        if offset < len(inode.stable):
            inode.stable[offset] ^= 1 << bit

    def cut_file(self, path: str, length: int) -> None:
        """Damage a file by cutting it short, on the medium and in every cache."""
        inode = self._names[path]
        del inode.visible[length:]
        del inode.stable[length:]
        inode.pending = []

    def revoke_lock(self, path: str) -> None:
        """The lock server forgets who held the lock, as after an expired lease."""
        self._locks.pop(path, None)

    # --- looking ------------------------------------------------------------------------------------

    def paths(self) -> list[str]:
        """Paths of all files, sorted."""
        return sorted(self._names)

    def content(self, path: str) -> bytes:
        """The contents of a file as processes read them."""
        return bytes(self._names[path].visible)

    def copy(self) -> SimVolume:
        """An independent volume with the same visible content, everything synced."""
        return self._twin({path: (inode, inode.visible) for path, inode in self._names.items()})

    def synced_copy(self) -> SimVolume:
        """An independent volume with the data that survives a power loss of every machine."""
        return self._twin({path: (inode, inode.stable) for path, inode in self._stable_names.items()})

    def _twin(self, files: dict[str, tuple[_Inode, bytearray]]) -> SimVolume:
        other = SimVolume(self.capacity_bytes)
        for path, (inode, content) in files.items():
            twin = _Inode(bytearray(content), bytearray(content), [], inode.modified_ns)
            other._names[path] = other._stable_names[path] = twin
        other._directories = set(self._directories)
        other._ticks = self._ticks
        return other

    def replace_files(self, below: str, other: SimVolume) -> None:
        """Replace the files below a directory by those of ``other``, synced; open files keep their contents."""
        prefix = below.rstrip("/") + "/"
        self._pending_names = [
            change
            for change in self._pending_names
            if not any(path is not None and path.startswith(prefix) for path in (change.source, change.target))
        ]
        source = other.copy()
        for names in (self._names, self._stable_names):
            for path in [path for path in names if path.startswith(prefix)]:
                del names[path]
            names.update((path, inode) for path, inode in source._names.items() if path.startswith(prefix))

    def used_bytes(self) -> int:
        """Room taken by all files."""
        return sum(len(inode.visible) for inode in {id(each): each for each in self._names.values()}.values())

    # --- used by SimDisk, SimFile and SimFileLock -----------------------------------------------------

    def _inodes(self) -> list[_Inode]:
        found = {id(inode): inode for inode in (*self._names.values(), *self._stable_names.values())}
        for change in self._pending_names:
            found.setdefault(id(change.inode), change.inode)
        return list(found.values())

    def _changes(self) -> list[_Change | _NameChange]:
        changes: list[_Change | _NameChange] = list(self._pending_names)
        for inode in self._inodes():
            changes += inode.pending
        return changes

    def operate(self, operation: str, owner: str, generation: int) -> None:
        """Count and announce a changing operation, after refusing the dead."""
        self.check_alive(owner, generation)
        self.operations += 1
        self.before_operation(operation)

    def check_alive(self, owner: str, generation: int) -> None:
        """Raise for a handle of a process that was killed."""
        if generation != self.generation(owner):
            raise DiskFailed(f"a dead process of {owner} touched the disk")
        if owner in self._cut_off:
            raise DiskFailed("the store does not answer: Input/output error")

    def generation(self, owner: str) -> int:
        """Number of times that the owner was killed."""
        return self._generations.get(owner, 0)

    def find(self, path: str) -> _Inode:
        """The file; raises FileNotFoundError if there is none, DiskFailed for a directory."""
        inode = self._names.get(path)
        if inode is None:
            if self.is_directory(path):
                raise DiskFailed(f"cannot use {path}: Is a directory")
            raise FileNotFoundError(path)
        return inode

    def is_directory(self, path: str) -> bool:
        """Whether a directory of that path exists."""
        return path == "/" or path.rstrip("/") in self._directories

    def need_directory(self, path: str) -> None:
        """Raise FileNotFoundError if the directory does not exist."""
        if not self.is_directory(path):
            raise FileNotFoundError(path)

    def lock_file(self, path: str) -> _Inode:
        """The file of a lock, which is made if it is missing, and lasts at once."""
        inode = self._names.get(path)
        if inode is None:
            if not self.is_directory(posixpath.dirname(path)):
                raise DiskFailed(f"cannot open lock file {path}: No such file or directory")
            inode = self._names[path] = self._stable_names[path] = _Inode(modified_ns=self._ticks)
        return inode

    def leads_to(self, path: str, inode: _Inode | None) -> bool:
        """Whether a path names that file."""
        return inode is not None and self._names.get(path) is inode

    def rename_file(self, owner: str, source: str | None, target: str | None, inode: _Inode) -> None:
        """A creation, renaming or removal of a file that a power loss may still undo."""
        change = _NameChange(owner, source, target, inode)
        change.apply(self._names)
        self._pending_names.append(change)

    def names_in(self, directory: str) -> list[str]:
        """Names of files and directories in a directory; none if it does not exist."""
        if directory in self._names:
            raise DiskFailed(f"cannot list {directory}: Not a directory")
        prefix = directory.rstrip("/") + "/"
        inside = [path[len(prefix) :] for path in (*self._names, *self._directories) if path.startswith(prefix)]
        return sorted({name.split("/")[0] for name in inside if name})

    def has(self, path: str) -> bool:
        """Whether a file or directory of that path exists."""
        return path in self._names or path.rstrip("/") in self._directories

    def add_directory(self, path: str) -> None:
        """Directories last at once: a store is made long before it is crashed."""
        while path not in self._directories:
            self._directories.add(path)
            path = posixpath.dirname(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, at once like ``add_directory``; nothing if it does not exist."""
        if self.names_in(path):
            raise DiskFailed(f"cannot remove {path}: Directory not empty")
        self._directories.discard(path)

    def sync_names(self, directory: str) -> None:
        """Make pending changes of names in the directory durable, whichever process made them."""
        left = []
        for change in self._pending_names:
            if change.directory == directory:
                change.apply(self._stable_names)
            else:
                left.append(change)
        self._pending_names = left

    def sync_file(self, inode: _Inode, owner: str, path: str) -> None:
        """The owner's pending writes last."""
        if self._failing_syncs:
            self._failing_syncs -= 1
            # as on Linux: the pages are dropped, a second sync would succeed and mean nothing
            inode.settle(lambda change: False if change.owner == owner else None)
            raise DiskFailed(f"cannot sync {path}: Input/output error")
        inode.settle(lambda change: True if change.owner == owner else None)

    def need_room(self, inode: _Inode, length: int, path: str) -> None:
        """Raise DiskFull if the file cannot grow to that length."""
        growth = length - len(inode.visible)
        if growth > 0 and self.used_bytes() + growth > self.capacity_bytes:
            raise DiskFull(f"cannot write {path}: No space left on device")

    def tick(self) -> int:
        """The file server's clock: rises with every change."""
        self._ticks += 1_000_000
        return self._ticks

    @property
    def locks(self) -> dict[str, SimFileLock]:
        """Path to the lock object that holds it."""
        return self._locks


class SimFile:
    """An open file of a ``SimDisk``. Implements ``ports.File``."""

    __slots__ = ("_generation", "_inode", "_open", "_owner", "_path", "_read_only", "_volume")

    def __init__(self, volume: SimVolume, owner: str, path: str, inode: _Inode, read_only: bool) -> None:
        self._volume = volume
        self._owner = owner
        self._path = path
        self._inode = inode
        self._read_only = read_only
        self._generation = volume.generation(owner)
        self._open = True

    @property
    def path(self) -> str:
        return self._path

    def _check(self) -> None:
        assert self._open, f"{self._path} used after close"
        self._volume.check_alive(self._owner, self._generation)

    def _operate(self, operation: str) -> None:
        self._check()
        if self._read_only:
            raise DiskFailed(f"cannot {operation} {self._path}: Bad file descriptor")
        self._volume.operate(operation, self._owner, self._generation)

    def size(self) -> int:
        self._check()
        return len(self._inode.visible)

    def read(self, offset: int, length: int) -> bytes:
        self._check()
        return self._volume.wrong_reads.apply(self._path, offset, bytes(self._inode.visible[offset : offset + length]))

    def forget_cached(self, offset: int, length: int) -> None:
        self._check()
        self._volume.wrong_reads.forget(self._path, offset, length)

    def data_ranges(self, offset: int) -> list[tuple[int, int]]:
        self._check()
        content, ranges = self._inode.visible, list[tuple[int, int]]()
        # sectors after the last byte that is not zero, most of an allocated segment, are not looked at
        used = len(content.rstrip(b"\0"))
        for begin in range(offset // SECTOR_BYTES * SECTOR_BYTES, used, SECTOR_BYTES):
            end = min(begin + SECTOR_BYTES, len(content))
            first = max(begin, offset)
            if content.count(0, first, end) == end - first:
                continue
            begins_at = ranges.pop()[0] if ranges and ranges[-1][1] == begin else first
            ranges.append((begins_at, end))
        return ranges

    def write(self, offset: int, buffers: Sequence[bytes]) -> None:
        self._operate("write")
        data = b"".join(buffers)
        self._volume.need_room(self._inode, offset + len(data), self._path)
        self._inode.change(_Change(self._owner, offset, data))
        self._volume.wrong_reads.forget(self._path, offset, len(data))
        self._inode.modified_ns = self._volume.tick()

    def allocate(self, length: int) -> None:
        self._operate("allocate")
        if length > len(self._inode.visible):
            self._volume.need_room(self._inode, length, self._path)
            self._inode.change(_Change(self._owner, length, None))

    def truncate(self, length: int) -> None:
        self._operate("truncate")
        self._volume.need_room(self._inode, length, self._path)
        self._inode.change(_Change(self._owner, length, None))
        self._inode.modified_ns = self._volume.tick()

    def links(self) -> int:
        self._check()
        return sum(each is self._inode for each in self._volume._names.values())

    def begin_sync(self, offset: int, length: int) -> None:
        self._check()

    def sync(self) -> None:
        # also of a file that was opened for reading, as on Linux
        self._check()
        self._volume.operate("sync", self._owner, self._generation)
        self._volume.sync_file(self._inode, self._owner, self._path)

    def close(self) -> None:
        self._open = False


class SimDisk:
    """Access of one owner to a ``SimVolume``. Implements ``ports.Disk``."""

    def __init__(self, volume: SimVolume, owner: str) -> None:
        """Usable until the owner is killed; then make another."""
        self.volume = volume
        self.owner = owner
        self._generation = volume.generation(owner)

    def _operate(self, operation: str) -> None:
        self.volume.operate(operation, self.owner, self._generation)

    def _check(self) -> None:
        self.volume.check_alive(self.owner, self._generation)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self._check()
        if create:
            self._operate("create")
            if self.volume.has(path):
                raise FileExistsError(path)
            if not self.volume.has(posixpath.dirname(path)):
                raise FileNotFoundError(path)
            inode = _Inode(modified_ns=self.volume.tick())
            self.volume.rename_file(self.owner, None, path, inode)
        return SimFile(self.volume, self.owner, path, self.volume.find(path), read_only)

    def list(self, directory: str) -> list[str]:
        self._check()
        return self.volume.names_in(directory)

    def exists(self, path: str) -> bool:
        self._check()
        return self.volume.has(path)

    def make_directory(self, path: str) -> None:
        self._operate("make-directory")
        if path in self.volume.paths():
            raise DiskFailed(f"cannot make {path}: File exists")
        self.volume.add_directory(path.rstrip("/"))

    def rename(self, source: str, target: str) -> None:
        self._operate("rename")
        inode = self.volume.find(source)
        self.volume.need_directory(posixpath.dirname(target))
        if self.volume.is_directory(target):
            raise DiskFailed(f"cannot rename {source}: Is a directory")
        self.volume.rename_file(self.owner, source, target, inode)

    def link(self, source: str, target: str) -> None:
        self._operate("link")
        self.volume.need_directory(posixpath.dirname(target))
        if self.volume.has(target):
            raise FileExistsError(target)
        self.volume.rename_file(self.owner, None, target, self.volume.find(source))

    def remove(self, path: str) -> None:
        self._operate("remove")
        self.volume.rename_file(self.owner, path, None, self.volume.find(path))

    def remove_directory(self, path: str) -> None:
        self._operate("remove-directory")
        self.volume.remove_directory(path.rstrip("/"))

    def sync_directory(self, path: str) -> None:
        self._operate("sync-directory")
        self.volume.need_directory(path)
        self.volume.sync_names(path.rstrip("/"))

    sync_files = staticmethod(sync_each)

    def within(self, directory: str) -> AbstractContextManager[Disk]:
        return nullcontext(self)

    def space(self, path: str) -> Space:
        self._check()
        if not self.volume.has(path):
            raise FileNotFoundError(path)
        return Space(max(self.volume.capacity_bytes - self.volume.used_bytes(), 0), self.volume.capacity_bytes)

    def modified_ns(self, path: str) -> int:
        self._check()
        return self.volume.find(path).modified_ns

    def touch(self, path: str) -> None:
        self._operate("touch")
        self.volume.find(path).modified_ns = self.volume.tick()


class SimFileLock:
    """A lock on a file, not on a path; dropped when its owner is killed. Implements ``ports.FileLock``."""

    def __init__(self, volume: SimVolume, path: str, owner: str) -> None:
        """Begin without holding the lock."""
        self.path = path
        self.owner = owner
        self._volume = volume
        self._generation = volume.generation(owner)
        self._locked_last: _Inode | None = None

    def try_acquire(self) -> bool:
        self._volume.check_alive(self.owner, self._generation)
        holder = self._volume.locks.get(self.path)
        if holder is self:
            return True
        inode = self._volume.lock_file(self.path)
        if holder is not None and holder._locked_last is inode:
            return False
        self._locked_last = inode
        self._volume.locks[self.path] = self
        return True

    def release(self) -> None:
        if self._volume.locks.get(self.path) is self:
            del self._volume.locks[self.path]

    def verify(self) -> bool:
        if self._generation != self._volume.generation(self.owner):
            return False
        self._volume.check_alive(self.owner, self._generation)
        return self._volume.locks.get(self.path) is self and self._volume.leads_to(self.path, self._locked_last)
