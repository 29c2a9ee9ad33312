"""Messages as lines of text that any program can read: what ``understudy data export`` writes and
``understudy data import`` sends (docs/operate/data-tools.md, "The export file").

One JSON object a line, ASCII: first ``export``, then ``queue`` before the first message of each
queue, ``message`` as often as needed, after that of a large message its body in ``piece`` lines, and
``end`` with the counts, without which the file is cut. After all of that, each prepared transaction
is a ``transaction`` line and its messages.

Not here: which messages (``contents``), files, or sending.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ids import Xid
from understudy.kernel.log import crc32
from understudy.limits import RECORD_BYTES_MAX
from understudy.message import (
    DELIVERIES,
    DUPLICATE_ID,
    LARGE_COMPRESSED,
    LARGE_SIZE,
    SENT_TO,
    TRANSFER,
    LargeBody,
    Message,
    Transfer,
    large_body_of,
)
from understudy.properties import (
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    NULL,
    SHORT,
    STRING,
    Properties,
    PropertyValue,
)
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.tools.contents import LiveMessage

#: Written; 1 had neither large messages nor transactions, and is still read.
FORMAT: Final = 2
_FORMATS: Final = (1, 2)
#: Bytes of a large message's body in one line.
PIECE_BYTES: Final = 256 * 1024
#: Longest line: base64 and escapes make a record larger, at worst sixfold.
LINE_BYTES_MAX: Final = 6 * RECORD_BYTES_MAX + 64 * 1024
#: Where the duplicate id goes that a message had from its producer.
ORIGINAL_DUPLICATE_ID: Final = "_UNDERSTUDY_ORIG_DUPL_ID"

_TYPES: Final = {
    NULL: "null",
    BOOLEAN: "boolean",
    BYTE: "byte",
    BYTES: "bytes",
    SHORT: "short",
    INT: "int",
    LONG: "long",
    FLOAT: "float",
    DOUBLE: "double",
    STRING: "string",
    CHAR: "char",
}
_TAGS: Final = {name: tag for tag, name in _TYPES.items()}
_ROUTING_TYPES: Final = ("multicast", "anycast")


@dataclass(frozen=True, slots=True)
class ExportedQueue:
    """A queue as the file describes it."""

    name: str
    address: str
    routing_type: int
    filter: str | None
    durable: bool
    address_routing_types: tuple[int, ...]
    address_auto_created: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    """Further attributes of the queue by name, as its record has them."""


@dataclass(frozen=True, slots=True)
class ExportedMessage:
    """A message of the file, with where it comes from."""

    queue: str
    """Queue of the message; empty for a message that goes to its address, whatever queues it has (replay)."""
    node_id: str
    epoch: int
    sequence: int
    message_id: int
    message: Message
    """The message as the log has it; its id is 0."""
    delivery_count: int = 0
    transaction_id: int = 0
    """Id of the prepared transaction that it belongs to; 0 for none."""
    large: LargeBody | None = None
    """Length of the body of a large message after its line. ``message`` has this in place of the body."""

    @property
    def compressed(self) -> bool:
        """Whether the body of a large message is a zlib stream."""
        return self.large is not None and bool(self.message.properties.get(LARGE_COMPRESSED))

    @property
    def duplicate_id(self) -> str:
        """The same for the same message of the same log in the same queue, whichever copy it was
        exported from, and another for a different message to which a copy that went its own way
        gave the same id.
        """
        digest = blake2b(digest_size=12)
        digest.update(self.queue.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
        digest.update(self.message.encoded)
        return f"import:{self.node_id}:{self.message_id}:{digest.hexdigest()}"

    def to_send(self, address: str, *, back: bool = False) -> Message:
        """The message as it goes out: the duplicate id in place of its producer's, which is kept
        beside it. A large one has no body here, and nothing that speaks of how it was kept.

        Args:
            address: Where to.
            back: Whether it goes back into its queue, with its delivery count and the address that it was sent to.
        """
        properties = self.message.properties.copy()
        properties.set_typed(TRANSFER, INT, int(Transfer.KEEPS_ORIGIN | Transfer.NEEDS_QUEUE))
        if back and self.delivery_count > 0:
            properties.set_typed(DELIVERIES, INT, self.delivery_count)
        if back and self.message.address:
            properties.set_typed(SENT_TO, STRING, self.message.address)
        if DUPLICATE_ID in properties:
            original = properties[DUPLICATE_ID]
            properties.set_typed(ORIGINAL_DUPLICATE_ID, properties.tag(DUPLICATE_ID), original)
        properties.set_typed(DUPLICATE_ID, STRING, self.duplicate_id)
        if self.large is not None:
            for name in (LARGE_SIZE, LARGE_COMPRESSED):
                if name in properties:
                    del properties[name]
            message = self.message
            return Message(
                b"", address=address, type=message.type, durable=message.durable, priority=message.priority,
                expiration=message.expiration, timestamp=message.timestamp, user_id=message.user_id,
                properties=properties,
            )  # fmt: skip
        return self.message.replace(address=address, properties=properties)


@dataclass(frozen=True, slots=True)
class ExportedPiece:
    """A part of the body of the large message before it."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ExportedTransaction:
    """A prepared transaction; the messages after it in the file are marked with its id."""

    transaction_id: int
    xid: Xid | None
    """Xid of the transaction; None if its name is no XID, or if only the memory of a heuristic decision is left."""
    outcome: str
    """``prepared``, or the outcome decided without the transaction manager."""
    messages: int
    acknowledges: tuple[tuple[str, tuple[int, ...]], ...]
    """Queues with the ids of messages it takes from them; these are exported as waiting messages."""


@dataclass(frozen=True, slots=True)
class ExportHeader:
    """First line of an exported file."""

    node_id: str
    epoch: int
    sequence: int
    source: str
    """Directory from which the export was made, for a reader of the file."""


class ExportedDivert(NamedTuple):
    """A divert that management created; ``import`` names it and does not make it."""

    name: str
    address: str
    forwarding_address: str


@dataclass(frozen=True, slots=True)
class ExportEnd:
    """Last line of an exported file."""

    messages: int
    left_out: int
    """Messages that could not be exported whole."""
    prepared: int = 0
    """Number of ``messages`` that belong to prepared transactions."""
    diverts: tuple[ExportedDivert, ...] = ()
    """Diverts of the store; those of broker.xml are not in it."""


Line = ExportHeader | ExportedQueue | ExportedMessage | ExportedPiece | ExportedTransaction | ExportEnd


class BodyCheck:
    """Checks that the pieces of a body are in order, complete, and equal to the stored body."""

    def __init__(self, large: LargeBody) -> None:
        self._large = large
        self._offset = 0
        self._crc = 0

    def add(self, piece: ExportedPiece) -> bool:
        """The next piece; True when it was the last. Raises ValueError if it is not the next."""
        if piece.offset != self._offset or not piece.data or piece.offset + len(piece.data) > self._large.size_bytes:
            raise ValueError(f"bytes from {piece.offset} on where those from {self._offset} on are next")
        self._offset += len(piece.data)
        self._crc = crc32(piece.data, self._crc)
        return self.finished()

    def finished(self) -> bool:
        """Whether the whole body was read. Raises ValueError if it differs from the stored body."""
        if self._offset < self._large.size_bytes:
            return False
        if self._crc != self._large.crc:
            raise ValueError("the bytes of the body are not those that were exported")
        return True


# --- writing ------------------------------------------------------------------------------------------


def _line(kind: str, values: dict[str, Any]) -> str:
    return json.dumps({kind: values}, separators=(",", ":")) + "\n"


def header_line(header: ExportHeader) -> str:
    """The first line of a file."""
    return _line(
        "export",
        {
            "format": FORMAT,
            "node_id": header.node_id,
            "epoch": header.epoch,
            "sequence": header.sequence,
            "source": header.source,
        },
    )


def queue_line(queue: QueueRecord, address: AddressRecord | None) -> str:
    """A queue, before the first of its messages.

    Args:
        address: The address of the queue; None: the log does not have it.
    """
    return _line(
        "queue",
        {
            "name": queue.name,
            "address": address.name if address is not None else queue.name,
            "routing_type": _ROUTING_TYPES[queue.routing_type],
            "filter": queue.filter,
            "durable": queue.durable,
            "settings": dict(queue.settings),
            "address_auto_created": address is not None and address.auto_created,
            "address_routing_types": [
                _ROUTING_TYPES[number]
                for number in (address.routing_types if address is not None else (queue.routing_type,))
            ],
        },
    )


def transaction_line(transaction: ExportedTransaction) -> str:
    """A prepared transaction, before its messages."""
    xid = transaction.xid
    return _line(
        "transaction",
        {
            "id": transaction.transaction_id,
            "xid": None
            if xid is None
            else {
                "format_id": xid.format_id,
                "global_transaction_id": xid.global_transaction_id.hex(),
                "branch_qualifier": xid.branch_qualifier.hex(),
            },
            "outcome": transaction.outcome,
            "messages": transaction.messages,
            "acknowledges": [[queue, list(ids)] for queue, ids in transaction.acknowledges],
        },
    )


def piece_line(offset: int, data: bytes) -> str:
    """A part of the body of the large message before it."""
    return _line("piece", {"offset": offset, "data": b64encode(data).decode("ascii")})


def message_line(live: LiveMessage, transaction_id: int = 0) -> str:
    """Encode the line of a message. After the line of a large message its body must follow, ``PIECE_BYTES`` at a time.

    Raises:
        RemoteProtocolError: the log has a message that is none.
    """
    message = Message.decode(live.record.encoded, trusted=True)
    user_id = message.user_id
    return _line(
        "message",
        {
            "queue": live.queue.name,
            "epoch": live.epoch,
            "sequence": live.sequence,
            "id": live.record.message_id,
            "delivery_count": live.reference.delivery_count,
            "address": message.address,
            "type": message.type,
            "durable": message.durable,
            "priority": message.priority,
            "expiration": message.expiration,
            "timestamp": message.timestamp,
            "user_id": user_id.hex() if user_id is not None else None,
            "properties": [
                [name, _TYPES[message.properties.tag(name)], _to_json(message.properties.tag(name), value)]
                for name, value in message.properties.items()
            ],
            "body": b64encode(message.body).decode("ascii"),
            **({"large": True} if live.large else {}),
            **({"transaction": transaction_id} if transaction_id else {}),
        },
    )


def end_line(messages: int, left_out: int, prepared: int = 0, diverts: Sequence[ExportedDivert] = ()) -> str:
    """The last line of a file."""
    named = {"diverts": [each._asdict() for each in diverts]} if diverts else {}
    return _line("end", {"messages": messages, "left_out": left_out, "prepared": prepared, **named})


def diverts_of(addresses: Iterable[AddressRecord]) -> list[ExportedDivert]:
    """The diverts in the records of addresses."""
    found: list[ExportedDivert] = []
    for address in addresses:
        kept = address.settings.get("diverts")
        found += [
            ExportedDivert(str(each["name"]), address.name, str(each["forwarding_address"]))
            for each in (kept if isinstance(kept, list) else ())
        ]
    return found


#: Goes before the sixteen hexadecimal digits of one: there are many, and sign and payload come back too.
_NOT_A_NUMBER: Final = "nan:"
_BITS: Final = struct.Struct(">d")


def _to_json(tag: int, value: PropertyValue) -> Any:
    if tag == BYTES:
        assert isinstance(value, bytes)
        return b64encode(value).decode("ascii")
    if tag in (FLOAT, DOUBLE):
        # this form is exact, and JSON has neither infinity nor not-a-number
        assert isinstance(value, float)
        return _NOT_A_NUMBER + _BITS.pack(value).hex() if math.isnan(value) else value.hex()
    return value


def _from_json(tag: int, value: Any) -> PropertyValue:
    if tag == BYTES:
        return b64decode(value, validate=True)
    if tag in (FLOAT, DOUBLE):
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no {_TYPES[tag]}")
        if value.startswith(_NOT_A_NUMBER):
            bits = bytes.fromhex(value.removeprefix(_NOT_A_NUMBER))
            return float(_BITS.unpack(bits)[0]) if len(bits) == _BITS.size else float.fromhex(value)
        return float.fromhex(value)
    if tag == NULL and value is not None:
        raise ValueError("a null with a value")
    wanted = bool if tag == BOOLEAN else str if tag == STRING else int
    if tag != NULL and type(value) is not wanted:
        raise ValueError(f"{value!r} is no {_TYPES[tag]}")
    assert value is None or isinstance(value, (bool, int, str))
    return value


# --- reading ------------------------------------------------------------------------------------------


def parse_line(line: str, header: ExportHeader | None) -> Line:
    """Parse a line of an exported file.

    Args:
        line: Line with or without its end.
        header: The first line; None for the first.

    Raises:
        ValueError: it is no line of an export file.
    """
    try:
        values = json.loads(line)
        ((kind, fields),) = values.items()
        if (kind == "export") != (header is None):
            raise ValueError("the file does not begin with the line 'export'" if header is None else "a second header")
        return _PARSERS[kind](fields, header)
    except KeyError as error:
        raise ValueError(f"{error} is unknown or missing") from error
    except (
        TypeError,
        AttributeError,
        Base64Error,
        struct.error,
        RecursionError,
        OverflowError,
        AssertionError,
    ) as error:
        raise ValueError(f"malformed: {error}") from error
    except BrokerError as error:
        raise ValueError(str(error)) from error


def _parse_header(fields: dict[str, Any], header: ExportHeader | None) -> ExportHeader:
    if fields["format"] not in _FORMATS:
        raise ValueError(f"format {fields['format']!r}, this Understudy reads {' and '.join(map(str, _FORMATS))}")
    return ExportHeader(
        _text(fields["node_id"]), int(fields["epoch"]), int(fields["sequence"]), _text(fields["source"])
    )


def _parse_queue(fields: dict[str, Any], header: ExportHeader | None) -> ExportedQueue:
    return ExportedQueue(
        _text(fields["name"]),
        _text(fields["address"]),
        _routing_type(fields["routing_type"]),
        None if fields["filter"] is None else _text(fields["filter"]),
        bool(fields["durable"]),
        tuple(_routing_type(name) for name in fields["address_routing_types"]),
        bool(fields.get("address_auto_created", False)),
        dict(fields.get("settings") or {}),
    )


def _parse_message(fields: dict[str, Any], header: ExportHeader | None) -> ExportedMessage:
    assert header is not None
    properties = Properties()
    for name, kind, value in fields["properties"]:
        tag = _TAGS[kind]
        properties.set_typed(_text(name), tag, _from_json(tag, value))
    user_id = bytes.fromhex(fields["user_id"]) if fields["user_id"] is not None else None
    if user_id is not None and len(user_id) != 16:
        raise ValueError(f"a user id of {len(user_id)} bytes")
    message = Message(
        b64decode(fields["body"], validate=True),
        address=None if fields["address"] is None else _text(fields["address"]),
        type=int(fields["type"]),
        durable=bool(fields["durable"]),
        priority=int(fields["priority"]),
        expiration=int(fields["expiration"]),
        timestamp=int(fields["timestamp"]),
        user_id=user_id,
        properties=properties,
    )
    # a message that cannot be read back must not be sent
    Message.decode(message.encoded, trusted=True)
    return ExportedMessage(
        _text(fields["queue"]),
        header.node_id,
        int(fields["epoch"]),
        int(fields["sequence"]),
        int(fields["id"]),
        message,
        int(fields["delivery_count"]),
        int(fields.get("transaction", 0)),
        large_body_of(message.encoded) if fields.get("large") else None,
    )


def _parse_piece(fields: dict[str, Any], header: ExportHeader | None) -> ExportedPiece:
    return ExportedPiece(int(fields["offset"]), b64decode(fields["data"], validate=True))


def _parse_transaction(fields: dict[str, Any], header: ExportHeader | None) -> ExportedTransaction:
    xid = fields["xid"]
    return ExportedTransaction(
        int(fields["id"]),
        None
        if xid is None
        else Xid(
            int(xid["format_id"]), bytes.fromhex(xid["global_transaction_id"]), bytes.fromhex(xid["branch_qualifier"])
        ),
        _text(fields["outcome"]),
        int(fields["messages"]),
        tuple((_text(queue), tuple(map(int, ids))) for queue, ids in fields["acknowledges"]),
    )


def _parse_end(fields: dict[str, Any], header: ExportHeader | None) -> ExportEnd:
    diverts = tuple(
        ExportedDivert(_text(each["name"]), _text(each["address"]), _text(each["forwarding_address"]))
        for each in fields.get("diverts", ())
    )
    return ExportEnd(int(fields["messages"]), int(fields["left_out"]), int(fields.get("prepared", 0)), diverts)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _routing_type(name: Any) -> int:
    if name not in _ROUTING_TYPES:
        raise ValueError(f"{name!r} is no routing type")
    return _ROUTING_TYPES.index(name)


_PARSERS: Final[dict[str, Callable[[dict[str, Any], ExportHeader | None], Line]]] = {
    "export": _parse_header,
    "queue": _parse_queue,
    "message": _parse_message,
    "piece": _parse_piece,
    "transaction": _parse_transaction,
    "end": _parse_end,
}
