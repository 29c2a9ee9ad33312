"""How long a takeover takes with a backlog, compared with an empty store (goal: at most 2x)."""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from support.processes import COMMAND, Pair

ROUNDS = 5
BACKLOGS = (0, 200_000)
BODY_BYTES = 1024


def takeover(*, as_json: bool) -> None:
    """Alternate between the backlogs; print medians of the time without a listening node."""
    samples: dict[int, list[float]] = {backlog: [] for backlog in BACKLOGS}
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
        for number in range(ROUNDS):
            for backlog in BACKLOGS:
                samples[backlog].append(_one(Path(directory) / f"{number}-{backlog}", backlog))
    medians = {backlog: statistics.median(values) for backlog, values in samples.items()}
    empty = medians[0]
    if as_json:
        print(json.dumps({"benchmark": "takeover", "samples_ms": samples, "ratio": medians[BACKLOGS[-1]] / empty}))
        return
    table = Table(title=f"SIGKILL of the active until the backup accepts connections, {ROUNDS} rounds in turn")
    for column in ("messages waiting", "median ms", "min ms", "max ms", "ratio to empty"):
        table.add_column(column, justify="right")
    for backlog, values in samples.items():
        table.add_row(
            f"{backlog:,}", f"{medians[backlog]:.0f}", f"{min(values):.0f}", f"{max(values):.0f}",
            f"{medians[backlog] / empty:.2f}",
        )  # fmt: skip
    Console().print(table)


def _one(directory: Path, backlog: int) -> float:
    pair = Pair(directory)
    try:
        pair.start()
        if backlog:
            subprocess.run(
                [str(COMMAND), "produce", "--url", pair.url, "--queue", "backlog", "--count", str(backlog),
                 "--size", str(BODY_BYTES)],
                check=True, capture_output=True,
            )  # fmt: skip
            pair.backup.wait_ready("passive")
        pair.primary.kill()
        began = time.monotonic()
        while not _listens(pair.backup.port):
            assert time.monotonic() - began < 60, pair.backup.tail()
            time.sleep(0.002)
        took_ms = (time.monotonic() - began) * 1000
        queue = pair.backup.queue("backlog")
        assert (queue["message_count"] if queue else 0) == backlog
        return took_ms
    finally:
        pair.end()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
