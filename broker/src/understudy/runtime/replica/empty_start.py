"""The empty start of one node: its files. Implements ``ha.replication.empty_start.Files``.

A replica notes where its log begins to differ from that of its active node, which is needed for it (ADR 0126).

The note ``empty-start.json`` in the directory of the lock files has the plan as one JSON object, ``format`` 1
(docs/build/journal-format.md s. 9).
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

from understudy.errors import JournalCorrupt, WrongNode
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.locks.replaced_file import read_file, replace_file
from understudy.ha.replication.empty_start import EmptyStartLife
from understudy.ha.replication.moved_store import MovedStore
from understudy.limits import LAST_BATCH_BYTES_MAX
from understudy.ports import Disk, Worker
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.replica.copying import store_directories
from understudy.store.messages.message_store import MessageStore
from understudy.store.replication.earlier_log import lacks_end
from understudy.store.replication.empty_store import EmptyPlan, begin_store, plan, prune, set_aside
from understudy.store.replication.last_batch import read_last_batch
from understudy.store.replication.replica_state import ReplicaStatus, read_replica_state
from understudy.store.setting_record import SettingKind, SettingRecord

#: Values of the setting about the own store (``common_part``).
_COMMON: Final = "common"
_LAST_BATCH: Final = "last_batch"
_COPIED_EPOCH: Final = "copied_epoch"
NOTE_NAME: Final = "empty-start.json"
_FORMAT: Final = 1
_FIELDS: Final = ("sequence", "epoch", "segment", "log_sequence", "common", "saved")
_NOTE_BYTES_MAX: Final = 4_096 + 2 * LAST_BATCH_BYTES_MAX


class EmptyStartFiles:
    """The files of the store of one node. Implements ``Files``."""

    def __init__(self, parts: NodeParts, saved_max: int) -> None:
        """Args:
        saved_max: max-saved-replicated-journals-size.
        """
        self._parts = parts
        self._saved_max = saved_max
        self._directory = parts.configuration.current.node_manager_lock_directory
        self.path = f"{self._directory}/{NOTE_NAME}"

    def noted(self) -> int | None:
        note = read_note(self._parts.environment.disk, self._directory)
        return None if note is None else note.sequence

    def lacks(self, moved: MovedStore) -> bool:
        """See ``Files``. A record that does not say where the common part ends lets nothing be kept."""
        return moved.end.common > 0 and lacks_end(
            self._parts.environment.disk, store_directories(self._parts).log, moved.end.common
        )

    def note(self, moved: MovedStore) -> None:
        own = self._parts.lock.node_id
        if moved.node_id != own:
            raise WrongNode(f"the record is of node {moved.node_id}, not of {own}")
        disk, end = self._parts.environment.disk, moved.end
        planned = plan(
            disk, store_directories(self._parts), moved.sequence, (end.epoch, end.sequence, end.common), end.last_batch
        )
        write_note(disk, self._directory, planned)

    def _planned(self) -> EmptyPlan:
        note = read_note(self._parts.environment.disk, self._directory)
        assert note is not None, "it is removed last"
        return note

    def set_aside(self) -> None:
        # the files are about to be others: a position that was seen here does not apply to them
        self._parts.watch.forget()
        set_aside(store_directories(self._parts), self._planned())

    def begin_store(self) -> None:
        wall_ms = self._parts.environment.clock.wall_ms()
        node_id, id_cache_size = self._parts.lock.node_id, self._parts.configuration.current.id_cache_size
        begin_store(store_directories(self._parts), self._planned(), node_id, wall_ms, id_cache_size=id_cache_size)

    def remove_note(self) -> None:
        """See ``Files``; the data that is not to be kept goes before."""
        prune(store_directories(self._parts), self._saved_max)
        remove_note(self._parts.environment.disk, self._directory)


def make_empty_start(parts: NodeParts, local: LocalSequence, worker: Worker, saved_max: int) -> EmptyStartLife:
    """The empty start of a node.

    Args:
        local: Activation sequence of its data.
        worker: Carries out the steps.
        saved_max: max-saved-replicated-journals-size.
    """
    return EmptyStartLife(EmptyStartFiles(parts, saved_max), local, worker)


def common_part(parts: NodeParts, store: MessageStore) -> tuple[int, bytes]:
    """Sequence up to which the log of this active node is that of the node whose copy it was, and the last batch of
    that part; 0: unknown. Both are kept in the log, because segments are dropped when their messages have moved away.

    Raises:
        StoreError: they cannot be read or recorded.
    """
    key = (SettingKind.MOVED_STORE, str(store.node_id))
    disk, directory = parts.environment.disk, store_directories(parts).log
    copied = read_replica_state(disk, directory)
    known = store.state.settings.get(key)
    if known is None or known.values is None or known.values.get(_COPIED_EPOCH) != copied.epoch:
        own = [use for use in store.state.segments.values() if use.epoch > copied.epoch]
        first = min(own, key=lambda use: use.first_sequence)
        if copied.status is not ReplicaStatus.IN_SYNC or first.epoch != copied.epoch + 1:
            return 0, b""
        common = first.first_sequence - 1
        last_batch = read_last_batch(disk, directory, common).hex()
        known = SettingRecord(*key, {_COMMON: common, _LAST_BATCH: last_batch, _COPIED_EPOCH: copied.epoch})
        store.store_setting(known)
    values = known.values or {}
    found = values.get(_COMMON)
    return (found if isinstance(found, int) else 0), bytes.fromhex(str(values.get(_LAST_BATCH, "")))


def was_served(parts: NodeParts) -> bool:
    """Whether this node has served its data, so that it is no copy of another node's any more. Raises as
    ``read_replica_state``.
    """
    state = read_replica_state(parts.environment.disk, store_directories(parts).log)
    return state.status is ReplicaStatus.NONE


def read_note(disk: Disk, directory: str) -> EmptyPlan | None:
    """Read the note of an empty start; None if there is no note.

    Args:
        disk: Where it is.

    Raises:
        JournalCorrupt: it is damaged.
        DiskFailed: it cannot be read.
    """
    path = f"{directory}/{NOTE_NAME}"
    data = read_file(disk, path, _NOTE_BYTES_MAX + 1)
    if data is None:
        return None
    try:
        found = json.loads(data)
        if found["format"] != _FORMAT:
            raise ValueError(f"format {found['format']}, this Understudy reads {_FORMAT}")
        numbers = {name: int(found[name]) for name in _FIELDS}
        return EmptyPlan(**numbers, last_batch=bytes.fromhex(found[_LAST_BATCH]))
    except (ValueError, KeyError, TypeError) as error:
        raise JournalCorrupt(f"the note of an empty start is damaged: {error}", file=path, offset=0) from error


def write_note(disk: Disk, directory: str, planned: EmptyPlan) -> None:
    """Write the note durably. Raises DiskFull or DiskFailed."""
    values = {"format": _FORMAT, _LAST_BATCH: planned.last_batch.hex()}
    values |= {name: getattr(planned, name) for name in _FIELDS}
    replace_file(disk, directory, NOTE_NAME, json.dumps(values).encode() + b"\n")


def remove_note(disk: Disk, directory: str) -> None:
    """Remove the note durably. Raises DiskFailed."""
    with suppress(FileNotFoundError):
        disk.remove(f"{directory}/{NOTE_NAME}")
    disk.sync_directory(directory)
