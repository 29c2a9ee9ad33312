"""The consumers of a session, their credit, and when they are delivered to.

Not here: what becomes of deliveries (``ServerSession.settle``).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.errors import IllegalState, LimitExceeded
from understudy.limits import CONSUMERS_PER_SESSION_MAX
from understudy.routing.filter import parse_filter
from understudy.routing.queues.flow_control import ByteCredits, FlowControl
from understudy.routing.queues.queue import Queue
from understudy.session.consumer import BrowserConsumer, ServerConsumer
from understudy.session.queue_requests import QueueQueryResult, QueueRequests, check_own, visible_queue
from understudy.session.state import SessionState
from understudy.terms import Permission


class SessionConsumers:
    """The consuming side of one session."""

    __slots__ = ("_directory", "_first", "_office", "_queues", "_state", "by_id", "started")

    def __init__(self, state: SessionState, queues: QueueRequests) -> None:
        """``queues``: describes the queue of a consumer, and deletes one that is not used any more."""
        self._state = state
        self._queues = queues
        self._office = state.office
        self._directory = state.office.directory
        self.started = False
        """Whether messages are delivered; ``start`` and ``stop`` change it."""
        self.by_id: dict[int, ServerConsumer] = {}
        self._first = 0
        """Index of the consumer with which deliveries went on last."""

    @property
    def delivering_count(self) -> int:
        """Number of deliveries outstanding at the consumers."""
        return sum(len(consumer.delivering) for consumer in self.by_id.values())

    # -- consumers --------------------------------------------------------------------------------

    def create(
        self,
        consumer_id: int,
        queue_name: str,
        selector_text: str | None = None,
        browse_only: bool = False,
        priority: int | None = None,
        flow: FlowControl | None = None,
    ) -> QueueQueryResult:
        """Create a consumer, which has no credit yet.

        Args:
            consumer_id: Chosen by the client.
            queue_name: Plain or ``address::queue``.
            selector_text: Filter of the consumer.
            browse_only: Whether it only looks at messages.
            priority: Consumer priority.
            flow: Unit and rules of its credit; None = bytes, as in CORE.

        Returns:
            The description of its queue.

        Raises:
            QueueNotFound, InvalidSelector, MaxConsumersExceeded, NotAuthorized, LimitExceeded
            IllegalState: the id is taken.
            ObjectClosed: the session is closed.
        """
        state = self._state
        state.check_open()
        if consumer_id in self.by_id:
            raise IllegalState(f"session {state.alias} has a consumer {consumer_id}")
        if len(self.by_id) >= CONSUMERS_PER_SESSION_MAX:
            raise LimitExceeded(f"{len(self.by_id)} consumers in a session, limit {CONSUMERS_PER_SESSION_MAX}")
        queue = visible_queue(self._directory, state.security, state.prefixes.plain(queue_name))
        if not browse_only:
            check_own(queue, state.connection, state.security)
        state.security.check(Permission.BROWSE if browse_only else Permission.CONSUME, queue.address.name, queue.name)
        selector = parse_filter(selector_text)
        flow = flow if flow is not None else ByteCredits()
        kind = BrowserConsumer if browse_only else ServerConsumer
        consumer = kind(consumer_id, state, queue, selector, priority or 0, self.disconnected, flow)
        if not browse_only:
            consumer.started = self.started
            queue.add_consumer(consumer)
        self.by_id[consumer_id] = consumer
        for listener in self._directory.listeners:
            listener.consumer_added(queue, consumer)
        return self._queues.query_queue(queue.name)

    def close(self, consumer_id: int) -> None:
        """Close a consumer; its deliveries return to the queue. Raises IllegalState."""
        self.end(self.with_id(consumer_id), failed=False)

    def end(self, consumer: ServerConsumer, *, failed: bool) -> None:
        """Close a consumer of this session. ``failed``: the connection was lost, so delivery counts stay."""
        self.by_id.pop(consumer.consumer_id, None)
        consumer.started = False
        queue = consumer.queue
        self._office.redelivery.cancel(queue, consumer.cancel(failed=failed), delay_redelivery=False)
        if not consumer.retired:
            self._leave(consumer)

    def _leave(self, consumer: ServerConsumer) -> None:
        queue = consumer.queue
        queue.remove_consumer(consumer)
        for listener in self._directory.listeners:
            listener.consumer_removed(queue, consumer)
        if not consumer.browse_only:
            self._queues.consumer_left(queue.name)

    def retire(self, consumer_id: int) -> None:
        """Deliver nothing more to a consumer; its deliveries stay to be settled. Raises IllegalState."""
        consumer = self.with_id(consumer_id)
        consumer.started = False
        consumer.retired = True
        self._leave(consumer)
        self.forget_retired(consumer)

    def forget_retired(self, consumer: ServerConsumer) -> None:
        """Forget a consumer that is retired and has nothing left to be settled."""
        if consumer.retired and not consumer.delivering.count:
            self.by_id.pop(consumer.consumer_id, None)

    def fetch(self, consumer_id: int, queue: Queue, flow: FlowControl, done: Callable[[bool], None]) -> None:
        """Deliver at most one message of a queue, to a consumer that leaves at once.

        Args:
            consumer_id: Id of the consumer, to which the message is delivered.
            queue: The queue, which the session may use.
            flow: Flow with credit for one message.
            done: Called, now or later, with whether there was a message.

        Raises:
            MaxConsumersExceeded, NotAuthorized, ObjectClosed
            LimitExceeded: too many messages were fetched that are not settled.
        """
        state = self._state
        state.check_open()
        if len(self.by_id) >= CONSUMERS_PER_SESSION_MAX:
            raise LimitExceeded(
                f"{len(self.by_id)} consumers and fetched messages that are not settled in a session, limit "
                f"{CONSUMERS_PER_SESSION_MAX}"
            )
        state.security.check(Permission.CONSUME, queue.address.name, queue.name)
        consumer = ServerConsumer(consumer_id, state, queue, None, 0, self.disconnected, flow)
        consumer.started = True
        queue.add_consumer(consumer)
        self.by_id[consumer_id] = consumer

        def drained(unused: int) -> None:
            consumer.started = False
            consumer.retired = True
            queue.remove_consumer(consumer)
            self.forget_retired(consumer)
            done(not unused)

        consumer.drain(drained)

    def disconnected(self, consumer: ServerConsumer) -> None:
        """Disconnect a consumer whose queue is being deleted."""
        self.end(consumer, failed=False)

    def with_id(self, consumer_id: int) -> ServerConsumer:
        """The consumer of an id. Raises IllegalState."""
        consumer = self.by_id.get(consumer_id)
        if consumer is None:
            raise IllegalState(f"session {self._state.alias} has no consumer {consumer_id}")
        return consumer

    def receive_credits(self, consumer_id: int, amount: int) -> None:
        """The client grants credit to a consumer (``flow_control``). Raises IllegalState."""
        self.with_id(consumer_id).receive_credits(amount)

    def drain(self, consumer_id: int, drained: Callable[[int], None]) -> None:
        """Deliver what the credit of a consumer allows, then take back the rest of it.

        Args:
            drained: Called after the last delivery, now or later, with the credit that was taken back.

        Raises:
            IllegalState: there is no such consumer.
        """
        self.with_id(consumer_id).drain(drained)

    def force_delivery(self, consumer_id: int, sequence: int) -> None:
        """Deliver waiting messages, earlier sends of this session included, then the marker.
        Raises IllegalState.
        """
        consumer = self.with_id(consumer_id)
        context, order = self._office.store.context, self._state.order
        lane = order.lane or context
        if order.sequence > lane.durable:
            order.sequence = context.appended
            lane.when_durable(context.appended, self._force_delivery, consumer, sequence)
        else:
            consumer.force_delivery(sequence)

    def _force_delivery(self, consumer: ServerConsumer, sequence: int) -> None:
        if self.by_id.get(consumer.consumer_id) is consumer:
            consumer.force_delivery(sequence)

    def start(self) -> None:
        """Deliveries may begin."""
        if not self.started:
            self.started = True
            for consumer in list(self.by_id.values()):
                consumer.started = True
                consumer.prompt()

    def stop(self) -> None:
        """Deliver nothing to the consumers before ``start``; browsers go on."""
        self.started = False
        for consumer in self.by_id.values():
            if not consumer.browse_only:
                consumer.started = False

    def pause_deliveries(self) -> None:
        """Ask before the next delivery; called when the socket is gone."""
        for consumer in self.by_id.values():
            consumer.allowance_bytes = 0

    def resume_deliveries(self) -> None:
        """Go on with deliveries: the socket takes data again, or there is credit again.

        Every call begins with another consumer. The consumers of an AMQP 0-9-1 channel share a credit, and the first
        one could use it up each time.
        """
        consumers = list(self.by_id.values())
        self._first = first = (self._first + 1) % max(len(consumers), 1)
        for consumer in (*consumers[first:], *consumers[:first]):
            consumer.prompt()
