"""Destinations as JMS clients write them in ``JMSReplyTo``: the kind before the name, such as ``temp-queue://742e``.

A destination of JMS is an address of CORE: a queue an anycast one, a topic a multicast one (artemis-core s. 5.1). Text
without a kind is the name of an address.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from understudy.client.core.url.destinations import (
    Conversation,
    RoutingType,
    ensure_address,
    ensure_queue,
    existing_address,
    split_name,
)
from understudy.dataclass import dataclass
from understudy.errors import ConfigError

_KINDS: Final = {
    "queue": (RoutingType.ANYCAST, False),
    "topic": (RoutingType.MULTICAST, False),
    "temp-queue": (RoutingType.ANYCAST, True),
    "temp-topic": (RoutingType.MULTICAST, True),
}


@dataclass(frozen=True, slots=True)
class JmsDestination:
    """JMS destination: a name and its kind."""

    name: str
    """The name of the address."""
    routing: RoutingType
    temporary: bool
    """Whether the destination is temporary: it exists as long as its requester's connection and must not be created."""


def read_destination(text: str) -> JmsDestination | None:
    """The destination of a text; None if it is a plain name.

    Raises:
        ConfigError: there is no name after the kind.
    """
    kind, separator, name = text.partition("://")
    if not separator or kind not in _KINDS:
        return None
    if not name:
        raise ConfigError(f"destination {text!r} has no name")
    return JmsDestination(name, *_KINDS[kind])


def queue_name(text: str) -> str:
    """The queue that a plain name or a destination names.

    Raises:
        ConfigError: a topic, or no name.
    """
    destination = read_destination(text)
    if destination is None:
        return text
    if destination.routing is RoutingType.MULTICAST:
        raise ConfigError(f"{text!r} is a topic", hint="use session.subscriber()")
    return destination.name


def topic_name(text: str) -> str:
    """The address that a plain name or a destination names.

    Raises:
        ConfigError: a queue, or no name.
    """
    destination = read_destination(text)
    if destination is None:
        return text
    if destination.routing is RoutingType.ANYCAST:
        raise ConfigError(f"{text!r} is a queue", hint="use session.consumer()")
    return destination.name


def reply_text(name: str, *, temporary: bool) -> str:
    """``JMSReplyTo`` for a name; a destination stays as it is. JMS clients need the kind.

    Args:
        name: Name of a queue, or a destination.
        temporary: Whether the queue is a temporary one of the requester's session.
    """
    if read_destination(name) is not None:
        return name
    return f"{'temp-queue' if temporary else 'queue'}://{name}"


class ProducerTarget(NamedTuple):
    """Destination of a producer."""

    address: str | None
    """None: each message has its own."""
    routing: RoutingType | None
    """Kind of the queues of its messages; None: any."""
    conversation: Conversation | None = None
    """The question for the broker before the producer sends; None: there is none."""
    on_demand: bool = False
    """Whether the client makes the destination if it does not exist."""


def producer_target(text: str, routing: RoutingType | None, *, auto_create: bool) -> ProducerTarget:
    """Address and routing type for a producer, and what to ask the broker before it sends.

    Args:
        text: A plain name or a destination, whose kind decides the routing type.
        routing: Routing of a plain name; None for any.
        auto_create: Create the address, and an anycast queue.
    """
    destination = read_destination(text)
    name = text
    if destination is not None:
        name, routing = destination.name, destination.routing
        if destination.temporary:
            return ProducerTarget(name, routing, existing_address(name))
    if not auto_create or routing is None:
        return ProducerTarget(name, routing)
    if routing is RoutingType.ANYCAST:
        return ProducerTarget(name, routing, ensure_queue(name, routing, producing=True), "::" not in name)
    return ProducerTarget(name, routing, ensure_address(split_name(name)[0], routing), "::" not in name)
