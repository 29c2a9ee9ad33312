"""Messages of live queues as rows, and rows as messages (docs/use/pipeline.md).

Works without a running Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ConfigError, LocalProtocolError
from understudy.limits import FRAME_BYTES_MAX, NAME_UNITS_MAX, PROPERTIES_MAX, STRING_UNITS_MAX
from understudy.message import (
    ACTUAL_EXPIRY,
    DUPLICATE_ID,
    ORIGINAL_ADDRESS,
    ORIGINAL_MESSAGE_ID,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_TYPE,
    SCHEDULED_DELIVERY,
    TRANSFER,
    Message,
    MessageType,
    Transfer,
)
from understudy.properties import BYTE, INT, LONG, STRING, Properties, encode_simple_string
from understudy.spark.journal.decode import PRODUCER, clean, plain, text_of


class RowRefused(BrokerError):
    """A row that cannot be sent as a message, whatever the broker says; the others can."""

    code = "row-refused"


#: Columns of the source, and their types in Spark's DDL. Those that table ``messages`` has, too, mean the same.
COLUMNS: Final[Mapping[str, str]] = {
    "id": "string",
    "node_id": "string",
    "message_id": "bigint",
    "queue": "string",
    "address": "string",
    "timestamp": "timestamp",
    "expiration": "timestamp",
    "scheduled": "timestamp",
    "priority": "tinyint",
    "durable": "boolean",
    "type": "tinyint",
    "large": "boolean",
    "size": "int",
    "delivery_count": "int",
    "user_id": "binary",
    "duplicate_id": "binary",
    "producer": "string",
    "properties": "map<string,string>",
    "body": "binary",
    "text": "string",
}
#: Columns that the sink sends.
SENT_COLUMNS: Final[Mapping[str, str]] = {
    name: COLUMNS[name]
    for name in ("address", "body", "durable", "expiration", "priority", "properties", "scheduled", "text", "user_id")
}
#: Properties that begin so are the broker's and the protocol's: as text they would have other types.
_RESERVED: Final = ("_AMQ_", "_UNDERSTUDY_")
#: Columns with the origin of a dead letter, an expired message or a moved message, and their types.
_ORIGIN: Final[Mapping[str, int]] = {
    ORIGINAL_ADDRESS: STRING,
    ORIGINAL_QUEUE: STRING,
    ORIGINAL_MESSAGE_ID: LONG,
    ORIGINAL_ROUTING_TYPE: BYTE,
    ACTUAL_EXPIRY: LONG,
}


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """A received message with its whole body."""

    node_id: str
    queue: str
    message: Message
    body: bytes
    large: bool
    size_bytes: int
    delivery_count: int

    @property
    def key(self) -> tuple[str, int]:
        """Key that is the same in every copy of the message that a node delivers."""
        return self.node_id, self.message.message_id


def columns_ddl(columns: str | None) -> str:
    """The schema of all or of some columns in Spark's DDL.

    Raises:
        ConfigError: there is no such column.
    """
    names = list(COLUMNS) if columns is None else [each.strip() for each in columns.split(",")]
    for name in names:
        if name not in COLUMNS:
            raise ConfigError(f"a queue has no column {name!r}", hint=f"columns: {', '.join(COLUMNS)}")
    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in names)


def batch_of(messages: Sequence[QueueMessage], schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema for some messages."""
    rows = [row_of(each, schema.names) for each in messages]
    arrays = [pa.array([row[each.name] for row in rows], each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def row_of(received: QueueMessage, names: Sequence[str]) -> dict[str, Any]:
    """Some columns of a message."""
    message = received.message
    properties = message.properties
    found: dict[str, Any] = {}
    for name in names:
        found[name] = _VALUES[name](received, message, properties)
    return found


def _moment(milliseconds: object) -> int | None:
    """Microseconds since 1970, as Arrow's timestamps have them."""
    return 1000 * milliseconds if isinstance(milliseconds, int) and milliseconds > 0 else None


def _bytes_of(value: object) -> bytes | None:
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None


def _text(value: object) -> str | None:
    return clean(value) if isinstance(value, str) else None


_VALUES: Final[Mapping[str, Any]] = {
    "id": lambda each, message, _: f"{each.node_id}:{message.message_id}",
    "node_id": lambda each, *_: each.node_id,
    "message_id": lambda _, message, __: message.message_id,
    "queue": lambda each, *_: clean(each.queue),
    "address": lambda _, message, __: _text(message.address),
    "timestamp": lambda _, message, __: _moment(message.timestamp),
    "expiration": lambda _, message, __: _moment(message.expiration),
    "scheduled": lambda _, __, properties: _moment(properties.get(SCHEDULED_DELIVERY)),
    "priority": lambda _, message, __: message.priority,
    "durable": lambda _, message, __: message.durable,
    "type": lambda _, message, __: message.type,
    "large": lambda each, *_: each.large,
    "size": lambda each, *_: each.size_bytes,
    "delivery_count": lambda each, *_: each.delivery_count,
    "user_id": lambda _, message, __: message.user_id,
    "duplicate_id": lambda _, __, properties: _bytes_of(properties.get(DUPLICATE_ID)),
    "producer": lambda _, __, properties: _text(properties.get(PRODUCER)),
    "properties": lambda _, __, properties: list(plain(properties).items()),
    "body": lambda each, *_: each.body,
    "text": lambda each, message, _: text_of(each.body) if message.type == MessageType.TEXT else None,
}


def check_sent(columns: Mapping[str, str], address: str | None, id_column: str | None) -> None:
    """Check that rows of these columns can be sent.

    Args:
        columns: Name and type, as ``simpleString`` gives it.
        address: Address of the options; None: the column is needed.
        id_column: Column that identifies a message.

    Raises:
        ConfigError: a column is missing, unknown, or has another type.
    """
    for name, kind in columns.items():
        wanted = SENT_COLUMNS.get(name)
        if name == id_column:
            if wanted is None and kind not in ("string", "binary", "int", "bigint"):
                raise ConfigError(f"option idColumn: column {name} is {kind}, and no string, binary or integer")
        elif wanted is None:
            raise ConfigError(f"column {name} cannot be sent", hint=f"columns: {', '.join(SENT_COLUMNS)}; use select")
        elif kind != wanted:
            raise ConfigError(f"column {name} is {kind}, and {wanted} is sent")
    if not {"body", "text"} & set(columns):
        raise ConfigError("there is nothing to send", hint="a column body (binary) or text (string)")
    if address is None and "address" not in columns:
        raise ConfigError("there is no address to send to", hint="option address, or a column address")
    if id_column is not None and id_column not in columns:
        raise ConfigError(f"option idColumn: there is no column {id_column!r}")


def message_to_send(row: Mapping[str, Any], address: str | None, duplicate_id: str | bytes, now_ms: int) -> Message:
    """The message of a row.

    Args:
        row: Values by column; times in microseconds since 1970, properties as pairs.
        address: Address of the options; it wins over the column.
        duplicate_id: Id by which the broker recognises copies.
        now_ms: Timestamp of the message.

    Raises:
        RowRefused: the row has no address, or a value that cannot be sent.
    """
    target = address or row.get("address")
    if not target:
        raise RowRefused("it has no address")
    if _units(target) > NAME_UNITS_MAX:
        raise RowRefused(f"its address has {_units(target):,} characters, at most {NAME_UNITS_MAX:,} are sent")
    text = row.get("text")  # a text message of the source has it in its body, too
    given = {name: value for name, value in (row.get("properties") or ()) if not name.startswith(_RESERVED)}
    properties = Properties(given)
    for name, value in row.get("properties") or ():
        tag = _ORIGIN.get(name)
        if tag is not None and value is not None:
            properties.set_typed(name, tag, value if tag == STRING else _number(name, value))
    properties.set_typed(TRANSFER, INT, int(Transfer.KEEPS_ORIGIN | Transfer.NEEDS_QUEUE))
    properties[DUPLICATE_ID] = duplicate_id
    if row.get("scheduled") is not None:
        properties.set_typed(SCHEDULED_DELIVERY, LONG, row["scheduled"] // 1000)
    _check_properties(properties)
    try:
        return _message(row, target, text, properties, now_ms)
    except LocalProtocolError as error:
        raise RowRefused(str(error)) from error


def _message(row: Mapping[str, Any], target: str, text: str | None, properties: Properties, now_ms: int) -> Message:
    return Message(
        row.get("body") or b"" if text is None else b"\x01" + encode_simple_string(text),
        address=target,
        type=MessageType.BYTES if text is None else MessageType.TEXT,
        durable=row["durable"] if row.get("durable") is not None else True,
        priority=row["priority"] if row.get("priority") is not None else 4,
        expiration=row["expiration"] // 1000 if row.get("expiration") is not None else 0,
        timestamp=now_ms,
        user_id=row.get("user_id"),
        properties=properties,
    )


def _number(name: str, value: str) -> int:
    try:
        found = int(value)
    except ValueError as error:
        raise RowRefused(f"its property {name} is {value[:50]!r}, and no number") from error
    size = 7 if _ORIGIN[name] == BYTE else 63
    if not -(1 << size) <= found < 1 << size:
        raise RowRefused(f"its property {name} is {found}, which is too large")
    return found


def _units(text: str) -> int:
    """UTF-16 units, by which the protocol counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _check_properties(properties: Properties) -> None:
    """Raises RowRefused for more, or larger, properties than a broker reads."""
    if len(properties) > PROPERTIES_MAX:
        raise RowRefused(f"it has {len(properties):,} properties, at most {PROPERTIES_MAX:,} are sent")
    total = 0
    for name, value in properties.items():
        sizes = [_units(each) for each in (name, value) if isinstance(each, str)]
        sizes += [len(value)] if isinstance(value, bytes) else []
        if max(sizes) > STRING_UNITS_MAX:
            raise RowRefused(f"its property {name[:50]!r} has {max(sizes):,} characters, at most {STRING_UNITS_MAX:,}")
        total += 2 * sum(sizes)
    if total > FRAME_BYTES_MAX // 2:
        raise RowRefused(f"its properties have {total:,} bytes, at most {FRAME_BYTES_MAX // 2:,} are sent")


def sent_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch as ``message_to_send`` takes them."""
    columns = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist() for column in batch
    ]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))
