"""Beginning an epoch: from "the log was read to its end" to "records may be appended".

The steps and their order are docs/journal-format.md s. 5. Nothing here depends on how much the
log holds: the tail is read by ``Follower.finish``, the rest is one batch rewritten, one segment
made and one directory sync. ``begin_epoch`` blocks; it is called once, before anything is served, and does only what
must be done before: each operation on a file is a request or several on a network file system. ``tidy`` does the rest
while the node serves.

Not here: the lock of the store, which the caller holds.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from understudy.errors import DiskFailed, DiskFull, StoreError, WrongNode
from understudy.ids import NodeId, uuid_bytes
from understudy.ports import Clock, Disk
from understudy.store.log.chain import highest_number, newest_epoch
from understudy.store.log.follower import Follower
from understudy.store.log.records import HEADER_BYTES, EpochRecord, RecordType, SegmentEnd, encode_epoch
from understudy.store.log.segment import (
    HEADER_BLOCK_BYTES,
    SegmentFile,
    SegmentHeader,
    create_segment,
    frame,
    parse_name,
    seed_of,
    segment_name,
)
from understudy.store.quarantine import write_entries
from understudy.store.reference import pack_location
from understudy.store.snapshots.reserve import give_up_reserve
from understudy.store.snapshots.snapshot import temporary_names
from understudy.store.state import StoreState

log = logging.getLogger(__name__)


#: How often the segments may change while the end of the log is read.
_FINISH_ATTEMPTS: Final = 20
#: So many epochs back the end of an unsealed segment is cut to its size, if an activation was killed before it did.
EPOCHS_CUT: Final = 4


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch that has begun: its EPOCH record is durable."""

    state: StoreState
    """Of the whole log, EPOCH record included."""
    file: SegmentFile
    number: int
    position: int
    """Offset behind the EPOCH record."""
    set_aside: int
    """Damaged records that were passed over for the first time."""
    names: list[str]
    """What the directory held before the epoch began."""
    ends: list[SegmentEnd]
    """Where the older segments end."""


def begin_epoch(
    follower: Follower, disk: Disk, directory: str, clock: Clock, node_id: NodeId, segment_bytes: int
) -> Epoch:
    """Finish reading and begin the next epoch; the follower is closed.

    Args:
        follower: Anything from fresh to caught up.
        disk: Writable.
        directory: Absolute path of the store.
        clock: For times in the log.
        node_id: Whose store it must be.
        segment_bytes: Size of the new segment.

    Raises:
        JournalCorrupt, StoreVersionUnsupported: see ``Follower.finish``.
        WrongNode: the log belongs to another node id; nothing was changed.
        LockLost: another node is activating at the same time.
        DiskFull: no room for a segment.
        DiskFailed: the store is not writable.
    """
    _finish(follower, disk)
    if follower.torn is not None:
        file_cut, offset, size_bytes = follower.torn
        log.warning(
            "the end of the log is cut: a batch that was, as far as can be told, never synced",
            extra={"file": file_cut, "offset": offset, "bytes": size_bytes},
        )
    state = follower.state
    if state.node_id is not None and state.node_id != node_id:
        raise WrongNode(f"{directory} holds the log of node {state.node_id}, not of {node_id}")
    passed = follower.damage.passed.values()
    if passed:
        # first: without their entries the next start would meet them as damage
        write_entries(disk, directory, [(each.entry(directory, clock.wall_ms()), each.raw) for each in passed])
    names = disk.list(directory)
    if not names:
        disk.make_directory(directory)
    epoch = newest_epoch(names) + 1
    number = highest_number(names) + 1
    ends = follower.ends()
    for end in ends:
        state.segments[end.number].end = end.end
    try:
        _settle(follower, disk)
        sequence = state.sequence + 1
        payload = encode_epoch(uuid_bytes(node_id), epoch, clock.wall_ms(), ends)
        seed = seed_of(number, epoch)
        record = b"".join(frame(RecordType.EPOCH, 0, sequence, HEADER_BLOCK_BYTES, seed, payload))
        position = HEADER_BLOCK_BYTES + len(record)
        header = SegmentHeader(node_id, epoch, number, clock.wall_ms(), max(segment_bytes, 2 * position), True)
        file = _create_first_segment(disk, directory, header, record, names, ends)
    except DiskFailed as error:
        raise DiskFailed(
            f"cannot begin epoch {epoch} in {directory}: {error}", hint="is the store mounted read-only?"
        ) from error
    except DiskFull as error:
        raise DiskFull(f"cannot begin epoch {epoch} in {directory}: {error}") from error
    state.begin_segment(number, epoch, sequence)
    location = pack_location(number, HEADER_BLOCK_BYTES, HEADER_BYTES + len(payload))
    state.apply(EpochRecord(uuid_bytes(node_id), epoch, clock.wall_ms(), tuple(ends)), sequence, number, location)
    # the rest of what was given up is removed, or retained, while the node serves
    present = set(names)
    removable = state.removable.items()
    state.removable = {number: of for number, of in removable if segment_name(number, of) in present}
    return Epoch(state, file, number, position, len(follower.damage.passed), names, ends)


def tidy(disk: Disk, directory: str, epoch: Epoch) -> None:
    """Remove what older epochs prepared and never used and the snapshots that they did not finish; cut what they
    allocated and never filled.

    Nothing of it is part of the log, so failing here is only a loss of room. Only once the epoch is durable: until then
    an unsealed segment with less than it was allocated is damage. Does nothing when another node has begun an epoch.
    """
    try:
        if newest_epoch(disk.list(directory)) > epoch.state.epoch:
            return
        _remove_unused(disk, directory, epoch.names, epoch.state.epoch, epoch.ends)
        _remove_unfinished(disk, directory, epoch.names)
        _cut_ends(disk, directory, epoch.ends)
    except StoreError as error:
        log.warning("what earlier activations left is not removed", extra={"error": str(error)})


def _finish(follower: Follower, disk: Disk) -> None:
    """Read to the end of the log. A node that was active before and has not noticed yet that it is not any more may
    rename or remove segments that it prepared and never used, between listing and opening them: they are listed anew.
    """
    for _ in range(_FINISH_ATTEMPTS):
        try:
            follower.finish(disk)
            return
        except FileNotFoundError as error:
            vanished = error
    raise DiskFailed(f"segments disappear while the log is read: {vanished}")


def _create_first_segment(
    disk: Disk, directory: str, header: SegmentHeader, record: bytes, names: list[str], ends: list[SegmentEnd]
) -> SegmentFile:
    """The segment of the new epoch. On a full disk what is no part of the log makes room for it:
    without a segment no client could be served, and so nothing be freed.
    """
    try:
        return create_segment(disk, directory, header, record)
    except DiskFull:
        _remove_unused(disk, directory, names, header.epoch, ends)
        _remove_unfinished(disk, directory, names)
        give_up_reserve(disk, directory)
        return create_segment(disk, directory, header, record)


def _settle(follower: Follower, disk: Disk) -> None:
    """Make the last batch ours: it may have been written but never synced by the node before, and
    a sync here says nothing about what another machine has cached. So its bytes are written again
    as they are, and synced.
    """
    read = follower.last_read()
    if read is None:
        return
    file = disk.open(read.path)
    try:
        data = file.read(read.batch, read.offset - read.batch)
        file.write(read.batch, (data,))
        file.sync()
    finally:
        file.close()


def _cut_ends(disk: Disk, directory: str, ends: list[SegmentEnd]) -> None:
    """Cut the last segment of each of the last epochs. The others were cut when they were sealed; an epoch before may
    have ended before it came to this.
    """
    last = {end.epoch: end for end in ends}
    for end in list(last.values())[-EPOCHS_CUT:]:
        with suppress(StoreError, FileNotFoundError):
            _cut(disk, f"{directory}/{segment_name(end.number, end.epoch)}", end.end)


def _remove_unused(disk: Disk, directory: str, names: list[str], epoch: int, ends: list[SegmentEnd]) -> None:
    """Remove what older epochs prepared and never used; harmless at any moment."""
    listed = {(end.number, end.epoch) for end in ends}
    for name in names:
        parsed = parse_name(name)
        if parsed is None or parsed[1] >= epoch or parsed[:2] in listed:
            continue
        path = f"{directory}/{name}"
        with suppress(StoreError, FileNotFoundError):
            if not parsed[2] or _is_blank(disk, path):
                disk.remove(path)
                log.info("unused segment removed", extra={"path": path})


def _remove_unfinished(disk: Disk, directory: str, names: list[str]) -> None:
    """Remove snapshots that the node before had begun; only room."""
    for name in temporary_names(names):
        with suppress(StoreError, FileNotFoundError):
            disk.remove(f"{directory}/{name}")
            log.info("unfinished snapshot removed", extra={"path": f"{directory}/{name}"})


def _cut(disk: Disk, path: str, end: int) -> None:
    file = disk.open(path)
    try:
        if file.size() > end:
            file.truncate(end)
    finally:
        file.close()


def _is_blank(disk: Disk, path: str) -> bool:
    file = disk.open(path, read_only=True)
    try:
        return not file.read(HEADER_BLOCK_BYTES, HEADER_BYTES).strip(b"\0")
    finally:
        file.close()
