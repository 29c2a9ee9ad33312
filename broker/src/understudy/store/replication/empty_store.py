"""The files of a node that sets its data aside and begins an empty store (docs/build/journal-format.md s. 9, ADR 0126).

The plan is noted durably before the first file changes, so a node that ends in between goes on with the same one. The
empty log begins after the epoch and the sequence of the log whose messages have moved away, and in a segment with a
number of its own, so identifiers of messages, positions of the log and names of files do not come twice. It has no
message. Bindings, settings and duplicate ids are those that the log had when the replica took over: a client that sends
a message again, because it got no confirmation, does not send it twice. Records after that are of no account: the
replica did not have them.

Each function may be repeated after a crash. Not here: the note (``runtime.replica.empty_start``), and the order
(``ha.replication.empty_start``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import StoreError
from understudy.ids import NodeId, uuid_bytes
from understudy.ports import Disk
from understudy.store.log.chain import highest_number, newest_epoch
from understudy.store.log.checkpoint import encode_checkpoint, encode_item
from understudy.store.log.records import RecordType, encode_epoch, encode_trim
from understudy.store.log.segment import (
    HEADER_BLOCK_BYTES,
    NEW_SUFFIX,
    SegmentHeader,
    create_segment,
    frame,
    seed_of,
    segment_name,
)
from understudy.store.replication import old_replicas
from understudy.store.replication.divergence import saved_directories
from understudy.store.replication.earlier_log import earlier_state
from understudy.store.replication.last_batch import apply_last_batch
from understudy.store.replication.replica_state import ReplicaState, ReplicaStatus, write_replica_state
from understudy.store.replication.store_files import StoreDirectories
from understudy.store.setting_record import SettingKind, SettingRecord, encode_setting
from understudy.store.state import StoreState

log = logging.getLogger(__name__)

#: Settings that say something about messages of the store.
_OF_MESSAGES: Final = frozenset({SettingKind.SCALE_DOWN, SettingKind.READER})
#: Value of the record of an XA branch whose place is not known (``session.branch``).
_ELSEWHERE: Final = {"node": "of another member of the cluster"}


@dataclass(frozen=True, slots=True)
class EmptyPlan:
    """Begin of an empty store, and the new place of its data."""

    sequence: int
    """Activation sequence of the data that has moved; the empty store gets it."""
    epoch: int
    """Epoch of the first segment of the empty log. The fields below describe that segment, too."""
    segment: int
    log_sequence: int
    common: int
    """Sequence up to which the data was that of the replica, too; 0: unknown."""
    saved: int
    """Number of the directory ``oldreplica.N`` of the data."""
    last_batch: bytes
    """Records of the batch that ends there, which the data may lack (``last_batch``); empty: unknown."""


def plan(
    disk: Disk, directories: StoreDirectories, sequence: int, end: tuple[int, int, int], last_batch: bytes
) -> EmptyPlan:
    """The plan of an empty start that has not begun.

    Args:
        disk: Where the store is.
        sequence: Activation sequence of the data that has moved.
        end: Epoch and sequence at the end of its log, and the sequence up to which it is the log of this node.
        last_batch: The batch that ends there.
    """
    names, (epoch, last, common) = disk.list(directories.log), end
    # activations of this node that failed may have begun later epochs than the one that moved its messages
    begun = max(epoch, newest_epoch(names)) + 1
    saved = old_replicas.next_number(disk, directories)
    return EmptyPlan(sequence, begun, highest_number(names) + 1, last + 1, common, saved, last_batch)


def set_aside(directories: StoreDirectories, planned: EmptyPlan) -> None:
    """Move the data to ``oldreplica.N``; nothing is left to do once the empty log exists.

    Raises:
        DiskFull, DiskFailed: the disk refused.
    """
    disk = directories.disk
    if _begun(directories, planned):
        return
    # an earlier version of Understudy does not know the note, and must not serve a part of the data
    write_replica_state(disk, directories.log, ReplicaState(ReplicaStatus.INCOMPLETE, moving_to=planned.saved))
    log.warning("earlier data is moved away", extra={"directory": directories.log, "number": planned.saved})
    old_replicas.move_to(disk, directories, planned.saved)


def begin_store(
    directories: StoreDirectories, planned: EmptyPlan, node_id: NodeId, wall_ms: int, *, id_cache_size: int
) -> None:
    """Begin the empty log, and note that its files are those of this node.

    Args:
        planned: Where it begins.
        wall_ms: Present time, epoch milliseconds.
        id_cache_size: Duplicate ids kept per address.

    Raises:
        DiskFull, DiskFailed: the disk refused.
    """
    disk, directory = directories.disk, directories.log
    if not _begun(directories, planned):
        with suppress(FileNotFoundError):
            disk.remove(f"{directory}/{segment_name(planned.segment, planned.epoch)}{NEW_SUFFIX}")
        state = _kept(directories, planned, node_id, id_cache_size)
        records = b"".join(_records(planned, node_id, wall_ms, state))
        header = SegmentHeader(
            node_id,
            planned.epoch,
            planned.segment,
            wall_ms,
            HEADER_BLOCK_BYTES + len(records),
            True,
            state.format_version,
        )
        create_segment(disk, directory, header, records).close()
    write_replica_state(disk, directory, ReplicaState())


def prune(directories: StoreDirectories, saved_max: int) -> None:
    """Keep as many copies of earlier data as are wanted. Raises DiskFailed."""
    old_replicas.prune(directories.disk, directories, saved_max)


def _begun(directories: StoreDirectories, planned: EmptyPlan) -> bool:
    return directories.disk.exists(f"{directories.log}/{segment_name(planned.segment, planned.epoch)}")


def _kept(directories: StoreDirectories, planned: EmptyPlan, node_id: NodeId, id_cache_size: int) -> StoreState:
    """The state of the data when the replica took over; an empty one if it cannot be read."""
    saved = saved_directories(directories, planned.saved)
    try:
        if not planned.common:
            raise StoreError("the record does not say where the replica took over")
        state = earlier_state(directories.disk, saved.log, planned.common, node_id=node_id, id_cache_size=id_cache_size)
        if state.sequence < planned.common and not apply_last_batch(planned.last_batch, state):
            log.warning(
                "the empty store lacks duplicate ids of the last messages: a client may send one of them twice",
                extra={"directory": saved.log, "sequence": state.sequence, "common": planned.common},
            )
    except (StoreError, FileNotFoundError) as error:
        log.warning(
            "the empty store begins without the queues, settings and duplicate ids of the earlier data: messages that"
            " clients send again may come twice",
            extra={"directory": saved.log, "error": str(error)},
        )
        return StoreState(id_cache_size)
    return state


def _records(planned: EmptyPlan, node_id: NodeId, wall_ms: int, state: StoreState) -> Iterator[bytes]:
    """The records of the first segment, as one batch."""
    for key in [key for key in state.settings if key[0] in _OF_MESSAGES or key == (SettingKind.MOVED_STORE, node_id)]:
        del state.settings[key]
    items = list(state.checkpoint_items())
    for each in state.transactions.values():
        if each.xid is not None:
            # the branch is prepared at the node that has the messages: this node must not answer that it is unknown
            record = SettingRecord(SettingKind.MOVED_BRANCH, each.xid.hex(), _ELSEWHERE)
            state.format_version = max(state.format_version, record.scope.format_version)
            items.append(encode_item(RecordType.SETTING, encode_setting(record)))
    seed, sequence = seed_of(planned.segment, planned.epoch), planned.log_sequence
    said = [
        (RecordType.EPOCH, 0, encode_epoch(uuid_bytes(node_id), planned.epoch, wall_ms, ())),
        *((RecordType.CHECKPOINT, flags, payload) for flags, payload in encode_checkpoint(items)),
        # the log begins as if earlier segments had been trimmed
        (RecordType.TRIM, 0, encode_trim(planned.segment, planned.log_sequence)),
    ]
    for place, (kind, flags, payload) in enumerate(said):
        yield from frame(kind, flags, sequence + place, HEADER_BLOCK_BYTES, seed, payload)
