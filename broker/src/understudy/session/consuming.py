"""The consuming side of a session: its consumers, their credit, and when they are delivered to.

Base of ``session.session.ServerSession``. Not here: what becomes of deliveries (``ServerSession.settle``).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.errors import IllegalState, LimitExceeded
from understudy.limits import CONSUMERS_PER_SESSION_MAX
from understudy.routing.filter import parse_filter
from understudy.routing.queues.flow_control import ByteCredits, FlowControl
from understudy.session.callback import SessionCallback
from understudy.session.connection_scope import ConnectionScope
from understudy.session.consumer import BrowserConsumer, ServerConsumer
from understudy.session.queries import QueueQueryResult
from understudy.session.queue_requests import QueueRequests
from understudy.session.security import SessionSecurity
from understudy.session.services import SessionOptions, SessionServices
from understudy.session.state import SessionState
from understudy.session.visibility import check_own, visible_queue
from understudy.terms import Permission


class ConsumingSession(SessionState):
    """A session with its consumers."""

    def __init__(
        self,
        name: str,
        services: SessionServices,
        *,
        callback: SessionCallback,
        connection: ConnectionScope,
        security: SessionSecurity,
        options: SessionOptions,
    ) -> None:
        super().__init__(name, services, callback=callback, connection=connection, security=security, options=options)
        self.started = False
        """Whether messages are delivered; ``start`` and ``stop`` change it."""
        self.consumers: dict[int, ServerConsumer] = {}
        self.queues = QueueRequests(self, services.post_office, services.registry)
        self.order.permit = self.queues.permit
        self._directory = services.post_office.directory

    @property
    def message_count_delivering(self) -> int:
        """Number of deliveries outstanding at its consumers."""
        return sum(len(consumer.delivering) for consumer in self.consumers.values())

    # -- consumers --------------------------------------------------------------------------------

    def create_consumer(
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
        self.check_open()
        if consumer_id in self.consumers:
            raise IllegalState(f"session {self.alias} has a consumer {consumer_id}")
        if len(self.consumers) >= CONSUMERS_PER_SESSION_MAX:
            raise LimitExceeded(f"{len(self.consumers)} consumers in a session, limit {CONSUMERS_PER_SESSION_MAX}")
        queue = visible_queue(self._directory, self.security, self.prefixes.plain(queue_name))
        if not browse_only:
            check_own(queue, self.connection, self.security)
        self.security.check(Permission.BROWSE if browse_only else Permission.CONSUME, queue.address.name, queue.name)
        selector = parse_filter(selector_text)
        flow = flow if flow is not None else ByteCredits()
        consumer: ServerConsumer
        if browse_only:
            consumer = BrowserConsumer(
                consumer_id, self, queue, selector, priority or 0, self._callback, self.consumer_disconnected, flow
            )
        else:
            consumer = ServerConsumer(
                consumer_id, self, queue, selector, priority or 0, self._callback, self.consumer_disconnected, flow
            )
            consumer.started = self.started
            queue.add_consumer(consumer)
        self.consumers[consumer_id] = consumer
        for listener in self._directory.listeners:
            listener.consumer_added(queue, consumer)
        return self.queues.query_queue(queue.name)

    def close_consumer(self, consumer_id: int) -> None:
        """Close a consumer; its deliveries return to the queue. Raises IllegalState."""
        self._close_consumer(self._consumer(consumer_id), failed=False)

    def _close_consumer(self, consumer: ServerConsumer, *, failed: bool) -> None:
        self.consumers.pop(consumer.consumer_id, None)
        consumer.started = False
        queue = consumer.queue
        self._office.redelivery.cancel(queue, consumer.cancel(failed=failed), delay_redelivery=False)
        queue.remove_consumer(consumer)
        for listener in self._directory.listeners:
            listener.consumer_removed(queue, consumer)
        if not consumer.browse_only:
            self.queues.consumer_left(queue.name)

    def consumer_disconnected(self, consumer: ServerConsumer) -> None:
        """Disconnect a consumer whose queue is being deleted."""
        self._close_consumer(consumer, failed=False)

    def _consumer(self, consumer_id: int) -> ServerConsumer:
        consumer = self.consumers.get(consumer_id)
        if consumer is None:
            raise IllegalState(f"session {self.alias} has no consumer {consumer_id}")
        return consumer

    def receive_consumer_credits(self, consumer_id: int, amount: int) -> None:
        """The client grants credit to a consumer (``flow_control``). Raises IllegalState."""
        self._consumer(consumer_id).receive_credits(amount)

    def drain(self, consumer_id: int, drained: Callable[[int], None]) -> None:
        """Deliver what the credit of a consumer allows, then take back the rest of it.

        Args:
            drained: Called after the last delivery, now or later, with the credit that was taken back.

        Raises:
            IllegalState: there is no such consumer.
        """
        self._consumer(consumer_id).drain(drained)

    def force_delivery(self, consumer_id: int, sequence: int) -> None:
        """Deliver waiting messages, earlier sends of this session included, then the marker.
        Raises IllegalState.
        """
        consumer = self._consumer(consumer_id)
        context = self._office.store.context
        lane = self.order.lane or context
        if self.order.sequence > lane.durable:
            self.order.sequence = context.appended
            lane.when_durable(context.appended, self._force_delivery, consumer, sequence)
        else:
            consumer.force_delivery(sequence)

    def _force_delivery(self, consumer: ServerConsumer, sequence: int) -> None:
        if self.consumers.get(consumer.consumer_id) is consumer:
            consumer.force_delivery(sequence)

    def start(self) -> None:
        """Deliveries may begin."""
        if not self.started:
            self.started = True
            for consumer in list(self.consumers.values()):
                consumer.started = True
                consumer.prompt()

    def stop(self) -> None:
        """No deliveries until ``start``; browsers go on."""
        self.started = False
        for consumer in self.consumers.values():
            if not consumer.browse_only:
                consumer.started = False

    def pause_deliveries(self) -> None:
        """The socket is gone: ask before the next delivery."""
        for consumer in self.consumers.values():
            consumer.allowance_bytes = 0

    def resume_deliveries(self) -> None:
        """The socket takes data again."""
        for consumer in list(self.consumers.values()):
            consumer.prompt()
