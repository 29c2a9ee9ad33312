"""The lines of ledger files as the frames that an audit is made of.

``parsed`` is always what ``ledger_source.read_ledgers`` gives.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the usual name)

from understudy.ledger import FLAT_OBJECT, KIND_ORDER


def bad_lines(parsed: DataFrame) -> DataFrame:
    """Lines that are no rows: file_index, ordinal, value, and ``torn`` for the half-written last line of a file."""
    last = parsed.groupBy("file_index").agg(F.max("ordinal").alias("last"))
    return (
        parsed.where("bad")
        .join(F.broadcast(last), on="file_index", how="inner")
        .select(
            "file_index",
            "ordinal",
            "value",
            ((F.col("ordinal") == F.col("last")) & ~F.col("value").rlike(FLAT_OBJECT)).alias("torn"),
        )
    )


def rows_of(parsed: DataFrame) -> DataFrame:
    """The good rows: ordinal, the fields, and ``kind_order`` for showing them."""
    order = F.lit(len(KIND_ORDER))
    for kind, place in KIND_ORDER.items():
        order = F.when(F.col("kind") == kind.value, F.lit(place)).otherwise(order)
    return parsed.where(~F.col("bad")).drop("file_index", "value", "bad").withColumn("kind_order", order)
