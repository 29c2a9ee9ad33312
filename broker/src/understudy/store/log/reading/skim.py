"""Reading of segments for a snapshot: records of dead messages cost next to nothing.

``kernel.skim_records`` says where messages lie, of bytes that were just written or that the digest in a seal vouches
for, so records are not checked one by one. Messages that live in no queue any more, with their acknowledgements, are
passed over. A message is left out if a record up to now removes it; the snapshot states how far it relies on them.

Not here: collecting it while a segment is written (``segment_skim``), segments without a seal (``replay``).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from understudy.errors import JournalCorrupt
from understudy.kernel.log import crc32, skim_records
from understudy.kernel.log.records import BAD, BLANK
from understudy.kernel.log.skim import Step
from understudy.message import large_body_of
from understudy.ports import File
from understudy.store.log.records import HEADER, HEADER_BYTES, MESSAGE_LARGE, MessageRecord, decode
from understudy.store.messages.columns import Rows
from understudy.store.messages.reference import pack_location
from understudy.store.state import StoreState

_ALL: Final = (1 << 64) - 1


def read_steps(file: File, offset: int, length: int, rest: bytes, digest: int) -> tuple[int, int, list[Step], bytes]:
    """Decode the next bytes of a sealed segment. Blocks; may run on any thread.

    Args:
        file: The segment.
        offset: Where to read.
        length: How much.
        rest: The beginning of a record, which lies before ``offset``.
        digest: Digest of the file up to ``offset``.

    Returns:
        Offset after the bytes read, the digest up to there, the decoded steps of ``rest`` and these bytes, and the
        beginning of an incomplete record.

    Raises:
        JournalCorrupt: a record that cannot be.
    """
    data = file.read(offset, length)
    records, begin = rest + data, offset - len(rest)
    stop, used, steps = skim_records(records, begin)
    if stop in (BAD, BLANK):
        raise JournalCorrupt("a record is damaged", file=file.path, offset=begin + used)
    return offset + len(data), crc32(data, digest), steps, records[used:]


def apply_steps(
    state: StoreState, queues: dict[int, dict[int, int]], number: int, path: str, steps: Sequence[Step]
) -> None:
    """Apply what a segment says as far as it matters.

    Args:
        state: State of the log before, as far as it mattered.
        queues: Live messages by queue (``LiveIndex.queues``), as of now.
        path: Path of the segment, for errors.
        steps: Result of ``kernel.skim_records``.

    Raises:
        JournalCorrupt: a record that cannot be.
    """
    for groups, duplicates, others in steps:
        for tx_id, queue_ids, priority, *columns in groups:
            for queue_id in queue_ids:
                masks = queues.get(queue_id)
                rows = _live(columns, masks) if masks is not None else None
                if rows is not None:
                    state.add_rows(queue_id, priority, number, rows, tx_id)
        for address_id, length, ids in duplicates:
            state.remember_packed(address_id, length, ids)
        for offset, raw in others:
            _apply(state, queues, number, path, offset, raw)


def _live(columns: Sequence[bytes], masks: dict[int, int]) -> Rows | None:
    """The rows of messages that are live by the masks of their queue; None if there are none."""
    ids = array("Q", columns[0])
    first, last = ids[0], ids[-1]
    if last - first == len(ids) - 1:
        blocks = range(first >> 6, (last >> 6) + 1)
        found = [masks.get(block, 0) for block in blocks]
        found[0] |= (1 << (first & 63)) - 1 if found[0] else 0
        found[-1] |= _ALL << (last & 63) + 1 & _ALL if found[-1] else 0
        if not any(found):
            return None
        if found.count(_ALL) == len(found):
            return Rows.of(columns)
    kept = [masks.get(message_id >> 6, 0) >> (message_id & 63) & 1 for message_id in ids]
    if not any(kept):
        return None
    rows = Rows.of(columns)
    return rows if all(kept) else rows.only(kept)


def _apply(
    state: StoreState, queues: dict[int, dict[int, int]], number: int, path: str, offset: int, raw: bytes
) -> None:
    """Apply one record to the summary as far as it matters; a message may be cut off after its head."""
    _, length, sequence, _, kind, flags, _ = HEADER.unpack_from(raw)
    location = pack_location(number, offset, length)
    try:
        record = decode(kind, flags, raw[HEADER_BYTES:])
    except (ValueError, struct.error) as error:
        raise JournalCorrupt(str(error), file=path, offset=offset) from error
    if not isinstance(record, MessageRecord):
        state.apply(record, sequence, number, location)
        return
    file_id = large_body_of(record.encoded).file_id if record.flags & MESSAGE_LARGE else None
    size_bytes = len(record.encoded) + length - len(raw)
    if not record.tx_id:
        block, slot = record.message_id >> 6, record.message_id & 63
        live = tuple(each for each in record.queue_ids if queues.get(each, {}).get(block, 0) >> slot & 1)
        record = replace(record, queue_ids=live)
    state.add_message(record, size_bytes, file_id, number, location)
