"""Packets about addresses and queues: create, delete, query (artemis-core s. 4.2).

A field that is None is not specified: the address settings apply.
"""

from __future__ import annotations

from typing import ClassVar

from understudy.dataclass import dataclass
from understudy.wire.core.layout import (
    I8,
    I32,
    I64,
    Flag,
    FlagOrNull,
    I32OrNull,
    I64OrNull,
    Name,
    NameOrNull,
    Names,
    Packet,
    RoutingTypes,
    SimpleStringOrNull,
)

#: Routing type of a queue request that does not specify one.
ROUTING_TYPE_UNSET = -1

_QUEUE_GROUPS = ("last_value_key", "group_first_key", "ring_size", "enabled", "group_rebalance_pause_dispatch")


@dataclass(slots=True)
class CreateAddress(Packet):
    TYPE: ClassVar[int] = -11
    address: Name
    routing_types: RoutingTypes
    """0 multicast, 1 anycast."""
    requires_response: Flag = True
    auto_created: Flag = False


@dataclass(slots=True)
class CreateQueue(Packet):
    """Create a queue, the form before 129."""

    TYPE: ClassVar[int] = 34
    address: Name
    name: Name
    filter: SimpleStringOrNull = None
    durable: Flag = True
    temporary: Flag = False
    requires_response: Flag = True


@dataclass(slots=True)
class CreateQueueV2(CreateQueue):
    """Create a queue."""

    TYPE: ClassVar[int] = -12
    GROUPS: ClassVar[tuple[str, ...]] = ("exclusive", *_QUEUE_GROUPS)
    auto_created: Flag = False
    routing_type: I8 = ROUTING_TYPE_UNSET
    max_consumers: I32 = -1
    purge_on_no_consumers: Flag = False
    exclusive: FlagOrNull = None
    last_value: FlagOrNull = None
    last_value_key: NameOrNull = None
    non_destructive: FlagOrNull = None
    consumers_before_dispatch: I32OrNull = None
    delay_before_dispatch: I64OrNull = None
    group_rebalance: FlagOrNull = None
    group_buckets: I32OrNull = None
    auto_delete: FlagOrNull = None
    auto_delete_delay: I64OrNull = None
    auto_delete_message_count: I64OrNull = None
    group_first_key: NameOrNull = None
    ring_size: I64OrNull = None
    enabled: FlagOrNull = None
    group_rebalance_pause_dispatch: FlagOrNull = None


@dataclass(slots=True)
class CreateSharedQueue(Packet):
    """Create a queue unless it exists, the form before 129."""

    TYPE: ClassVar[int] = 36
    address: Name
    name: Name
    filter: SimpleStringOrNull = None
    durable: Flag = True
    requires_response: Flag = True


@dataclass(slots=True)
class CreateSharedQueueV2(Packet):
    """Create a queue unless one of the same name, address and filter exists."""

    TYPE: ClassVar[int] = -13
    GROUPS: ClassVar[tuple[str, ...]] = ("max_consumers", *_QUEUE_GROUPS)
    address: Name
    name: Name
    filter: SimpleStringOrNull = None
    durable: Flag = True
    routing_type: I8 = ROUTING_TYPE_UNSET
    requires_response: Flag = True
    max_consumers: I32OrNull = None
    purge_on_no_consumers: FlagOrNull = None
    exclusive: FlagOrNull = None
    last_value: FlagOrNull = None
    last_value_key: NameOrNull = None
    non_destructive: FlagOrNull = None
    consumers_before_dispatch: I32OrNull = None
    delay_before_dispatch: I64OrNull = None
    group_rebalance: FlagOrNull = None
    group_buckets: I32OrNull = None
    auto_delete: FlagOrNull = None
    auto_delete_delay: I64OrNull = None
    auto_delete_message_count: I64OrNull = None
    group_first_key: NameOrNull = None
    ring_size: I64OrNull = None
    enabled: FlagOrNull = None
    group_rebalance_pause_dispatch: FlagOrNull = None


@dataclass(slots=True)
class DeleteQueue(Packet):
    TYPE: ClassVar[int] = 35
    name: Name


@dataclass(slots=True)
class QueueQuery(Packet):
    TYPE: ClassVar[int] = 45
    name: Name


@dataclass(slots=True)
class QueueQueryResponse(Packet):
    """Answer to ``QueueQuery`` for channel versions below 126."""

    TYPE: ClassVar[int] = 46
    exists: Flag
    durable: Flag = False
    temporary: Flag = False
    consumer_count: I32 = 0
    message_count: I64 = 0
    filter: SimpleStringOrNull = None
    address: NameOrNull = None
    name: NameOrNull = None


@dataclass(slots=True)
class QueueQueryResponseV2(QueueQueryResponse):
    """Answer to ``QueueQuery`` for channel versions 126 to 128."""

    TYPE: ClassVar[int] = -7
    auto_create_queues: Flag = False


@dataclass(slots=True)
class QueueQueryResponseV3(QueueQueryResponseV2):
    """Answer to ``QueueQuery`` for channel versions from 129 on, and to ``CreateConsumer``."""

    TYPE: ClassVar[int] = -14
    GROUPS: ClassVar[tuple[str, ...]] = (
        "exclusive",
        "default_consumer_window_size",
        *_QUEUE_GROUPS,
        "configuration_managed",
    )
    auto_created: Flag = False
    purge_on_no_consumers: Flag = False
    routing_type: I8 = 0
    max_consumers: I32 = -1
    exclusive: FlagOrNull = None
    last_value: FlagOrNull = None
    default_consumer_window_size: I32OrNull = None
    last_value_key: NameOrNull = None
    non_destructive: FlagOrNull = None
    consumers_before_dispatch: I32OrNull = None
    delay_before_dispatch: I64OrNull = None
    group_rebalance: FlagOrNull = None
    group_buckets: I32OrNull = None
    auto_delete: FlagOrNull = None
    auto_delete_delay: I64OrNull = None
    auto_delete_message_count: I64OrNull = None
    group_first_key: NameOrNull = None
    ring_size: I64OrNull = None
    enabled: FlagOrNull = None
    group_rebalance_pause_dispatch: FlagOrNull = None
    configuration_managed: FlagOrNull = None


@dataclass(slots=True)
class BindingQuery(Packet):
    """Ask about an address and its queues."""

    TYPE: ClassVar[int] = 49
    address: Name


@dataclass(slots=True)
class BindingQueryResponse(Packet):
    """Answer to ``BindingQuery`` for channel versions below 126."""

    TYPE: ClassVar[int] = 50
    exists: Flag
    queue_names: Names = ()


@dataclass(slots=True)
class BindingQueryResponseV2(BindingQueryResponse):
    """Answer to ``BindingQuery`` for channel version 126."""

    TYPE: ClassVar[int] = -8
    auto_create_queues: Flag = False


@dataclass(slots=True)
class BindingQueryResponseV3(BindingQueryResponseV2):
    """Answer to ``BindingQuery`` for channel versions 127 and 128."""

    TYPE: ClassVar[int] = -10
    auto_create_addresses: Flag = False


@dataclass(slots=True)
class BindingQueryResponseV4(BindingQueryResponseV3):
    """Answer to ``BindingQuery`` for channel versions 129 to 134."""

    TYPE: ClassVar[int] = -15
    GROUPS: ClassVar[tuple[str, ...]] = ("default_exclusive", "default_last_value_key")
    default_purge_on_no_consumers: Flag = False
    default_max_consumers: I32 = -1
    default_exclusive: FlagOrNull = None
    default_last_value: FlagOrNull = None
    default_last_value_key: NameOrNull = None
    default_non_destructive: FlagOrNull = None
    default_consumers_before_dispatch: I32OrNull = None
    default_delay_before_dispatch: I64OrNull = None


@dataclass(slots=True)
class BindingQueryResponseV5(BindingQueryResponseV4):
    """Answer to ``BindingQuery`` for channel versions from 135 on."""

    TYPE: ClassVar[int] = -22
    GROUPS: ClassVar[tuple[str, ...]] = ("default_exclusive", "default_last_value_key", "supports_multicast")
    supports_multicast: Flag = False
    supports_anycast: Flag = False


def queue_query_response_type(version: int) -> type[QueueQueryResponse]:
    """The answer that a client of this channel version waits for (artemis-core s. 3.2)."""
    if version >= 129:
        return QueueQueryResponseV3
    return QueueQueryResponseV2 if version >= 126 else QueueQueryResponse


def binding_query_response_type(version: int) -> type[BindingQueryResponse]:
    """The answer that a client of this channel version waits for (artemis-core s. 3.2)."""
    if version >= 135:
        return BindingQueryResponseV5
    if version >= 129:
        return BindingQueryResponseV4
    if version >= 127:
        return BindingQueryResponseV3
    return BindingQueryResponseV2 if version >= 126 else BindingQueryResponse
