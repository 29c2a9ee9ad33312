"""A session that PySpark itself has made reads journals and ledgers without a call of this package."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.copies import act, write_out
from tests.support.journals import plain_messages
from tests.support.store import StoreHarness

pytestmark = pytest.mark.spark

_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.config("spark.local.dir", sys.argv[3]).config("spark.sql.warehouse.dir", sys.argv[3]).getOrCreate()
before = [name for name in sys.modules if name.startswith("understudy")]
journal = spark.read.format("understudy.journal").option("table", "messages").load(sys.argv[1])
sequences = [row[0] for row in journal.select("sequence").collect()]
ledger = spark.read.format("understudy.ledger").load(sys.argv[2]).count()
try:
    spark.read.format("understudy.queue").load().count()
    queue = ""
except Exception as error:
    queue = str(error)
print(json.dumps({"before": before, "sequences": sequences, "ledger": ledger, "queue": queue}))
spark.stop()
"""


def test_plain_session_finds_the_data_sources(tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(1))
    rig.activate("a")
    act(rig, 60)
    store = write_out(rig, tmp_path / "store")
    ledger = tmp_path / "producer.jsonl"
    ledger.write_text('{"kind":"sent","producer":"p","number":1,"address":"a","at_ms":1}\n')
    work = tmp_path / "work"
    work.mkdir()
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(program), str(store), str(ledger), str(work)],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["before"] == []
    assert found["sequences"] == [row["sequence"] for row in plain_messages(str(store))]
    assert found["ledger"] == 1
    assert "option queue is missing" in found["queue"]
