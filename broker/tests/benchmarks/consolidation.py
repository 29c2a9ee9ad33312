"""How long the consolidator holds the loop with a deep queue, and what it keeps of a log.

The writer's work is done between the calls and not counted: what is measured is every single call that
runs on the loop's thread, under a load that goes on meanwhile.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from understudy.ids import NodeId
from understudy.message import Message
from understudy.runtime.disk import RealDisk
from understudy.store.follower import Follower
from understudy.store.message_store import MessageStore
from understudy.store.records import AddressRecord, QueueRecord
from understudy.store.settings import StoreSettings
from understudy.testing.manual_time import ManualTime

BODY_BYTES = 100
#: Appended in one turn of the loop while the log is consolidated.
TURN_MESSAGES = 50
NODE_ID = NodeId("0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1")


class _TimedWriter:
    """Does the work at once, and notes how long the loop was held by what followed."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = deque()
        self.calls_ms: list[float] = []

    def submit(self, file, offset, buffers, done) -> None:  # type: ignore[no-untyped-def]
        self.run(lambda: file.write(offset, buffers), done)

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self._jobs.append((work, done))

    def serve(self, jobs_max: int) -> None:
        """Some of what waits."""
        for _ in range(min(jobs_max, len(self._jobs))):
            work, done = self._jobs.popleft()
            error: BaseException | None = None
            try:
                work()
            except Exception as failure:
                error = failure
            # of this thread alone: others of the machine do not count
            began = time.thread_time()
            done(error)
            self.calls_ms.append(1000 * (time.thread_time() - began))

    def close(self) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True)
class _Result:
    waiting: int
    segments_min: int
    turns: int
    longest_ms: float
    p999_ms: float
    size_mib: int
    live_mib: int
    seconds: float


def consolidation(*, as_json: bool) -> None:
    """With and without, empty and deep."""
    results = [_run(waiting, minimum) for waiting in (0, 200_000, 1_000_000) for minimum in (0, 10)]
    if as_json:
        print(json.dumps({"benchmark": "consolidation", "results": [repr(result) for result in results]}))
        return
    table = Table(title=f"Calls on the loop while 400,000 messages of {BODY_BYTES} B pass a queue")
    columns = ("waiting", "consolidating", "calls", "longest ms", "p99.9 ms", "log MiB", "live MiB", "seconds")
    for column in columns:
        table.add_column(column, justify="right")
    for each in results:
        table.add_row(
            f"{each.waiting:,}", "yes" if each.segments_min else "no", f"{each.turns:,}", f"{each.longest_ms:.1f}",
            f"{each.p999_ms:.2f}", f"{each.size_mib:,}", f"{each.live_mib:,}", f"{each.seconds:.1f}",
        )  # fmt: skip
    Console().print(table)


def _run(waiting: int, segments_min: int) -> _Result:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
        disk, writer, clock = RealDisk(), _TimedWriter(), ManualTime()
        store = MessageStore.activate(
            Follower(disk, directory), disk=disk, directory=directory, writer=writer, clock=clock, node_id=NODE_ID,
            on_failure=_fail, settings=StoreSettings(compact_segments_min=segments_min),
        )  # fmt: skip
        address = AddressRecord(store.next_id(), "a", (1,))
        queue = QueueRecord(store.next_id(), address.address_id, "q", 1)
        store.store_address(address)
        store.store_queue(queue)

        def send(number: int) -> int:
            message = Message(bytes(BODY_BYTES), address="a")
            message.assign_id(store.next_id())
            # as our client does it
            store.store_message(
                message, address.address_id, (queue.queue_id,), duplicate_id=number.to_bytes(16, "little")
            )
            return message.message_id

        for number in range(waiting):
            send(number)
            if number % 500 == 0:
                store.flush()
                writer.serve(1_000)
        gc.collect()
        gc.freeze()
        writer.calls_ms.clear()
        flushes_ms: list[float] = []
        began = time.perf_counter()
        for number in range(400_000 // TURN_MESSAGES):
            # the first of each turn stays for a while, so that something lives everywhere
            sent = [send(number * TURN_MESSAGES + one) for one in range(TURN_MESSAGES)]
            store.store_acknowledges(queue.queue_id, sent[1:] if number % 4 == 0 else sent)
            started = time.thread_time()
            store.flush()
            flushes_ms.append(1000 * (time.thread_time() - started))
            writer.serve(4)
        for _ in range(200_000):
            if not store.consolidating and not store.backlog_bytes:
                break
            store.flush()
            writer.serve(4)
        took = time.perf_counter() - began
        gc.unfreeze()
        calls = sorted([*writer.calls_ms, *flushes_ms])
        sizes = store.size_bytes() >> 20, store.live_bytes >> 20
        closed: list[bool] = []
        store.close(lambda: closed.append(True))
        writer.serve(1_000)
        return _Result(
            waiting, segments_min, len(calls), calls[-1], calls[int(len(calls) * 0.999)], *sizes, took
        )  # fmt: skip


def _fail(error: BaseException) -> None:
    raise error
