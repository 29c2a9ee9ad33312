"""How long a takeover takes with a backlog, compared with an empty store (goal: at most 2x)."""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from support.processes import COMMAND, Pair

ROUNDS = 3
MESSAGES = 1_000_000
BODY_BYTES = 1024


@click.command("takeover")
@click.option("--messages", default=MESSAGES, show_default=True, help="Messages that wait.")
@click.option("--rounds", default=ROUNDS, show_default=True, help="Rounds; medians are printed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def takeover(messages: int, rounds: int, as_json: bool) -> None:
    """SIGKILL of the active until the backup accepts connections, with messages waiting and without."""
    samples: dict[int, list[float]] = {0: [], messages: []}
    loading_s: list[float] = []
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
        for number in range(rounds):
            for backlog, values in samples.items():
                place = Path(directory) / f"{number}-{backlog}"
                took_ms, loaded_s = _one(place, backlog)
                values.append(took_ms)
                if backlog:
                    loading_s.append(loaded_s)
                shutil.rmtree(place)
    medians = {backlog: statistics.median(values) for backlog, values in samples.items()}
    empty = medians[0]
    if as_json:
        print(
            json.dumps(
                {
                    "benchmark": "takeover",
                    "samples_ms": samples,
                    "loading_s": loading_s,
                    "ratio": medians[messages] / empty,
                }
            )
        )
        return
    table = Table(title=f"SIGKILL of the active until the backup accepts connections, {rounds} rounds in turn")
    for column in ("messages waiting", "median ms", "min ms", "max ms", "ratio to empty"):
        table.add_column(column, justify="right")
    for backlog, values in samples.items():
        table.add_row(
            f"{backlog:,}", f"{medians[backlog]:.0f}", f"{min(values):.0f}", f"{max(values):.0f}",
            f"{medians[backlog] / empty:.2f}",
        )  # fmt: skip
    Console().print(table)
    print(f"loading {messages:,} messages took {statistics.median(loading_s):.0f} s")


def _one(directory: Path, backlog: int) -> tuple[float, float]:
    """Milliseconds of the takeover, seconds of loading."""
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
        began = time.monotonic()
        while not _listens(pair.backup.port):
            assert time.monotonic() - began < 60, pair.backup.tail()
            time.sleep(0.002)
        took_ms = (time.monotonic() - began) * 1000
        queue = pair.backup.queue("backlog")
        assert (queue["message_count"] if queue else 0) == backlog
        return took_ms, loaded_s
    finally:
        pair.end()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
