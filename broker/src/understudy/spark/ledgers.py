"""Ledger files as DataFrames: every line with its place, then every row with its fields.

The lines of all files, in the order in which the files were given, are numbered through: the
``ordinal`` of a line is what its index would be if the files were read one after the other, as
``understudy.ledger.read`` does. Spark reads files in pieces and in any order, so the ordinal is
made from the piece a line was read in and the lines of the pieces before it.

A line is a row here exactly when ``understudy.ledger.parse`` takes it (tested line by line).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  (the usual name)

from understudy.errors import ConfigError
from understudy.ledger import (
    DELIVERY_COUNT_MAX,
    FLAT_OBJECT,
    INTEGER_MAX,
    KIND_ORDER,
    REPLACEMENT,
    TIME_MS_MAX,
    VERSION,
    Kind,
)

#: Fields of a row as JSON gives them; ``_corrupt`` holds a line that is no such object.
ROW_SCHEMA: Final = (
    "kind string, producer string, number bigint, address string, at_ms bigint, consumer string, queue string,"
    " message_id bigint, delivery_count bigint, durable boolean, digest bigint, transaction string, origin string,"
    " version bigint, node string, node_id string, epoch bigint, _corrupt string"
)
_JSON_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
#: Spark would turn a number into a text and null into a default; a row has neither.
_WRONG_TYPES: Final = (
    r'"(?:kind|producer|address|consumer|queue|transaction|origin|node|node_id)"[ \t]*:[ \t]*[^" \t]'
    r'|"(?:number|at_ms|message_id|delivery_count|digest|version|epoch)"[ \t]*:[ \t]*[^0-9 \t-]'
    r'|"durable"[ \t]*:[ \t]*[^tf \t]'
)
#: Spark unpacks by name, and cannot split unpacked files; the reference does not unpack.
_COMPRESSED: Final = frozenset({".bz2", ".deflate", ".gz", ".gzip", ".lz4", ".snappy", ".xz", ".zst", ".zstd"})
_BLANK: Final = r"^[ \t\r\n]*$"


def read_lines(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """All lines that are not blank: file_index, line (from 1 in its file), ordinal, value.

    Raises:
        ConfigError: Spark does not see one of the files, or would unpack it.
    """
    for path in paths:
        if path.suffix.lower() in _COMPRESSED:
            raise ConfigError("compressed ledgers are not read; unpack it first", file=str(path))
    texts = spark.read.text([_spark_path(path) for path in paths], lineSep="\n")
    pieces = texts.select(
        _file_key(F.col("_metadata.file_path")).alias("file_key"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("line_id"),
        "value",
    )
    order = spark.createDataFrame(_file_order(texts, paths), "file_key string, file_index int")
    sizes = pieces.groupBy("file_key", "block").agg(
        F.min("line_id").alias("first_id"), F.count(F.lit(1)).alias("line_count")
    )
    before = Window.orderBy("file_index", "block").rowsBetween(Window.unboundedPreceding, -1)
    in_file = before.partitionBy("file_index").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    starts = sizes.join(F.broadcast(order), on="file_key", how="inner").select(
        "file_key",
        "block",
        "first_id",
        "file_index",
        F.coalesce(F.sum("line_count").over(before), F.lit(0)).alias("ordinals_before"),
        F.coalesce(F.sum("line_count").over(in_file), F.lit(0)).alias("lines_before"),
    )
    offset = F.col("line_id") - F.col("first_id")
    return (
        pieces.join(F.broadcast(starts), on=["file_key", "block"], how="inner")
        .select(
            "file_index",
            (F.col("lines_before") + offset + 1).alias("line"),
            (F.col("ordinals_before") + offset).alias("ordinal"),
            "value",
        )
        .where(~F.col("value").rlike(_BLANK))
    )


def _spark_path(path: Path) -> str:
    """The path as Spark takes it: absolute, with characters of patterns escaped."""
    text = str(path.resolve())
    return "file://" + "".join(f"\\{one}" if one in "\\*?[]{}," else one for one in text)


def _file_key(path: Column) -> Column:
    """One spelling of ``file:/x`` and ``file:///x``."""
    return F.regexp_replace(path, "^file:/+", "file:/")


def _file_order(texts: DataFrame, paths: Sequence[Path]) -> list[tuple[str, int]]:
    """The key of each file with its place among the arguments."""
    places = {str(path.resolve()): place for place, path in enumerate(paths)}
    found: list[tuple[str, int]] = []
    for url in texts.inputFiles():
        path = unquote(urlsplit(url).path)
        if path not in places:
            raise ConfigError("Spark reads this file instead of one that was given", file=path)
        found.append(("file:/" + urlsplit(url).path.lstrip("/"), places.pop(path)))
    for missing in places:
        if Path(missing).stat().st_size:
            raise ConfigError(
                "Spark does not read this file", file=missing, hint="names starting with _ or . are hidden"
            )
    return found


def parse_lines(lines: DataFrame) -> DataFrame:
    """The fields of each line's row, and ``bad`` where there is none; ``value`` only of bad lines."""
    parsed = lines.select("*", F.from_json("value", ROW_SCHEMA, _JSON_OPTIONS).alias("row"))
    fields = parsed.select(
        "file_index",
        "line",
        "ordinal",
        "value",
        "row.kind",
        "row.producer",
        "row.number",
        "row.address",
        "row.at_ms",
        F.coalesce("row.consumer", F.lit("")).alias("consumer"),
        F.coalesce("row.queue", F.lit("")).alias("queue"),
        F.coalesce("row.message_id", F.lit(0)).alias("message_id"),
        F.coalesce("row.delivery_count", F.lit(0)).alias("delivery_count"),
        F.coalesce("row.durable", F.lit(True)).alias("durable"),
        F.coalesce("row.digest", F.lit(0)).alias("digest"),
        F.coalesce("row.transaction", F.lit("")).alias("transaction"),
        F.coalesce("row.origin", F.lit("")).alias("origin"),
        F.coalesce("row.version", F.lit(1)).alias("version"),
        F.coalesce("row.node", F.lit("")).alias("node"),
        F.coalesce("row.node_id", F.lit("")).alias("node_id"),
        F.coalesce("row.epoch", F.lit(0)).alias("epoch"),
        F.col("row._corrupt").alias("corrupt"),
    )
    judged = fields.withColumn("bad", ~_is_row()).drop("corrupt")
    # the text of a valid line is dropped: only its fields are kept
    return judged.withColumn("value", F.when(F.col("bad"), F.col("value")))


def _is_row() -> Column:
    kinds = [kind.value for kind in Kind]
    good = (
        F.col("corrupt").isNull()
        & F.col("value").rlike(FLAT_OBJECT)
        & ~F.col("value").rlike(_WRONG_TYPES)
        & ~F.col("value").contains(REPLACEMENT)
        & F.col("kind").isin(kinds)
        & F.col("producer").isNotNull()
        & F.col("address").isNotNull()
        & F.col("number").between(0, INTEGER_MAX)
        & F.col("at_ms").between(0, TIME_MS_MAX)
        & F.col("message_id").between(0, INTEGER_MAX)
        & F.col("delivery_count").between(0, DELIVERY_COUNT_MAX)
        & F.col("digest").between(0, INTEGER_MAX)
        & F.col("version").between(1, VERSION)
        & F.col("epoch").between(0, INTEGER_MAX)
    )
    return F.coalesce(good, F.lit(False))


def bad_lines(parsed: DataFrame) -> DataFrame:
    """Lines that are no rows: file_index, line, value, and ``torn`` for the half-written last line
    of a file.
    """
    last = parsed.groupBy("file_index").agg(F.max("line").alias("last_line"))
    return (
        parsed.where("bad")
        .join(F.broadcast(last), on="file_index", how="inner")
        .select(
            "file_index",
            "line",
            "value",
            ((F.col("line") == F.col("last_line")) & ~F.col("value").rlike(FLAT_OBJECT)).alias("torn"),
        )
    )


def rows_of(parsed: DataFrame) -> DataFrame:
    """The good rows: ordinal, the fields, and ``kind_order`` for showing them."""
    order = F.lit(len(KIND_ORDER))
    for kind, place in KIND_ORDER.items():
        order = F.when(F.col("kind") == kind.value, F.lit(place)).otherwise(order)
    return parsed.where(~F.col("bad")).select(
        "ordinal",
        "kind",
        "producer",
        "number",
        "address",
        "at_ms",
        "consumer",
        "queue",
        "message_id",
        "delivery_count",
        "durable",
        "digest",
        "transaction",
        "origin",
        "version",
        "node",
        "node_id",
        "epoch",
        order.alias("kind_order"),
    )


def parse_remaining(lines: DataFrame) -> DataFrame:
    """Lines of a remaining-file: file_index, line, producer, number, ``bad``."""
    schema = "producer string, number bigint, _corrupt string"
    wrong = r'"producer"[ \t]*:[ \t]*[^" \t]|"number"[ \t]*:[ \t]*[^0-9 \t-]'
    parsed = lines.select("*", F.from_json("value", schema, _JSON_OPTIONS).alias("row"))
    good = (
        F.col("row._corrupt").isNull()
        & F.col("row.producer").isNotNull()
        & F.col("row.number").isNotNull()
        & ~F.col("value").rlike(wrong)
    )
    return parsed.select(
        "file_index",
        "line",
        "row.producer",
        "row.number",
        (~F.coalesce(good, F.lit(False))).alias("bad"),
    )
