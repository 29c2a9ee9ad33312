"""A session: the requests of one client, in order, carried out on the post office.

Requests that only ask or arrange something (create, delete, query) return or raise at once; what
they wrote to the log may be answered only through ``when_durable``. Requests that move messages
(send, acknowledge, commit, rollback) take ``done``, which is called exactly once, in the order of
the requests, when the answer may go out (ADR 0003); without ``done`` a failure goes to
``SessionCallback.operation_failed``. In both cases it leaves an open transaction rollback-only.

Acknowledgement modes are those of artemis-core s. 6.1: sends and acknowledgements each commit alone or with
the session's transaction.

Not here: what it asks of queues (``queue_requests``), sends (``send_requests``, ``large_requests``) and
does in XA branches (``xa``); packets, channels, confirmation windows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from understudy.config.model import Permission
from understudy.errors import BrokerError, IllegalState, LimitExceeded
from understudy.limits import CONSUMERS_PER_SESSION_MAX
from understudy.routing.filter import parse_filter
from understudy.routing.post_office import Done
from understudy.routing.queues.flow_control import ByteCredits, FlowControl
from understudy.routing.queues.queue import Queue
from understudy.session.callback import SessionCallback
from understudy.session.connection_scope import ConnectionScope
from understudy.session.consumer import BrowserConsumer, ServerConsumer
from understudy.session.large_requests import LargeRequests
from understudy.session.outcomes import ACCEPTED, EXPIRED, Outcome, apply_outcome
from understudy.session.queries import QueueQueryResult
from understudy.session.queue_requests import QueueRequests
from understudy.session.security import SessionSecurity
from understudy.session.send_requests import PreparedSends, SendRequests
from understudy.session.services import DEFAULT_OPTIONS, SessionOptions, SessionServices
from understudy.session.state import SessionState
from understudy.session.transaction import Transaction
from understudy.session.visibility import check_own, visible_queue
from understudy.session.xa import XaRequests
from understudy.store.reference import MessageReference, Part


class ServerSession(SessionState):
    """One session.

    Args:
        name: Chosen by the client, or by the protocol if it has no names.
        services: Of the node.
        callback: Sends to the client.
        connection: Connection of the client.
        security: Permissions of the client.
        options: Chosen by the client.

    Raises:
        SessionRejected: the user has as many sessions as it may have.
        LimitExceeded: the names are too long.
    """

    def __init__(
        self,
        name: str,
        services: SessionServices,
        *,
        callback: SessionCallback,
        connection: ConnectionScope,
        security: SessionSecurity,
        options: SessionOptions = DEFAULT_OPTIONS,
    ) -> None:
        services.registry.check_sessions(security.user)
        super().__init__(name, services, callback=callback, connection=connection, security=security, options=options)
        office, registry, resources = services.post_office, services.registry, services.resources
        self.started = False
        self.consumers: dict[int, ServerConsumer] = {}
        self._directory = office.directory
        self.queues = QueueRequests(self, office, registry)
        self.order.permit = self.queues.permit
        kind = PreparedSends if options.prefixes or services.validated_users else SendRequests
        self.sends = kind(self, office, resources.plain_sends, callback)
        self.send: Callable[..., None] = self.sends.send
        """``SendRequests.send`` itself: without a delegating call, because it is the most frequent request."""
        self.branches = XaRequests(self, resources, self.give_back)
        self.large = LargeRequests(self, self.sends, registry.uploads)
        if not options.xa and not (options.auto_commit_sends and options.auto_commit_acks):
            self._transaction = self._begin()
        registry.add(self)

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
        """What it holds goes back to its queue. Raises IllegalState."""
        self._close_consumer(self._consumer(consumer_id), failed=False)

    def _close_consumer(self, consumer: ServerConsumer, *, failed: bool) -> None:
        self.consumers.pop(consumer.consumer_id, None)
        consumer.started = False
        queue = consumer.queue
        self._office.cancel(queue, consumer.cancel(failed=failed), delay_redelivery=False)
        queue.remove_consumer(consumer)
        for listener in self._directory.listeners:
            listener.consumer_removed(queue, consumer)
        if not consumer.browse_only:
            self.queues.consumer_left(queue.name)

    def consumer_disconnected(self, consumer: ServerConsumer) -> None:
        """Its queue is being deleted."""
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
            consumer_id: Of the consumer.
            drained: Called after the last delivery, now or later, with the credit that was taken back.

        Raises:
            IllegalState: there is no such consumer.
        """
        self._consumer(consumer_id).drain(drained)

    def force_delivery(self, consumer_id: int, sequence: int) -> None:
        """Deliver what can be delivered, what this session sent before included, then the marker.
        Raises IllegalState.
        """
        consumer = self._consumer(consumer_id)
        context = self._office.context
        if self.order.sequence > context.durable:
            self.order.sequence = context.appended
            context.when_durable(context.appended, self._force_delivery, consumer, sequence)
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

    # -- messages ---------------------------------------------------------------------------------

    def acknowledge(self, consumer_id: int, message_id: int, done: Done | None = None) -> None:
        """Accept all deliveries of the consumer up to this message (``settle`` is for single ones)."""
        transaction = None if self.auto_commit_acks else self._transaction
        try:
            consumer = self._consumer(consumer_id)
            if not consumer.browse_only:
                self._accept(consumer.queue, consumer.take_through(message_id), transaction)
        except BrokerError as error:
            self.failed(error, done, transaction)
            return
        if done is not None:
            self._office.answer(self.order, done, self._office.context.appended)

    def settle(self, consumer_id: int, message_id: int, outcome: Outcome, done: Done | None = None) -> None:
        """Settle one delivery (``outcomes``).

        Args:
            consumer_id: Of the consumer that has the delivery.
            message_id: Of the message.
            outcome: What becomes of it.
            done: Called when that is durable; in a transaction, when the request was taken. An error is that the
                consumer does not have the delivery; except for EXPIRED the transaction can then only be rolled back.
        """
        transaction = None if self.auto_commit_acks or outcome is EXPIRED else self._transaction
        try:
            consumer = self._consumer(consumer_id)
            if not consumer.browse_only:
                part = consumer.take_one(message_id)
                if outcome is ACCEPTED:
                    self._accept(consumer.queue, [part], transaction)
                elif transaction is None:
                    apply_outcome(self._office, consumer, part[0], outcome)
                else:
                    transaction.settle(
                        consumer.queue, part, partial(apply_outcome, self._office, consumer, part[0], outcome)
                    )
        except BrokerError as error:
            self.failed(error, done, transaction)
            return
        if done is not None:
            self._office.answer(self.order, done, self._office.context.appended)

    @staticmethod
    def _accept(queue: Queue, parts: list[Part], transaction: Transaction | None) -> None:
        if transaction is None:
            queue.acknowledge(*parts)
        else:
            transaction.acknowledge(queue, parts)

    # -- transactions -----------------------------------------------------------------------------

    def _begin(self) -> Transaction:
        return Transaction(self._office, started_ms=self.services.clock.monotonic_ms(), within=self.work)

    def commit(self, done: Done | None = None) -> None:
        """Make the open transaction count; a new one begins. Without one nothing happens."""
        transaction = self._transaction
        if transaction is None or self.options.xa:
            if done is not None:
                self._office.answer(self.order, done)
            return
        self._transaction = self._begin()
        try:
            transaction.commit(self.order, done)
        except BrokerError as error:
            for queue, references in transaction.roll_back().items():
                self._office.cancel(queue, references)
            self.failed(error, done, None)

    def rollback(self, consider_last_message_as_delivered: bool = False, done: Done | None = None) -> None:
        """Undo the open transaction, in an XA session the branch it works in, and give back everything outstanding
        (artemis-core s. 6.4). An XA session then works in no branch, as in Artemis.
        """
        if self.options.xa:
            self.give_back(self.branches.roll_back_work(), keep_first=consider_last_message_as_delivered)
            if done is not None:
                self._office.answer(self.order, done)
            return
        self._roll_back(failed=False, keep_first=consider_last_message_as_delivered)
        if done is not None:
            self._office.answer(self.order, done)

    def _roll_back(self, *, failed: bool, keep_first: bool) -> None:
        returned: dict[Queue, list[MessageReference]] = {}
        if self._transaction is not None:
            transaction, self._transaction = self._transaction, self._begin()
            returned = transaction.roll_back()
        self.give_back(returned, failed=failed, keep_first=keep_first)

    def give_back(
        self, returned: dict[Queue, list[MessageReference]], *, failed: bool = False, keep_first: bool = False
    ) -> None:
        """Deliveries of a transaction that was rolled back, and with them everything outstanding."""
        for consumer in self.consumers.values():
            outstanding = consumer.cancel(failed=failed, keep_first=keep_first)
            if outstanding:
                returned.setdefault(consumer.queue, []).extend(outstanding)
        for queue, references in returned.items():
            self._office.cancel(queue, references)

    # -- end --------------------------------------------------------------------------------------

    def release_parts(self) -> None:
        """Its protocol has ended it and asks nothing any more: drop the parts that refer back to it, so that
        reference counts free the session. Answers under way need none of them.
        """
        self.order.permit = None
        del self.send, self.sends, self.queues, self.branches, self.large

    def close(self, failed: bool) -> None:
        """Roll back what is open and give everything back.

        Args:
            failed: The connection was lost rather than closed; delivery counts stay (artemis-core s. 6.4).
        """
        if self.closed:
            return
        self.closed = True
        self.started = False
        self.large.discard()
        for consumer in self.consumers.values():
            consumer.started = False
        self.branches.close(failed=failed)
        if self._transaction is not None:
            self._roll_back(failed=failed, keep_first=False)
            self._transaction = None
        for consumer in list(self.consumers.values()):
            self._close_consumer(consumer, failed=failed)
        self.sends.close()
        self.names.close()
        self.services.registry.remove(self)
