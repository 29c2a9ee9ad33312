"""The view of a running node from which ``wait_reasons`` explains why messages wait. Nothing is kept for it: it is made
when an operator asks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final

from understudy.cluster.balancing.redistribution import has_space
from understudy.cluster.bridges.bridge import Bridge
from understudy.errors import MessageNotFound
from understudy.management.operations.invocation import ManagedNode
from understudy.management.waiting.reasons import (
    BridgeState,
    ConsumerState,
    GateState,
    MessageState,
    Place,
    QueueState,
    RedistributionState,
    RemoteState,
    TransactionState,
)
from understudy.message import Message
from understudy.routing.grouping import group_key, group_of
from understudy.routing.lifecycle.quarantine import NEVER_MS
from understudy.routing.queues.dispatch_gate import State as DispatchState
from understudy.routing.queues.queue import Queue
from understudy.routing.queues.waiting_messages import START
from understudy.session.consumer import ServerConsumer
from understudy.session.transaction import Transaction
from understudy.store.messages.reference import MessageReference

#: Number of messages counted before other work of the loop has its turn.
_SLICE_MESSAGES: Final = 5_000
_NODE_ID_CHARACTERS: Final = 36
_BRIDGE: Final = "BRIDGE"


class WaitView:
    """One queue of a node at the time of a request."""

    def __init__(self, node: ManagedNode, queue: Queue) -> None:
        self._node = node
        self._queue = queue
        self._office = node.services.sessions.post_office
        self._clock = node.services.clock

    # -- the queue --------------------------------------------------------------------------------

    def queue(self) -> QueueState:
        """The queue with everything that acts on it."""
        queue = self._queue
        configuration = queue.configuration
        return QueueState(
            queue.name,
            queue.message_count,
            max(0, queue.message_count - queue.scheduled_count - queue.delivering_count),
            queue.scheduled_count,
            queue.delivering_count,
            queue.pending.spilled_count,
            queue.paused,
            self._office.directory.address_of(queue).paused,
            queue.exclusive,
            configuration.last_value_key if configuration.last_value else None,
            queue.kind is not None and queue.kind.non_destructive,
            self._gate(),
            [self._consumer(each) for each in self._consumers()],
            [self._bridge(each) for each in self._bridges()],
            [state for state, _ in self._transactions()],
            self._members(),
            self._redistribution(),
        )

    def _gate(self) -> GateState | None:
        kind = self._queue.kind
        if kind is None or kind.gate.open:
            return None
        return GateState(
            self._queue.configuration.consumers_before_dispatch or 0, kind.gate.state is DispatchState.PAUSED
        )

    def _consumers(self) -> list[ServerConsumer]:
        return [each for each in self._queue.consumers if isinstance(each, ServerConsumer)]

    def _consumer(self, consumer: ServerConsumer) -> ConsumerState:
        queue, scope = self._queue, consumer.session.connection
        bridge = scope.protocol == _BRIDGE
        served = not queue.exclusive or consumer is (
            queue.consumers.served_alone or queue.consumers.by_priority[0].consumers[0]
        )
        return ConsumerState(
            _name(consumer),
            _connection(consumer),
            None if consumer.filter is None else consumer.filter.text,
            consumer.started,
            consumer.flow.credits,
            # a bridge says itself why it does not go on
            bridge or consumer.allowance_bytes > 0 or consumer.flow.credits <= 0 or consumer.writable(),
            len(consumer.delivering),
            consumer.delivering.oldest_ms,
            served,
            bridge,
        )

    def _bridges(self) -> Iterator[Bridge]:
        """Bridges that consume the queue."""
        bridges, members = self._node.bridges, self._node.members
        found: list[Bridge] = [] if bridges is None else list(bridges.by_name.values())
        if members is not None:
            found += [flow.bridge for flow in members.flows.all()]
        return (each for each in found if each.configuration.queue_name == self._queue.name)

    def _bridge(self, bridge: Bridge) -> BridgeState:
        state, stall = bridge.state.name, bridge.stall
        waits = state == "WAITING"
        return BridgeState(
            bridge.name,
            state,
            # parameters may hold passwords
            bridge.target.partition("?")[0] or None,
            bridge.last_error or None,
            max(0, bridge.retry_ms - self._clock.monotonic_ms()) if waits else None,
            bridge.unconfirmed,
            None if stall is None else stall.value,
        )

    # -- transactions -----------------------------------------------------------------------------

    def _open_transactions(self) -> Iterator[tuple[str, bool, Transaction]]:
        """Open transactions with their names, and whether each is prepared."""
        sessions = self._node.services.sessions
        seen: set[int] = set()
        for branch in sessions.resources:
            seen.add(id(branch.transaction))
            yield str(branch.xid), branch.state.name == "PREPARED", branch.transaction
        for session in sessions.registry:
            state = session.state
            transaction = state.transaction
            if transaction is not None and id(transaction) not in seen:
                yield (
                    f"of session {state.alias} ({state.connection.remote_address})",
                    False,
                    transaction,
                )

    def _transactions(self) -> Iterator[tuple[TransactionState, Transaction]]:
        """The transactions with messages of the queue."""
        for name, prepared, transaction in self._open_transactions():
            sends = sum(1 for _ in transaction.sent_ids(self._queue))
            acknowledges = sum(1 for _ in transaction.settled_ids(self._queue))
            if sends or acknowledges:
                age_ms = self._clock.monotonic_ms() - transaction.started_ms
                since_ms = self._clock.wall_ms() - age_ms if transaction.started_ms else None
                yield TransactionState(name, prepared, since_ms, sends, acknowledges), transaction

    # -- other members ----------------------------------------------------------------------------

    def _members(self) -> list[RemoteState] | None:
        balancer = self._office.directory.address_of(self._queue).balancer
        if balancer is None or self._queue.internal:
            return None
        return [
            RemoteState(each.node_id, each.connected, each.consumers.count) for each in balancer.elsewhere(self._queue)
        ]

    def _redistribution(self) -> RedistributionState | None:
        members = self._node.members
        if members is None or self._queue.internal:
            return None
        address = self._office.directory.address_of(self._queue)
        balancer = address.balancer
        if balancer is None:
            return None
        known = members.redistribution.by_queue.get(self._queue)
        remaining_ms = 0 if known is None else max(0, known.next_ms - self._clock.monotonic_ms())
        return RedistributionState(
            balancer.mode.value,
            address.settings.redistribution_delay,
            None if known is None else known.state.name,
            remaining_ms,
            not has_space(balancer),
        )

    # -- a message --------------------------------------------------------------------------------

    def first(self) -> MessageState | None:
        """The message that comes first; None if none waits."""
        _, reference = next(self._queue.browse(START), (None, None))
        return None if reference is None else self._waiting(reference, 0)

    def message(self, message_id: int) -> Generator[None, None, MessageState]:
        """A message by its id, wherever it is. Raises MessageNotFound: the queue does not have it."""
        found = self._elsewhere_than_waiting(message_id)
        if found is not None:
            return found
        ahead, position, more = 0, START, True
        while more:
            more = False
            for looked_at, (following, reference) in enumerate(self._queue.browse(position)):
                if reference.message_id == message_id:
                    return self._waiting(reference, ahead)
                ahead += 1
                position = following
                if looked_at == _SLICE_MESSAGES:
                    more = True
                    break
            if more:
                yield
        # the message may have been delivered since the search began, or returned to an earlier place
        found = self._elsewhere_than_waiting(message_id)
        if found is None:
            raise MessageNotFound(f"queue {self._queue.name!r} has no message {message_id}")
        return found

    def _elsewhere_than_waiting(self, message_id: int) -> MessageState | None:
        for consumer in self._consumers():
            since_ms = consumer.delivering.delivered_ms(message_id)
            if since_ms is not None:
                return self._delivering(message_id, consumer, since_ms)
        for at_ms, reference in self._office.scheduled.due_times(self._queue):
            if reference.message_id == message_id:
                readable, deliveries = at_ms < NEVER_MS, reference.delivery_count
                return MessageState(message_id, Place.SCHEDULED, at_ms=at_ms, readable=readable, deliveries=deliveries)
        for state, transaction in self._transactions():
            for place, ids in (
                (Place.SETTLING, transaction.settled_ids(self._queue)),
                (Place.SENDING, transaction.sent_ids(self._queue)),
            ):
                if message_id in ids:
                    return MessageState(message_id, place, transaction=state)
        return None

    def _delivering(self, message_id: int, consumer: ServerConsumer, since_ms: int) -> MessageState:
        deliveries = next(each.delivery_count for each in consumer.delivering.values() if each.message_id == message_id)
        return MessageState(
            message_id,
            Place.DELIVERING,
            deliveries=deliveries,
            consumer=_name(consumer),
            connection=_connection(consumer),
            since_ms=since_ms,
        )

    def _waiting(self, reference: MessageReference, ahead: int) -> MessageState:
        message = self._queue.read_waiting(reference)
        if message is None:
            return MessageState(reference.message_id, Place.SCHEDULED, at_ms=NEVER_MS, readable=False)
        consumers = self._consumers()
        group = group_of(message)
        return MessageState(
            reference.message_id,
            Place.WAITING,
            ahead,
            deliveries=reference.delivery_count,
            taken_by=frozenset(_name(each) for each in consumers if _takes(each, message)),
            wanted_elsewhere=self._wanted_elsewhere(message),
            group=group,
            group_consumer=self._group_consumer(group, consumers),
            group_member=self._group_member(group),
        )

    def _wanted_elsewhere(self, message: Message) -> bool:
        balancer = self._office.directory.address_of(self._queue).balancer
        return balancer is not None and balancer.redistribute(message, self._queue) is not None

    def _group_consumer(self, group: str | None, consumers: Iterable[ServerConsumer]) -> str | None:
        if group is None or self._queue.configuration.group_buckets == 0:
            return None
        owner = self._queue.groups.owners.get(self._queue.group_key(group))
        return next((_name(each) for each in consumers if each is owner), None)

    def _group_member(self, group: str | None) -> str | None:
        members, queue = self._node.members, self._queue
        if group is None or members is None or members.groups is None:
            return None
        routing_name = queue.address.name if queue.routing_type.name == "ANYCAST" else queue.name
        bound = members.groups.queue_of(group_key(group, routing_name))
        if bound is None or bound.endswith(self._node.services.node_id):
            return None
        return bound[-_NODE_ID_CHARACTERS:]


def _takes(consumer: ServerConsumer, message: Message) -> bool:
    return consumer.filter is None or consumer.filter.matches(message)


def _name(consumer: ServerConsumer) -> str:
    return f"{consumer.session.alias}:{consumer.consumer_id}"


def _connection(consumer: ServerConsumer) -> str:
    scope = consumer.session.connection
    return scope.remote_address or scope.connection_id
