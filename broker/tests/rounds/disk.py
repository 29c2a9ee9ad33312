"""The disk of one node process: faults of its operations, and the loss of everything that no sync covers.

``disk_faults.c`` is preloaded into the process. It logs each change with the bytes before and after it, each change of
a name, and each sync. ``DiskFaults.lose_power`` is called when the process has been killed: changes that no sync covers
are undone. Of them either all are lost, or any part is kept: of the bytes any sectors, of the names of one directory
any first part in the order of the changes. A file and its name are synced apart, as POSIX promises no more. A sync that
failed covers nothing, and no later sync does either.

A process that ended without a loss of power leaves its changes to the kernel, which writes them some time: they count
as synced when the next process begins (``begin``).
"""

from __future__ import annotations

import mmap
import os
import random
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Final

from support import forked

SOURCE: Final = Path(__file__).with_name("disk_faults.c")
#: ``struct control`` and ``struct entry`` of the source.
_CONTROL: Final = struct.Struct("<IIQQ")
_ENTRY: Final = struct.Struct("<IIQQQQqqIIII")
_SECTOR_BYTES: Final = 512


class Fault(IntFlag):
    """Operations that fail; several at once."""

    READ = 1
    """EIO."""
    WRITE = 2
    """EIO, also when space is allocated."""
    SYNC = 4
    """EIO; the changes that it would have covered are lost with the power."""
    NO_SPACE = 8
    """ENOSPC when a file is made or grows."""
    FLIP = 16
    """A read returns one wrong bit."""


class _Kind(IntEnum):
    WRITE = 1
    SIZE = 2
    SYNC = 3
    SYNC_FAILED = 4
    CREATE = 5
    RENAME = 6
    LINK = 7
    UNLINK = 8
    MKDIR = 9
    RMDIR = 10


_NAMES: Final = frozenset({_Kind.CREATE, _Kind.RENAME, _Kind.LINK, _Kind.UNLINK, _Kind.MKDIR, _Kind.RMDIR})


@dataclass(slots=True)
class _Entry:
    at: int
    """Position in the log."""
    kind: _Kind
    inode: int
    directory: int
    other_directory: int
    replaced: int
    offset: int
    old_size: int
    path: str
    other: str
    before: bytes
    after: bytes
    covered: bool = False
    """A sync covers it."""
    doomed: bool = False
    """A sync of it failed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Changes that a loss of power took."""

    writes: int
    """Changes of files that no sync covered."""
    names: int
    """Changes of names that no sync covered."""
    undone: int
    """Changes of both kinds that were not kept."""


def build(directory: Path) -> Path:
    """Compile the library. Raises CalledProcessError, FileNotFoundError: there is no compiler, or it fails."""
    library = directory / "disk_faults.so"
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    forked.run([*command, "-ldl", "-lpthread"], check=True, capture_output=True, text=True)
    return library


class DiskFaults:
    """The disk of one node process."""

    def __init__(self, library: Path, directory: Path, roots: Sequence[Path], *, logs: bool) -> None:
        """Args:
        library: Path of the library that ``build`` compiled.
        directory: Scratch directory, on the same file system as the roots.
        roots: Directories whose files are observed.
        logs: Whether the changes are logged, which ``lose_power`` needs.
        """
        directory.mkdir(parents=True)
        self._roots = [each.resolve() for each in roots]
        self._log, self._graves = directory / "changes", directory / "graves"
        self._graves.mkdir()
        self._logs = logs
        path = directory / "control"
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._environment = {
            "LD_PRELOAD": str(library),
            "ROUNDS_ROOTS": ":".join(map(str, self._roots)),
            "ROUNDS_CONTROL": str(path),
        }
        if logs:
            self._environment |= {"ROUNDS_LOG": str(self._log), "ROUNDS_GRAVES": str(self._graves)}

    @property
    def prefix(self) -> tuple[str, ...]:
        """The beginning of the command line of the process."""
        return ("env", *(f"{key}={value}" for key, value in self._environment.items()))

    # --- faults --------------------------------------------------------------------------------------

    def fail(self, faults: Fault, permille: int, seed: int) -> None:
        """Let ``permille`` of 1,000 operations of the given kinds fail from now on."""
        self._control[: _CONTROL.size] = _CONTROL.pack(faults, permille, seed, 0)

    def heal(self) -> int:
        """No operation fails any more; the number of those that did."""
        hits: int = _CONTROL.unpack_from(self._control)[3]
        self.fail(Fault(0), 0, 0)
        return hits

    # --- power ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A process is about to start: the changes of the one before count as synced."""
        self._log.unlink(missing_ok=True)
        for grave in self._graves.iterdir():
            grave.unlink()

    def lose_power(self, stream: random.Random) -> Lost:
        """Undo the changes that no sync covers. The process must have been killed, and no other one may use its files
        until the return.
        """
        assert self._logs
        entries = _judge(list(_read(self._log.read_bytes() if self._log.exists() else b"")))
        keeps = stream.random() < 0.5
        names = [each for each in entries if each.kind in _NAMES and not each.covered]
        kept = _kept_names(names, stream) if keeps else set()
        for each in reversed(names):
            if each.at not in kept:
                self._undo_name(each)
        undone = len(names) - len(kept)
        places = self._places()
        writes = 0
        of: defaultdict[int, list[_Entry]] = defaultdict(list)
        for each in entries:
            if each.kind in (_Kind.WRITE, _Kind.SIZE):
                of[each.inode].append(each)
        for inode, changes in of.items():
            first = next((index for index, each in enumerate(changes) if not each.covered), len(changes))
            open_changes = changes[first:]
            writes += sum(not each.covered for each in open_changes)
            if open_changes and inode in places:
                undone += _undo_bytes(places[inode], open_changes, stream if keeps else None)
        self.begin()
        return Lost(writes, len(names), undone)

    def _places(self) -> dict[int, Path]:
        """A path of each inode below the roots."""
        found: dict[int, Path] = {}
        for root in self._roots:
            for folder, _, files in os.walk(root):
                for name in files:
                    path = Path(folder, name)
                    with suppress(FileNotFoundError):
                        found[path.lstat().st_ino] = path
        return found

    def _undo_name(self, entry: _Entry) -> None:
        path = Path(entry.path)
        if not path.parent.exists():
            # the removal of the directory survives, and its names are gone with it
            return
        match entry.kind:
            case _Kind.CREATE | _Kind.LINK:
                path.unlink(missing_ok=True)
            case _Kind.UNLINK:
                _link_again(self._graves / str(entry.inode), path)
            case _Kind.RENAME:
                with suppress(FileNotFoundError):
                    Path(entry.other).rename(path)
                if entry.replaced:
                    _link_again(self._graves / str(entry.replaced), Path(entry.other))
            case _Kind.MKDIR:
                with suppress(OSError):
                    path.rmdir()
            case _Kind.RMDIR:
                path.mkdir(exist_ok=True)
            case _:
                raise AssertionError(entry.kind)


def _link_again(grave: Path, path: Path) -> None:
    """Give a removed file its name back, unless the name is in use, or its directory is gone."""
    if grave.exists() and path.parent.exists() and not path.exists():
        os.link(grave, path)


def _read(data: bytes) -> Iterable[_Entry]:
    at = 0
    while at + _ENTRY.size <= len(data):
        fields = _ENTRY.unpack_from(data, at)
        size, kind, inode, directory, other_directory, replaced, offset, old_size, *lengths = fields
        if at + size > len(data):
            break
        rest, parts = at + _ENTRY.size, []
        for length in lengths:
            parts.append(data[rest : rest + length])
            rest += length
        path, other, before, after = parts
        numbers = (inode, directory, other_directory, replaced, offset, old_size)
        yield _Entry(at, _Kind(kind), *numbers, os.fsdecode(path), os.fsdecode(other), before, after)
        at += size


def _judge(entries: list[_Entry]) -> list[_Entry]:
    """Mark the changes that a sync covers. A sync of a directory covers the changes of its names."""
    waiting: defaultdict[int, list[_Entry]] = defaultdict(list)
    for each in entries:
        match each.kind:
            case _Kind.SYNC:
                left = []
                for change in waiting[each.inode]:
                    if change.at < each.offset and not change.doomed:
                        change.covered = True
                    else:
                        left.append(change)
                waiting[each.inode] = left
            case _Kind.SYNC_FAILED:
                for change in waiting[each.inode]:
                    change.doomed = True
            case _Kind.WRITE | _Kind.SIZE:
                waiting[each.inode].append(each)
            case _:
                # a rename between directories is covered with the directory that gets the name
                waiting[each.other_directory or each.directory].append(each)
    return entries


def _kept_names(names: Sequence[_Entry], stream: random.Random) -> set[int]:
    """Positions of the changes of names that survive: of each directory the first ones."""
    by_directory: defaultdict[int, list[int]] = defaultdict(list)
    for each in names:
        by_directory[each.directory].append(each.at)
    return {at for each in by_directory.values() for at in each[: stream.randint(0, len(each))]}


def _undo_bytes(path: Path, changes: Sequence[_Entry], stream: random.Random | None) -> int:
    """Put a file back to the state before the first of these changes, then make those again that survive. Returns the
    number of the others; ``stream``: chooses the surviving sectors, None: no change survives that no sync covers.
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        for each in reversed(changes):
            if each.before:
                os.pwrite(descriptor, each.before, each.offset)
            os.ftruncate(descriptor, each.old_size)
        undone = 0
        for each in changes:
            if each.covered:
                _make_again(descriptor, each)
            elif stream is None or each.doomed:
                undone += 1
            elif each.kind is _Kind.SIZE:
                if stream.random() < 0.5:
                    _make_again(descriptor, each)
                else:
                    undone += 1
            else:
                undone += _some_sectors(descriptor, each, stream)
        os.fsync(descriptor)
        return undone
    finally:
        os.close(descriptor)


def _make_again(descriptor: int, entry: _Entry) -> None:
    if entry.kind is _Kind.SIZE:
        os.ftruncate(descriptor, entry.offset)
    else:
        os.pwrite(descriptor, entry.after, entry.offset)


def _some_sectors(descriptor: int, entry: _Entry, stream: random.Random) -> bool:
    """Write any of the sectors of a change; whether one was left out."""
    missing, at, end = False, entry.offset, entry.offset + len(entry.after)
    while at < end:
        stop = min(end, (at // _SECTOR_BYTES + 1) * _SECTOR_BYTES)
        if stream.random() < 0.5:
            os.pwrite(descriptor, entry.after[at - entry.offset : stop - entry.offset], at)
        else:
            missing = True
        at = stop
    return missing
