"""The references of a snapshot, 68 bytes each (docs/build/journal-format.md s. 7.6).

Native twin: ``broker/kernel/src/log/references.rs``.

A snapshot is made from the one before: of its references those that are still live are copied, and the bytes of log
that they keep alive are counted by segment. A record in several queues has several references and counts once, so
records that may be in several queues are counted with ``unseen_bytes``.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

__all__ = ["References", "live_references", "pack_references", "plain_references", "reference_blocks", "unseen_bytes"]

References = tuple[int, int, int, bytes, bytes, bytes, bytes, bytes, bytes]
"""Messages of one queue and priority in one segment, with rising ids: queue id, priority, segment, then the columns of
a ``records.Group``."""
Live = tuple[bytes, list[tuple[int, int]], list[tuple[int, bytes, bytes]]]
"""The references that are kept; segment and bytes of their records that are surely in one queue only; segment, offsets
(u32) and lengths (u32) of the other records."""

#: Queue id, message id, expiration, scheduled, segment, offset, length, size, delivery count, priority, file id.
_REFERENCE: Final = struct.Struct("<QQqqQIIIIB3xQ")
_REFERENCE_BYTES: Final = _REFERENCE.size
_PRIORITY_MAX: Final = 9
#: Bytes of a record of a message in one queue without duplicate id, less the message.
_MESSAGE_ONE_BYTES: Final = 80
#: Bytes of a segment for which ``unseen_bytes`` has one bit. A record has more.
_UNIT_BYTES: Final = 64


def plain_references(payload: bytes, at: int, /) -> tuple[int, list[References]]:
    """The references of a snapshot (docs/build/journal-format.md s. 3) from the index ``at`` on, up to the first that
    was delivered, is a large message or has a priority above 9: its index, and those before it.

    Args:
        payload: Whole references.
        at: Index of one of them, or the length of ``payload``.

    Raises:
        IndexError: ``at`` is greater than the length of ``payload``.
    """
    if not 0 <= at <= len(payload):
        raise IndexError(f"index {at} in {len(payload)} bytes")
    found: list[References] = []
    key = (-1, -1, -1)
    columns: tuple[array[int], ...] = ()
    last_id = 0
    while at + _REFERENCE.size <= len(payload):
        (
            queue_id, message_id, expiration, scheduled_ms, segment, offset, length, size_bytes, count, priority,
            file_id,
        ) = _REFERENCE.unpack_from(payload, at)  # fmt: skip
        if count or file_id or priority > _PRIORITY_MAX:
            break
        if (queue_id, priority, segment) != key or message_id <= last_id:
            if columns:
                found.append(_references(key, columns))
            key = queue_id, priority, segment
            columns = array("Q"), array("I"), array("I"), array("I"), array("q"), array("q")
        last_id = message_id
        for column, value in zip(
            columns, (message_id, offset, length, size_bytes, expiration, scheduled_ms), strict=True
        ):
            column.append(value)
        at += _REFERENCE.size
    if columns:
        found.append(_references(key, columns))
    return at, found


def _references(key: tuple[int, int, int], columns: tuple[array[int], ...]) -> References:
    ids, offsets, lengths, sizes, expirations, scheduled = columns
    return (
        *key,
        ids.tobytes(),
        offsets.tobytes(),
        lengths.tobytes(),
        sizes.tobytes(),
        expirations.tobytes() if any(expirations) else b"",
        scheduled.tobytes() if any(scheduled) else b"",
    )


def pack_references(
    queue_id: int,
    priority: int,
    segment: int,
    ids: bytes,
    offsets: bytes,
    lengths: bytes,
    sizes: bytes,
    expirations: bytes,
    scheduled: bytes,
    /,
) -> bytes:
    """References of messages that were never delivered and are not large: the opposite of ``plain_references``.

    Args:
        ids: Column, as the others in the byte order of the machine: u64.
        offsets: u32.
        lengths: u32.
        sizes: u32.
        expirations: i64, empty if all are 0.
        scheduled: i64, empty if all are 0.

    Raises:
        ValueError: The columns do not have the same number of rows.
    """
    count = len(ids) // 8
    short = (count * 4,)
    long = (0, count * 8)
    if (
        len(ids) != count * 8
        or len(offsets) not in short
        or len(lengths) not in short
        or len(sizes) not in short
        or len(expirations) not in long
        or len(scheduled) not in long
    ):
        raise ValueError("columns of different lengths")
    return b"".join(
        _REFERENCE.pack(queue_id, each, expiration, start, segment, offset, length, size, 0, priority, 0)
        for each, offset, length, size, expiration, start in zip(
            array("Q", ids),
            array("I", offsets),
            array("I", lengths),
            array("I", sizes),
            array("q", expirations or bytes(8 * count)),
            array("q", scheduled or bytes(8 * count)),
            strict=True,
        )
    )


def reference_blocks(payload: bytes, /) -> bytes:
    """Queue id and message id // 64 (u64 each, in the byte order of the machine) of the references, one pair for
    neighbours with the same.

    Raises:
        ValueError: ``payload`` are not whole references.
    """
    _check_whole(payload)
    pairs = array("Q")
    last = (-1, -1)
    for queue_id, message_id, *_ in _REFERENCE.iter_unpack(payload):
        pair = queue_id, message_id >> 6
        if pair != last:
            pairs.extend(pair)
            last = pair
    return pairs.tobytes()


def live_references(payload: bytes, masks: bytes, /) -> Live:
    """The references whose messages are live, and where their records are.

    Args:
        payload: Whole references.
        masks: A u64 for each pair of ``reference_blocks(payload)`` in the byte order of the machine: bit n is set if
            the message with id 64 * block + n is live.

    Raises:
        ValueError: ``payload`` are not whole references, or there are more or fewer masks.
    """
    _check_whole(payload)
    if len(masks) != len(reference_blocks(payload)) // 2:
        raise ValueError("not one mask for each block")
    left = iter(array("Q", masks))
    kept: list[bytes] = []
    sums: list[tuple[int, int]] = []
    others: list[tuple[int, array[int], array[int]]] = []
    last = (-1, -1)
    mask = 0
    for at in range(0, len(payload), _REFERENCE_BYTES):
        queue_id, message_id, _, _, segment, offset, length, size, *_ = _REFERENCE.unpack_from(payload, at)
        if (queue_id, message_id >> 6) != last:
            last = queue_id, message_id >> 6
            mask = next(left)
        if not mask >> (message_id & 63) & 1:
            continue
        kept.append(payload[at : at + _REFERENCE_BYTES])
        if length == size + _MESSAGE_ONE_BYTES:
            if not sums or sums[-1][0] != segment:
                sums.append((segment, 0))
            sums[-1] = segment, sums[-1][1] + length
        else:
            if not others or others[-1][0] != segment:
                others.append((segment, array("I"), array("I")))
            others[-1][1].append(offset)
            others[-1][2].append(length)
    return b"".join(kept), sums, [(segment, first.tobytes(), second.tobytes()) for segment, first, second in others]


def unseen_bytes(seen: bytes, offsets: bytes, lengths: bytes, /) -> tuple[int, bytes]:
    """Bytes of the records of one segment that were not seen before, and the new set of seen records.

    Args:
        seen: Result of the call before for this segment; empty for the first.
        offsets: Offsets of records, each of more than 64 bytes (u32 in the byte order of the machine).
        lengths: Lengths of the same (u32).

    Raises:
        ValueError: The columns do not have the same number of rows.
    """
    if len(offsets) != len(lengths) or len(offsets) % 4:
        raise ValueError("columns of different lengths")
    rows = array("I", offsets)
    bits = bytearray(seen)
    needed_bytes = max(rows, default=0) // _UNIT_BYTES // 8 + 1 if rows else 0
    if needed_bytes > len(bits):
        bits.extend(bytes(needed_bytes - len(bits)))
    total = 0
    for offset, length in zip(rows, array("I", lengths), strict=True):
        byte, bit = divmod(offset // _UNIT_BYTES, 8)
        if not bits[byte] & 1 << bit:
            bits[byte] |= 1 << bit
            total += length
    return total, bytes(bits)


def _check_whole(payload: bytes) -> None:
    if len(payload) % _REFERENCE_BYTES:
        raise ValueError(f"{len(payload)} bytes are not whole references")
