"""The content and the fields of a received message, as the application reads them (ADR 0143).

Not here: its consumer and delivery (``consumer``), acknowledgements (``consumers``), waiting for a body (the shells).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from understudy.client.core.consumer.body_stream import BodyStream
from understudy.client.core.consumer.content import Content, decode_content, kind_text
from understudy.errors import IllegalState
from understudy.ids import uuid_text
from understudy.message import CORRELATION_ID, GROUP_ID, REPLY_TO, Message, MessageType
from understudy.properties import Properties
from understudy.wire.amqp091.core_messages import PROPERTY_LIST, Published, published_message

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Kinds whose body is an encoding of Python values.
_ENCODED: Final = (MessageType.TEXT, MessageType.MAP, MessageType.STREAM)

_READ_BY: Final[Mapping[int, str]] = {MessageType.TEXT: "use message.text", MessageType.BYTES: "use message.body"}


class MessageView:
    """The content and the fields of a message."""

    __slots__ = ("_published", "_whole", "delivery_count", "message", "stream")

    def __init__(self, message: Message, delivery_count: int, stream: BodyStream | None) -> None:
        self.message = message
        """Message with all its fields as they were sent; its body is the encoded one."""
        self.delivery_count = delivery_count
        """1 for the first delivery."""
        self.stream = stream
        """The body of a message that was handed over before all of it had come; else None."""
        self._whole: bytes | None = None
        self._published: Published | None = None
        """The publish of a message that came over AMQP 0-9-1; None: it came over CORE, or is large."""
        if PROPERTY_LIST in message.properties and stream is None:
            self._published = published_message(message)

    @property
    def content(self) -> Content:
        """The content: str, bytes, dict, list or None, as the kind of the message says.

        Raises:
            IllegalState: the body is too large to come with the message: call ``read_content`` first.
            RemoteProtocolError: the body is not of the kind that the message names.
        """
        return decode_content(self._kind, self._raw("read_content()"))

    @property
    def text(self) -> str | None:
        """The text of a text message; None if it has none.

        Raises:
            IllegalState: it is a message of another kind, or too large: call ``read_content`` first.
            RemoteProtocolError: the body is no text.
        """
        if self._kind != MessageType.TEXT:
            raise IllegalState(f"message {self.message_id} is {kind_text(self._kind)}", hint=self._hint)
        return cast("str | None", self.content)

    @property
    def body(self) -> bytes:
        """The body of a bytes message; the serialized object of an object message.

        Raises:
            IllegalState: it is a message of another kind, or too large: read it with ``read_body``, ``save_to`` or
                ``body_stream``.
        """
        if self._kind in _ENCODED:
            raise IllegalState(f"message {self.message_id} is {kind_text(self._kind)}", hint=self._hint)
        return self._raw("read_body(), save_to() or body_stream")

    def json(self) -> Any:
        """The value of a JSON document that is the text or the bytes of the message.

        Raises:
            IllegalState: it is a message of another kind, has no text, or is too large: call ``read_content`` first.
            ValueError: it is no JSON.
        """
        content = self.content
        if not isinstance(content, (str, bytes)):
            raise IllegalState(f"message {self.message_id} is {kind_text(self._kind)} without a JSON document")
        return json.loads(content)

    def keep_whole(self, body: bytes) -> None:
        """Keep the body of a large message, which has been read, for ``content``."""
        self._whole = body

    @property
    def _kind(self) -> int:
        """Kind of the body, a ``MessageType``."""
        return self.message.type if self._published is None else self._published.kind

    def _raw(self, readers: str) -> bytes:
        if self._published is not None:
            return self._published.body
        if self.stream is None:
            return self.message.body
        if self._whole is not None:
            return self._whole
        raise IllegalState(
            f"message {self.message_id} has a large body of {self.stream.size_bytes} bytes", hint=f"use {readers}"
        )

    @property
    def _hint(self) -> str:
        return _READ_BY.get(self._kind, "use message.content")

    @property
    def properties(self) -> Properties:
        """The application and broker properties of the message."""
        return self.message.properties

    @property
    def reply_to(self) -> str | None:
        """Destination of its answer (``JMSReplyTo``), for ``Session.producer`` or ``Producer.send``; None if it
        wants none.
        """
        value = self.message.properties.get(REPLY_TO)
        return value if isinstance(value, str) else None

    @property
    def correlation_id(self) -> str | bytes | None:
        """The id that joins a request and its answer (``JMSCorrelationID``)."""
        value = self.message.properties.get(CORRELATION_ID)
        return value if isinstance(value, (str, bytes)) else None

    @property
    def group_id(self) -> str | None:
        """The group (``JMSXGroupID``), whose messages go to one consumer; None without one."""
        value = self.message.properties.get(GROUP_ID)
        return None if value is None else str(value)

    @property
    def type(self) -> MessageType | int:
        """The kind of the message, which says what ``content`` is; a number for an unknown kind."""
        try:
            return MessageType(self.message.type)
        except ValueError:
            return self.message.type

    @property
    def address(self) -> str | None:
        """Address to which the message was sent."""
        return self.message.address

    @property
    def priority(self) -> int:
        """The priority, 0 to 9; 4 is normal."""
        return self.message.priority if self._published is None else self._published.priority

    @property
    def durable(self) -> bool:
        """Whether the broker keeps the message through restarts."""
        return self.message.durable

    @property
    def timestamp(self) -> datetime | None:
        """The time at which it was sent, by the clock of the sender, in UTC; None if the sender gave none."""
        return _moment(self.message.timestamp)

    @property
    def expires_at(self) -> datetime | None:
        """The time at which the message expires, in UTC; None for never."""
        return _moment(self.message.expiration)

    @property
    def jms_message_id(self) -> str | None:
        """The id that its sender gave it (``JMSMessageID``). Requesters of JMS that set no correlation id expect it as
        that of the answer.
        """
        user_id = self.message.user_id
        return None if user_id is None else f"ID:{uuid_text(user_id)}"

    @property
    def message_id(self) -> int:
        """The id that the broker gave the message."""
        return self.message.message_id

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered before."""
        return self.delivery_count > 1


def _moment(epoch_ms: int) -> datetime | None:
    """The moment; the last one that Python knows for a later one."""
    if epoch_ms <= 0:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
