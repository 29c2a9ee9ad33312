"""A copy of a store in the place of the present one (``understudy data restore``).

The copy is refused where the present store has records that the copy has not. The present files are moved to
``oldreplica.N``, as before a copy of a replica begins, and never removed. The new files are first made complete beside
the present ones and then renamed, so a restore that was interrupted at any moment is continued by the same command.
Until it is finished the store lacks the beginning of its log, which a node refuses.

Not here: locks of the store and notes of the instance (``cli.data.store_copies.restore``); making the copy
(``tools.store_copy``).
"""

from __future__ import annotations

import json
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import StoreError
from understudy.store.log.segment import parse_name
from understudy.store.quarantine import DIRECTORY_NAME
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.old_replicas import move_to, next_number
from understudy.store.replication.store_files import StoreDirectories, is_segment, list_store
from understudy.tools.compare import Relation, compare
from understudy.tools.log_copy import CopyState, LogCopy
from understudy.tools.store_copy import Progress, StoreCopy, copy_store

_STAGING: Final = "restoring"
_NOTE: Final = "complete.json"
_MOVED: Final = "moved"
_NOTE_BYTES_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Restored:
    """Figures of a finished restore."""

    node_id: str
    epoch: int
    sequence: int
    set_aside: int | None
    """Number of the ``oldreplica.N`` with the files that were there before; None if there were none."""


def why_refused(copy: StoreDirectories, present: StoreDirectories) -> str | None:
    """Reason why a copy must not take the place of the present store; None if nothing that was confirmed is lost by it.

    Raises:
        StoreError, OSError: one of the stores cannot be read.
    """
    if not list_store(present.disk, present):
        return None
    here, there = LogCopy(present.disk, present.log), LogCopy(copy.disk, copy.log)
    if here.node_id is not None and there.node_id is not None and here.node_id != there.node_id:
        return f"{present.log} is of node {here.node_id}, and the copy of node {there.node_id}"
    if here.state in (CopyState.DAMAGED, CopyState.SHORT):
        problem = here.problem
        where = f"{problem.file} at offset {problem.offset}: {problem.message}" if problem is not None else present.log
        return f"the present store is damaged, so it may have records that the copy has not ({where})"
    (pair,) = compare(present.disk, [copy.log, present.log]).pairs
    if pair.relation in (Relation.IDENTICAL, Relation.EXTENSION):
        return None
    if pair.relation is Relation.UNKNOWN:
        return "the present store and the copy have no record in common"
    more = pair.right_only
    lacks = f"{more.records} records, {more.messages} messages and {more.acknowledgements} acknowledgements"
    ends = f"it ends at {_place(here)}, and the copy at {_place(there)}"
    return f"the present store is newer: {ends}, without the last {lacks}"


def _place(log: LogCopy) -> str:
    return "epoch {}, sequence {}".format(*log.position)


def set_aside(present: StoreDirectories) -> int | None:
    """Move the files of a store to ``oldreplica.N``, durably; the number, or None if there are none."""
    if not list_store(present.disk, present):
        return None
    number = next_number(present.disk, present)
    move_to(present.disk, present, number)
    return number


class Restore:
    """A copy that takes the place of a store, in steps that may be interrupted and repeated."""

    def __init__(
        self, copy: StoreDirectories, present: StoreDirectories, progress: Progress = lambda doing: None
    ) -> None:
        """Nothing is read yet.

        Args:
            copy: Only read.
            present: Directories of the node, which does not run; they exist.
            progress: Called with each step.
        """
        self._copy = copy
        self._present = present
        self._progress = progress
        self._staging = StoreDirectories(
            present.disk, f"{present.log}/{_STAGING}", f"{present.bodies}/{_STAGING}-bodies"
        )

    @property
    def begun(self) -> bool:
        """Whether an interrupted restore has made its files complete, so that it only has to be finished."""
        return self._present.disk.exists(f"{self._staging.log}/{_NOTE}")

    def run(self) -> Restored:
        """Make the copied files, set the present ones aside, and put the copied ones in their place.

        Raises:
            StoreError: the copy cannot be used, or an interrupted restore was that of another copy.
            OSError: a file cannot be read or written.
        """
        disk = self._present.disk
        if not self.begun:
            self._clear()
            made = copy_store(self._copy, self._staging, self._progress)
            self._write_note(made)
        note = self._read_note()
        number = int(note["aside"])
        if not disk.exists(f"{self._staging.log}/{_MOVED}"):
            if number:
                self._progress(f"moving the present store to oldreplica.{number}")
                move_to(disk, self._present, number)
            self._create(f"{self._staging.log}/{_MOVED}", b"")
        self._progress("putting the copy in its place")
        self._put_in_place()
        self._clear()
        return Restored(str(note["node_id"]), int(note["epoch"]), int(note["sequence"]), number or None)

    def _put_in_place(self) -> None:
        """Rename the staged files. The first segments and the snapshots come last: a part of the files is no store."""
        disk = self._present.disk
        # bodies are moved first and the end of the log last, so that an interrupted move never shows a shorter store as
        # whole
        keys = sorted(list_store(disk, self._staging), key=_order)
        for directory, name in keys:
            target = self._present.path(directory, name)
            if "/" in name:
                disk.make_directory(target.rpartition("/")[0])
            disk.rename(self._staging.path(directory, name), target)
        for path in (f"{self._present.log}/{DIRECTORY_NAME}", self._present.bodies, self._present.log):
            if disk.exists(path):
                disk.sync_directory(path)

    def _write_note(self, made: StoreCopy) -> None:
        disk = self._present.disk
        number = next_number(disk, self._present) if list_store(disk, self._present) else 0
        fields = {"node_id": made.node_id, "epoch": made.epoch, "sequence": made.sequence, "aside": number}
        self._create(f"{self._staging.log}/{_NOTE}", json.dumps(fields).encode("ascii"))

    def _read_note(self) -> dict[str, str]:
        path = f"{self._staging.log}/{_NOTE}"
        file = self._present.disk.open(path, read_only=True)
        try:
            note = json.loads(file.read(0, _NOTE_BYTES_MAX))
        except ValueError as error:
            raise StoreError(f"{path}: {error}", hint=f"remove {self._staging.log} and repeat the restore") from error
        finally:
            file.close()
        wanted = LogCopy(self._copy.disk, self._copy.log)
        if (note["node_id"], note["epoch"], note["sequence"]) != (wanted.node_id, *wanted.position):
            raise StoreError(
                f"{self._staging.log} has the unfinished restore of another copy, which ends at epoch {note['epoch']},"
                f" sequence {note['sequence']}",
                hint="finish that one with the same command first",
            )
        return {name: str(value) for name, value in note.items()}

    def _create(self, path: str, content: bytes) -> None:
        """Make a file that is there whole or not at all."""
        disk = self._present.disk
        if disk.exists(path + ".tmp"):
            disk.remove(path + ".tmp")
        file = disk.open(path + ".tmp", create=True)
        try:
            file.write(0, (content,))
            file.sync()
        finally:
            file.close()
        disk.rename(path + ".tmp", path)
        disk.sync_directory(path.rpartition("/")[0])

    def _clear(self) -> None:
        """Remove the staged files; the note of completeness goes first."""
        disk = self._present.disk
        folders = (f"{self._staging.log}/{DIRECTORY_NAME}", self._staging.log, self._staging.bodies)
        for name in (_NOTE, _MOVED):
            if disk.exists(f"{self._staging.log}/{name}"):
                disk.remove(f"{self._staging.log}/{name}")
                disk.sync_directory(self._staging.log)
        for folder in folders:
            for name in disk.list(folder):
                disk.remove(f"{folder}/{name}")
            disk.remove_directory(folder)
        for path in (self._present.log, self._present.bodies):
            if disk.exists(path):
                disk.sync_directory(path)


def _order(key: tuple[Directory, str]) -> tuple[int, int]:
    """Sort key of files: bodies and entries, then segments from the newest to the oldest, then snapshots."""
    directory, name = key
    if directory is Directory.BODIES or name.startswith(f"{DIRECTORY_NAME}/"):
        return 0, 0
    if is_segment(directory, name):
        parsed = parse_name(name)
        assert parsed is not None, name
        return 1, -parsed[0]
    return 2, 0
