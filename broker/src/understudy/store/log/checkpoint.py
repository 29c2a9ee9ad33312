"""Bindings, settings and duplicate ids that the log repeats (docs/build/journal-format.md s. 4.3).

CHECKPOINT records of the log and BINDINGS records of a snapshot hold the same items. Most of them are duplicate ids:
those of one address and length are encoded together, and read together by ``records.decode``.

Not here: the items (``state``), the time of a checkpoint (``truncation``, ``consolidator``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Final

from understudy.store.log.records import CHECKPOINT_FIRST, CHECKPOINT_LAST, ITEM, TWO_IDS, RecordType

#: Most payload bytes in one CHECKPOINT record before another part begins.
CHECKPOINT_PART_BYTES: Final = 1024 * 1024
#: Bytes of duplicate ids that are encoded together.
_JOINED_BYTES: Final = 32 * 1024


def encode_item(kind: RecordType, payload: bytes) -> bytes:
    """Encode an item of a snapshot from the payload of the record with the same content."""
    return ITEM.pack(len(payload), kind) + payload


def encode_duplicate_ids(address_id: int, duplicate_ids: Iterable[bytes]) -> Iterator[bytes]:
    """The items of the duplicate ids of an address, in order, several in each ``bytes`` object."""
    for length, alike in groupby(duplicate_ids, len):
        head = ITEM.pack(TWO_IDS.size + length, RecordType.DUPLICATE_ID) + TWO_IDS.pack(address_id, 0)
        count_max = max(_JOINED_BYTES // (len(head) + length), 1)
        while joined := list(islice(alike, count_max)):
            yield head + head.join(joined)


def checkpoint_parts(items: Iterable[bytes], part_bytes: int = CHECKPOINT_PART_BYTES) -> Iterator[bytes]:
    """Payloads that hold these items, each of at most ``part_bytes`` unless a single item is longer. None for
    no items.
    """
    part: list[bytes] = []
    size = 0
    for each in items:
        if part and size + len(each) > part_bytes:
            yield b"".join(part)
            part, size = [], 0
        part.append(each)
        size += len(each)
    if part:
        yield b"".join(part)


def encode_checkpoint(items: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Flags and payload of each CHECKPOINT record that states these items again; at least one record."""
    parts = list(checkpoint_parts(items)) or [b""]
    last = len(parts) - 1
    return [
        ((CHECKPOINT_FIRST if index == 0 else 0) | (CHECKPOINT_LAST if index == last else 0), part)
        for index, part in enumerate(parts)
    ]
