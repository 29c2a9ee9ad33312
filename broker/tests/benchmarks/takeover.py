"""How long a takeover takes with a backlog, compared with an empty store (goal: at most 2x)."""

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

from support.processes import COMMAND, Pair

ROUNDS = 3
MESSAGES = 1_000_000
BODY_BYTES = 1024


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
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def takeover(messages: int, rounds: int, as_json: bool) -> None:
    """SIGKILL of the active until the backup accepts connections, with messages waiting and without."""
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
        pair.primary.kill()
        began, died_s = time.monotonic(), time.time()
        while not _listens(pair.backup.port):
            assert time.monotonic() - began < 60, pair.backup.tail()
            time.sleep(0.002)
        took_ms = (time.monotonic() - began) * 1000
        queue = pair.backup.queue("backlog")
        assert (queue["message_count"] if queue else 0) == backlog
        lock_ms, active_ms = (1000 * (at_s - died_s) for at_s in _logged(pair.backup.log))
        return Takeover(took_ms, lock_ms, active_ms), loaded_s
    finally:
        pair.end()


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
