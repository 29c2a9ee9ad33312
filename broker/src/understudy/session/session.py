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

import hashlib
from collections.abc import Callable
from typing import Any, Final

from understudy.config.model import Permission
from understudy.errors import (
    BrokerError,
    DuplicateIdRejected,
    IllegalState,
    LimitExceeded,
    ObjectClosed,
    forget_frames,
)
from understudy.limits import (
    CONSUMERS_PER_SESSION_MAX,
    METADATA_CHARACTERS_MAX,
    METADATA_PER_SESSION_MAX,
    TRANSACTION_MESSAGES_OF_SESSION_MAX,
)
from understudy.ports import Clock
from understudy.routing.filter import parse_filter
from understudy.routing.post_office import Done, Order, PostOffice
from understudy.routing.queues.queue import Queue
from understudy.session.callback import SessionCallback
from understudy.session.connection_scope import ConnectionScope
from understudy.session.consumer import BrowserConsumer, ServerConsumer
from understudy.session.held_names import HeldNames
from understudy.session.large_requests import LargeRequests
from understudy.session.management import Management
from understudy.session.prefixes import NO_PREFIXES, AddressPrefixes
from understudy.session.queries import QueueQueryResult
from understudy.session.queue_requests import QueueRequests
from understudy.session.registry import SessionRegistry
from understudy.session.resource_registry import ResourceRegistry
from understudy.session.security import SessionSecurity
from understudy.session.send_requests import PreparedSends, SendRequests
from understudy.session.transaction import Transaction, Work
from understudy.session.validated_users import ValidatedUsers
from understudy.session.visibility import check_own, visible_queue
from understudy.session.xa import XaRequests
from understudy.store.large_messages import LargeMessages
from understudy.store.reference import MessageReference, Part

#: Metadata by which JMS clients name themselves (artemis-core s. 6.4).
CLIENT_ID_METADATA: Final = "jms-client-id"
NO_VALIDATED_USERS: Final = ValidatedUsers()


class ServerSession:
    """One session."""

    def __init__(
        self,
        name: str,
        *,
        post_office: PostOffice,
        security: SessionSecurity,
        clock: Clock,
        callback: SessionCallback,
        connection: ConnectionScope,
        registry: SessionRegistry,
        resources: ResourceRegistry,
        min_large_message_size: int = 100 * 1024,
        auto_commit_sends: bool = True,
        auto_commit_acks: bool = True,
        pre_acknowledge: bool = False,
        xa: bool = False,
        default_address: str | None = None,
        management: Management | None = None,
        prefixes: AddressPrefixes = NO_PREFIXES,
        validated_users: ValidatedUsers = NO_VALIDATED_USERS,
        validated_user: str | None = None,
    ) -> None:
        registry.check_sessions(security.user)
        self.name = name
        self.connection = connection
        self.metadata: dict[str, str] = {}
        self._metadata_characters = 0
        self.names = HeldNames(connection)
        self.names.hold(len(name) + len(default_address or ""))
        self.min_large_message_size = min_large_message_size
        self.auto_commit_sends = auto_commit_sends
        self.auto_commit_acks = auto_commit_acks
        self.pre_acknowledge = pre_acknowledge
        self.xa = xa
        self.default_address = default_address
        self.prefixes = prefixes
        """That its client may put before names."""
        self.validated_users = validated_users
        """What is done with the validated user of its messages."""
        self.validated_user = validated_user
        """The user of its login, if that was checked."""
        self.management = management
        """Carries out requests to the management address; None: there is no such address."""
        self.management_address = management.address if management is not None else None
        self.started = False
        self.closed = False
        self.security = security
        self.created_ms = clock.wall_ms()
        self.consumers: dict[int, ServerConsumer] = {}
        self._office = post_office
        self._directory = post_office.directory
        self._clock = clock
        self._callback = callback
        self._registry = registry
        self.queues = QueueRequests(self, post_office, registry)
        self.order = Order(self.queues.permit, security.user)
        """In which its requests are answered."""
        kind = PreparedSends if prefixes or validated_users else SendRequests
        self.sends = kind(self, post_office, resources.plain_sends, callback)
        self.send: Callable[..., None] = self.sends.send
        """``SendRequests.send``, without a step between: it is most of what a session does."""
        self.work = Work("session", TRANSACTION_MESSAGES_OF_SESSION_MAX, resources.work)
        """What its open transaction and the branches it began hold."""
        self.branches = XaRequests(self, resources)
        self._transaction: Transaction | None = None
        self.large = LargeRequests(self, post_office.store, registry.uploads, clock)
        if not xa and not (auto_commit_sends and auto_commit_acks):
            self._transaction = self._begin()
        registry.add(self)

    @property
    def alias(self) -> str:
        """What it is called where others can read it: its name is a secret (ADR 0009)."""
        return hashlib.sha256(self.name.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def __repr__(self) -> str:
        return f"<ServerSession {self.alias} of {self.connection.connection_id}>"

    def move(self, connection: ConnectionScope) -> None:
        """Its client goes on with it on another connection."""
        self.connection = connection
        self.names.move(connection)

    def wall_ms(self) -> int:
        """Wall time now."""
        return self._clock.wall_ms()

    @property
    def transaction(self) -> Transaction | None:
        """The open transaction of a transacted session."""
        return self._transaction

    @property
    def message_count_delivering(self) -> int:
        """Deliveries outstanding at its consumers."""
        return sum(len(consumer.delivering) for consumer in self.consumers.values())

    def when_durable(self, call: Callable[..., None], *args: Any) -> None:
        """Call once everything that was written so far is durable, in the order of this session's
        answers. For answers to requests that arrange something.
        """
        context = self._office.context
        if max(self.order.sequence, context.appended) > context.durable:
            self.order.sequence = context.appended
            context.when_durable(context.appended, call, *args)
        else:
            call(*args)

    def met_bug(self, bug: Exception) -> None:
        """What it waited for to be durable met a bug of ours."""
        self._callback.met_bug(bug)

    # -- consumers --------------------------------------------------------------------------------

    def create_consumer(
        self,
        consumer_id: int,
        queue_name: str,
        selector_text: str | None = None,
        browse_only: bool = False,
        priority: int | None = None,
    ) -> QueueQueryResult:
        """A consumer, without credits yet. Returns the description of its queue.

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
        consumer: ServerConsumer
        if browse_only:
            consumer = BrowserConsumer(consumer_id, self, queue, selector, priority or 0, self._callback)
        else:
            consumer = ServerConsumer(
                consumer_id, self, queue, selector, priority or 0, self._callback, pre_acknowledge=self.pre_acknowledge
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

    def receive_consumer_credits(self, consumer_id: int, credit_bytes: int) -> None:
        """A FLOWTOKEN: -1 unlimited, 0 none, n more. Raises IllegalState."""
        self._consumer(consumer_id).receive_credits(credit_bytes)

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

    @property
    def large_messages(self) -> LargeMessages:
        """Where bodies of large messages are."""
        return self._office.store.large

    def set_aside(self, queue: Queue, reference: MessageReference, error: BrokerError) -> None:
        """The delivery of a large message whose body cannot be read; no consumer is given it any more."""
        self._office.set_aside(queue, reference, error)

    def complain(self, queue: Queue, reference: MessageReference, error: BrokerError) -> None:
        """The body of a large message cannot be read; the message stays where it is."""
        self._office.damaged.hold(queue, reference, error)

    @property
    def sending_transaction(self) -> Transaction | None:
        """What a message sent now belongs to."""
        return None if self.auto_commit_sends else self._transaction

    def reply_failed(self, error: BrokerError) -> None:
        """What a management request asked for was done, but its reply could not be sent."""
        self._callback.operation_failed(error)

    def failed(self, error: BrokerError, done: Done | None, transaction: Transaction | None) -> None:
        """Answer a failed request. A duplicate in a transaction is reported by the commit (artemis-core s. 5.1): the
        message itself is answered like any other, so that a client that waits for each goes on to its commit.
        """
        forget_frames(error)
        if transaction is not None:
            transaction.fail(error)
            if done is not None and isinstance(error, DuplicateIdRejected):
                self._office.answer(self.order, done)
                return
        if done is not None:
            self._office.answer(self.order, done, error=error)
        else:
            self._callback.operation_failed(error)

    def acknowledge(self, consumer_id: int, message_id: int, done: Done | None = None) -> None:
        """Everything delivered to the consumer up to this message is done."""
        transaction = None if self.auto_commit_acks else self._transaction
        try:
            consumer = self._consumer(consumer_id)
            if not consumer.browse_only:
                self._settle(consumer.queue, consumer.take_through(message_id), transaction)
        except BrokerError as error:
            self.failed(error, done, transaction)
            return
        if done is not None:
            self._office.answer(self.order, done, self._office.context.appended)

    def individual_acknowledge(self, consumer_id: int, message_id: int, done: Done | None = None) -> None:
        """This one delivery is done."""
        transaction = None if self.auto_commit_acks else self._transaction
        try:
            consumer = self._consumer(consumer_id)
            if not consumer.browse_only:
                self._settle(consumer.queue, [consumer.take_one(message_id)], transaction)
        except BrokerError as error:
            self.failed(error, done, transaction)
            return
        if done is not None:
            self._office.answer(self.order, done, self._office.context.appended)

    @staticmethod
    def _settle(queue: Queue, parts: list[Part], transaction: Transaction | None) -> None:
        if transaction is None:
            queue.acknowledge(*parts)
        else:
            transaction.acknowledge(queue, parts)

    def expire(self, consumer_id: int, message_id: int) -> None:
        """The client found it expired (SESS_EXPIRED). Raises IllegalState."""
        consumer = self._consumer(consumer_id)
        consumer.queue.expire_delivered(consumer.take_one(message_id)[0])

    # -- transactions -----------------------------------------------------------------------------

    def _begin(self) -> Transaction:
        return Transaction(self._office, started_ms=self._clock.monotonic_ms(), within=self.work)

    def enlist(self, transaction: Transaction | None) -> None:
        """Work in this transaction from now on, or in none (XA)."""
        self._transaction = transaction

    def commit(self, done: Done | None = None) -> None:
        """Make the open transaction count; a new one begins. Without one nothing happens."""
        transaction = self._transaction
        if transaction is None or self.xa:
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
        if self.xa:
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

    # -- metadata and end -------------------------------------------------------------------------

    def add_metadata(self, key: str, value: str) -> None:
        """Raises LimitExceeded."""
        length = len(key) + len(value)
        old = self.metadata.get(key)
        if old is None and len(self.metadata) >= METADATA_PER_SESSION_MAX:
            raise LimitExceeded(f"{len(self.metadata)} metadata entries in a session")
        grown = self._metadata_characters + length - (len(key) + len(old) if old is not None else 0)
        if grown > METADATA_CHARACTERS_MAX:
            raise LimitExceeded(f"{grown} characters of metadata in a session, limit {METADATA_CHARACTERS_MAX}")
        self.names.hold(length)
        if old is not None:
            self.names.release(len(key) + len(old))
        self._metadata_characters = grown
        self.metadata[key] = value
        if key == CLIENT_ID_METADATA:
            # also what a client adds again after a failover, when CREATESESSION names no client id
            self.connection.client_id = value

    def add_unique_metadata(self, key: str, value: str) -> None:
        """Raises DuplicateMetadata if another session carries the pair, LimitExceeded."""
        self._registry.check_free(self, key, value)
        self.add_metadata(key, value)
        self._registry.claim(self, key, value)

    def release_parts(self) -> None:
        """Its protocol has ended it and asks nothing any more: drop the parts that refer back to it, so that
        reference counts free the session. Answers under way need none of them.
        """
        self.order.permit = None
        del self.send, self.sends, self.queues, self.branches, self.large

    def check_open(self) -> None:
        """Raises ObjectClosed."""
        if self.closed:
            raise ObjectClosed(f"session {self.alias} is closed")

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
        self._registry.remove(self)
