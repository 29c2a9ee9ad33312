"""Bytes of memory that a waiting message takes besides its body: as an object (large, scheduled, of a queue of a
special kind), in a packed block, in a spilled one, and in the index of what the log still needs, which holds every
durable message.

Each case runs in a process of its own, twice: once for the difference in resident memory, which counts what the
allocator holds too, once under ``tracemalloc``, which counts what the objects take.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import random
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from understudy.routing.queues.pending import PendingMessages
from understudy.runtime.base.disk import RealDisk
from understudy.store.live_index import LiveIndex
from understudy.store.messages.pages import Pages
from understudy.store.messages.reference import MessageReference, pack_location

MESSAGES = 300_000
#: References of one shallow queue, which stay objects.
SHALLOW = 2_000
CASES = ("objects", "packed", "spilled", "index")


@click.command("memory")
@click.option("--messages", default=MESSAGES, show_default=True, help="Waiting messages.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def memory(messages: int, as_json: bool) -> None:
    """Bytes of memory per queued message, resident and traced, with equal and with unequal neighbours."""
    figures: dict[str, dict[str, float]] = {}
    context = multiprocessing.get_context("spawn")
    for case in CASES:
        figures[case] = {}
        for uneven in (False, True):
            for traced in (False, True):
                with context.Pool(1) as pool:
                    used_bytes = pool.apply(_measure, (case, messages, uneven, traced))
                kind = ("uneven" if uneven else "even") + (" traced" if traced else " resident")
                figures[case][kind] = used_bytes / messages
    if as_json:
        print(json.dumps({"benchmark": "memory", "messages": messages, "bytes_per_message": figures}))
        return
    table = Table(title=f"bytes of memory per waiting message, {messages:,} of them, without bodies")
    table.add_column("")
    for kind in figures[CASES[0]]:
        table.add_column(kind, justify="right")
    for case, values in figures.items():
        table.add_row(case, *(f"{value:.1f}" for value in values.values()))
    Console().print(table)


def _measure(case: str, count: int, uneven: bool, traced: bool) -> int:
    """Bytes that the process has more once the messages wait. Runs in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
        # what the first use of anything takes is not a message's
        kept: list[object] = [_build(case, 2 * SHALLOW, uneven, Path(directory) / "first")]
        gc.collect()
        if traced:
            tracemalloc.start()
        before_bytes = _used(traced)
        kept.append(_build(case, count, uneven, Path(directory) / "second"))
        gc.collect()
        used_bytes = _used(traced) - before_bytes
        del kept
    return used_bytes


def _used(traced: bool) -> int:
    if traced:
        return tracemalloc.get_traced_memory()[0]
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _build(case: str, count: int, uneven: bool, directory: Path) -> object:
    references = _references(count, uneven)
    if case == "index":
        index = LiveIndex()
        for reference in references:
            index.add(7, reference.message_id)
        return index
    pages = Pages(RealDisk(), str(directory), 1) if case == "spilled" else None
    queues: list[object] = [pages]
    waiting = PendingMessages(pages.chain(10 * 1024 * 1024) if pages is not None else None)
    queues.append(waiting)
    for number, reference in enumerate(references):
        if case == "objects" and number and not number % SHALLOW:
            waiting = PendingMessages()
            queues.append(waiting)
        waiting.append(reference)
    return queues


def _references(count: int, uneven: bool) -> Iterator[MessageReference]:
    """References of messages of one kilobyte that came one after the other, or of messages of any size with others in
    between.
    """
    stream = random.Random(1)
    message_id, offset, segment = 3 << 40, 4096, 1
    for _ in range(count):
        size_bytes = stream.randrange(100, 2000) if uneven else 1100
        message_id += stream.randrange(1, 4) if uneven else 1
        length = size_bytes + 80
        if offset + length > 10 * 1024 * 1024:
            segment, offset = segment + 1, 4096
        yield MessageReference(message_id, 4, 0, 0, size_bytes, True, pack_location(segment, offset, length))
        offset += length + (stream.randrange(0, 200) if uneven else 0)
