"""Live messages of journals as ``DataFrame -> DataFrame`` functions: added, in effect, and not acknowledged.

The rules are those of ``store.state``: adds and acknowledgements of a transaction count if it is committed, references
of a removed queue are gone, and a snapshot stands for the log up to its sequence. Bodies are never shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from understudy.spark.journal.source import read_journal
from understudy.spark.state.changes import ACKNOWLEDGE, ADD, COMMIT, REMOVE

#: Columns that together name one message in one queue of one journal.
REFERENCE: Final = ["directory", "queue_id", "message_id"]


def live_references(spark: SparkSession, directories: Sequence[str], **options: str) -> DataFrame:
    """One row for each message that is in a queue at the end of a journal: directory, queue_id, message_id.

    Args:
        spark: A session of ``open_session``.

    Raises:
        StoreError: as ``read_journal``.
    """
    return live(read_journal(spark, list(directories), "changes", None, (), **options))


def live(changes: DataFrame) -> DataFrame:
    """The references that are left by the rows of table ``changes``."""
    committed = changes.where(F.col("change") == COMMIT).select(
        "directory", "transaction_id", F.lit(True).alias("committed")
    )
    removed = changes.where(F.col("change") == REMOVE).select("directory", "queue_id")
    return (
        changes.where(F.col("change").isin(ADD, ACKNOWLEDGE))
        .join(F.broadcast(committed), on=["directory", "transaction_id"], how="left")
        .where("transaction_id IS NULL OR committed")
        .groupBy(REFERENCE)
        .agg(
            F.max(F.col("change") == ADD).alias("added"),
            F.max(F.col("change") == ACKNOWLEDGE).alias("acknowledged"),
        )
        .where("added AND NOT acknowledged")
        .join(F.broadcast(removed), on=["directory", "queue_id"], how="left_anti")
        .select(REFERENCE)
    )


def remaining_of(live_rows: DataFrame, messages: DataFrame, producer: str, number: str) -> DataFrame:
    """Producer and number of live messages, as rows of ledgers name them; messages without them are left out.

    Args:
        live_rows: Result of ``live_references``.
        messages: Table ``messages`` with ``properties``.
        producer: Property with the name of the producer.
        number: Property with the number of the message.
    """
    return (
        messages.join(live_rows, on=REFERENCE, how="left_semi")
        .select(
            F.col("properties")[producer].alias("producer"),
            F.expr(f"try_cast(properties['{number}'] AS bigint)").alias("number"),
        )
        .where("producer IS NOT NULL AND number IS NOT NULL")
        .distinct()
    )
