"""A message: header fields, typed properties, and a body that is not interpreted.

The canonical form is the CORE message layout (artemis-core s. 5), kept as the bytes that
arrived: what a producer sent is what the journal holds and what a consumer gets, with only the
message id written over in place. ``encoded`` is laid out as::

    i32 E | body (E - 13 bytes) | i64 messageID | ss? address | userID | type | durable |
    expiration | timestamp | priority | properties

Not here: delivery state (``store.messages.reference``), routing, or the frame around it.
"""

from __future__ import annotations

import struct
from codecs import utf_16_le_decode
from enum import IntEnum, IntFlag
from typing import ClassVar, Final, NamedTuple, Self

from understudy.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from understudy.kernel import names
from understudy.limits import NAME_UNITS_MAX
from understudy.properties import LONG, NO_PROPERTIES, Properties, PropertyValue, encode_name

#: ``E`` counts from the start of the historical frame header.
BODY_END_BIAS: Final = 13

ROUTING_TYPE: Final = names.ROUTING_TYPE
DUPLICATE_ID: Final = names.DUPLICATE_ID
SCHEDULED_DELIVERY: Final = names.SCHEDULED_DELIVERY
BRIDGE_DUPLICATE_ID: Final = names.BRIDGE_DUPLICATE_ID
ROUTE_TO: Final = names.ROUTE_TO
ACK_ROUTE_TO: Final = names.ACK_ROUTE_TO
SCALE_DOWN_TO: Final = names.SCALE_DOWN_TO
GROUP_ID: Final = names.GROUP_ID
LAST_VALUE: Final = "_AMQ_LVQ_NAME"
LARGE_SIZE: Final = "_AMQ_LARGE_SIZE"
LARGE_COMPRESSED: Final = "_AMQ_LARGE_COMPRESSED"
VALIDATED_USER: Final = "_AMQ_VALIDATED_USER"
ORIGINAL_ADDRESS: Final = "_AMQ_ORIG_ADDRESS"
ORIGINAL_QUEUE: Final = "_AMQ_ORIG_QUEUE"
ORIGINAL_MESSAGE_ID: Final = "_AMQ_ORIG_MESSAGE_ID"
ORIGINAL_ROUTING_TYPE: Final = "_AMQ_ORIG_ROUTING_TYPE"
#: Number of times that a message was delivered before it left its queue for another broker (``routing.transit``).
DELIVERIES: Final = "_AMQ_ORIG_DELIVERIES"
#: A ``Transfer``: says that a message is one of another queue and not a new one.
TRANSFER: Final = "_AMQ_ORIG_TRANSFER"
#: Address to which a message was sent that a tool puts back into its queue.
SENT_TO: Final = "_AMQ_ORIG_SENT_TO"
#: How many brokers with bridges a message has come to by a bridge.
HOPS: Final = "_AMQ_ORIG_HOPS"
#: The duplicate id by which a third node may know a message that a node which is scaled down keeps for it.
KEPT_DUPLICATE_ID: Final = "_AMQ_ORIG_BRIDGE_DUP"
INGRESS_TIMESTAMP: Final = "_AMQ_INGRESS_TIMESTAMP"
ACTUAL_EXPIRY: Final = "_AMQ_ACTUAL_EXPIRY"
REPLY_TO: Final = names.REPLY_TO
CORRELATION_ID: Final = names.CORRELATION_ID
FORCED_DELIVERY: Final = "_hornetq.forced.delivery.seq"

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_FIELDS = struct.Struct(">bBqqb")  # type, durable, expiration, timestamp, priority
_LARGE_BODY = struct.Struct("<QQII")  # file id, size, crc, zero

#: Decoded addresses, because most messages repeat one. Bounded, so that a peer cannot make it grow.
_ADDRESSES: dict[bytes, str] = {}
_ADDRESSES_MAX: Final = 4096
#: Longest address remembered. Bytes.
_ADDRESS_BYTES_MAX: Final = 512


class Encoding(IntEnum):
    """Protocol that encoded the bytes of a stored message (docs/build/journal-format.md, 4.6). At most 15."""

    CORE = 0


class Transfer(IntFlag):
    """Values of the field ``TRANSFER``."""

    KEEPS_ORIGIN = 1
    """Keep where the message came from, as far as its sender may (``session.broker_properties``)."""
    NEEDS_QUEUE = 2
    """Answer with an error instead of a confirmation if no queue takes it."""
    FORWARDED = 4
    """A bridge has sent the message, without a duplicate id."""


class MessageType(IntEnum):
    """Body kinds (artemis-core s. 5); a number outside it is carried through untouched."""

    DEFAULT = 0
    OBJECT = 2
    TEXT = 3
    BYTES = 4
    MAP = 5
    STREAM = 6


class Message:
    """One message, immutable except for ``assign_id``; ``replace`` makes a changed copy."""

    __slots__ = (
        "address",
        "durable",
        "encoded",
        "expiration",
        "header_offset",
        "message_id",
        "priority",
        "properties",
        "timestamp",
        "type",
        "user_id",
    )

    is_large: ClassVar[bool] = False
    """Whether the body lies in a file of its own (``LargeMessage``)."""
    encoding: ClassVar[int] = Encoding.CORE
    """Layout of ``encoded``, an ``Encoding``; a message of another protocol is a class of its own."""

    def __init__(
        self,
        body: bytes = b"",
        *,
        address: str | None = None,
        type: int = MessageType.BYTES,  # noqa: A002  # the field's standard name
        durable: bool = True,
        priority: int = 4,
        expiration: int = 0,
        timestamp: int = 0,
        user_id: bytes | None = None,
        properties: Properties | dict[str, PropertyValue] | None = None,
        message_id: int = 0,
    ) -> None:
        """Make a new message.

        Args:
            body: Raw body bytes; see artemis-core s. 5.2 for the JMS forms.
            address: Destination; None if the message has none.
            durable: Whether it survives a crash.
            priority: 0 to 9, higher first.
            expiration: Epoch milliseconds, 0 for never.
            timestamp: Epoch milliseconds.
            user_id: 16 bytes (JMSMessageID), or None.
            properties: Typed properties.
            message_id: 0 until a broker assigns one.

        Raises:
            LocalProtocolError: a field outside its range.
        """
        if not 0 <= priority <= 9:
            raise LocalProtocolError(f"priority {priority}: 0 to 9")
        if user_id is not None and len(user_id) != 16:
            raise LocalProtocolError(f"user id of {len(user_id)} bytes: 16 wanted")
        self.message_id = message_id
        self.address = address
        self.user_id = user_id
        self.type = int(type)
        self.durable = durable
        self.expiration = expiration
        self.timestamp = timestamp
        self.priority = priority
        self.properties = properties if isinstance(properties, Properties) else Properties(properties)
        self.header_offset = 4 + len(body)
        try:
            self.encoded = b"".join((_I32.pack(len(body) + BODY_END_BIAS), body, self._encode_header()))
        except struct.error as error:
            raise LocalProtocolError(f"a field of the message is out of its range: {error}") from error

    def _encode_header(self) -> bytes:
        return b"".join(
            (
                _I64.pack(self.message_id),
                b"\x00" if self.address is None else b"\x01" + encode_name(self.address),
                b"\x00" if self.user_id is None else b"\x01" + self.user_id,
                _FIELDS.pack(self.type, self.durable, self.expiration, self.timestamp, self.priority),
                self.properties.encode(),
            )
        )

    @property
    def body(self) -> bytes:
        """Raw body of the message."""
        return self.encoded[4 : self.header_offset]

    @property
    def encode_size(self) -> int:
        """Bytes by which flow control and address sizes count the message (artemis-core s. 5)."""
        return len(self.encoded)

    def assign_id(self, message_id: int) -> None:
        """Write the broker's id over the field, in ``encoded`` too."""
        self.message_id = message_id
        offset = self.header_offset
        encoded = self.encoded
        self.encoded = b"".join((encoded[:offset], _I64.pack(message_id), encoded[offset + 8 :]))

    def replace(
        self,
        *,
        address: str | None = None,
        properties: Properties | None = None,
        expiration: int | None = None,
        priority: int | None = None,
        message_id: int = 0,
    ) -> Message:
        """A copy with another address, properties, expiration, priority or id, for instance for a
        dead letter; None keeps the field.
        """
        return type(self)(
            self.body,
            address=self.address if address is None else address,
            type=self.type,
            durable=self.durable,
            priority=self.priority if priority is None else priority,
            expiration=self.expiration if expiration is None else expiration,
            timestamp=self.timestamp,
            user_id=self.user_id,
            properties=self.properties.copy() if properties is None else properties,
            message_id=message_id,
        )

    def with_properties(self, properties: Properties) -> Self:
        """The message with other properties. Its other bytes are taken over, which costs less than ``replace``."""
        other = type(self).__new__(type(self))
        other.message_id = self.message_id
        other.address = self.address
        other.user_id = self.user_id
        other.type = self.type
        other.durable = self.durable
        other.expiration = self.expiration
        other.timestamp = self.timestamp
        other.priority = self.priority
        other.properties = properties
        other.header_offset = self.header_offset
        end = self.header_offset + _I64.size + 1 + (0 if self.address is None else len(encode_name(self.address)))
        end += (1 if self.user_id is None else 17) + _FIELDS.size
        other.encoded = self.encoded[:end] + properties.encode()
        return other

    def without_reserved(self) -> Message:
        """The message without the properties that only a broker writes (``properties.RESERVED_PREFIXES``); itself
        if it has none. For messages from clients, before anything reads their properties.
        """
        if not self.properties.may_be_reserved:
            return self
        return self.with_properties(self.properties.without_reserved())

    def with_validated_user(self, user: str) -> Message:
        """The message with the name of its validated user."""
        properties = self.properties.copy()
        may_be_reserved = properties.may_be_reserved
        properties[VALIDATED_USER] = user
        # written by the broker, so ``without_reserved`` must not remove it
        properties.may_be_reserved = may_be_reserved
        return self.with_properties(properties)

    @classmethod
    def decode(cls, data: bytes, start: int = 0, end: int | None = None, *, trusted: bool = False) -> Message:
        """The message in ``data[start:end]``, which it must fill exactly.

        Args:
            data: Contains it.
            end: The byte after it; None: all bytes of ``data`` belong to it.
            trusted: Whether it comes from a broker or its store. The limits for messages of clients do not hold for
                such a message: what a broker has taken can be read.

        Raises:
            RemoteProtocolError: anything that is not the layout, naming the offset.
            LimitExceeded: a name or the properties exceed their limit.
        """
        encoded = data if start == 0 and (end is None or end == len(data)) else data[start:end]
        size = len(encoded)
        self = cls.__new__(cls)
        if size < 4:
            raise RemoteProtocolError(f"message of {size} bytes")
        header = 4 + _I32.unpack_from(encoded)[0] - BODY_END_BIAS
        if not 4 <= header <= size - 9:
            raise RemoteProtocolError(f"message body ends at {header} of {size} bytes")
        self.encoded = encoded
        self.header_offset = header
        (self.message_id,) = _I64.unpack_from(encoded, header)
        offset = header + 9
        if encoded[header + 8]:
            stop = offset + 4
            if stop > size:
                raise RemoteProtocolError(f"message address cut off at offset {offset}")
            stop += _I32.unpack_from(encoded, offset)[0]
            raw = encoded[offset + 4 : stop]
            address = _ADDRESSES.get(raw)
            if address is None or not offset + 4 <= stop <= size:
                address = _decode_address(raw, offset, stop, size, trusted)
            self.address = address
            offset = stop
        else:
            self.address = None
        if offset >= size:
            raise RemoteProtocolError(f"message header cut off at offset {offset}")
        if encoded[offset]:
            self.user_id = encoded[offset + 1 : offset + 17]
            offset += 17
        else:
            self.user_id = None
            offset += 1
        behind = offset + 19
        if behind >= size:
            raise RemoteProtocolError(f"message header cut off at offset {offset}")
        self.type, durable, self.expiration, self.timestamp, self.priority = _FIELDS.unpack_from(encoded, offset)
        self.durable = durable != 0
        if not 0 <= self.priority <= 9:
            raise RemoteProtocolError(f"message priority {self.priority} at offset {offset + 18}")
        if encoded[behind] == 0:
            self.properties = NO_PROPERTIES
            behind += 1
        else:
            self.properties, behind = Properties.decode(encoded, behind, size, trusted=trusted)
        if behind != size:
            raise RemoteProtocolError(f"{size - behind} bytes after the message's properties")
        return self

    def __repr__(self) -> str:
        return f"<Message {self.message_id} to {self.address!r}, {self.header_offset - 4} body bytes>"


class LargeBody(NamedTuple):
    """Location of the body of a large message, as recorded in the log (docs/build/journal-format.md s. 6)."""

    file_id: int
    """Name of the file: the id of the message with which the body came. Dead letters share the file."""
    size_bytes: int
    crc: int
    """crc32 of the whole body."""

    def encode(self) -> bytes:
        """The bytes that the log holds instead of the body."""
        return _LARGE_BODY.pack(self.file_id, self.size_bytes, self.crc, 0)


#: Bytes of an encoded ``LargeBody``.
LARGE_BODY_BYTES: Final = _LARGE_BODY.size


def large_body_of(encoded: bytes) -> LargeBody:
    """Location of the body of an encoded ``LargeMessage``.

    Raises:
        ValueError: ``encoded`` is not the encoding of a large message.
    """
    if len(encoded) < 4 + LARGE_BODY_BYTES or _I32.unpack_from(encoded)[0] != LARGE_BODY_BYTES + BODY_END_BIAS:
        raise ValueError(f"large message of {len(encoded)} bytes does not name its file")
    return LargeBody(*_LARGE_BODY.unpack_from(encoded, 4)[:3])


class LargeMessage(Message):
    """A message without its body, which lies in a file (``store.messages.large_messages``). ``body`` and
    ``encoded`` hold a ``LargeBody`` in its place, and so does the log.
    """

    __slots__ = ()
    is_large: ClassVar[bool] = True

    @classmethod
    def of(cls, header: Message, large: LargeBody, original_bytes: int) -> LargeMessage:
        """The large message with the header of ``header``, whose body is ignored.

        Args:
            header: The message without its body.
            large: Where the body is.
            original_bytes: What ``_AMQ_LARGE_SIZE`` says: bytes of the body before compression.
        """
        properties = header.properties.copy()
        properties.set_typed(LARGE_SIZE, LONG, original_bytes)
        return cls(
            large.encode(),
            address=header.address,
            type=header.type,
            durable=header.durable,
            priority=header.priority,
            expiration=header.expiration,
            timestamp=header.timestamp,
            user_id=header.user_id,
            properties=properties,
            message_id=large.file_id,
        )

    @property
    def large(self) -> LargeBody:
        """Location of the body."""
        return large_body_of(self.encoded)

    @property
    def header(self) -> bytes:
        """The message without its body, as it is sent on the wire."""
        return self.encoded[self.header_offset :]

    def assign_id(self, message_id: int) -> None:
        """Does nothing: the id was assigned when the file of the body was created."""


def _decode_address(raw: bytes, offset: int, stop: int, size: int, trusted: bool) -> str:
    length = stop - offset - 4
    if length < 0 or length & 1 or stop > size:
        raise RemoteProtocolError(f"message address of {length} bytes at offset {offset}")
    if length > 2 * NAME_UNITS_MAX and not trusted:
        raise LimitExceeded(f"address of {length // 2} characters, limit {NAME_UNITS_MAX}")
    address = utf_16_le_decode(raw, "surrogatepass", True)[0]
    if length <= _ADDRESS_BYTES_MAX:
        if len(_ADDRESSES) >= _ADDRESSES_MAX:
            _ADDRESSES.clear()
        _ADDRESSES[raw] = address
    return address
