"""The file ``replica.state`` in the directory of the log: whether the files there are a complete copy of those of
another node.

An incomplete copy must not become active. ``IN_SYNC`` means: complete when the copy ended; whether the active node
went on without this one is a matter of the epoch and the activation sequence. The file is replaced atomically and
durably. One that is damaged reads as ``INCOMPLETE`` with ``copied`` False.

Format, little-endian: magic ``USTREPL\\n``, version u16, status u8, flags u8 (bit 0: copied), moving to u32, node id
16 bytes, epoch u64, activation sequence i64, wall time i64, length of the name u16, name in UTF-8, crc32 of all of it
u32.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import replace
from enum import IntEnum
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import StoreVersionUnsupported
from understudy.ids import NodeId, uuid_bytes, uuid_text
from understudy.kernel.log import crc32
from understudy.limits import REPLICATED_NAME_BYTES_MAX
from understudy.ports import Disk, DiskReader
from understudy.store.replication.notes import read_file, replace_file

log = logging.getLogger(__name__)

STATE_NAME: Final = "replica.state"
_MAGIC: Final = b"USTREPL\n"
_VERSION: Final = 1
_COPIED: Final = 1
_FIXED: Final = struct.Struct("<8sHBBI16sQqqH")
_CRC: Final = struct.Struct("<I")
_FILE_BYTES_MAX: Final = _FIXED.size + REPLICATED_NAME_BYTES_MAX + _CRC.size
#: The node id in the file where none is known.
NO_NODE: Final = NodeId(uuid_text(bytes(16)))


class ReplicaStatus(IntEnum):
    """The number in the file."""

    NONE = 0
    """The files are this node's own, or there are none."""
    INCOMPLETE = 1
    """A copy has begun and has not ended: the node must not become active."""
    IN_SYNC = 2
    """The files were equal to those of the active node when the copy ended."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Content of the file."""

    status: ReplicaStatus = ReplicaStatus.NONE
    copied: bool = False
    """Incomplete: the files are those of a copy, so none of them needs to be kept."""
    moving_to: int = 0
    """Incomplete: number of the directory ``oldreplica.N`` that earlier data is being moved to; 0 for none."""
    node_id: NodeId = NO_NODE
    """Node id of the store of the active node; ``NO_NODE``: a copy of an earlier version of Understudy began."""
    epoch: int = 0
    """Epoch of the active node when the copy ended; 0 if the copy is not complete."""
    activation_sequence: int = 0
    """Activation sequence of the active node when the copy ended; incomplete: when it began."""
    active_name: str = ""
    """Name of the active node."""
    wall_ms: int = 0
    """End of the copy by the clock of the active node, epoch milliseconds."""


def incomplete_copy(node_id: str | None = None, sequence: int = -1) -> ReplicaState:
    """The content of the file while a copy is not complete (ADR 0202).

    Args:
        node_id: Node id of the store of the active node; unknown if it is None or no UUID.
        sequence: Activation sequence of the active node; -1: it does not say it.
    """
    state = ReplicaState(ReplicaStatus.INCOMPLETE, copied=True, activation_sequence=sequence)
    try:
        return replace(state, node_id=NodeId(uuid_text(uuid_bytes(node_id or ""))))
    except ValueError:
        return state


def read_replica_state(disk: DiskReader, directory: str) -> ReplicaState:
    """The state that the file states; ``NONE`` if there is no file.

    Args:
        disk: Where the store is.

    Raises:
        StoreVersionUnsupported: a newer Understudy has written it.
        DiskFailed: it cannot be read.
    """
    path = f"{directory}/{STATE_NAME}"
    raw = read_file(disk, path, _FILE_BYTES_MAX)
    if raw is None:
        return ReplicaState()
    state = _decode(raw, path)
    if state is None:
        log.warning("the state of the replica is damaged: the copy counts as incomplete", extra={"file": path})
        return ReplicaState(ReplicaStatus.INCOMPLETE)
    return state


def write_replica_state(disk: Disk, directory: str, state: ReplicaState) -> None:
    """Replace the file atomically and durably.

    Raises:
        DiskFull, DiskFailed: the disk refused; the file is the one before.
    """
    replace_file(disk, directory, STATE_NAME, _encode(state))


def _encode(state: ReplicaState) -> bytes:
    name = state.active_name.encode("utf-8", "surrogateescape")[:REPLICATED_NAME_BYTES_MAX]
    fields = _FIXED.pack(
        _MAGIC,
        _VERSION,
        state.status,
        _COPIED if state.copied else 0,
        state.moving_to,
        uuid_bytes(state.node_id),
        state.epoch,
        state.activation_sequence,
        state.wall_ms,
        len(name),
    )
    return b"".join((fields, name, _CRC.pack(crc32(name, crc32(fields)))))


def _decode(raw: bytes, path: str) -> ReplicaState | None:
    """None for a damaged file."""
    if len(raw) < _FIXED.size + _CRC.size or crc32(raw[: -_CRC.size]) != _CRC.unpack(raw[-_CRC.size :])[0]:
        return None
    magic, version, status, flags, moving_to, node_id, epoch, sequence, wall_ms, length = _FIXED.unpack_from(raw)
    if magic != _MAGIC:
        return None
    if version > _VERSION:
        raise StoreVersionUnsupported(
            f"{path}: format version {version}, this Understudy reads up to {_VERSION}",
            hint="start the version that wrote it, or upgrade this one",
        )
    if len(raw) != _FIXED.size + length + _CRC.size or status not in set(ReplicaStatus):
        return None
    name = raw[_FIXED.size : _FIXED.size + length].decode("utf-8", "replace")
    return ReplicaState(
        ReplicaStatus(status),
        bool(flags & _COPIED),
        moving_to,
        NodeId(uuid_text(node_id)),
        epoch,
        sequence,
        name,
        wall_ms,
    )
