"""The store of routing and session tests: the real one on a simulated disk, without time.

With ``automatic`` every record is durable as soon as it is appended; otherwise when ``sync`` is called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Self

from support.store import DIRECTORY, NODE_ID
from understudy.kernel.log import Run, SendsPart
from understudy.message import Message
from understudy.ports import Operation
from understudy.routing.queues.queue import Queue
from understudy.routing.restore import live_masks
from understudy.store.log.applier import Applier, LogFiles
from understudy.store.log.operations import KeepReserve
from understudy.store.log.reading.follower import Follower
from understudy.store.messages.message_store import MessageStore, StoreOwner
from understudy.store.messages.reference import Location, MessageReference, RunSlice
from understudy.store.settings import StoreSettings
from understudy.store.state import StoreState
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.disk import SimVolume

_SEGMENT_BYTES = 512 * 1024
#: Operations after which an automatic store is synced.
_APPENDING = (
    "store_address", "delete_address", "store_queue", "delete_queue", "store_setting", "store_message", "store_run",
    "store_acknowledges", "store_delivery_count", "store_duplicate_ids", "store_prepare", "store_commit",
    "store_rollback",
)  # fmt: skip


class QueuedWriter:
    """A log writer that works when ``drain`` is called."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier
        self._jobs: deque[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = deque()

    def submit(self, operations: Sequence[Operation], done: Callable[[BaseException | None], None]) -> None:
        """See ``ports.LogWriter``. The reserve is left out: its megabytes would be most of the time of a small test."""
        wanted = [each for each in operations if not isinstance(each, KeepReserve)]
        self._jobs.append((lambda: self._applier.apply(wanted), done))

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """See ``ports.LogWriter``."""
        self._jobs.append((work, done))

    def close(self) -> None:
        """See ``ports.LogWriter``."""

    def drain(self) -> bool:
        """Do everything that was submitted. Returns whether there was anything."""
        found = bool(self._jobs)
        while self._jobs:
            work, done = self._jobs.popleft()
            work()
            done(None)
        return found


class UnitStore(MessageStore):
    """A store of one activation, on a volume of its own."""

    automatic = False

    @classmethod
    def begin(cls, *, automatic: bool = True, **settings: Any) -> Self:
        """A store that is empty."""
        volume = SimVolume()
        volume.disk("node").make_directory(DIRECTORY)
        return cls._activated(volume, automatic=automatic, **settings)

    def restarted(self) -> Self:
        """The store of the next activation, with the durable records of this one, which is not used any more."""
        return self._activated(self.volume, automatic=True)

    @classmethod
    def _activated(cls, volume: SimVolume, *, automatic: bool, **settings: Any) -> Self:
        disk = volume.disk("node")
        applier = Applier(disk, DIRECTORY)
        writer = QueuedWriter(applier)
        failed: list[BaseException] = []
        follower = Follower(disk, DIRECTORY)
        store = cls.activate(
            follower,
            files=LogFiles(applier, writer, writer),
            clock=ManualTime(),
            node_id=NODE_ID,
            settings=StoreSettings(**{"segment_bytes": _SEGMENT_BYTES, **settings}),
            owner=StoreOwner(failed.append),
        )
        assert isinstance(store, cls)
        store.volume, store.writer, store.failed = volume, writer, failed
        store.recorded, store.reads = {}, 0
        writer.drain()
        store.sync()
        store._watch()
        store.automatic = automatic
        if automatic:
            store.hold_room = _no_room  # type: ignore[assignment]
        return store

    def _watch(self) -> None:
        """Keep the records and count the reads; of an automatic store, sync after each operation."""
        append_run, open_reader = self.store_run, self.reader

        def store_run(parts: Sequence[SendsPart], *arguments: Any) -> list[Run]:
            runs = append_run(parts, *arguments)
            priority = parts[0][0].priority(parts[0][1])
            for run in runs:
                for reference in RunSlice(run, 0, run.count, priority, -1):
                    assert reference.message is not None
                    self.recorded[reference.message_id] = reference.message
            return runs

        def store_message(message: Message, *arguments: Any, **options: Any) -> Location:
            location = MessageStore.store_message(self, message, *arguments, **options)
            self.recorded[message.message_id] = message
            return location

        def reader(run_bytes: int, messages_max: int) -> Any:
            made = open_reader(run_bytes, messages_max)

            def read(location: Location, upcoming: Iterable[Location] = ()) -> Message:
                self.reads += 1
                return made.read(location, upcoming)

            return SimpleNamespace(read=read)

        self.store_run, self.store_message, self.reader = store_run, store_message, reader  # type: ignore[assignment,method-assign]
        for name in _APPENDING:
            setattr(self, name, self._synced(getattr(self, name)))

    volume: SimVolume
    writer: QueuedWriter
    failed: list[BaseException]
    recorded: dict[int, Message]
    """Message id to every message that was appended, durable or not."""
    reads: int
    """Messages that were read."""

    def _synced(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def synced(*arguments: Any, **options: Any) -> Any:
            answer = operation(*arguments, **options)
            if self.automatic:
                self.sync()
            return answer

        return synced

    def sync(self) -> None:
        """Everything that was appended becomes durable."""
        gathered = self.context.gathered
        if gathered is not None:
            gathered.close()
        # records of open transactions are written if something waits for them
        if not self.context.waiting:
            self.context.when_durable(self.last_sequence, lambda: None)
        while True:
            self.flush()
            if not self.writer.drain():
                return

    def found(self) -> StoreState:
        """The state that a restart would find."""
        follower = Follower(self.volume.disk("restarted"), DIRECTORY)
        follower.finish()
        return follower.state

    def survivors(self, queue: Queue) -> list[int]:
        """Ids of the messages that a restart would find in a queue."""
        return sorted(self.references.get(queue.queue_id, {}))

    @property
    def references(self) -> dict[int, dict[int, MessageReference]]:
        """Queue and message id to the references that a restart would find."""
        return {
            queue_id: {each.message_id: each for each in backlog.references()}
            for queue_id, backlog in self.found().references.items()
            if backlog.count
        }

    def live(self, queue: Queue) -> list[int]:
        """Ids of the messages of a queue that were appended, and whose end was not: what a restart would find if every
        record had reached the medium.
        """
        masks = live_masks(self.state, queue.queue_id)
        return sorted(64 * word + bit for word, mask in masks.items() for bit in range(64) if mask >> bit & 1)


def _no_room(length: int) -> int:
    """Replacement of ``hold_room``: a record that is durable once it is appended has nothing to wait for."""
    return 0
