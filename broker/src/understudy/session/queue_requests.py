"""Requests of a session about addresses and queues: create, delete, query (artemis-core s. 4.2).

Each request is carried out or raises at once; its answer may be sent only through
``SessionState.when_durable``. Permissions are asked for here, before anything is made.

Not here: consumers, messages, packets.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from understudy.routing.configuration import QueueConfiguration, split_fqqn
from understudy.routing.lifecycle.auto_deletion import delete_unbound
from understudy.routing.updates import change_routing_types
from understudy.session.queries import (
    AddressQueryResult,
    QueueQueryResult,
    describe_address,
    describe_management_address,
    describe_management_queue,
    describe_missing_queue,
    describe_queue,
)
from understudy.session.state import SessionState
from understudy.session.visibility import check_own, check_visible, find_visible, queue_names, visible_queue
from understudy.terms import Permission, RoutingType


class QueueRequests:
    """The addresses and queues side of one session."""

    __slots__ = ("_directory", "_office", "_registry", "_state")

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._registry = state.services.registry
        self._office = state.office
        self._directory = state.office.directory

    def create_address(self, name: str, routing_types: Collection[RoutingType], *, auto_created: bool = False) -> None:
        """An address that routes in these ways. One that exists gets the ways it lacks and is else left as it is:
        two clients that find it missing both ask, and neither may fail.

        Raises:
            NotAuthorized, InvalidQueueConfiguration, LimitExceeded, DiskFull
        """
        name, wanted = self._state.prefixes.split(name)
        if wanted is not None:
            routing_types = (wanted,)
        self._state.security.check(Permission.CREATE_ADDRESS, name)
        existing = self._directory.addresses.get(name)
        if existing is None:
            self._directory.create_address(name, routing_types, auto_created=auto_created)
        else:
            change_routing_types(self._office, existing, existing.routing_types | set(routing_types))

    def create_queue(self, configuration: QueueConfiguration) -> None:
        """A new queue; a temporary one lives as long as the connection.

        Raises:
            QueueExists, AddressNotFound, UnexpectedRoutingType, InvalidSelector,
            InvalidQueueConfiguration, NotAuthorized, LimitExceeded, DiskFull
        """
        configuration = self._unprefixed(configuration).with_plain_name()
        if configuration.temporary:
            configuration = replace(configuration, durable=False)
        self._check_creation(configuration)
        self._registry.check_queues(self._state.security.user, self._directory.queues.values())
        queue = self._directory.create_queue(replace(configuration, user=self._state.security.user))
        if configuration.temporary:
            self._state.connection.temporary_queues[configuration.name] = queue

    def permit(self, permission: Permission, address: str, queue: str | None = None) -> None:
        """Before an address or queue is made for a message of the session. Raises NotAuthorized."""
        security = self._state.security
        security.check(permission, address, queue)
        if permission is Permission.CREATE_DURABLE_QUEUE:
            self._registry.check_queues(security.user, self._directory.queues.values())

    def _unprefixed(self, configuration: QueueConfiguration) -> QueueConfiguration:
        """The configuration without prefixes; that of the address says the routing type."""
        prefixes = self._state.prefixes
        if not prefixes:
            return configuration
        address, wanted = prefixes.split(configuration.address or configuration.name)
        return replace(
            configuration,
            name=prefixes.plain(configuration.name),
            address=address if configuration.address else configuration.address,
            routing_type=configuration.routing_type if wanted is None else wanted,
        )

    def _check_creation(self, configuration: QueueConfiguration) -> None:
        check, name = self._state.security.check, configuration.address or configuration.name
        durable = configuration.durable
        check(
            Permission.CREATE_DURABLE_QUEUE if durable else Permission.CREATE_NON_DURABLE_QUEUE,
            name,
            configuration.name,
        )
        address = self._directory.addresses.get(name)
        wanted = configuration.routing_type  # of which MULTICAST is 0
        if address is None or (wanted is not None and wanted not in address.routing_types):
            # also for a temporary queue, whose address is made with it
            check(Permission.CREATE_ADDRESS, name)

    def create_shared_queue(self, configuration: QueueConfiguration) -> None:
        """A queue for shared subscribers: nothing happens if the same one exists. One that is not
        durable goes with its last subscriber (JMS 2.0 s. 8.3.2).

        Raises:
            SharedQueueMismatch: one of the name exists with another address or filter.
            and the errors of ``create_queue`` except QueueExists.
        """
        configuration = self._unprefixed(configuration).with_plain_name()
        existing = self._directory.find_queue(configuration.name)
        if existing is not None:
            # before the answer discloses that the queue exists
            self._state.security.check(
                Permission.CREATE_DURABLE_QUEUE if configuration.durable else Permission.CREATE_NON_DURABLE_QUEUE,
                existing.address.name,
                existing.name,
            )
            self._directory.check_shared(existing, configuration)
            return
        if configuration.durable:
            self.create_queue(configuration)
            return
        if configuration.auto_delete is None:
            # for a client that makes it again after a failover, which does not say that it is shared
            configuration = replace(configuration, auto_delete=True)
        self.create_queue(configuration)
        self._directory.transient_queues.add(self._directory.queue(configuration.name).name)

    def consumer_left(self, name: str) -> None:
        """A consumer of the queue is gone: so is a shared queue that has no other consumer."""
        queue = self._directory.queues.get(name)
        if queue is not None and not queue.consumers.count and name in self._directory.transient_queues:
            self._directory.delete_queue(name)

    def delete_queue(self, name: str) -> None:
        """Raises QueueNotFound, QueueInUse, NotAuthorized, DiskFull."""
        state = self._state
        queue = visible_queue(self._directory, state.security, state.prefixes.plain(name))
        check_own(queue, state.connection, state.security)
        state.security.check(
            Permission.DELETE_DURABLE_QUEUE if queue.durable else Permission.DELETE_NON_DURABLE_QUEUE,
            queue.address.name,
            queue.name,
        )
        self._directory.delete_queue(queue.name)
        delete_unbound(self._directory, queue.address.name)
        self._state.connection.temporary_queues.pop(queue.name, None)

    def query_queue(self, name: str) -> QueueQueryResult:
        """Describe a queue name, plain or ``address::queue``. Raises NotAuthorized."""
        name = self._state.prefixes.plain(name)
        if name == self._state.management_address:
            return describe_management_queue(name, self._directory.settings.of(name))
        queue = find_visible(self._directory, self._state.security, name)
        if queue is not None:
            return describe_queue(queue, self._directory.settings.of(queue.address.name))
        fqqn = split_fqqn(name)
        address, queue_name = fqqn if fqqn is not None else (name, name)
        return describe_missing_queue(queue_name, address, self._directory.settings.of(address))

    def query_address(self, name: str) -> AddressQueryResult:
        """Describe an address. Raises NotAuthorized."""
        name = self._state.prefixes.plain(name)
        if name == self._state.management_address:
            return describe_management_address(self._directory.settings.of(name))
        fqqn = split_fqqn(name)
        address = fqqn[0] if fqqn is not None else name
        queue = fqqn[1] if fqqn is not None else None
        check_visible(self._state.security, name, address, queue, purpose=Permission.SEND)
        names = queue_names(self._directory, self._state.security, address)
        return describe_address(self._directory.find_address(address), self._directory.settings.of(address), names)
