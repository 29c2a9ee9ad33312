"""Parquet files of an archive, written by Spark's tasks: messages fetched from their records, and small files merged.

A task writes under a name of its own into one directory and reports its files; the driver moves the reported ones to
their places. So an attempt that fails, is repeated or comes late leaves nothing in a generation.

Not here: which messages go into which file (``archive_rows``), and the layout of an archive (``archive_layout``).
"""

from __future__ import annotations

import os
import uuid
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, JournalCorrupt, LargeMessageFailed
from understudy.kernel.log import crc32
from understudy.message import BODY_END_BIAS, LargeBody, large_body_of
from understudy.ports import File
from understudy.runtime.base.disk import RealDisk
from understudy.spark.archive.layout import DataFile
from understudy.spark.archive.rows import PARTITION
from understudy.spark.journal.decode import Block, MessageRows
from understudy.spark.journal.log_plan import Piece
from understudy.store.log.records import MESSAGE_LARGE
from understudy.store.log.segment import seed_of
from understudy.store.messages.large_messages import LargeReader
from understudy.texts import reason_of

#: Bytes of records and bodies that are held before they are written as a row group.
CHUNK_BYTES: Final = 32 * 1024 * 1024
#: Number of records in one row group of a Parquet file.
CHUNK_ROWS: Final = 50_000
#: Name of the directory of messages without a date, as Hive and Spark write it.
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_READ_BYTES: Final = 1024 * 1024
#: Offset of the flags of a message in its record.
_FLAGS: Final = 65
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

#: States of a body, column ``body_state``.
INLINE: Final = "inline"
WHOLE: Final = "file"
MISSING: Final = "missing"
DAMAGED: Final = "damaged"
TOO_LARGE: Final = "too large"
#: The body is not in the archive.
WITHOUT_BODY: Final = (MISSING, DAMAGED, TOO_LARGE)

#: Columns of a file, schema version 1.
SCHEMA: Final = pa.schema(
    [
        pa.field("node_id", pa.string(), nullable=False),
        pa.field("message_id", pa.int64(), nullable=False),
        pa.field("content_hash", pa.int64(), nullable=False),
        ("address", pa.string()),
        ("queues", pa.list_(pa.string())),
        ("timestamp", _TIMESTAMP),
        ("expiration", _TIMESTAMP),
        ("scheduled", _TIMESTAMP),
        ("priority", pa.int8()),
        ("durable", pa.bool_()),
        ("type", pa.int8()),
        ("user_id", pa.binary()),
        ("duplicate_id", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("body_state", pa.string()),
        ("header", pa.binary()),
        ("large_file_id", pa.int64()),
        ("large_size", pa.int64()),
        ("large_crc", pa.int64()),
        ("epoch", pa.int64()),
        ("sequence", pa.int64()),
        ("moved", pa.bool_()),
    ]
)
#: Columns that are decoded from the record.
_DECODED: Final = (
    "timestamp", "expiration", "scheduled", "priority", "durable", "type", "user_id", "duplicate_id", "properties",
    "header",
)  # fmt: skip
#: Columns that come with the row that names the record.
_GIVEN: Final = ("node_id", "message_id", "content_hash", "address", "queues", "epoch", "sequence", "moved")

#: Columns whose values repeat. Bodies would be written into the dictionary and, as least and greatest, into the end.
_REPEATED: Final = [
    "node_id", "address", "queues.list.element", "properties.key_value.key", "properties.key_value.value",
    "body_state",
]  # fmt: skip
#: Columns by which readers choose row groups.
_COMPARED: Final = [
    field.name
    for field in SCHEMA
    if pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type) or field.name in ("node_id", "address")
]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """Directory in which tasks write, and their limits."""

    directory: str
    """Existing directory in which the tasks write."""
    generation: int
    """Number, for the names of files."""
    large_directories: Mapping[str, tuple[str, ...]]
    """Directory of a journal to the directories in which bodies of its large messages may lie."""
    large_bytes_max: int
    """Larger bodies are left out."""
    file_bytes: int
    """A file that has reached this size gets no more rows."""
    retention: str | None = None
    """Directory of segments that have left the log meanwhile."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a task has written and synced."""

    name: str
    """Name in the directory of the target."""
    partition: str
    rows: int
    size: int
    without_body: Mapping[str, int]
    """State of bodies that are not in the archive -> messages."""

    def placed(self) -> DataFile:
        """The written file at its place in a generation."""
        return DataFile(f"{self.partition}/{self.name}", self.rows, self.size)


def partition_of(row: Row) -> str:
    """The directory of a message below its generation."""
    return "/".join(f"{name}={NO_VALUE if row[name] is None else row[name]}" for name in PARTITION)


class _Output:
    """A Parquet file in the making."""

    def __init__(self, target: Target, partition: str) -> None:
        self._partition = partition
        self._name = f"{target.generation:08d}-{uuid.uuid4().hex}.parquet"
        self._path = Path(target.directory) / self._name
        # messages may be confidential: only the user may read them
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._writer = pq.ParquetWriter(
            self._file, SCHEMA, compression="zstd", use_dictionary=_REPEATED, write_statistics=_COMPARED
        )
        self._rows = 0
        self._without_body: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes written until now."""
        return self._file.tell()

    def add(self, table: pa.Table) -> None:
        """Write one row group."""
        self._writer.write_table(table, row_group_size=max(len(table), 1))
        self._rows += len(table)
        for each in pc.value_counts(table["body_state"]).to_pylist():
            if each["values"] in WITHOUT_BODY:
                state = each["values"]
                self._without_body[state] = self._without_body.get(state, 0) + each["counts"]

    def finish(self) -> Written:
        """Complete the file, with its bytes on the disk."""
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return Written(self._name, self._partition, self._rows, self._path.stat().st_size, self._without_body)

    def discard(self) -> None:
        """Remove the unfinished file."""
        with suppress(Exception):
            self._writer.close()
        with suppress(OSError):
            # buffered bytes cannot be written to a full disk
            self._file.close()
        self._path.unlink(missing_ok=True)


# --- messages ---------------------------------------------------------------------------------------------------------


def write_messages(target: Target, rows: Iterable[Row]) -> Iterator[Written]:
    """Write messages into files, one partition after the other.

    Args:
        target: Where to.
        rows: Rows of ``archive_rows.in_files``, those of one file next to each other.

    Raises:
        JournalCorrupt: a record is not as it was when it was found; names file and offset.
        DiskFailed: a file cannot be read or written.
    """
    fetcher = _Fetcher(target)
    try:
        for (partition, _), group in groupby(rows, key=lambda row: (partition_of(row), row["file_number"])):
            yield from _write_group(target, partition, fetcher.chunks(group))
    finally:
        fetcher.close()


def _write_group(target: Target, partition: str, tables: Iterable[pa.Table]) -> Iterator[Written]:
    output: _Output | None = None
    try:
        for table in tables:
            output = output or _Output(target, partition)
            output.add(table)
            if output.size >= target.file_bytes:
                yield output.finish()
                output = None
        if output is not None:
            yield output.finish()
            output = None
    except OSError as error:
        raise DiskFailed(f"{target.directory} cannot be written: {error.strerror or error}") from error
    finally:
        if output is not None:
            output.discard()


class _Fetcher:
    """Reader of records at given places of the log."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._disk = RealDisk()
        self._file: File | None = None
        self._path = ""

    def close(self) -> None:
        """Close the segment that was read last."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def chunks(self, rows: Iterable[Row]) -> Iterator[pa.Table]:
        """Tables of some messages each, in the order of the rows."""
        held: list[tuple[Row, bytes, _Body]] = []
        size = 0
        for row in rows:
            raw = self._record(row)
            encoded = raw[row["length"] - row["size"] :]
            body = self._body(row, raw, encoded)
            held.append((row, raw, body))
            size += len(raw) + len(body.data or b"")
            if size >= CHUNK_BYTES or len(held) >= CHUNK_ROWS:
                yield _table(held)
                held, size = [], 0
        if held:
            yield _table(held)

    def _record(self, row: Row) -> bytes:
        path = f"{row['directory']}/{row['file']}"
        if self._file is None or self._path != path:
            self.close()
            self._path = path
            self._file = self._open(path, row["file"])
        raw = bytes(self._file.read(row["offset"], row["length"]))
        crc = int.from_bytes(raw[:4], "little")
        if len(raw) != row["length"] or crc32(raw[4:], seed_of(row["segment"], row["epoch"])) != crc:
            raise JournalCorrupt("the record has changed since it was found", file=path, offset=row["offset"])
        return raw

    def _open(self, path: str, name: str) -> File:
        try:
            return self._disk.open(path, read_only=True)
        except FileNotFoundError as error:
            retention = self._target.retention
            if retention is not None and self._disk.exists(f"{retention}/{name}"):
                return self._disk.open(f"{retention}/{name}", read_only=True)
            raise DiskFailed(f"{path} disappeared", hint="was a broker started there?") from error

    def _body(self, row: Row, raw: bytes, encoded: bytes) -> _Body:
        if not raw[_FLAGS] & MESSAGE_LARGE:
            return _Body(INLINE, encoded[4 : 4 + int.from_bytes(encoded[:4], "big") - BODY_END_BIAS], None)
        try:
            large = large_body_of(encoded)
        except ValueError as error:
            path = f"{row['directory']}/{row['file']}"
            raise JournalCorrupt(str(error), file=path, offset=row["offset"]) from error
        if large.size_bytes > self._target.large_bytes_max:
            return _Body(TOO_LARGE, None, large)
        state = MISSING
        for directory in self._target.large_directories[row["directory"]]:
            path = f"{directory}/{large.file_id}.large"
            if not self._disk.exists(path):
                continue
            try:
                return _Body(WHOLE, _read_whole(LargeReader(self._disk, path, large)), large)
            except LargeMessageFailed:
                state = DAMAGED
        return _Body(state, None, large)


@dataclass(frozen=True, slots=True)
class _Body:
    state: str
    data: bytes | None
    large: LargeBody | None


def _read_whole(reader: LargeReader) -> bytes:
    try:
        pieces = []
        while reader.left_bytes:
            pieces.append(reader.read(_READ_BYTES))
        return b"".join(pieces)
    finally:
        reader.pause()


def _table(held: Sequence[tuple[Row, bytes, _Body]]) -> pa.Table:
    """The columns of some messages."""
    rows = [row for row, _, _ in held]
    try:
        decoded = _decoded(rows, [raw for _, raw, _ in held])
    except JournalCorrupt:
        for row, raw, _ in held:
            _decoded([row], [raw], row["offset"])  # this raises the error with the place of the record
        raise
    larges = [body.large for _, _, body in held]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in _GIVEN} | decoded
    columns["body"] = [body.data for _, _, body in held]
    columns["body_state"] = [body.state for _, _, body in held]
    columns["large_file_id"] = [large and large.file_id for large in larges]
    columns["large_size"] = [large and large.size_bytes for large in larges]
    columns["large_crc"] = [large and large.crc for large in larges]
    arrays = []
    for field in SCHEMA:
        found = columns[field.name]
        arrays.append(found.cast(field.type) if isinstance(found, pa.Array) else pa.array(found, field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _decoded(rows: Sequence[Row], raws: Sequence[bytes], origin: int = 0) -> dict[str, pa.Array]:
    """Columns of the source of table ``messages``, one row for each record.

    Args:
        rows: The places of the records.
        raws: Their bytes.
        origin: Offset in its file of a record that is alone.
    """
    positions, at = array("i"), 0
    for raw in raws:
        positions.append(at)
        at += len(raw)
    first = rows[0]
    piece = Piece(first["directory"], first["node_id"], first["segment"], first["epoch"], 0, 0, 0, None)
    found = MessageRows(Block(piece, b"".join(raws), origin, positions), {}, {})
    # a record has a row for each queue
    before = pa.concat_arrays([pa.array([-1], found.starts.type), found.starts])[:-1]
    found.keep(pc.not_equal(found.starts, before))
    return {name: found.column(name) for name in _DECODED}


# --- compaction -------------------------------------------------------------------------------------------------------


def merge_files(target: Target, generation: str, partition: str, files: Sequence[DataFile]) -> list[Written]:
    """Write the rows of some files of a partition into one, or a few of the target's size.

    Args:
        target: Where to.
        generation: Directory to which the paths of the files are relative.
        partition: Their partition.
        files: Files in order.

    Raises:
        DiskFailed: a file cannot be read or written.
    """
    return list(_write_group(target, partition, _groups(Path(generation), files)))


def _groups(generation: Path, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    size = rows = 0
    for each in files:
        try:
            with pq.ParquetFile(generation / each.path) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group)
                    held.append(table)
                    size, rows = size + table.nbytes, rows + len(table)
                    if size >= CHUNK_BYTES or rows >= CHUNK_ROWS:
                        yield pa.concat_tables(held)
                        held, size, rows = [], 0, 0
        except (OSError, pa.ArrowException) as error:
            raise DiskFailed(f"{generation / each.path} cannot be read: {reason_of(error)}") from error
    if held:
        yield pa.concat_tables(held)


def rows_in(path: Path) -> int:
    """The number of rows that the end of a Parquet file states.

    Raises:
        DiskFailed: it cannot be read.
    """
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise DiskFailed(f"{path} cannot be read: {reason_of(error)}") from error
