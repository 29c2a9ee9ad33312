"""A pair with replication beside a single node: messages per second, and the freeze at the end of the copy.

Two processes on this machine, so the replica competes for the processors with the active node. Its store is on the same
disk, where each node waits for the syncs of the other (the floor shows by how much), or elsewhere, as in memory.
A replica on a host of its own shares neither with the active node: the processor time of the active node per message is
the part of the cost that remains there.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

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

#: Where the store of a replica is that shares no disk with its active node.
OTHER_STORE = "/dev/shm"
#: Bytes of a batch of the floor, and the time that it is measured for in seconds.
_FLOOR_BYTES = 1_200
_FLOOR_S = 2.0

_SHARED = re.compile(r"<shared-store>.*</shared-store>", re.DOTALL)


class ReplicatedPair:
    """A primary and its backup, each with its own store; the lock manager is a directory."""

    def __init__(self, directory: Path, replica_store: Path | None = None) -> None:
        """Write the configurations.

        Args:
            directory: Scratch directory of both nodes.
            replica_store: Directory of the store of the backup; None: inside ``directory``.
        """
        locks = directory / "locks"
        locks.mkdir(parents=True)
        ports = {"primary": free_port(), "backup": free_port()}
        self.primary = Node(directory / "primary", "primary", ports["primary"])
        self.backup = Node(directory / "backup", "backup", ports["backup"])
        for node, other in ((self.primary, "backup"), (self.backup, "primary")):
            node.config.parent.mkdir(parents=True)
            store = node.directory / "store" if replica_store is None or node is self.primary else replica_store
            text = PAIR_XML.format(
                name=f"{node.role}-node", store=store, primary_port=ports["primary"],
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
    place: str
    """Place of the store of the replica, such as the same disk."""
    single: float
    replicated: float
    single_cpu_us: float
    """CPU time of the active node per message. Microseconds."""
    replicated_cpu_us: float

    @property
    def percent(self) -> float:
        """Throughput of the replicated pair in percent of that of the single node."""
        return 100 * self.replicated / self.single


@dataclass(frozen=True, slots=True)
class Freeze:
    """The end of one copy."""

    size_mib: int
    copied_s: float
    frozen_ms: float


def syncs(directory: Path, writers: int) -> float:
    """Syncs per second of one of so many processes that append to preallocated files at the same time."""

    def write(path: Path, count: Any) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(descriptor, bytes(8 << 20), 0)
        os.fsync(descriptor)
        end, number = time.monotonic() + _FLOOR_S, 0
        while time.monotonic() < end:
            os.pwrite(descriptor, bytes(_FLOOR_BYTES), number * _FLOOR_BYTES % (8 << 20))
            os.fdatasync(descriptor)
            number += 1
        count.value = number

    fork = multiprocessing.get_context("fork")
    counts = [fork.Value("q", 0) for _ in range(writers)]
    processes = [fork.Process(target=write, args=(directory / f"floor-{n}", counts[n])) for n in range(writers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return sum(float(count.value) for count in counts) / writers / _FLOOR_S


def rates(case: str, directory: Path, window_ms: int, place: str, replica_store: Path | None) -> Rates:
    """One case with and without a replica, one after the other on the same active node."""
    driver, pair = build_driver(directory), ReplicatedPair(directory / "pair", replica_store)
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
            found.append(outcome)
        alone, beside = found
        return Rates(case, place, alone.per_s, beside.per_s, alone.broker_cpu_us, beside.broker_cpu_us)
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
@click.option(
    "--other-store",
    default=OTHER_STORE,
    show_default=True,
    help="Directory on another disk, or in memory, for the store of the replica.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def replication(*, rounds: int, window_ms: int, cases: str, size_mib: int, other_store: str, as_json: bool) -> None:
    """Throughput of a pair with replication beside that of a single node, and the freeze at the end of the copy."""
    places = {"the same disk": None, other_store: other_store}
    found: dict[tuple[str, str], list[Rates]] = {(case, at): [] for case in cases.split(",") if case for at in places}
    freezes: list[Freeze] = []
    floors: list[tuple[float, float]] = []
    for _ in range(rounds):
        with _directory(None) as directory:
            floors.append((syncs(directory, 1), syncs(directory, 2)))
        for (case, place), values in found.items():
            with _directory(None) as directory, _directory(places[place]) as other:
                store = other / "store" if places[place] else None
                values.append(rates(case, directory, window_ms, place, store))
        with _directory(None) as directory:
            freezes.append(freeze(directory, size_mib))
    if as_json:
        rows = [asdict(each) for values in found.values() for each in values]
        result = {"benchmark": "replication", "rates": rows, "freezes": [asdict(each) for each in freezes]}
        print(json.dumps({**result, "syncs_per_s": floors}))
        return
    table = Table(title=f"Messages per second with a replica in sync, {rounds} rounds, {datetime.now():%Y-%m-%d}")
    for column in ("case", "store of the replica", "single node", "with a replica", "%", "goal", "CPU µs per message"):
        table.add_column(column, justify="right")
    for (case, place), values in found.items():
        percent = statistics.median(each.percent for each in values)
        table.add_row(
            case, place, f"{statistics.median(each.single for each in values):,.0f}",
            f"{statistics.median(each.replicated for each in values):,.0f}", f"{percent:.0f}",
            f">= {RATIO_PERCENT_MIN}: {'met' if percent >= RATIO_PERCENT_MIN else 'MISSED'}",
            f"{statistics.median(each.single_cpu_us for each in values):.1f},"
            f" {statistics.median(each.replicated_cpu_us for each in values):.1f}",
        )  # fmt: skip
    Console(width=120).print(table)
    alone, beside = (statistics.median(each[n] for each in floors) for n in range(2))
    print(
        f"floor of the disk: {alone:,.0f} syncs of {_FLOOR_BYTES} bytes per second of one process,"
        f" {beside:,.0f} of each of two ({100 * beside / alone:.0f} %)"
    )
    median_ms = statistics.median(each.frozen_ms for each in freezes)
    print(
        f"copy of {size_mib} MiB while a producer sends: in sync after"
        f" {statistics.median(each.copied_s for each in freezes):.1f} s; writers frozen"
        f" {', '.join(f'{each.frozen_ms:.0f}' for each in freezes)} ms, median {median_ms:.0f}"
        f" (goal <= {FREEZE_MS_MAX}: {'met' if median_ms <= FREEZE_MS_MAX else 'MISSED'})"
    )


@contextmanager
def _directory(parent: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-", dir=parent) as name:
        yield Path(name)
