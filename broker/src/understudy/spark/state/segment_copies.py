"""Files that a new store needs: segments as far as they are part of the log, and bodies of large messages."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator

from pyspark.sql import Row

from understudy.dataclass import dataclass
from understudy.ports import Disk
from understudy.spark.journal.log_plan import LogPlan
from understudy.spark.state.store_output import FileCopy, copy_file
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, read_header, segment_name
from understudy.store.quarantine import entry_names, quarantine_path


def copies_of_segments(disk: Disk, plan: LogPlan, target: str, left_out: Container[int] = ()) -> list[FileCopy]:
    """The segments of a log, up to their ends; those of the newest epoch that are not used yet come along.

    Args:
        disk: Where the log is; only read.
        target: Directory of the copies.
        left_out: Numbers of segments that are not copied.
    """
    found = []
    last = plan.pieces[-1]
    for piece in plan.pieces:
        if piece.number not in left_out:
            size = piece.end
            if piece.epoch == last.epoch and piece.digest is None:
                # a file without a seal that is shorter than its header says is damaged
                size = max(size, _allocated_bytes(disk, plan.directory, piece.number, piece.epoch))
            found.append(FileCopy(piece.path, f"{target}/{piece.name}", piece.end, size))
    for parsed in map(parse_name, disk.list(plan.directory)):
        if parsed is not None and parsed[2] and parsed[1] == last.epoch and parsed[0] > last.number:
            # a sealed segment has a next one
            name = segment_name(*parsed[:2])
            size = _allocated_bytes(disk, plan.directory, *parsed[:2])
            found.append(FileCopy(f"{plan.directory}/{name}", f"{target}/{name}", HEADER_BLOCK_BYTES, size))
    return found


def _allocated_bytes(disk: Disk, directory: str, number: int, epoch: int) -> int:
    file = disk.open(f"{directory}/{segment_name(number, epoch)}", read_only=True)
    try:
        return max(read_header(file, number, epoch).allocated_bytes, HEADER_BLOCK_BYTES)
    finally:
        file.close()


def copies_of_entries(disk: Disk, directory: str, target: str) -> list[FileCopy]:
    """The entries of the quarantine, without which a reader takes records that were set aside for damage."""
    source, found = quarantine_path(directory), []
    for name in entry_names(disk, directory):
        size = os.stat(f"{source}/{name}").st_size
        found.append(FileCopy(f"{source}/{name}", f"{quarantine_path(target)}/{name}", size, size))
    return found


@dataclass(frozen=True, slots=True)
class BodyCopies:
    """Copies bodies of large messages, in a task."""

    sources: tuple[str, ...]
    """Directories in which the bodies may be."""
    target: str

    def copy(self, rows: Iterable[Row]) -> Iterator[tuple[int, int, int]]:
        """A row for each ``file_id``: whether it was found (1 or 0), 1, and its bytes."""
        for row in rows:
            name = f"{row['file_id']}.large"
            source = next((path for path in self._paths(name) if os.path.isfile(path)), None)
            if source is None:
                yield 0, 1, 0
                continue
            size = os.stat(source).st_size
            copy_file(FileCopy(source, f"{self.target}/{name}", size, size))
            yield 1, 1, size

    def _paths(self, name: str) -> list[str]:
        return [f"{directory}/{name}" for directory in self.sources]
