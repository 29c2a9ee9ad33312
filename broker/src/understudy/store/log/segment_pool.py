"""Removed segments that are kept and become the next ones (ADR 0175).

A sync is quickest where it overwrites blocks that were written before. So the file of a segment that left the log is
renamed to ``pool-<number>-<epoch>.space`` instead of being removed, and a later segment is made of it: renamed again,
under a new header, with the old bytes after it. A reader never takes these bytes for records, because the seed of the
crc of each record depends on the number and the epoch of its segment (docs/build/journal-format.md s. 2.2). A file is
used only for a segment with a higher epoch, or with a higher number in the same epoch, so no two uses of a file have
the same seed.

Only the applier that has written and sealed a segment keeps its file: another process that had written it may still
have it open. The rename to the name of the new segment decides between two nodes that want the same file. A file with
a second name (a hard link) is never written again.

The kept files are bounded in number and bytes, count as used, and are removed when the disk is full or nearly so. A
crash leaves files of these names, or ``.new`` files; the next activation uses or removes both.

Calls come from the threads of the log writer and of the housekeeper; each changes the kept files in one step.

Not here: which files are removed (``truncation``), the bytes of a segment (``segment``).
"""

from __future__ import annotations

import logging
import re
from collections import deque
from contextlib import suppress
from typing import Final, NamedTuple

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt, StoreError, StoreVersionUnsupported
from understudy.limits import POOL_BYTES_MAX, POOL_FILES_MAX
from understudy.ports import Disk, File
from understudy.store.log.segment import SegmentHeader, parse_name, read_header

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"pool-([0-9]{12})-([0-9]{10})\.space", re.ASCII)


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Bounds of the kept files."""

    files_max: int = POOL_FILES_MAX
    """Number of files (journal-pool-files); 0: none is kept."""
    bytes_max: int = POOL_BYTES_MAX


class _Kept(NamedTuple):
    """A file that is ready to be used."""

    name: str
    size_bytes: int


def pool_name(number: int, epoch: int) -> str:
    """Name of the kept file that was the segment of this number and epoch."""
    return f"pool-{number:012d}-{epoch:010d}.space"


def parse_pool_name(name: str) -> tuple[int, int] | None:
    """Number and epoch of the segment that a kept file was; None if it is no kept file."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


class SegmentPool:
    """The kept files of one directory of a log."""

    def __init__(self, disk: Disk, directory: str, settings: PoolSettings) -> None:
        """Nothing is touched yet.

        Args:
            disk: Where the log is.
            directory: Absolute path of the log.
            settings: Bounds of the kept files.
        """
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._kept: deque[_Kept] = deque()

    @property
    def files(self) -> int:
        """Number of files that are ready to be used."""
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        """Bytes of these files."""
        return sum(each.size_bytes for each in list(self._kept))

    def keep(self, name: str) -> str | None:
        """Rename a segment that has left the log, unless the bounds are reached. ``offer`` must follow once the rename
        is durable: until then the name of the segment may come back, and must lead to its records.

        Returns:
            Its new name; None: the file is as it was.

        Raises:
            DiskFailed: the disk refused.
        """
        parsed = parse_name(name)
        if parsed is None or not parsed[2] or not self._settings.files_max:
            return None
        file = self._disk.open(self._path(name), read_only=True)
        try:
            fits = self._has_room(file.size())
        finally:
            file.close()
        if not fits:
            return None
        kept = pool_name(*parsed[:2])
        self._disk.rename(self._path(name), self._path(kept))
        return kept

    def offer(self, name: str) -> None:
        """Let a kept file be used; its name is durable."""
        file = self._disk.open(self._path(name), read_only=True)
        try:
            self._kept.append(_Kept(name, file.size()))
        finally:
            file.close()

    def take(self, header: SegmentHeader, target: str) -> File | None:
        """Rename a kept file to ``target``, which must not exist, and open it; None: there is none that may be used.

        Args:
            header: Header of the segment for which a file is wanted.
            target: Absolute path.

        Raises:
            DiskFailed: the disk refused.
        """
        while self._kept:
            try:
                name = self._kept.popleft().name
            except IndexError:
                return None
            try:
                self._disk.rename(self._path(name), target)
            except FileNotFoundError:
                # another node has taken or removed it
                continue
            file = self._disk.open(target)
            if self._may_hold(file, name, header):
                return file
            file.close()
            self._disk.remove(target)
        return None

    @staticmethod
    def _may_hold(file: File, name: str, header: SegmentHeader) -> bool:
        """Whether a file may become the segment of a header."""
        parsed = parse_pool_name(name)
        if parsed is None or (parsed[1], parsed[0]) >= (header.epoch, header.number) or file.links() > 1:
            return False
        try:
            read_header(file, *parsed)
        except (JournalCorrupt, StoreVersionUnsupported, FileNotFoundError):
            # a later use of the file began, and the power failed before all of its names were durable
            return False
        return True

    def give_back(self) -> bool:
        """Remove all kept files; whether there was one.

        Raises:
            DiskFailed: the disk refused.
        """
        removed = 0
        while self._kept:
            try:
                name = self._kept.popleft().name
            except IndexError:
                break
            with suppress(FileNotFoundError):
                self._disk.remove(self._path(name))
            removed += 1
        if removed:
            log.info("kept segments removed: the disk is short", extra={"path": self._directory, "files": removed})
        return bool(removed)

    def adopt(self) -> None:
        """Take over the files that an earlier activation has kept, and remove those that do not fit into the bounds.
        A failure only costs space.
        """
        known = {each.name for each in list(self._kept)}
        names: list[str] = []
        with suppress(StoreError):
            names = self._disk.list(self._directory)
        for name in names:
            parsed = parse_pool_name(name)
            if parsed is None or name in known:
                continue
            path = self._path(name)
            with suppress(StoreError, FileNotFoundError):
                file = self._disk.open(path, read_only=True)
                try:
                    size_bytes = file.size()
                finally:
                    file.close()
                if self._has_room(size_bytes):
                    self._kept.append(_Kept(name, size_bytes))
                else:
                    self._disk.remove(path)

    def _has_room(self, size_bytes: int) -> bool:
        return self.files < self._settings.files_max and self.size_bytes + size_bytes <= self._settings.bytes_max

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
