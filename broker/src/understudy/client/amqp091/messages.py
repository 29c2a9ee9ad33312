"""Messages of the client as contents of AMQP 0-9-1, and back.

A message goes to the default exchange with its address as routing key, or, for multicast, to the exchange of that name.
Not here: bodies and fields that the broker converts in the same way (``wire.amqp091.core_messages``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from understudy.errors import LocalProtocolError
from understudy.limits import AMQP091_LIFETIME_MS_MAX, AMQP091_MESSAGE_BYTES_MAX
from understudy.message import (
    CORRELATION_ID,
    DUPLICATE_ID,
    GROUP_ID,
    LAST_VALUE,
    REPLY_TO,
    ROUTING_TYPE,
    SCHEDULED_DELIVERY,
    Message,
    MessageType,
)
from understudy.properties import Properties
from understudy.wire.amqp091.core_messages import (
    TEXTS,
    body_of,
    is_property,
    is_short,
    kind_and_body,
    property_list,
    uuid_of,
)
from understudy.wire.amqp091.frames import HEADER_FRAME_BYTES
from understudy.wire.amqp091.properties import PERSISTENT, decode_properties

_MULTICAST: Final = 0
#: Properties that the broker reads in messages of CORE only, and the names of their features.
_NOT_SERVED: Final = {
    SCHEDULED_DELIVERY: "a delayed message",
    GROUP_ID: "a message group",
    LAST_VALUE: "a last-value key",
    DUPLICATE_ID: "a duplicate id",
}
#: Header of quorum queues with the number of deliveries before this one.
_DELIVERIES: Final = "x-delivery-count"


def not_possible(what: str) -> LocalProtocolError:
    """The error of an operation that the protocol does not have."""
    return LocalProtocolError(f"{what} is not possible over AMQP 0-9-1", hint="use a URL of CORE (tcp://)")


class Outgoing(NamedTuple):
    """A message as it is published."""

    exchange: str
    routing_key: str
    properties: bytes
    """Encoded property list."""
    body: bytes


def outgoing(message: Message, now_ms: int, frame_bytes_max: int) -> Outgoing:
    """The publish of a message.

    Args:
        message: Message with its address.
        now_ms: Wall time.
        frame_bytes_max: Largest frame of the connection. Bytes.

    Raises:
        LocalProtocolError: it asks for something that the protocol does not have, or is too large.
    """
    given = message.properties
    for name, what in _NOT_SERVED.items():
        if name in given:
            raise not_possible(what)
    for name in (CORRELATION_ID, REPLY_TO):
        value = given.get(name)
        if value is not None and not (isinstance(value, str) and is_short(value)):
            raise not_possible(f"{name} that is no text of at most 255 bytes")
    for name in given:
        if not is_short(name):
            raise not_possible(f"a property whose name has {len(name)} characters, more than 255 bytes,")
    if message.expiration - now_ms > AMQP091_LIFETIME_MS_MAX:
        raise not_possible("a lifetime of more than ten years")
    body = body_of(message)
    if len(body) > AMQP091_MESSAGE_BYTES_MAX:
        raise not_possible(f"a body of {len(body)} bytes, more than {AMQP091_MESSAGE_BYTES_MAX},")
    address = message.address or ""
    if not is_short(address):
        raise not_possible("an address of more than 255 bytes")
    expiration = str(max(0, message.expiration - now_ms)) if message.expiration else None
    multicast = given.get(ROUTING_TYPE) == _MULTICAST
    properties = property_list(message, expiration)
    room_bytes = frame_bytes_max - HEADER_FRAME_BYTES
    if len(properties) > room_bytes:
        raise not_possible(f"a message with properties of {len(properties)} bytes, more than {room_bytes},")
    return Outgoing(address if multicast else "", "" if multicast else address, properties, body)


def incoming(encoded: bytes, body: bytes, address: str, delivery_tag: int) -> Message:
    """The message of a content, as a client of CORE would get it.

    Args:
        encoded: Property list.
        body: The whole body.
        address: Exchange of the publish, or the routing key of the default exchange.
        delivery_tag: Becomes the message id.

    Raises:
        Amqp091Error: a property list that cannot be read.
    """
    fields = decode_properties(encoded)
    values = Properties()
    for field, name in TEXTS.items():
        text = getattr(fields, field)
        if text is not None:
            values[name] = text
    for name, value in (fields.headers or {}).items():
        if is_property(name, value) or value is None:
            values[name] = value
    kind, raw = kind_and_body(fields.content_type, body)
    if not raw and fields.content_type is None:
        kind = MessageType.DEFAULT
    return Message(
        raw,
        address=address,
        type=kind,
        durable=fields.delivery_mode == PERSISTENT,
        priority=4 if fields.priority is None else min(fields.priority, 9),
        timestamp=0 if fields.timestamp is None else min(fields.timestamp * 1000, (1 << 63) - 1),
        user_id=uuid_of(fields.message_id),
        properties=values,
        message_id=delivery_tag,
    )


def delivery_count(encoded: bytes, *, redelivered: bool) -> int:
    """Number of the delivery: 1 for the first one. Without a count of the broker a later one is 2."""
    counted = (decode_properties(encoded).headers or {}).get(_DELIVERIES)
    if isinstance(counted, int) and not isinstance(counted, bool) and counted > 0:
        return counted + 1
    return 2 if redelivered else 1
