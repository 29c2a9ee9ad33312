"""Requests of a session about addresses and queues: create, delete, query (artemis-core s. 4.2, 12.4).

Each request is carried out or raises at once; its answer may be sent only through ``SessionState.when_durable``.
Permissions are asked for here, before anything is made. Answers to queries have every field of the newest responses.

A client sees a name if it has any permission there. A query has no permission of its own, so a client without any
permission on an address gets the same refusal whether the address exists or not. A temporary queue belongs to the user
who made it: another user needs ``manage`` to consume from it or to delete it, even if the roles permit more on names of
that form (docs/operate/security.md, class 9c).

Not here: consumers, messages, packets.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from understudy.dataclass import dataclass
from understudy.errors import NotAuthorized, QueueNotFound
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.configuration import QueueConfiguration, check_no_direct_replies, split_fqqn
from understudy.routing.addresses.directory import Directory
from understudy.routing.addresses.settings import AddressSettings
from understudy.routing.addresses.updates import change_routing_types
from understudy.routing.lifecycle.auto_deletion import delete_unbound
from understudy.routing.queues.queue import Queue
from understudy.session.callback import SessionSecurity
from understudy.session.connection_scope import ConnectionScope
from understudy.session.state import SessionState
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
            AddressNotFound: it would answer a direct request of AMQP 0-9-1, as clients make the address first.
        """
        name, wanted = self._state.prefixes.split(name)
        if wanted is not None:
            routing_types = (wanted,)
        self._state.security.check(Permission.CREATE_ADDRESS, name)
        existing = self._directory.addresses.get(name)
        if existing is None:
            check_no_direct_replies(name)
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
        """Check the permission to make an address or queue for a message of the session. Raises NotAuthorized."""
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
        if address is None:
            check_no_direct_replies(name)

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
        """A consumer of the queue is gone; one that exists for its consumers only is deleted with the last of them."""
        queue = self._directory.queues.get(name)
        if queue is not None and not queue.consumers.count and name in self._directory.transient_queues:
            if self._state.connection.keeps_left_queues:
                self._state.connection.left_queues[name] = queue
            else:
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


@dataclass(frozen=True, slots=True)
class QueueQueryResult:
    """Answer to a query of a queue, the fields of SESS_QUEUEQUERY_RESP_V3."""

    exists: bool
    name: str
    address: str
    durable: bool
    temporary: bool
    filter: str | None
    consumer_count: int
    message_count: int
    auto_create_queues: bool
    auto_created: bool
    purge_on_no_consumers: bool
    routing_type: RoutingType
    max_consumers: int
    exclusive: bool
    last_value: bool
    default_consumer_window_size: int
    last_value_key: str | None
    non_destructive: bool
    consumers_before_dispatch: int
    delay_before_dispatch: int
    group_rebalance: bool
    group_buckets: int
    auto_delete: bool
    auto_delete_delay: int
    auto_delete_message_count: int
    group_first_key: str | None
    ring_size: int
    enabled: bool | None
    group_rebalance_pause_dispatch: bool
    configuration_managed: bool


@dataclass(frozen=True, slots=True)
class AddressQueryResult:
    """Answer to a query of an address, the fields of SESS_BINDINGQUERY_RESP_V5."""

    exists: bool
    queue_names: tuple[str, ...]
    auto_create_queues: bool
    auto_create_addresses: bool
    default_purge_on_no_consumers: bool
    default_max_consumers: int
    default_exclusive: bool
    default_last_value: bool
    default_last_value_key: str | None
    default_non_destructive: bool
    default_consumers_before_dispatch: int
    default_delay_before_dispatch: int
    supports_multicast: bool
    supports_anycast: bool


def describe_queue(queue: Queue, settings: AddressSettings) -> QueueQueryResult:
    """A queue that exists."""
    full = queue.configuration
    return QueueQueryResult(
        exists=True,
        name=queue.name,
        address=queue.address.name,
        durable=full.durable,
        temporary=full.temporary,
        filter=queue.filter.text if queue.filter is not None else None,
        consumer_count=queue.consumers.count,
        message_count=queue.message_count,
        auto_create_queues=settings.auto_create_queues,
        auto_created=full.auto_created,
        purge_on_no_consumers=queue.purge_on_no_consumers,
        routing_type=queue.routing_type,
        max_consumers=_number(full.max_consumers, settings.default_max_consumers),
        exclusive=queue.exclusive,
        last_value=bool(full.last_value),
        default_consumer_window_size=settings.default_consumer_window_size,
        last_value_key=full.last_value_key,
        non_destructive=bool(full.non_destructive),
        consumers_before_dispatch=_number(full.consumers_before_dispatch, 0),
        delay_before_dispatch=_number(full.delay_before_dispatch, -1),
        group_rebalance=bool(full.group_rebalance),
        group_buckets=_number(full.group_buckets, -1),
        auto_delete=bool(full.auto_delete),
        auto_delete_delay=_number(full.auto_delete_delay, 0),
        auto_delete_message_count=_number(full.auto_delete_message_count, 0),
        group_first_key=full.group_first_key,
        ring_size=_number(full.ring_size, -1),
        enabled=queue.enabled,
        group_rebalance_pause_dispatch=bool(full.group_rebalance_pause_dispatch),
        configuration_managed=full.configuration_managed,
    )


def describe_missing_queue(name: str, address: str, settings: AddressSettings) -> QueueQueryResult:
    """A name that no queue has: the defaults a queue of it would get (artemis-core s. 12.4)."""
    return QueueQueryResult(
        exists=False,
        name=name,
        address=address,
        durable=True,
        temporary=False,
        filter=None,
        consumer_count=0,
        message_count=0,
        auto_create_queues=settings.auto_create_queues,
        auto_created=False,
        purge_on_no_consumers=settings.default_purge_on_no_consumers,
        routing_type=settings.default_queue_routing_type,
        max_consumers=settings.default_max_consumers,
        exclusive=settings.default_exclusive_queue,
        last_value=settings.default_last_value_queue or bool(settings.default_last_value_key),
        default_consumer_window_size=settings.default_consumer_window_size,
        last_value_key=settings.default_last_value_key,
        non_destructive=settings.default_non_destructive,
        consumers_before_dispatch=settings.default_consumers_before_dispatch,
        delay_before_dispatch=settings.default_delay_before_dispatch,
        group_rebalance=settings.default_group_rebalance,
        group_buckets=settings.default_group_buckets,
        # The wire example answers false here although auto-delete-queues defaults to true.
        auto_delete=settings.auto_delete_created_queues,
        auto_delete_delay=settings.auto_delete_queues_delay,
        auto_delete_message_count=settings.auto_delete_queues_message_count,
        group_first_key=settings.default_group_first_key,
        ring_size=settings.default_ring_size,
        enabled=None,
        group_rebalance_pause_dispatch=settings.default_group_rebalance_pause_dispatch,
        configuration_managed=False,
    )


def describe_management_queue(name: str, settings: AddressSettings) -> QueueQueryResult:
    """The management address asked for as a queue: it exists, and must not be created (artemis-core s. 4.2)."""
    missing = describe_missing_queue(name, name, settings)
    return replace(missing, exists=True, durable=True, auto_create_queues=False, routing_type=RoutingType.ANYCAST)


def describe_management_address(settings: AddressSettings) -> AddressQueryResult:
    """The management address: it takes both routing types and has no queues (artemis-core s. 4.2)."""
    return replace(
        describe_address(None, settings),
        exists=True,
        auto_create_queues=False,
        auto_create_addresses=False,
        supports_multicast=True,
        supports_anycast=True,
    )


def describe_address(
    address: Address | None, settings: AddressSettings, queue_names: tuple[str, ...] = ()
) -> AddressQueryResult:
    """An address, or what one of the name would get."""
    types = address.routing_types if address is not None else set()
    return AddressQueryResult(
        exists=address is not None,
        queue_names=queue_names,
        auto_create_queues=settings.auto_create_queues,
        auto_create_addresses=settings.auto_create_addresses,
        default_purge_on_no_consumers=settings.default_purge_on_no_consumers,
        default_max_consumers=settings.default_max_consumers,
        default_exclusive=settings.default_exclusive_queue,
        default_last_value=settings.default_last_value_queue,
        default_last_value_key=settings.default_last_value_key,
        default_non_destructive=settings.default_non_destructive,
        default_consumers_before_dispatch=settings.default_consumers_before_dispatch,
        default_delay_before_dispatch=settings.default_delay_before_dispatch,
        supports_multicast=RoutingType.MULTICAST in types,
        supports_anycast=RoutingType.ANYCAST in types,
    )


def _number(value: int | None, default: int) -> int:
    return default if value is None else value


def check_visible(
    security: SessionSecurity,
    asked: str,
    address: str,
    queue: str | None = None,
    *,
    purpose: Permission = Permission.CONSUME,
) -> None:
    """Check that a client has any permission on a name that it asks for.

    Args:
        asked: The name as the client gave it, the only one that the refusal names.
        address: That it stands for.
        queue: Likewise.
        purpose: The most common purpose of such a request, which a refusal names as the violation.

    Raises:
        NotAuthorized: it has none.
    """
    if _is_visible(security, address, queue):
        return
    with suppress(NotAuthorized):
        security.check(purpose, address, queue)
    raise NotAuthorized(f"user {security.user!r} has no permission on {asked!r}")


def _is_visible(security: SessionSecurity, address: str, queue: str | None) -> bool:
    return any(security.allows(permission, address, queue) for permission in Permission)


def queue_names(directory: Directory, security: SessionSecurity, address: str) -> tuple[str, ...]:
    """Names of the queues of an address; of a wildcard address those of every address that it covers, as far as
    the client may know of them.
    """
    known = directory.find_address(address)
    names = known.queue_names() if known is not None else []
    for covered in directory.covered_by(address):
        names += [name for name in covered.queue_names() if _is_visible(security, covered.name, name)]
    return tuple(names)


def find_visible(directory: Directory, security: SessionSecurity, name: str) -> Queue | None:
    """The queue of a name, plain or ``address::queue``; None if there is none.

    Raises:
        NotAuthorized: the client has no permission on it, or on the name if it is not there.
    """
    queue = directory.find_queue(name)
    if queue is not None:
        check_visible(security, name, queue.address.name, queue.name)
    else:
        fqqn = split_fqqn(name)
        check_visible(security, name, *(fqqn if fqqn is not None else (name, name)))
    return queue


def visible_queue(directory: Directory, security: SessionSecurity, name: str) -> Queue:
    """The queue of a name, plain or ``address::queue``. Raises QueueNotFound, NotAuthorized."""
    queue = find_visible(directory, security, name)
    if queue is None:
        raise QueueNotFound(f"no queue {name!r}")
    return queue


def check_own(queue: Queue, connection: ConnectionScope, security: SessionSecurity) -> None:
    """Check that a temporary queue was made on this connection or by this user.

    Raises:
        NotAuthorized: it belongs to another connection.
    """
    if not queue.temporary or connection.temporary_queues.get(queue.name) is queue:
        return
    if queue.configuration.user != security.user:
        security.check(Permission.MANAGE, queue.address.name, queue.name)
