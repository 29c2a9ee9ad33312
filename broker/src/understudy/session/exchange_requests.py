"""Requests of a session about exchanges, and queues as AMQP 0-9-1 knows them: permissions first, then the change.

| request | permission |
|---|---|
| declare, delete an exchange | createAddress, deleteAddress on its name |
| bind, unbind | send on the destination, consume on the source |
| publish | send on the exchange; through the default exchange on the address of the queue |
| declare, delete, purge a queue | those of CORE; purge: consume |

Each request is carried out or raises at once; its answer may be sent only through ``SessionState.when_durable``. Not
here: methods, virtual hosts (``protocols.amqp091``), routing (``routing.exchanges``).
"""

from __future__ import annotations

from dataclasses import replace

from understudy.errors import InvalidQueueConfiguration, NotAuthorized, QueueInUse, QueueNotFound
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.exchanges.errors import ExchangeMismatch, ExchangeNotFound, QueueLocked
from understudy.routing.exchanges.exchange import Exchange, ExchangeBinding, ExchangeConfiguration
from understudy.routing.exchanges.publishing import Published
from understudy.routing.lifecycle.auto_deletion import delete_unbound
from understudy.routing.post_office import Done
from understudy.routing.queues.queue import Queue
from understudy.session.queue_requests import QueueRequests
from understudy.session.send_requests import SendRequests
from understudy.session.state import SessionState
from understudy.terms import Permission
from understudy.wildcards import is_wild


class ExchangeRequests:
    """The exchanges side of one session."""

    __slots__ = ("_directory", "_queues", "_routing", "_sends", "_state")

    def __init__(self, state: SessionState, queues: QueueRequests, sends: SendRequests) -> None:
        self._state = state
        self._queues = queues
        self._sends = sends
        self._directory = state.office.directory
        self._routing = state.office.routing

    # -- exchanges --------------------------------------------------------------------------------

    def declare_exchange(self, configuration: ExchangeConfiguration) -> None:
        """Make an exchange. Raises NotAuthorized, and as ``Exchanges.declare``."""
        found = self._routing.exchanges.find(configuration.name)
        if found is not None and found.read_only:
            raise NotAuthorized(f"exchange {configuration.name!r} cannot be declared")
        self._state.security.check(Permission.CREATE_ADDRESS, configuration.name)
        if configuration.alternate is not None:
            self._state.security.check(Permission.SEND, configuration.alternate)
        self._routing.exchanges.declare(configuration)

    def delete_exchange(self, name: str, *, if_unused: bool) -> None:
        """Delete an exchange; one that is missing is not missed. Raises NotAuthorized, ExchangeInUse."""
        found = self._routing.exchanges.find(name)
        if found is None:
            return
        if found.predeclared:
            raise NotAuthorized(f"exchange {name!r} cannot be deleted")
        self._state.security.check(Permission.DELETE_ADDRESS, name)
        self._routing.exchanges.delete(name, if_unused=if_unused)

    def bind(self, binding: ExchangeBinding) -> None:
        """Make a binding. Raises NotAuthorized, QueueLocked, and as ``Exchanges.bind``."""
        self._check_binding(binding)
        self._routing.exchanges.bind(binding)

    def unbind(self, binding: ExchangeBinding) -> None:
        """Remove a binding; one that is missing is not missed, nor its ends. Raises NotAuthorized, QueueLocked."""
        try:
            self._check_binding(binding)
        except (ExchangeNotFound, QueueNotFound):
            # an exchange that was deleted with its last binding, as in RabbitMQ
            return
        self._routing.exchanges.unbind(binding)

    def _check_binding(self, binding: ExchangeBinding) -> None:
        security = self._state.security
        self._routing.exchanges.get(binding.source)
        if binding.to_exchange:
            if self._routing.exchanges.get(binding.destination).read_only:
                raise NotAuthorized(f"only the broker sends to exchange {binding.destination!r}")
            security.check(Permission.SEND, binding.destination)
        else:
            queue = self.queue(binding.destination)
            security.check(Permission.SEND, queue.address.name, queue.name)
        security.check(Permission.CONSUME, binding.source)

    # -- queues -----------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """A queue that this connection may use.

        Raises:
            QueueNotFound: there is none of this name.
            QueueLocked: it belongs to another connection.
        """
        queue = self._directory.queue(name)
        self._check_own(queue)
        self._routing.expiry.used(queue)
        return queue

    def _check_own(self, queue: Queue) -> None:
        if queue.internal:
            raise NotAuthorized(f"{queue.name!r} is a queue of the broker")
        if queue.temporary and self._state.connection.temporary_queues.get(queue.name) is not queue:
            raise QueueLocked(f"queue {queue.name!r} belongs to another connection")

    def check_exclusive(self, queue: Queue, *, exclusive: bool) -> None:
        """Check that this connection may declare an existing queue again, exclusive or not.

        Raises:
            QueueLocked: it belongs to another connection, or only one of both is exclusive.
            NotAuthorized: it is a queue of the broker.
        """
        self._check_own(queue)
        if exclusive is not queue.temporary:
            kind = "exclusive" if queue.temporary else "not exclusive"
            raise QueueLocked(f"queue {queue.name!r} exists and is {kind}")

    def declare_queue(self, configuration: QueueConfiguration) -> Queue:
        """Make a queue; one that exists must be the same.

        Raises:
            ExchangeMismatch: it exists with other properties.
            QueueLocked: it belongs to another connection, or only one of both is exclusive.
            NotAuthorized, InvalidQueueConfiguration, UnexpectedRoutingType, LimitExceeded, DiskFull
        """
        existing = self._directory.queues.get(configuration.name)
        if existing is None:
            if is_wild(configuration.name, self._directory.settings.wildcards):
                raise InvalidQueueConfiguration(f"queue {configuration.name!r} would be a wildcard address")
            arguments = configuration.arguments
            if arguments is not None and arguments.dead_letter_exchange:
                self._state.security.check(Permission.SEND, arguments.host + arguments.dead_letter_exchange)
            self._queues.create_queue(configuration)
            queue = self._directory.queue(configuration.name)
            self._routing.expiry.used(queue)
            return queue
        self.check_exclusive(existing, exclusive=configuration.temporary)
        known = existing.configuration
        wanted: dict[str, object] = {"durable": configuration.durable}
        present: dict[str, object] = {"durable": existing.durable}
        if known.arguments is not None and configuration.arguments is not None:
            # a queue of CORE has none of the properties that AMQP 0-9-1 could ask for
            wanted |= configuration.arguments.as_values()
            present |= known.arguments.as_values()
        for name in sorted(wanted.keys() | present.keys()):
            if wanted.get(name) != present.get(name):
                raise ExchangeMismatch(
                    f"queue {configuration.name!r} exists with {name} {present.get(name)!r}, not {wanted.get(name)!r}"
                )
        self._routing.expiry.used(existing)
        return existing

    def delete_queue(self, name: str, *, if_unused: bool, if_empty: bool) -> int:
        """Delete a queue; one that is missing is not missed. Returns the number of messages that were in it.

        Raises:
            QueueInUse: it has consumers or messages, and that was a reason to keep it.
            QueueLocked, NotAuthorized, DiskFull
        """
        queue = self._directory.queues.get(name)
        if queue is None:
            return 0
        self._check_own(queue)
        self._state.security.check(
            Permission.DELETE_DURABLE_QUEUE if queue.durable else Permission.DELETE_NON_DURABLE_QUEUE,
            queue.address.name,
            queue.name,
        )
        if if_unused and queue.consumers.count:
            raise QueueInUse(f"queue {name!r} has {queue.consumers.count} consumers")
        waiting = len(queue.pending)
        if if_empty and waiting:
            raise QueueInUse(f"queue {name!r} has {waiting} messages")
        self._directory.delete_queue(name, disconnect=True)
        delete_unbound(self._directory, queue.address.name)
        self._state.connection.temporary_queues.pop(name, None)
        return waiting

    def purge(self, name: str) -> int:
        """Drop the waiting messages of a queue. Returns how many. Raises QueueNotFound, QueueLocked, NotAuthorized."""
        queue = self.queue(name)
        self._state.security.check(Permission.CONSUME, queue.address.name, queue.name)
        return queue.purge()

    # -- messages ---------------------------------------------------------------------------------

    def exchange(self, name: str) -> Exchange:
        """The exchange of a name. Raises ExchangeNotFound."""
        return self._routing.exchanges.get(name)

    def find(self, name: str) -> Exchange | None:
        """The exchange of a name; None: there is none."""
        return self._routing.exchanges.find(name)

    def publish(self, published: Published, address: str, done: Done | None) -> tuple[Queue, ...]:
        """Take a message. Returns its queues; without one ``done`` is not called.

        Args:
            published: The message.
            address: On which the permission to send is needed.
            done: Called when the message is safe; in a transaction when it was taken.

        Raises:
            NotAuthorized, IllegalState: it may not be sent.
            PublishRejected, AddressFull, TransactionTooLarge: as ``Publishing.publish``.
        """
        state = self._state
        self._sends.check(address)
        users = state.services.validated_users
        if users:
            message = users.apply(published.message, state.options.validated_user)
            published = replace(published, message=message)
        return self._routing.publishing.publish(published, state.order, done, state.sending_transaction)
