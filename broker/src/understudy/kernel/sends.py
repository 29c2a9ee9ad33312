"""Messages of a read as columns over its bytes, without an object per message.

``Sends`` is what a session gives to ``routing.batch.BatchSends``, whatever protocol its client speaks. ``add_row``
checks a message as strictly as ``Message.decode`` does. ``sends_of`` makes ``Sends`` of encoded messages, for protocols
whose frames carry messages in another form; ``kernel.core.split_sends`` makes them of CORE frames, whose messages stay
where they are.

Layout of a message: ``understudy.message``.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from understudy.kernel.names import (
    BRIDGE_DUPLICATE_ID,
    DUPLICATE_ID,
    GROUP_ID,
    GROUP_SEQUENCE,
    RESERVED_PREFIXES,
    ROUTING_TYPE,
    SCHEDULED_DELIVERY,
)
from understudy.limits import DUPLICATE_ID_BYTES_MAX, NAME_UNITS_MAX, PROPERTIES_MAX, STRING_UNITS_MAX

#: The field that says where a body ends counts from the start of a frame header that is no longer sent.
_BODY_END_BIAS: Final = 13

_I32 = Struct(">i")
_TIME = Struct(">q")
_FIELDS = Struct(">?qqb")  # durable, expiration, timestamp, priority; the type is skipped

#: Traits of a message, in one integer.
DURABLE: Final = 1
"""Bit of messages that survive a crash."""
SPECIAL: Final = 2
"""Bit of messages with a negative expiration, or with a property that the ordinary path does not handle."""
GROUPED: Final = 4
"""Bit of messages that belong to a message group."""
PRIORITY_SHIFT: Final = 3
"""Number of the first of four bits with the priority."""
_ROUTING_SHIFT: Final = 7
"""Nine bits: 0, or the routing type of the property plus one."""
_ROUTING_MASK: Final = 511
SCHEDULED: Final = 1 << 16
"""Bit of messages that are not delivered before a time."""
DUPLICATE_SHIFT: Final = 17
"""Number of the bit from which on the bytes of the duplicate id are stored; 0: the message has none."""
_ALIKE: Final = DURABLE | 15 << PRIORITY_SHIFT | SCHEDULED | -1 << DUPLICATE_SHIFT
"""Traits that must be equal in messages that are handled together."""

_BYTE: Final = 3
_BYTES: Final = 4
_STRING: Final = 10
_LONG: Final = 7
_INTEGERS: Final = (_BYTE, 5, 6, _LONG)
_FLOATS: Final = (8, 9)
#: Bytes of a value by the type of the property, for types of fixed size.
FIXED_BYTES: Final = {0: 0, 2: 1, _BYTE: 1, 5: 2, 6: 4, 7: 8, 8: 4, 9: 8, 11: 2}


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-le")


_PREFIXES: Final = tuple(map(_utf16, RESERVED_PREFIXES))
_DUPLICATE_NAME: Final = _utf16(DUPLICATE_ID)
_SCHEDULED_NAME: Final = _utf16(SCHEDULED_DELIVERY)
_BRIDGE_NAME: Final = _utf16(BRIDGE_DUPLICATE_ID)
_ROUTING_NAME: Final = _utf16(ROUTING_TYPE)
_GROUP_NAME: Final = _utf16(GROUP_ID)
_SEQUENCE_NAME: Final = _utf16(GROUP_SEQUENCE)
#: Every name that matters begins with ``_`` and all but one with ``_AMQ_``.
_MARK: Final = _utf16("_")

_Walked = tuple[int, bytes, int, int, int]
"""Traits, duplicate id, where the group id begins and ends, counted from the start of the block (0 and 0: there is
none), and the time before which the message is not delivered, in epoch milliseconds (0: at once)."""

#: Addresses by their bytes, because they repeat; bounded, so that a peer cannot make it grow.
_ADDRESSES: dict[bytes, str] = {}
_ADDRESSES_MAX: Final = 4096
#: Longest address remembered. Bytes.
_ADDRESS_BYTES_MAX: Final = 512

#: Property blocks that repeat, such as the routing type alone, and what ``_walk_block`` says of them; their number is
#: bounded.
_BLOCKS: dict[bytes, _Walked] = {}
_BLOCKS_MAX: Final = 1024
_BLOCK_BYTES_MAX: Final = 64


class Sends:
    """Messages that came together, a row each. Made by ``sends_of`` or ``split_sends``; never changes afterwards."""

    __slots__ = (
        "_addresses",
        "_any_grouped",
        "_duplicates",
        "_expirations",
        "_groups",
        "_headers",
        "_scheduled",
        "_starts",
        "_stops",
        "_traits",
        "correlation_ids",
        "data",
        "end",
        "requires_response",
    )

    def __init__(self, data: bytes, *, requires_response: bool) -> None:
        self.data = data
        """The bytes that were read, which the rows point into."""
        self.end = 0
        """Offset in ``data`` after the last frame; 0 if the messages did not come in CORE frames."""
        self.requires_response = requires_response
        """Whether each of the sends requires a response."""
        self.correlation_ids: list[int] = []
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._headers: list[int] = []
        self._addresses: list[str | None] = []
        self._traits: list[int] = []
        self._duplicates: dict[int, bytes] = {}
        self._expirations: dict[int, int] = {}
        self._scheduled: dict[int, int] = {}
        self._groups: dict[int, tuple[int, int]] = {}
        self._any_grouped = False

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self._starts)

    def address(self, row: int) -> str | None:
        """Address of the message; None if it names none."""
        return self._addresses[row]

    def durable(self, row: int) -> bool:
        """Whether the message survives a crash."""
        return bool(self._traits[row] & DURABLE)

    def priority(self, row: int) -> int:
        """Priority of a message, 0 to 9."""
        return self._traits[row] >> PRIORITY_SHIFT & 15

    def expiration(self, row: int) -> int:
        """Epoch milliseconds; 0: never, or there is no such row."""
        return self._expirations.get(row, 0)

    def due_times(self, row: int, count: int) -> list[int]:
        """Epoch milliseconds before which each of ``count`` messages from ``row`` on is not delivered, or of those that
        there are; 0: at once.
        """
        rows = range(row, min(row + count, len(self._starts)))
        time_of = self._scheduled.get
        return [time_of(each, 0) for each in rows] if self._scheduled else [0] * len(rows)

    def group(self, row: int) -> tuple[int, int]:
        """Begin and end of the group id in the message, in UTF-16; 0 and 0: it has none, or one that
        ``alike`` refuses because it is no string.
        """
        return self._groups.get(row, (0, 0))

    def expirations(self, row: int, count: int) -> list[int]:
        """``expiration`` of ``count`` rows from ``row`` on, or of those that there are."""
        rows = range(row, min(row + count, len(self._starts)))
        expiration_of = self._expirations.get
        return [expiration_of(each, 0) for each in rows] if self._expirations else [0] * len(rows)

    def groups(self, row: int, count: int) -> list[tuple[int, int]]:
        """``group`` of ``count`` rows from ``row`` on, or of those that there are."""
        group_of = self._groups.get
        return [group_of(each, (0, 0)) for each in range(row, min(row + count, len(self._starts)))]

    def duplicate_id(self, row: int) -> bytes:
        """The key by which an address detects that the message is sent again (see ``routing.lifecycle.duplicate_ids``);
        empty if it has none, or one that ``alike`` refuses: neither text nor bytes, empty, or too long.
        """
        return self._duplicates.get(row, b"")

    def duplicate_ids(self, row: int, count: int) -> list[bytes]:
        """``duplicate_id`` of ``count`` rows from ``row`` on, or of those that there are."""
        id_of = self._duplicates.get
        return [id_of(each, b"") for each in range(row, min(row + count, len(self._starts)))]

    def encoded(self, row: int) -> bytes:
        """One message, encoded by its client."""
        return self.data[self._starts[row] : self._stops[row]]

    def size(self, row: int) -> int:
        """Bytes of the message."""
        return self._stops[row] - self._starts[row]

    def bytes_of(self, row: int, count: int) -> int:
        """Bytes of ``count`` messages from ``row`` on, or of those that there are."""
        end = row + count
        return sum(self._stops[row:end]) - sum(self._starts[row:end])

    def alike(
        self, row: int, bytes_max: int, routing_type: int, room_bytes: int, room_count: int
    ) -> tuple[int, int, int]:
        """The messages from ``row`` on that can be taken together: of the address, durability and priority of the first
        one, with a time of delivery each or without, with duplicate ids of the same length or none, without names that
        only a broker writes, of at most ``bytes_max`` bytes each, sent to this routing type or to any, with fewer than
        ``room_bytes`` bytes in all those before it, and at most ``room_count``.

        Returns:
            How many, their bytes, and their kind: a number with their durability (``DURABLE``), priority (four bits
            from ``PRIORITY_SHIFT`` on) and bytes of the duplicate id (from ``DUPLICATE_SHIFT`` on).
        """
        address, kind = self._addresses[row], self._traits[row] & _ALIKE
        wanted = routing_type + 1
        starts, stops, addresses, traits = self._starts, self._stops, self._addresses, self._traits
        size = min(len(starts), row + max(room_count, 0))
        size_bytes = 0
        end = row
        while end < size:
            trait = traits[end]
            routing = trait >> _ROUTING_SHIFT & _ROUTING_MASK
            length = stops[end] - starts[end]
            if (
                trait & (_ALIKE | SPECIAL) != kind
                or (routing and routing != wanted)
                or length > bytes_max
                or addresses[end] != address
                or room_bytes <= 0
            ):
                break
            room_bytes -= length
            size_bytes += length
            end += 1
        return end - row, size_bytes, kind

    def grouped(self, row: int, count: int) -> bool:
        """Whether one of these messages belongs to a message group."""
        return self._any_grouped and any(trait & GROUPED for trait in self._traits[row : row + count])

    def extents(self, row: int, count: int) -> zip[tuple[int, int, int]]:
        """Offsets of the messages in ``data``: start, message id, end."""
        end = row + count
        return zip(self._starts[row:end], self._headers[row:end], self._stops[row:end], strict=True)


def sends_of(messages: Sequence[bytes], correlation_ids: Sequence[int], *, requires_response: bool) -> Sends:
    """Messages of a client, in the form in which they lie in the log.

    Args:
        messages: Encoded as in ``understudy.message``.
        correlation_ids: The number that the confirmation of each one names.
        requires_response: Whether the client waits for the confirmations.

    Returns:
        Those before the first malformed one; perhaps none.

    Raises:
        ValueError: There are not as many correlation ids as messages.
    """
    if len(messages) != len(correlation_ids):
        raise ValueError(f"{len(messages)} messages, {len(correlation_ids)} correlation ids")
    sends = Sends(b"".join(messages), requires_response=requires_response)
    start = 0
    for message, correlation_id in zip(messages, correlation_ids, strict=True):
        stop = start + len(message)
        if not add_row(sends, start, stop):
            break
        sends.correlation_ids.append(correlation_id)
        start = stop
    return sends


def add_row(sends: Sends, start: int, stop: int) -> bool:
    """Add the message in ``data[start:stop]``. False: it is malformed."""
    data = sends.data
    if stop - start < 4:
        return False
    header = start + 4 + _I32.unpack_from(data, start)[0] - _BODY_END_BIAS
    if not start + 4 <= header <= stop - 9:
        return False
    offset = header + 9
    address: str | None = None
    if data[header + 8]:
        if offset + 4 > stop:
            return False
        length = _I32.unpack_from(data, offset)[0]
        offset += 4
        raw = data[offset : offset + length] if length >= 0 else b""
        offset += length
        if length < 0 or offset > stop:
            return False
        address = _ADDRESSES.get(raw)
        if address is None:
            if length & 1 or length > 2 * NAME_UNITS_MAX:
                return False
            address = _remember(raw)
    if offset >= stop:
        return False
    offset += 17 if data[offset] else 1
    block = offset + 19
    if block >= stop:
        return False
    durable, expiration, _, priority = _FIELDS.unpack_from(data, offset + 1)
    if not 0 <= priority <= 9:
        return False
    traits = priority << PRIORITY_SHIFT
    if durable:
        traits |= DURABLE
    if expiration < 0:
        traits |= SPECIAL
    row = len(sends._starts)
    if data[block]:
        found, duplicate, group_start, group_end, scheduled = _block_traits(data, block, stop)
        if found < 0:
            return False
        traits |= found
        if found & GROUPED:
            sends._any_grouped = True
        if group_end:
            sends._groups[row] = block + group_start - start, block + group_end - start
        if scheduled:
            sends._scheduled[row] = scheduled
        if duplicate:
            if len(duplicate) <= DUPLICATE_ID_BYTES_MAX:
                traits |= len(duplicate) << DUPLICATE_SHIFT
                sends._duplicates[row] = duplicate
            else:
                traits |= SPECIAL
    elif block + 1 != stop:
        return False
    if expiration:
        sends._expirations[row] = expiration
    sends._starts.append(start)
    sends._stops.append(stop)
    sends._headers.append(header)
    sends._addresses.append(address)
    sends._traits.append(traits)
    return True


def _remember(raw: bytes) -> str:
    address = raw.decode("utf-16-le", "surrogatepass")
    if len(raw) <= _ADDRESS_BYTES_MAX:
        if len(_ADDRESSES) >= _ADDRESSES_MAX:
            _ADDRESSES.clear()
        _ADDRESSES[raw] = address
    return address


def _block_traits(data: bytes, offset: int, end: int) -> _Walked:
    """Traits of a message by its property block in ``data[offset:end]``, whose flag is set; -1 if the block is
    malformed.
    """
    if end - offset > _BLOCK_BYTES_MAX:
        return _walk_block(data, offset, end)
    block = data[offset:end]
    known = _BLOCKS.get(block)
    if known is None:
        known = _walk_block(data, offset, end)
        if known[0] >= 0 and not known[1] and not known[4]:
            if len(_BLOCKS) >= _BLOCKS_MAX:
                _BLOCKS.clear()
            _BLOCKS[block] = known
    return known


_MALFORMED: Final[_Walked] = -1, b"", 0, 0, 0


def _walk_block(data: bytes, offset: int, end: int) -> _Walked:
    """Like ``_block_traits``. Refuses what ``Properties.decode`` refuses, and nothing else."""
    unpack_length = _I32.unpack_from
    begin = offset
    group_start = group_end = scheduled = 0
    if offset + 5 > end:
        return _MALFORMED
    count = unpack_length(data, offset + 1)[0]
    if not 0 <= count <= PROPERTIES_MAX:
        return _MALFORMED
    offset += 5
    traits = routing = 0
    duplicate = b""
    fixed_of = FIXED_BYTES.get
    for _ in range(count):
        start = offset + 4
        if start > end:
            return _MALFORMED
        length = unpack_length(data, offset)[0]
        stop = start + length
        if length < 0 or length & 1 or stop >= end or length > 2 * STRING_UNITS_MAX:
            return _MALFORMED
        tag = data[stop]
        offset = stop + 1
        size = fixed_of(tag)
        if size is None:
            if tag not in (_STRING, _BYTES) or offset + 4 > end:
                return _MALFORMED
            size = unpack_length(data, offset)[0]
            if size < 0 or (tag == _STRING and (size & 1 or size > 2 * STRING_UNITS_MAX)):
                return _MALFORMED
            offset += 4
        if offset + size > end:
            return _MALFORMED
        if data[start : start + 2] == _MARK:
            name = data[start:stop]
            if name == _ROUTING_NAME:
                if tag != _BYTE:
                    traits |= SPECIAL
                routing = data[offset] + 1
            elif name == _GROUP_NAME:
                traits |= GROUPED if tag == _STRING else GROUPED | SPECIAL
                if tag == _STRING:
                    group_start, group_end = offset - begin, offset + size - begin
            elif name == _SEQUENCE_NAME:
                if tag in _FLOATS or (tag in _INTEGERS and data.count(0xFF, offset, offset + size) == size):
                    traits |= SPECIAL
            elif name == _DUPLICATE_NAME:
                duplicate = _key(tag, data[offset : offset + size])
                if not duplicate:
                    traits |= SPECIAL
            elif name == _SCHEDULED_NAME:
                # a long that is a time; the last one of that name counts
                scheduled = max(_TIME.unpack_from(data, offset)[0], 0) if tag == _LONG else 0
                traits |= SCHEDULED if scheduled else SPECIAL
            elif name == _BRIDGE_NAME or name.startswith(_PREFIXES):
                traits |= SPECIAL
        offset += size
    if offset != end:
        return _MALFORMED
    return traits | routing << _ROUTING_SHIFT, duplicate, group_start, group_end, scheduled


def _key(tag: int, value: bytes) -> bytes:
    """A duplicate id as ``routing.lifecycle.duplicate_ids`` keeps it; empty where it is neither a string nor bytes."""
    if tag == _STRING:
        return value.decode("utf-16-le", "surrogatepass").encode("utf-8", "surrogatepass")
    return value if tag == _BYTES else b""
