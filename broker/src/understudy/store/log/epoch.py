"""Beginning an epoch: from "the log was read to its end" to "records may be appended".

The steps and their order are docs/build/journal-format.md s. 5. Nothing here depends on how much the
log holds: the tail is read by ``Follower.finish``, the rest is one batch rewritten, one segment
made and one directory sync. ``begin_epoch`` blocks; it is called once, before anything is served, and does only what
must be done before: each operation on a file is a request or several on a network file system. ``tidy`` does the rest
while the node serves.

Not here: the lock of the store, which the caller holds.
"""

from __future__ import annotations

import logging
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, DiskFull, WrongNode
from understudy.ids import NodeId, uuid_bytes
from understudy.ports import Clock, Disk
from understudy.store.log.applier import Applier
from understudy.store.log.chain import EpochStart, highest_number, newest_epoch
from understudy.store.log.operations import CreateSegment, GiveUpReserve, MakeDirectory, RewriteFile, TidyUp
from understudy.store.log.reading.follower import Follower
from understudy.store.log.records import HEADER_BYTES, EpochRecord, RecordType, SegmentEnd, encode_epoch
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, frame, seed_of, segment_name
from understudy.store.messages.reference import pack_location
from understudy.store.quarantine import entry_operations
from understudy.store.state import StoreState

log = logging.getLogger(__name__)


#: Number of changes of the segments after which reading the end of the log is given up.
_FINISH_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch that has begun: its EPOCH record is durable."""

    state: StoreState
    """State of the whole log, EPOCH record included."""
    number: int
    """Number of the epoch, which is that of its first segment."""
    position: int
    """Offset of the end of the EPOCH record."""
    set_aside: int
    """Damaged records that were passed over for the first time."""
    names: tuple[str, ...]
    """Files of the directory before the epoch began."""
    ends: tuple[SegmentEnd, ...]
    """Ends of the older segments."""
    start: EpochStart

    def tidy_up(self) -> TidyUp:
        """The operation that removes what earlier epochs left."""
        return TidyUp(self.state.epoch, self.names, self.ends)


def begin_epoch(
    follower: Follower, applier: Applier, clock: Clock, node_id: NodeId, segment_bytes: int, disk: Disk | None = None
) -> Epoch:
    """Finish reading and begin the next epoch; the follower is closed.

    Args:
        follower: Anything from fresh to caught up.
        applier: Applier of the directory of the store; has the first segment open afterwards.
        clock: Used for times in the log.
        node_id: Id of the node whose store it must be.
        segment_bytes: Size of the new segment.
        disk: Is used instead of that of the applier.

    Raises:
        JournalCorrupt, StoreVersionUnsupported: see ``Follower.finish``.
        WrongNode: the log belongs to another node id; nothing was changed.
        LockLost: another node is activating at the same time.
        DiskFull: no space for a segment.
        DiskFailed: the store is not writable.
    """
    disk, directory = disk or applier.disk, applier.directory
    _finish(follower, disk)
    if follower.torn is not None:
        file_cut, offset, size_bytes = follower.torn
        log.warning(
            "the end of the log is truncated: its last batch was probably never synced",
            extra={"file": file_cut, "offset": offset, "bytes": size_bytes},
        )
    state = follower.state
    if state.node_id is not None and state.node_id != node_id:
        raise WrongNode(f"{directory} holds the log of node {state.node_id}, not of {node_id}")
    passed = follower.damage.passed.values()
    if passed:
        # first: without their entries the next start would meet them as damage
        entries = [(each.entry(directory, clock.wall_ms()), each.raw) for each in passed]
        applier.apply(entry_operations(entries), disk)
    names = disk.list(directory)
    if not names:
        applier.apply([MakeDirectory()], disk)
    epoch, activated_ms = newest_epoch(names) + 1, clock.wall_ms()
    number = highest_number(names) + 1
    ends = follower.ends()
    for end in ends:
        state.segments[end.number].end = end.end
    try:
        _settle(follower, applier, disk)
        sequence = state.sequence + 1
        payload = encode_epoch(uuid_bytes(node_id), epoch, activated_ms, ends)
        seed = seed_of(number, epoch)
        record = b"".join(frame(RecordType.EPOCH, 0, sequence, HEADER_BLOCK_BYTES, seed, payload))
        position = HEADER_BLOCK_BYTES + len(record)
        size_bytes, version = max(segment_bytes, 2 * position), state.format_version
        header = SegmentHeader(node_id, epoch, number, activated_ms, size_bytes, True, version)
        _create_first_segment(applier, disk, CreateSegment(header, record), names, ends)
    except DiskFailed as error:
        raise DiskFailed(
            f"cannot begin epoch {epoch} in {directory}: {error}", hint="is the store mounted read-only?"
        ) from error
    except DiskFull as error:
        raise DiskFull(f"cannot begin epoch {epoch} in {directory}: {error}") from error
    previous = ends[-1].epoch if ends else state.epoch
    state.begin_segment(number, epoch, sequence)
    location = pack_location(number, HEADER_BLOCK_BYTES, HEADER_BYTES + len(payload))
    state.apply(EpochRecord(uuid_bytes(node_id), epoch, activated_ms, tuple(ends)), sequence, number, location)
    # the other trimmed segments are removed, or retained, while the node serves
    present = set(names)
    removable = state.removable.items()
    state.removable = {number: of for number, of in removable if segment_name(number, of) in present}
    return Epoch(
        state=state,
        number=number,
        position=position,
        set_aside=len(follower.damage.passed),
        names=tuple(names),
        ends=tuple(ends),
        start=EpochStart(epoch, previous, activated_ms, sequence),
    )


def _finish(follower: Follower, disk: Disk) -> None:
    """Read to the end of the log. A node that was active before and has not noticed yet that it is not any more may
    rename or remove segments that it prepared and never used, or that left the log, between listing and reading them:
    they are listed anew.
    """
    for _ in range(_FINISH_ATTEMPTS):
        try:
            follower.finish(disk)
            return
        except FileNotFoundError as error:
            vanished = error
    raise DiskFailed(f"segments disappear while the log is read: {vanished}")


def _create_first_segment(
    applier: Applier, disk: Disk, operation: CreateSegment, names: list[str], ends: list[SegmentEnd]
) -> None:
    """The segment of the new epoch. On a full disk the files that are no part of the log are removed first: without a
    segment no client could be served, and so no message be consumed.
    """
    try:
        applier.apply([operation], disk)
    except DiskFull:
        tidy_up = TidyUp(operation.header.epoch, tuple(names), tuple(ends), cut=False)
        applier.apply([tidy_up, GiveUpReserve(), operation], disk)


def _settle(follower: Follower, applier: Applier, disk: Disk) -> None:
    """Make the last batch durable by this node: the node before may have written and never synced it, and a sync here
    says nothing about what another machine has cached. So its bytes are written again as they are, and synced.
    """
    read = follower.last_read()
    if read is not None:
        name = segment_name(read.number, read.epoch)
        applier.apply([RewriteFile(name, read.batch, read.offset - read.batch)], disk)
