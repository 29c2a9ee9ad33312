"""The bindings, settings and duplicate ids of the last batch that a replica has of its active node (ADR 0126).

A batch is begun when the one before is synced, so of a log that its replica has, the active node may lack this batch
and no other. A node that begins empty, and whose own log ends before, gets these records without their messages: a
producer sends messages again that were not confirmed, and their duplicate ids are in that batch.

Format, little-endian: u64 sequence of the first record of the batch; then for each kept record u64 sequence, u8 type,
u8 flags, u16 zero, u32 length of the payload, payload as in the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from understudy.errors import StoreError
from understudy.limits import LAST_BATCH_BYTES_MAX
from understudy.ports import DiskReader
from understudy.store.log.reading.replay import Frame, read_frames
from understudy.store.log.records import HEADER_BYTES, MessageRecord, RecordType, decode, encode_duplicate_id
from understudy.store.log.segment import parse_name, seed_of
from understudy.store.messages.reference import pack_location
from understudy.store.state import StoreState

_FIRST: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<QBBHI")
#: Records that are kept as they are.
_KEPT: Final = frozenset(
    {
        RecordType.ADDRESS_ADD,
        RecordType.ADDRESS_REMOVE,
        RecordType.QUEUE_ADD,
        RecordType.QUEUE_REMOVE,
        RecordType.DUPLICATE_ID,
        RecordType.TX_PREPARE,
        RecordType.TX_COMMIT,
        RecordType.TX_ROLLBACK,
        RecordType.SETTING,
    }
)


def read_last_batch(disk: DiskReader, directory: str, sequence: int) -> bytes:
    """The kept records of the batch that ends with a record; empty if they are too many, or the batch is gone.

    Args:
        disk: Where the log is.
        sequence: Sequence of the last record of the batch.

    Raises:
        StoreError: the log cannot be read.
    """
    frames = list(_batch(disk, directory, sequence))
    if not frames:
        return b""
    parts = [_FIRST.pack(frames[0][0].sequence)]
    for found, data in frames:
        kind, flags, payload = found.kind, found.flags, data[HEADER_BYTES:]
        if kind == RecordType.MESSAGE_ADD:
            record = decode(kind, flags, payload)
            if not isinstance(record, MessageRecord) or not record.duplicate_id:
                continue
            kind, flags = int(RecordType.DUPLICATE_ID), 0
            payload = encode_duplicate_id(record.address_id, record.duplicate_id, record.tx_id)
        elif kind not in _KEPT:
            continue
        parts += [_HEAD.pack(found.sequence, kind, flags, 0, len(payload)), payload]
    data = b"".join(parts)
    return data if len(data) <= LAST_BATCH_BYTES_MAX else b""


def _batch(disk: DiskReader, directory: str, sequence: int) -> Iterator[tuple[Frame, bytes]]:
    """The records of the batch, from the newest segment that has its last record."""
    segments = [(parsed[1], parsed[0], name) for name in disk.list(directory) if (parsed := parse_name(name))]
    for epoch, number, name in sorted(segments, reverse=True):
        batch: list[tuple[Frame, bytes]] = []
        file = disk.open(f"{directory}/{name}", read_only=True)
        try:
            for found, data in read_frames(file, seed_of(number, epoch)):
                if found.sequence > sequence:
                    break
                if batch and batch[-1][0].batch != found.batch:
                    batch.clear()
                batch.append((found, data))
        finally:
            file.close()
        if batch:
            yield from batch if batch[-1][0].sequence == sequence else ()
            return


def apply_last_batch(data: bytes, state: StoreState) -> bool:
    """Apply the records that a log lacks. Whether it lacks no other record before them.

    Raises:
        StoreError: the data is damaged.
    """
    if len(data) < _FIRST.size or _FIRST.unpack_from(data)[0] > state.sequence + 1:
        return False
    try:
        at = _FIRST.size
        while at < len(data):
            sequence, kind, flags, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            if sequence > state.sequence:
                state.apply(decode(kind, flags, data[at : at + length]), sequence, 0, pack_location(0, 0, 0))
            at += length
    except (ValueError, struct.error) as error:
        raise StoreError(f"the last batch of a replica is damaged: {error}") from error
    return True
