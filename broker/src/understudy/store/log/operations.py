"""Changes to the files of a store, as values (ADR 0048).

Everything that creates, writes, renames or removes a file of an active store is one of these operations. They are
executed by an ``Applier`` (``store.log.applier``), in the order in which a log writer gets them. Names are relative to
the directory of the applier; all fields are plain values, so an operation can be encoded, recorded, and executed again
elsewhere: the same operations on a copy of the directory give the same files, byte by byte.

``Append`` and ``SyncFile`` are the group commit: a batch is one ``Append``, followed by a ``SyncFile`` if it counts as
durable only once it is synced. Everything else is one of the other classes.

Not here: why and when a file changes (``journal``, ``preallocation``, ``large_messages``, ``quarantine`` and
``store.snapshots``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from understudy.dataclass import dataclass
from understudy.ports import Operation
from understudy.store.log.records import SealRecord, SegmentEnd
from understudy.store.log.segment import SegmentHeader, segment_name


class Append(NamedTuple):
    """Write a batch of records at the end of those in the segment. A batch that met a full disk is written again at
    the same offset.
    """

    name: str
    offset: int
    """Offset of the bytes in the segment."""
    parts: Sequence[bytes]
    """Bytes to append: each part has whole records, and is not changed after the operation was given to a writer."""
    size_bytes: int
    """Bytes of all parts together."""
    last_sequence: int
    """Sequence of the last record in the bytes."""
    hurries: bool = True
    """Whether a client may wait for it: else the loop does not."""


#: ``Append(...)`` without the Python-level call.
append_of: Callable[[tuple[str, int, Sequence[bytes], int, int, bool]], Append] = partial(tuple.__new__, Append)


@dataclass(frozen=True, slots=True)
class SyncFile:
    """Make the bytes written to an open file durable."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateSegment:
    """Create a segment, allocated and durable, so that it exists completely or not at all.

    Fails with ``LockLost`` if another node has created it, with ``DiskFull`` if there is no space; nothing is left
    then.
    """

    header: SegmentHeader
    records: bytes = b""
    """The first records of the segment."""

    @property
    def name(self) -> str:
        """File name of the segment."""
        return segment_name(self.header.number, self.header.epoch)


@dataclass(frozen=True, slots=True)
class GrowSegment:
    """Allocate more for an open segment that holds no records yet."""

    name: str
    allocated_bytes: int


@dataclass(frozen=True, slots=True)
class WriteZeros:
    """Overwrite allocated and unwritten bytes of an open segment with zeros, and sync (ADR 0015)."""

    name: str
    offset: int
    length: int
    """Number of zero bytes to write."""


@dataclass(frozen=True, slots=True)
class SealSegment:
    """Write the seal after the records, sync, cut the file at its end, sync, close.

    The digest of the segment is filled in by the applier, which has seen all bytes.
    """

    name: str
    record: SealRecord
    """Without digest and offsets."""
    sequence: int
    offsets: bytes
    """Offset of each record, u32 little-endian."""


@dataclass(frozen=True, slots=True)
class RewriteFile:
    """Write bytes of an existing file again as they are, and sync: those of the last batch, at an activation."""

    name: str
    offset: int
    length: int
    """Number of bytes to rewrite."""


@dataclass(frozen=True, slots=True)
class ReplaceBytes:
    """Replace bytes of an existing file that do not fit their checksum by bytes that do, keep the old ones beside it,
    and sync (``log.replaced_bytes``); nothing if the file is gone, unless ``create``. A change of one machine.
    """

    name: str
    offset: int
    data: bytes
    cut_at: int = -1
    """Size that the file is to have; negative: as it is."""
    create: bool = False
    """Make the file if it is missing."""


@dataclass(frozen=True, slots=True)
class CreateFile:
    """Create an empty file and keep it open; one that an earlier attempt left is removed first."""

    name: str


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write to a file that ``CreateFile`` has opened, and sync it."""

    name: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class RenameFile:
    """Close the file if it is open, and rename it, replacing ``target``."""

    name: str
    target: str


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Close the file if it is open, and remove it; nothing if it does not exist."""

    name: str
    retain: bool = False
    """Move the file to the retained files instead of deleting it, if the applier keeps such files (element
    journal-retention-directory); else keep the file of a segment for a later one (``segment_pool``)."""
    sync: bool = False
    """Make the removal durable before the next operation."""


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Create a directory with its parents; nothing if it exists. The empty name is that of the applier."""

    name: str = ""
    sync: bool = False
    """Sync the directory in which the new directory is."""


@dataclass(frozen=True, slots=True)
class SyncDirectory:
    """Make creations, renames and removals in a directory durable. The empty name is that of the applier."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class CloseFiles:
    """Close all files that are open."""


@dataclass(frozen=True, slots=True)
class RequireEpoch:
    """Fail with ``LockLost``, so that the operations after it are not executed, if the directory holds a segment of a
    later epoch.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class TidyUp:
    """Remove the segments that older epochs prepared and never used and the snapshots that they did not finish, and cut
    their last segments (``store.log.epoch``).
    """

    epoch: int
    names: tuple[str, ...]
    """Files of the directory before the epoch began."""
    ends: tuple[SegmentEnd, ...]
    """Ends of the segments of older epochs."""
    cut: bool = True
    """Whether last segments are cut; not before the epoch is durable."""


@dataclass(frozen=True, slots=True)
class KeepReserve:
    """Allocate the reserve (``store.snapshots.reserve``) unless it is there or there is no space for it."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class GiveUpReserve:
    """Remove the file that reserves space of the disk."""


@dataclass(frozen=True, slots=True)
class EmptyPool:
    """Remove the files of removed segments that are kept for later ones."""


@dataclass(frozen=True, slots=True)
class PruneRetained:
    """Remove retained files that are too old or exceed their limit."""

    now_ms: int
    """Wall time, epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class WriteBody:
    """Write the next piece of the body of a large message to ``<name>.tmp``, which the first piece creates."""

    name: str
    offset: int
    parts: Sequence[bytes]
    sync: bool
    """Have the medium begin to write all bytes so far, without waiting; they are safe after ``FinishBodies``."""


@dataclass(frozen=True, slots=True)
class BodyEnd:
    """The last piece of one body."""

    name: str
    offset: int
    parts: Sequence[bytes]
    durable: bool
    """Sync the file and its name."""


@dataclass(frozen=True, slots=True)
class FinishBodies:
    """Complete bodies together: write the last pieces, rename the files to their names, sync them, sync the directory.

    The failure of one body does not affect the others; ``Applier.take_body`` has the outcome of each.
    """

    ends: tuple[BodyEnd, ...]
    directory: str = ""
    """Directory of the bodies; the empty name is the directory of the applier."""


def is_beside_batches(operations: Sequence[Operation]) -> bool:
    """Whether operations may be executed while batches before and after them are written: their files have no records
    yet, and no batch goes into them before they have ended.
    """
    return len(operations) == 1 and type(operations[0]) in (CreateSegment, KeepReserve)


def is_batch(operations: Sequence[Operation]) -> bool:
    """Whether operations are a batch of the log: its end needs the permission of the fence (``ports.Fence``)."""
    return type(operations[0]) is Append
