"""Rows that the driver has, as a frame.

The frame is a table inside the query plan. A frame of a Python list is an RDD instead: each query that uses it starts
Python workers to copy its rows, and Spark does not know how few they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def frame_of(spark: SparkSession, schema: str, rows: Iterable[tuple[Any, ...]]) -> DataFrame:
    """A frame of few rows.

    Args:
        spark: A session.
        schema: Names and types of the columns as DDL.
        rows: Values in the order of the columns.
    """
    given = cast(StructType, StructType.fromDDL(schema))
    columns = to_arrow_schema(given, timezone="UTC")
    table = pa.Table.from_pylist([dict(zip(columns.names, row, strict=True)) for row in rows], schema=columns)
    return spark.createDataFrame(table, given)
