"""Replaying sealed segments for a snapshot: what is dead by now costs next to nothing.

The digest in the seal vouches for all bytes of a segment at once, so records are not checked one by
one, and messages that live in no queue any more, with their acknowledgements, are passed over. What
is left out is what records up to now say is gone; the snapshot states how far it relies on them.

Nothing that was skimmed may be used before the digest was compared.

Not here: segments without a seal (``replay``).
"""

from __future__ import annotations

import struct
from typing import Final

from understudy.errors import JournalCorrupt
from understudy.kernel import scan
from understudy.kernel.records import BAD, BLANK, ENDED, OTHER, SHORT
from understudy.store.columns import Rows
from understudy.store.records import HEADER, HEADER_BYTES, MESSAGE_HEADER, MESSAGE_HEADER_BYTES, RecordType, decode
from understudy.store.reference import pack_location
from understudy.store.state import StoreState

_LENGTH: Final = struct.Struct("<I")
_NO_TX: Final = bytes(8)


def skim(
    state: StoreState, queues: dict[int, dict[int, int]], number: int, path: str, origin: int, data: bytes
) -> tuple[int, int]:
    """Apply the whole records at the beginning of ``data`` as far as they matter.

    Args:
        state: Of the log before, as far as it mattered.
        queues: Live messages by queue (``LiveIndex.queues``), as of now.
        number: Of the segment.
        path: Of the segment, for errors.
        origin: Offset of ``data``.
        data: Of a sealed segment, without its seal.

    Returns:
        Bytes applied, and bytes of the next record, 0 if its length is not there.

    Raises:
        JournalCorrupt: a record that cannot be.
    """
    at, size = 0, len(data)
    while True:
        code, at, _, _, _, _, _, groups, _ = scan(data, at, origin, None, 0)
        for queue_id, priority, *columns in groups:
            masks = queues.get(queue_id)
            if masks is not None:
                rows = _live(Rows.of(columns), masks)
                if rows.ids:
                    state.add_rows(queue_id, priority, number, rows)
        if code in (BAD, BLANK):
            raise JournalCorrupt("a record is damaged", file=path, offset=origin + at)
        if code == SHORT:
            return at, _LENGTH.unpack_from(data, at + 4)[0] if at + HEADER_BYTES <= size else 0
        if code == ENDED:
            return at, 0
        if code == OTHER:
            (length,) = _LENGTH.unpack_from(data, at + 4)
            _take(state, queues, number, path, origin + at, data[at : at + length])
            at += length


def _live(rows: Rows, masks: dict[int, int]) -> Rows:
    """The rows of messages that are live by the masks of their queue."""
    kept = [masks.get(message_id >> 6, 0) >> (message_id & 63) & 1 for message_id in rows.ids]
    return rows if all(kept) else rows.only(kept)


def _take(
    state: StoreState, queues: dict[int, dict[int, int]], number: int, path: str, offset: int, raw: bytes
) -> None:
    """Apply one whole record as far as it matters."""
    length, kind = len(raw), raw[20]
    if kind == RecordType.ACKNOWLEDGE and raw[32:40] == _NO_TX:
        return
    if kind == RecordType.MESSAGE_ADD and length >= MESSAGE_HEADER_BYTES:
        (
            *_, message_id, tx_id, address_id, expiration, scheduled_ms, priority, large, duplicate_bytes, count,
        ) = MESSAGE_HEADER.unpack_from(raw)  # fmt: skip
        rest = MESSAGE_HEADER_BYTES + 8 * count + duplicate_bytes
        if count and not tx_id and not large and length >= rest:
            location = pack_location(number, offset, length)
            for queue_id in struct.unpack_from(f"<{count}Q", raw, MESSAGE_HEADER_BYTES):
                masks = queues.get(queue_id)
                if masks is not None and masks.get(message_id >> 6, 0) >> (message_id & 63) & 1:
                    state.backlog(queue_id).append(
                        message_id, priority, expiration, scheduled_ms, length - rest, location
                    )
                    state.live.add(queue_id, message_id)
            if duplicate_bytes:
                state.remember_duplicate(address_id, raw[rest - duplicate_bytes : rest])
            return
    _apply(state, number, path, offset, raw)


def _apply(state: StoreState, number: int, path: str, offset: int, raw: bytes) -> None:
    _, length, sequence, _, kind, flags, _ = HEADER.unpack_from(raw)
    try:
        record = decode(kind, flags, raw[HEADER_BYTES:])
    except (ValueError, struct.error) as error:
        raise JournalCorrupt(str(error), file=path, offset=offset) from error
    state.apply(record, sequence, number, pack_location(number, offset, length))
