"""Messages and their bodies as JMS clients write and read them (artemis-core s. 5.1, 5.2).

Bytes bodies are raw and need nothing. Not here: object bodies, which are Java serialization and
are never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from understudy.client.core.consumer.stream_bodies import encode_stream
from understudy.errors import LocalProtocolError, RemoteProtocolError
from understudy.limits import NAME_UNITS_MAX, PROPERTIES_MAX, STRING_UNITS_MAX
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
from understudy.properties import (
    BYTE,
    BYTES,
    LONG,
    STRING,
    Properties,
    PropertyValue,
    decode_simple_string,
    encode_simple_string,
)

#: Characters of the name of a property that an error shows.
_SHOWN: Final = 40


def encode_text(text: str | None) -> bytes:
    """Body of a text message; None is JMS's text message without text."""
    return b"\x00" if text is None else b"\x01" + encode_simple_string(text)


def decode_text(body: bytes) -> str | None:
    """Text of a text message's body.

    Raises:
        RemoteProtocolError: it is no text body.
    """
    if not body:
        raise RemoteProtocolError("an empty body is no text")
    if body[0] == 0:
        return None
    text, stop = decode_simple_string(body, 1, len(body), len(body))
    if stop != len(body):
        raise RemoteProtocolError(f"{len(body) - stop} bytes after the text of a message")
    return text


def encode_map(values: Mapping[str, PropertyValue]) -> bytes:
    """Body of a map message.

    Raises:
        LocalProtocolError: a name or value that it cannot have.
    """
    try:
        return Properties(dict(values)).encode()
    except LocalProtocolError as error:
        raise LocalProtocolError(f"the map of a message: {error}", hint="json= sends nested values") from error


def decode_map(body: bytes) -> Properties:
    """Entries of a map message's body.

    Raises:
        RemoteProtocolError: it is no map body.
        LimitExceeded: too many entries.
    """
    entries, stop = Properties.decode(body, 0, len(body), trusted=True)
    if stop != len(body):
        raise RemoteProtocolError(f"{len(body) - stop} bytes after the entries of a map message")
    return entries


def build_message(
    body: bytes | str | Mapping[str, PropertyValue] | list[PropertyValue] | None,
    *,
    address: str,
    routing: int | None,
    duplicate_id: str | bytes | None,
    timestamp_ms: int,
    properties: Mapping[str, PropertyValue] | None = None,
    durable: bool = True,
    priority: int = 4,
    expiration_ms: int = 0,
    user_id: bytes | None = None,
) -> Message:
    """A message to send: bytes, text, a map or a stream message according to the body's type.

    Args:
        routing: ``_AMQ_ROUTING_TYPE``, None for the address's own.
        duplicate_id: ``_AMQ_DUPL_ID``, unless ``properties`` bring one.
        timestamp_ms: Wall time now.
        expiration_ms: Epoch milliseconds, 0 for never.

    Raises:
        LocalProtocolError: a property or field that cannot be sent, or is beyond the limits (``check_sendable``).
        TypeError: a body of another type.
    """
    typed = properties.copy() if isinstance(properties, Properties) else Properties(properties)
    if routing is not None:
        typed.set_typed(ROUTING_TYPE, BYTE, routing)
    if duplicate_id is not None and DUPLICATE_ID not in typed:
        typed.set_typed(DUPLICATE_ID, _kind_of_id(duplicate_id), duplicate_id)
    if isinstance(body, str):
        kind, raw = MessageType.TEXT, encode_text(body)
    elif isinstance(body, Mapping):
        kind, raw = MessageType.MAP, encode_map(body)
    elif isinstance(body, list):
        kind, raw = MessageType.STREAM, encode_stream(body)
    elif body is None:
        kind, raw = MessageType.DEFAULT, b""
    elif isinstance(body, bytes):
        kind, raw = MessageType.BYTES, body
    else:
        raise TypeError(
            f"a body cannot be {body!r:.40} of type {type(body).__name__}; json= sends a JSON document of it"
        )
    made = Message(
        raw,
        address=address,
        type=kind,
        durable=durable,
        priority=priority,
        expiration=expiration_ms,
        timestamp=timestamp_ms,
        user_id=user_id,
        properties=typed,
    )
    check_sendable(made)
    return made


def delivery_properties(
    given: Mapping[str, PropertyValue] | None,
    *,
    deliver_at_ms: int = 0,
    group_id: str | None = None,
    last_value_key: str | None = None,
    reply_to: str | None = None,
    correlation_id: str | bytes | None = None,
) -> Properties:
    """The properties with those that say how a message is delivered and answered (artemis-core s. 5.1); what the
    caller set among them itself stays.
    """
    typed = given.copy() if isinstance(given, Properties) else Properties(given)
    if deliver_at_ms and SCHEDULED_DELIVERY not in typed:
        typed.set_typed(SCHEDULED_DELIVERY, LONG, deliver_at_ms)
    if group_id is not None and GROUP_ID not in typed:
        typed.set_typed(GROUP_ID, STRING, group_id)
    if last_value_key is not None and LAST_VALUE not in typed:
        typed.set_typed(LAST_VALUE, STRING, last_value_key)
    if reply_to is not None and REPLY_TO not in typed:
        typed.set_typed(REPLY_TO, STRING, reply_to)
    if correlation_id is not None and CORRELATION_ID not in typed:
        typed.set_typed(CORRELATION_ID, _kind_of_id(correlation_id), correlation_id)
    return typed


def _kind_of_id(an_id: str | bytes) -> int:
    return BYTES if isinstance(an_id, bytes) else STRING


def complete_message(
    message: Message, *, address: str, routing: int | None, duplicate_id: str | bytes | None
) -> Message:
    """A caller's own message with missing values added: address, routing type, duplicate id."""
    typed = message.properties
    lacks_routing = routing is not None and ROUTING_TYPE not in typed
    lacks_id = duplicate_id is not None and DUPLICATE_ID not in typed
    if message.address is not None and not lacks_routing and not lacks_id:
        check_sendable(message)
        return message
    typed = typed.copy()
    if routing is not None and lacks_routing:
        typed.set_typed(ROUTING_TYPE, BYTE, routing)
    if duplicate_id is not None and lacks_id:
        typed.set_typed(DUPLICATE_ID, _kind_of_id(duplicate_id), duplicate_id)
    made = message.replace(address=message.address or address, properties=typed)
    check_sendable(made)
    return made


def check_sendable(message: Message) -> None:
    """Check the limits of the broker before a message is sent. A message beyond them costs the connection, and would
    be sent again at the next one.

    Raises:
        LocalProtocolError: the address, or the number, a name or a text of the properties is too large.
    """
    header_bytes = message.encode_size - message.header_offset
    if header_bytes <= NAME_UNITS_MAX:
        return  # no field of such a body can be too large
    address = message.address or ""
    if len(address) > NAME_UNITS_MAX:
        raise LocalProtocolError(f"address of {len(address)} characters, limit {NAME_UNITS_MAX}")
    properties = message.properties
    if len(properties) > PROPERTIES_MAX:
        raise LocalProtocolError(f"{len(properties)} properties, limit {PROPERTIES_MAX}")
    if header_bytes <= STRING_UNITS_MAX:
        return
    for name, value in properties.items():
        for text, what in ((name, "name of a property"), (value, f"property {name[:_SHOWN]!r}")):
            if isinstance(text, str) and len(encode_simple_string(text)) > 4 + 2 * STRING_UNITS_MAX:
                raise LocalProtocolError(f"{what} of {len(text)} characters, limit {STRING_UNITS_MAX}")
