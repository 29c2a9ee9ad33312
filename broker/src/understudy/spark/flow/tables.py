"""The figures of job ``flow`` as Parquet: rates and depths over time by queue and address, and figures of segments.

Three files, each replaced as a whole. Their columns are in docs/use/pipeline.md, and they do not depend on the number
of queues, addresses or segments that the report lists.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from understudy.errors import ConfigError
from understudy.local_paths import local_path
from understudy.spark.base.synced_files import sync_directory
from understudy.spark.flow.report import Row, Series, segment_figures
from understudy.spark.flow.rows import SegmentTime
from understudy.spark.journal.log_plan import LogPlan

#: Version of the columns, in the metadata of each file.
SCHEMA_VERSION: Final = 1
_TIME: Final = pa.timestamp("ms", tz="UTC")
_INTERVAL: Final = [("begin", _TIME), ("interval_ms", pa.int64())]
#: Rows in one row group.
_GROUP_ROWS: Final = 50_000

QUEUES: Final = pa.schema(
    [
        ("directory", pa.string()), ("queue_id", pa.int64()), ("queue", pa.string()), *_INTERVAL,
        ("came", pa.int64()), ("acknowledged", pa.int64()), ("removed_with_queue", pa.int64()),
        ("came_per_s", pa.float64()), ("acknowledged_per_s", pa.float64()), ("depth", pa.int64()),
        ("live_bytes", pa.int64()),
    ]
)  # fmt: skip
ADDRESSES: Final = pa.schema(
    [
        ("directory", pa.string()), ("address_id", pa.int64()), ("address", pa.string()), *_INTERVAL,
        ("messages", pa.int64()), ("bytes", pa.int64()), ("messages_per_s", pa.float64()),
        ("bytes_per_s", pa.float64()),
    ]
)  # fmt: skip
SEGMENTS: Final = pa.schema(
    [
        ("directory", pa.string()), ("segment", pa.int64()), ("epoch", pa.int64()), ("file", pa.string()),
        ("bytes", pa.int64()), ("begin", _TIME), ("end", _TIME), ("live_messages", pa.int64()),
        ("live_bytes", pa.int64()), ("oldest_message_id", pa.int64()), ("oldest_queue", pa.string()),
        ("oldest_came", _TIME),
    ]
)  # fmt: skip


def write_tables(
    directory: Path,
    plans: Sequence[LogPlan],
    series: Series,
    pins: Sequence[Row],
    times: Sequence[SegmentTime],
) -> None:
    """Write ``queues.parquet``, ``addresses.parquet`` and ``segments.parquet``.

    Args:
        directory: Made if it is missing; files of these names in it are replaced.
        pins: Rows of ``flow_rows.pins``.

    Raises:
        ConfigError: a file cannot be written.
    """
    directory = Path(local_path(str(directory), "the directory of the tables"))
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        _write(directory / "queues.parquet", QUEUES, _queues(series))
        _write(directory / "addresses.parquet", ADDRESSES, _addresses(series))
        _write(directory / "segments.parquet", SEGMENTS, _segments(plans, series, pins, times))
        sync_directory(directory)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(error.filename or directory)) from error


def _write(path: Path, schema: pa.Schema, rows: Iterator[dict[str, Any]]) -> None:
    temporary = path.with_name(f".{path.name}.new")
    described = schema.with_metadata({"understudy.flow.schema_version": str(SCHEMA_VERSION)})
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with pq.ParquetWriter(file, described, compression="zstd") as writer:
                held: list[dict[str, Any]] = []
                for row in rows:
                    held.append(row)
                    if len(held) == _GROUP_ROWS:
                        writer.write_table(pa.Table.from_pylist(held, described))
                        held = []
                if held:
                    writer.write_table(pa.Table.from_pylist(held, described))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _queues(series: Series) -> Iterator[dict[str, Any]]:
    """Each queue in each interval."""
    axis = series.axis
    per_s = 1000 / axis.bucket_ms
    for (directory, queue_id), rows in sorted(series.by_queue().items()):
        found = {row["begin_ms"]: row for row in rows}
        live = series.running(rows, "live_bytes")
        for begin, (_, depth), (_, live_bytes) in zip(axis.begins(), series.depth(rows), live, strict=True):
            row = found.get(begin)
            came, acknowledged = (row["came"], row["acknowledged"]) if row is not None else (0, 0)
            yield {
                "directory": directory, "queue_id": queue_id, "queue": series.queue_name(directory, queue_id),
                "begin": begin, "interval_ms": axis.bucket_ms, "came": came, "acknowledged": acknowledged,
                "removed_with_queue": row["gone"] - acknowledged if row is not None else 0,
                "came_per_s": came * per_s, "acknowledged_per_s": acknowledged * per_s, "depth": depth,
                "live_bytes": live_bytes,
            }  # fmt: skip


def _addresses(series: Series) -> Iterator[dict[str, Any]]:
    """Each address in each interval with a message to it."""
    axis = series.axis
    per_s = 1000 / axis.bucket_ms
    for (directory, address_id), rows in sorted(series.by_address().items()):
        name = series.address_name(directory, address_id)
        for row in sorted(rows, key=lambda row: row["begin_ms"]):
            yield {
                "directory": directory, "address_id": address_id, "address": name, "begin": row["begin_ms"],
                "interval_ms": axis.bucket_ms, "messages": row["messages"], "bytes": row["bytes"],
                "messages_per_s": row["messages"] * per_s, "bytes_per_s": row["bytes"] * per_s,
            }  # fmt: skip


def _segments(
    plans: Sequence[LogPlan], series: Series, pins: Sequence[Row], times: Sequence[SegmentTime]
) -> Iterator[dict[str, Any]]:
    """Each segment of the logs, with the messages that live in it."""
    pinned = {(each["directory"], each["segment"]): each for each in segment_figures(plans, series, pins)}
    known = {(each.directory, each.segment): each for each in times}
    for plan in plans:
        for piece in plan.pieces:
            key = (plan.directory, piece.number)
            live, time = pinned.get(key), known.get(key)
            yield {
                "directory": plan.directory, "segment": piece.number, "epoch": piece.epoch, "file": piece.name,
                "bytes": piece.end,
                "begin": time.begin_ms if time is not None else None,
                "end": time.end_ms if time is not None else None,
                "live_messages": live["live_messages"] if live is not None else 0,
                "live_bytes": live["live_bytes"] if live is not None else 0,
                "oldest_message_id": live["oldest_message_id"] if live is not None else None,
                "oldest_queue": live["oldest_queue"] if live is not None else None,
                "oldest_came": live["oldest_came_ms"] if live is not None else None,
            }  # fmt: skip
