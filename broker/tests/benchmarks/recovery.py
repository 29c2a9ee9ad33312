"""The cost of a cold start: records replayed per second, and a store in which most messages are acknowledged.

All cases in turn in one run, on files as they are after a stop (page cache warm), in CPU time of the process.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from understudy.ids import NodeId
from understudy.message import Message
from understudy.ports import Operation
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.applier import Applier, LogFiles
from understudy.store.log.operations import is_batch
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.messages.message_store import MessageStore
from understudy.store.settings import StoreSettings
from understudy.testing.manual_time import ManualTime
from understudy.tools.step_writer import StepWriter

ROUNDS = 5
DEAD = 300_000
LIVE = 100_000
BODY_BYTES = 1024
_Done = Callable[[BaseException | None], None]
NODE_ID = NodeId("0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1")


class _UnsyncedWriter(StepWriter):
    """Writes without a sync; syncs are not measured."""

    def submit(self, operations: Sequence[Operation], done: _Done) -> None:
        super().submit(operations[:1] if is_batch(operations) else operations, done)


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    dead: int
    live: int
    segments_min: int
    compared: str = ""
    """The same store without a snapshot."""
    duplicate_ids: bool = False
    """Each message has one, of 36 bytes."""


CASES = (
    _Case("live, log", 0, LIVE, 0),
    _Case("live with duplicate ids, log", 0, LIVE, 0, duplicate_ids=True),
    _Case("live, snapshot", 0, LIVE, 10, "live, log"),
    _Case("dead and live, log", DEAD, DEAD // 1_000, 0),
    _Case("dead and live, snapshot", DEAD, DEAD // 1_000, 10, "dead and live, log"),
)


def recovery(*, as_json: bool) -> None:
    """Write the stores, then start each in turn."""
    samples: dict[str, list[float]] = {case.name: [] for case in CASES}
    kept: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
        paths = {case.name: str(Path(directory) / str(number)) for number, case in enumerate(CASES)}
        for case in CASES:
            kept[case.name] = _write(case, paths[case.name])
        for _ in range(ROUNDS):
            for case in CASES:
                samples[case.name].append(_start(case, paths[case.name]))
    medians = {name: statistics.median(values) for name, values in samples.items()}
    if as_json:
        print(json.dumps({"benchmark": "recovery", "samples_s": samples, "kept": kept}))
        return
    table = Table(title=f"Cold start until the log is read, {BODY_BYTES} B messages, medians of {ROUNDS} rounds")
    for column in ("store", "dead", "live", "files", "MiB", "CPU s", "records/s", "log / snapshot"):
        table.add_column(column, justify="left" if column == "store" else "right", no_wrap=True)
    for case in CASES:
        # all written records, whether or not they have to be read
        records = 2 * case.dead + case.live
        segments, size_bytes = kept[case.name]
        ratio = f"{medians[case.compared] / medians[case.name]:.1f}" if case.compared else ""
        table.add_row(
            case.name, f"{case.dead:,}", f"{case.live:,}", str(segments), f"{size_bytes >> 20:,}",
            f"{medians[case.name]:.2f}", f"{records / medians[case.name]:,.0f}", ratio,
        )  # fmt: skip
    Console(width=110).print(table)


def _write(case: _Case, directory: str) -> tuple[int, int]:
    """A store with a live message after every so many dead ones; its segments and bytes."""
    disk, clock = RealDisk(), ManualTime()
    applier = Applier(disk, directory)
    writer = _UnsyncedWriter(applier)
    disk.make_directory(directory)
    store = MessageStore.activate(
        Follower(disk, directory), files=LogFiles(applier, writer, writer), clock=clock, node_id=NODE_ID,
        on_failure=_fail, settings=StoreSettings(compact_segments_min=case.segments_min),
    )  # fmt: skip
    address = AddressRecord(store.next_id(), "a", (1,))
    queue = QueueRecord(store.next_id(), address.address_id, "q", 1)
    store.store_address(address)
    store.store_queue(queue)
    total = case.dead + case.live
    step = total // case.live
    for number in range(total):
        message = Message(bytes(BODY_BYTES), address="a")
        message.assign_id(store.next_id())
        duplicate_id = b"%036d" % number if case.duplicate_ids else b""
        store.store_message(message, address.address_id, (queue.queue_id,), duplicate_id=duplicate_id)
        if number % step:
            store.store_acknowledges(queue.queue_id, (message.message_id,))
        if number % 500 == 0:
            store.flush()
            writer.drain()
    for _ in range(100):
        store.flush()
        writer.drain()
    closed: list[bool] = []
    kept = (store.segment_count, store.size_bytes())
    store.close(lambda: closed.append(True))
    writer.drain()
    assert closed
    return kept


def _fail(error: BaseException) -> None:
    raise error


def _start(case: _Case, directory: str) -> float:
    # of this process alone: with warm files nothing else is waited for
    began = time.process_time()
    follower = recover(RealDisk(), directory)
    took = time.process_time() - began
    assert abs(sum(len(backlog) for backlog in follower.state.references.values()) - case.live) <= 1
    return took
