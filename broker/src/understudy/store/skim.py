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
from understudy.store.records import HEADER, HEADER_BYTES, MESSAGE_HEADER_BYTES, decode
from understudy.store.reference import Location, pack_location
from understudy.store.state import StoreState

#: Behind the header of a MESSAGE_ADD with one queue: message id, tx id, address id, expiration, scheduled,
#: priority, flags, length of the duplicate id, number of queues, queue id.
_MESSAGE_ONE: Final = struct.Struct("<QQQqqBBHIQ")
_MESSAGE_ONE_BYTES: Final = MESSAGE_HEADER_BYTES + 8
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
    base = number << 64
    length_of = _LENGTH.unpack_from
    message_of = _MESSAGE_ONE.unpack_from
    while at + HEADER_BYTES <= size:
        (length,) = length_of(data, at + 4)
        if length < HEADER_BYTES:
            raise JournalCorrupt("a record is damaged", file=path, offset=origin + at)
        end = at + length
        if end > size:
            return at, length
        kind = data[at + 20]
        if kind == 10 and data[at + 32 : at + 40] == _NO_TX:
            at = end
            continue
        if kind == 9 and length >= _MESSAGE_ONE_BYTES:
            (
                message_id, tx_id, address_id, expiration, scheduled_ms, priority, large, duplicate_bytes, count,
                queue_id,
            ) = message_of(data, at + HEADER_BYTES)  # fmt: skip
            if count and not tx_id and not large and end >= at + MESSAGE_HEADER_BYTES + 8 * count + duplicate_bytes:
                location = Location(base | origin + at << 32 | length)  # pack_location, in line
                rest = MESSAGE_HEADER_BYTES + 8 * count + duplicate_bytes
                queue_ids = (
                    (queue_id,) if count == 1 else struct.unpack_from(f"<{count}Q", data, at + MESSAGE_HEADER_BYTES)
                )
                for queue_id in queue_ids:
                    masks = queues.get(queue_id)
                    if masks is not None and masks.get(message_id >> 6, 0) >> (message_id & 63) & 1:
                        state.backlog(queue_id).append(
                            message_id, priority, expiration, scheduled_ms, length - rest, location
                        )
                        state.live.add(queue_id, message_id)
                if duplicate_bytes:
                    state.remember_duplicate(address_id, data[at + rest - duplicate_bytes : at + rest])
                at = end
                continue
        _apply(state, number, path, origin + at, data[at:end])
        at = end
    return at, 0


def _apply(state: StoreState, number: int, path: str, offset: int, raw: bytes) -> None:
    _, length, sequence, _, kind, flags, _ = HEADER.unpack_from(raw)
    try:
        record = decode(kind, flags, raw[HEADER_BYTES:])
    except (ValueError, struct.error) as error:
        raise JournalCorrupt(str(error), file=path, offset=offset) from error
    state.apply(record, sequence, number, pack_location(number, offset, length))
