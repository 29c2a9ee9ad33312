"""The file of a snapshot from its parts, by the encoders of the store: streamed, in the memory of one part.

Not here: its contents (``state_rows``, ``small_state``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ids import NodeId
from understudy.ports import Clock
from understudy.runtime.base.disk import RealDisk
from understudy.spark.journal.log_plan import LogPlan
from understudy.spark.state.small_state import Position
from understudy.spark.state.source import PackedParts
from understudy.store.log.reading.replay import Stop
from understudy.store.log.records import SEAL_FIXED_BYTES, SealRecord
from understudy.store.log.segment import read_header, read_seal, segment_name
from understudy.store.snapshots.snapshot import (
    PART_ITEMS,
    REFERENCE,
    PartType,
    SnapshotEncoder,
    SnapshotEnd,
    SnapshotHeader,
    SnapshotReader,
    encode_end,
    read_snapshot_header,
    small_parts,
)
from understudy.store.state import StoreState

#: Bytes written at a time.
_WRITE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything in a snapshot."""

    position: Position
    state: StoreState
    """Bindings, duplicate ids and segments at the position."""
    removable: Mapping[int, int]
    epoch: int
    """Epoch of the log."""
    needs: int
    """Last sequence of the log."""
    live_bytes: int
    references: PackedParts
    transactions: PackedParts


def write_snapshot(directory: Path, plan: LogPlan, contents: Contents, clock: Clock) -> str:
    """Write a snapshot, synced, and read it back; its name.

    Raises:
        BrokerError: the bytes read back are not those of the state.
        OSError: it cannot be written.
    """
    at = contents.position
    header = SnapshotHeader(
        NodeId(plan.node_id), contents.epoch, clock.wall_ms(), at.number, at.epoch, at.offset, at.sequence, at.batch,
        *_end_of_segment(plan, at),
    )  # fmt: skip
    encoder = SnapshotEncoder(header)
    descriptor = os.open(directory / header.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for kind, payload in _parts(contents):
            encoder.add(kind, payload)
            if encoder.pending_bytes >= _WRITE_BYTES:
                file.write(encoder.take())
        encoder.add(
            PartType.END, encode_end(SnapshotEnd(contents.needs, contents.references.items, contents.live_bytes))
        )
        file.write(encoder.take())
        file.flush()
        os.fsync(file.fileno())
    _check(directory, header, contents)
    return header.name


def _parts(contents: Contents) -> Iterator[tuple[PartType, bytes]]:
    yield from small_parts(contents.state, contents.removable)
    yield from ((PartType.TRANSACTION, payload) for payload in contents.transactions.framed())
    yield from ((PartType.REFERENCES, payload) for payload in contents.references.chunks(PART_ITEMS * REFERENCE.size))


def _end_of_segment(plan: LogPlan, at: Position) -> tuple[Stop | None, int]:
    """Whether the last record of the segment is a seal, and the format version, for the header of a snapshot."""
    file = RealDisk().open(f"{plan.directory}/{segment_name(at.number, at.epoch)}", read_only=True)
    try:
        header = read_header(file, at.number, at.epoch)
        found = read_seal(file, header)
    finally:
        file.close()
    if found is None or _end(found) != at.offset:
        return None, header.format_version
    return Stop.CLOSED if found[1].closed else Stop.SEALED, header.format_version


def _end(found: tuple[int, SealRecord]) -> int:
    """Offset after a seal."""
    return found[0] + SEAL_FIXED_BYTES + 4 * found[1].count


def _check(directory: Path, header: SnapshotHeader, contents: Contents) -> None:
    """Every record is whole, and the references are as many as were written."""
    file = RealDisk().open(str(directory / header.name), read_only=True)
    try:
        reader = SnapshotReader(file.path, read_snapshot_header(file, header.name))
        size = 0
        while reader.end is None:
            for kind, payload in reader.feed(file.read(reader.offset, reader.want)):
                size += len(payload) if kind is PartType.REFERENCES else 0
    finally:
        file.close()
    if size != contents.references.items * REFERENCE.size:
        raise BrokerError(f"the snapshot has {size} bytes of references; nothing was published")
