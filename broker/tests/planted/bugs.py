"""Planted bugs: each breaks one promise of the broker on purpose, and a simulated run must find it.

``planting`` defines planted bugs. ``make plant BUG=NAME`` runs seeds with one planted. Those of nodes, replicated
pairs, damaged records and XA branches are in modules of their own.

To add one, write a function that takes a ``Patch`` and decorate it with ``planted``; the parametrised
test in ``tests/simulation/test_planted_bugs.py`` then requires that one of its seeds finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from planted import (  # noqa: F401  # each module adds its bugs to BUGS
    activation_bugs,
    amqp091_bugs,
    branch_bugs,
    damage_bugs,
    empty_start_bugs,
    group_bugs,
    link_bugs,
    member_bugs,
    node_bugs,
    pair_bugs,
    promise_bugs,
    replication_bugs,
    scale_down_bugs,
    vote_bugs,
    wrong_read_bugs,
)
from planted.planting import BUGS as BUGS
from planted.planting import Patch, ShortRun, planted, with_faults
from understudy.client.core.connection.failover import Reconnection
from understudy.client.core.consumer.state import ReceivedMessage
from understudy.ports import LogWriter, Operation, OperationApplier, Timers
from understudy.routing.acceptance import Acceptance
from understudy.routing.lifecycle.duplicate_ids import DuplicateIdCache
from understudy.routing.queues.queue import Queue
from understudy.session.session import ServerSession
from understudy.session.transaction import Transaction
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import Arrival, parts_of
from understudy.testing.runs.fault_plan import Fault, FaultKind
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.storage import SharedStorage, StorageConditions
from understudy.testing.sim.writer import SimLogWriter

# --- nothing confirmed is lost -------------------------------------------------------------------


@planted("last-held-acknowledged", promise="no confirmed durable message is lost", checks=["lost"], seeds=range(8, 20))
def _last_held_acknowledged(patch: Patch) -> None:
    """The last message a failed consumer held is acknowledged instead of being returned to its queue."""

    def close(self: ServerSession, failed: bool) -> None:
        if failed and not self.state.closed:
            for consumer in self.consumers.by_id.values():
                if consumer.delivering and not consumer.browse_only:
                    references = consumer.take_one(list(consumer.delivering)[-1])
                    consumer.queue.acknowledge(references)
        old(self, failed)

    old = patch.replace(ServerSession, "close", close)


class _HastyLogWriter(SimLogWriter):
    """Reports a batch as durable before it is written."""

    def submit_batch(self, operations: Sequence[Operation], done: Callable[[BaseException | None], None]) -> None:
        super().submit_batch(operations, lambda error: None)
        asyncio.get_running_loop().call_soon(done, None)


class _HastyStorage(SharedStorage):
    def make_log_writer(self, timers: Timers, stream: Any, applier: OperationApplier) -> LogWriter:
        return _HastyLogWriter(timers, stream, applier)


class _HastyRun(ScenarioRun):
    storage_class = _HastyStorage

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        # with a slow medium more confirmed messages can be lost
        super().__init__(replace(plan, storage=StorageConditions(step_ms_max=100)), loop)


@planted("confirmed-before-sync", promise="no confirmed durable message is lost", checks=["lost"], seeds=range(3, 60))
def _confirmed_before_sync(patch: Patch) -> type[ScenarioRun]:
    """Sends are confirmed before the medium has them."""
    return _HastyRun


@planted("dropped-on-arrival", promise="messages are conserved: in = out + stored", checks=["lost"], seeds=range(10))
def _dropped_on_arrival(patch: Patch) -> None:
    """Every twentieth confirmed message never becomes visible to consumers."""
    count = 0

    def enqueue_one(self: Acceptance, queues: tuple[Queue, ...], parts: Arrival) -> None:
        nonlocal count
        count += 1
        if count % 20:
            old(self, queues, parts)
            return
        for queue, part in zip(queues, parts, strict=True):
            self.store.store_acknowledges(queue.queue_id, part.ids)
        self.discard(queues, parts)

    old = patch.replace(Acceptance, "_enqueue_one", enqueue_one)
    _arrive_one_by_one(patch)


def _arrive_one_by_one(patch: Patch) -> None:
    """Have messages that came together pass ``Acceptance._enqueue_one`` as well."""

    def enqueue(self: Acceptance, queues: tuple[Queue, ...], arrivals: Iterable[Arrival], answers: Any = ()) -> None:
        old(self, queues, _singles(arrivals), answers)

    old = patch.replace(Acceptance, "enqueue", enqueue)


def _singles(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """An arrival for each message."""
    return [parts_of(references) for parts in arrivals for references in zip(*parts, strict=True)]


# --- nothing twice ---------------------------------------------------------------------------------


@planted(
    "acknowledgements-not-written",
    promise="an acknowledged message is not delivered again",
    checks=["duplicated", "left-over"],
    seeds=range(10),
)
def _acknowledgements_not_written(patch: Patch) -> None:
    """Acknowledgements are confirmed and do not reach the journal."""
    patch.replace(MessageStore, "store_acknowledges", lambda self, *arguments, **options: None)


@planted(
    "duplicate-ids-ignored", promise="no duplicate while duplicate detection is on", checks=["duplicated"],
    seeds=range(8, 60), elsewhere={"replication": range(3, 12)},
)  # fmt: skip
def _duplicate_ids_ignored(patch: Patch) -> None:
    """A message that a client sends again after a failover is stored a second time."""
    patch.replace(DuplicateIdCache, "__contains__", lambda self, duplicate_id: False)
    patch.replace(DuplicateIdCache, "sequence_of", lambda self, duplicate_id: None)


# --- order -----------------------------------------------------------------------------------------


@planted(
    "neighbours-swapped", promise="messages of one producer stay in order on a queue", checks=["reordered"],
    seeds=range(1, 20),
)  # fmt: skip
def _neighbours_swapped(patch: Patch) -> None:
    """Two neighbouring messages change places on their way into the queue."""
    held: dict[Queue, tuple[tuple[Queue, ...], Arrival]] = {}

    def enqueue_one(self: Acceptance, queues: tuple[Queue, ...], parts: Arrival) -> None:
        earlier = held.pop(queues[0], None)
        if earlier is None and parts[0][0].message_id % 5 == 0:
            held[queues[0]] = queues, parts
            return
        old(self, queues, parts)
        if earlier is not None:
            old(self, *earlier)

    old = patch.replace(Acceptance, "_enqueue_one", enqueue_one)
    _arrive_one_by_one(patch)


# --- transactions ------------------------------------------------------------------------------------


@planted("rollback-commits", promise="a rolled back send is never visible", checks=["refused"], seeds=range(5, 20))
def _rollback_commits(patch: Patch) -> None:
    """The sends of a transaction that is rolled back become visible."""

    def roll_back(self: Transaction) -> Any:
        sends = list(self._sends._open)
        self._sends._open.clear()
        returned = old(self)
        for queues, parts in sends:
            self._office.acceptance.enqueue(queues, (parts,))
        return returned

    old = patch.replace(Transaction, "roll_back", roll_back)
    _stage_one_by_one(patch)


def _stage_one_by_one(patch: Patch) -> None:
    """Have ``Transaction.staged`` take each message alone."""

    def staged(self: Transaction, queues: tuple[Queue, ...], parts: Arrival, *, leaves: bool = False) -> None:
        for each in _singles((parts,)):
            old(self, queues, each, leaves=leaves)

    old = patch.replace(Transaction, "staged", staged)


@planted(
    "visible-before-commit",
    promise="nothing is delivered that was not sent",
    checks=["unexplained"],
    seeds=range(5, 20),
)
def _visible_before_commit(patch: Patch) -> None:
    """A message sent in a transaction is visible at once; a rollback does not take it back."""

    def staged(self: Transaction, queues: tuple[Queue, ...], parts: Arrival, *, leaves: bool = False) -> None:
        old(self, queues, parts, leaves=leaves)
        self._sends._open.pop()
        self._office.acceptance.enqueue(queues, (parts,))

    old = patch.replace(Transaction, "staged", staged)
    _stage_one_by_one(patch)


def _drop_sends(transaction: Transaction, first: int) -> None:
    """Take sends out of a transaction, from the first one given on."""
    office = transaction._office
    for queues, parts in transaction._sends._open[first:]:
        for queue, part in zip(queues, parts, strict=True):
            office.store.store_acknowledges(queue.queue_id, part.ids, transaction.log_id())
        office.acceptance.discard(queues, parts)
    del transaction._sends._open[first:]


@planted(
    "half-committed", promise="a transaction takes effect as a whole or not at all", checks=["partial"],
    seeds=range(5, 20),
)  # fmt: skip
def _half_committed(patch: Patch) -> None:
    """Commit only the first of several sends, and do not answer the commit."""

    def commit(self: Transaction, order: Any, done: Any) -> None:
        if len(self._sends._open) < 2:
            old(self, order, done)
            return
        _drop_sends(self, 1)
        old(self, order, None)

    old = patch.replace(Transaction, "commit", commit)
    _stage_one_by_one(patch)


@planted(
    "commit-drops-one", promise="a transaction takes effect as a whole or not at all", checks=["lost"],
    seeds=range(5, 20),
)  # fmt: skip
def _commit_drops_one(patch: Patch) -> None:
    """The last of several sends of a committed transaction is dropped."""

    def commit(self: Transaction, order: Any, done: Any) -> None:
        if len(self._sends._open) > 1:
            _drop_sends(self, len(self._sends._open) - 1)
        old(self, order, done)

    old = patch.replace(Transaction, "commit", commit)
    _stage_one_by_one(patch)


# --- bodies --------------------------------------------------------------------------------------------


@planted("bodies-altered", promise="corruption is detected, never served", checks=["corrupted"], seeds=range(5))
def _bodies_altered(patch: Patch) -> None:
    """The last byte of every seventh body changes on its way to the application."""

    def body(self: ReceivedMessage) -> bytes:
        whole: bytes = old.fget(self)
        return whole[:-1] + b"\0" if self.message_id % 7 == 0 and whole else whole

    old = patch.replace(ReceivedMessage, "body", property(body))


# --- liveness ------------------------------------------------------------------------------------------


@planted(
    "held-messages-forgotten", promise="an unacknowledged message is delivered again",
    checks=["left-over"], seeds=range(2, 20),
)  # fmt: skip
def _held_messages_forgotten(patch: Patch) -> type[ScenarioRun]:
    """Messages of a failed consumer are delivered to no other consumer until the broker starts again."""

    def close(self: ServerSession, failed: bool) -> None:
        if failed and not self.state.closed:
            for consumer in self.consumers.by_id.values():
                if not consumer.browse_only:
                    consumer.delivering.clear()
        old(self, failed)

    old = patch.replace(ServerSession, "close", close)
    return with_faults(*(Fault(each, 1.0 + each, FaultKind.KILL_CLIENT, "c0", 0.1, 0.0, 0) for each in range(4)))


@planted(
    "client-stays-with-one-node",
    promise="clients end connected to the active node",
    checks=["stuck", "left-over"],
    seeds=range(4, 10),
)
def _client_stays_with_one_node(patch: Patch) -> type[ScenarioRun]:
    """A client tries only the node it was connected to last."""

    def round_of_one(self: Reconnection) -> Any:
        return old(self)[:1]

    old = patch.replace(Reconnection, "_round", round_of_one)
    return ShortRun
