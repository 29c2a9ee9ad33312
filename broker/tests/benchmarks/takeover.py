"""How long a takeover takes with a backlog, compared with an empty store (goal: at most 2x), or with segments that are
made of the files of removed ones, compared with another commit.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.targets import check_out
from support.processes import COMMAND, Pair

ROUNDS = 3
MESSAGES = 1_000_000
BODY_BYTES = 1024
#: Messages that are sent and consumed twice before a takeover with kept files: several segments each time.
REUSED_MESSAGES = 40_000


class Takeover(NamedTuple):
    """Milliseconds from the end of the process, when its lock is free."""

    accepts_ms: float
    """Until the backup accepts connections."""
    lock_ms: float
    """Until it has the lock."""
    active_ms: float
    """Until it is active."""


@click.command("takeover")
@click.option("--messages", default=MESSAGES, show_default=True, help="Messages that wait; 0: only an empty store.")
@click.option("--rounds", default=ROUNDS, show_default=True, help="Rounds; medians are printed.")
@click.option(
    "--kept",
    default="",
    metavar="NUMBERS",
    help="In place of a backlog: numbers of kept files, such as 1,3,10, of which the open segment and the prepared ones"
    " are made.",
)
@click.option("--baseline", default="", metavar="REV", help="With --kept: the sources of this commit in turn.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def takeover(*, messages: int, rounds: int, kept: str, baseline: str, as_json: bool) -> None:
    """SIGKILL of the active until the backup accepts connections, with messages waiting and without."""
    if kept:
        _reused(sorted({int(each) for each in kept.split(",")}), baseline, rounds, as_json=as_json)
        return
    samples: dict[int, list[Takeover]] = {0: [], messages: []}
    loading_s: list[float] = []
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
        for number in range(rounds):
            for backlog, values in samples.items():
                place = Path(directory) / f"{number}-{backlog}"
                measured, loaded_s = _one(place, backlog)
                values.append(measured)
                if backlog:
                    loading_s.append(loaded_s)
                shutil.rmtree(place)
    medians = {backlog: statistics.median(each.accepts_ms for each in values) for backlog, values in samples.items()}
    empty = medians[0]
    if as_json:
        print(
            json.dumps(
                {
                    "benchmark": "takeover",
                    "samples_ms": {backlog: [each._asdict() for each in values] for backlog, values in samples.items()},
                    "loading_s": loading_s,
                    "ratio": medians[messages] / empty,
                }
            )
        )
        return
    table = Table(title=f"SIGKILL of the active until the backup accepts connections, {rounds} rounds in turn")
    for column in ("messages waiting", "median ms", "min ms", "max ms", "ratio to empty", "lock had", "active"):
        table.add_column(column, justify="right")
    for backlog, values in samples.items():
        table.add_row(
            f"{backlog:,}", f"{medians[backlog]:.0f}",
            f"{min(each.accepts_ms for each in values):.0f}", f"{max(each.accepts_ms for each in values):.0f}",
            f"{medians[backlog] / empty:.2f}",
            f"{statistics.median(each.lock_ms for each in values):.0f}",
            f"{statistics.median(each.active_ms for each in values):.0f}",
        )  # fmt: skip
    Console().print(table)
    if loading_s:
        print(f"loading {messages:,} messages took {statistics.median(loading_s):.0f} s")


def _reused(numbers: list[int], baseline: str, rounds: int, *, as_json: bool) -> None:
    """Both sides with each number of kept files, in turn."""
    sides: dict[str, tuple[str, ...]] = {"this tree": ()}
    if baseline:
        sides[baseline[:8]] = ("env", f"PYTHONPATH={check_out(baseline)}")
    samples: dict[tuple[str, int], list[Takeover]] = {(side, number): [] for number in numbers for side in sides}
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
        for number in range(rounds):
            for (side, kept), values in samples.items():
                place = Path(directory) / f"{number}-{side[:4]}-{kept}"
                values.append(_one_reused(place, sides[side], kept))
                shutil.rmtree(place)
    if as_json:
        found = [
            {"side": side, "kept": kept, "samples_ms": [each._asdict() for each in values]}
            for (side, kept), values in samples.items()
        ]
        print(json.dumps({"benchmark": "takeover", "reused": found}))
        return
    table = Table(title=f"SIGKILL of the active with segments that are used again, {rounds} rounds in turn")
    for column in ("kept files", "sources", "median ms", "min ms", "max ms", "from lock to active, ms"):
        table.add_column(column, justify="right")
    for (side, kept), values in samples.items():
        accepts = [each.accepts_ms for each in values]
        activation = statistics.median(each.active_ms - each.lock_ms for each in values)
        table.add_row(
            str(kept), side, f"{statistics.median(accepts):.0f}", f"{min(accepts):.0f}", f"{max(accepts):.0f}",
            f"{activation:.0f}",
        )  # fmt: skip
    Console().print(table)


def _one_reused(directory: Path, prefix: tuple[str, ...], kept: int) -> Takeover:
    """A takeover whose log ends in a segment made of the file of a removed one, where the sources do that; as many
    segments are prepared as the limit allows.
    """
    extra = f"<journal-pool-files>{kept}</journal-pool-files><journal-min-files>{min(kept, 4) + 1}</journal-min-files>"
    pair = Pair(directory, extra=extra)
    for node in (pair.primary, pair.backup):
        node.command = (*prefix, *node.command)
    try:
        pair.start()
        for _ in range(2):
            # the second half goes into files of the first one
            for command in (("produce", "--size", str(BODY_BYTES)), ("consume",)):
                subprocess.run(
                    [str(COMMAND), command[0], "--url", pair.url, "--queue", "used", "--count", str(REUSED_MESSAGES),
                     *command[1:]],
                    check=True, capture_output=True,
                )  # fmt: skip
        pair.backup.wait_ready("passive")
        return _take_over(pair)
    finally:
        pair.end()


def _one(directory: Path, backlog: int) -> tuple[Takeover, float]:
    """The takeover, and seconds of loading."""
    pair = Pair(directory)
    try:
        pair.start()
        loading = time.monotonic()
        if backlog:
            subprocess.run(
                [str(COMMAND), "produce", "--url", pair.url, "--queue", "backlog", "--count", str(backlog),
                 "--size", str(BODY_BYTES)],
                check=True, capture_output=True,
            )  # fmt: skip
            pair.backup.wait_ready("passive")
        loaded_s = time.monotonic() - loading
        measured = _take_over(pair)
        queue = pair.backup.queue("backlog")
        assert (queue["message_count"] if queue else 0) == backlog
        return measured, loaded_s
    finally:
        pair.end()


def _take_over(pair: Pair) -> Takeover:
    """Kill the primary and wait for the backup."""
    pair.primary.kill()
    began, died_s = time.monotonic(), time.time()
    while not _listens(pair.backup.port):
        assert time.monotonic() - began < 60, pair.backup.tail()
        time.sleep(0.002)
    took_ms = (time.monotonic() - began) * 1000
    # the last lines of the log may come after the port
    pair.backup.wait_ready("active")
    lock_ms, active_ms = (1000 * (at_s - died_s) for at_s in _logged(pair.backup.log))
    return Takeover(took_ms, lock_ms, active_ms)


def _logged(log: Path) -> tuple[float, float]:
    """When the node had the lock and when it was active, by its log. Unix time in seconds."""
    records = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    lock = next(each for each in records if each.get("cause") == "CLAIMED")
    active = next(each for each in records if each["event"] == "active")
    return datetime.fromisoformat(lock["ts"]).timestamp(), datetime.fromisoformat(active["ts"]).timestamp()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
