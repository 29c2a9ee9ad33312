"""Goal: rows of the driver are a table in the plan; no task makes them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from understudy.spark.base.driver_rows import frame_of

pytestmark = pytest.mark.spark

SCHEMA = "name string, queue_id bigint, rank int"


@pytest.mark.parametrize("rows", [[], [("orders", 2**40, 1), (None, 7, None)]])
def test_a_frame_has_the_rows_and_is_a_local_table(spark: SparkSession, rows: list[tuple[str | None, ...]]) -> None:
    frame = frame_of(spark, SCHEMA, rows)
    assert [tuple(row) for row in frame.collect()] == rows
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("name", "string"),
        ("queue_id", "bigint"),
        ("rank", "int"),
    ]
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "LocalTableScan" in plan
    assert "RDD" not in plan
