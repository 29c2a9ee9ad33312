"""CPU time of the broker for each KiB of larger bodies, beside the least that any broker must do on this machine.

The floor (``floor/floor.c``) is one thread that reads frames of the same size from a socket, writes and syncs them in
batches, confirms them and sends them on; it looks at nothing. It runs in turn with the broker. Both are measured with
the same number of unconfirmed messages. A machine under load takes up to twice as long for the same work: compare the
ratio, not the figures of two runs.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.cases import sized
from benchmarks.core_link import CoreLink
from benchmarks.goals import Goal
from benchmarks.load import CannotRun, build_driver, run
from support.processes import Pair

#: Goal: CPU time of the broker for one KiB.
US_PER_KIB_MAX = 2.0
_FLOOR = Path(__file__).parent / "floor" / "floor.c"
#: What a CORE frame has beside the body of a plain message to a queue with a short name. Bytes.
_FRAME_BYTES = 69
#: Load before the first round: a node that has just started still loads modules in a thread, for seconds on a busy
#: machine.
_PRIMING_MS = 6_000


@dataclass
class Bodies:
    """Bodies of one size. CPU time in microseconds for each KiB of body, one figure for each round."""

    body_bytes: int
    cpu_us: list[float] = field(default_factory=list)
    floor_us: list[float] = field(default_factory=list)
    mb_per_s: list[float] = field(default_factory=list)
    floor_mb_per_s: list[float] = field(default_factory=list)


def build_floor(directory: Path) -> Path:
    """Compile the floor."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise CannotRun("no C compiler (cc)")
    program = directory / "floor"
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(_FLOOR)], check=True)
    return program


def measure(sizes: tuple[int, ...], rounds: int, window_ms: int) -> list[Bodies]:
    """All sizes, the broker and the floor in turn."""
    found = [Bodies(size) for size in sizes]
    with tempfile.TemporaryDirectory(prefix="understudy-bodies-") as name:
        directory = Path(name)
        driver, floor = build_driver(directory), build_floor(directory)
        pair = Pair(directory / "pair")
        try:
            node = pair.primary
            node.start().wait_ready("active")
            assert node.process is not None
            # what a start leaves for later is over after this
            run(
                driver, CoreLink(node.port), sized(sizes[0]), "bodies.primed", [node.process.pid],
                warmup_ms=500, window_ms=_PRIMING_MS,
            )  # fmt: skip
            for number in range(rounds):
                for each in found:
                    load, kib = sized(each.body_bytes), each.body_bytes / 1024
                    outcome = run(
                        driver, CoreLink(node.port), load, f"bodies.{each.body_bytes}.{number}", [node.process.pid],
                        warmup_ms=500, window_ms=window_ms,
                    )  # fmt: skip
                    each.cpu_us.append(outcome.broker_cpu_us / kib)
                    each.mb_per_s.append(outcome.per_s * each.body_bytes / 1e6)
                    least = json.loads(
                        subprocess.run(
                            [str(floor), str(directory / "floor.dat"), str(each.body_bytes + _FRAME_BYTES),
                             str(load.in_flight), str(window_ms / 1000)],
                            check=True, capture_output=True, text=True,
                        ).stdout
                    )  # fmt: skip
                    each.floor_us.append(least["cpu_us"] / kib)
                    each.floor_mb_per_s.append(least["per_s"] * each.body_bytes / 1e6)
        finally:
            pair.end()
    return found


def goals(found: list[Bodies]) -> list[Goal]:
    """At most ``US_PER_KIB_MAX`` for each size."""
    return [
        Goal(
            f"CPU time for a KiB, bodies of {each.body_bytes:,} bytes", f"at most {US_PER_KIB_MAX:g} us",
            f"{own:.2f} us, {own / statistics.median(each.floor_us):.1f} times the floor", own <= US_PER_KIB_MAX,
        )
        for each in found
        for own in [statistics.median(each.cpu_us)]
    ]  # fmt: skip


@click.command()
@click.option("--sizes", default="10000,50000,90000", show_default=True, help="Bytes of the bodies.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--window-ms", default=2000, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def bodies(*, sizes: str, rounds: int, window_ms: int, as_json: bool) -> None:
    """CPU time for each KiB of larger bodies, beside the floor of this machine."""
    found = measure(tuple(int(size) for size in sizes.split(",")), rounds, window_ms)
    if as_json:
        click.echo(json.dumps({"benchmark": "bodies", "sizes": [asdict(each) for each in found]}))
        return
    table = Table(title=f"Durable messages in and out, medians of {rounds} rounds in turn")
    for column in ("body bytes", "CPU us per KiB", "floor", "ratio", "MB/s", "floor"):
        table.add_column(column, justify="right")
    for each in found:
        own, least = statistics.median(each.cpu_us), statistics.median(each.floor_us)
        table.add_row(
            f"{each.body_bytes:,}", f"{own:.2f}", f"{least:.2f}", f"{own / least:.1f}",
            f"{statistics.median(each.mb_per_s):.0f}", f"{statistics.median(each.floor_mb_per_s):.0f}",
        )  # fmt: skip
    Console(width=120).print(table)
    for goal in goals(found):
        click.echo(f"goal: {goal.text}: {goal.wanted}; {goal.found}: {'met' if goal.met else 'MISSED'}")
