"""Messages as lines of text that any program can read: what ``understudy data export`` writes and
``understudy data import`` sends (docs/operations/data-tools.md, "The export file").

One JSON object a line, ASCII: first ``export``, then ``queue`` before the first message of each
queue, ``message`` as often as needed, and ``end`` with the counts, without which the file is cut.

Not here: which messages (``contents``), files, or sending.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from understudy.errors import BrokerError
from understudy.limits import RECORD_BYTES_MAX
from understudy.message import DUPLICATE_ID, Message
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
from understudy.store.contents import LiveMessage

FORMAT: Final = 1
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
_NAN: Final = "nan:"
_DOUBLE: Final = struct.Struct(">d")
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


@dataclass(frozen=True, slots=True)
class ExportedMessage:
    """A message of the file, with where it comes from."""

    queue: str
    """Empty for one that goes to its address, whatever queues there are (replay)."""
    node_id: str
    epoch: int
    sequence: int
    message_id: int
    message: Message
    """As the log has it; its id is 0."""
    delivery_count: int = 0

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

    def to_send(self, address: str) -> Message:
        """The message as it goes out: the duplicate id in place of its producer's, which is kept
        beside it.
        """
        properties = self.message.properties.copy()
        if DUPLICATE_ID in properties:
            original = properties[DUPLICATE_ID]
            properties.set_typed(ORIGINAL_DUPLICATE_ID, properties.tag(DUPLICATE_ID), original)
        properties.set_typed(DUPLICATE_ID, STRING, self.duplicate_id)
        return self.message.replace(address=address, properties=properties)


@dataclass(frozen=True, slots=True)
class ExportHeader:
    """The first line."""

    node_id: str
    epoch: int
    sequence: int
    source: str
    """Directory it was made from, for people."""


@dataclass(frozen=True, slots=True)
class ExportEnd:
    """The last line."""

    messages: int
    left_out: int
    """Messages that could not be exported whole."""


Line = ExportHeader | ExportedQueue | ExportedMessage | ExportEnd


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


def queue_line(live: LiveMessage) -> str:
    """The queue of the messages that follow."""
    queue, address = live.queue, live.address
    return _line(
        "queue",
        {
            "name": queue.name,
            "address": address.name if address is not None else queue.name,
            "routing_type": _ROUTING_TYPES[queue.routing_type],
            "filter": queue.filter,
            "durable": queue.durable,
            "settings": dict(queue.settings),
            "address_routing_types": [
                _ROUTING_TYPES[number]
                for number in (address.routing_types if address is not None else (queue.routing_type,))
            ],
        },
    )


def message_line(live: LiveMessage) -> str:
    """One message.

    Raises:
        RemoteProtocolError: the log has a message that is none.
    """
    message = Message.decode(live.record.encoded)
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
        },
    )


def end_line(messages: int, left_out: int) -> str:
    """The last line of a file."""
    return _line("end", {"messages": messages, "left_out": left_out})


def _to_json(tag: int, value: PropertyValue) -> Any:
    if tag == BYTES:
        assert isinstance(value, bytes)
        return b64encode(value).decode("ascii")
    if tag in (FLOAT, DOUBLE):
        # exact, and JSON has neither infinity nor not-a-number
        assert isinstance(value, float)
        # the sign and payload of a not-a-number have no other notation
        return value.hex() if value == value else _NAN + _DOUBLE.pack(value).hex()
    return value


def _from_json(tag: int, value: Any) -> PropertyValue:
    if tag == BYTES:
        return b64decode(value, validate=True)
    if tag in (FLOAT, DOUBLE):
        if value.startswith(_NAN):
            (number,) = _DOUBLE.unpack(bytes.fromhex(value.removeprefix(_NAN)))
            assert isinstance(number, float)
            return number
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
    """What a line says.

    Args:
        line: With or without its end.
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
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']!r}, this Understudy reads {FORMAT}")
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
    # what cannot be read back must not be sent
    Message.decode(message.encoded)
    return ExportedMessage(
        _text(fields["queue"]),
        header.node_id,
        int(fields["epoch"]),
        int(fields["sequence"]),
        int(fields["id"]),
        message,
        int(fields["delivery_count"]),
    )


def _parse_end(fields: dict[str, Any], header: ExportHeader | None) -> ExportEnd:
    return ExportEnd(int(fields["messages"]), int(fields["left_out"]))


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
    "end": _parse_end,
}
