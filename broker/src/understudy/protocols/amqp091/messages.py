"""Messages of AMQP 0-9-1 as messages of this broker, and back.

The property list of a publish is kept byte for byte in one property (``PROPERTY_LIST``) and is sent again unchanged.
Beside it, properties that selectors and CORE clients read are set from it, so both protocols use the same queue. A
message of a CORE client gets a property list when it is delivered.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from understudy.errors import LocalProtocolError
from understudy.kernel import names
from understudy.limits import AMQP091_LIFETIME_MS_MAX, AMQP091_MESSAGE_BYTES_MAX, FURTHER_ROUTING_KEYS_MAX
from understudy.message import CORRELATION_ID, LARGE_COMPRESSED, REPLY_TO, LargeMessage, Message, MessageType
from understudy.properties import Properties
from understudy.routing.exchanges.carrier import DeadLetter, Death, Reason
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.core_messages import (
    PROPERTY_LIST,
    TYPE,
    is_property,
    is_short,
    plain_body,
    property_list,
    uuid_of,
)
from understudy.wire.amqp091.properties import (
    PERSISTENT,
    BasicProperties,
    decode_properties,
    encode_properties,
    with_fields,
)
from understudy.wire.amqp091.tables import Timestamp, decode_table, encode_short, encode_value

#: Properties with the exchange and the routing key of the publish, without the prefix of the virtual host.
EXCHANGE: Final = names.AMQP091_EXCHANGE
ROUTING_KEY: Final = names.AMQP091_ROUTING_KEY
#: Header that says that a property list did not fit into a frame.
TRUNCATED: Final = "x-understudy-truncated"
#: Content encoding of a zlib stream.
DEFLATE: Final = "deflate"
_BYTES: Final = "application/octet-stream"
_DEATHS: Final = "x-death"


class Publish(NamedTuple):
    """A publish as its channel received it."""

    exchange: str
    """Name without the prefix of the virtual host."""
    routing_key: str
    properties: BasicProperties
    encoded: bytes
    """Encoded property list."""
    body: bytes


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


def expiration_ms(text: str | None) -> int | None:
    """Time to live of a message in milliseconds; None: it has none. A sign is allowed, as in RabbitMQ. Raises
    Amqp091Error: PRECONDITION_FAILED.
    """
    if text is None:
        return None
    if _INTEGER.fullmatch(text) is None or not 0 <= int(text) <= AMQP091_LIFETIME_MS_MAX:
        raise Amqp091Error(
            ReplyCode.PRECONDITION_FAILED,
            f"expiration {text[:20]!r} is no number of milliseconds from 0 to {AMQP091_LIFETIME_MS_MAX}",
        )
    return int(text)


def ranked(properties: BasicProperties) -> int:
    """Priority of a message in a queue with x-max-priority, at most 9. A message without one has 0 there, as in
    RabbitMQ; for clients of CORE it has 4.
    """
    return min(properties.priority or 0, 9)


def further_keys(headers: Mapping[str, object]) -> tuple[str, ...]:
    """Routing keys in the headers CC and BCC; other values in their lists are ignored, as RabbitMQ does.

    Raises:
        Amqp091Error: PRECONDITION_FAILED: one of them is no list, or has too many keys.
    """
    keys: list[str] = []
    for name in ("CC", "BCC"):
        values = headers.get(name, ())
        if not isinstance(values, list | tuple):
            raise Amqp091Error(ReplyCode.PRECONDITION_FAILED, f"header {name} is no list of routing keys")
        keys += (each for each in values if isinstance(each, str))
    if len(keys) > FURTHER_ROUTING_KEYS_MAX:
        raise Amqp091Error(ReplyCode.PRECONDITION_FAILED, f"more than {FURTHER_ROUTING_KEYS_MAX} keys in CC and BCC")
    return tuple(keys)


def to_message(publish: Publish, address: str, now_ms: int) -> Message:
    """The message of a publish; without an id.

    Args:
        publish: Publish as it was received.
        address: Address of the message: the name of its exchange, or of the queue that the default exchange leads to.
        now_ms: Wall time.

    Raises:
        Amqp091Error: PRECONDITION_FAILED: an expiration that is no number.
    """
    given, headers = publish.properties, publish.properties.headers or {}
    values = Properties({PROPERTY_LIST: publish.encoded, EXCHANGE: publish.exchange, ROUTING_KEY: publish.routing_key})
    for name, value in (
        (CORRELATION_ID, given.correlation_id),
        (REPLY_TO, given.reply_to),
        (TYPE, given.type),
    ):
        if value is not None:
            values[name] = value
    for name, value in headers.items():
        if is_property(name, value):
            values[name] = value
    ttl_ms = expiration_ms(given.expiration)
    return Message(
        publish.body,
        address=address,
        durable=given.delivery_mode == PERSISTENT,
        priority=4 if given.priority is None else min(given.priority, 9),
        expiration=0 if ttl_ms is None else now_ms + ttl_ms,
        timestamp=now_ms if given.timestamp is None else min(given.timestamp * 1000, (1 << 63) - 1),
        user_id=uuid_of(given.message_id),
        properties=values,
    )


class Delivery(NamedTuple):
    """A message as it is sent to a client."""

    exchange: str
    routing_key: str
    properties: bytes
    """Encoded property list."""


def to_delivery(message: Message, queue: str, header_bytes_max: int) -> Delivery:
    """Exchange, routing key and property list of a message.

    Args:
        message: Message from any protocol.
        queue: Name of its queue without the prefix of the virtual host: the routing key of a message of CORE.
        header_bytes_max: Longest property list that fits into a frame. Bytes.
    """
    values = message.properties
    exchange, key, encoded = values.get(EXCHANGE), values.get(ROUTING_KEY), values.get(PROPERTY_LIST)
    if isinstance(encoded, bytes):
        try:
            # a CORE client may have written the property
            decode_properties(encoded)
        except Amqp091Error:
            encoded = None
    if not isinstance(encoded, bytes):
        encoded = property_list(message)
    encoded = fitting(encoded, header_bytes_max)
    exchange = exchange if isinstance(exchange, str) and is_short(exchange) else ""
    key = key if isinstance(key, str) and is_short(key) else queue
    return Delivery(exchange, key if is_short(key) else "", encoded)


def fitting(encoded: bytes, header_bytes_max: int) -> bytes:
    """A property list, without its headers if it does not fit into a frame."""
    if len(encoded) <= header_bytes_max:
        return encoded
    kept = encode_properties(replace(decode_properties(encoded), headers={TRUNCATED: True}))
    return kept if len(kept) <= header_bytes_max else encode_properties(BasicProperties(headers={TRUNCATED: True}))


class MessageCarrier:
    """Implements ``routing.exchanges.carrier.Carrier``."""

    def arguments(self, table: bytes) -> Mapping[str, object]:
        try:
            return decode_table(table, 0, len(table))[0]
        except Amqp091Error as error:
            raise ValueError(str(error)) from error

    def dead_letter(self, message: Message, death: Death) -> DeadLetter:
        values = message.properties.copy()
        encoded = values.get(PROPERTY_LIST)
        try:
            given = decode_properties(encoded) if isinstance(encoded, bytes) else None
        except Amqp091Error:
            given = None
        if given is None or not isinstance(encoded, bytes):
            encoded = property_list(message)
            given = decode_properties(encoded)
        headers = dict(given.headers or {})
        exchange, key = _text(values.get(EXCHANGE), ""), _text(values.get(ROUTING_KEY), death.queue)
        cc = [each for each in _list(headers.get("CC")) if isinstance(each, str)]
        deaths = _with_death(_list(headers.get(_DEATHS)), death, [exchange, key, *cc], given.expiration)
        changed: dict[str, object] = {_DEATHS: deaths}
        if "x-first-death-reason" not in headers:
            changed |= {
                "x-first-death-reason": str(death.reason),
                "x-first-death-queue": death.queue,
                "x-first-death-exchange": exchange,
            }
        removed = ["CC"] if death.routing_key is not None and "CC" in headers else []
        headers |= changed
        new_headers: dict[str, bytes | None] = {name: encode_value(value) for name, value in changed.items()}
        new_headers |= dict.fromkeys(removed)
        for name in removed:
            del headers[name]
        if death.routing_key is not None:
            key, cc = death.routing_key, []
        try:
            marked = with_fields(encoded, headers=new_headers, fields={"expiration": None})
            # one with more values than a list may have would not be sent
            decode_properties(marked)
            encoded = marked
        except (LocalProtocolError, Amqp091Error):
            encoded = with_fields(encoded, fields={"expiration": None})
        values[PROPERTY_LIST] = encoded
        values[EXCHANGE] = death.exchange
        values[ROUTING_KEY] = key
        passed: set[str] = set()
        if not any(each.get("reason") == Reason.REJECTED for each in deaths):
            passed = {queue for each in deaths if isinstance(queue := each.get("queue"), str)}
        letter = message.replace(properties=values, expiration=0)
        return DeadLetter(letter, (key, *cc), headers, ranked(given), frozenset(passed))


def _text(value: object, default: str) -> str:
    return value if isinstance(value, str) else default


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _with_death(
    deaths: list[object], death: Death, route: list[str], expiration: str | None
) -> list[dict[str, object]]:
    """The entries of the header ``x-death``, with that of this death first.

    Args:
        deaths: Entries of the message.
        death: The new one; an entry with its queue and reason is counted once more.
        route: Exchange and routing keys with which the message came to the queue.
        expiration: Expiration of the message, which is removed from it.
    """
    entries = [dict(each) for each in deaths if isinstance(each, Mapping)]
    for number, entry in enumerate(entries):
        if entry.get("queue") == death.queue and entry.get("reason") == death.reason:
            count = entry.get("count")
            entry["count"] = count + 1 if isinstance(count, int) and not isinstance(count, bool) else 1
            del entries[number]
            return [entry, *entries]
    new: dict[str, object] = {
        "count": 1,
        "reason": str(death.reason),
        "queue": death.queue,
        "time": Timestamp(death.time_ms // 1000),
        "exchange": route[0],
        "routing-keys": route[1:],
    }
    if expiration is not None and is_short(expiration):
        new["original-expiration"] = expiration
    return [new, *entries]


def large_list(message: LargeMessage, queue: str, header_bytes_max: int) -> Delivery:
    """Exchange, routing key and property list of a large message whose body is sent as it is stored."""
    delivery = to_delivery(message, queue, header_bytes_max)
    fields: dict[str, bytes | None] = {}
    if is_compressed(message):
        fields["content_encoding"] = encode_short(DEFLATE)
    if message.type == MessageType.TEXT or (
        message.type == MessageType.BYTES and PROPERTY_LIST not in message.properties
    ):
        fields["content_type"] = encode_short(_BYTES)
    if not fields:
        return delivery
    return delivery._replace(properties=fitting(with_fields(delivery.properties, fields=fields), header_bytes_max))


def is_compressed(message: Message) -> bool:
    """Whether the body of a message of CORE is a zlib stream (compressLargeMessage)."""
    return message.properties.get(LARGE_COMPRESSED) is True


def is_stored_otherwise(message: LargeMessage) -> bool:
    """Whether a large body has to be read as a whole before its content is known: it is compressed, or a text in the
    encoding of CORE, and not too large for that.
    """
    return message.large.size_bytes <= AMQP091_MESSAGE_BYTES_MAX and (
        message.type == MessageType.TEXT or is_compressed(message)
    )


def whole_content(message: Message, properties: bytes, stored: bytes, header_bytes_max: int) -> tuple[bytes, bytes]:
    """Property list and body of a message as a client reads them.

    Args:
        message: Message from any protocol.
        properties: Encoded property list of the message (``to_delivery``).
        stored: Whole body of the message, as it is stored.
        header_bytes_max: Longest property list that fits into a frame. Bytes.

    Returns:
        Both. A compressed body that would be larger than a message of AMQP 0-9-1 may be stays compressed, with the
        content encoding ``deflate``.
    """
    if is_compressed(message):
        inflated = _inflated(stored)
        if inflated is None:
            fields: dict[str, bytes | None] = {
                "content_type": encode_short(_BYTES),
                "content_encoding": encode_short(DEFLATE),
            }
            return fitting(with_fields(properties, fields=fields), header_bytes_max), stored
        stored = inflated
    return properties, plain_body(message.type, stored)


def _inflated(stored: bytes) -> bytes | None:
    """The content of a zlib stream; None: it is none, or has more than a message may have."""
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(stored, AMQP091_MESSAGE_BYTES_MAX + 1)
    except zlib.error:
        return None
    return content if inflater.eof and len(content) <= AMQP091_MESSAGE_BYTES_MAX else None
