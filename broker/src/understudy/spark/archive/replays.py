"""Job ``replay``: messages of an archive, chosen by time, address and selector, in the order of their keys.

The order is that of node id and message id, so it is the order of sending for each node, and the same each time. Not
here: sending (``cli.pipeline.replay``).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark import RDD, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from understudy.dataclass import dataclass
from understudy.message import BODY_END_BIAS, LargeBody, Message
from understudy.selector import parse_selector
from understudy.spark.archive.files import INLINE, WITHOUT_BODY
from understudy.spark.archive.layout import read_published
from understudy.spark.archive.rows import KEY, address_expression

_COLUMNS: Final = (
    *KEY, "address", "epoch", "sequence", "body", "body_state", "header", "large_file_id", "large_size", "large_crc",
)  # fmt: skip
_DIGEST_BITS: Final = 64

Row = Any
"""A row of an archive with the columns that a replay needs."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages; everything given must fit."""

    start_ms: int | None = None
    """Earliest timestamp of replayed messages, in epoch milliseconds; a message without a timestamp is left out."""
    stop_ms: int | None = None
    """Epoch milliseconds before which a message was sent."""
    addresses: tuple[str, ...] = ()
    """To an address that matches one of these."""
    filter: str = ""
    """Selector that messages have to match; empty: all do."""


@dataclass(slots=True)
class _Summary:
    addresses: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    content: int = 0

    def add(self, row: Row) -> None:
        if row["body_state"] in WITHOUT_BODY:
            self.left_out[row["body_state"]] += 1
            return
        self.addresses[row["address"] or ""] += 1
        key = f"{row['node_id']}:{row['message_id']}:{row['content_hash']}".encode()
        digest = hashlib.blake2b(key, digest_size=_DIGEST_BITS // 8).digest()
        self.content = (self.content + int.from_bytes(digest, "little")) % (1 << _DIGEST_BITS)

    def merge(self, other: _Summary) -> None:
        self.addresses += other.addresses
        self.left_out += other.left_out
        self.content = (self.content + other.content) % (1 << _DIGEST_BITS)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The messages of a selection."""

    addresses: dict[str, int]
    """Messages for each address."""
    left_out: dict[str, int]
    """State of bodies that the archive does not have -> messages."""
    content: str
    """Digest that is the same for the same messages, whatever else the archive contains."""
    rows: Callable[[], Iterator[Row]]
    """The messages that can be sent; the same in the same order at each call."""

    @property
    def total(self) -> int:
        """Messages that can be sent."""
        return sum(self.addresses.values())


@contextmanager
def choose(
    spark: SparkSession, archive: Path, selection: Selection, progress: Callable[[str], None] = lambda doing: None
) -> Iterator[Chosen]:
    """The messages of an archive that fit; valid within the context.

    Args:
        spark: A session of ``open_session``.
        archive: The archive; the generation that is published now is read.
        selection: Which messages.
        progress: Called with each step.

    Raises:
        ConfigError: the directory is no archive, an archive of another version, or damaged.
        InvalidSelector: the selector cannot be parsed.
    """
    if selection.filter:
        parse_selector(selection.filter)
    published = read_published(archive)
    if published is None or not published.manifest.files:
        yield Chosen({}, {}, _content(0), lambda: iter(()))
        return
    progress("selecting messages")
    frame = _chosen(spark.read.parquet(str(published.directory)), selection).select(*_COLUMNS).orderBy(*KEY)
    found: RDD[Row] = frame.rdd
    if selection.filter:
        found = found.filter(partial(_fits, selection.filter))
    found = found.persist(StorageLevel.DISK_ONLY)
    try:
        total = _Summary()
        for part in found.mapPartitions(_summarise).collect():
            total.merge(part)
        sendable = found.filter(_has_body)
        yield Chosen(dict(total.addresses), dict(total.left_out), _content(total.content), sendable.toLocalIterator)
    finally:
        found.unpersist()


def _content(digest: int) -> str:
    return f"{digest:0{_DIGEST_BITS // 4}x}"


def _chosen(frame: DataFrame, selection: Selection) -> DataFrame:
    if selection.start_ms is not None:
        start = _moment(selection.start_ms)
        # the date lets Spark skip directories
        frame = frame.where((F.col("timestamp") >= start) & (F.col("date").cast("date") >= F.to_date(start)))
    if selection.stop_ms is not None:
        stop = _moment(selection.stop_ms)
        frame = frame.where((F.col("timestamp") < stop) & (F.col("date").cast("date") <= F.to_date(stop)))
    if selection.addresses:
        expression = rf"\A(?:{address_expression(selection.addresses)})\z"
        frame = frame.where(F.coalesce(F.col("address"), F.lit("")).rlike(expression))
    return frame


def _moment(milliseconds: int) -> Any:
    return F.lit(datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000))


def _summarise(rows: Iterable[Row]) -> Iterator[_Summary]:
    found = _Summary()
    for row in rows:
        found.add(row)
    yield found


def _has_body(row: Row) -> bool:
    return row["body_state"] not in WITHOUT_BODY


def _fits(text: str, row: Row) -> bool:
    return parse_selector(text).matches(message_of(row))


# --- messages ---------------------------------------------------------------------------------------------------------


def large_of(row: Row) -> LargeBody | None:
    """The file that had the body of a large message; None for others."""
    if row["body_state"] == INLINE:
        return None
    return LargeBody(row["large_file_id"], row["large_size"], row["large_crc"])


def message_of(row: Row) -> Message:
    """A message as the journal has it; a large one without its body.

    Raises:
        RemoteProtocolError: the row holds no message.
    """
    large = large_of(row)
    body = bytes(row["body"]) if large is None else large.encode()
    return Message.decode(
        b"".join(((len(body) + BODY_END_BIAS).to_bytes(4, "big"), body, bytes(row["header"]))), trusted=True
    )


def pieces_of(body: bytes, piece_bytes: int) -> Sequence[bytes]:
    """A body in pieces."""
    return [body[start : start + piece_bytes] for start in range(0, len(body), piece_bytes)]
