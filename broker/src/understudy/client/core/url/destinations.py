"""Addresses and queues made on demand, as JMS clients do it (artemis-core s. 6.1, steps 4 and 6).

Conversations of several requests are generators: they yield a ``Request``, are sent its answer (or
thrown its error) and return their result; the shells drive them. Not here: what a broker does when
it is not asked to create anything.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from enum import IntEnum
from typing import TypedDict, Unpack

from understudy.dataclass import dataclass
from understudy.errors import (
    AddressExists,
    AddressNotFound,
    BrokerError,
    ConfigError,
    QueueExists,
    QueueNotFound,
    UnexpectedRoutingType,
)
from understudy.wire.core.packets import (
    BindingQuery,
    BindingQueryResponse,
    BindingQueryResponseV3,
    CreateAddress,
    CreateQueueV2,
    CreateSharedQueueV2,
    NullResponse,
    Packet,
    QueueQuery,
    QueueQueryResponse,
    QueueQueryResponseV2,
    QueueQueryResponseV3,
)


class RoutingType(IntEnum):
    """How an address passes messages on."""

    MULTICAST = 0
    """A copy to every queue."""
    ANYCAST = 1
    """A message goes to one queue of the address."""


def routing_type(value: RoutingType | str) -> RoutingType:
    """The routing type of ``"anycast"`` or ``"multicast"``.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(value, RoutingType):
        return value
    try:
        return RoutingType[value.upper()]
    except KeyError:
        raise ConfigError(f"routing type {value!r}: anycast or multicast") from None


class QueueAttributes(TypedDict, total=False):
    """Attributes of a new queue besides name, address and filter. An attribute that is left out has the
    value of the address settings. Meanings: the manual's chapters on queues, last-value queues and groups.
    """

    max_consumers: int
    """-1 for any number."""
    purge_on_no_consumers: bool
    exclusive: bool
    """Whether one consumer at a time gets all messages."""
    last_value: bool
    """Whether the queue keeps only the newest of the messages with one last-value key."""
    last_value_key: str
    """The property that holds the key."""
    non_destructive: bool
    """Whether acknowledged messages stay in the queue."""
    consumers_before_dispatch: int
    delay_before_dispatch: int
    """ms after which messages go out though there are fewer consumers than that; -1 for never."""
    group_rebalance: bool
    group_rebalance_pause_dispatch: bool
    group_buckets: int
    group_first_key: str
    """The property that marks the first message of a group for a consumer."""
    auto_delete: bool
    auto_delete_delay: int
    """Milliseconds after which an unused queue is deleted."""
    auto_delete_message_count: int
    ring_size: int
    """Number of messages above which the oldest one is removed. -1 for any number."""
    enabled: bool
    auto_created: bool
    """Whether the queue counts as made on demand, and so may be deleted when it is not used."""


@dataclass(frozen=True, slots=True)
class Request:
    """One step of a conversation."""

    name: str
    packet: Packet
    expected: type[Packet]
    tolerated: tuple[type[BrokerError], ...] = ()
    """Errors that mean "already done" if the request went out twice."""


Conversation = Generator[Request, Packet | None, None]


def split_name(name: str) -> tuple[str, str]:
    """Address and queue of ``address::queue`` (FQQN), or twice the plain name."""
    address, separator, queue = name.partition("::")
    return (address, queue) if separator else (name, name)


def create_address(address: str, *routing: RoutingType, auto_created: bool = False) -> Request:
    """The request that creates an address. An address that exists counts as success."""
    packet = CreateAddress(address, tuple(map(int, routing)), True, auto_created)
    return Request(f"create address {address}", packet, NullResponse, (AddressExists,))


def create_queue(packet: CreateQueueV2) -> Request:
    """The request that creates a queue. A queue that exists counts as success."""
    return Request(f"create queue {packet.name}", packet, NullResponse, (QueueExists,))


def queue_request(
    name: str,
    address: str,
    routing: RoutingType,
    filter_text: str | None,
    *,
    durable: bool,
    temporary: bool,
    **attributes: Unpack[QueueAttributes],
) -> CreateQueueV2:
    """The packet that creates a queue and wants an answer."""
    packet = CreateQueueV2(address, name, filter_text, durable, temporary, True, False, int(routing))
    for key, value in attributes.items():
        if key not in QueueAttributes.__annotations__:
            raise TypeError(f"a queue has no attribute {key!r}")
        setattr(packet, key, value)
    return packet


def create_shared_queue(packet: CreateSharedQueueV2) -> Request:
    """The request that creates the queue of a shared subscription, or joins it."""
    return Request(f"share queue {packet.name}", packet, NullResponse)


def subscription_queue(name: str, client_id: str | None, *, durable: bool) -> str:
    """The queue of a named subscription, as JMS clients call it (artemis-core s. 6.1 step 7)."""
    parts = [_escaped(each) for each in (client_id, name) if each is not None]
    return ".".join(parts if durable else ["nonDurable", *parts])


def _escaped(part: str) -> str:
    return part.replace("\\", "\\\\").replace(".", "\\.")


def query_queue(name: str) -> Request:
    """The request for the attributes of a queue."""
    return Request(f"query queue {name}", QueueQuery(name), QueueQueryResponse)


def query_address(name: str) -> Request:
    """The request for an address and the names of its queues."""
    return Request(f"query address {name}", BindingQuery(name), BindingQueryResponse)


def ensure_address(address: str, routing: RoutingType) -> Conversation:
    """Create the address unless it exists.

    Raises:
        AddressNotFound: it does not, and the broker creates none on demand.
    """
    answer = yield query_address(address)
    assert isinstance(answer, BindingQueryResponse), "the request said so"
    if not answer.exists:
        yield from _make_address(address, routing, answer)


def existing_address(name: str) -> Conversation:
    """Find the address of a temporary queue or topic. It is not created: its owner would not see the messages.

    Raises:
        AddressNotFound: it does not exist.
    """
    answer = yield query_address(name)
    assert isinstance(answer, BindingQueryResponse), "the request said so"
    if not answer.exists:
        raise AddressNotFound(f"temporary destination {name} does not exist: the connection of its owner has ended")


def _make_address(address: str, routing: RoutingType, answer: BindingQueryResponse) -> Conversation:
    if isinstance(answer, BindingQueryResponseV3) and not answer.auto_create_addresses:
        raise AddressNotFound(f"address {address} does not exist and is not created on demand")
    try:
        yield create_address(address, routing, auto_created=True)
    except AddressExists:
        return  # another client has created the queue meanwhile


def _cluster_names(queue: str) -> re.Pattern[str]:
    """Names of a queue of other nodes: its name and the id of the node, a UUID (artemis-ha s. 7.5)."""
    return re.compile(rf"{re.escape(queue)}[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")


def ensure_queue(name: str, routing: RoutingType, *, producing: bool = False) -> Conversation:
    """Create the queue, and its address, unless it exists.

    Args:
        producing: Whether it is for a producer, which does not care for the routing type of an existing queue.

    Raises:
        AddressNotFound: the address does not exist, and the broker creates none on demand.
        QueueNotFound: the same of the queue.
        UnexpectedRoutingType: the queue has the other one.
    """
    address, queue = split_name(name)
    answer = yield query_queue(queue)
    assert isinstance(answer, QueueQueryResponse), "the request said so"
    if answer.exists:
        if not producing and isinstance(answer, QueueQueryResponseV3) and answer.routing_type != routing:
            other = RoutingType(answer.routing_type).name.lower()
            raise UnexpectedRoutingType(f"queue {queue} is {other}, not {routing.name.lower()}")
        return
    known = yield query_address(address)
    assert isinstance(known, BindingQueryResponse), "the request said so"
    if producing and any(map(_cluster_names(queue).fullmatch, known.queue_names)):
        # another node of the cluster has the queue
        return
    if not known.exists:
        yield from _make_address(address, routing, known)
    if isinstance(answer, QueueQueryResponseV2) and not answer.auto_create_queues:
        raise QueueNotFound(f"queue {queue} does not exist and is not created on demand")
    packet = CreateQueueV2(address, queue, None, True, False, True, True, int(routing))
    if isinstance(answer, QueueQueryResponseV3):
        packet.max_consumers = answer.max_consumers
        packet.purge_on_no_consumers = answer.purge_on_no_consumers
    try:
        yield create_queue(packet)
    except QueueExists:
        return  # another client has created the queue meanwhile
