"""The rules of ``understudy.ledger`` as ``DataFrame -> DataFrame`` functions.

``rows`` is always what ``ledgers.rows_of`` gives. Every function is one sentence of the rules;
``understudy.ledger.check`` is the reference and a property test compares the two. Order never
comes from Spark's partitions, only from ``ordinal`` and, where consumers meet, from clocks.

Nothing here runs Python code per row, and no window spans more than one block of a producer's
rows on a queue: a single hot producer does not become a single task.
"""

from __future__ import annotations

from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from understudy.ledger import (
    END_MS,
    EXAMPLE_ROWS_MAX,
    FINDINGS_LISTED_MAX,
    SORT_OF_REASON,
    WITHOUT_MESSAGE,
    Kind,
    Reason,
)
from understudy.spark.ledger.source import ORDINAL_BITS

MESSAGE: Final = ["producer", "number"]
COPY: Final = ["queue", "producer", "number"]
#: Columns of every frame of findings.
FINDING: Final = ["sort", "producer", "number", "queue", "reason", "after"]
#: Ordinals in so many bits, about a million rows, are put in order at once.
BLOCK_BITS: Final = 27


#: Messages that no consumer and no queue has, of ``messages``.
_GONE: Final = "confirmed_at IS NOT NULL AND delivered_at IS NULL AND remaining_at IS NULL AND NOT transient"
#: Delivered and not acknowledged, of ``copies``.
_OPEN: Final = "deliveries > 0 AND first_acknowledgement_ms IS NULL AND attempts <= 0"
#: Acknowledged and not delivered, of ``copies``.
_UNFOUNDED: Final = "deliveries = 0 AND first_acknowledgement_ms IS NOT NULL"


def is_kind(kind: Kind) -> Column:
    """Whether a row is of a kind."""
    return F.col("kind") == kind.value


def _finding(sort: str, reason: Reason | Column, *, queue: bool, after: Column | None = None) -> list[Column]:
    return [
        F.lit(sort).alias("sort"),
        F.col("producer"),
        F.col("number"),
        (F.col("queue") if queue else F.lit("")).alias("queue"),
        (F.lit(reason.value) if isinstance(reason, Reason) else reason).alias("reason"),
        (F.lit(-1).cast("bigint") if after is None else after).alias("after"),
    ]


def _sorted_finding(reason: Column, *, queue: bool) -> list[Column]:
    """A finding whose sort follows from its reason."""
    sort = F.lit("unresolved")
    for one, name in SORT_OF_REASON.items():
        sort = F.when(reason == one.value, F.lit(name)).otherwise(sort)
    return [sort.alias("sort"), *_finding("", reason, queue=queue)[1:]]


def _is_seen() -> Column:
    return is_kind(Kind.DELIVERED) | is_kind(Kind.REMAINING)


def _has_digest(of_kind: Column) -> Column:
    return of_kind & (F.col("digest") > 0)


def messages(rows: DataFrame) -> DataFrame:
    """One row per message: its first times, the least and the greatest digest of its bodies, and whether it may be
    lost or was refused. All columns are numbers, so that Spark aggregates them in buffers of a fixed length.
    """
    of_producer = is_kind(Kind.SENT) | is_kind(Kind.CONFIRMED)
    sent_digest = F.when(_has_digest(is_kind(Kind.SENT)), F.col("digest"))
    seen_digest = F.when(_has_digest(_is_seen()), F.col("digest"))
    return (
        rows.where(~F.col("kind").isin([kind.value for kind in WITHOUT_MESSAGE]))
        .groupBy(MESSAGE)
        .agg(
            F.min(F.when(is_kind(Kind.SENT), F.col("at_ms"))).alias("sent_at"),
            F.min(F.when(is_kind(Kind.CONFIRMED), F.col("at_ms"))).alias("confirmed_at"),
            F.min(F.when(is_kind(Kind.DELIVERED), F.col("at_ms"))).alias("delivered_at"),
            F.min(F.when(is_kind(Kind.REMAINING), F.col("at_ms"))).alias("remaining_at"),
            F.max(of_producer & ~F.col("durable")).alias("transient"),
            F.max(is_kind(Kind.REFUSED) & (F.col("queue") == "")).alias("refused"),
            F.min(sent_digest).alias("sent_least"),
            F.max(sent_digest).alias("sent_greatest"),
            F.min(seen_digest).alias("seen_least"),
            F.max(seen_digest).alias("seen_greatest"),
        )
    )


def suspicious_messages(messages: DataFrame) -> DataFrame:
    """The rows of ``messages`` that ``undelivered``, ``ghosts``, ``refused`` or ``corrupted`` may find, usually few."""
    several_bodies = (
        "sent_least IS NOT NULL AND seen_least IS NOT NULL"
        " AND least(sent_least, seen_least) < greatest(sent_greatest, seen_greatest)"
    )
    return messages.where(f"sent_at IS NULL OR refused OR ({_GONE}) OR ({several_bodies})")


def suspicious_copies(copies: DataFrame, clock_skew_ms: int) -> DataFrame:
    """The rows of ``copies`` that ``unacknowledged``, ``crossed``, ``duplicated``, ``unfounded`` or
    ``remaining_after_acknowledgement`` may find, usually few.
    """
    return copies.where(
        f"({_OPEN}) OR ({_UNFOUNDED})"
        f" OR stored_twice OR again OR consumers > 1 OR last_remaining_ms > first_acknowledgement_ms + {clock_skew_ms}"
    )


def address_drains(rows: DataFrame) -> DataFrame:
    """When all queues of an address were last seen completely, by every name a producer may use: address, seen_at."""
    names = F.array("address", "queue", F.concat("address", F.lit("::"), "queue"))
    return (
        rows.where(is_kind(Kind.DRAINED))
        .select(F.explode(names).alias("address"), "at_ms")
        .groupBy("address")
        .agg(F.max("at_ms").alias("seen_at"))
    )


def queue_drains(rows: DataFrame) -> DataFrame:
    """When each queue was last seen completely: queue, seen_at."""
    return rows.where(is_kind(Kind.DRAINED)).groupBy("queue").agg(F.max("at_ms").alias("seen_at"))


def _with_address(found: DataFrame, rows: DataFrame) -> DataFrame:
    """Add the address that their producer used, which few messages need: ``messages`` does not have it."""
    addresses = (
        rows.where(is_kind(Kind.SENT) | is_kind(Kind.CONFIRMED))
        .join(found.select(MESSAGE).distinct(), on=MESSAGE, how="left_semi")
        .groupBy(MESSAGE)
        .agg(F.min("address").alias("address"))
    )
    return found.join(addresses, on=MESSAGE, how="left")


class _Reasons(NamedTuple):
    """Reasons of findings about messages that are in no queue."""

    certain: Reason
    """Used when the queue was seen completely later."""
    possible: Reason
    """Used when it was not."""


def _judged(
    found: DataFrame, drains: DataFrame, since: str, remaining: DataFrame | None, clock_skew_ms: int,
    *, on: str, reasons: _Reasons,
) -> DataFrame:  # fmt: skip
    """The findings about messages that are in no queue.

    Args:
        remaining: When given, it lists all messages of all queues at the end, so ``drains`` does not matter.
        reasons: Reasons of the findings.
        since: Column with the time after which the queue must have been seen.
    """
    if remaining is None:
        seen = F.coalesce(F.col("seen_at") >= F.col(since) + F.lit(clock_skew_ms), F.lit(False))
        judged = found.join(F.broadcast(drains), on=on, how="left").withColumn("drained", seen)
    else:
        judged = found.join(remaining, on=MESSAGE, how="left_anti").withColumn("drained", F.lit(True))
    certain = F.col("drained") & ~F.col("old") if "old" in found.columns else F.col("drained")
    reason = F.when(certain, F.lit(reasons.certain.value)).otherwise(F.lit(reasons.possible.value))
    return judged.select(_sorted_finding(reason, queue="queue" in found.columns))


def undelivered(
    rows: DataFrame, messages: DataFrame, drains: DataFrame, remaining: DataFrame | None, clock_skew_ms: int
) -> DataFrame:
    """Confirmed durable messages that no consumer and no queue has."""
    found = messages.where(_GONE).select(*MESSAGE, "confirmed_at")
    if remaining is None:
        found = _with_address(found, rows)
    return _judged(
        found, drains, "confirmed_at", remaining, clock_skew_ms,
        on="address", reasons=_Reasons(Reason.NEVER_DELIVERED, Reason.DELIVERY_NOT_SEEN),
    )  # fmt: skip


def unacknowledged(
    rows: DataFrame, messages: DataFrame, copies: DataFrame, drains: DataFrame, remaining: DataFrame | None,
    clock_skew_ms: int,
) -> DataFrame:  # fmt: skip
    """Confirmed durable messages that were delivered on a queue and neither acknowledged there nor kept."""
    moved = rows.where(_is_seen() & (F.col("origin") != "")).select(F.col("origin").alias("queue"), *MESSAGE).distinct()
    confirmed = messages.where("confirmed_at IS NOT NULL AND remaining_at IS NULL AND NOT transient")
    found = (
        copies.where(_OPEN)
        .select(*COPY, "old")
        .join(moved, on=COPY, how="left_anti")
        .join(confirmed.select(*MESSAGE, "confirmed_at"), on=MESSAGE, how="inner")
    )
    return _judged(
        found, drains, "confirmed_at", remaining, clock_skew_ms,
        on="queue", reasons=_Reasons(Reason.NEVER_ACKNOWLEDGED, Reason.ACKNOWLEDGEMENT_NOT_SEEN),
    )  # fmt: skip


def incomplete(
    rows: DataFrame, messages: DataFrame, drains: DataFrame, remaining: DataFrame | None, clock_skew_ms: int
) -> DataFrame:
    """Unconfirmed messages that are nowhere although others of their transaction took effect."""
    key = ["producer", "transaction"]
    members = (
        rows.where(is_kind(Kind.SENT) & (F.col("transaction") != ""))
        .select(*key, "number")
        .distinct()
        .join(messages, on=MESSAGE, how="inner")
        .select(
            *key, "number", "sent_at", "transient", "refused",
            F.least("confirmed_at", "delivered_at", "remaining_at").alias("effect_at"),
        )
    )  # fmt: skip
    effective = (
        members.groupBy(key)
        .agg(F.min("effect_at").alias("first_effect"), F.max("refused").alias("any_refused"))
        .where("first_effect IS NOT NULL AND NOT any_refused")
    )
    found = (
        members.where("effect_at IS NULL AND NOT transient")
        .join(effective, on=key, how="inner")
        .select(*MESSAGE, F.greatest("sent_at", "first_effect").alias("since"))
    )
    if remaining is None:
        found = _with_address(found, rows)
    return _judged(
        found, drains, "since", remaining, clock_skew_ms,
        on="address", reasons=_Reasons(Reason.PART_OF_A_TRANSACTION, Reason.TRANSACTION_NOT_SEEN),
    )  # fmt: skip


def ghosts(messages: DataFrame) -> DataFrame:
    """Delivered, remaining or confirmed and never sent, or both confirmed and refused."""
    unsent = messages.where("sent_at IS NULL")
    found = [
        (unsent.where("delivered_at IS NOT NULL"), Reason.DELIVERED_NEVER_SENT),
        (unsent.where("remaining_at IS NOT NULL"), Reason.REMAINING_NEVER_SENT),
        (unsent.where("confirmed_at IS NOT NULL"), Reason.CONFIRMED_NEVER_SENT),
        (messages.where("confirmed_at IS NOT NULL AND refused"), Reason.CONFIRMED_AND_REFUSED),
    ]
    return reduce(
        DataFrame.unionByName,
        [frame.select(_finding("unexplained", reason, queue=False)) for frame, reason in found],
    )


def refused(messages: DataFrame, remaining: DataFrame | None) -> DataFrame:
    """Refused or rolled back for certain, and delivered or in a queue."""
    seen = messages.where("refused AND (delivered_at IS NOT NULL OR remaining_at IS NOT NULL)").select(MESSAGE)
    if remaining is not None:
        kept = messages.where("refused").select(MESSAGE).join(remaining, on=MESSAGE, how="left_semi")
        seen = seen.unionByName(kept).distinct()
    return seen.select(_finding("refused", Reason.VISIBLE_AFTER_REFUSAL, queue=False))


def corrupted(rows: DataFrame, messages: DataFrame) -> DataFrame:
    """Delivered or in a queue with a body that was not sent.

    Args:
        rows: All.
        messages: Result of ``suspicious_messages``.
    """
    known = messages.where("sent_least IS NOT NULL AND seen_least IS NOT NULL").select(MESSAGE)
    bodies = rows.join(known, on=MESSAGE, how="left_semi")
    was_sent = bodies.where(_has_digest(is_kind(Kind.SENT))).select(*MESSAGE, "digest").distinct()
    return (
        bodies.where(_has_digest(_is_seen()))
        .select(*COPY, "digest")
        .join(was_sent, on=[*MESSAGE, "digest"], how="left_anti")
        .select(COPY)
        .distinct()
        .select(_finding("corrupted", Reason.ANOTHER_BODY, queue=True))
    )


def consumptions(rows: DataFrame) -> DataFrame:
    """One row per message, queue and consumer, with the events of that consumer for the message."""
    delivered, acknowledged = is_kind(Kind.DELIVERED), is_kind(Kind.ACKNOWLEDGED)
    refused = is_kind(Kind.REFUSED) & (F.col("queue") != "")
    attempts = F.when(is_kind(Kind.ACKNOWLEDGING), F.lit(1)).when(refused, F.lit(-1)).otherwise(F.lit(0))
    known_id = F.when(delivered & (F.col("message_id") > 0), F.col("message_id"))
    return (
        rows.where(delivered | acknowledged | is_kind(Kind.ACKNOWLEDGING) | refused | is_kind(Kind.REMAINING))
        .groupBy(*COPY, "consumer")
        .agg(
            F.count(F.when(delivered, F.lit(1))).alias("deliveries"),
            F.count(F.when(delivered | acknowledged, F.lit(1))).alias("consumed"),
            F.count(F.when(acknowledged, F.lit(1))).alias("acknowledgements"),
            F.max(F.when(delivered, F.col("ordinal"))).alias("last_delivery"),
            F.min(F.when(acknowledged, F.col("ordinal"))).alias("first_acknowledgement"),
            F.max(F.when(delivered, F.col("at_ms"))).alias("last_delivery_ms"),
            F.min(F.when(acknowledged, F.col("at_ms"))).alias("first_acknowledgement_ms"),
            F.max(F.when(is_kind(Kind.REMAINING), F.col("at_ms"))).alias("last_remaining_ms"),
            F.sum(attempts).alias("attempts"),
            F.max(delivered & (F.col("version") < 2)).alias("old"),
            F.min(known_id).alias("least_id"),
            F.max(known_id).alias("greatest_id"),
        )
    )


def copies(consumptions: DataFrame) -> DataFrame:
    """One row per message and queue: numbers of consumers and deliveries, and their faults
    without comparing two consumers.
    """
    again = F.col("last_delivery") > F.col("first_acknowledgement")
    return consumptions.groupBy(COPY).agg(
        F.count(F.when(F.col("consumed") > 0, F.lit(1))).alias("consumers"),
        F.sum("deliveries").alias("deliveries"),
        F.sum("acknowledgements").alias("acknowledgements"),
        F.sum("attempts").alias("attempts"),
        F.max("old").alias("old"),
        F.min("first_acknowledgement_ms").alias("first_acknowledgement_ms"),
        F.max("last_remaining_ms").alias("last_remaining_ms"),
        F.coalesce(F.max(again), F.lit(False)).alias("again"),
        F.coalesce(F.min("least_id") < F.max("greatest_id"), F.lit(False)).alias("stored_twice"),
    )


def crossed(consumptions: DataFrame, copies: DataFrame, clock_skew_ms: int) -> DataFrame:
    """Message and queue of copies that one consumer acknowledged before another one got them."""
    met = consumptions.join(copies.where("consumers > 1").select(COPY), on=COPY, how="left_semi")
    tales = met.groupBy(COPY).agg(
        F.collect_list(F.struct("consumer", "last_delivery_ms", "first_acknowledgement_ms")).alias("tales")
    )

    def taken_before(mine: Column) -> Column:
        def earlier(other: Column) -> Column:
            late = mine["last_delivery_ms"] > other["first_acknowledgement_ms"] + F.lit(clock_skew_ms)
            return (mine["consumer"] != other["consumer"]) & F.coalesce(late, F.lit(False))

        return F.exists("tales", earlier)

    return tales.where(F.exists("tales", taken_before)).select(COPY)


def remaining_after_acknowledgement(copies: DataFrame, clock_skew_ms: int) -> DataFrame:
    """Copies that were in the queue later than the confirmation of the acknowledgement."""
    return copies.where(F.col("last_remaining_ms") > F.col("first_acknowledgement_ms") + F.lit(clock_skew_ms)).select(
        _finding("duplicated", Reason.REMAINING_AFTER_ACKNOWLEDGEMENT, queue=True)
    )


def duplicated(copies: DataFrame, crossed: DataFrame, *, members: bool = False) -> DataFrame:
    """Stored twice, or delivered after a confirmed acknowledgement.

    Args:
        members: A message may have moved between members of a cluster, where it gets another id: it is stored twice
            only if it was acknowledged twice.
    """
    twice = F.col("stored_twice") & (F.col("acknowledgements") > 1) if members else F.col("stored_twice")
    stored = copies.where(F.col("deliveries") > 0).where(twice)
    again = (
        copies.where(F.col("deliveries") > 0)
        .where(~twice)
        .join(crossed.withColumn("crossed", F.lit(True)), on=COPY, how="left")
        .where("again OR crossed")
    )
    return stored.select(_finding("duplicated", Reason.STORED_TWICE, queue=True)).unionByName(
        again.select(_finding("duplicated", Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT, queue=True))
    )


def unfounded(copies: DataFrame) -> DataFrame:
    """Acknowledgements of messages on a queue that never delivered them."""
    return copies.where(_UNFOUNDED).select(_finding("unexplained", Reason.ACKNOWLEDGED_NEVER_DELIVERED, queue=True))


def spans(rows: DataFrame, clock_skew_ms: int) -> DataFrame:
    """One row per queue and consumer: its rank in the queue's course, and whether it was opened before
    an earlier one was closed.
    """
    opened, closed = is_kind(Kind.OPENED), is_kind(Kind.CLOSED)
    change = F.when(opened, F.lit(1)).when(closed, F.lit(-1)).otherwise(F.lit(0))
    by_consumer = Window.partitionBy("queue", "consumer").orderBy("ordinal")
    opened_again = (
        rows.where(opened | closed)
        .select("queue", "consumer", F.sum(change).over(by_consumer).alias("unclosed"))
        .groupBy("queue", "consumer")
        .agg((F.max("unclosed") > 1).alias("opened_again"))
    )
    course = Window.partitionBy("queue").orderBy("begin_ms", "end_ms", "consumer")
    before = course.rowsBetween(Window.unboundedPreceding, -1)
    earlier_end_ms = F.max("end_ms").over(before) + F.lit(clock_skew_ms)
    return (
        rows.where(is_kind(Kind.DELIVERED) | opened | closed)
        .groupBy("queue", "consumer")
        .agg(
            F.min("at_ms").alias("begin_ms"),
            F.when(F.sum(change) > 0, F.lit(END_MS)).otherwise(F.max("at_ms")).alias("end_ms"),
        )
        .join(F.broadcast(opened_again), on=["queue", "consumer"], how="left")
        .select(
            "queue",
            "consumer",
            F.row_number().over(course).alias("rank"),
            F.coalesce((F.col("begin_ms") < earlier_end_ms) | F.col("opened_again"), F.lit(False)).alias("overlaps"),
        )
    )


def shared_queues(spans: DataFrame) -> DataFrame:
    """Queues whose consumers overlapped; their order is not judged."""
    return spans.where("overlaps").select("queue").distinct()


def first_deliveries(rows: DataFrame, spans: DataFrame) -> DataFrame:
    """Position in the course of its queue at which each number was first delivered; queues that are shared and
    first rows that repeat an unknown delivery are left out.
    """
    ranks = spans.join(F.broadcast(shared_queues(spans)), on="queue", how="left_anti")
    place = F.shiftleft("rank", ORDINAL_BITS) + F.col("ordinal")
    repeated = F.when(F.col("delivery_count") > 1, F.lit(1)).otherwise(F.lit(0))
    return (
        rows.where(is_kind(Kind.DELIVERED))
        .join(F.broadcast(ranks.select("queue", "consumer", F.col("rank").cast("bigint"))), on=["queue", "consumer"])
        .select(*COPY, (place * 2 + repeated).alias("place"))
        .groupBy(COPY)
        .agg(F.min("place").alias("place"))
        .where("place % 2 = 0")
    )


def reordered(first_deliveries: DataFrame) -> DataFrame:
    """First deliveries of a number after a larger one of the same producer on the same queue.

    The largest number before a row is the larger of two: within its block of the course, and of
    all blocks before it. Only the blocks' maxima, not the rows, are ordered as a whole.
    """
    blocks = first_deliveries.withColumn("block", F.shiftright("place", BLOCK_BITS + 1))
    course = ["queue", "producer"]
    before = Window.partitionBy(*course, "block").orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    blocks_before = Window.partitionBy(course).orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    maxima = (
        blocks.groupBy(*course, "block")
        .agg(F.max("number").alias("largest"))
        .select(*course, "block", F.max("largest").over(blocks_before).alias("largest_of_blocks_before"))
    )
    largest = F.greatest(F.max("number").over(before), F.col("largest_of_blocks_before"))
    return (
        blocks.join(F.broadcast(maxima), on=[*course, "block"], how="inner")
        .select("queue", "producer", "number", largest.alias("largest_before"))
        .where("number < largest_before")
        .select(_finding("reordered", Reason.OUT_OF_ORDER, queue=True, after=F.col("largest_before")))
    )


def windows(rows: DataFrame, window_ms: int) -> DataFrame:
    """Pauses between confirmations of a producer: producer, start_ms, end_ms, duration_ms."""
    in_time = Window.partitionBy("producer").orderBy("at_ms")
    return (
        rows.where(is_kind(Kind.CONFIRMED))
        .select("producer", "at_ms")
        .distinct()
        .select("producer", F.lag("at_ms").over(in_time).alias("start_ms"), F.col("at_ms").alias("end_ms"))
        .withColumn("duration_ms", F.col("end_ms") - F.col("start_ms"))
        .where(F.col("duration_ms") > window_ms)
    )


def latencies(messages: DataFrame) -> DataFrame:
    """Per kind of end (``confirmed``, ``delivered``): count and nearest-rank percentiles."""
    values = messages.where("sent_at IS NOT NULL").select(
        F.explode(
            F.array(
                *[
                    F.struct(F.lit(end).alias("end"), (F.col(f"{end}_at") - F.col("sent_at")).alias("value_ms"))
                    for end in ("confirmed", "delivered")
                ]
            )
        ).alias("one")
    )
    histogram = values.select("one.*").where("value_ms IS NOT NULL").groupBy("end", "value_ms").count()
    running = Window.partitionBy("end").orderBy("value_ms").rowsBetween(Window.unboundedPreceding, 0)
    whole = Window.partitionBy("end")
    ranked = histogram.select(
        "end", "value_ms", F.sum("count").over(running).alias("reached"), F.sum("count").over(whole).alias("total")
    )
    percentiles = [
        F.min(F.when(F.col("reached") >= F.expr(f"(total * {permille} + 999) div 1000"), F.col("value_ms"))).alias(name)
        for permille, name in ((500, "p50_ms"), (990, "p99_ms"), (999, "p999_ms"))
    ]
    return ranked.groupBy("end").agg(F.max("total").alias("count"), *percentiles, F.max("value_ms").alias("max_ms"))


def row_counts(rows: DataFrame) -> DataFrame:
    """Rows of each kind: kind, count."""
    return rows.groupBy("kind").count()


def message_counts(messages: DataFrame) -> DataFrame:
    """One row with the number of sent messages and the number of unconfirmed ones among them."""
    return messages.agg(
        F.count("sent_at").alias("messages"),
        F.count(F.when(F.col("sent_at").isNotNull() & F.col("confirmed_at").isNull(), F.lit(1))).alias("unconfirmed"),
    )


def listed(findings: DataFrame) -> DataFrame:
    """The first findings of each sort in key order, with their ``place`` among them (from 1)."""
    in_order = Window.partitionBy("sort").orderBy("producer", "number", "queue", "reason", "after")
    return findings.withColumn("place", F.row_number().over(in_order)).where(F.col("place") <= FINDINGS_LISTED_MAX)


def examples(rows: DataFrame, listed: DataFrame) -> DataFrame:
    """The first rows, by time, about every listed finding: sort, place, and the row."""
    wanted = listed.select(
        "sort",
        "place",
        F.col("producer"),
        F.col("queue").alias("finding_queue"),
        F.explode(F.array_distinct(F.array(F.col("number"), F.greatest("number", "after"), F.col("after")))).alias(
            "number"
        ),
    ).where("number >= 0")
    by_time = Window.partitionBy("sort", "place").orderBy(
        "at_ms", "kind_order", "producer", "number", "queue", "consumer", "message_id", "delivery_count", "address",
        "durable", "digest", "transaction", "origin", "version", "node", "node_id", "epoch",
    )  # fmt: skip
    return (
        rows.join(F.broadcast(wanted), on=MESSAGE, how="inner")
        .where("finding_queue = '' OR queue = '' OR queue = finding_queue")
        .withColumn("example", F.row_number().over(by_time))
        .where(F.col("example") <= EXAMPLE_ROWS_MAX)
    )
