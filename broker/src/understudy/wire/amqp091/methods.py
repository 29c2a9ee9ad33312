"""The methods of AMQP 0-9-1 with the extensions of RabbitMQ: each class declares the fields of one method in order.

The encoding of a field is in its annotation. ``METHODS`` has every class by its ids; ``encode_method`` and
``decode_method`` follow the annotations. Fields that the specification reserves have the type ``Reserved16``,
``ReservedText`` or ``ReservedBit``: they are sent as zero or empty, and ignored when received.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum, auto
from typing import Annotated, Any, ClassVar, Final, TypeVar, cast, dataclass_transform, get_type_hints

from understudy.dataclass import dataclass
from understudy.errors import LocalProtocolError
from understudy.limits import AMQP091_TABLE_DEPTH_MAX, AMQP091_TABLE_VALUES_MAX
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.tables import Table, decode_table, encode_short, encode_table, malformed


class Kind(Enum):
    """Encoding of one field."""

    OCTET = auto()
    U16 = auto()
    U32 = auto()
    U64 = auto()
    SHORT_TEXT = auto()
    LONG_BYTES = auto()
    TABLE = auto()
    BIT = auto()


Octet = Annotated[int, Kind.OCTET]
U16 = Annotated[int, Kind.U16]
U32 = Annotated[int, Kind.U32]
U64 = Annotated[int, Kind.U64]
ShortText = Annotated[str, Kind.SHORT_TEXT]
LongBytes = Annotated[bytes, Kind.LONG_BYTES]
Fields = Annotated[Table, Kind.TABLE]
Bit = Annotated[bool, Kind.BIT]
Reserved16 = U16
ReservedText = ShortText
ReservedBit = Bit


class Method:
    """Base of all methods."""

    class_id: ClassVar[int]
    method_id: ClassVar[int]
    name: ClassVar[str]
    """Name in the specification, such as ``queue.declare``."""
    from_client: ClassVar[bool] = False
    """Whether a client may send it."""
    has_content: ClassVar[bool] = False
    """Whether a header and a body follow."""


M = TypeVar("M", bound=type[Method])
METHODS: Final[dict[tuple[int, int], type[Method]]] = {}
_LAYOUTS: Final[dict[type[Method], tuple[tuple[str, Kind], ...]]] = {}
_HEADS: Final[dict[type[Method], bytes]] = {}
_IDS = struct.Struct(">HH")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def _method(
    class_id: int, method_id: int, name: str, *, client: bool = False, content: bool = False
) -> Callable[[M], M]:
    def declare(kind: M) -> M:
        kind.class_id, kind.method_id, kind.name = class_id, method_id, name
        kind.from_client, kind.has_content = client, content
        made = dataclass(frozen=True, slots=True)(kind)
        METHODS[class_id, method_id] = made
        _HEADS[made] = _IDS.pack(class_id, method_id)
        return cast(M, made)

    return declare


@_method(10, 10, "connection.start")
class ConnectionStart(Method):
    """The broker begins."""

    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Fields = field(default_factory=dict)
    mechanisms: LongBytes = b""
    """SASL mechanisms, separated by spaces."""
    locales: LongBytes = b"en_US"


@_method(10, 11, "connection.start-ok", client=True)
class ConnectionStartOk(Method):
    """The client chooses a mechanism."""

    client_properties: Fields
    mechanism: ShortText
    response: LongBytes
    locale: ShortText


@_method(10, 20, "connection.secure")
class ConnectionSecure(Method):
    """A challenge of the mechanism."""

    challenge: LongBytes


@_method(10, 21, "connection.secure-ok", client=True)
class ConnectionSecureOk(Method):
    """The response to a challenge."""

    response: LongBytes


@_method(10, 30, "connection.tune")
class ConnectionTune(Method):
    """Limits that the broker offers."""

    channel_max: U16
    frame_max: U32
    """Bytes of a frame, 0 for no limit."""
    heartbeat: U16
    """Interval in seconds, 0 for none."""


@_method(10, 31, "connection.tune-ok", client=True)
class ConnectionTuneOk(Method):
    """Limits that the client chooses."""

    channel_max: U16
    frame_max: U32
    heartbeat: U16


@_method(10, 40, "connection.open", client=True)
class ConnectionOpen(Method):
    """The client chooses a virtual host."""

    virtual_host: ShortText
    reserved_1: ReservedText = ""
    reserved_2: ReservedBit = False


@_method(10, 41, "connection.open-ok")
class ConnectionOpenOk(Method):
    """The connection is open."""

    known_hosts: ReservedText = ""


@_method(10, 50, "connection.close", client=True)
class ConnectionClose(Method):
    """Either side ends the connection."""

    reply_code: U16
    reply_text: ShortText
    failing_class: U16 = 0
    failing_method: U16 = 0


@_method(10, 51, "connection.close-ok", client=True)
class ConnectionCloseOk(Method):
    """The end of the connection is confirmed."""


@_method(10, 60, "connection.blocked")
class ConnectionBlocked(Method):
    """Publishing is paused."""

    reason: ShortText


@_method(10, 61, "connection.unblocked")
class ConnectionUnblocked(Method):
    """Publishing goes on."""


@_method(10, 70, "connection.update-secret", client=True)
class ConnectionUpdateSecret(Method):
    """A new secret of the user."""

    new_secret: LongBytes
    reason: ShortText


@_method(10, 71, "connection.update-secret-ok")
class ConnectionUpdateSecretOk(Method):
    """The new secret was taken."""


@_method(20, 10, "channel.open", client=True)
class ChannelOpen(Method):
    """Open a channel."""

    reserved_1: ReservedText = ""


@_method(20, 11, "channel.open-ok")
class ChannelOpenOk(Method):
    """The channel is open."""

    reserved_1: LongBytes = b""


@_method(20, 20, "channel.flow", client=True)
class ChannelFlow(Method):
    """Pause or resume deliveries."""

    active: Bit


@_method(20, 21, "channel.flow-ok", client=True)
class ChannelFlowOk(Method):
    """Answer of channel.flow."""

    active: Bit


@_method(20, 40, "channel.close", client=True)
class ChannelClose(Method):
    """Either side ends a channel."""

    reply_code: U16
    reply_text: ShortText
    failing_class: U16 = 0
    failing_method: U16 = 0


@_method(20, 41, "channel.close-ok", client=True)
class ChannelCloseOk(Method):
    """The end of the channel is confirmed."""


@_method(40, 10, "exchange.declare", client=True)
class ExchangeDeclare(Method):
    """Make an exchange, or check one that exists."""

    reserved_1: Reserved16
    exchange: ShortText
    type: ShortText
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@_method(40, 11, "exchange.declare-ok")
class ExchangeDeclareOk(Method):
    """The exchange exists."""


@_method(40, 20, "exchange.delete", client=True)
class ExchangeDelete(Method):
    """Delete an exchange."""

    reserved_1: Reserved16
    exchange: ShortText
    if_unused: Bit = False
    no_wait: Bit = False


@_method(40, 21, "exchange.delete-ok")
class ExchangeDeleteOk(Method):
    """The exchange is gone."""


@_method(40, 30, "exchange.bind", client=True)
class ExchangeBind(Method):
    """Bind an exchange to another one."""

    reserved_1: Reserved16
    destination: ShortText
    source: ShortText
    routing_key: ShortText
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@_method(40, 31, "exchange.bind-ok")
class ExchangeBindOk(Method):
    """The binding exists."""


@_method(40, 40, "exchange.unbind", client=True)
class ExchangeUnbind(Method):
    """Remove the binding of an exchange."""

    reserved_1: Reserved16
    destination: ShortText
    source: ShortText
    routing_key: ShortText
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@_method(40, 51, "exchange.unbind-ok")
class ExchangeUnbindOk(Method):
    """The binding is gone."""


@_method(50, 10, "queue.declare", client=True)
class QueueDeclare(Method):
    """Make a queue, or check one that exists."""

    reserved_1: Reserved16
    queue: ShortText
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@_method(50, 11, "queue.declare-ok")
class QueueDeclareOk(Method):
    """The queue exists."""

    queue: ShortText
    message_count: U32
    consumer_count: U32


@_method(50, 20, "queue.bind", client=True)
class QueueBind(Method):
    """Bind a queue to an exchange."""

    reserved_1: Reserved16
    queue: ShortText
    exchange: ShortText
    routing_key: ShortText
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@_method(50, 21, "queue.bind-ok")
class QueueBindOk(Method):
    """The binding exists."""


@_method(50, 30, "queue.purge", client=True)
class QueuePurge(Method):
    """Drop all waiting messages of a queue."""

    reserved_1: Reserved16
    queue: ShortText
    no_wait: Bit = False


@_method(50, 31, "queue.purge-ok")
class QueuePurgeOk(Method):
    """Number of messages that were dropped."""

    message_count: U32


@_method(50, 40, "queue.delete", client=True)
class QueueDelete(Method):
    """Delete a queue with its messages."""

    reserved_1: Reserved16
    queue: ShortText
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


@_method(50, 41, "queue.delete-ok")
class QueueDeleteOk(Method):
    """Number of messages that were dropped."""

    message_count: U32


@_method(50, 50, "queue.unbind", client=True)
class QueueUnbind(Method):
    """Remove the binding of a queue."""

    reserved_1: Reserved16
    queue: ShortText
    exchange: ShortText
    routing_key: ShortText
    arguments: Fields = field(default_factory=dict)


@_method(50, 51, "queue.unbind-ok")
class QueueUnbindOk(Method):
    """The binding is gone."""


@_method(60, 10, "basic.qos", client=True)
class BasicQos(Method):
    """Limit the deliveries that are not acknowledged."""

    prefetch_size: U32
    """Bytes; 0 for no limit."""
    prefetch_count: U16
    """Messages; 0 for no limit."""
    for_channel: Bit = False
    """The bit ``global``: one limit for all consumers of the channel."""


@_method(60, 11, "basic.qos-ok")
class BasicQosOk(Method):
    """The limit holds."""


@_method(60, 20, "basic.consume", client=True)
class BasicConsume(Method):
    """Begin a consumer."""

    reserved_1: Reserved16
    queue: ShortText
    consumer_tag: ShortText
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@_method(60, 21, "basic.consume-ok")
class BasicConsumeOk(Method):
    """The consumer exists."""

    consumer_tag: ShortText


@_method(60, 30, "basic.cancel", client=True)
class BasicCancel(Method):
    """End a consumer; sent by the broker when its queue is gone."""

    consumer_tag: ShortText
    no_wait: Bit = False


@_method(60, 31, "basic.cancel-ok", client=True)
class BasicCancelOk(Method):
    """The consumer has ended."""

    consumer_tag: ShortText


@_method(60, 40, "basic.publish", client=True, content=True)
class BasicPublish(Method):
    """A message for an exchange."""

    reserved_1: Reserved16
    exchange: ShortText
    routing_key: ShortText
    mandatory: Bit = False
    immediate: Bit = False


@_method(60, 50, "basic.return", content=True)
class BasicReturn(Method):
    """A message that could not be routed."""

    reply_code: U16
    reply_text: ShortText
    exchange: ShortText
    routing_key: ShortText


@_method(60, 60, "basic.deliver", content=True)
class BasicDeliver(Method):
    """A message for a consumer."""

    consumer_tag: ShortText
    delivery_tag: U64
    redelivered: Bit
    exchange: ShortText
    routing_key: ShortText


@_method(60, 70, "basic.get", client=True)
class BasicGet(Method):
    """Ask for one message."""

    reserved_1: Reserved16
    queue: ShortText
    no_ack: Bit = False


@_method(60, 71, "basic.get-ok", content=True)
class BasicGetOk(Method):
    """The message that was asked for."""

    delivery_tag: U64
    redelivered: Bit
    exchange: ShortText
    routing_key: ShortText
    message_count: U32
    """Messages that are left in the queue."""


@_method(60, 72, "basic.get-empty")
class BasicGetEmpty(Method):
    """The queue has no message."""

    reserved_1: ReservedText = ""


@_method(60, 80, "basic.ack", client=True)
class BasicAck(Method):
    """Accept deliveries, or confirm publishes."""

    delivery_tag: U64
    multiple: Bit = False


@_method(60, 90, "basic.reject", client=True)
class BasicReject(Method):
    """Refuse one delivery."""

    delivery_tag: U64
    requeue: Bit = False


@_method(60, 100, "basic.recover-async", client=True)
class BasicRecoverAsync(Method):
    """Return all deliveries, without an answer."""

    requeue: Bit = False


@_method(60, 110, "basic.recover", client=True)
class BasicRecover(Method):
    """Return all deliveries."""

    requeue: Bit = False


@_method(60, 111, "basic.recover-ok")
class BasicRecoverOk(Method):
    """The deliveries were returned."""


@_method(60, 120, "basic.nack", client=True)
class BasicNack(Method):
    """Refuse deliveries, or say that publishes were not taken."""

    delivery_tag: U64
    multiple: Bit = False
    requeue: Bit = False


@_method(85, 10, "confirm.select", client=True)
class ConfirmSelect(Method):
    """Confirm the publishes of the channel."""

    no_wait: Bit = False


@_method(85, 11, "confirm.select-ok")
class ConfirmSelectOk(Method):
    """Publishes are confirmed from now on."""


@_method(90, 10, "tx.select", client=True)
class TxSelect(Method):
    """Publish and acknowledge in transactions."""


@_method(90, 11, "tx.select-ok")
class TxSelectOk(Method):
    """The channel is transacted."""


@_method(90, 20, "tx.commit", client=True)
class TxCommit(Method):
    """Commit the open transaction."""


@_method(90, 21, "tx.commit-ok")
class TxCommitOk(Method):
    """The transaction is committed."""


@_method(90, 30, "tx.rollback", client=True)
class TxRollback(Method):
    """Roll the open transaction back."""


@_method(90, 31, "tx.rollback-ok")
class TxRollbackOk(Method):
    """The transaction is rolled back."""


_NUMBERS: Final[Mapping[Kind, struct.Struct]] = {
    Kind.OCTET: struct.Struct(">B"),
    Kind.U16: struct.Struct(">H"),
    Kind.U32: struct.Struct(">I"),
    Kind.U64: struct.Struct(">Q"),
}
_U32 = _NUMBERS[Kind.U32]


def layout_of(kind: type[Method]) -> tuple[tuple[str, Kind], ...]:
    """Name and encoding of each field of a method, in order."""
    found = _LAYOUTS.get(kind)
    if found is None:
        hints = get_type_hints(kind, include_extras=True)
        found = _LAYOUTS[kind] = tuple(
            (name, mark)
            for name, hint in hints.items()
            for mark in getattr(hint, "__metadata__", ())
            if isinstance(mark, Kind)
        )
    return found


def encode_method(method: Method) -> bytes:
    """Payload of the method frame.

    Raises:
        LocalProtocolError: a value does not fit its field.
    """
    parts = [_HEADS[type(method)]]
    bits = bit = 0
    for name, kind in layout_of(type(method)):
        value: Any = getattr(method, name)
        if kind is Kind.BIT:
            bits |= bool(value) << bit
            bit += 1
            continue
        if bit:
            parts.append(bytes((bits,)))
            bits = bit = 0
        number = _NUMBERS.get(kind)
        if number is not None:
            try:
                parts.append(number.pack(value))
            except struct.error as error:
                raise LocalProtocolError(f"{method.name}: {name} is {value}") from error
        elif kind is Kind.SHORT_TEXT:
            parts.append(encode_short(value))
        elif kind is Kind.LONG_BYTES:
            parts.append(_U32.pack(len(value)) + value)
        else:
            parts.append(encode_table(value))
    if bit:
        parts.append(bytes((bits,)))
    return b"".join(parts)


def decode_method(
    payload: bytes, *, depth_max: int = AMQP091_TABLE_DEPTH_MAX, values_max: int = AMQP091_TABLE_VALUES_MAX
) -> Method:
    """The method in the payload of a method frame, which it must fill exactly.

    Args:
        payload: Bytes of the frame without its header and end.
        depth_max: Most field tables inside each other.
        values_max: Most values in one field table.

    Raises:
        Amqp091Error: COMMAND_INVALID: an unknown method. SYNTAX_ERROR: a field that cannot be read.
    """
    if len(payload) < _IDS.size:
        raise malformed("a method frame without class and method")
    ids: tuple[int, int] = _IDS.unpack_from(payload)
    kind = METHODS.get(ids)
    if kind is None:
        raise Amqp091Error(ReplyCode.COMMAND_INVALID, f"there is no method {ids[0]}.{ids[1]}")
    values: dict[str, object] = {}
    offset, end = _IDS.size, len(payload)
    bit = 8
    for name, encoding in layout_of(kind):
        if encoding is Kind.BIT:
            if bit == 8:
                if offset >= end:
                    raise malformed(f"{kind.name}: {name} is missing")
                offset, bit = offset + 1, 0
            values[name] = bool(payload[offset - 1] >> bit & 1)
            bit += 1
            continue
        bit = 8
        number = _NUMBERS.get(encoding)
        if number is not None:
            if offset + number.size > end:
                raise malformed(f"{kind.name}: {name} is cut off")
            values[name] = number.unpack_from(payload, offset)[0]
            offset += number.size
        elif encoding is Kind.SHORT_TEXT:
            values[name], offset = decode_short(payload, offset, end)
        elif encoding is Kind.LONG_BYTES:
            if offset + 4 > end:
                raise malformed(f"{kind.name}: {name} is cut off")
            start = offset + 4
            offset = start + _U32.unpack_from(payload, offset)[0]
            if offset > end:
                raise malformed(f"{kind.name}: {name} is cut off")
            values[name] = bytes(payload[start:offset])
        else:
            values[name], offset = decode_table(payload, offset, end, depth_max=depth_max, values_max=values_max)
    if offset != end:
        raise malformed(f"{kind.name}: {end - offset} bytes after its last field")
    return kind(**values)


def decode_short(payload: bytes, offset: int, end: int) -> tuple[str, int]:
    """The short string at ``offset``, and the offset after it. Raises Amqp091Error."""
    if offset >= end or offset + 1 + payload[offset] > end:
        raise malformed("a short string is cut off")
    stop = offset + 1 + payload[offset]
    try:
        return str(payload[offset + 1 : stop], "utf-8"), stop
    except UnicodeDecodeError:
        raise malformed("a short string is no UTF-8") from None
