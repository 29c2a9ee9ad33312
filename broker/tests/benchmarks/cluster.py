"""Members of a cluster beside a single node: messages produced at one and consumed at another.

All nodes and the driver share this machine, so two members have the processors of one; further members know the queues
and have no clients. Artemis runs the same in turn, with its own cluster of two.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.cases import CASES
from benchmarks.content import Content
from benchmarks.core_link import CoreLink
from benchmarks.growth import fill
from benchmarks.load import CannotRun, Consumer, Producer, build_driver, run
from benchmarks.targets import artemis_home
from benchmarks.usage import cpu_seconds
from support.artemis import ArtemisNode
from support.members import Members, members_xml, url
from support.processes import COMMAND, Node
from understudy.client.sync import connect

#: Goals: part of the rate of a single node in the same run, and times the rate of two members of Artemis.
OF_SINGLE_PERCENT_MIN = 60
OF_ARTEMIS_MIN = 2.0
SETTLED_S_MAX = 10.0
MODES = ("ON_DEMAND", "STRICT")
#: Members learn each other's queues within this time.
_SETTLED_S = 2.0


class Across:
    """Producers at one member, consumers at another one; a ``benchmarks.load.Link``."""

    protocol = "core"

    def __init__(self, first: int, second: int, mode: str) -> None:
        """Args:
        first: Port of the member to which the producers send.
        second: Port of the member that has the consumers.
        mode: ``STRICT`` or ``ON_DEMAND``. With STRICT the first member has no queue of its own, because the queue would
            keep its share of the messages.
        """
        self._first, self._second = CoreLink(first), CoreLink(second)
        only_one = mode == "STRICT" or first == second
        self._declared_at = [self._second] if only_one else [self._first, self._second]

    def declare(self, queues: Sequence[str], *, durable: bool = True) -> None:
        """Make the queues, and wait until the members know them."""
        for link in self._declared_at:
            link.declare(queues, durable=durable)
        time.sleep(_SETTLED_S)

    def producer(self, queue: str, content: Content) -> Producer:
        """See ``Link``."""
        return self._first.producer(queue, content)

    def consumer(self, queue: str, number: int, prefetch: int = 0) -> Consumer:
        """See ``Link``."""
        return self._second.consumer(queue, number, prefetch)


@dataclass(frozen=True, slots=True)
class Rates:
    """One round of one broker and mode. Messages per second; processor time per message of all members together."""

    broker: str
    mode: str
    members: int
    single: float
    across: float
    single_cpu_us: float
    across_cpu_us: float

    @property
    def percent(self) -> float:
        """Throughput across members in percent of that of the single node."""
        return 100 * self.across / self.single


class _Ours:
    def __init__(self, directory: Path, mode: str, count: int) -> None:
        balancing = f"<message-load-balancing>{mode}</message-load-balancing>"
        self.members = Members(directory, count, cluster=balancing).start()
        self.ports = [node.port for node in self.members.nodes]
        self.pids = [node.process.pid for node in self.members.nodes if node.process is not None]

    def end(self) -> None:
        self.members.end()


class _Artemis:
    def __init__(self, directory: Path, mode: str, count: int) -> None:
        balancing = f"<message-load-balancing>{mode}</message-load-balancing>"
        extra = "<journal-type>NIO</journal-type>"
        configurations = members_xml(directory, count, cluster=balancing, extra=lambda number: extra)
        command = artemis_home() / "bin" / "artemis"
        self.nodes = [
            ArtemisNode(command, directory / f"instance{number}", port, text)
            for number, (port, text) in enumerate(configurations)
        ]
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_ready("active")
        self.ports = [node.port for node in self.nodes]
        self.pids = [node.process.pid for node in self.nodes if node.process is not None]

    def end(self) -> None:
        for node in self.nodes:
            node.end()


_BROKERS: dict[str, Callable[[Path, str, int], _Ours | _Artemis]] = {"understudy": _Ours, "artemis": _Artemis}


def rates(broker: str, mode: str, members: int, directory: Path, window_ms: int) -> Rates:
    """One broker in one mode: both ends at one member, then at two."""
    driver = build_driver(directory)
    cluster = _BROKERS[broker](directory / broker, mode, members)
    try:
        first, second = cluster.ports[:2]
        single, across = [
            run(
                driver, Across(first, consumers_at, mode), CASES["pipelined"][1], f"q{consumers_at}", cluster.pids,
                warmup_ms=2_000, window_ms=window_ms,
            )
            for consumers_at in (first, second)
        ]  # fmt: skip
        return Rates(broker, mode, members, single.per_s, across.per_s, single.broker_cpu_us, across.broker_cpu_us)
    finally:
        cluster.end()


@dataclass(frozen=True, slots=True)
class Settled:
    """Queues that four members know of one of them."""

    queues: int
    known_s: float
    """Seconds from the creation of the last queue until all members know all queues."""
    restarted_s: float
    """Seconds from the activation of a member that was killed until it knows all queues."""
    kib_per_queue: float
    """Resident memory of another member for each."""


@dataclass(frozen=True, slots=True)
class Redistributed:
    """Messages that waited at one member and were consumed at another one."""

    messages: int
    per_s: float
    source_mib: float
    """Peak resident memory of the member where they waited; before it, its memory with the waiting messages."""
    source_before_mib: float
    target_mib: float
    source_cpu_us: float
    """Processor time per message of each of the two members."""
    target_cpu_us: float


def settle(directory: Path, queues: int) -> Settled:
    """Make queues at one of four members."""
    members = Members(directory, 4).start()
    try:
        first, *others = members.nodes
        before = [_memory_mib(node, "VmRSS") for node in others]
        with connect(url(first)) as connection, connection.session() as session:
            for number in range(queues):
                session.create_queue(f"many.{number}")
        began = time.monotonic()
        for node in others:
            _wait_known(node, queues)
        known_s = time.monotonic() - began
        grown = statistics.median(_memory_mib(node, "VmRSS") - was for node, was in zip(others, before, strict=True))
        others[0].kill()
        others[0].start().wait_ready("active")
        began = time.monotonic()
        _wait_known(others[0], queues)
        return Settled(queues, known_s, time.monotonic() - began, 1024 * grown / queues)
    finally:
        members.end()


def _wait_known(node: Node, queues: int) -> None:
    while sum(each["queue"].startswith("many.") for each in _remote_queues(node)) < queues:
        time.sleep(0.05)


def _remote_queues(node: Node) -> list[dict[str, Any]]:
    found = node.get("/api/v1/cluster")[1].get("remote_queues", [])
    assert isinstance(found, list)
    return found


def redistribute(directory: Path, messages: int) -> Redistributed:
    """Let messages wait at one of two members, then consume them at the other one."""
    members = Members(directory, 2).start()
    try:
        first, second = members.nodes
        fill(first.port, "deep", messages, 300)
        with connect(url(second)) as connection, connection.session() as session:
            session.create_queue("deep")
        before = _memory_mib(first, "VmRSS")
        spent = [cpu_seconds(node) for node in members.nodes]
        began = time.monotonic()
        subprocess.run(
            [str(COMMAND), "consume", "--url", url(second), "--queue", "deep", "--count", str(messages),
             "--idle-timeout", "60"],
            check=True, capture_output=True,
        )  # fmt: skip
        took_s = time.monotonic() - began
        peaks = [_memory_mib(node, "VmHWM") for node in members.nodes]
        cpu_us = [1e6 * (cpu_seconds(node) - was) / messages for node, was in zip(members.nodes, spent, strict=True)]
        return Redistributed(messages, messages / took_s, peaks[0], before, peaks[1], *cpu_us)
    finally:
        members.end()


def _memory_mib(node: Node, line: str) -> float:
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(next(each for each in status.splitlines() if each.startswith(line)).split()[1]) / 1024


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Rounds; medians are printed.")
@click.option("--window-ms", default=5_000, show_default=True, help="Load of each measurement.")
@click.option("--artemis/--no-artemis", default=True, show_default=True, help="Run a cluster of Artemis beside ours.")
@click.option("--members", default="2,4", show_default=True, help="Sizes of our cluster; that of Artemis has two.")
@click.option("--queues", default=10_000, show_default=True, help="Queues that four members learn of each other.")
@click.option("--messages", default=1_000_000, show_default=True, help="Messages that are redistributed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def cluster(
    *, rounds: int, window_ms: int, artemis: bool, members: str, queues: int, messages: int, as_json: bool
) -> None:
    """Messages produced at one member of a cluster and consumed at another one, beside a single node."""
    found: dict[tuple[str, str, int], list[Rates]] = {}
    clusters = [("understudy", int(count)) for count in members.split(",")]
    clusters += [("artemis", 2)] if artemis else []
    for _ in range(rounds):
        for broker, count in clusters:
            for mode in MODES:
                with tempfile.TemporaryDirectory() as directory:
                    try:
                        measured = rates(broker, mode, count, Path(directory), window_ms)
                    except CannotRun as error:
                        click.echo(f"{broker} left out: {error}", err=True)
                        continue
                found.setdefault((broker, mode, count), []).append(measured)
    with tempfile.TemporaryDirectory() as directory:
        settled = settle(Path(directory) / "settled", queues)
        moved = redistribute(Path(directory) / "redistributed", messages)
    if as_json:
        rows = [asdict(each) for values in found.values() for each in values]
        further = {"settled": asdict(settled), "redistributed": asdict(moved)}
        print(json.dumps({"benchmark": "cluster", "rates": rows, **further}))
        return
    table = Table(title=f"Messages per second between two members, {rounds} rounds, {datetime.now():%Y-%m-%d}")
    columns = ("broker", "members", "mode", "one member", "across", "% of one", "CPU µs per message", "times Artemis")
    for column in columns:
        table.add_column(column, justify="right")
    for (broker, mode, count), values in found.items():
        across = statistics.median(each.across for each in values)
        theirs = found.get(("artemis", mode, 2))
        beside = "" if theirs is None else f"{across / statistics.median(each.across for each in theirs):.2f}"
        table.add_row(
            broker, str(count), mode, f"{statistics.median(each.single for each in values):,.0f}", f"{across:,.0f}",
            f"{statistics.median(each.percent for each in values):.0f}",
            f"{statistics.median(each.single_cpu_us for each in values):.1f},"
            f" {statistics.median(each.across_cpu_us for each in values):.1f}",
            beside,
        )  # fmt: skip
    Console(width=120).print(table)
    print(f"goals: {OF_SINGLE_PERCENT_MIN} % of one member, {OF_ARTEMIS_MIN} times Artemis")
    print(
        f"{settled.queues:,} queues of one of four members are known {settled.known_s:.1f} s after the last was made"
        f" (goal {SETTLED_S_MAX:.0f}: {'met' if settled.known_s <= SETTLED_S_MAX else 'MISSED'}),"
        f" {settled.restarted_s:.1f} s after the activation of a member; {settled.kib_per_queue:.1f} KiB for each"
    )
    print(
        f"{moved.messages:,} waiting messages redistributed to a consumer: {moved.per_s:,.0f} a second; source"
        f" {moved.source_before_mib:.0f} MiB before, {moved.source_mib:.0f} at most,"
        f" target {moved.target_mib:.0f} at most; {moved.source_cpu_us:.1f} and {moved.target_cpu_us:.1f} µs of"
        " processor time for each"
    )
