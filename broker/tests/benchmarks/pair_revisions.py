"""A replicated pair of this tree beside one of another commit, in turn: throughput, and time until the replica serves.

Each round starts a pair of each side, and the side that begins changes from round to round. A ratio is that of the two
measurements of a round, because the load of the machine changes from minute to minute.
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
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True, slots=True)
class Measured:
    """One pair in one round."""

    per_s: dict[str, float]
    """Messages per second of each case."""
    cpu_us: dict[str, float]
    """Processor time of the active node for each message."""
    take_over_ms: float
    """From SIGKILL of the active node until the replica accepts connections."""


def measure(directory: Path, environment: dict[str, str], cases: Sequence[str], window_ms: int) -> Measured:
    """One pair: its throughput in each case, then its take-over."""
    driver, pair = build_driver(directory), ReplicatedPair(directory / "pair")
    for node in (pair.primary, pair.backup):
        given = [f"{name}={value}" for name, value in environment.items()]
        node.command = ("/usr/bin/env", *given, *node.command)
    try:
        pair.primary.start().wait_ready("active")
        pair.backup.start()
        pair.wait_in_sync()
        assert pair.primary.process is not None
        per_s, cpu_us = {}, {}
        for case in cases:
            outcome = run(
                driver, CoreLink(pair.primary.port), CASES[case][1], case, [pair.primary.process.pid],
                warmup_ms=1_000, window_ms=window_ms,
            )  # fmt: skip
            per_s[case], cpu_us[case] = outcome.per_s, outcome.broker_cpu_us
        pair.backup.wait_ready("passive")
        pair.primary.kill()
        return Measured(per_s, cpu_us, _until_it_listens(pair.backup))
    finally:
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
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(2), help="Rounds; medians are printed.")
@click.option("--window-ms", default=5_000, show_default=True, help="Load of each measurement.")
@click.option("--cases", default="pipelined,blocking", show_default=True, help="Cases of the peer benchmark.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def pair_revisions(*, baseline: str, rounds: int, window_ms: int, cases: str, as_json: bool) -> None:
    """Throughput and take-over of a replicated pair, beside those of another commit."""
    names = [each for each in cases.split(",") if each]
    sides = {baseline[:8]: {"PYTHONPATH": check_out(baseline)}, "this tree": dict[str, str]()}
    found: dict[str, list[Measured]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as compiled:
        for number in range(-1, rounds):
            order = list(sides) if number % 2 else list(reversed(sides))
            for side in order:
                cache = os.path.join(compiled, side.replace(" ", "-"))
                environment = sides[side] | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
                place = Path(tempfile.mkdtemp(prefix="understudy-bench-"))
                try:
                    measured = measure(place, environment, names, 1_000 if number < 0 else window_ms)
                finally:
                    shutil.rmtree(place)
                # the first round only compiles the sources
                if number >= 0:
                    found[side].append(measured)
    if as_json:
        values = {side: [asdict(each) for each in measured] for side, measured in found.items()}
        print(json.dumps({"benchmark": "pair-revisions", "rounds": rounds, "sides": values}))
        return
    _print(found, names, rounds)


def _print(found: dict[str, list[Measured]], cases: Sequence[str], rounds: int) -> None:
    before, after = found
    table = Table(title=f"A replicated pair: {before} and {after}, {rounds} rounds in turn, {datetime.now():%Y-%m-%d}")
    for column in ("", before, after, "ratio, or later", "quartiles", "range", "goal"):
        table.add_column(column, justify="right")

    def row(name: str, values: list[tuple[float, float]], form: str, *, difference: bool = False) -> None:
        changes = [(b - a) if difference else 100 * b / a for a, b in values]
        low, middle, high = statistics.quantiles(changes, n=4, method="inclusive")
        unit = "ms" if difference else "%"
        goal = ""
        if difference:
            goal = f"<= {LATER_MS_MAX} ms: {'met' if middle <= LATER_MS_MAX else 'MISSED'}"
        elif not name.startswith("CPU"):
            goal = f">= {PERCENT_MIN} %: {'met' if middle >= PERCENT_MIN else 'MISSED'}"
        first, second = (statistics.median(side) for side in zip(*values, strict=True))
        table.add_row(
            name, f"{first:{form}}", f"{second:{form}}", f"{middle:.1f} {unit}", f"{low:.1f} to {high:.1f}",
            f"{min(changes):.1f} to {max(changes):.1f}", goal,
        )  # fmt: skip

    pairs = list(zip(found[before], found[after], strict=True))
    for case in cases:
        row(f"{case}, messages per s", [(a.per_s[case], b.per_s[case]) for a, b in pairs], ",.0f")
        row(f"CPU µs per message, {case}", [(a.cpu_us[case], b.cpu_us[case]) for a, b in pairs], ".1f")
    row("take-over, ms", [(a.take_over_ms, b.take_over_ms) for a, b in pairs], ".0f", difference=True)
    Console(width=140).print(table)
