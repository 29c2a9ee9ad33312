"""State of one session that its parts share: identity, permissions, limits, open transaction, order of answers.

The parts of a session (``send_requests``, ``uploads``, ``queue_requests``, ``consumers``, ``xa``) get this state.
``session.session`` puts them together; no part knows the session.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, Final

from understudy.errors import BrokerError, DuplicateIdRejected, LimitExceeded, ObjectClosed, forget_frames
from understudy.limits import (
    METADATA_CHARACTERS_MAX,
    METADATA_PER_SESSION_MAX,
    TRANSACTION_MESSAGES_OF_SESSION_MAX,
)
from understudy.message import Message
from understudy.routing.post_office import Done, ResponseOrder
from understudy.routing.queues.queue import Queue
from understudy.session.broker_properties import admitted
from understudy.session.callback import SessionCallback, SessionSecurity
from understudy.session.connection_scope import ConnectionScope, HeldNames
from understudy.session.prefixes import AddressPrefixes
from understudy.session.services import SessionOptions, SessionServices
from understudy.session.transaction import Transaction, Work
from understudy.store.messages.large_messages import LargeMessages
from understudy.store.messages.reference import MessageReference

log = logging.getLogger(__name__)

#: Metadata key under which JMS clients store their client id (artemis-core s. 6.4).
CLIENT_ID_METADATA: Final = "jms-client-id"


class SessionState:
    """The shared state of one session."""

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
        self.name = name
        """Secret: a client reattaches with it (ADR 0009). ``alias`` is for display."""
        self.services = services
        self.connection = connection
        self.security = security
        self.options = options
        self.auto_commit_sends = options.auto_commit_sends
        self.auto_commit_acks = options.auto_commit_acks
        self.metadata: dict[str, str] = {}
        self._metadata_characters = 0
        self._told_of_origin = False
        """Whether the log says that origins of its messages are removed."""
        self.names = HeldNames(connection)
        self.names.hold(len(name) + len(options.default_address or ""))
        management = services.management
        self.management_address = management.address if management is not None else None
        self.closed = False
        self.created_ms = services.clock.wall_ms()
        self.office = services.post_office
        self.callback = callback
        self.order = ResponseOrder(None, security.user)
        """Order in which its requests are answered."""
        self.work = Work("session", TRANSACTION_MESSAGES_OF_SESSION_MAX, services.resources.work)
        """Number of messages in its open transaction and in the branches it started."""
        self._transaction: Transaction | None = None

    @property
    def alias(self) -> str:
        """Name of the session that logs and management show in the place of its own."""
        return hashlib.sha256(self.name.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.alias} of {self.connection.connection_id}>"

    @property
    def prefixes(self) -> AddressPrefixes:
        """Prefixes that its client may put before names."""
        return self.options.prefixes

    def wall_ms(self) -> int:
        """Wall time now."""
        return self.services.clock.wall_ms()

    def move(self, connection: ConnectionScope) -> None:
        """The session continues on another connection of its client."""
        self.connection = connection
        self.names.move(connection)

    def check_open(self) -> None:
        """Raises ObjectClosed."""
        if self.closed:
            raise ObjectClosed(f"session {self.alias} is closed")

    # -- answers ----------------------------------------------------------------------------------

    def in_order(self, call: Callable[..., None], *args: Any) -> None:
        """Call now, or after the answers to earlier requests of this session that wait. Used for answers to requests
        that change nothing.
        """
        self.office.acceptance.answer(self.order, lambda _: call(*args))

    def when_durable(self, call: Callable[..., None], *args: Any) -> None:
        """Call when everything written so far is durable, in the order of this session's answers. Used for answers to
        requests that create or delete something.
        """
        context = self.office.store.context
        if max(self.order.sequence, context.appended) > context.durable:
            self.order.sequence, self.order.lane = context.appended, None
            context.when_durable(context.appended, call, *args)
        else:
            call(*args)

    def failed(self, error: BrokerError, done: Done | None, transaction: Transaction | None) -> None:
        """Answer a failed request. A duplicate in a transaction is reported by the commit (artemis-core s. 5.1): the
        message itself is answered like any other, so that a client that waits for each goes on to its commit.
        """
        forget_frames(error)
        if transaction is not None:
            transaction.fail(error)
            if done is not None and isinstance(error, DuplicateIdRejected):
                self.office.acceptance.answer(self.order, done)
                return
        if done is not None:
            self.office.acceptance.answer(self.order, done, error=error)
        else:
            self.callback.operation_failed(error)

    def internal_error(self, bug: Exception) -> None:
        """An internal error occurred in an answer that waited until it was durable."""
        self.callback.internal_error(bug)

    # -- messages ---------------------------------------------------------------------------------

    def _origin_removed(self, message: Message) -> None:
        if not self._told_of_origin:
            self._told_of_origin = True
            log.warning(
                "messages of a bridge or tool lose their origin: its user may not send there, nor manage the address",
                extra={"user": self.security.user, "address": message.address, "session": self.alias},
            )

    def admitted(self, message: Message) -> Message:
        """A message of the client without properties that it may not set; a member of the cluster may set all."""
        if message.properties.may_be_reserved and not self.options.of_cluster:
            return admitted(message, self.security, self._origin_removed)
        return message

    @property
    def large_messages(self) -> LargeMessages:
        """Store of the bodies of large messages."""
        return self.office.store.large

    def quarantine(self, queue: Queue, reference: MessageReference, error: BrokerError) -> None:
        """The body of a large message that was being delivered cannot be read: no consumer gets it any more."""
        self.office.redelivery.quarantine(queue, reference, error)

    def complain(self, queue: Queue, reference: MessageReference, error: BrokerError) -> None:
        """The body of a large message that is browsed cannot be read; the message stays in its queue."""
        self.office.damaged.hold(queue, reference, error)

    # -- transaction ------------------------------------------------------------------------------

    @property
    def transaction(self) -> Transaction | None:
        """The open transaction of a transacted session."""
        return self._transaction

    @property
    def sending_transaction(self) -> Transaction | None:
        """Transaction of a message sent now."""
        return None if self.auto_commit_sends else self._transaction

    def enlist(self, transaction: Transaction | None) -> None:
        """Work in this transaction from now on, or in none (XA)."""
        self._transaction = transaction

    # -- metadata ---------------------------------------------------------------------------------

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
            # a client adds the client id again after a failover, when CREATESESSION has none
            self.connection.client_id = value

    def add_unique_metadata(self, key: str, value: str) -> None:
        """Raises DuplicateMetadata if another session has the pair, LimitExceeded."""
        registry = self.services.registry
        registry.check_free(self, key, value)
        self.add_metadata(key, value)
        registry.claim(self, key, value)
