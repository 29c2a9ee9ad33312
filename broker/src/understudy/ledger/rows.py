"""Rows of a delivery ledger and their JSON lines. ``understudy.ledger`` defines what each kind states."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple, NoReturn

from understudy.dataclass import dataclass
from understudy.errors import LedgerDamaged

#: Numbers and message ids lie in 0 .. this.
INTEGER_MAX: Final = 2**63 - 1
#: Times lie in 0 .. this (the year 10889), so that sums of them fit in 64 bits everywhere.
TIME_MS_MAX: Final = 2**48 - 1
#: A time after all rows of any ledger, clock skew included.
END_MS: Final = 4 * TIME_MS_MAX
#: Largest delivery count of a message that a ledger may have.
DELIVERY_COUNT_MAX: Final = 2**31 - 1
#: Version of the rows written here; lines of every earlier version are still read. Lines without a version are of
#: version 1, whose consumers did not write down their attempts to acknowledge. Consumers of versions 1 and 2 did not
#: write down when they were opened and closed.
VERSION: Final = 3
#: What a decoder puts in the place of bytes that are no text; writers escape it.
REPLACEMENT: Final = "\ufffd"
#: A whole line: one object without objects or arrays in it. Linear: every quantifier is possessive.
#: The Spark reader uses the same text, so both call the same lines half-written.
FLAT_OBJECT: Final = r'^[ \t\r\n]*+\{[^"{}\[\]]*+(?:"(?:[^"\\]++|\\.)*+"[^"{}\[\]]*+)*+\}[ \t\r\n]*+$'


class Kind(Enum):
    """The event that a row records."""

    SENT = "SENT"
    CONFIRMED = "CONFIRMED"
    DELIVERED = "DELIVERED"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    ACKNOWLEDGING = "ACKNOWLEDGING"
    REFUSED = "REFUSED"
    REMAINING = "REMAINING"
    DRAINED = "DRAINED"
    OPENED = "OPENED"
    CLOSED = "CLOSED"


#: Kinds of rows about a queue or a consumer. They name no message: the producer is empty and the number 0.
WITHOUT_MESSAGE: Final = frozenset({Kind.DRAINED, Kind.OPENED, Kind.CLOSED})
KIND_ORDER: Final = {kind: place for place, kind in enumerate(Kind)}
_KINDS: Final = {kind.value: kind for kind in Kind}


class Confirmer(NamedTuple):
    """The node that confirmed, as a client knows it; the fields are those of ``Row``."""

    node: str = ""
    node_id: str = ""
    epoch: int = 0


#: Of clients that do not know the node.
UNKNOWN: Final = Confirmer()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a ledger."""

    kind: Kind
    producer: str
    number: int
    """Number of the message of its producer, from 0; message property ``ledger_number``."""
    address: str
    at_ms: int
    """Wall clock of the writer, milliseconds since 1970 UTC."""
    consumer: str = ""
    queue: str = ""
    message_id: int = 0
    """The broker's id of the stored message; 0 when the writer does not know it."""
    delivery_count: int = 0
    """DELIVERED only: above 1 the broker says it had delivered it before; 0 unknown."""
    durable: bool = True
    """SENT and CONFIRMED only: a message that may not survive its broker says False."""
    digest: int = 0
    """SENT, DELIVERED and REMAINING only: ``digest_of`` the body; 0 when the writer does not know it."""
    transaction: str = ""
    """SENT, CONFIRMED and REFUSED only: name of the producer's transaction; empty outside transactions."""
    origin: str = ""
    """DELIVERED and REMAINING only: the queue this copy was moved from (dead letter, expiry, move); else empty."""
    version: int = VERSION
    """Version of the row's format."""
    node: str = ""
    """CONFIRMED and ACKNOWLEDGED only: host and port of the node that confirmed; empty unknown."""
    node_id: str = ""
    """CONFIRMED and ACKNOWLEDGED only: id of the node that confirmed; the nodes of a pair or group have one id."""
    epoch: int = 0
    """CONFIRMED and ACKNOWLEDGED only: the epoch in which the node confirmed; 0 unknown."""


#: Property in which the broker names the queue that a dead-lettered, expired or moved message comes from.
ORIGIN_PROPERTY: Final = "_AMQ_ORIG_QUEUE"


def digest_of(body: bytes) -> int:
    """Digest of a body, 1 .. INTEGER_MAX: the upper 63 bits of its 64-bit BLAKE2b."""
    return int.from_bytes(blake2b(body, digest_size=8).digest()) >> 1 or 1


def sort_key(row: Row) -> tuple[object, ...]:
    """Total order of rows for showing them: time first."""
    return (
        row.at_ms,
        KIND_ORDER[row.kind],
        row.producer,
        row.number,
        row.queue,
        row.consumer,
        row.message_id,
        row.delivery_count,
        row.address,
        row.durable,
        row.digest,
        row.transaction,
        row.origin,
        row.version,
        row.node,
        row.node_id,
        row.epoch,
    )


def encode(row: Row) -> str:
    """The row as one JSON line with its newline; fields at their default are left out."""
    line = (
        f'{{"kind":"{row.kind.value}","producer":{_quoted(row.producer)},"number":{row.number},'
        f'"address":{_quoted(row.address)},"at_ms":{row.at_ms}'
    )
    if row.consumer:
        line += f',"consumer":{_quoted(row.consumer)}'
    if row.queue:
        line += f',"queue":{_quoted(row.queue)}'
    if row.message_id:
        line += f',"message_id":{row.message_id}'
    if row.delivery_count:
        line += f',"delivery_count":{row.delivery_count}'
    if not row.durable:
        line += ',"durable":false'
    if row.digest:
        line += f',"digest":{row.digest}'
    if row.transaction:
        line += f',"transaction":{_quoted(row.transaction)}'
    if row.origin:
        line += f',"origin":{_quoted(row.origin)}'
    if row.version > 1:
        line += f',"version":{row.version}'
    if row.epoch:
        line += f',"node":{_quoted(row.node)},"node_id":{_quoted(row.node_id)},"epoch":{row.epoch}'
    return line + "}\n"


@lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    """Encode a name as a JSON string in ASCII; names repeat in every row and are kept encoded."""
    return json.dumps(name)


class ReceivedCopy(NamedTuple):
    """The copy of a message that a consumer or browser has received."""

    consumer: str
    queue: str
    message_id: int = 0
    """The broker's id of the stored message; 0 unknown."""
    digest: int = 0
    """``digest_of`` the body; 0 unknown."""
    origin: str = ""
    """The queue this copy was moved from (dead letter, expiry, move); else empty."""


class LedgerWriter:
    """Turns events into lines. ``write`` takes one line with its newline; the caller sees to it
    that a SENT line has left the process before the message does.
    """

    __slots__ = ("_write",)

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def append(self, row: Row) -> None:
        """Write one row to the ledger."""
        self._write(encode(row))

    def sent(
        self,
        producer: str,
        number: int,
        address: str,
        at_ms: int,
        *,
        durable: bool = True,
        digest: int = 0,
        transaction: str = "",
    ) -> None:
        """Write that a message is about to be sent."""
        self.append(
            Row(Kind.SENT, producer, number, address, at_ms, durable=durable, digest=digest, transaction=transaction)
        )

    def confirmed(
        self, producer: str, number: int, address: str, at_ms: int, *, durable: bool = True, transaction: str = "",
        by: Confirmer = UNKNOWN,
    ) -> None:  # fmt: skip
        """Write that the broker confirmed a message."""
        self.append(
            Row(Kind.CONFIRMED, producer, number, address, at_ms, durable=durable, transaction=transaction,
                **by._asdict())
        )  # fmt: skip

    def refused(
        self, producer: str, number: int, address: str, at_ms: int, copy: ReceivedCopy | None = None, *,
        transaction: str = "",
    ) -> None:  # fmt: skip
        """Write a refused acknowledgement of a copy, or a refused send, without a copy."""
        consumer, queue = (copy.consumer, copy.queue) if copy is not None else ("", "")
        self.append(Row(Kind.REFUSED, producer, number, address, at_ms, consumer, queue, transaction=transaction))

    def delivered(
        self, producer: str, number: int, address: str, at_ms: int, copy: ReceivedCopy, *, delivery_count: int = 0
    ) -> None:
        """Write the row of a message that a consumer received."""
        self.append(
            Row(
                Kind.DELIVERED, producer, number, address, at_ms, copy.consumer, copy.queue, copy.message_id,
                delivery_count, digest=copy.digest, origin=copy.origin,
            )
        )  # fmt: skip

    def acknowledging(self, producer: str, number: int, address: str, at_ms: int, copy: ReceivedCopy) -> None:
        """Write that a message is about to be acknowledged."""
        self.append(
            Row(Kind.ACKNOWLEDGING, producer, number, address, at_ms, copy.consumer, copy.queue, copy.message_id)
        )

    def acknowledged(
        self, producer: str, number: int, address: str, at_ms: int, copy: ReceivedCopy, *, by: Confirmer = UNKNOWN
    ) -> None:
        """Write that the broker confirmed an acknowledgement."""
        self.append(
            Row(
                Kind.ACKNOWLEDGED, producer, number, address, at_ms, copy.consumer, copy.queue, copy.message_id,
                **by._asdict(),
            )
        )  # fmt: skip

    def remaining(self, producer: str, number: int, address: str, at_ms: int, copy: ReceivedCopy) -> None:
        """Write that a message was found in a queue at the end."""
        self.append(
            Row(
                Kind.REMAINING, producer, number, address, at_ms, copy.consumer, copy.queue, copy.message_id,
                digest=copy.digest, origin=copy.origin,
            )
        )  # fmt: skip

    def drained(self, address: str, at_ms: int, *, consumer: str, queue: str) -> None:
        """Write that a consumer found its queue empty."""
        self.append(Row(Kind.DRAINED, "", 0, address, at_ms, consumer, queue))

    def opened(self, at_ms: int, *, consumer: str, queue: str) -> None:
        """Write that a consumer was opened."""
        self.append(Row(Kind.OPENED, "", 0, "", at_ms, consumer, queue))

    def closed(self, at_ms: int, *, consumer: str, queue: str) -> None:
        """Write that a consumer was closed."""
        self.append(Row(Kind.CLOSED, "", 0, "", at_ms, consumer, queue))


def read(
    lines: Iterable[str],
    *,
    file: str = "<ledger>",
    on_torn_tail: Callable[[str, int], object] | None = None,
) -> Iterator[Row]:
    """The rows of the lines of one file, one by one. Blank lines are skipped, unknown keys ignored.

    Args:
        file: Name for errors.
        on_torn_tail: Called with file and line when the *last* line is no complete flat object, as
            a killed writer leaves it; without it such a tail is an error like any other.

    Raises:
        LedgerDamaged: a line is no row; names file and line.
    """
    previous, previous_line = "", 0
    for line, text in enumerate(lines, 1):
        if text.strip(_BLANKS):
            if previous:
                yield parse(previous, file=file, line=previous_line)
            previous, previous_line = text, line
    if not previous:
        return
    if on_torn_tail is not None and _FLAT_OBJECT.match(previous) is None:
        on_torn_tail(file, previous_line)
        return
    yield parse(previous, file=file, line=previous_line)


_BLANKS: Final = " \t\r\n"
_FLAT_OBJECT: Final = re.compile(FLAT_OBJECT)
_KEYS: Final = frozenset(Row.__dataclass_fields__)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse(text: str, *, file: str = "<ledger>", line: int = 1) -> Row:
    """Parse one line of a ledger.

    Raises:
        LedgerDamaged: it is none; the message names file, line and fault.
    """
    try:
        if REPLACEMENT in text:
            raise ValueError("bytes that are no UTF-8")
        fields = _DECODER.decode(text.strip(_BLANKS))
        if type(fields) is not dict:
            raise ValueError("no JSON object")
        kind = _KINDS.get(_text(fields, "kind"))
        if kind is None:
            raise ValueError(f"unknown kind {fields['kind']!r}")
        if not _KEYS.issuperset(fields) and any(type(value) in (dict, list) for value in fields.values()):
            raise ValueError("a row holds no objects or arrays")
        durable = fields.get("durable", True)
        if type(durable) is not bool:
            raise ValueError("durable is neither true nor false")
        version = _integer(fields, "version", INTEGER_MAX, 1)
        if not 1 <= version <= VERSION:
            raise ValueError(f"version {version} is not one of 1..{VERSION}; a newer release wrote it")
        return Row(
            kind,
            _text(fields, "producer"),
            _integer(fields, "number", INTEGER_MAX),
            _text(fields, "address"),
            _integer(fields, "at_ms", TIME_MS_MAX),
            _text(fields, "consumer", ""),
            _text(fields, "queue", ""),
            _integer(fields, "message_id", INTEGER_MAX, 0),
            _integer(fields, "delivery_count", DELIVERY_COUNT_MAX, 0),
            durable,
            _integer(fields, "digest", INTEGER_MAX, 0),
            _text(fields, "transaction", ""),
            _text(fields, "origin", ""),
            version,
            _text(fields, "node", ""),
            _text(fields, "node_id", ""),
            _integer(fields, "epoch", INTEGER_MAX, 0),
        )
    except (ValueError, RecursionError) as error:
        raise LedgerDamaged(f"no ledger row: {error}", file=file, line=line) from None


def _text(fields: dict[str, object], key: str, default: str | None = None) -> str:
    value = fields.get(key, default)
    if type(value) is not str:
        raise ValueError(f"{key} is missing" if key not in fields else f"{key} is no text")
    return value


def _integer(fields: dict[str, object], key: str, largest: int, default: int | None = None) -> int:
    value = fields.get(key, default)
    if type(value) is not int:
        raise ValueError(f"{key} is missing" if key not in fields else f"{key} is no integer")
    if not 0 <= value <= largest:
        raise ValueError(f"{key} {value} is outside 0..{largest}")
    return value
