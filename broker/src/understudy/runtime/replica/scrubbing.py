"""The scrubber of one node: while it is active, and while its copy is in sync with an active node (ADR 0115)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from understudy.ports import Operation, Worker
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.replica.copying import FileExchange, store_directories
from understudy.store.log.applier import Applier
from understudy.store.messages.message_store import MessageStore
from understudy.store.repairs import Repairs, Side
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.copy_target import CopyTarget
from understudy.store.scrubbing import Scrubber, ScrubSettings, ScrubStore
from understudy.wire.core.packets_replication import CHECKED_FILES_PROTOCOL

_Done = Callable[[BaseException | None], None]


class WorkerWriter:
    """Executes ``ReplaceBytes``, which needs no order, and reads on a worker. Implements ``ports.LogWriter``."""

    def __init__(self, worker: Worker, applier: Applier) -> None:
        """Args:
        worker: Has the threads.
        applier: Executes the operations.
        """
        self._applier = applier
        self._worker = worker
        self.run = worker.run

    def submit(self, operations: Sequence[Operation], done: _Done) -> None:
        self._worker.run(lambda: self._applier.apply(operations), done)

    def close(self) -> None:
        """Do nothing: the owner of the worker closes it."""


def scrub_active(parts: NodeParts, store: MessageStore, worker: Worker, appliers: tuple[Applier, Applier]) -> Scrubber:
    """The scrubber of an active node.

    Args:
        store: The store, which serves.
        worker: Reads.
        appliers: Appliers of the directory of the log, and of that of large messages.
    """
    return _scrubber(parts, worker, appliers, store.quarantine.repairs)


class ReplicaScrub:
    """The scrubber of a replica in sync, and its questions to the active node."""

    def __init__(self, parts: NodeParts, worker: Worker, log: Applier, bodies: Applier, files: FileExchange) -> None:
        """
        Args:
            worker: Reads and writes.
            log: Applier of the directory of the log.
            bodies: Applier of the directory of large messages.
            files: Asks the active node.
        """
        self._repairs = Repairs(
            parts.environment.disk,
            {
                Directory.LOG: Side(log.directory, WorkerWriter(worker, log)),
                Directory.BODIES: Side(bodies.directory, WorkerWriter(worker, bodies)),
            },
        )
        self._repairs.attach(files.asker)
        self._scrubber = parts.watch.scrubber = _scrubber(parts, worker, (log, bodies), self._repairs)

    def close(self) -> None:
        """Begin no step any more."""
        self._scrubber.close()
        self._repairs.close()


def scrub_replica(
    parts: NodeParts, worker: Worker, target: CopyTarget, files: FileExchange, protocol: int
) -> ReplicaScrub | None:
    """The scrubber of a replica whose copy is complete; None if the active node knows no questions about files."""
    if protocol < CHECKED_FILES_PROTOCOL:
        return None
    return ReplicaScrub(parts, worker, target.log, target.bodies, files)


def _scrubber(parts: NodeParts, worker: Worker, appliers: tuple[Applier, Applier], repairs: Repairs) -> Scrubber:
    log, bodies = appliers
    configuration, environment = parts.configuration.current, parts.environment
    settings = ScrubSettings(configuration.scrub_rate_bytes, configuration.scrub_period_ms)
    store = ScrubStore(store_directories(parts), log.positions, bodies.checksum_of, repairs.file)
    return Scrubber(store, settings, worker, environment.clock, parts.turn)
