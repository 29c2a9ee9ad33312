"""Messages made of other messages: with the properties of the cluster, or without them.

``pick_sends`` adds the ids of remote queues to messages that a client sent, ``moved_sends`` makes copies of messages
that leave a queue for another one, ``split_forwarded`` takes the properties of a bridge out of messages that arrived.
Each stops before the first message that needs more, which is handled as an object.

Layout of a property block: ``b8 flag, i32 count``, then for each property ``i32 length, name in UTF-16, b8 type,
value``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from understudy.kernel.names import BRIDGE_DUPLICATE_ID, ROUTE_TO
from understudy.kernel.sends import DUPLICATE_SHIFT, FIXED_BYTES, SPECIAL, Sends, add_row
from understudy.limits import DUPLICATE_ID_BYTES_MAX, PROPERTIES_MAX

#: Before the keys of messages that a bridge forwards, so that no ``_AMQ_DUPL_ID`` of a client equals one.
FORWARDED_KEY: Final = b"\0bridge\0"

_I32 = Struct(">i")
_COUNT = Struct(">bi")
_BYTES: Final = 4
_STRING: Final = 10


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-le", "surrogatepass")


ROUTE_NAME: Final = _utf16(ROUTE_TO)
BRIDGE_NAME: Final = _utf16(BRIDGE_DUPLICATE_ID)

Entry = tuple[int, int, int, int, int, int]
"""A property: its offset, begin and end of its name, type, begin (after the length of bytes) and end of its value."""


def block_of(data: bytes, start: int, stop: int) -> int:
    """Offset of the property block of the message in ``data[start:stop]``; -1: the message is malformed."""
    if stop - start < 4:
        return -1
    header = start + _I32.unpack_from(data, start)[0] - 9
    if not start + 4 <= header <= stop - 9:
        return -1
    offset = header + 9
    if data[header + 8]:
        if offset + 4 > stop:
            return -1
        length = _I32.unpack_from(data, offset)[0]
        offset += 4 + length
        if length < 0 or offset > stop:
            return -1
    if offset >= stop:
        return -1
    block = offset + (17 if data[offset] else 1) + 19
    return block if block < stop else -1


def entries_of(data: bytes, block: int, stop: int) -> Iterator[Entry | None]:
    """The properties of the block in ``data[block:stop]``; None at the end if it is malformed."""
    if not data[block]:
        if block + 1 != stop:
            yield None
        return
    if block + 5 > stop:
        yield None
        return
    count = _I32.unpack_from(data, block + 1)[0]
    offset = block + 5
    if not 0 <= count <= PROPERTIES_MAX:
        yield None
        return
    for _ in range(count):
        begin, name = offset, offset + 4
        if name > stop:
            yield None
            return
        length = _I32.unpack_from(data, begin)[0]
        name_end = name + length
        if length < 0 or name_end >= stop:
            yield None
            return
        tag, value = data[name_end], name_end + 1
        size = FIXED_BYTES.get(tag)
        if size is None:
            if tag not in (_STRING, _BYTES) or value + 4 > stop:
                yield None
                return
            size = _I32.unpack_from(data, value)[0]
            value += 4
        offset = value + size
        if size < 0 or offset > stop:
            yield None
            return
        yield begin, name, name_end, tag, value, offset
    if offset != stop:
        yield None


def with_entries(data: bytes, start: int, block: int, kept: list[bytes], added: Sequence[bytes]) -> bytes:
    """The message that begins at ``start``, with these properties."""
    entries = [*kept, *added]
    if not entries:
        return data[start:block] + b"\0"
    return b"".join((data[start:block], _COUNT.pack(1, len(entries)), *entries))


def pick_sends(sends: Sends, row: int, step: int, count: int, entries: bytes, entry_count: int) -> Sends:
    """Some of the messages of one read, with properties added after their own.

    Args:
        sends: The messages.
        row: The first one that is picked.
        step: Step from each one to the next; at least 1.
        count: How many, or as many as there are.
        entries: The properties, encoded one after the other, of names that none of the messages has.
        entry_count: How many these are; 0: the messages stay as they are.

    Raises:
        ValueError: ``step`` is 0.
    """
    if step < 1:
        raise ValueError(f"step {step}")
    data = sends.data
    rows = range(row, sends.count, step)[:count]
    messages: list[bytes] = []
    picked = Sends(data, requires_response=sends.requires_response)
    picked.end, picked._any_grouped = sends.end, sends._any_grouped
    size = 0
    for number, each in enumerate(rows):
        start, stop, header = sends._starts[each], sends._stops[each], sends._headers[each]
        if entry_count:
            block = block_of(data, start, stop)
            found = _I32.unpack_from(data, block + 1)[0] if data[block] else 0
            own = data[block + 5 : stop] if data[block] else b""
            message = b"".join((data[start:block], _COUNT.pack(1, found + entry_count), own, entries))
            messages.append(message)
            start, stop, header = size, size + len(message), size + header - start
            size = stop
        picked._starts.append(start)
        picked._stops.append(stop)
        picked._headers.append(header)
        picked._addresses.append(sends._addresses[each])
        picked._traits.append(sends._traits[each])
        picked.correlation_ids.append(sends.correlation_ids[each])
        for column, own_column in (
            (sends._duplicates, picked._duplicates),
            (sends._expirations, picked._expirations),
            (sends._scheduled, picked._scheduled),
            (sends._groups, picked._groups),
        ):
            if each in column:
                own_column[number] = column[each]  # type: ignore[assignment]  # columns of one type each
    if entry_count:
        picked.data = b"".join(messages)
    return picked


def moved_sends(messages: Sequence[bytes], added: bytes, added_count: int) -> Sends:
    """Messages that move from a queue to others, without the properties whose names begin with ``_AMQ_ROUTE_TO``, with
    others after their own, and without duplicate ids, because those of the originals count.

    Args:
        messages: Encoded.
        added: The properties, encoded one after the other, of names that none of the messages has.
        added_count: How many these are.

    Returns:
        Those before the first one that ``add_row`` refuses or calls special; perhaps none. Correlation ids are 0.
    """
    found = Sends(b"", requires_response=False)
    made: list[bytes] = []
    size = 0
    for message in messages:
        stop = len(message)
        block = block_of(message, 0, stop)
        if block < 0:
            break
        entries = [*entries_of(message, block, stop)]
        if None in entries:
            break
        kept = [
            message[e[0] : e[5]] for e in entries if e is not None and not message[e[1] : e[2]].startswith(ROUTE_NAME)
        ]
        found.data = with_entries(message, 0, block, kept, ())
        if not add_row(found, 0, len(found.data)) or found._traits[-1] & SPECIAL:
            _drop_last(found)
            break
        number = len(made)
        count = _COUNT.pack(1, len(kept) + added_count)
        made.append(b"".join((message[:block], count, *kept, added)) if added_count else found.data)
        found._traits[number] &= (1 << DUPLICATE_SHIFT) - 1
        found._duplicates.pop(number, None)
        found._headers[number] += size
        found._starts[number], found._stops[number] = size, size + len(made[-1])
        found.correlation_ids.append(0)
        size = found._stops[number]
    found.data = b"".join(made)
    return found


def split_forwarded(sends: Sends, row: int) -> tuple[Sends, bytes] | None:
    """The messages from ``row`` on that a bridge has sent, as they are without the properties of the bridge.

    Args:
        sends: The messages of one read.
        row: The first one.

    Returns:
        Those that have ``_AMQ_BRIDGE_DUP`` and the same ``_AMQ_ROUTE_TO``, neither of them empty, or all none, and
        nothing else that the ordinary way does not handle, with the key of the former as their duplicate id; and the
        value of the latter.
        None: the first one is no such message.
    """
    data = sends.data
    messages: list[bytes] = []
    keys: list[bytes] = []
    routes: bytes | None = None
    found = Sends(b"", requires_response=sends.requires_response)
    found.end = sends.end
    size = 0
    for each in range(row, sends.count):
        start, stop = sends._starts[each], sends._stops[each]
        block = block_of(data, start, stop)
        kept: list[bytes] = []
        key = ids = b""
        named = False
        for entry in entries_of(data, block, stop):
            assert entry is not None, "checked by split_sends"
            begin, name, name_end, tag, value, end = entry
            if tag == _BYTES and data[name:name_end] == BRIDGE_NAME:
                key = data[value:end]
            elif tag == _BYTES and data[name:name_end] == ROUTE_NAME:
                ids, named = data[value:end], True
            else:
                kept.append(data[begin:end])
        if (
            not key
            or (named and not ids)
            or len(FORWARDED_KEY) + len(key) > DUPLICATE_ID_BYTES_MAX
            or (routes is not None and ids != routes)
        ):
            break
        message = with_entries(data, start, block, kept, ())
        found.data = message
        if not add_row(found, 0, len(message)) or found._traits[-1] & SPECIAL:
            _drop_last(found)
            break
        number = len(messages)
        found._traits[number] = found._traits[number] & ((1 << DUPLICATE_SHIFT) - 1)
        found._traits[number] |= (len(FORWARDED_KEY) + len(key)) << DUPLICATE_SHIFT
        found._starts[number], found._stops[number] = size, size + len(message)
        found._headers[number] += size
        found._duplicates[number] = FORWARDED_KEY + key
        found.correlation_ids.append(sends.correlation_ids[each])
        messages.append(message)
        keys.append(key)
        routes = ids
        size += len(message)
    if not messages:
        return None
    found.data = b"".join(messages)
    return found, routes or b""


def _drop_last(sends: Sends) -> None:
    """Remove the last row, which has no correlation id yet, if it was added."""
    row = len(sends._starts) - 1
    if row < len(sends.correlation_ids):
        return
    for column in (sends._starts, sends._stops, sends._headers, sends._addresses, sends._traits):
        del column[row]
    for rows in (sends._duplicates, sends._expirations, sends._scheduled, sends._groups):
        rows.pop(row, None)
