"""``python -m benchmarks body-files``: files of large bodies that are completed together, beside the rate of the disk.

The applier of a store writes bodies in pieces as a node does and completes them as one group. In turn with it, *raw*
writes the same bytes to one new file with one sync: what the disk takes of so many bytes at once. Goal: 80 % of raw.
Neither sockets nor the log have a part in it.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time

import click
from rich.console import Console
from rich.table import Table

from understudy.runtime.base.disk import RealDisk
from understudy.store.log.applier import Applier
from understudy.store.log.operations import BodyEnd, FinishBodies, MakeDirectory, RemoveFile, WriteBody
from understudy.store.messages.large_messages import STEP_BYTES, SYNC_BYTES

#: Bytes of a body, and bodies of a group.
GROUPS = ((500_000, 1), (500_000, 4), (500_000, 16), (5_000_000, 3), (10_000_000, 1), (10_000_000, 2))
ROUNDS = 15


@click.command("body-files")
@click.option("--rounds", default=ROUNDS, show_default=True, type=click.IntRange(2), help="Medians are printed.")
@click.option("--directory", type=click.Path(file_okay=False), help="On the disk to be measured; default: temporary.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def body_files(rounds: int, directory: str | None, as_json: bool) -> None:
    """Time of groups of large bodies until they are safe, beside one file with the same bytes."""
    samples: dict[tuple[int, int], tuple[list[float], list[float]]] = {group: ([], []) for group in GROUPS}
    with tempfile.TemporaryDirectory(prefix="understudy-bench-", dir=directory) as root:
        applier = Applier(RealDisk(), root)
        applier.apply([MakeDirectory()])
        for _ in range(rounds):
            for (size_bytes, count), (ours_ms, raw_ms) in samples.items():
                body = os.urandom(size_bytes)
                ours_ms.append(_group(applier, body, count))
                raw_ms.append(_raw(f"{root}/raw", body, count))
    if as_json:
        figures = [
            {"bytes": size_bytes, "bodies": count, "ms": ours_ms, "raw_ms": raw_ms}
            for (size_bytes, count), (ours_ms, raw_ms) in samples.items()
        ]
        print(json.dumps({"benchmark": "body-files", "rounds": rounds, "groups": figures}))
        return
    table = Table(title=f"{rounds} rounds in turn, medians (quartiles)")
    for column in ("bytes", "bodies", "ms", "raw ms", "MB/s", "raw MB/s", "of raw"):
        table.add_column(column, justify="right")
    for (size_bytes, count), (ours_ms, raw_ms) in samples.items():
        ours, raw = statistics.median(ours_ms), statistics.median(raw_ms)
        megabytes = size_bytes * count / 1e6
        table.add_row(
            f"{size_bytes:,}", str(count), _spread(ours_ms), _spread(raw_ms), f"{megabytes / ours * 1e3:,.0f}",
            f"{megabytes / raw * 1e3:,.0f}", f"{raw / ours:.2f}",
        )  # fmt: skip
    Console(width=118).print(table)


def _spread(samples: list[float]) -> str:
    low, middle, high = statistics.quantiles(samples, n=4)
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def _group(applier: Applier, body: bytes, count: int) -> float:
    """Milliseconds until all bodies are safe; they are removed then."""
    names = [f"{number + 1}.large" for number in range(count)]
    end = len(body) // STEP_BYTES * STEP_BYTES
    began = time.perf_counter()
    for name in names:
        unsynced = 0
        for offset in range(0, end, STEP_BYTES):
            unsynced += STEP_BYTES
            begin = unsynced >= SYNC_BYTES
            if begin:
                unsynced = 0
            applier.apply([WriteBody(name, offset, (body[offset : offset + STEP_BYTES],), begin)])
    applier.apply([FinishBodies(tuple(BodyEnd(name, end, (body[end:],), True) for name in names))])
    took = time.perf_counter() - began
    for name in names:
        error = applier.take_body(name).error
        if error is not None:
            raise error
        applier.apply([RemoveFile(name)])
    return took * 1e3


def _raw(path: str, body: bytes, count: int) -> float:
    """Milliseconds for one file with the same bytes and its name; it is removed then."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    began = time.perf_counter()
    for _ in range(count):
        os.write(descriptor, body)
    os.fsync(descriptor)
    took = time.perf_counter() - began
    os.close(descriptor)
    os.remove(path)
    return took * 1e3
