"""Answers to queue and address queries, with every field of the newest responses (artemis-core s. 4.2, 12.4)."""

from __future__ import annotations

from dataclasses import replace

from understudy.dataclass import dataclass
from understudy.routing.address import Address
from understudy.routing.queues.queue import Queue
from understudy.routing.settings import AddressSettings
from understudy.terms import RoutingType


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
