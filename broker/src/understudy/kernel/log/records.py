"""Walking the records of a piece of the log (docs/build/journal-format.md s. 2.2).

Native twin: ``broker/kernel/src/log/records.rs``.

Nearly everything in a log are *plain* records: a message without transaction or file of its own, an
acknowledgement and a duplicate id without transaction. ``scan`` checks records one after the other, collects what the
plain ones say as columns, and stops at the first that is not plain.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from itertools import compress
from typing import Final
from zlib import crc32

__all__ = [
    "BAD",
    "BLANK",
    "ENDED",
    "MORE",
    "OTHER",
    "SHORT",
    "Group",
    "Scan",
    "digest_records",
    "scan",
]

#: Why a scan stopped. The data is used up exactly.
ENDED: Final = 0
#: The next record is longer than the data that is left, or its header is.
SHORT: Final = 1
#: Result of a scan: zeros stand in the place of the next header.
BLANK: Final = 2
#: Result of a scan: the bytes hold no valid record, or a record that is not the next one.
BAD: Final = 3
#: The next record is valid and not plain.
OTHER: Final = 4
#: The next record is plain and goes into the result of another scan.
MORE: Final = 5

Group = tuple[int, int, bytes, bytes, bytes, bytes, bytes, bytes]
"""Messages of one queue and priority: queue id, priority, and columns in the byte order of the machine: message ids
(u64), file offsets of the records (u32), lengths of the records (u32), sizes of the messages (u32), expirations (i64,
empty if all are 0), times before which they are not delivered (i64, empty if all are 0)."""
Scan = tuple[int, int, int, int, int, int, int, list[Group], list[tuple[int, bytes]], list[tuple[int, int, bytes]]]
"""Reason for the end; index in the data after the last record taken; sequence and batch of that record; that of the
first record taken; lowest and highest message id of all messages, 0 without any; the messages that were not
acknowledged in the same scan, in the order in which their groups began; acknowledged message ids (u64) that belong to
none of them, by queue id; duplicate ids in order: address id, bytes of each, the ids one after the other."""

#: Crc, length, sequence, batch, type, flags, zero.
_HEADER: Final = struct.Struct("<IIQIBBH")
_HEADER_BYTES: Final = _HEADER.size
#: A record header and a MESSAGE_ADD: message id, tx id, address id, expiration, scheduled, priority, flags, length of
#: the duplicate id, number of queues. The queue ids and the duplicate id follow.
_MESSAGE: Final = struct.Struct("<IIQIBBHQQQqqBBHI")
_MESSAGE_BYTES: Final = _MESSAGE.size
#: Payload of ACKNOWLEDGE before its ids: queue id, tx id, number of ids, zero.
_ACKNOWLEDGE: Final = struct.Struct("<QQII")
_ACKNOWLEDGE_BYTES: Final = _HEADER_BYTES + _ACKNOWLEDGE.size
#: Payload of DUPLICATE_ID before the duplicate id: address id, tx id.
_DUPLICATE_ID: Final = struct.Struct("<QQ")
_DUPLICATE_ID_BYTES: Final = _HEADER_BYTES + _DUPLICATE_ID.size
_PRIORITY_MAX: Final = 9
#: Queues of a plain message.
_QUEUES_MAX: Final = 64


class _Group:
    """Rows of one queue and priority; message ids rise from row to row."""

    __slots__ = ("expirations", "gone", "ids", "lengths", "offsets", "priority", "queue_id", "scheduled", "sizes")

    def __init__(self, queue_id: int, priority: int) -> None:
        self.queue_id = queue_id
        self.priority = priority
        self.ids = array("Q")
        self.offsets = array("I")
        self.lengths = array("I")
        self.sizes = array("I")
        self.expirations = array("q")
        self.scheduled = array("q")
        self.gone: dict[int, int] = {}
        """Rows that were acknowledged."""

    def append(self, row: tuple[int, int, int, int, int, int]) -> None:
        message_id, offset, length, size, expiration, scheduled_ms = row
        self.ids.append(message_id)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.sizes.append(size)
        self.expirations.append(expiration)
        self.scheduled.append(scheduled_ms)

    def take(self, message_id: int) -> bool:
        """Acknowledge a row. Whether there was one."""
        row = bisect_left(self.ids, message_id)
        if row == len(self.ids) or self.ids[row] != message_id or row in self.gone:
            return False
        self.gone[row] = 1
        return True

    def columns(self) -> Group:
        ids, offsets, lengths, sizes = self.ids, self.offsets, self.lengths, self.sizes
        expirations, scheduled = self.expirations, self.scheduled
        if self.gone:
            kept = bytearray(b"\1") * len(ids)
            for row in self.gone:
                kept[row] = 0
            ids, offsets, lengths, sizes = (
                array(each.typecode, compress(each, kept)) for each in (ids, offsets, lengths, sizes)
            )
            expirations, scheduled = (array("q", compress(each, kept)) for each in (expirations, scheduled))
        return (
            self.queue_id,
            self.priority,
            ids.tobytes(),
            offsets.tobytes(),
            lengths.tobytes(),
            sizes.tobytes(),
            expirations.tobytes() if any(expirations) else b"",
            scheduled.tobytes() if any(scheduled) else b"",
        )


def scan(data: bytes, at: int, origin: int, seed: int | None, sequence: int, /) -> Scan:
    """Check the records of ``data`` from the index ``at`` on, and collect the plain ones.

    A scan ends where the ids of a queue and priority do not rise, so that an acknowledgement finds its message.

    Args:
        data: Part of a segment.
        at: Index of a record in it, at most its length.
        origin: Offset of ``data`` in the file.
        seed: Start value of the crcs; None if a digest vouches for the data: then neither crcs nor sequences are
            checked.
        sequence: Sequence of the record before; 0 accepts any.

    Raises:
        IndexError: ``at`` is greater than the length of ``data``.
        OverflowError: An offset does not fit into 32 bits.
    """
    size = len(data)
    if not 0 <= at <= size:
        raise IndexError(f"index {at} in {size} bytes")
    view = memoryview(data)
    groups: dict[tuple[int, int], _Group] = {}
    by_queue: dict[int, list[_Group]] = {}
    acknowledged: dict[int, array[int]] = {}
    duplicates: list[tuple[int, int, bytearray]] = []
    batch = first_sequence = id_min = id_max = 0
    stop = ENDED
    while at < size:
        if at + _HEADER_BYTES > size:
            stop = SHORT
            break
        crc, length, found, found_batch, kind, _, _ = _HEADER.unpack_from(data, at)
        end = at + length
        if end > size or length < _HEADER_BYTES:
            stop = _why_not(data, at, length)
            break
        if seed is not None and (crc32(view[at + 4 : end], seed) != crc or (found != sequence + 1 and sequence)):
            stop = BAD
            break
        if kind == 9 and length >= _MESSAGE_BYTES:
            (
                _, _, _, _, _, _, _, message_id, tx_id, address_id, expiration, scheduled_ms, priority, flags,
                duplicate_bytes, count,
            ) = _MESSAGE.unpack_from(data, at)  # fmt: skip
            head = _MESSAGE_BYTES + 8 * count
            rest = head + duplicate_bytes
            plain = not tx_id and not flags and 0 < count <= _QUEUES_MAX
            if not plain or priority > _PRIORITY_MAX or not message_id or rest > length:
                stop = OTHER
                break
            queue_ids = struct.unpack_from(f"<{count}Q", data, at + _MESSAGE_BYTES)
            if origin + at >= 1 << 32:
                raise OverflowError("an offset does not fit into 32 bits")
            if count > 1 and len(set(queue_ids)) < count:
                stop = OTHER
                break
            own = [groups.get((each, priority)) for each in queue_ids]
            if any(group is not None and group.ids[-1] >= message_id for group in own):
                stop = MORE
                break
            row = message_id, origin + at, length, length - rest, expiration, scheduled_ms
            for queue_id, group in zip(queue_ids, own, strict=True):
                (group or _begin_group(groups, by_queue, queue_id, priority)).append(row)
            id_min = min(id_min, message_id) or message_id
            id_max = max(id_max, message_id)
            if duplicate_bytes:
                add_duplicate(duplicates, address_id, data[at + head : at + rest])
        elif kind == 12 and length > _DUPLICATE_ID_BYTES:
            address_id, tx_id = _DUPLICATE_ID.unpack_from(data, at + _HEADER_BYTES)
            if tx_id:
                stop = OTHER
                break
            add_duplicate(duplicates, address_id, data[at + _DUPLICATE_ID_BYTES : end])
        elif kind != 10 or not _take_acknowledge(by_queue, acknowledged, data, at, length):
            stop = OTHER
            break
        first_sequence = first_sequence or found
        sequence, batch, at = found, found_batch, end
    columns = [each.columns() for each in groups.values()]
    return (
        stop, at, sequence, batch, first_sequence, id_min, id_max, columns,
        [(queue_id, ids.tobytes()) for queue_id, ids in acknowledged.items()],
        [(address_id, length, bytes(ids)) for address_id, length, ids in duplicates],
    )  # fmt: skip


def add_duplicate(duplicates: list[tuple[int, int, bytearray]], address_id: int, duplicate_id: bytes) -> None:
    """Add a duplicate id, which is not empty, to those of a ``Scan`` or a step of ``skim_records``."""
    length = len(duplicate_id)
    if not duplicates or duplicates[-1][:2] != (address_id, length):
        duplicates.append((address_id, length, bytearray()))
    duplicates[-1][2].extend(duplicate_id)


def _why_not(data: bytes, at: int, length: int) -> int:
    if length >= _HEADER_BYTES:
        return SHORT
    return BAD if data[at : at + _HEADER_BYTES].strip(b"\0") else BLANK


def _begin_group(
    groups: dict[tuple[int, int], _Group], by_queue: dict[int, list[_Group]], queue_id: int, priority: int
) -> _Group:
    group = groups[queue_id, priority] = _Group(queue_id, priority)
    own = by_queue.setdefault(queue_id, [])
    own.append(group)
    own.sort(key=lambda each: each.priority)
    return group


def _take_acknowledge(
    by_queue: dict[int, list[_Group]], acknowledged: dict[int, array[int]], data: bytes, at: int, length: int
) -> bool:
    """Take the ids of an acknowledgement. Whether it is plain."""
    if length < _ACKNOWLEDGE_BYTES:
        return False
    queue_id, tx_id, count, _ = _ACKNOWLEDGE.unpack_from(data, at + _HEADER_BYTES)
    if tx_id or length != _ACKNOWLEDGE_BYTES + 8 * count:
        return False
    own = by_queue.get(queue_id, ())
    for message_id in struct.unpack_from(f"<{count}Q", data, at + _ACKNOWLEDGE_BYTES):
        for group in own:
            if group.take(message_id):
                break
        else:
            if queue_id not in acknowledged:
                acknowledged[queue_id] = array("Q")
            acknowledged[queue_id].append(message_id)
    return True


def digest_records(data: bytes, digest: int, seed: int, /) -> int:
    """CRC-32 of whole, valid records, continuing from ``digest``.

    The native function combines it from the crcs in the headers, so the bytes of a record are read once, when its crc
    is made. For data that are not valid records the two functions differ.

    Args:
        data: Records of one segment.
        digest: CRC-32 of the bytes before them in the file.
        seed: Start value of the crcs of the segment.
    """
    return crc32(data, digest)
