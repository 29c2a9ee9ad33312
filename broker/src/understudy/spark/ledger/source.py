"""Ledger files in Spark: every line that is not blank, with its place and the fields of its row.

A file is read in pieces, in any order. The ordinal of a line is the number of bytes in front of it, in all files one
after the other in the order in which they were given: so lines have the order in which ``understudy.ledger.read`` reads
them, and a piece knows it without the pieces before it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.local_paths import local_path
from understudy.spark.ledger.lines import LINES, parse_lines

#: Name of the format.
FORMAT: Final = "understudy.ledger"
#: Number of bytes of ledgers that one task reads at most.
PARTITION_BYTES: Final = 128 * 1024 * 1024
#: Fewer bytes are not worth a task of their own.
PARTITION_BYTES_MIN: Final = 1024 * 1024
#: Bytes of lines that become one batch of rows.
CHUNK_BYTES: Final = 1024 * 1024
#: A longer line is cut and refused.
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
#: Ordinals fit in this many bits.
ORDINAL_BITS: Final = 40
#: Names of packed files, which would be read as bad lines.
_PACKED: Final = frozenset({".bz2", ".deflate", ".gz", ".gzip", ".lz4", ".snappy", ".xz", ".zst", ".zstd"})
_DDL: Final = {pa.int64(): "bigint", pa.string(): "string", pa.bool_(): "boolean"}
_SCHEMA: Final = ", ".join(["file_index int", *(f"{field.name} {_DDL[field.type]}" for field in LINES)])


@dataclass(frozen=True, slots=True)
class LedgerFiles:
    """Files as they are when an audit begins; rows that are written later are not read."""

    paths: tuple[Path, ...]
    sizes: tuple[int, ...]
    """Sizes of the ledgers in bytes."""

    @classmethod
    def of(cls, paths: Sequence[Path]) -> LedgerFiles:
        """Look at the files.

        Raises:
            ConfigError: a path is a URL, a file is packed, or all together are too large.
            OSError: a file cannot be read.
        """
        paths = [Path(local_path(str(path), "a ledger")) for path in paths]
        sizes = []
        for path in paths:
            if path.suffix.lower() in _PACKED:
                raise ConfigError("compressed ledgers are not read; unpack it first", file=str(path))
            with path.open("rb") as file:
                sizes.append(os.fstat(file.fileno()).st_size)
        if sum(sizes) >> ORDINAL_BITS:
            raise ConfigError(f"{sum(sizes)} bytes of ledgers; at most {1 << ORDINAL_BITS} are audited together")
        return cls(tuple(path.resolve() for path in paths), tuple(sizes))

    def line_number(self, file_index: int, ordinal: int) -> int:
        """The number of a line in its file, from 1."""
        offset, found = ordinal - sum(self.sizes[:file_index]), 1
        with self.paths[file_index].open("rb") as file:
            while offset and (data := file.read(min(CHUNK_BYTES, offset))):
                found += data.count(b"\n")
                offset -= len(data)
        return found


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of the bytes of a file: the lines that begin in it."""

    file_index: int
    path: str
    start: int
    stop: int
    ordinal: int
    """Ordinal of the first byte of the file."""


@dataclass(frozen=True, slots=True)
class LedgerPartition(InputPartition):
    """Pieces of ledgers that one task reads."""

    pieces: tuple[Piece, ...]


class LedgerSource(DataSource):
    """The data source ``understudy.ledger``: files that ``load`` names, or options ``paths`` and ``sizes`` (JSON
    arrays), and ``partitionBytes``.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> str:
        """Columns of every line."""
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of all columns."""
        paths = json.loads(self.options["paths"]) if "paths" in self.options else [self.options["path"]]
        if "sizes" in self.options:
            sizes = json.loads(self.options["sizes"])
        else:
            found = LedgerFiles.of([Path(each) for each in paths])
            paths, sizes = list(map(str, found.paths)), found.sizes
        return LedgerReader(paths, sizes, int(self.options.get("partitionBytes", PARTITION_BYTES)))


class LedgerReader(DataSourceReader):
    """Reads ledgers in pieces."""

    def __init__(self, paths: Sequence[str], sizes: Sequence[int], partition_bytes: int) -> None:
        """
        Args:
            paths: Paths of the files, in their order.
            sizes: Bytes to read of each.
            partition_bytes: What one task reads.
        """
        self._paths = paths
        self._sizes = sizes
        self._partition_bytes = partition_bytes

    def partitions(self) -> Sequence[LedgerPartition]:
        """The pieces of all files."""
        found: list[LedgerPartition] = []
        pieces: list[Piece] = []
        free, before = self._partition_bytes, 0
        for index, (path, size) in enumerate(zip(self._paths, self._sizes, strict=True)):
            start = 0
            while start < size:
                stop = min(start + free, size)
                pieces.append(Piece(index, path, start, stop, before))
                free -= stop - start
                start = stop
                if not free:
                    found.append(LedgerPartition(tuple(pieces)))
                    pieces, free = [], self._partition_bytes
            before += size
        # pyspark turns an empty list into one partition without a value
        return [*found, LedgerPartition(tuple(pieces))] if pieces or not found else found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The lines of a partition."""
        assert isinstance(partition, LedgerPartition)
        for piece in partition.pieces:
            for at, data in chunks_of(piece):
                lines = parse_lines(data, piece.ordinal + at)
                index = pa.repeat(pa.scalar(piece.file_index, pa.int32()), len(lines))
                yield pa.RecordBatch.from_arrays([index, *lines.columns], names=["file_index", *LINES.names])


def chunks_of(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Whole lines that begin in a piece, with where in the file they begin."""
    with open(piece.path, "rb") as file:
        file.seek(piece.start)
        if piece.start:
            # the line that begins before the piece is not part of it
            file.seek(piece.start - 1)
            _skip_line(file)
        while (at := file.tell()) < piece.stop:
            data = file.read(min(CHUNK_BYTES, piece.stop - at))
            if not data:
                return
            if not data.endswith(b"\n"):
                data += file.readline(LINE_BYTES_MAX)
            yield at, data
            if len(data) > LINE_BYTES_MAX and not data.endswith(b"\n"):
                _skip_line(file)


def _skip_line(file: BinaryIO) -> None:
    while (part := file.readline(LINE_BYTES_MAX)) and not part.endswith(b"\n"):
        pass


def read_ledgers(spark: SparkSession, files: LedgerFiles) -> DataFrame:
    """All lines that are not blank: file_index, ordinal, value (only of bad lines), the fields of rows, bad.

    Args:
        spark: A session of ``open_session``.
        files: The files, visible to every worker.
    """
    each = -(-sum(files.sizes) // spark.sparkContext.defaultParallelism)
    options = {
        "paths": json.dumps([str(path) for path in files.paths]),
        "sizes": json.dumps(files.sizes),
        "partitionBytes": str(min(max(each, PARTITION_BYTES_MIN), PARTITION_BYTES)),
    }
    return spark.read.format(FORMAT).options(**options).load()


def register_ledger(spark: SparkSession) -> None:
    """Make the format known to a session. ``open_session`` has done so."""
    spark.dataSource.register(LedgerSource)
