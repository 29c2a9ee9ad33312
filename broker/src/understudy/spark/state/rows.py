"""The state of a store at a position of its log as ``DataFrame -> DataFrame`` functions on the rows of ``effects``.

The rules are those of ``store.state`` and of ``store.snapshots.builder``: adds, acknowledgements and duplicate ids of a
transaction count from its commit on; an epoch ends transactions that are not prepared; removed queues take their
messages along; a message that later records of the log remove is left out. Bodies are never read.

Not here: bindings and segments (``small_state``), and the bytes (``packing``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from understudy.dataclass import dataclass
from understudy.kernel.changes import FORWARDED_KEY
from understudy.spark.base.driver_rows import frame_of
from understudy.spark.state.effects import REFERENCE, TRANSACTION
from understudy.spark.state.packing import REFERENCE_COLUMNS, TRANSACTION_COLUMNS
from understudy.spark.state.small_state import Removals
from understudy.store.log.records import RecordType
from understudy.store.session_numbers import NUMBER_ID_BYTES, NUMBER_PREFIX

_ADD, _ACKNOWLEDGE = int(RecordType.MESSAGE_ADD), int(RecordType.ACKNOWLEDGE)
_DUPLICATE_ID = int(RecordType.DUPLICATE_ID)
#: Where a reference comes in a snapshot. Those of the snapshot before come first, as they were there; then queue by
#: queue, the one that got a message first before the others, by priority, in the order in which they became visible.
ORDER: Final = ("newer", "rank", "level", "visible", "sequence", "place")
_TRANSACTION_ORDER: Final = ("first_sequence", "first_place", "transaction_id", "sequence", "place")


@dataclass(frozen=True, slots=True)
class At:
    """The position of a state, and the end of the log."""

    sequence: int
    epoch: int
    """Epoch of the segment that ends there."""
    last_sequence: int
    removed: Removals
    removed_later: Removals


def _of(rows: DataFrame, *kinds: int) -> DataFrame:
    return rows.where(F.col("kind").isin([int(kind) for kind in kinds]))


# --- transactions -----------------------------------------------------------------------------------------------------


def decisions(rows: DataFrame) -> DataFrame:
    """One row for each transaction that was prepared or decided: transaction_id, and the sequences of its decisions."""

    def first(name: str, kind: RecordType) -> Column:
        return F.min(F.when(F.col("kind") == int(kind), F.col(name)))

    return (
        _of(rows, RecordType.TX_PREPARE, RecordType.TX_COMMIT, RecordType.TX_ROLLBACK)
        .groupBy("transaction_id")
        .agg(
            first("sequence", RecordType.TX_PREPARE).alias("prepared_at"),
            first("value", RecordType.TX_PREPARE).alias("xid"),
            first("sequence", RecordType.TX_COMMIT).alias("committed_at"),
            first("epoch", RecordType.TX_COMMIT).alias("committed_in"),
            first("sequence", RecordType.TX_ROLLBACK).alias("rolled_back_at"),
        )
    )


def _committed(last: int) -> Column:
    """Whether the transaction of a row is committed by a record up to that sequence."""
    in_time = F.col("committed_at") <= last
    # an epoch ends transactions that are not prepared
    in_effect = (F.col("committed_in") == F.col("epoch")) | F.col("prepared_at").isNotNull()
    return F.coalesce(in_time & in_effect, F.lit(False))


def _open(at: At) -> Column:
    """Whether the transaction of a row is open at the position."""
    undecided = F.coalesce(F.col("committed_at") > at.sequence, F.lit(True))
    undecided = undecided & F.coalesce(F.col("rolled_back_at") > at.sequence, F.lit(True))
    prepared = F.coalesce(F.col("prepared_at") <= at.sequence, F.lit(False))
    return undecided & (prepared | (F.col("epoch") == at.epoch))


def _decided(rows: DataFrame, decided: DataFrame) -> DataFrame:
    """The rows of transactions with the decisions."""
    return rows.where("transaction_id IS NOT NULL").join(decided, "transaction_id", "left")


def _effective(rows: DataFrame, decided: DataFrame, last: int) -> DataFrame:
    """The rows that are in effect by the records up to a sequence, with the sequence from which on: ``visible``."""
    alone = rows.where(F.col("transaction_id").isNull() & (F.col("sequence") <= last))
    committed = _decided(rows, decided).where(_committed(last))
    return (
        alone.withColumn("visible", F.col("sequence"))
        .unionByName(committed.withColumn("visible", F.col("committed_at")), allowMissingColumns=True)
        .select(*rows.columns, "visible")
    )


# --- queues -----------------------------------------------------------------------------------------------------------


def _not_removed(rows: DataFrame, removals: Removals) -> DataFrame:
    """The rows of queues that were not removed after their record."""
    return (
        rows.join(_removals(rows, removals), "queue_id", "left")
        .where(F.col("sequence") >= F.coalesce("removed_at", F.lit(removals.unbound)))
        .drop("removed_at")
    )


def _removals(rows: DataFrame, removals: Removals) -> DataFrame:
    """Queues that were ever bound, with the sequence of the record that removed their messages last."""
    known = frame_of(rows.sparkSession, "queue_id bigint, removed_at bigint", removals.queues.items())
    return F.broadcast(known)


def references(rows: DataFrame, decided: DataFrame, at: At) -> DataFrame:
    """The live messages in queues as a snapshot at the position has them: REFERENCE_COLUMNS and ORDER, without rank.

    Args:
        rows: Result of ``effects``.
        decided: Result of ``decisions``.
        at: The position.
    """
    visible = _effective(_of(rows, _ADD), decided, at.sequence).withColumn("newer", F.lit(True))
    # a snapshot lists references in their order
    older = _of(rows, REFERENCE).withColumn("visible", F.col("address_id")).withColumn("newer", F.lit(False))
    removing = _effective(_of(rows, _ACKNOWLEDGE), decided, at.last_sequence).select("queue_id", "message_id")
    live = _not_removed(visible.unionByName(older), at.removed_later).join(
        removing.distinct(), ["queue_id", "message_id"], "left_anti"
    )
    return _as_they_are(live, rows, at).withColumn("level", F.when(F.col("newer"), -F.col("priority")).otherwise(0))


def _as_they_are(live: DataFrame, rows: DataFrame, at: At) -> DataFrame:
    """References with the delivery counts, times of redelivery and places that records up to the position give them."""
    early = rows.where(F.col("sequence") <= at.sequence)
    counts = (
        _of(early, RecordType.DELIVERY_COUNT)
        .groupBy("queue_id", "message_id")
        .agg(
            F.max_by("count", "sequence").alias("counted"),
            F.max_by("scheduled", F.when(F.col("scheduled").isNotNull(), F.col("sequence"))).alias("redelivery"),
        )
    )
    counted = live.join(counts, ["queue_id", "message_id"], "left")
    now = {"count": F.coalesce("counted", "count", F.lit(0)), "scheduled": F.coalesce("redelivery", "scheduled")}
    return _moved(counted, rows, at).withColumns(now).drop("counted", "redelivery")


def _moved(found: DataFrame, rows: DataFrame, at: At) -> DataFrame:
    """Rows of messages with the places to which the consolidator copied them."""
    place = F.struct("segment", "offset", "length")
    moves = (
        _of(rows, RecordType.MESSAGE_MOVE)
        .where(F.col("sequence") <= at.sequence)
        .groupBy("message_id")
        .agg(F.max_by(place, "sequence").alias("copy"))
    )
    now = {name: F.coalesce(F.col(f"copy.{name}"), F.col(name)) for name in ("segment", "offset", "length")}
    return found.join(moves, "message_id", "left").withColumns(now).drop("copy")


def queue_ranks(found: DataFrame) -> DataFrame:
    """Queue id and the place of its first message in the log: visible, sequence, place."""
    first = F.min(F.struct("visible", "sequence", "place")).alias("first")
    return found.where("newer").groupBy("queue_id").agg(first).select("queue_id", "first.*")


def in_order(found: DataFrame, ranks: Mapping[int, int], partitions: int) -> DataFrame:
    """REFERENCE_COLUMNS of the references, partition by partition in the order of a snapshot.

    Args:
        found: Result of ``references``.
        ranks: Queue id to its place among the queues.
        partitions: Number of ranges.
    """
    known = frame_of(found.sparkSession, "queue_id bigint, ranked int", ranks.items())
    rank = F.when(F.col("newer"), F.col("ranked")).otherwise(0)
    ranked = found.join(F.broadcast(known), "queue_id", "left").withColumn("rank", rank)
    filled = {name: F.coalesce(name, F.lit(0)) for name in ("file_id", "expiration", "scheduled", "place")}
    return (
        ranked.withColumns(filled)
        .repartitionByRange(partitions, *ORDER)
        .sortWithinPartitions(*ORDER)
        .select(*REFERENCE_COLUMNS)
    )


# --- open transactions ------------------------------------------------------------------------------------------------


def open_transactions(rows: DataFrame, decided: DataFrame, at: At) -> DataFrame:
    """Every row of a transaction that is open at the position: TRANSACTION_COLUMNS and the order in it."""
    kinds = (_ADD, _ACKNOWLEDGE, _DUPLICATE_ID, int(RecordType.TX_PREPARE), TRANSACTION)
    found = _decided(_of(rows, *kinds), decided).where(_open(at) & (F.col("sequence") <= at.sequence))
    # rows of the snapshot before say where messages lie, except the one that says where the transaction began
    place = F.struct("sequence", (F.col("kind") != TRANSACTION).alias("late"), "place")
    whole = Window.partitionBy("transaction_id")
    headed = found.withColumns(
        {
            "first_segment": F.min_by("segment", place).over(whole),
            "first_sequence": F.min("sequence").over(whole),
            "first_place": F.min(F.when(F.col("sequence") == 0, F.coalesce("place", F.lit(0)))).over(whole),
            "prepared": F.coalesce(F.col("prepared_at") <= at.sequence, F.lit(False)),
        }
    )
    known = headed.join(_removals(rows, at.removed), "queue_id", "left")
    in_queue = F.col("kind").isin(_ADD, _ACKNOWLEDGE)
    removed = in_queue & (F.col("sequence") < F.coalesce("removed_at", F.lit(at.removed.unbound)))
    # a transaction of which everything was removed is still open
    kept = known.withColumn("kind", F.when(removed, F.lit(TRANSACTION)).otherwise(F.col("kind"))).drop("removed_at")
    return _moved(kept, rows, at)


def transactions_in_order(found: DataFrame, partitions: int) -> DataFrame:
    """TRANSACTION_COLUMNS, each transaction in one partition, in the order of a snapshot."""
    filled = {name: F.coalesce(name, F.lit(0)) for name in ("file_id", "expiration", "scheduled", "place", "count")}
    # a transaction of the snapshot before has rows there and in the log
    return (
        found.withColumns(filled)
        .withColumn("first_place", F.coalesce("first_place", F.lit(0)))
        .repartitionByRange(partitions, "first_sequence", "first_place", "transaction_id")
        .sortWithinPartitions(*_TRANSACTION_ORDER)
        .select(*TRANSACTION_COLUMNS)
    )


# --- the rest ---------------------------------------------------------------------------------------------------------


def duplicate_ids(rows: DataFrame, decided: DataFrame, at: At, since: Mapping[int, int], limit: int) -> DataFrame:
    """address_id and value of the newest duplicate ids of each address, with their order: visible, sequence.

    Args:
        rows: Result of ``effects``.
        decided: Result of ``decisions``.
        at: The position.
        since: Address id to the sequence after which its ids count.
        limit: Ids of one address and kind: of clients, or of bridges.
    """
    known = frame_of(rows.sparkSession, "address_id bigint, since bigint", since.items())
    effective = _effective(_of(rows, _DUPLICATE_ID), decided, at.sequence)
    # the numbers of publishes of client sessions are no duplicate ids of an address (``store.session_numbers``)
    prefix = F.substring("value", 1, len(NUMBER_PREFIX)) == F.lit(bytearray(NUMBER_PREFIX))
    number = (F.length("value") == NUMBER_ID_BYTES) & prefix
    counted = effective.join(F.broadcast(known), "address_id").where("visible > since").where(~number)
    bridged = F.substring("value", 1, len(FORWARDED_KEY)) == F.lit(bytearray(FORWARDED_KEY))
    newest = Window.partitionBy("address_id", bridged).orderBy(F.desc("visible"), F.desc("sequence"), F.desc("place"))
    return (
        counted.withColumn("age", F.row_number().over(newest))
        .where(F.col("age") <= limit)
        .select("address_id", "value", "visible", "sequence", "place")
    )


def moved_up_to(rows: DataFrame, at: At) -> DataFrame:
    """Segment and the offset up to which the consolidator has copied messages out of it."""
    source = F.col("transaction_id")
    return (
        _of(rows, RecordType.MESSAGE_MOVE)
        .where(F.col("sequence") <= at.sequence)
        .select(F.shiftright(source, 32).alias("source"), (source.bitwiseAND(0xFFFFFFFF) + 1).alias("moved"))
        .groupBy("source")
        .agg(F.max("moved").alias("moved"))
    )


def live_bytes(found: DataFrame, staged: DataFrame) -> DataFrame:
    """Segment and the bytes of records in it that references and open transactions need, each record once."""
    place = ("segment", "offset", "length")
    parts = [found.select(*place), staged.where(F.col("kind") == _ADD).select(*place)]
    return reduce(DataFrame.unionByName, parts).distinct().groupBy("segment").agg(F.sum("length").alias("bytes"))


def needed_files(rows: DataFrame, decided: DataFrame, at: At) -> DataFrame:
    """Ids of the files of large messages that anything in the log may still need at its end: file_id."""
    large = rows.where(F.col("file_id").isNotNull() & F.col("kind").isin(_ADD, REFERENCE))
    removing = _effective(_of(rows, _ACKNOWLEDGE), decided, at.last_sequence).select("queue_id", "message_id")
    left = _not_removed(large, at.removed_later).join(removing.distinct(), ["queue_id", "message_id"], "left_anti")
    rolled_back = F.coalesce(F.col("rolled_back_at") <= at.last_sequence, F.lit(False))
    ended = left.join(decided, "transaction_id", "left").where(~rolled_back)
    return ended.select("file_id").distinct()
