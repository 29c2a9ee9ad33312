"""How long the consolidator holds the loop with a deep queue, and how much of a log it keeps.

The writer's work is done between the calls and not counted: each single call is measured that
runs on the loop's thread, under a load that goes on meanwhile.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.cases import CASES
from benchmarks.core_link import CoreLink
from benchmarks.growth import fill
from benchmarks.load import build_driver, run
from benchmarks.usage import thread_seconds
from support.processes import Pair
from understudy.ids import NodeId
from understudy.message import Message
from understudy.ports import Operation
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.applier import Applier, LogFiles
from understudy.store.log.operations import is_batch
from understudy.store.log.reading.follower import Follower
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.messages.message_store import MessageStore, StoreOwner
from understudy.store.settings import StoreSettings
from understudy.testing.manual_time import ManualTime

BODY_BYTES = 100
#: Appended in one turn of the loop while the log is consolidated.
TURN_MESSAGES = 50
#: Goal: share of the process's CPU time.
_SHARE_PERCENT_MAX = 3
#: Threads of a node in the order in which they start: loop, analyzer, writer of the journal, writer of large messages,
#: housekeeper.
_HOUSEKEEPER = "thread 4"
NODE_ID = NodeId("0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1")


class _TimedWriter:
    """Does the work at once, and notes how long the loop was held by what followed."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier
        self._jobs: deque[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = deque()
        self.calls_ms: list[float] = []

    def submit(self, operations: Sequence[Operation], done: Callable[[BaseException | None], None]) -> None:
        # batches are not synced: syncs are not measured
        written = operations[:1] if is_batch(operations) else operations
        self.run(lambda: self._applier.apply(written), done)

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


@dataclass(frozen=True, slots=True)
class Share:
    """CPU time in a broker through which messages pass beside others that stay, in seconds."""

    old_messages: int
    """Messages that stay."""
    messages: int
    process_s: float
    housekeeper_s: float
    """CPU time of the thread that makes snapshots, drops segments and makes new ones. Seconds."""

    @property
    def percent(self) -> float:
        """CPU time of the housekeeping thread in percent of that of the process."""
        return 100 * self.housekeeper_s / max(self.process_s, 0.01)


def measure_share(old_messages: int, window_ms: int) -> Share:
    """The pipelined case of the peer benchmark, in a queue beside one in which messages wait."""
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as name:
        directory = Path(name)
        driver, pair = build_driver(directory), Pair(directory / "pair")
        try:
            node = pair.primary
            node.start().wait_ready("active")
            assert node.process is not None
            if old_messages:
                fill(node.port, "old", old_messages, 1024)
            before = thread_seconds(node)
            outcome = run(
                driver, CoreLink(node.port), CASES["pipelined"][1], "busy", [node.process.pid],
                warmup_ms=0, window_ms=window_ms,
            )  # fmt: skip
            after = thread_seconds(node)
            return Share(
                old_messages, outcome.total, sum(after.values()) - sum(before.values()),
                after[_HOUSEKEEPER] - before.get(_HOUSEKEEPER, 0.0),
            )  # fmt: skip
        finally:
            pair.end()


@click.command()
@click.option("--share", "old", default="", help="Only the share of CPU time, beside so many messages, as 0,1,100000.")
@click.option("--window-ms", default=8_000, show_default=True, help="Load of each measurement of the share.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def consolidation(*, old: str, window_ms: int, as_json: bool) -> None:
    """Calls on the loop with and without consolidator, and its share of the CPU time while messages pass."""
    shares = [measure_share(int(count), window_ms) for count in (old or "0,1,100000").split(",")]
    if not as_json:
        _show_shares(shares)
    if old:
        if as_json:
            print(json.dumps({"benchmark": "consolidation", "shares": [asdict(share) for share in shares]}))
        return
    _calls(shares, as_json=as_json)


def _show_shares(shares: list[Share]) -> None:
    table = Table(title="Pipelined messages of 1 KiB: CPU time of the thread of the consolidator")
    for column in ("messages that stay", "messages", "process CPU s", "of it the thread", "%"):
        table.add_column(column, justify="right")
    for each in shares:
        table.add_row(
            f"{each.old_messages:,}", f"{each.messages:,}", f"{each.process_s:.2f}", f"{each.housekeeper_s:.2f}",
            f"{each.percent:.1f}",
        )  # fmt: skip
    Console(width=120).print(table)
    worst = max(shares, key=lambda each: each.percent)
    verdict = "met" if worst.percent <= _SHARE_PERCENT_MAX else "MISSED"
    print(
        f"goal: share of the consolidator in the CPU time, pipelined: at most {_SHARE_PERCENT_MAX} %;"
        f" {worst.percent:.1f} %: {verdict}"
    )


def _calls(shares: list[Share], *, as_json: bool) -> None:
    results = [_run(waiting, minimum) for waiting in (0, 200_000, 1_000_000) for minimum in (0, 10)]
    if as_json:
        found = {"results": [repr(result) for result in results], "shares": [asdict(share) for share in shares]}
        print(json.dumps({"benchmark": "consolidation", **found}))
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
        disk, clock = RealDisk(), ManualTime()
        applier = Applier(disk, directory)
        writer = _TimedWriter(applier)
        store = MessageStore.activate(
            Follower(disk, directory),
            files=LogFiles(applier, writer, writer),
            clock=clock,
            node_id=NODE_ID,
            owner=StoreOwner(_fail),
            settings=StoreSettings(compact_segments_min=segments_min),
        )
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
