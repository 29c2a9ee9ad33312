"""A session: the requests of one client, in order, carried out on the post office.

Requests that only ask or arrange something (create, delete, query) return or raise at once; what
they wrote to the log may be answered only through ``SessionState.when_durable``. Requests that move messages
(send, acknowledge, commit, rollback) take ``done``, which is called exactly once, in the order of
the requests, when the answer may go out (ADR 0003); without ``done`` a failure goes to
``SessionCallback.operation_failed``. In both cases it leaves an open transaction rollback-only.

Acknowledgement modes are those of artemis-core s. 6.1: sends and acknowledgements each commit alone or with
the session's transaction.

A session is a state and parts that know the state only: consumers, sends, uploads of large messages, requests about
queues, work in XA branches. The session itself does what concerns several of them: settling deliveries, transactions,
and the end. Not here: packets, channels, confirmation windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from understudy.errors import BrokerError, IllegalState, TransactionRolledBack
from understudy.kernel import Sends
from understudy.routing.batch import Answered
from understudy.routing.post_office import Done
from understudy.routing.queues.queue import Queue
from understudy.session.callback import SessionCallback, SessionSecurity
from understudy.session.connection_scope import ConnectionScope
from understudy.session.consumer import ServerConsumer
from understudy.session.consumers import SessionConsumers
from understudy.session.exchange_requests import ExchangeRequests
from understudy.session.outcomes import ACCEPTED, EXPIRED, Outcome, apply_outcome
from understudy.session.queue_requests import QueueRequests
from understudy.session.send_requests import SendRequests
from understudy.session.services import DEFAULT_OPTIONS, SessionOptions, SessionServices
from understudy.session.state import SessionState
from understudy.session.transaction import Transaction
from understudy.session.uploads import Uploads
from understudy.session.xa import XaRequests
from understudy.store.messages.reference import MessageReference, Part


class ServerSession:
    """One session.

    Args:
        name: Chosen by the client, or by the protocol if it has no names.
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
        self.state = state = SessionState(
            name, services, callback=callback, connection=connection, security=security, options=options
        )
        self.queues = QueueRequests(state)
        state.order.permit = self.queues.permit
        self.consumers = SessionConsumers(state, self.queues)
        self.sends = SendRequests(state)
        self.uploads = Uploads(state, self.sends)
        self.exchanges = ExchangeRequests(state, self.queues, self.sends)
        self.branches = XaRequests(state, self.give_back)
        self._office = state.office
        if not options.xa and not (options.auto_commit_sends and options.auto_commit_acks):
            state.enlist(self._begin())
        services.registry.add(self)

    def __repr__(self) -> str:
        return repr(self.state)

    # -- messages ---------------------------------------------------------------------------------

    def acknowledge(self, consumer_id: int, message_id: int, done: Done | None = None) -> None:
        """Accept all deliveries of the consumer up to this message (``settle`` is for single ones)."""
        state = self.state
        transaction = None if state.auto_commit_acks else state.transaction
        try:
            consumer = self._settling(consumer_id, transaction)
            if not consumer.browse_only:
                self._accept(consumer.queue, consumer.take_through(message_id), transaction)
        except BrokerError as error:
            state.failed(error, done, transaction)
            return
        if done is not None:
            self._office.acceptance.answer(state.order, done, self._office.store.context.appended)

    def acknowledge_each(self, consumer_id: int, message_ids: Sequence[int]) -> None:
        """Accept all deliveries of the consumer up to each of these messages in turn, in one record of the log as far
        as they are outstanding (ADR 0212). No answer is wanted.
        """
        state = self.state
        transaction = None if state.auto_commit_acks else state.transaction
        count, consumer = 0, self.consumers.by_id.get(consumer_id)
        if consumer is not None and not consumer.browse_only:
            count, parts = consumer.take_through_each(message_ids)
            if count:
                try:
                    self._accept(consumer.queue, parts, transaction)
                except BrokerError as error:
                    state.failed(error, None, transaction)
        for message_id in message_ids[count:]:
            self.acknowledge(consumer_id, message_id)

    def accept(self, consumer_id: int, stretches: Iterable[Sequence[int]]) -> None:
        """Accept deliveries in one record of the log. One that the consumer does not have fails; the others are
        accepted.

        Args:
            consumer_id: Id of the consumer that has the deliveries.
            stretches: Message ids; those of a stretch were delivered one after the other, and none between them is
                outstanding.
        """
        state = self.state
        transaction = None if state.auto_commit_acks else state.transaction
        parts: list[Part] = []
        try:
            consumer = self._settling(consumer_id, transaction)
            delivering = consumer.delivering
            for ids in stretches:
                if next(iter(delivering), None) == ids[0] and ids[-1] in delivering:
                    parts += consumer.take_through(ids[-1])
                    continue
                for message_id in ids:
                    try:
                        parts.append(consumer.take_one(message_id))
                    except IllegalState as error:
                        state.failed(error, None, transaction)
            if parts:
                self._accept(consumer.queue, parts, transaction)
        except BrokerError as error:
            state.failed(error, None, transaction)

    def settle(self, consumer_id: int, message_id: int, outcome: Outcome, done: Done | None = None) -> None:
        """Settle one delivery (``outcomes``).

        Args:
            consumer_id: Id of the consumer that has the delivery.
            outcome: What becomes of it.
            done: Called when that is durable; in a transaction, when the request was taken. An error is that the
                consumer does not have the delivery; except for EXPIRED the transaction can then only be rolled back.
        """
        state = self.state
        transaction = None if state.auto_commit_acks or outcome is EXPIRED else state.transaction
        try:
            consumer = self._settling(consumer_id, transaction)
            if not consumer.browse_only:
                part = consumer.take_one(message_id)
                if outcome is ACCEPTED:
                    self._accept(consumer.queue, [part], transaction)
                elif transaction is None:
                    apply_outcome(self._office, consumer.queue, consumer, part[0], outcome)
                else:
                    transaction.settle(
                        consumer.queue,
                        part,
                        partial(apply_outcome, self._office, consumer.queue, consumer, part[0], outcome),
                    )
        except BrokerError as error:
            state.failed(error, done, transaction)
            return
        if done is not None:
            self._office.acceptance.answer(state.order, done, self._office.store.context.appended)

    def _settling(self, consumer_id: int, transaction: Transaction | None) -> ServerConsumer:
        """The consumer whose deliveries are settled.

        Raises:
            IllegalState: the session has no such consumer.
            TransactionRolledBack: likewise, in a transaction: when the broker closed the consumer, the deliveries went
                back to the queue, so the transaction cannot have them.
        """
        if transaction is not None and consumer_id not in self.consumers.by_id:
            raise TransactionRolledBack(
                f"session {self.state.alias} has no consumer {consumer_id}: its deliveries are back in the queue"
            )
        return self.consumers.with_id(consumer_id)

    @staticmethod
    def _accept(queue: Queue, parts: list[Part], transaction: Transaction | None) -> None:
        if transaction is None:
            queue.acknowledge(*parts)
        else:
            transaction.acknowledge(queue, parts)

    # -- transactions -----------------------------------------------------------------------------

    def _begin(self) -> Transaction:
        state = self.state
        return Transaction(self._office, started_ms=state.services.clock.monotonic_ms(), within=state.work)

    def begin_transactions(self) -> None:
        """Work in transactions from now on (tx.select of AMQP 0-9-1)."""
        self.state.auto_commit_sends = self.state.auto_commit_acks = False
        self.state.enlist(self._begin())

    def undo(self) -> None:
        """Undo the open transaction and begin another one; other deliveries stay with their consumers."""
        transaction = self.state.transaction
        if transaction is not None:
            self.state.enlist(self._begin())
            for queue, references in transaction.roll_back().items():
                self._office.redelivery.cancel(queue, references)

    def commit(self, done: Done | None = None) -> None:
        """Make the open transaction count; a new one begins. Without one nothing happens."""
        state = self.state
        transaction = state.transaction
        if transaction is None or state.options.xa:
            if done is not None:
                self._office.acceptance.answer(state.order, done)
            return
        state.enlist(self._begin())
        try:
            transaction.commit(state.order, done)
        except BrokerError as error:
            for queue, references in transaction.roll_back().items():
                self._office.redelivery.cancel(queue, references)
            state.failed(error, done, None)

    def send_and_commit(self, sends: Sends, answered: Answered) -> bool:
        """Take a message that is alone in its transaction, with the commit: as a message without a transaction, which
        stays open and empty (ADR 0209).

        Args:
            sends: One message without a duplicate id.
            answered: Called when the message is durable.

        Returns:
            Whether it was taken; if not, nothing has happened.
        """
        state = self.state
        transaction = state.transaction
        if transaction is None or not self.sends.send_alone(sends, answered):
            return False
        transaction.started_ms = state.services.clock.monotonic_ms()
        return True

    def acknowledge_and_commit(
        self,
        consumer_id: int,
        message_ids: Sequence[int],
        correlation_ids: Sequence[int],
        answer_run: Callable[[Sequence[int], BrokerError | None], None],
    ) -> None:
        """Accept all deliveries of the consumer up to each of these messages in turn, each time with a commit. Those
        that are outstanding are one record of the log (ADR 0200), like acknowledgements without a transaction.

        Args:
            correlation_ids: One for each commit.
            answer_run: Called with correlation ids and an error or None, in the order of the commits, until all are
                answered.
        """
        state = self.state
        transaction, consumer = state.transaction, self.consumers.by_id.get(consumer_id)
        count = 0
        if (
            transaction is not None
            and transaction.untouched
            and consumer is not None
            and not (state.auto_commit_acks or state.options.xa or consumer.browse_only)
        ):
            count, parts = consumer.take_through_each(message_ids)
            if count:
                queue = consumer.queue
                transaction.started_ms = state.services.clock.monotonic_ms()
                logged = queue.acknowledge(*parts)
                answer = partial(answer_run, correlation_ids[:count])
                self._office.acceptance.answer_settled(state.order, answer, queue, logged=logged)
        for number in range(count, len(message_ids)):
            self.acknowledge(consumer_id, message_ids[number])
            self.commit(partial(answer_run, correlation_ids[number : number + 1]))

    def rollback(self, consider_last_message_as_delivered: bool = False, done: Done | None = None) -> None:
        """Undo the open transaction, in an XA session the branch it works in, and give back everything outstanding
        (artemis-core s. 6.4). An XA session then works in no branch, as in Artemis.
        """
        state = self.state
        if state.options.xa:
            self.give_back(self.branches.roll_back_work(), keep_first=consider_last_message_as_delivered)
            if done is not None:
                self._office.acceptance.answer(state.order, done)
            return
        returned: dict[Queue, list[MessageReference]] = {}
        transaction = state.transaction
        if transaction is not None:
            state.enlist(self._begin())
            returned = transaction.roll_back()
        self.give_back(returned, keep_first=consider_last_message_as_delivered)
        if done is not None:
            self._office.acceptance.answer(state.order, done)

    def give_back(self, returned: dict[Queue, list[MessageReference]], *, keep_first: bool = False) -> None:
        """Deliveries of a transaction that was rolled back, and with them everything outstanding."""
        for consumer in self.consumers.by_id.values():
            outstanding = consumer.cancel(failed=False, keep_first=keep_first)
            if outstanding:
                returned.setdefault(consumer.queue, []).extend(outstanding)
        for queue, references in returned.items():
            self._office.redelivery.cancel(queue, references)

    def give_back_of(
        self, consumer_id: int, message_ids: Iterable[int], *, delay_redelivery: bool = False
    ) -> ServerConsumer | None:
        """Return single deliveries to their queue, in no transaction. They count as delivered, because the client may
        have seen them.

        Args:
            consumer_id: The consumer has the deliveries.
            message_ids: Messages that were delivered.
            delay_redelivery: Whether they wait for the redelivery delay of the address settings.

        Returns:
            The consumer that had them; None: it is gone, and they are back already.
        """
        consumer = self.consumers.by_id.get(consumer_id)
        if consumer is not None:
            parts = [consumer.delivering.take_one(message_id) for message_id in message_ids]
            references = [reference for part in parts for reference in part]
            self._office.redelivery.cancel(consumer.queue, references, delay_redelivery=delay_redelivery)
        return consumer

    # -- end --------------------------------------------------------------------------------------

    def release_parts(self) -> None:
        """Drop what refers back to the session and its state, so that reference counts free them; its protocol has
        ended it and asks nothing any more. Answers under way need none of that.
        """
        self.state.order.permit = None
        del self.branches

    def close(self, failed: bool) -> None:
        """Roll back the open transaction and return all unsettled messages. A redelivery delay holds for those that the
        transaction had acknowledged, as in Artemis.

        Args:
            failed: The connection was lost rather than closed; delivery counts stay (artemis-core s. 6.4).
        """
        state = self.state
        if state.closed:
            return
        state.closed = True
        self.consumers.started = False
        self.uploads.discard()
        for consumer in self.consumers.by_id.values():
            consumer.started = False
        self.branches.close(failed=failed)
        if state.transaction is not None:
            for queue, references in state.transaction.roll_back().items():
                self._office.redelivery.cancel(queue, references)
            state.enlist(None)
        for consumer in list(self.consumers.by_id.values()):
            self.consumers.end(consumer, failed=failed)
        self.sends.close()
        state.names.close()
        state.services.registry.remove(self)
