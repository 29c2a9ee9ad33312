"""Runs: messages that arrived together, in the form of their log records.

``append_sends`` makes the MESSAGE_ADD records of messages that go to the same queues (docs/build/journal-format.md s.
4), in one buffer that is handed to the disk and kept for their delivery. ``keep_sends`` does the same without records,
for messages that are not durable. Both write the broker's message ids, which follow each other. ``join_runs`` makes
one run of several short ones. ``acknowledge_record`` makes the record of messages that have left a queue.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from struct import Struct, pack
from typing import Final, NamedTuple
from zlib import crc32

from understudy.kernel.sends import Sends

_MESSAGE_ADD: Final = 9
#: Of a record, after its crc: length, sequence, batch, type, flags, zero; message id, transaction id, address id,
#: expiration, scheduled, priority, flags, length of the duplicate id, number of queues.
_REST = Struct("<IQIBBHQQQqqBBHI")
#: Bytes of such a record before the ids of its queues, the duplicate id, if any, and the message.
RECORD_HEAD_BYTES: Final = 4 + _REST.size
#: Bytes of the id of one queue.
QUEUE_ID_BYTES: Final = 8
_ID = Struct(">q")
_DUPLICATE_ID: Final = 12
#: Layout of a DUPLICATE_ID record: the head of a record, address id, transaction id; the duplicate id follows.
_DUPLICATE_ID_REST = Struct("<IQIBBHQQ")
_ACKNOWLEDGE: Final = 10
#: Layout of an ACKNOWLEDGE record: the head of a record, queue id, transaction id, number of message ids, zero; the
#: message ids follow.
_ACKNOWLEDGE_REST = Struct("<IQIBBHQQII")


SendsPart = tuple[Sends, int, int]
"""Some messages of one read: the messages, the first row, the number of rows."""


class LogPosition(NamedTuple):
    """The position of the next record of the log."""

    segment: int
    """Number of the segment."""
    offset: int
    """Offset in the segment. Bytes."""
    room: int
    """Offset that a record must not cross; 4 less after each record."""
    sequence: int
    """Sequence of the record before."""
    batch: int
    """Offset of the first record of the batch."""
    seed: int
    """Seed of the crc of every record in the segment."""


class Run:
    """Messages of one queue in one buffer, in the order of their ids. Never changes."""

    __slots__ = ("_due_times", "_expirations", "_groups", "_ids", "_places", "_starts", "consecutive", "count", "data",
                 "earliest_ms", "expiring", "first_id", "grouped", "head_bytes", "offset", "segment",
                 "size_bytes")  # fmt: skip

    def __init__(
        self,
        data: bytes,
        starts: list[int],
        first_id: int,
        *,
        times: tuple[list[int], list[int]],
        groups: list[tuple[int, int]] | None,
        head_bytes: int,
        place: tuple[int, int] = (0, 0),
        joined: tuple[list[int] | None, list[tuple[int, int]] | None] = (None, None),
    ) -> None:
        expirations, due_times = times
        self.data = data
        """The records of messages that came together and are durable, else the messages; empty in a run without its
        messages (``bare_run``)."""
        self.count = len(starts) - 1
        """Number of messages of the run."""
        self.first_id = first_id
        """Id of the first message."""
        self.grouped = groups is not None
        """Whether a message of the run belongs to a message group."""
        self.expiring = len(expirations) - expirations.count(0)
        """Messages that have an expiration."""
        self.earliest_ms = min(filter(None, expirations), default=0)
        """Earliest expiration of the messages, in epoch milliseconds; 0: none expires."""
        self.head_bytes = head_bytes
        """Bytes of each record in ``data`` before its message; 0 if these are no records."""
        self.segment, self.offset = place
        """Segment of the log; 0 if the messages are not in the log. Offset of the first record in the segment."""
        self._ids, self._places = joined
        """Ids of the messages, in rising order; None if they are consecutive. Offset in the segment and length of each
        record; None if ``data`` has the records, or the log has none."""
        self.consecutive = self._ids is None
        """Whether the id of each message is one more than that of the message before."""
        self.size_bytes = starts[-1] - self.count * head_bytes
        """Bytes of the messages."""
        self._starts = starts
        """Offset in ``data`` of each record or message, and of the end."""
        self._expirations = expirations if self.expiring else None
        self._due_times = due_times if any(due_times) else None
        self._groups = groups
        """Begin and end of each group id in its message; 0 and 0: the message has none."""

    def ids(self, begin: int, end: int) -> list[int]:
        """Ids of the messages of rows ``begin`` to ``end``, the last one excluded."""
        if self._ids is not None:
            return self._ids[begin:end]
        return [*range(self.first_id + begin, self.first_id + min(end, self.count))]

    def row_of(self, message_id: int) -> int:
        """Row of a message; -1 if it is not one of these."""
        if self._ids is None:
            row = message_id - self.first_id
            return row if 0 <= row < self.count else -1
        row = bisect_left(self._ids, message_id)
        return row if row < self.count and self._ids[row] == message_id else -1

    def encoded(self, row: int) -> bytes:
        """Encoded bytes of one message of the run.

        Raises:
            ValueError: The run is without its messages (``bare_run``).
        """
        if not self.data:
            raise ValueError("a run without messages")
        return self.data[self._starts[row] + self.head_bytes : self._starts[row + 1]]

    def messages(self, begin: int, end: int) -> list[bytes]:
        """The messages of rows ``begin`` to ``end``, the last one excluded."""
        return [self.encoded(row) for row in range(begin, end)]

    def size(self, row: int) -> int:
        """Bytes of a message."""
        return self._starts[row + 1] - self._starts[row] - self.head_bytes

    def place(self, row: int) -> tuple[int, int]:
        """Offset in the segment and length of the record of a message."""
        if self._places is not None:
            return self._places[row]
        start = self._starts[row]
        return self.offset + start, self._starts[row + 1] - start

    def bytes_between(self, begin: int, end: int) -> int:
        """Bytes of the messages of rows ``begin`` to ``end``, the last one excluded."""
        return self._starts[end] - self._starts[begin] - (end - begin) * self.head_bytes

    def expiration(self, row: int) -> int:
        """Epoch milliseconds at which a message expires; 0: never."""
        return self._expirations[row] if self._expirations is not None else 0

    def scheduled(self, row: int) -> int:
        """Epoch milliseconds before which a message is not delivered; 0: at once, or its time had come when the run was
        made.
        """
        return self._due_times[row] if self._due_times is not None else 0

    @property
    def delayed(self) -> bool:
        """Whether a message of the run has a time before which it is not delivered (``scheduled``)."""
        return self._due_times is not None

    def due_times(self, begin: int, end: int) -> list[int]:
        """``scheduled`` of rows ``begin`` to ``end``, the last one excluded; empty if all are 0."""
        return self._due_times[begin:end] if self._due_times is not None else []

    def expiring_between(self, begin: int, end: int) -> int:
        """Messages of rows ``begin`` to ``end``, the last one excluded, that have an expiration."""
        if self._expirations is None:
            return 0
        part = self._expirations[begin:end]
        return len(part) - part.count(0)

    def groups(self, begin: int, end: int) -> list[str]:
        """The different message groups of rows ``begin`` to ``end``, the last one excluded, in the order in which they
        come first.
        """
        if self._groups is None:
            return []
        found: dict[bytes, None] = {}
        for row, (first, last) in enumerate(self._groups[begin:end], start=begin):
            if last:
                start = self._starts[row] + self.head_bytes
                found[self.data[start + first : start + last]] = None
        return [raw.decode("utf-16-le", "surrogatepass") for raw in found]

    def offsets(self) -> bytes:
        """Offsets of the records in the segment, as native unsigned 32-bit numbers."""
        if self._places is not None:
            return array("I", [offset for offset, _ in self._places]).tobytes()
        begin = self.offset
        return array("I", [begin + start for start in self._starts[:-1]]).tobytes()

    def fitting(self, begin: int, room_bytes: int, overhead_bytes: int, now_ms: int) -> int:
        """The end of the rows from ``begin`` on that can be delivered with that much credit: each costs its bytes and
        ``overhead_bytes``, and the last one may cost more than is left. None of them has expired by ``now_ms``.
        """
        starts, head_bytes, expirations = self._starts, self.head_bytes, self._expirations
        end, count = begin, self.count
        while end < count and room_bytes > 0:
            if expirations is not None and 0 < expirations[end] <= now_ms:
                break
            room_bytes -= starts[end + 1] - starts[end] - head_bytes + overhead_bytes
            end += 1
        return end


def append_sends(
    parts: Sequence[SendsPart],
    first_id: int,
    address_id: int,
    queue_ids: Sequence[int],
    transaction_id: int,
    position: LogPosition,
) -> Run:
    """Records of the messages of these parts, in order. Only as many as fit into the segment, perhaps none.

    Args:
        parts: At least one; all messages are alike (``Sends.alike``) and durable.
        first_id: Id of the first message.
        transaction_id: Transaction they belong to; 0 for none.
        position: Where the log ends.
    """
    segment, offset, room, sequence, batch, seed = position
    first, first_row, _ = parts[0]
    priority = first.priority(first_row)
    pack, pack_id = _REST.pack, _ID.pack
    records: list[bytes] = []
    starts = [0]
    size = 0
    message_id = first_id
    duplicate_bytes = len(first.duplicate_id(first_row))
    queues = Struct(f"<{len(queue_ids)}Q").pack(*queue_ids)
    head_bytes = RECORD_HEAD_BYTES + len(queues) + duplicate_bytes
    chosen: list[SendsPart] = []
    for sends, row, count in parts:
        data = sends.data
        taken = 0
        duplicate_ids: Sequence[bytes] = sends.duplicate_ids(row, count) if duplicate_bytes else ()
        for (start, header, stop), expiration, due_ms in zip(
            sends.extents(row, count), sends.expirations(row, count), sends.due_times(row, count), strict=True
        ):
            length = stop - start + head_bytes
            if offset + size + length > room:
                break
            sequence += 1
            room -= 4
            rest = pack(
                length, sequence, batch, _MESSAGE_ADD, 0, 0, message_id, transaction_id, address_id,
                expiration, due_ms, priority, 0, duplicate_bytes, len(queue_ids),
            ) + queues  # fmt: skip
            if duplicate_bytes:
                rest += duplicate_ids[taken]
            encoded = b"".join((data[start:header], pack_id(message_id), data[header + 8 : stop]))
            records += (crc32(encoded, crc32(rest, seed)).to_bytes(4, "little"), rest, encoded)
            size += length
            starts.append(size)
            message_id += 1
            taken += 1
        chosen.append((sends, row, taken))
        if taken < min(count, sends.count - row):
            break
    return _run(chosen, starts, b"".join(records), first_id, head_bytes, segment, offset)


def keep_sends(parts: Sequence[SendsPart], first_id: int) -> Run:
    """Make a run of messages that are not durable and stay out of the log; see ``append_sends``."""
    pack_id = _ID.pack
    messages: list[bytes] = []
    starts = [0]
    size = 0
    message_id = first_id
    for sends, row, count in parts:
        data = sends.data
        for start, header, stop in sends.extents(row, count):
            messages += (data[start:header], pack_id(message_id), data[header + 8 : stop])
            size += stop - start
            starts.append(size)
            message_id += 1
    return _run(parts, starts, b"".join(messages), first_id, 0, 0, 0)


def append_duplicate_ids(duplicate_ids: Sequence[bytes], address_id: int, position: LogPosition) -> tuple[bytes, bytes]:
    """A DUPLICATE_ID record for each of these ids, in order, or for as many as fit, perhaps none.

    Args:
        duplicate_ids: Duplicate ids of messages that the log does not get, sent to one address outside of transactions.
        position: Where the log ends.

    Returns:
        The records, and their offsets in the segment as native unsigned 32-bit numbers.
    """
    _, offset, room, sequence, batch, seed = position
    records: list[bytes] = []
    offsets = array("I")
    for duplicate_id in duplicate_ids:
        length = _DUPLICATE_ID_REST.size + 4 + len(duplicate_id)
        if offset + length > room:
            break
        sequence += 1
        rest = _DUPLICATE_ID_REST.pack(length, sequence, batch, _DUPLICATE_ID, 0, 0, address_id, 0) + duplicate_id
        records += (crc32(rest, seed).to_bytes(4, "little"), rest)
        offsets.append(offset)
        offset += length
        room -= 4
    return b"".join(records), offsets.tobytes()


def acknowledge_record(
    queue_id: int, transaction_id: int, message_ids: Sequence[int], sequence: int, batch: int, seed: int
) -> bytes:
    """The ACKNOWLEDGE record of messages that have left a queue.

    Args:
        transaction_id: Transaction it belongs to; 0 for none.
        message_ids: Ids of the messages.
        batch: Offset of the first record of the batch.
        seed: Seed of the crc of every record in the segment.
    """
    count = len(message_ids)
    length = 4 + _ACKNOWLEDGE_REST.size + 8 * count
    rest = _ACKNOWLEDGE_REST.pack(length, sequence, batch, _ACKNOWLEDGE, 0, 0, queue_id, transaction_id, count, 0)
    rest += pack(f"<{count}Q", *message_ids)
    return crc32(rest, seed).to_bytes(4, "little") + rest


def join_runs(parts: Sequence[tuple[Run, int, int]]) -> Run:
    """Join several runs to one run of all their messages, without the records of the log.

    Args:
        parts: Runs, each with the first row that is taken from it and the one after the last. At least one row
            altogether. All of one segment of the log, or none in the log; ids rise from part to part.

    Raises:
        ValueError: The runs are not as described.
    """
    segment = parts[0][0].segment if parts else 0
    data: list[bytes] = []
    starts, ids, expirations, due_times = [0], [], [], []
    places: list[tuple[int, int]] = []
    groups: list[tuple[int, int]] = []
    size = 0
    for run, begin, end in parts:
        if run.segment != segment or not 0 <= begin < end <= run.count:
            raise ValueError(f"rows {begin} to {end} of {run.count} in segment {run.segment}, not {segment}")
        for row in range(begin, end):
            encoded = run.encoded(row)
            data.append(encoded)
            size += len(encoded)
            starts.append(size)
            places.append(run.place(row))
            expirations.append(run.expiration(row))
            due_times.append(run.scheduled(row))
        ids += run.ids(begin, end)
        groups += run._groups[begin:end] if run._groups is not None else [(0, 0)] * (end - begin)
    if not ids or any(one >= other for one, other in pairwise(ids)):
        raise ValueError("no rising message ids")
    return Run(
        b"".join(data),
        starts,
        ids[0],
        times=(expirations, due_times),
        groups=groups if any(last for _, last in groups) else None,
        head_bytes=0,
        place=(segment, places[0][0]) if segment else (0, 0),
        joined=(ids if ids[-1] - ids[0] >= len(ids) else None, places if segment else None),
    )


def _run(
    parts: Sequence[SendsPart],
    starts: list[int],
    data: bytes,
    first_id: int,
    head_bytes: int,
    segment: int,
    offset: int,
) -> Run:
    expirations: list[int] = []
    due_times: list[int] = []
    groups: list[tuple[int, int]] = []
    grouped = False
    for sends, row, count in parts:
        expirations += sends.expirations(row, count)
        due_times += sends.due_times(row, count)
        grouped = grouped or sends.grouped(row, count)
    if grouped:
        for sends, row, count in parts:
            groups += sends.groups(row, count)
    return Run(
        data,
        starts,
        first_id,
        times=(expirations, due_times),
        groups=groups if grouped else None,
        head_bytes=head_bytes,
        place=(segment, offset),
    )
