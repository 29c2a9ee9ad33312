"""The use that group commit makes of a disk: the store against raw sequential writes of the very same bytes.

Both in turn in one run, on the same file system. The store is an active ``MessageStore`` over the real
disk and the real writer thread, on the loop the broker uses; producers are played by the loop, which
appends what one read of their sockets brings, a run, and stops while a window is unconfirmed; the writer
thread gets the interpreter as fast as in ``understudy run``. Raw is a plain loop that writes each
batch of that very run, same bytes, same sizes, with one ``pwritev`` and one ``fdatasync``, into files of
the same size, allocated before the clock starts. Goal: at least 70 % of raw.

``loop us`` is what appending takes of the loop for each message: 1,000,000 divided by it is the most
that any disk could get out of one process.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.table import Table

from understudy.ids import NodeId
from understudy.kernel import Sends
from understudy.kernel.core import split_sends
from understudy.message import Message
from understudy.ports import Operation
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.environment import LoopTimers, SystemClock
from understudy.runtime.base.journal_writer import ThreadLogWriter
from understudy.runtime.base.turn import Turn
from understudy.runtime.process import interpreter
from understudy.store.log.applier import Applier, LogFiles
from understudy.store.log.operations import Append
from understudy.store.log.reading.follower import Follower
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.log.segment import SEGMENT_BYTES
from understudy.store.messages.message_store import MessageStore, StoreOwner
from understudy.wire.core.codec import encode_send

ROUNDS = 5
MESSAGES = 100_000
BODY_BYTES = 1024
#: Unconfirmed messages of all producers together: one, four, sixteen and sixty-four with the default window of 500.
WINDOWS = (500, 2_000, 8_000, 32_000)
#: Messages that one turn of the loop brings: what fits into the reads of a few sockets.
TURN_MESSAGES = 250
NODE_ID = NodeId("0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1")

_Done = Callable[[BaseException | None], None]


class _NotingWriter(ThreadLogWriter):
    """The writer of the broker; notes where every batch lies, so that its bytes can be read back."""

    def __init__(self, loop: asyncio.AbstractEventLoop, applier: Applier) -> None:
        super().__init__(loop, Turn(loop, LoopTimers(loop)), applier)
        self._directory = applier.directory
        self.batches: list[tuple[str, int, int]] = []

    def submit(self, operations: Sequence[Operation], done: _Done) -> None:
        for each in operations:
            if isinstance(each, Append):
                self.batches.append((f"{self._directory}/{each.name}", each.offset, each.size_bytes))
        super().submit(operations, done)


@dataclass(slots=True)
class _Samples:
    """Measurements with one window of unconfirmed messages."""

    store_s: list[float] = field(default_factory=list)
    loop_s: list[float] = field(default_factory=list)
    """Seconds of ``store_s`` that the loop spent in ``store_run`` and ``flush``."""
    raw_s: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    batch_bytes: list[float] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def ratio(self) -> float:
        """Throughput of the store as a part of raw: the median over the rounds, each with its own raw run."""
        return statistics.median(raw / store for raw, store in zip(self.raw_s, self.store_s, strict=True))


@click.command("group-commit")
@click.option("--messages", default=MESSAGES, show_default=True, help="Messages of a round.")
@click.option("--rounds", default=ROUNDS, show_default=True, help="Rounds; medians are printed.")
@click.option("--directory", type=click.Path(file_okay=False), help="On the disk to be measured; default: temporary.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def group_commit(messages: int, rounds: int, directory: str | None, as_json: bool) -> None:
    """Throughput of the store against raw writev + fdatasync of the same bytes in the same batches."""
    samples = {window: _Samples() for window in WINDOWS}
    # made once, so that neither side finds its page cache filled by files made just before it
    frame = encode_send(Message(os.urandom(BODY_BYTES), address="a"), 10)
    prepared = split_sends(frame * TURN_MESSAGES, 0, sys.maxsize, TURN_MESSAGES)
    assert prepared is not None
    interpreter.settle()
    with tempfile.TemporaryDirectory(prefix="understudy-bench-", dir=directory) as root:
        _round(Path(root) / "warm-up", WINDOWS[-1], prepared, messages, None)
        for number in range(rounds):
            for window, sample in samples.items():
                _round(Path(root) / f"{number}-{window}", window, prepared, messages, sample)
    if as_json:
        figures = {
            window: {
                "store_s": each.store_s,
                "loop_s": each.loop_s,
                "raw_s": each.raw_s,
                "batches": each.batches,
                "ratio": each.ratio,
            }
            for window, each in samples.items()
        }
        print(json.dumps({"benchmark": "group-commit", "messages": messages, "windows": figures}))
        return
    table = Table(title=f"{messages:,} messages of {BODY_BYTES} bytes, {rounds} rounds in turn, medians")
    for column in (
        "unconfirmed",
        "batches",
        "KiB a batch",
        "store /s",
        "loop us",
        "store MiB/s",
        "raw MiB/s",
        "store : raw",
    ):
        table.add_column(column, justify="right")
    for window, each in samples.items():
        store_s, raw_s = statistics.median(each.store_s), statistics.median(each.raw_s)
        mib = each.size_bytes / 1024**2
        loop_us = statistics.median(each.loop_s) / messages * 1e6
        table.add_row(
            f"{window:,}", f"{statistics.median(each.batches):,.0f}",
            f"{statistics.median(each.batch_bytes) / 1024:,.0f}", f"{messages / store_s:,.0f}", f"{loop_us:.1f}",
            f"{mib / store_s:,.0f}", f"{mib / raw_s:,.0f}", f"{each.ratio:.2f}",
        )  # fmt: skip
    Console().print(table)


def _round(directory: Path, window: int, prepared: Sends, count: int, sample: _Samples | None) -> None:
    store_s, loop_s, batches = uvloop.run(_store(str(directory), window, prepared, count))
    joined = [_read(*batch) for batch in batches]
    # so that both sides get page cache that was used before: getting new memory costs more than this disk
    shutil.rmtree(directory)
    raw_s = _raw(directory, joined)
    shutil.rmtree(directory)
    if sample is None:
        return
    sample.store_s.append(store_s)
    sample.loop_s.append(loop_s)
    sample.raw_s.append(raw_s)
    sample.batches.append(len(joined))
    sample.size_bytes = sum(map(len, joined))
    sample.batch_bytes.append(statistics.median(map(len, joined)))


async def _store(
    directory: str, window: int, prepared: Sends, count: int
) -> tuple[float, float, list[tuple[str, int, int]]]:
    loop = asyncio.get_running_loop()
    disk = RealDisk()
    applier = Applier(disk, directory)
    writer = _NotingWriter(loop, applier)
    disk.make_directory(directory)
    finished: asyncio.Future[None] = loop.create_future()
    store = MessageStore.activate(
        Follower(disk, directory),
        files=LogFiles(applier, writer, writer),
        clock=SystemClock(),
        node_id=NODE_ID,
        owner=StoreOwner(finished.set_exception),
    )
    address = AddressRecord(store.next_id(), "a", (1,))
    queue = QueueRecord(store.next_id(), address.address_id, "q", 1)
    store.store_address(address)
    store.store_queue(queue)
    store.flush()
    while store.context.durable < store.last_sequence:
        await asyncio.sleep(0.001)
    first_id = store.last_id + 1
    store.last_id += count
    writer.batches.clear()
    confirmed = 0
    sent = 0
    busy_s = 0.0

    def confirm(messages: int) -> None:
        nonlocal confirmed
        confirmed += messages
        if confirmed == count:
            finished.set_result(None)
        elif sent < count:
            loop.call_soon(turn)

    def turn() -> None:
        nonlocal sent, busy_s
        messages = min(TURN_MESSAGES, window - (sent - confirmed), count - sent)
        if not messages:
            return
        turned = time.perf_counter()
        store.store_run([(prepared, 0, messages)], messages, first_id + sent, address.address_id, (queue.queue_id,))
        sent += messages
        store.context.when_durable(store.last_sequence, confirm, messages)
        store.flush()
        busy_s += time.perf_counter() - turned
        if sent < count:
            loop.call_soon(turn)

    began = time.perf_counter()
    turn()
    await finished
    took = time.perf_counter() - began
    batches = list(writer.batches)
    closed: asyncio.Future[None] = loop.create_future()
    store.close(lambda: closed.set_result(None))
    await closed
    return took, busy_s, batches


def _read(path: str, offset: int, length: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(length)


def _raw(directory: Path, batches: list[bytes]) -> float:
    """Seconds for the same batches; files are allocated, synced and open before the clock starts."""
    directory.mkdir(parents=True)
    descriptors: list[int] = []
    places: list[tuple[int, int, bytes]] = []
    offset = SEGMENT_BYTES
    for batch in batches:
        if offset + len(batch) > SEGMENT_BYTES:
            descriptor = os.open(directory / f"{len(descriptors)}", os.O_RDWR | os.O_CREAT)
            os.posix_fallocate(descriptor, 0, max(SEGMENT_BYTES, len(batch)))
            os.fsync(descriptor)
            descriptors.append(descriptor)
            offset = 0
        places.append((descriptors[-1], offset, batch))
        offset += len(batch)
    began = time.perf_counter()
    for descriptor, start, batch in places:
        os.pwritev(descriptor, (batch,), start)
        os.fdatasync(descriptor)
    took = time.perf_counter() - began
    for descriptor in descriptors:
        os.close(descriptor)
    return took
