"""Retention of removed segments and bodies of large messages for a configured time or size: element
journal-retention-directory.

Each is moved there when it would be removed, so keeping costs no space at that moment; into another
file system it is copied. ``prune`` takes the oldest segments away by age and by size. A body has no age of
its own: it goes with the last retained segment that is old enough to hold its message, which the ids tell
(``SealRecord.message_id_min``), so a message can be had again exactly as long as its segment is kept.
Retention never stops a broker: a file that cannot be kept is removed, and a warning is logged.

Not here: sending retained messages again (``tools.retained``), or when segments leave (``truncation``).
"""

from __future__ import annotations

import logging
import posixpath
import re
import struct
from collections import deque
from contextlib import suppress
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt, StoreError
from understudy.ports import Disk, File
from understudy.store.log.reading.replay import read_frames
from understudy.store.log.records import HEADER_BYTES, RecordType
from understudy.store.log.segment import NEW_SUFFIX, parse_name, read_header, read_seal, seed_of
from understudy.store.snapshots.reserve import RESERVE_NAME
from understudy.store.snapshots.snapshot import parse_snapshot_name

log = logging.getLogger(__name__)

_COPY_BYTES: Final = 4 * 1024 * 1024
#: Between two prunings when nothing is retired.
PRUNE_EVERY_MS: Final = 60_000

_MESSAGE_ID: Final = struct.Struct("<Q")
_BODY: Final = re.compile(r"(\d{1,20})\.large")


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """Directory in which segments and bodies are retained, and for how long."""

    directory: str
    """Absolute path of the retained files (element journal-retention-directory)."""
    period_ms: int = 0
    """Age at which segments go, from their seal on (period and unit); 0 keeps them."""
    bytes_max: int = -1
    """Room that segments and bodies may take together (storage-limit); -1 for any."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A retained segment."""

    path: str
    size_bytes: int
    sealed_ms: int
    message_id_min: int
    """Lowest id of a message in it; 0 for none."""
    message_id_max: int


class Retention:
    """The retention directory of one store. Its calls block: segments are moved on the journal's thread, bodies
    on that of large messages.
    """

    def __init__(self, disk: Disk, settings: RetentionSettings) -> None:
        """
        Args:
            disk: Disk of the store and the directory.
            settings: See there.
        """
        self._disk = disk
        self._settings = settings
        self._seen: dict[str, _Kept] = {}
        """Retained segments found before; they never change."""
        self._gone_id_max = 0
        """Highest id of a message in a segment that was removed."""

    def retire(self, path: str) -> None:
        """Move a segment or a body away, or leave it to be removed if it cannot be kept."""
        directory = self._settings.directory
        target = f"{directory}/{posixpath.basename(path)}"
        try:
            self._disk.make_directory(directory)
            try:
                self._disk.rename(path, target)
            except StoreError:
                # another file system
                self._copy(path, target)
            self._disk.sync_directory(directory)
        except (StoreError, OSError) as error:
            log.warning("not retained", extra={"path": path, "directory": directory, "error": str(error)})

    def _copy(self, path: str, target: str) -> None:
        temporary = target + NEW_SUFFIX
        with suppress(FileNotFoundError):
            self._disk.remove(temporary)
        source = self._disk.open(path, read_only=True)
        try:
            copy = self._disk.open(temporary, create=True)
            try:
                offset = 0
                while data := source.read(offset, _COPY_BYTES):
                    copy.write(offset, (data,))
                    offset += len(data)
                copy.sync()
            except BaseException:
                copy.close()
                with suppress(StoreError):
                    self._disk.remove(temporary)
                raise
            copy.close()
        finally:
            source.close()
        self._disk.rename(temporary, target)

    def prune(self, now_ms: int) -> None:
        """Remove segments that are too old, then the oldest until the rest fits."""
        try:
            self._prune(now_ms)
        except (StoreError, OSError) as error:
            log.warning("retention not pruned", extra={"directory": self._settings.directory, "error": str(error)})

    def _prune(self, now_ms: int) -> None:
        settings = self._settings
        segments: deque[_Kept] = deque()
        bodies: list[tuple[int, str, int]] = []
        names = self._disk.list(settings.directory)
        # the log of another node, or a link to one: its segments are in use. A full disk takes the reserve away.
        if of_log := next((name for name in names if name == RESERVE_NAME or parse_snapshot_name(name)), None):
            raise StoreError(f"{settings.directory} holds the log of a store ({of_log} is there)")
        # names of segments rise with the log
        for name in names:
            path = f"{settings.directory}/{name}"
            parsed, body = parse_name(name), _BODY.fullmatch(name)
            if parsed is not None and parsed[2]:
                segments.append(self._seen.get(path) or self._look(path, parsed[0], parsed[1]))
            elif body is not None:
                bodies.append((int(body[1]), path, self._size_bytes(path)))
        self._seen = {each.path: each for each in segments}
        for each in list(segments):
            if settings.period_ms and now_ms - each.sealed_ms > settings.period_ms:
                segments.remove(each)
                self._remove_segment(each)
        total_bytes = sum(each.size_bytes for each in segments) + sum(size_bytes for _, _, size_bytes in bodies)
        waiting = deque(sorted(bodies))
        while True:
            # ids after those of all retained segments belong to segments that are still part of the log
            needed_from = min((each.message_id_min for each in segments if each.message_id_min), default=0)
            while waiting and waiting[0][0] < (needed_from or self._gone_id_max + 1):
                total_bytes -= self._remove_body(waiting.popleft())
            if settings.bytes_max < 0 or total_bytes <= settings.bytes_max:
                return
            if segments:
                total_bytes -= self._remove_segment(segments.popleft())
            elif waiting:
                total_bytes -= self._remove_body(waiting.popleft())
            else:
                return

    def _remove_segment(self, segment: _Kept) -> int:
        self._disk.remove(segment.path)
        self._seen.pop(segment.path, None)
        self._gone_id_max = max(self._gone_id_max, segment.message_id_max)
        return segment.size_bytes

    def _remove_body(self, body: tuple[int, str, int]) -> int:
        self._disk.remove(body[1])
        return body[2]

    def _size_bytes(self, path: str) -> int:
        file = self._disk.open(path, read_only=True)
        try:
            return file.size()
        finally:
            file.close()

    def _look(self, path: str, number: int, epoch: int) -> _Kept:
        file = self._disk.open(path, read_only=True)
        try:
            size_bytes = file.size()
            try:
                header = read_header(file, number, epoch)
            except JournalCorrupt:
                # a damaged segment counts as sealed long ago
                return _Kept(path, size_bytes, 0, 0, 0)
            found = read_seal(file, header)
            if found is None:
                # the segment was ended by a new epoch
                return _Kept(path, size_bytes, header.created_ms, *_ids(file, number, epoch))
            seal = found[1]
            return _Kept(path, size_bytes, seal.sealed_ms, seal.message_id_min, seal.message_id_max)
        finally:
            file.close()


def _ids(file: File, number: int, epoch: int) -> tuple[int, int]:
    """Lowest and highest id of a message in a segment without a seal; zeros for none."""
    lowest = highest = 0
    for frame, raw in read_frames(file, seed_of(number, epoch)):
        if frame.kind == RecordType.MESSAGE_ADD:
            (message_id,) = _MESSAGE_ID.unpack_from(raw, HEADER_BYTES)
            lowest, highest = min(lowest or message_id, message_id), max(highest, message_id)
    return lowest, highest
