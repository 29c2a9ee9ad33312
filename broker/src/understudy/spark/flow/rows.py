"""Movement of messages in journals as ``DataFrame -> DataFrame`` functions: when a message came to a queue and left it.

A record has no time of its own. A message is taken to have been written when its client says that it was sent, but
within the time of its segment, which is in the header and the seal. Other records are placed between the messages
around them: a segment is cut into ``SLICES`` of equal length, and the times at their borders are those of the messages
beside them (``segment_times``). A message of a transaction comes and goes with the commit. Bodies are never shuffled.

Not here: reading (``flows``) and arithmetic on the series (``forecasts``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from understudy.dataclass import dataclass
from understudy.spark.base.driver_rows import frame_of
from understudy.spark.journal.log_plan import LogPlan, Piece
from understudy.store.log.records import RecordType
from understudy.store.log.segment import HEADER_BLOCK_BYTES

#: Names one message in one queue of one journal.
REFERENCE: Final = ("directory", "queue_id", "message_id")
#: Parts of a segment, at whose borders the time is known if messages are beside them.
SLICES: Final = 32
#: Records that change depths, and whose time is not known where no message is near.
_WITHOUT_TIME: Final = (RecordType.ACKNOWLEDGE.name, RecordType.TX_COMMIT.name, RecordType.QUEUE_REMOVE.name)
#: Names a record.
RECORD: Final = ("directory", "segment", "offset")


@dataclass(frozen=True, slots=True)
class SegmentTime:
    """Time and extent of a segment."""

    directory: str
    segment: int
    begin_ms: int
    end_ms: int
    end: int
    """Offset."""
    borders: tuple[int, ...]
    """Times at the borders of the slices, the begin and the end of the segment included. They never fall."""

    def at_ms(self, offset: int) -> int:
        """Time of a record that is no message with a time of its client."""
        place = SLICES * (offset - HEADER_BLOCK_BYTES) / max(self.end - HEADER_BLOCK_BYTES, 1)
        index = min(int(place), SLICES - 1)
        return self.borders[index] + int((place - index) * (self.borders[index + 1] - self.borders[index]))


Sent = Mapping[int, tuple[int, int]]
"""Slice to the lowest and the highest time that the clients of its messages gave; without outliers."""


def sent_times(messages: DataFrame, ends: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], dict[int, Any]]:
    """The times, for each directory and segment, of the messages in its slices.

    Args:
        messages: Table ``messages``.
        ends: Directory and segment to the offset at which its records end.
    """
    schema = "directory string, segment bigint, segment_end bigint"
    known = frame_of(messages.sparkSession, schema, [(*key, end) for key, end in ends.items()])
    at_ms = F.unix_millis("timestamp")
    rows = (
        messages.where("NOT moved AND timestamp IS NOT NULL")
        .join(F.broadcast(known), ["directory", "segment"])
        .groupBy("directory", "segment", F.least(F.floor(_place()), F.lit(SLICES - 1)).cast("int").alias("slice"))
        # a client with a wrong clock moves no others
        .agg(F.percentile(at_ms, F.array(F.lit(0.05), F.lit(0.95))).alias("sent"))
    )
    found: dict[tuple[str, int], dict[int, Any]] = {}
    for row in rows.collect():
        low, high = row["sent"]
        found.setdefault((row["directory"], row["segment"]), {})[row["slice"]] = (int(low), int(high))
    return found


def _place() -> Column:
    """The number of slices before a record, with a fraction."""
    used = F.greatest(F.col("segment_end") - HEADER_BLOCK_BYTES, F.lit(1))
    return F.lit(SLICES) * (F.col("offset") - HEADER_BLOCK_BYTES).cast("double") / used.cast("double")


def _borders(begin_ms: int, end_ms: int, sent: Sent) -> tuple[int, ...]:
    """Times at the borders of the slices of a segment; between messages they are on a straight line."""
    known = []
    for border in range(SLICES + 1):
        beside = [sent[border - 1][1]] if border - 1 in sent else []
        beside += [sent[border][0]] if border in sent else []
        if beside:
            known.append((border, min(max(sum(beside) // len(beside), begin_ms), end_ms)))
    rising = _rising([(0, begin_ms), *known, (SLICES, end_ms)])
    # a message at the first or last border says more than the ends of the segment
    if rising[1][0] == 0:
        del rising[0]
    if rising[-2][0] == SLICES:
        del rising[-1]
    found = [rising[0][1]]
    for (before, low), (after, high) in pairwise(rising):
        found += [low + (high - low) * (each - before) // (after - before) for each in range(before + 1, after + 1)]
    return tuple(found)


def _rising(known: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most borders and times such that the times never fall: clients with wrong clocks give times that are too
    early or too late, and these are left out. The first and the last one are included: no time is lower or higher.
    """
    best: list[list[tuple[int, int]]] = []
    for place, (border, at_ms) in enumerate(known):
        before = [best[earlier] for earlier in range(place) if known[earlier][1] <= at_ms]
        best.append([*max(before, key=len, default=[]), (border, at_ms)])
    return best[-1]


def segment_times(plan: LogPlan, newest: Mapping[int, int], sent: Mapping[int, Sent]) -> list[SegmentTime]:
    """When the segments of a log were written; those that a snapshot stands for are left out.

    Args:
        newest: Segment number to the greatest timestamp of its messages. Of a segment without a seal it is the end, as
            far as the segments before and after allow it.
        sent: Segment number to the times of the messages in its slices.
    """
    found: list[SegmentTime] = []
    pieces = plan.pieces[plan.in_snapshot :]
    for place, piece in enumerate(pieces):
        limit = pieces[place + 1].first_ms if place + 1 < len(pieces) else None
        end = piece.sealed_ms or _end(piece, newest.get(piece.number, 0), limit)
        # a segment is prepared ahead, and clocks may be set back
        begin = max(piece.first_ms, found[-1].end_ms if found else 0)
        end = max(end, begin)
        borders = _borders(begin, end, sent.get(piece.number, {}))
        found.append(SegmentTime(plan.directory, piece.number, begin, end, piece.end, borders))
    return found


def _end(piece: Piece, newest_ms: int, limit_ms: int | None) -> int:
    end = max(newest_ms, piece.first_ms)
    return end if limit_ms is None else min(end, max(limit_ms, piece.first_ms))


def with_time(rows: DataFrame, times: Sequence[SegmentTime]) -> DataFrame:
    """Rows of records with ``at_ms``, without those of other segments.

    Messages with columns ``timestamp`` and ``moved`` have the time of their client, within that of their segment.
    """
    schema = (
        "directory string, segment bigint, begin_ms bigint, end_ms bigint, segment_end bigint, borders array<bigint>"
    )
    known = frame_of(
        rows.sparkSession,
        schema,
        [(each.directory, each.segment, each.begin_ms, each.end_ms, each.end, list(each.borders)) for each in times],
    )
    index = F.least(F.floor(_place()), F.lit(SLICES - 1)).cast("int")
    before, after = F.element_at("borders", index + 1), F.element_at("borders", index + 2)
    at_ms = before + ((_place() - index) * (after - before)).cast("bigint")
    if "timestamp" in rows.columns:
        own = F.least(F.greatest(F.unix_millis("timestamp"), F.col("begin_ms")), F.col("end_ms"))
        at_ms = F.when(F.expr("NOT moved AND timestamp IS NOT NULL"), own).otherwise(at_ms)
    return (
        rows.join(F.broadcast(known), ["directory", "segment"])
        .withColumn("at_ms", at_ms)
        .drop("begin_ms", "end_ms", "segment_end", "borders")
    )


def without_times(records: DataFrame, adds: DataFrame, begin_ms: int, bucket_ms: int) -> DataFrame:
    """directory, begin_ms, known: the intervals with messages (known), and those that have only records whose place
    between them is a guess.

    Args:
        records: Records with ``kind`` and ``at_ms``.
        adds: Messages with ``at_ms``.
        begin_ms: Begin of the first interval. Epoch milliseconds.
        bucket_ms: Length of an interval.
    """
    begin = _bucket(F.col("at_ms"), begin_ms, bucket_ms).alias("begin_ms")
    guessed = records.where(F.col("kind").isin(*_WITHOUT_TIME)).select("directory", begin, F.lit(False).alias("known"))
    # a message without a time of its client is placed like the other records
    placed = adds.where("NOT moved").select("directory", begin, F.col("timestamp").isNotNull().alias("known"))
    return guessed.unionByName(placed).groupBy("directory", "begin_ms").agg(F.max("known").alias("known"))


def _in_effect(rows: DataFrame, commits: DataFrame) -> DataFrame:
    """Rows outside of transactions, and those of committed ones at the time of the commit."""
    decided = commits.groupBy("directory", "transaction_id").agg(F.min("at_ms").alias("committed_ms"))
    committed = rows.where("transaction_id IS NOT NULL").join(decided, ["directory", "transaction_id"])
    alone = rows.where("transaction_id IS NULL")
    return alone.unionByName(committed.withColumn("at_ms", F.col("committed_ms")).drop("committed_ms"))


def stays(
    adds: DataFrame, acknowledgements: DataFrame, commits: DataFrame, removed: DataFrame, held: DataFrame
) -> DataFrame:
    """One row for each message in each queue: REFERENCE, came_ms, left_ms, and segment, offset, length of its record.

    Args:
        adds: Messages with ``at_ms``, copies of the consolidator included: they say where a message lies now.
        acknowledgements: Acknowledgements with ``at_ms``.
        commits: directory, transaction_id, at_ms.
        removed: directory, queue_id and the time ``gone_ms`` from which on the queue has no messages.
        held: Messages in queues at the beginning of a log, from its snapshot; came_ms is null: before the log.
    """
    place = ("segment", "offset", "length", "size")
    came = (
        _in_effect(adds.where("NOT moved"), commits)
        .select(*REFERENCE, F.col("at_ms").alias("came_ms"), *place)
        .unionByName(held.select(*REFERENCE, F.lit(None).cast("bigint").alias("came_ms"), *place))
    )
    left = _in_effect(acknowledgements, commits).groupBy(*REFERENCE).agg(F.min("at_ms").alias("acknowledged_ms"))
    copies = (
        adds.where("moved")
        .groupBy("directory", "message_id")
        .agg(F.max_by(F.struct("segment", "offset", "length"), F.struct("segment", "offset")).alias("copy"))
    )
    now = {name: F.coalesce(F.col(f"copy.{name}"), F.col(name)) for name in ("segment", "offset", "length")}
    # the time of an acknowledgement may be a guess, but it is not before the message came
    gone_ms = F.least("acknowledged_ms", "gone_ms")
    left_ms = F.when(gone_ms.isNotNull(), F.greatest(gone_ms, "came_ms"))
    return (
        came.join(left, list(REFERENCE), "left")
        .join(F.broadcast(removed), ["directory", "queue_id"], "left")
        .join(copies, ["directory", "message_id"], "left")
        .withColumn("left_ms", left_ms)
        .withColumn("acknowledged", F.col("acknowledged_ms").isNotNull())
        .withColumns(now)
        .drop("copy", "gone_ms", "acknowledged_ms")
    )


def _bucket(at_ms: Column, begin_ms: int, bucket_ms: int) -> Column:
    return (F.floor((at_ms - begin_ms) / bucket_ms) * bucket_ms + begin_ms).cast("bigint")


def queue_series(rows: DataFrame, begin_ms: int, bucket_ms: int) -> DataFrame:
    """directory, queue_id, begin_ms of an interval, and in it: came, acknowledged, left_ (removed with the queue too).

    Messages from before the log count as having come at its beginning: ``held``.
    """
    came = rows.select(
        "directory", "queue_id", _bucket(F.coalesce("came_ms", F.lit(begin_ms)), begin_ms, bucket_ms).alias("begin_ms"),
        F.col("came_ms").isNotNull().cast("int").alias("came"), F.col("came_ms").isNull().cast("int").alias("held"),
        F.lit(0).alias("acknowledged"), F.lit(0).alias("gone"), F.col("length").cast("bigint").alias("live_bytes"),
    )  # fmt: skip
    left = rows.where("left_ms IS NOT NULL").select(
        "directory", "queue_id", _bucket(F.greatest("left_ms", F.lit(begin_ms)), begin_ms, bucket_ms).alias("begin_ms"),
        F.lit(0).alias("came"), F.lit(0).alias("held"), F.col("acknowledged").cast("int"), F.lit(1).alias("gone"),
        (-F.col("length")).cast("bigint").alias("live_bytes"),
    )  # fmt: skip
    names = ("came", "held", "acknowledged", "gone", "live_bytes")
    return (
        came.unionByName(left)
        .groupBy("directory", "queue_id", "begin_ms")
        .agg(*(F.sum(name).alias(name) for name in names))
    )


def address_series(adds: DataFrame, begin_ms: int, bucket_ms: int) -> DataFrame:
    """directory, address_id, begin_ms, and in that interval: messages and bytes; a message in many queues is one."""
    once = adds.where("NOT moved").dropDuplicates([*RECORD])
    return once.groupBy("directory", "address_id", _bucket(F.col("at_ms"), begin_ms, bucket_ms).alias("begin_ms")).agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes")
    )


def pins(rows: DataFrame) -> DataFrame:
    """directory, segment, live_messages, live_bytes, and the oldest message in it that is in a queue: message_id,
    queue_id, came_ms.
    """
    once = (
        rows.where("left_ms IS NULL")
        .groupBy(*RECORD)
        .agg(
            F.first("length").alias("length"),
            F.min(F.struct("message_id", "queue_id", "came_ms")).alias("oldest"),
        )
    )
    return once.groupBy("directory", "segment").agg(
        F.count("*").alias("live_messages"), F.sum("length").alias("live_bytes"), F.min("oldest").alias("oldest")
    )


def bytes_by_kind(records: DataFrame) -> DataFrame:
    """kind, records, bytes."""
    return records.groupBy("kind").agg(F.count("*").alias("records"), F.sum("length").alias("bytes"))


def hops(adds: DataFrame, forwarding: DataFrame) -> DataFrame:
    """Messages that passed store-and-forward queues: forwarded (once per queue), messages, and how many did more than
    once (``again``). A message keeps the id that its client gave it on its way through nodes.

    Args:
        adds: Adds with ``user_id``.
        forwarding: directory and queue_id of the store-and-forward queues.
    """
    passed = adds.where("NOT moved").join(F.broadcast(forwarding), ["directory", "queue_id"])
    own = F.concat("directory", F.lit("#"), F.col("message_id").cast("string"))
    named = passed.withColumn("who", F.coalesce(F.hex("user_id"), own))
    return (
        named.groupBy("who")
        .agg(F.count("*").alias("times"))
        .agg(
            F.coalesce(F.sum("times"), F.lit(0)).alias("forwarded"),
            F.count("*").alias("messages"),
            F.count_if(F.col("times") > 1).alias("again"),
        )
    )
