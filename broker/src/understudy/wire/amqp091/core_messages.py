"""Fields and bodies of messages of CORE in contents of AMQP 0-9-1, and back: for the broker and for the client.

A text travels as UTF-8 with the content type of a text; maps, streams and objects keep their encoding and are named by
content types of their own. Not here: routing, and what the broker keeps of a publish (``protocols.amqp091.messages``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from understudy.errors import RemoteProtocolError
from understudy.ids import uuid_bytes, uuid_text
from understudy.kernel import names
from understudy.message import CORRELATION_ID, REPLY_TO, Message, MessageType
from understudy.properties import decode_simple_string, encode_simple_string
from understudy.wire.amqp091.properties import PERSISTENT, BasicProperties, decode_properties, encode_properties
from understudy.wire.amqp091.tables import SHORT_TEXT_BYTES_MAX

#: Property with the encoded property list of AMQP 0-9-1.
PROPERTY_LIST: Final = names.AMQP091_PROPERTY_LIST
#: Property with the field ``type``.
TYPE: Final = names.JMS_TYPE
#: Beginnings of header names that do not become properties: they have a meaning for the broker or for JMS.
KEPT_APART: Final = names.AMQP091_KEPT_APART
#: Fields of a property list that are properties of JMS, and the names of these.
TEXTS: Final[Mapping[str, str]] = {"correlation_id": CORRELATION_ID, "reply_to": REPLY_TO, "type": TYPE}
_CONTENT_TYPES: Final[Mapping[int, str]] = {
    MessageType.TEXT: "text/plain; charset=utf-8",
    MessageType.MAP: "application/x-understudy-map",
    MessageType.STREAM: "application/x-understudy-stream",
    MessageType.OBJECT: "application/x-understudy-object",
}
_TYPES: Final[Mapping[str, MessageType]] = {text: MessageType(kind) for kind, text in _CONTENT_TYPES.items()}


def is_short(text: str) -> bool:
    """Whether a text fits into a short string."""
    return len(text.encode("utf-8", "surrogatepass")) <= SHORT_TEXT_BYTES_MAX


def is_property(name: str, value: object) -> bool:
    """Whether a header becomes a property of its name: CORE has its type, and its name means nothing else."""
    fits = isinstance(value, int) and -(1 << 63) <= value < 1 << 63
    return (fits or isinstance(value, bool | str | float | bytes)) and not name.startswith(KEPT_APART)


def uuid_of(text: str | None) -> bytes | None:
    """The 16 bytes of a message id that is a UUID; None: it is none."""
    if text is None or len(text) != 36:
        return None
    try:
        return uuid_bytes(text)
    except ValueError:
        return None


def property_list(message: Message, expiration: str | None = None) -> bytes:
    """The property list of a message that has none: its properties are headers, as far as they can be.

    Args:
        message: A message of CORE.
        expiration: Milliseconds as text; None: the list has none.
    """
    headers: dict[str, object] = {}
    for name, value in message.properties.items():
        if not name.startswith(KEPT_APART) and is_short(name):
            headers[name] = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
    texts = {
        field: value
        for field, name in TEXTS.items()
        if isinstance(value := message.properties.get(name), str) and is_short(value)
    }
    return encode_properties(
        BasicProperties(
            content_type=_CONTENT_TYPES.get(message.type),
            headers=headers or None,
            delivery_mode=PERSISTENT if message.durable else 1,
            priority=message.priority,
            expiration=expiration,
            message_id=None if message.user_id is None else uuid_text(message.user_id),
            timestamp=message.timestamp // 1000 if message.timestamp > 0 else None,
            **texts,
        )
    )


def body_of(message: Message) -> bytes:
    """The body that a client gets: text as UTF-8, everything else as it is."""
    return plain_body(message.type, message.body)


def plain_body(kind: int, body: bytes) -> bytes:
    """The whole body of a message of CORE as a client gets it: text as UTF-8, everything else as it is."""
    if kind == MessageType.TEXT and body[:1] == b"\x01":
        try:
            # a text may have any length, unlike a string in a property
            text, end = decode_simple_string(body, 1, len(body), len(body))
        except RemoteProtocolError:
            return body
        return text.encode("utf-8", "replace") if end == len(body) else body
    return b"" if kind == MessageType.TEXT and body == b"\x00" else body


class Published(NamedTuple):
    """A message that was published over AMQP 0-9-1, as its sender has sent it."""

    kind: MessageType
    body: bytes
    priority: int


def published_message(message: Message) -> Published | None:
    """The publish of a message that a client of CORE has received.

    Args:
        message: Message as it is stored: a message of bytes, and in a queue without priorities one of the priority 4.

    Returns:
        None: its body is no longer that of the publish, or its property list cannot be read.
    """
    encoded = message.properties.get(PROPERTY_LIST)
    if message.type != MessageType.BYTES or not isinstance(encoded, bytes):
        return None
    try:
        given = decode_properties(encoded)
    except RemoteProtocolError:
        return None
    priority = message.priority if given.priority is None else min(given.priority, 9)
    return Published(*kind_and_body(given.content_type, message.body), priority)


def kind_and_body(content_type: str | None, body: bytes) -> tuple[MessageType, bytes]:
    """Type and body of the message of CORE that a content stands for, the reverse of ``body_of``.

    A text whose bytes are no UTF-8 stays a message of bytes.
    """
    kind = _TYPES.get(content_type or "", MessageType.BYTES)
    if kind is not MessageType.TEXT:
        return kind, body
    try:
        return kind, b"\x01" + encode_simple_string(body.decode())
    except UnicodeDecodeError:
        return MessageType.BYTES, body
