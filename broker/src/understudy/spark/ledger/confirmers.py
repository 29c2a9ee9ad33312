"""The rules of ``understudy.ledger.check_epochs`` as DataFrames: which node confirmed in which epoch."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from understudy.ledger import EpochOfNode, EpochReport, Kind, judge_epochs
from understudy.spark.ledger.audits import is_kind

#: Names one confirmation that a client waits for.
_KEY: Final = ["answer", "producer", "number", "queue_of_answer", "consumer_of_answer"]


def requests_and_answers(rows: DataFrame) -> DataFrame:
    """The rows of requests and their answers with the key by which they belong together."""
    of_producer = is_kind(Kind.SENT) | is_kind(Kind.CONFIRMED) | (is_kind(Kind.REFUSED) & (F.col("consumer") == ""))
    wanted = [Kind.SENT, Kind.CONFIRMED, Kind.ACKNOWLEDGING, Kind.ACKNOWLEDGED, Kind.REFUSED]
    return rows.where(F.col("kind").isin([kind.value for kind in wanted])).select(
        F.when(of_producer, F.lit(Kind.CONFIRMED.value)).otherwise(F.lit(Kind.ACKNOWLEDGED.value)).alias("answer"),
        "producer",
        "number",
        F.when(of_producer, F.lit("")).otherwise(F.col("queue")).alias("queue_of_answer"),
        F.when(of_producer, F.lit("")).otherwise(F.col("consumer")).alias("consumer_of_answer"),
        "ordinal",
        "at_ms",
        "kind",
        (is_kind(Kind.SENT) | is_kind(Kind.ACKNOWLEDGING)).alias("is_request"),
        "node",
        "node_id",
        "epoch",
    )


def confirmations(rows: DataFrame) -> DataFrame:
    """Answers with an epoch and the time of their request, -1 if it is not known. A request has one answer."""
    course = Window.partitionBy(_KEY).orderBy("ordinal")
    before = F.lag(F.when(F.col("is_request"), F.col("at_ms"))).over(course)
    return (
        requests_and_answers(rows)
        .withColumn("since_ms", F.coalesce(before, F.lit(-1)))
        .where(~F.col("is_request") & (F.col("epoch") != 0))
    )


def epochs_of(confirmed: DataFrame) -> DataFrame:
    """One row per node id and epoch: its nodes, the number of confirmations, the first one, the one requested last."""
    last = F.max(F.struct("since_ms", (-F.col("ordinal")).alias("place"), "kind", "producer", "number", "node"))
    return confirmed.groupBy("node_id", "epoch").agg(
        F.collect_set("node").alias("nodes"),
        F.count(F.lit(1)).alias("confirmations"),
        F.min("at_ms").alias("first_ms"),
        last.alias("last"),
    )


def check_epochs(rows: DataFrame, clock_skew_ms: int) -> EpochReport:
    """Judge the epochs of all confirmations, as ``understudy.ledger.check_epochs`` does."""
    found = []
    for row in epochs_of(confirmations(rows)).collect():
        last = row["last"]
        known = last["since_ms"] >= 0
        text = f"{last['kind']} {last['producer']} {last['number']} by {last['node']}" if known else ""
        found.append(
            EpochOfNode(
                row["node_id"], row["epoch"], set(row["nodes"]), row["confirmations"], row["first_ms"],
                last["since_ms"], text,
            )
        )  # fmt: skip
    return judge_epochs(found, clock_skew_ms=clock_skew_ms)
