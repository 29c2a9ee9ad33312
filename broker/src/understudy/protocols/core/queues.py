"""The packets of a session channel about addresses and queues (artemis-core s. 4.2): create, delete and query.

The same request exists in several versions; fields that a version does not have are left to the address settings.
Responses wait until the change is durable. Not here: the changes (``session.queue_requests``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, cast

from understudy.errors import InvalidQueueConfiguration
from understudy.protocols.core.answers import SessionAnswers, may_deny
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.terms import RoutingType
from understudy.wire.core import packets


def _create_address(handler: SessionAnswers, packet: packets.CreateAddress) -> None:
    types = [_routing_type(number) for number in packet.routing_types]
    handler.session.queues.create_address(packet.address, types, auto_created=packet.auto_created)
    handler.done_when_durable(packet.requires_response)


def _create_queue(handler: SessionAnswers, packet: packets.CreateQueueV2 | packets.CreateQueue) -> None:
    handler.session.queues.create_queue(queue_configuration(packet))
    handler.done_when_durable(packet.requires_response)


def _create_shared_queue(
    handler: SessionAnswers, packet: packets.CreateSharedQueueV2 | packets.CreateSharedQueue
) -> None:
    handler.session.queues.create_shared_queue(queue_configuration(packet))
    handler.done_when_durable(packet.requires_response)


def _delete_queue(handler: SessionAnswers, packet: packets.DeleteQueue) -> None:
    handler.session.queues.delete_queue(packet.name)
    handler.done_when_durable(True)


def _query_queue(handler: SessionAnswers, packet: packets.QueueQuery) -> None:
    answer_queue(handler, packet.name)


def answer_queue(handler: SessionAnswers, name: str) -> None:
    """Answer a queue query, in the form for the version of the client."""
    found = handler.session.queues.query_queue(name)
    if found.exists or may_deny(handler.channel):
        handler.reply(_copied(packets.queue_query_response_type(handler.version), found))


def _query_address(handler: SessionAnswers, packet: packets.BindingQuery) -> None:
    found = handler.session.queues.query_address(packet.address)
    if found.exists or may_deny(handler.channel):
        handler.reply(_copied(packets.binding_query_response_type(handler.version), found))


def _copied(kind: type[packets.Packet], result: object) -> packets.Packet:
    """A response packet with the fields of the same names in the result of a query."""
    return kind(**{field.name: getattr(result, field.name) for field in fields(cast(Any, kind))})


def _routing_type(number: int) -> RoutingType:
    try:
        return RoutingType(number)
    except ValueError:
        raise InvalidQueueConfiguration(f"{number} is not a routing type") from None


def queue_configuration(packet: Any) -> QueueConfiguration:
    """The queue configuration in any of the four packets that create queues.

    Raises:
        InvalidQueueConfiguration: a routing type that does not exist.
    """
    routing_type = getattr(packet, "routing_type", packets.ROUTING_TYPE_UNSET)
    optional = {name: value for name in _OPTIONAL_QUEUE_FIELDS if (value := getattr(packet, name, None)) is not None}
    return QueueConfiguration(
        name=packet.name,
        address=packet.address,
        routing_type=None if routing_type == packets.ROUTING_TYPE_UNSET else _routing_type(routing_type),
        filter=packet.filter,
        durable=packet.durable,
        temporary=getattr(packet, "temporary", False),
        auto_created=getattr(packet, "auto_created", False),
        **optional,
    )


_OPTIONAL_QUEUE_FIELDS: Final = (
    "max_consumers",
    "purge_on_no_consumers",
    "exclusive",
    "last_value",
    "last_value_key",
    "non_destructive",
    "consumers_before_dispatch",
    "delay_before_dispatch",
    "group_rebalance",
    "group_buckets",
    "group_first_key",
    "auto_delete",
    "auto_delete_delay",
    "auto_delete_message_count",
    "ring_size",
    "enabled",
    "group_rebalance_pause_dispatch",
)

HANDLERS: Final[dict[type, Callable[[SessionAnswers, Any], None]]] = {
    packets.CreateAddress: _create_address,
    packets.CreateQueue: _create_queue,
    packets.CreateQueueV2: _create_queue,
    packets.CreateSharedQueue: _create_shared_queue,
    packets.CreateSharedQueueV2: _create_shared_queue,
    packets.DeleteQueue: _delete_queue,
    packets.QueueQuery: _query_queue,
    packets.BindingQuery: _query_address,
}
