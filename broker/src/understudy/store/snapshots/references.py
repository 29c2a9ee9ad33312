"""References written to a snapshot: the live ones, in their current state, and the segments that they need.

A thousand at a time go through the native kernel; none becomes an object. A reference is processed on its own
only if it was delivered before, was moved, or belongs to a large message.

Not here: reading and writing files (``builder``), the bytes of a snapshot (``snapshot``).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import compress, groupby
from typing import Final

from understudy.dataclass import dataclass
from understudy.kernel.log import live_references, pack_references, reference_blocks, unseen_bytes
from understudy.store.live_index import LiveIndex
from understudy.store.messages.backlog import Backlog
from understudy.store.messages.columns import Columns
from understudy.store.messages.reference import unpack_location
from understudy.store.snapshots.snapshot import REFERENCE, encode_reference
from understudy.store.state import LateChanges, TransactionRecord

_EMPTY: Final[dict[int, int]] = {}


@dataclass(slots=True)
class LiveBytes:
    """Bytes of live records by segment; a message in several queues counts once."""

    by_segment: dict[int, int] = field(default_factory=dict)
    _seen: dict[int, bytes] = field(default_factory=dict)
    """Records by segment that may be in several queues and were counted (``kernel.unseen_bytes``)."""

    def add(self, number: int, offset: int, length: int) -> None:
        """A reference to that record."""
        self.add_records(number, array("I", (offset,)).tobytes(), array("I", (length,)).tobytes())

    def add_records(self, number: int, offsets: bytes, lengths: bytes) -> None:
        """References to records of one segment, each perhaps counted before; columns of u32."""
        fresh_bytes, self._seen[number] = unseen_bytes(self._seen.get(number, b""), offsets, lengths)
        self.add_bytes(number, fresh_bytes)

    def add_bytes(self, number: int, length: int) -> None:
        """Records of that many bytes that were not counted before and will not be counted again."""
        if length:
            self.by_segment[number] = self.by_segment.get(number, 0) + length

    @property
    def total(self) -> int:
        """Live bytes of all segments."""
        return sum(self.by_segment.values())


class LiveReferences:
    """Lets live references pass, counts them, and counts the bytes of log that they keep alive."""

    def __init__(self, live: LiveIndex, late: LateChanges) -> None:
        """
        Args:
            live: Which messages are live now.
            late: Where messages lie now, and how often they were delivered, if not as their references say.
        """
        self._queues = live.queues
        self._late = late
        self._late_blocks = {each >> 6 for each in late.locations}
        self._late_blocks.update(message_id >> 6 for _, message_id in late.counts)
        self.count = 0
        """Number of references read so far."""
        self.bytes = LiveBytes()

    def passing(self, payload: bytes) -> bytes:
        """The references of ``payload`` whose messages are live, as they are now."""
        pairs = array("Q", reference_blocks(payload))
        blocks = pairs[1::2]
        if self._late_blocks and not self._late_blocks.isdisjoint(blocks):
            payload = b"".join(self._changed(payload))
        queues = self._queues
        masks = [queues.get(queue_id, _EMPTY).get(block, 0) for queue_id, block in zip(pairs[::2], blocks, strict=True)]
        kept, sums, others = live_references(payload, array("Q", masks).tobytes())
        self.count += len(kept) // REFERENCE.size
        for number, length in sums:
            self.bytes.add_bytes(number, length)
        for number, offsets, lengths in others:
            self.bytes.add_records(number, offsets, lengths)
        return kept

    def count_transactions(self, transactions: Iterable[TransactionRecord]) -> None:
        """The messages that open transactions add are needed, too."""
        for transaction in transactions:
            for _, reference in transaction.adds:
                assert reference.location is not None, "a reference read from the log has a location"
                self.bytes.add(*unpack_location(reference.location))

    def _changed(self, payload: bytes) -> Iterator[bytes]:
        """The references with later locations, delivery counts and times of redelivery."""
        counts, locations = self._late.counts, self._late.locations
        for entry in REFERENCE.iter_unpack(payload):
            queue_id, message_id, expiration, scheduled_ms, number, offset, length, size_bytes, count, *rest = entry
            location = locations.get(message_id)
            if location is not None:
                number, offset, length = unpack_location(location)
            count, redelivery_ms = counts.get((queue_id, message_id), (count, 0))
            not_before_ms = redelivery_ms or scheduled_ms
            yield REFERENCE.pack(
                queue_id, message_id, expiration, not_before_ms, number, offset, length, size_bytes, count, *rest
            )


def waiting_references(queue_id: int, backlog: Backlog) -> Iterator[bytes]:
    """Encoded references that wait in a queue, some at a time; per priority in order."""
    redeliveries = backlog.redeliveries
    for priority in sorted(backlog.levels, reverse=True):
        level = backlog.levels[priority]
        level.close_block()
        for block in level.blocks:
            columns = block.plain_columns()
            if columns is not None and not (redeliveries and redeliveries.keys() & set(columns.ids)):
                yield from _encoded(queue_id, columns, block.gone)
                continue
            references = list(block.references())
            for reference in references:
                reference.scheduled_ms = redeliveries.get(reference.message_id, reference.scheduled_ms)
            yield b"".join(encode_reference(queue_id, each) for each in references)


def _encoded(queue_id: int, columns: Columns, gone: bytearray | None) -> Iterator[bytes]:
    """The rows that are not gone."""
    size = REFERENCE.size
    segments = columns.segments or array("Q", (columns.segment,)) * len(columns)
    begin = 0
    for segment, rows in groupby(segments):
        end = begin + len(list(rows))
        part = slice(begin, end)
        payload = pack_references(
            queue_id,
            columns.priority,
            segment,
            *(each[part].tobytes() for each in (columns.ids, columns.offsets, columns.lengths, columns.sizes)),
            *(each[part].tobytes() if each is not None else b"" for each in (columns.expirations, columns.scheduled)),
        )
        if gone is not None and gone.find(1, begin, end) >= 0:
            waits = (not each for each in gone[part])
            payload = b"".join(compress((payload[at : at + size] for at in range(0, len(payload), size)), waits))
        yield payload
        begin = end
