"""Forecasts from series of a store: when the disk is full, and how long a take-over reads. Plain arithmetic.

Not here: the series (``flow_rows``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

from understudy.dataclass import dataclass
from understudy.ports import Disk
from understudy.spark.journal.log_plan import LogPlan, Piece
from understudy.store.log.reading.replay import Cursor, replay
from understudy.store.log.segment import HEADER_BLOCK_BYTES, seed_of
from understudy.store.snapshots.snapshot import read_snapshot_header, snapshot_names
from understudy.store.state import StoreState

#: Bytes of the log that are replayed to measure the rate of this machine.
MEASURED_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DiskForecast:
    """When the file system of a store is full, at the growth that the log shows."""

    used_bytes: int
    """Bytes of the files of the journal."""
    free_bytes: int
    """Left for it: of the capacity that was given, or of its file system."""
    growth_bytes_s: float | None
    """Growth of live records, which no consolidation can remove: slope of a straight line; None if there are too few
    times.
    """
    written_bytes_s: float | None
    """Bytes of log written in a second, live or not."""
    full_in_s: float | None
    """At the growth of live records; None: they do not grow."""
    full_in_s_at_least: float | None
    """If nothing that is written were removed; None: nothing is written."""


@dataclass(frozen=True, slots=True)
class TakeOverForecast:
    """Time for which a backup that starts now reads before it can be active."""

    snapshot: str | None
    """File name of the newest snapshot that is of this log."""
    snapshot_bytes: int
    tail_bytes: int
    """Bytes of the log after the snapshot."""
    rate_bytes_s: float
    """Measured here, or given."""
    seconds: float


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Slope of the line with the least squares through the points; None for fewer than two different places."""
    if len({x for x, _ in points}) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / sum((x - mean_x) ** 2 for x, _ in points)


def forecast_disk(
    used_bytes: int, free_bytes: int, live: Sequence[tuple[int, int]], written_bytes: int, span_ms: int
) -> DiskForecast:
    """When the disk is full.

    Args:
        free_bytes: Left.
        live: Time in milliseconds and bytes of live records then.
        written_bytes: Bytes of the log in the time of the series.
        span_ms: That time.
    """
    growth = slope([(at_ms / 1000, size) for at_ms, size in live])
    written = 1000 * written_bytes / span_ms if span_ms > 0 else None
    return DiskForecast(
        used_bytes, free_bytes, growth, written,
        free_bytes / growth if growth is not None and growth > 0 else None,
        free_bytes / written if written else None,
    )  # fmt: skip


def free_bytes_of(directory: str, used_bytes: int, capacity: int | None) -> int:
    """Bytes left for a store: of a capacity, or on its file system for a user without privileges."""
    if capacity is not None:
        return max(capacity - used_bytes, 0)
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def used_bytes_of(directory: str) -> int:
    """Bytes allocated to the files of a journal."""
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                # a running broker has removed the file
                continue
    return total


def forecast_take_over(disk: Disk, plan: LogPlan, rate_bytes_s: float | None) -> TakeOverForecast:
    """How long a take-over reads: the newest snapshot, and the log after it.

    Args:
        disk: Where the log is.
        rate_bytes_s: Bytes replayed in a second; None to measure it with the newest segments.
    """
    pieces = plan.pieces
    name, number = _newest(disk, plan)
    tail = [piece for piece in pieces if piece.number > number]
    size = os.stat(f"{plan.directory}/{name}").st_size if name is not None else 0
    rate = rate_bytes_s or measure_replay(disk, pieces)
    tail_bytes = sum(piece.end for piece in tail)
    return TakeOverForecast(name, size, tail_bytes, rate, (size + tail_bytes) / rate if rate else 0.0)


def _newest(disk: Disk, plan: LogPlan) -> tuple[str | None, int]:
    """The newest snapshot at the end of a segment of the log, and the number of that segment."""
    epochs = {piece.number: piece.epoch for piece in plan.pieces}
    for name in snapshot_names(disk.list(plan.directory)):
        file = disk.open(f"{plan.directory}/{name}", read_only=True)
        try:
            header = read_snapshot_header(file, name)
        finally:
            file.close()
        if epochs.get(header.number) == header.segment_epoch:
            return name, header.number
    return None, 0


def measure_replay(disk: Disk, pieces: Sequence[Piece]) -> float:
    """Bytes in a second that the broker's replay reads of these segments on this machine; 0 for an empty log."""
    done, began = 0, time.perf_counter()
    for piece in reversed(pieces):
        if done >= MEASURED_BYTES:
            break
        file = disk.open(piece.path, read_only=True)
        try:
            cursor = Cursor(piece.path, piece.number, piece.epoch, seed_of(piece.number, piece.epoch))
            data = file.read(HEADER_BLOCK_BYTES, min(piece.end - HEADER_BLOCK_BYTES, MEASURED_BYTES))
            replay(StoreState(), cursor, data)
            done += cursor.offset - HEADER_BLOCK_BYTES
        finally:
            file.close()
    return done / max(time.perf_counter() - began, 1e-9)
