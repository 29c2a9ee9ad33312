"""Records of a segment as Arrow columns. No Python code runs per record, except for columns that say so.

A block is some consecutive records in one buffer. A column at a fixed place of a record is a slice of all records at
once; for columns after parts of variable length, rising positions serve as the offsets of a binary array, whose
values then begin with the wanted field.

Not here: finding the records of a file (``blocks``), and what Spark asks (``journal_source``).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import JournalCorrupt, RemoteProtocolError
from understudy.message import BODY_END_BIAS, MessageType
from understudy.properties import Properties
from understudy.spark.journal.log_plan import Piece
from understudy.spark.state.snapshots import TIME_MS_END
from understudy.store.log.records import ENCODING_SHIFT, MESSAGE_HEADER_BYTES, MESSAGE_LARGE, RecordType

assert sys.byteorder == "little", "columns are views of little-endian bytes"

#: Property with which ``understudy produce --ledger`` names the producer.
PRODUCER: Final = "ledger_producer"
#: And the one with the number of the message.
NUMBER: Final = "ledger_number"
#: Arrow types of fields by their width in bytes.
_UNSIGNED: Final = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32(), 8: pa.int64()}
_FIELDS: Final = {1: "B", 2: "H", 4: "I", 8: "q"}
_CODES: Final = {1: "b", 4: "i", 8: "q"}
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_KIND_NAMES: Final = {kind.value: kind.name for kind in RecordType}
_DECISIONS: Final = [int(each) for each in (RecordType.TX_PREPARE, RecordType.TX_COMMIT, RecordType.TX_ROLLBACK)]
#: Fixed fields of a record and of a MESSAGE_ADD: offset.
_LENGTH, _SEQUENCE, _BATCH, _KIND, _FLAGS, _PAYLOAD = 4, 8, 16, 20, 21, 24
_MESSAGE_ID, _TX_ID, _ADDRESS_ID, _EXPIRATION, _SCHEDULED = 24, 32, 40, 48, 56
_PRIORITY, _MESSAGE_FLAGS, _DUPLICATE_BYTES, _QUEUES = 64, 65, 66, 68

#: Bytes of a MESSAGE_ADD up to the end of the id of its first queue.
_HEAD_BYTES: Final = MESSAGE_HEADER_BYTES + 8
#: Shortest header of an encoded message: no address, no user id, no properties. Bytes.
_HEADER_BYTES_MIN: Final = 30

Names = Mapping[int, str]
Column = Callable[[], pa.Array]


class Block:
    """Consecutive records of one segment."""

    def __init__(self, piece: Piece, data: bytes | memoryview, origin: int, positions: array[int]) -> None:
        """
        Args:
            data: The bytes of the records.
            origin: Offset in the file of ``data``.
            positions: Index in ``data`` of each record; the last record ends where ``data`` does.
        """
        self.piece = piece
        self.data = pa.py_buffer(data)
        self.origin = origin
        self.starts = pa.Array.from_buffers(pa.int32(), len(positions), [None, pa.py_buffer(positions)])
        ends = array("i", positions[1:])
        ends.append(len(data))
        self.ends = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])

    def between(self, after: int, until: int) -> Block | None:
        """The records with sequences above ``after`` and up to ``until`` (0: all); None if there are none."""
        sequences = self.little(self.starts, 8, 8)
        # sequences rise
        first: int = pc.sum(pc.less_equal(sequences, after)).as_py() or 0
        last = len(sequences) if not until else pc.sum(pc.less_equal(sequences, until)).as_py() or 0
        if first >= last:
            return None
        if first == 0 and last == len(sequences):
            return self
        begin, end = self.starts[first].as_py(), self.ends[last - 1].as_py()
        positions = array("i", [position - begin for position in self.starts[first:last].to_pylist()])
        return Block(self.piece, self.data.slice(begin, end - begin), self.origin + begin, positions)

    def view(self, positions: pa.Array) -> pa.Array:
        """Binary values that begin at rising positions; each reaches to the next one."""
        offsets = pa.concat_arrays([positions.cast(pa.int32()), pa.array([self.data.size], pa.int32())])
        return pa.Array.from_buffers(pa.binary(), len(positions), [None, offsets.buffers()[1], self.data])

    def bytes_at(self, positions: pa.Array, at: int, width: int) -> pa.Buffer:
        """``width`` bytes at ``at`` from each position, joined.

        Raises:
            JournalCorrupt: one of them reaches past the end.
        """
        if not len(positions):
            return pa.py_buffer(b"")
        found = pc.binary_slice(self.view(positions), at, at + width).buffers()[2]
        if found is None or found.size != width * len(positions):
            raise JournalCorrupt("a record is shorter than its fields", file=self.piece.path, offset=self.origin)
        return found

    def little(self, positions: pa.Array, at: int, width: int) -> pa.Array:
        """Numbers that the log wrote: little-endian. 8 bytes are signed, fewer unsigned."""
        kind = _UNSIGNED[width]
        return pa.Array.from_buffers(kind, len(positions), [None, self.bytes_at(positions, at, width)])

    def big(self, positions: pa.Array, at: int, width: int) -> pa.Array:
        """Signed numbers that a client wrote: big-endian."""
        values = array(_CODES[width], bytes(self.bytes_at(positions, at, width)))
        values.byteswap()
        return _numbers(values)

    def cut(self, starts: pa.Array, ends: pa.Array) -> pa.Array:
        """Copies of the bytes from each start to its end."""
        # values alternate with the gaps between them
        bounds = array("i", bytes(8 * len(starts)))
        bounds[0::2], bounds[1::2] = _integers(starts), _integers(ends)
        bounds.append(self.data.size)
        spans = pa.Array.from_buffers(pa.binary(), 2 * len(starts), [None, pa.py_buffer(bounds), self.data])
        return spans.take(_numbers(array("q", range(0, 2 * len(starts), 2))))

    @cached_property
    def kinds(self) -> pa.Array:
        """Record types."""
        return self.little(self.starts, _KIND, 1)

    def select(self, *kinds: RecordType) -> tuple[pa.Array, pa.Array]:
        """Positions and ends of the records of some types."""
        mask = pc.is_in(self.kinds, pa.array([int(kind) for kind in kinds], pa.uint8()))
        return self.starts.filter(mask), self.ends.filter(mask)


def _numbers(values: array[int]) -> pa.Array:
    kinds = {"b": pa.int8(), "i": pa.int32(), "q": pa.int64()}
    return pa.Array.from_buffers(kinds[values.typecode], len(values), [None, pa.py_buffer(values)])


def _integers(positions: pa.Array) -> array[int]:
    """Positions as 32-bit numbers."""
    found = pa.concat_arrays([positions.cast(pa.int32()), pa.array([], pa.int32())])
    return array("i", bytes(found.buffers()[1])[: 4 * len(found)])


def _repeats(counts: pa.Array) -> pa.Array:
    """Index of each record as often as it has rows."""
    rows = array("i")
    for row, count in enumerate(counts.to_pylist()):
        rows.extend([row] * count)
    return _numbers(rows)


def _repeat(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _time(milliseconds: pa.Array) -> pa.Array:
    """Timestamps; null for 0 and for times that are none (a client may send any number)."""
    sound = pc.and_(pc.greater(milliseconds, 0), pc.less(milliseconds, TIME_MS_END))
    known = pc.if_else(sound, milliseconds, pa.scalar(None, pa.int64()))
    return pc.multiply(known, 1000).cast(_TIMESTAMP)


def _none_for_zero(ids: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(ids, 0), pa.scalar(None, pa.int64()), ids)


def _named(ids: pa.Array, names: Names) -> pa.Array:
    known = pa.array(list(names), pa.int64())
    return pa.array(list(names.values()), pa.string()).take(pc.index_in(ids, known))


class Rows:
    """Rows of one table in one block: columns by name, computed when they are asked for."""

    def __init__(self, block: Block, starts: pa.Array, ends: pa.Array) -> None:
        self.block = block
        self.starts = starts
        self.ends = ends
        self._repeated = False
        self.columns: dict[str, Column] = self._place()

    def __len__(self) -> int:
        return len(self.starts)

    def column(self, name: str) -> pa.Array:
        """The values of a column, with the Arrow type that belongs to its Spark type."""
        return self.columns[name]()

    def keep(self, mask: pa.Array) -> None:
        """Drop the rows for which the mask is not true."""
        self.starts, self.ends = self.starts.filter(mask), self.ends.filter(mask)
        # cached columns belong to the rows before
        for name in [name for name in self.__dict__ if name.startswith("_at_")]:
            del self.__dict__[name]

    def _once(self, positions: pa.Array, read: Callable[[pa.Array], pa.Array]) -> pa.Array:
        """Values of a column read at positions that repeat if a record has several rows."""
        if not self._repeated:
            return read(positions)
        parts = positions.dictionary_encode()
        return read(parts.dictionary).take(parts.indices)

    def _place(self) -> dict[str, Column]:
        piece = self.block.piece

        def same(value: Any, kind: pa.DataType) -> Column:
            return lambda: _repeat(value, kind, len(self))

        until = 1000 * piece.sealed_ms or None
        return {
            "directory": same(piece.directory, pa.string()),
            "node_id": same(piece.node_id, pa.string()),
            "epoch": same(piece.epoch, pa.int64()),
            "sequence": lambda: self.block.little(self.starts, _SEQUENCE, 8),
            "segment": same(piece.number, pa.int64()),
            "file": same(piece.name, pa.string()),
            "offset": lambda: pc.add(self.starts.cast(pa.int64()), self.block.origin),
            "length": lambda: pc.subtract(self.ends, self.starts),
            "logged_from": same(1000 * piece.first_ms or None, _TIMESTAMP),
            "logged_until": same(until, _TIMESTAMP),
        }


class RecordRows(Rows):
    """Table ``records``: every record as it is."""

    def __init__(self, block: Block) -> None:
        super().__init__(block, block.starts, block.ends)
        self.columns |= {
            "batch": lambda: block.little(self.starts, _BATCH, 4).cast(pa.int64()),
            "type": lambda: block.little(self.starts, _KIND, 1).cast(pa.int16()),
            "kind": lambda: _named(block.little(self.starts, _KIND, 1).cast(pa.int64()), _KIND_NAMES),
            "flags": lambda: block.little(self.starts, _FLAGS, 1).cast(pa.int16()),
            "transaction_id": self._transaction_id,
            "payload": lambda: block.cut(pc.add(self.starts, _PAYLOAD), self.ends),
            "damage": lambda: pa.nulls(len(self), pa.string()),
        }

    def _transaction_id(self) -> pa.Array:
        """Transaction ids of TX_PREPARE, TX_COMMIT and TX_ROLLBACK; null for other records."""
        decides = pc.is_in(self.block.little(self.starts, _KIND, 1), pa.array(_DECISIONS, pa.uint8()))
        # of other records these are bytes of the header, which are not used
        found = self.block.little(pc.if_else(decides, pc.add(self.starts, _PAYLOAD), self.starts), 0, 8)
        return pc.if_else(decides, found, pa.scalar(None, pa.int64()))


class AcknowledgementRows(Rows):
    """Table ``acknowledgements``: one row for each message of an ACKNOWLEDGE; none for a mark."""

    def __init__(self, block: Block, queue_names: Names) -> None:
        super().__init__(block, *block.select(RecordType.ACKNOWLEDGE))
        counts = block.little(self.starts, 40, 4)
        bodies = block.cut(pc.add(self.starts, 48), self.ends)
        ids = bodies.buffers()[2] if len(bodies) else None
        total = pc.sum(counts).as_py() or 0
        if ids is not None and ids.size != 8 * total:
            raise JournalCorrupt(
                "an acknowledgement has another length than its number of messages says",
                file=block.piece.path,
                offset=block.origin,
            )
        self._messages = pa.Array.from_buffers(pa.int64(), total, [None, ids or pa.py_buffer(b"")])
        self._repeated = not pc.all(pc.equal(counts, 1), min_count=0).as_py()
        if self._repeated:
            order = _repeats(counts)
            self.starts, self.ends = self.starts.take(order), self.ends.take(order)
        self.columns |= {
            "queue_id": lambda: self._field(24),
            "queue": lambda: _named(self._field(24), queue_names),
            "transaction_id": lambda: _none_for_zero(self._field(32)),
            "message_id": lambda: self._messages,
            "sequence": lambda: self._field(_SEQUENCE),
        }

    def _field(self, at: int) -> pa.Array:
        """Number in the record of each row; rows of one record follow each other, so positions may repeat."""
        return self._once(self.starts, lambda where: self.block.little(where, at, 8))

    def keep(self, mask: pa.Array) -> None:
        self._messages = self._messages.filter(mask)
        super().keep(mask)


class MessageRows(Rows):
    """Table ``messages``: one row for each queue that a MESSAGE_ADD or MESSAGE_MOVE puts its message into.

    Columns ``properties``, ``producer`` and ``text`` run Python code per row.
    """

    def __init__(
        self,
        block: Block,
        address_names: Names,
        queue_names: Names,
        kinds: tuple[RecordType, ...] = (RecordType.MESSAGE_ADD, RecordType.MESSAGE_MOVE),
    ) -> None:
        super().__init__(block, *block.select(*kinds))
        self._address_names, self._queue_names = address_names, queue_names
        self._explode()
        self.columns |= {
            "message_id": lambda: self._field(_MESSAGE_ID, 8),
            "transaction_id": self._transaction_id,
            "moved": self._moved,
            "address_id": lambda: self._field(_ADDRESS_ID, 8),
            "address": self._address,
            "queue_id": lambda: self._queue_ids,
            "queue": lambda: _named(self._queue_ids, queue_names),
            "expiration": lambda: _time(self._field(_EXPIRATION, 8)),
            "scheduled": lambda: _time(self._field(_SCHEDULED, 8)),
            "priority": lambda: self._field(_PRIORITY, 1).cast(pa.int8()),
            "large": self._large,
            "size": lambda: pc.subtract(self.ends, self._at_message),
            "duplicate_id": self._duplicate_id,
            "timestamp": lambda: _time(self._big(self._at_fields, 10, 8)),
            "durable": lambda: pc.not_equal(self._big(self._at_fields, 1, 1), 0),
            "type": lambda: self._big(self._at_fields, 0, 1),
            "user_id": self._user_id,
            "body": lambda: self._unless_large(self._cut(self._at_body, self._at_header)),
            "text": self._text,
            "encoded": lambda: self._cut(self._at_message, self.ends),
            "header": lambda: self._cut(self._at_header, self.ends),
            "properties": lambda: pa.array(
                [list(plain(each).items()) for each in self._properties()], pa.map_(pa.string(), pa.string())
            ),
            "producer": lambda: pa.array([plain(each).get(PRODUCER) for each in self._properties()], pa.string()),
            "sequence": lambda: self._field(_SEQUENCE, 8),
        }

    # --- rows that are records more than once -----------------------------------------------------------------------

    def _explode(self) -> None:
        counts = self.block.little(self.starts, _QUEUES, 4)
        self._repeated = not pc.all(pc.equal(counts, 1), min_count=0).as_py()
        if not self._repeated:
            self._queue_ids = self._field(MESSAGE_HEADER_BYTES, 8)
            return
        ends = pc.add(self.starts, pc.add(pc.multiply(counts, 8), MESSAGE_HEADER_BYTES).cast(pa.int32()))
        ids = self.block.cut(pc.add(self.starts, MESSAGE_HEADER_BYTES), ends).buffers()[2]
        total = pc.sum(counts).as_py()
        self._queue_ids = pa.Array.from_buffers(pa.int64(), total, [None, ids or pa.py_buffer(b"")])
        order = _repeats(counts)
        self.starts, self.ends = self.starts.take(order), self.ends.take(order)

    def keep(self, mask: pa.Array) -> None:
        self._queue_ids = self._queue_ids.filter(mask)
        super().keep(mask)

    def _field(self, at: int, width: int) -> pa.Array:
        if self._repeated:
            return self._once(self.starts, lambda where: self.block.little(where, at, width))
        # every field is at its place in rows of equal length, so it is a slice with a step
        values = array(_FIELDS[width], self._at_head)[at // width :: _HEAD_BYTES // width]
        return pa.Array.from_buffers(_UNSIGNED[width], len(self), [None, pa.py_buffer(values)])

    @cached_property
    def _at_head(self) -> bytes:
        """The beginning of each record up to the id of its first queue, joined."""
        return bytes(self.block.bytes_at(self.starts, 0, _HEAD_BYTES))

    def _big(self, positions: pa.Array, at: int, width: int) -> pa.Array:
        return self._once(positions, lambda where: self.block.big(where, at, width))

    def _cut(self, starts: pa.Array, ends: pa.Array) -> pa.Array:
        if not self._repeated:
            return self.block.cut(starts, ends)
        first = pc.not_equal(starts, pa.concat_arrays([pa.array([-1], starts.type), starts])[:-1])
        copies = self.block.cut(starts.filter(first), ends.filter(first))
        rows = pc.subtract(pc.cumulative_sum(first.cast(pa.int32())), 1)
        return copies.take(rows)

    # --- fixed part -------------------------------------------------------------------------------------------------

    def _moved(self) -> pa.Array:
        return pc.equal(self._field(_KIND, 1), int(RecordType.MESSAGE_MOVE))

    def _transaction_id(self) -> pa.Array:
        source = pc.if_else(self._moved(), pa.scalar(0, pa.int64()), self._field(_TX_ID, 8))
        return _none_for_zero(source)

    def _large(self) -> pa.Array:
        return pc.equal(pc.bit_wise_and(self._field(_MESSAGE_FLAGS, 1), MESSAGE_LARGE), 1)

    def _unless_large(self, values: pa.Array) -> pa.Array:
        return pc.if_else(self._large(), pa.scalar(None, values.type), values)

    @cached_property
    def _at_duplicate(self) -> pa.Array:
        queues = pc.multiply(self._field(_QUEUES, 4).cast(pa.int32()), 8)
        return pc.add(self.starts, pc.add(queues, MESSAGE_HEADER_BYTES))

    @cached_property
    def _at_message(self) -> pa.Array:
        return pc.add(self._at_duplicate, self._field(_DUPLICATE_BYTES, 2).cast(pa.int32()))

    def _duplicate_id(self) -> pa.Array:
        found = self._cut(self._at_duplicate, self._at_message)
        return pc.if_else(pc.equal(pc.binary_length(found), 0), pa.scalar(None, pa.binary()), found)

    # --- the message as it is encoded (understudy.message) ----------------------------------------------------------

    @cached_property
    def _at_body(self) -> pa.Array:
        encodings = pc.shift_right(self._field(_MESSAGE_FLAGS, 1), ENCODING_SHIFT)
        self._refuse(pc.not_equal(encodings, 0), "a message in an unknown encoding")
        return pc.add(self._at_message, 4)

    @cached_property
    def _at_header(self) -> pa.Array:
        found = pc.add(self._at_body, pc.subtract(self._big(self._at_message, 0, 4), BODY_END_BIAS))
        wrong = pc.or_(pc.less(found, self._at_body), pc.greater(found, pc.subtract(self.ends, _HEADER_BYTES_MIN)))
        self._refuse(wrong, "the body of a message ends outside of it")
        return found

    @cached_property
    def _at_address_end(self) -> pa.Array:
        has = pc.not_equal(self._big(self._at_header, 8, 1), 0)
        # without an address these are bytes of other fields, which are not used
        length = pc.if_else(has, pc.add(self._big(self._at_header, 9, 4), 4), pa.scalar(0, pa.int32()))
        found = pc.add(self._at_header, pc.add(length, 9))
        wrong = pc.or_(pc.less(length, 0), pc.greater(found, pc.subtract(self.ends, 21)))
        self._refuse(wrong, "the address of a message ends outside of it")
        return found

    @cached_property
    def _at_fields(self) -> pa.Array:
        has = pc.not_equal(self._big(self._at_address_end, 0, 1), 0)
        found = pc.add(self._at_address_end, pc.if_else(has, pa.scalar(17, pa.int32()), pa.scalar(1, pa.int32())))
        self._refuse(pc.greater(found, pc.subtract(self.ends, 20)), "the header of a message ends outside of it")
        return found

    def _refuse(self, wrong: pa.Array, message: str) -> None:
        """Raise JournalCorrupt for the first row for which ``wrong`` is true."""
        row = pc.index(wrong, pa.scalar(True)).as_py()
        if row >= 0:
            offset = self.block.origin + self.starts[row].as_py()
            raise JournalCorrupt(message, file=self.block.piece.path, offset=offset)

    def _address(self) -> pa.Array:
        """Addresses by the bindings; of an address that they do not have, its name in the message itself."""
        named = _named(self._field(_ADDRESS_ID, 8), self._address_names)
        if not named.null_count:
            return named
        start = pc.min_element_wise(pc.add(self._at_header, 13), self._at_address_end)
        raw = self._cut(start, self._at_address_end).dictionary_encode()
        texts = [_utf_16(each) for each in raw.dictionary.to_pylist()]
        own = pa.array([each or None for each in texts], pa.string()).take(raw.indices)
        return pc.coalesce(named, own)

    def _user_id(self) -> pa.Array:
        found = self._cut(pc.add(self._at_address_end, 1), self._at_fields)
        return pc.if_else(pc.equal(pc.binary_length(found), 16), found, pa.scalar(None, pa.binary()))

    def _text(self) -> pa.Array:
        is_text = pc.and_(pc.equal(self._big(self._at_fields, 0, 1), int(MessageType.TEXT)), pc.invert(self._large()))
        bodies = self._cut(self._at_body, self._at_header).to_pylist()
        return pa.array(
            [text_of(body) if text else None for body, text in zip(bodies, is_text.to_pylist(), strict=True)],
            pa.string(),
        )

    def _properties(self) -> list[Properties]:
        found = []
        encoded = self._cut(pc.add(self._at_fields, 19), self.ends).to_pylist()
        for row, raw in enumerate(encoded):
            try:
                found.append(Properties.decode(raw, 0, len(raw), trusted=True)[0] if raw[0] else Properties())
            except RemoteProtocolError as error:
                offset = self.block.origin + self.starts[row].as_py()
                raise JournalCorrupt(str(error), file=self.block.piece.path, offset=offset) from error
        return found


def _utf_16(raw: bytes) -> str:
    return raw.decode("utf-16-le", "replace")


def text_of(body: bytes) -> str | None:
    """The text of a TEXT message: a nullable SimpleString."""
    if len(body) < 5 or not body[0]:
        return None
    return _utf_16(body[5 : 5 + int.from_bytes(body[1:5], "big")])


def plain(properties: Properties) -> dict[str, str | None]:
    """Properties as text: booleans as true and false, bytes in hexadecimal digits."""
    return {clean(name): _value_text(value) for name, value in properties.items()}


def _value_text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else clean(str(value))


def clean(text: str) -> str:
    """The text without lone surrogates, which UTF-8 does not have."""
    return text.encode("utf-8", "replace").decode("utf-8")
