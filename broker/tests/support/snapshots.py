"""Snapshots that the broker's own code makes of a store at a chosen position, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.store_model import contents_of, order_of

from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.environment import SystemClock
from understudy.store.log.applier import Applier
from understudy.store.log.reading.follower import Follower
from understudy.store.log.segment import read_header, segment_name
from understudy.store.messages.reference import LargeReference, MessageReference
from understudy.store.quarantine import read_known_damage
from understudy.store.snapshots.background import Change, Job, Request
from understudy.store.snapshots.builder import SnapshotBuilder
from understudy.store.snapshots.snapshot import SnapshotHeader, read_snapshot, read_snapshot_header
from understudy.store.state import StoreState


@dataclass
class FixedClock(SystemClock):
    """Shows one time."""

    now_ms: int

    def wall_ms(self) -> int:
        return self.now_ms


def broker_snapshot(
    store: Path, target: Path, number: int, base: str | None, created_ms: int, id_cache_size: int
) -> Path:
    """The snapshot that the consolidator writes up to the end of a segment, with all of the log known.

    Args:
        store: Only read.
        target: Directory of the snapshot.
        number: Number of the segment at whose end the snapshot is.
        base: File name of the snapshot to begin with.
        created_ms: Time of creation that the snapshot states, in milliseconds since 1970.
        id_cache_size: Number of duplicate ids that the broker remembers for each address.
    """
    disk = RealDisk()
    follower = Follower(disk, str(store), id_cache_size=id_cache_size)
    follower.finish()
    state = follower.state
    ends = {each.number: each.end for each in follower.ends()}
    follower.close()
    for each, use in state.segments.items():
        use.end = ends.get(each, use.end)
    # a hint about files, which this directory does not have
    state.removable = {}
    # a later segment may have begun a later version
    state.format_version = _format_version(disk, store, number, state.segments[number].epoch)
    builder = SnapshotBuilder(
        disk=disk,
        directory=str(store),
        clock=FixedClock(created_ms),
        epoch=state.epoch,
        state=state,
        last_sequence=lambda: state.sequence,
        known=read_known_damage(disk, str(store)),
    )
    applier = Applier(disk, str(target))
    steps = builder.build(None if base is None else _header(store / base), number)
    answer: Any = None
    while True:
        try:
            request: Request = steps.send(answer)
        except StopIteration as end:
            return target / str(end.value.header.name)
        answer = None
        if isinstance(request, Job):
            answer = request.work()
        elif isinstance(request, Change):
            applier.apply(request.operations)


def _format_version(disk: RealDisk, store: Path, number: int, epoch: int) -> int:
    file = disk.open(str(store / segment_name(number, epoch)), read_only=True)
    try:
        return read_header(file, number, epoch).format_version
    finally:
        file.close()


def _header(path: Path) -> SnapshotHeader:
    file = RealDisk().open(str(path), read_only=True)
    try:
        return read_snapshot_header(file, path.name)
    finally:
        file.close()


def read(path: Path) -> tuple[SnapshotHeader, StoreState]:
    """A whole snapshot."""
    file = RealDisk().open(str(path), read_only=True)
    try:
        return read_snapshot(file, path.name)
    finally:
        file.close()


def canonical(path: Path) -> dict[str, Any]:
    """Everything in a snapshot. Queues are compared without order, messages in order."""
    header, state = read(path)
    contents = contents_of(state)
    return contents | {
        "header": (header.node_id, header.epoch, header.number, header.segment_epoch, header.offset, header.sequence,
                   header.batch, header.sealed, header.format_version),
        "order": order_of(contents),
        "log": (state.epoch, state.first_sequence, state.trimmed_to, state.checkpoint_segment, state.complete),
        "base": state.base,
        "segments": {
            number: (use.epoch, use.first_sequence, use.message_id_min, use.message_id_max, use.end, use.moved)
            for number, use in state.segments.items()
        },
        "places": {
            queue_id: [_plain(each) for each in backlog.references()]
            for queue_id, backlog in state.references.items()
            if backlog
        },
        "transactions": [
            (
                each.tx_id,
                each.first_segment,
                each.xid,
                [(queue_id, _plain(reference)) for queue_id, reference in each.adds],
                list(each.acknowledges),
                each.duplicate_ids,
            )
            for each in state.transactions.values()
        ],
    }  # fmt: skip


def _plain(reference: MessageReference) -> tuple[Any, ...]:
    return (
        reference.message_id, reference.priority, reference.expiration, reference.scheduled_ms, reference.size_bytes,
        reference.delivery_count, reference.location,
        reference.file_id if isinstance(reference, LargeReference) else None,
    )  # fmt: skip
