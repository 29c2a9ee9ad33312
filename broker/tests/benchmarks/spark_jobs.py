"""Jobs of ``understudy pipeline`` on one journal, beside the broker's own replay of it; and the growth of ``audit``.

``verdict`` compares three copies: the journal, one without its last segment, and one whose last segment is another one.
``replay`` sends from the archive to a broker that runs here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmarks.journal_source import make_store
from support.processes import COMMAND, Pair
from understudy.ledger import Kind, Row, encode
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.reading.follower import recover

_SEGMENT_BYTES = 10 * 1000 * 1000
#: Of each message one stays in the queue; the others are acknowledged.
_KEEP_ONE_OF = 33
_NOW_MS = 1_700_000_000_000
_PRODUCERS = 8
#: Ends of the names of rows that are not work of Spark.
_ONE_THREAD = ("one thread", "only sending")


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


def make_copies(store: Path, directory: Path, body_bytes: int) -> list[str]:
    """Three copies of a journal: as it is, without its last segment, and with another last segment."""
    shorter, diverged, other = directory / "shorter", directory / "diverged", directory / "other"
    for copy in (shorter, diverged):
        shutil.copytree(store, copy)
    segments = sorted(each.name for each in store.iterdir())
    (shorter / segments[-1]).unlink()
    # bodies begin with random bytes, so a journal that is made again has other messages
    other.mkdir()
    make_store(other, body_bytes, len(segments), _SEGMENT_BYTES, _KEEP_ONE_OF)
    shutil.copy(other / segments[-1], diverged / segments[-1])
    shutil.rmtree(other)
    return [str(each) for each in (store, shorter, diverged)]


def _replay(archive: Path, work: Path, body_bytes: int) -> dict[str, dict[str, float]]:
    """Rates of ``replay`` from an archive to a broker, and of ``produce`` with as many messages."""
    pair = Pair(work)
    url = f"tcp://127.0.0.1:{pair.primary.port}"
    found = {}
    pair.primary.start()
    try:
        pair.primary.wait_ready("active")
        replay = ["pipeline", "replay", str(archive)]
        for name, command in (
            ("produce, 1 message", ["produce", "--queue", "orders", "--count", "1"]),
            ("replay", replay),
            ("produce", ["produce", "--queue", "orders", "--size", str(body_bytes), "--count", ""]),
        ):
            if command[-1] == "":
                command[-1] = str(int(found["replay"]["messages"]))
            answer = subprocess.run(
                [str(COMMAND), *command, "--url", url, "--json"], capture_output=True, text=True, check=True
            )
            summary = json.loads(answer.stdout)
            found[name] = {
                "seconds": summary["seconds"], "messages_per_s": summary["rate"], "messages": summary["confirmed"],
            }  # fmt: skip
    finally:
        pair.primary.end()
    return {f"{body_bytes} B: {name}, only sending": found[name] for name in ("replay", "produce")}


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _journal_jobs(spark: Any, work: Path, megabytes: int, body_bytes: int) -> dict[str, dict[str, float]]:
    from understudy.spark.archive.archives import archive
    from understudy.spark.flow.flows import flow
    from understudy.spark.jobs.verdicts import verdict
    from understudy.spark.state.consolidations import Segments, Settings, consolidate

    store = work / f"store{body_bytes}"
    archived = work / f"archive{body_bytes}"
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
        "archive": lambda: archive(spark, [str(store)], archived),
        "verdict of three copies": lambda: verdict(spark, RealDisk(), copies),
    }
    (work / f"copies{body_bytes}").mkdir()
    copies = make_copies(store, work / f"copies{body_bytes}", body_bytes)
    found = {}
    for name, job in jobs.items():
        seconds = _seconds(job)
        found[f"{body_bytes} B: {name}"] = {
            "seconds": seconds, "messages_per_s": count / seconds, "megabytes_per_s": size / seconds / 1e6,
        }  # fmt: skip
    shutil.rmtree(work / f"copies{body_bytes}")
    return found | _replay(archived, work / f"broker{body_bytes}", body_bytes)


@click.command("spark-jobs")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--megabytes", default=256, show_default=True, help="Size of each journal. MB.")
@click.option("--cores", default=os.cpu_count(), show_default=True, help="Tasks of Spark at a time.")
@click.option("--driver-memory", default="2g", show_default=True, help="Java heap; in local mode all of Spark.")
@click.option("--audit-rows", default="1000000,10000000", show_default=True, help="Rows of the ledgers to audit.")
def spark_jobs(as_json: bool, megabytes: int, cores: int, driver_memory: str, audit_rows: str) -> None:
    """The jobs of the pipeline: messages and bytes of journal in a second, and rows of ledgers in a second.

    With --megabytes 0 only ledgers are audited.
    """
    from understudy.spark.jobs.jobs import audit
    from understudy.spark.session import open_session

    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIRECTORY")) as work:
        more = {"spark.driver.memory": driver_memory}
        spark = open_session(f"local[{cores}]", work_directory=f"{work}/spark", name="benchmark", more=more)
        for body_bytes in (100, 1024) if megabytes else ():
            found |= _journal_jobs(spark, Path(work), megabytes, body_bytes)
        for rows in map(int, filter(None, audit_rows.split(","))):
            ledger = Path(work) / f"ledger{rows}.jsonl"
            make_ledger(ledger, rows)
            seconds = _seconds(lambda path=ledger: audit(spark, [path]))  # type: ignore[misc]
            found[f"audit, {rows:,} rows"] = {"seconds": seconds, "rows_per_s": rows / seconds}
            click.echo(f"audit of {rows:,} rows: {seconds:.1f} s", err=True)
            ledger.unlink()
        spark.stop()
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, figures in found.items():
        per_s = figures.get("messages_per_s", figures.get("rows_per_s", 0.0))
        size = f"{figures['megabytes_per_s']:8.1f} MB/s" if "megabytes_per_s" in figures else ""
        per_core = "" if name.endswith(_ONE_THREAD) else f"{per_s / 1e6 / cores:8.3f} per core"
        click.echo(f"{name:45} {figures['seconds']:8.1f} s {per_s / 1e6:8.3f} M/s {per_core:17} {size}")
