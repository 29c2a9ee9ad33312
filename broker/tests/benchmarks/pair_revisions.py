"""A replicated pair of this tree beside one of another commit, in turn: throughput, and time until the replica serves.

A round starts a pair of each side. Both get the load of a case in short windows in turn, because the load of the
machine changes from second to second; a ratio is that of two windows that follow each other. Then both replicas take
over.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.cases import CASES
from benchmarks.core_link import CoreLink
from benchmarks.load import build_driver, run
from benchmarks.replication import ReplicatedPair
from benchmarks.targets import check_out
from support.processes import Node

#: The last commit whose links between members had no code for each run of frames.
BASELINE = "f40af71d"
#: Goals: throughput of that of the baseline, and the longer time of a take-over.
PERCENT_MIN = 97
LATER_MS_MAX = 100
#: Of a take-over, against a hanging node.
_TAKE_OVER_S = 60


@dataclass(slots=True)
class Measured:
    """One side: the values of all windows, in the order in which they were measured."""

    per_s: dict[str, list[float]] = field(default_factory=dict)
    """Messages per second of each case."""
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    """Processor time of the active node for each message."""
    take_over_ms: list[float] = field(default_factory=list)
    """Milliseconds from SIGKILL of the active node until the replica accepts connections."""


def measure(
    directory: Path,
    environments: dict[str, dict[str, str]],
    cases: Sequence[str],
    windows: int,
    window_ms: int,
    found: dict[str, Measured],
) -> None:
    """One pair of each side: the windows of each case in turn, then the take-overs. Adds to ``found``."""
    driver = build_driver(directory)
    pairs: dict[str, ReplicatedPair] = {}
    try:
        for side, environment in environments.items():
            pair = pairs[side] = ReplicatedPair(directory / side.replace(" ", "-"))
            given = [f"{name}={value}" for name, value in environment.items()]
            for node in (pair.primary, pair.backup):
                node.command = ("/usr/bin/env", *given, *node.command)
            pair.primary.start().wait_ready("active")
            pair.backup.start()
            pair.wait_in_sync()
        for case in cases:
            for window in range(windows):
                for side in sorted(pairs, reverse=bool(window % 2)):
                    primary, measured = pairs[side].primary, found[side]
                    assert primary.process is not None
                    outcome = run(
                        driver, CoreLink(primary.port), CASES[case][1], f"{case}-{window}", [primary.process.pid],
                        warmup_ms=300, window_ms=window_ms,
                    )  # fmt: skip
                    measured.per_s.setdefault(case, []).append(outcome.per_s)
                    measured.cpu_us.setdefault(case, []).append(outcome.broker_cpu_us)
        for side, pair in pairs.items():
            pair.backup.wait_ready("passive")
            pair.primary.kill()
            found[side].take_over_ms.append(_until_it_listens(pair.backup))
    finally:
        for pair in pairs.values():
            pair.end()


def _until_it_listens(node: Node) -> float:
    began = time.monotonic()
    while True:
        try:
            socket.create_connection(("127.0.0.1", node.port), timeout=1).close()
        except OSError:
            assert time.monotonic() - began < _TAKE_OVER_S, node.tail()
            time.sleep(0.002)
        else:
            return 1000 * (time.monotonic() - began)


@click.command()
@click.option("--baseline", default=BASELINE, show_default=True, metavar="REV", help="The commit to compare with.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(2), help="Pairs of each side, one by one.")
@click.option(
    "--windows", default=12, show_default=True, type=click.IntRange(2), help="Windows of each case in a round."
)
@click.option("--window-ms", default=1_000, show_default=True, help="Load of each window.")
@click.option("--cases", default="pipelined,blocking", show_default=True, help="Cases of the peer benchmark.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def pair_revisions(*, baseline: str, rounds: int, windows: int, window_ms: int, cases: str, as_json: bool) -> None:
    """Throughput and take-over of a replicated pair, beside those of another commit."""
    names = [each for each in cases.split(",") if each]
    sides = {baseline[:8]: {"PYTHONPATH": check_out(baseline)}, "this tree": dict[str, str]()}
    found = {side: Measured() for side in sides}
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as compiled:
        cache = {side: os.path.join(compiled, side.replace(" ", "-")) for side in sides}
        environments = {
            side: environment | {"PYTHONPYCACHEPREFIX": cache[side], "PYTHONDONTWRITEBYTECODE": ""}
            for side, environment in sides.items()
        }
        for number in range(-1, rounds):
            place = Path(tempfile.mkdtemp(prefix="understudy-bench-"))
            try:
                if number < 0:
                    # only compiles the sources
                    measure(place, environments, names, 1, 500, {side: Measured() for side in sides})
                else:
                    measure(place, environments, names, windows, window_ms, found)
            finally:
                shutil.rmtree(place)
    if as_json:
        values = {side: asdict(measured) for side, measured in found.items()}
        print(json.dumps({"benchmark": "pair-revisions", "rounds": rounds, "sides": values}))
        return
    _print(found, names, rounds * windows)


def _print(found: dict[str, Measured], cases: Sequence[str], windows: int) -> None:
    before, after = found
    table = Table(
        title=f"A replicated pair: {before} and {after}, {windows} windows in turn, {datetime.now():%Y-%m-%d}"
    )
    for column in ("", before, after, "ratio, or later", "quartiles", "range", "goal"):
        table.add_column(column, justify="right")

    def row(name: str, first: list[float], second: list[float], form: str, *, difference: bool = False) -> None:
        changes = [(b - a) if difference else 100 * b / a for a, b in zip(first, second, strict=True)]
        low, middle, high = statistics.quantiles(changes, n=4, method="inclusive")
        unit = "ms" if difference else "%"
        goal = ""
        if difference:
            goal = f"<= {LATER_MS_MAX} ms: {'met' if middle <= LATER_MS_MAX else 'MISSED'}"
        elif not name.startswith("CPU"):
            goal = f">= {PERCENT_MIN} %: {'met' if middle >= PERCENT_MIN else 'MISSED'}"
        table.add_row(
            name, f"{statistics.median(first):{form}}", f"{statistics.median(second):{form}}", f"{middle:.1f} {unit}",
            f"{low:.1f} to {high:.1f}", f"{min(changes):.1f} to {max(changes):.1f}", goal,
        )  # fmt: skip

    one, other = found[before], found[after]
    for case in cases:
        row(f"{case}, messages per s", one.per_s[case], other.per_s[case], ",.0f")
        row(f"CPU µs per message, {case}", one.cpu_us[case], other.cpu_us[case], ".1f")
    row("take-over, ms", one.take_over_ms, other.take_over_ms, ".0f", difference=True)
    Console(width=140).print(table)
