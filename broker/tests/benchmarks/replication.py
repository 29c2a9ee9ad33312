"""A pair with replication beside a single node: messages per second, and the freeze at the end of the copy.

Two processes on this machine, each with its own store on the same disk, so the replica competes for processor and disk
with the active node: the ratio is a lower bound for a pair of two hosts.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.cases import CASES
from benchmarks.core_link import CoreLink
from benchmarks.growth import fill
from benchmarks.load import build_driver, run
from support.ports import free_port
from support.processes import COMMAND, PAIR_XML, Node

#: Goal: throughput of a pair with a replica in sync, of that of a single node.
RATIO_PERCENT_MIN = 60
#: Goal: longest stop of the writers at the end of a copy, with 1 GiB of messages and producers at work.
FREEZE_MS_MAX = 250

_SHARED = re.compile(r"<shared-store>.*</shared-store>", re.DOTALL)


class ReplicatedPair:
    """A primary and its backup, each with its own store; the lock manager is a directory."""

    def __init__(self, directory: Path) -> None:
        locks = directory / "locks"
        locks.mkdir(parents=True)
        ports = {"primary": free_port(), "backup": free_port()}
        self.primary = Node(directory / "primary", "primary", ports["primary"])
        self.backup = Node(directory / "backup", "backup", ports["backup"])
        for node, other in ((self.primary, "backup"), (self.backup, "primary")):
            node.config.parent.mkdir(parents=True)
            text = PAIR_XML.format(
                name=f"{node.role}-node", store=node.directory / "store", primary_port=ports["primary"],
                backup_port=ports["backup"], port=node.port, acceptor="", connector="", role=node.role, other=other,
                failover_on_shutdown="false", security="false", extra="",
            )  # fmt: skip
            manager = (
                "<manager><class-name>file</class-name><properties>"
                f'<property key="locks-folder" value="{locks}"/></properties></manager>'
            )
            policy = f"<replication><{node.role}>{manager}</{node.role}></replication>"
            node.config.write_text(_SHARED.sub(policy, text))

    def wait_in_sync(self, timeout_s: float = 300) -> None:
        """Wait until the replica is in sync."""
        began = time.monotonic()
        while not any(each["event"] == "replica in sync" for each in records(self.primary)):
            assert time.monotonic() - began < timeout_s, self.backup.tail()
            time.sleep(0.05)

    def end(self) -> None:
        """Leave nothing running."""
        self.primary.end()
        self.backup.end()


def records(node: Node) -> list[dict[str, object]]:
    """Lines of the log of a node."""
    return [json.loads(line) for line in node.log.read_text().splitlines() if line.startswith("{")]


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second of one case."""

    case: str
    single: float
    replicated: float

    @property
    def percent(self) -> float:
        """Of the single node."""
        return 100 * self.replicated / self.single


@dataclass(frozen=True, slots=True)
class Freeze:
    """The end of one copy."""

    size_mib: int
    copied_s: float
    frozen_ms: float


def rates(case: str, directory: Path, window_ms: int) -> Rates:
    """One case with and without a replica, one after the other on the same active node."""
    driver, pair = build_driver(directory), ReplicatedPair(directory / "pair")
    try:
        pair.primary.start().wait_ready("active")
        assert pair.primary.process is not None
        found = []
        for step in range(2):
            if step:
                pair.backup.start()
                pair.wait_in_sync()
            outcome = run(
                driver, CoreLink(pair.primary.port), CASES[case][1], f"busy{step}", [pair.primary.process.pid],
                warmup_ms=1_000, window_ms=window_ms,
            )  # fmt: skip
            found.append(outcome.per_s)
        return Rates(case, found[0], found[1])
    finally:
        pair.end()


def freeze(directory: Path, size_mib: int) -> Freeze:
    """A copy of a store with messages that wait, while a producer sends without a pause."""
    pair = ReplicatedPair(directory / "pair")
    producer: subprocess.Popen[bytes] | None = None
    try:
        pair.primary.start().wait_ready("active")
        if size_mib:
            fill(pair.primary.port, "waiting", size_mib * 64, 16 * 1024)
        producer = subprocess.Popen(
            [str(COMMAND), "produce", "--url", f"tcp://127.0.0.1:{pair.primary.port}", "--queue", "busy",
             "--count", "100000000", "--size", "1024"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(1)
        began = time.monotonic()
        pair.backup.start()
        pair.wait_in_sync()
        took_s = time.monotonic() - began
        frozen = next(each for each in records(pair.primary) if each["event"] == "replica in sync")
        value = frozen["frozen_ms"]
        assert isinstance(value, (int, float))
        return Freeze(size_mib, took_s, float(value))
    finally:
        if producer is not None:
            producer.kill()
            producer.wait()
        pair.end()


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Rounds; medians are printed.")
@click.option("--window-ms", default=5_000, show_default=True, help="Load of each measurement.")
@click.option("--cases", default="pipelined,blocking", show_default=True, help="Cases of the peer benchmark.")
@click.option("--size-mib", default=1024, show_default=True, help="Messages that wait during the copy.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def replication(*, rounds: int, window_ms: int, cases: str, size_mib: int, as_json: bool) -> None:
    """Throughput of a pair with replication beside that of a single node, and the freeze at the end of the copy."""
    found: dict[str, list[Rates]] = {case: [] for case in cases.split(",") if case}
    freezes: list[Freeze] = []
    for _ in range(rounds):
        for case, values in found.items():
            with tempfile.TemporaryDirectory(prefix="understudy-bench-") as name:
                values.append(rates(case, Path(name), window_ms))
        with tempfile.TemporaryDirectory(prefix="understudy-bench-") as name:
            freezes.append(freeze(Path(name), size_mib))
    if as_json:
        rows = {case: [asdict(each) for each in values] for case, values in found.items()}
        print(json.dumps({"benchmark": "replication", "rates": rows, "freezes": [asdict(each) for each in freezes]}))
        return
    table = Table(title=f"Messages per second with a replica in sync, {rounds} rounds, {datetime.now():%Y-%m-%d}")
    for column in ("case", "single node", "with a replica", "%", "goal"):
        table.add_column(column, justify="right")
    for case, values in found.items():
        percent = statistics.median(each.percent for each in values)
        table.add_row(
            case, f"{statistics.median(each.single for each in values):,.0f}",
            f"{statistics.median(each.replicated for each in values):,.0f}", f"{percent:.0f}",
            f">= {RATIO_PERCENT_MIN}: {'met' if percent >= RATIO_PERCENT_MIN else 'MISSED'}",
        )  # fmt: skip
    Console(width=120).print(table)
    median_ms = statistics.median(each.frozen_ms for each in freezes)
    print(
        f"copy of {size_mib} MiB while a producer sends: in sync after"
        f" {statistics.median(each.copied_s for each in freezes):.1f} s; writers frozen"
        f" {', '.join(f'{each.frozen_ms:.0f}' for each in freezes)} ms, median {median_ms:.0f}"
        f" (goal <= {FREEZE_MS_MAX}: {'met' if median_ms <= FREEZE_MS_MAX else 'MISSED'})"
    )
