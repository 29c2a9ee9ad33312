"""Jobs of ``understudy pipeline`` on one journal, beside the broker's own replay of it; and the growth of ``audit``."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmarks.journal_source import make_store
from understudy.ledger import Kind, Row, encode
from understudy.runtime.disk import RealDisk
from understudy.store.log.follower import recover

_SEGMENT_BYTES = 10 * 1000 * 1000
#: Of each message one stays in the queue; the others are acknowledged.
_KEEP_ONE_OF = 33
_NOW_MS = 1_700_000_000_000
_PRODUCERS = 8


def make_ledger(path: Path, rows: int) -> None:
    """Four rows for each message: sent, confirmed, delivered, acknowledged."""
    with path.open("w") as file:
        for number in range(rows // 4):
            producer, own = f"p{number % _PRODUCERS}", number // _PRODUCERS + 1
            at_ms = _NOW_MS + number // 10
            file.write(encode(Row(Kind.SENT, producer, own, "orders", at_ms)))
            file.write(encode(Row(Kind.CONFIRMED, producer, own, "orders", at_ms + 2)))
            for kind, later_ms in ((Kind.DELIVERED, 3), (Kind.ACKNOWLEDGED, 4)):
                file.write(encode(Row(kind, producer, own, "orders", at_ms + later_ms, consumer="c", queue="orders")))


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _journal_jobs(spark: Any, work: Path, megabytes: int, body_bytes: int) -> dict[str, dict[str, float]]:
    from understudy.spark.archives import archive
    from understudy.spark.consolidations import Segments, Settings, consolidate
    from understudy.spark.flows import flow

    store = work / f"store{body_bytes}"
    store.mkdir()
    count = make_store(store, body_bytes, max(megabytes // 10, 2), _SEGMENT_BYTES, _KEEP_ONE_OF)
    size = sum(path.stat().st_size for path in store.iterdir())

    def plain() -> None:
        recover(RealDisk(), str(store)).close()

    def run_consolidate(name: str, segments: Segments) -> Callable[[], Any]:
        return lambda: consolidate(spark, str(store), work / f"{name}{body_bytes}", Settings(segments))

    jobs: dict[str, Callable[[], Any]] = {
        "first query (starts workers)": lambda: flow(spark, [str(store)]),
        "replay by a broker, one thread": plain,
        "flow": lambda: flow(spark, [str(store)]),
        "consolidate, only the snapshot": run_consolidate("none", Segments.NONE),
        "consolidate, with the segments": run_consolidate("needed", Segments.NEEDED),
        "archive": lambda: archive(spark, [str(store)], work / f"archive{body_bytes}"),
    }
    found = {}
    for name, job in jobs.items():
        seconds = _seconds(job)
        found[f"{body_bytes} B: {name}"] = {
            "seconds": seconds, "messages_per_s": count / seconds, "megabytes_per_s": size / seconds / 1e6,
        }  # fmt: skip
    return found


@click.command("spark-jobs")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--megabytes", default=256, show_default=True, help="Size of each journal. MB.")
@click.option("--audit-rows", default="1000000,10000000", show_default=True, help="Rows of the ledgers to audit.")
def spark_jobs(as_json: bool, megabytes: int, audit_rows: str) -> None:
    """The jobs of the pipeline: messages and bytes of journal in a second, and rows of ledgers in a second."""
    from understudy.spark.jobs import audit
    from understudy.spark.session import open_session

    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIRECTORY")) as work:
        spark = open_session(f"local[{os.cpu_count()}]", work_directory=f"{work}/spark", name="benchmark")
        for body_bytes in (100, 1024):
            found |= _journal_jobs(spark, Path(work), megabytes, body_bytes)
        for rows in map(int, filter(None, audit_rows.split(","))):
            ledger = Path(work) / f"ledger{rows}.jsonl"
            make_ledger(ledger, rows)
            seconds = _seconds(lambda path=ledger: audit(spark, [path]))  # type: ignore[misc]
            found[f"audit, {rows:,} rows"] = {"seconds": seconds, "rows_per_s": rows / seconds}
            ledger.unlink()
        spark.stop()
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, figures in found.items():
        per_s = figures.get("messages_per_s", figures.get("rows_per_s", 0.0))
        size = f"{figures['megabytes_per_s']:8.1f} MB/s" if "megabytes_per_s" in figures else ""
        click.echo(f"{name:45} {figures['seconds']:8.1f} s {per_s / 1e6:8.3f} M/s {size}")
