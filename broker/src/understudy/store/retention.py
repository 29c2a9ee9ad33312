"""Segments that left the log are kept for a while: element journal-retention-directory.

Each is moved there when it would be removed, so keeping costs no room at that moment; into another
file system it is copied. ``prune`` takes the oldest away by age and by room. Retention never stops a
broker: what cannot be kept is removed all the same, and said.

Not here: sending retained messages again (``retained``), or when segments leave (``trimming``).
"""

from __future__ import annotations

import logging
import posixpath
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from understudy.errors import JournalCorrupt, StoreError
from understudy.ports import Disk, File
from understudy.store.segment import NEW_SUFFIX, parse_name, read_header, read_seal

log = logging.getLogger(__name__)

_COPY_BYTES: Final = 4 * 1024 * 1024
#: Between two prunings when nothing is retired.
PRUNE_EVERY_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """Where segments are kept, and how long."""

    directory: str
    """Absolute (journal-retention-directory)."""
    period_ms: int = 0
    """Age at which they go, from their seal on (period and unit); 0 keeps them."""
    bytes_max: int = -1
    """Room they may take together (storage-limit); -1 for any."""


class Retention:
    """See the module's text. Runs on the writer's thread and blocks."""

    def __init__(self, disk: Disk, settings: RetentionSettings) -> None:
        """
        Args:
            disk: Of the store and the directory.
            settings: See there.
        """
        self._disk = disk
        self._settings = settings

    def retire(self, path: str) -> None:
        """Move a segment away, or leave it to be removed if it cannot be kept."""
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
            log.warning("segment not retained", extra={"path": path, "directory": directory, "error": str(error)})

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
        """Remove what is too old, then the oldest until the rest fits."""
        settings = self._settings
        try:
            kept: list[tuple[str, int]] = []
            for name in self._disk.list(settings.directory):
                parsed = parse_name(name)
                if parsed is None or not parsed[2]:
                    continue
                path = f"{settings.directory}/{name}"
                file = self._disk.open(path, read_only=True)
                try:
                    size_bytes, sealed_ms = file.size(), _sealed_ms(file, parsed[0], parsed[1])
                finally:
                    file.close()
                if settings.period_ms and now_ms - sealed_ms > settings.period_ms:
                    self._disk.remove(path)
                else:
                    kept.append((path, size_bytes))
            total = sum(size_bytes for _, size_bytes in kept)
            # names rise with the log
            for path, size_bytes in kept:
                if settings.bytes_max < 0 or total <= settings.bytes_max:
                    break
                self._disk.remove(path)
                total -= size_bytes
        except (StoreError, OSError) as error:
            log.warning("retention not pruned", extra={"directory": settings.directory, "error": str(error)})


def _sealed_ms(file: File, number: int, epoch: int) -> int:
    """When the segment was sealed; made, if an epoch ended it; long ago, if it is damaged."""
    try:
        header = read_header(file, number, epoch)
    except JournalCorrupt:
        return 0
    found = read_seal(file, header)
    return found[1].sealed_ms if found is not None else header.created_ms
