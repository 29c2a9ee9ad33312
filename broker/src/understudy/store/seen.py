"""The highest position of its store that a node has seen, and the refusal of an older store.

A store that was rolled back to an older copy, or that lost its newest epochs, looks whole: it is only shorter than it
was. So each node keeps the highest (epoch, sequence) that it knows to be durable in a file of its instance directory,
outside of the store, and refuses an older store, at its start and before it activates. An operator accepts the
older state with ``understudy accept-store``. ADR 0031.

The file comes back with the store when the whole instance is put back from a snapshot. So a node with a store of its
own also compares its log with the position that the lock manager keeps (``check_kept``), and a replica proves what this
node had synced: a node that has lost such records notes that in the file (``put_back``), and does not serve. ADR 0118.

What counts as durable: a node that is active notes what its syncs have confirmed. A node that follows notes a batch
once a later one is in the log: a batch is begun when the one before is synced. Where the configuration does not sync
every batch, only the beginning of an epoch is noted.

The same directory holds ``etc/store-seen.json``, written by the Ansible collection: the identity of the store that the
node uses. ``check_identity`` compares it with ``store.json`` beside the store's directories.

Not here: when a position is noted (``runtime.node.node``).
"""

from __future__ import annotations

import json
import logging
import posixpath
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import StoreBehind, StoreError, WrongStore
from understudy.ports import Disk, DiskReader
from understudy.store.log.chain import newest_epoch
from understudy.store.log.reading.follower import Follower

log = logging.getLogger(__name__)

#: Below the instance directory.
POSITION_FILE: Final = "run/store-position.json"
IDENTITY_NOTE: Final = "etc/store-seen.json"
#: Beside the directories of the store.
IDENTITY_FILE: Final = "store.json"
#: Every record of a position has this size, so that it is replaced by one write of one sector.
_RECORD_BYTES: Final = 256
_FILE_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Position:
    """How far a log goes."""

    node_id: str
    """Node id of the store; empty for a store without any segment."""
    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"epoch {self.epoch}, sequence {self.sequence} of node {self.node_id or '(none)'}"

    def reaches(self, epoch: int, sequence: int) -> bool:
        """Whether a log that ends here has that position. Both are compared, not the pair in lexical order: an older
        copy on which new epochs were begun has a high epoch and a low sequence.
        """
        return self.epoch >= epoch and self.sequence >= sequence


@dataclass(frozen=True, slots=True)
class _Marks:
    """Facts about the whole store that stay in the file when the position is replaced."""

    accepts_next: bool = False
    """An operator accepted the store whose log is read next, wherever it ends."""
    accepted: int = -1
    """Sequence at which the log ended that an operator has accepted; -1: none was."""
    accepted_epoch: int = 0
    put_back: tuple[int, int] | None = None
    """A replica proved that the store had this epoch and sequence, which it has no more."""


class SeenPosition:
    """The position file of one instance directory."""

    def __init__(self, disk: Disk, instance: str) -> None:
        """Nothing is read yet.

        Args:
            disk: Where the instance directory is.
            instance: Absolute path of the instance directory; ``run`` below it is made when it is missing.
        """
        self._disk = disk
        self._instance = instance
        self.path = f"{instance}/{POSITION_FILE}"
        self._noted: Position | None = None
        self._marks: _Marks | None = None
        """None: the file was not read yet."""
        self._failed = False

    def read(self) -> Position | None:
        """The highest position seen; None if there is none yet.

        Raises:
            StoreError: the file cannot be read, or is not one.
        """
        data = _read_file(self._disk, self.path)
        if data is None or not data.strip(b"\0"):
            # blank: the power failed while it was made, before anything was noted
            self._marks = _Marks()
            return None
        try:
            fields = json.loads(data)
            position = Position(str(fields["node_id"]), int(fields["epoch"]), int(fields["sequence"]))
            self._marks = _marks_of(fields)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise StoreError(
                f"{self.path} holds no position of a store", hint="remove it if the store is known to be the right one"
            ) from error
        self._noted = position if position != _NOTHING else None
        return self._noted

    def check(self, found: Position) -> None:
        """Raises StoreBehind when the store is not the one that was seen, or is older."""
        seen = self.read()
        if seen is None:
            return
        if seen.node_id == found.node_id and found.reaches(seen.epoch, seen.sequence):
            return
        raise StoreBehind(
            f"the store has {found}, but this node has seen {seen} ({self.path})",
            hint=f"mount the right store, or accept this one: understudy accept-store --instance {self._instance}",
        )

    def check_epoch(self, names: Sequence[str], directory: str) -> None:
        """The part of ``check`` that the names of the segments tell, before anything is opened or made.

        Raises:
            StoreBehind: the newest segments that were seen are missing.
        """
        seen = self.read()
        if seen is not None and (epoch := newest_epoch(list(names))) < seen.epoch:
            raise StoreBehind(
                f"the newest epoch in {directory} is {epoch or 'none'}, but this node has seen {seen} ({self.path})",
                hint=f"is the store mounted? To accept it: understudy accept-store --instance {self._instance}",
            )

    def note(self, position: Position, *, sync: bool = False) -> None:
        """Remember a position of the log if it is higher than the one that was noted last.

        A file that cannot be written is logged once; the node goes on.

        Args:
            position: Durable in the store.
            sync: Make it durable here, too; else it may be lost with the machine's power.
        """
        noted = self._noted
        if noted is not None and noted.node_id == position.node_id:
            if position.epoch < noted.epoch or position.sequence < noted.sequence:
                return
            if position == noted and not sync:
                return
        try:
            self._write(position, self._known_marks(), sync=sync)
            self._failed = False
        except (StoreError, OSError) as error:
            if not self._failed:
                log.warning("the position of the store cannot be noted", extra={"error": str(error)})
            self._failed = True

    def forget(self) -> None:
        """Remove the noted position.

        Raises:
            StoreError: the file cannot be removed.
        """
        self._noted, self._marks = None, _Marks()
        if self._disk.exists(self.path):
            self._disk.remove(self.path)
            self._disk.sync_directory(posixpath.dirname(self.path))

    # --- the word of an operator, and of a replica ---------------------------------------------------

    def accept(self, position: Position) -> None:
        """An operator accepts the store that ends at this position: replace the noted one, also by a lower one.

        Raises:
            StoreError: the file cannot be written.
        """
        self._write(position, _Marks(accepted=position.sequence, accepted_epoch=position.epoch), sync=True)

    def accept_next(self) -> None:
        """An operator accepts the store as it is; where it ends is known when its log is read (``check_kept``).

        Raises:
            StoreError: the file cannot be read or written.
        """
        self._write(self.read() or _NOTHING, _Marks(accepts_next=True), sync=True)

    def has_accepted(self, sequence: int) -> bool:
        """Whether an operator has accepted that nothing is known of this log above a sequence.

        Raises:
            StoreError: the file cannot be read.
        """
        marks = self._known_marks()
        return marks.accepts_next or marks.accepted >= sequence

    def check_kept(self, found: Position, kept: tuple[int, int], keeper: str) -> None:
        """Compare the end of the log with the position that was noted outside of the instance.

        Args:
            found: End of the log.
            kept: Epoch and sequence that every copy has which may be the newest; zeros: nothing was noted.
            keeper: Name of the lock manager that keeps it.

        Raises:
            StoreBehind: the log ends before it, and no operator has accepted that.
            StoreError: the file of this node cannot be read or written.
        """
        marks = self._known_marks()
        if marks.accepts_next:
            marks = _Marks(accepted=found.sequence, accepted_epoch=found.epoch)
            self._write(found, marks, sync=True)
        if found.reaches(*kept) or (found.epoch, found.sequence) == (marks.accepted_epoch, marks.accepted):
            return
        accept = f"; if no copy has the rest, accept the loss: understudy accept-store --instance {self._instance}"
        raise behind_kept(found, kept, keeper, accept)

    def put_back(self, epoch: int, sequence: int) -> None:
        """A replica proved that this store had a position which it has no more: note that durably. The node does not
        activate with it again (``why_not_serve``).

        Raises:
            StoreError: the file cannot be read or written.
        """
        self._write(self.read() or _NOTHING, _Marks(put_back=(epoch, sequence)), sync=True)

    def why_not_serve(self) -> StoreBehind | None:
        """The reason why this store must not be served; None: there is none.

        Raises:
            StoreError: the file cannot be read.
        """
        lost = self._known_marks().put_back
        if lost is None:
            return None
        return StoreBehind(
            f"this node had epoch {lost[0]}, sequence {lost[1]}, which its log has no more, as the copy of its replica"
            " proves: an older state of its disk was put back",
            hint="let the other node serve: `understudy promote --accept-data-loss` there, then this one copies its"
            " data and keeps its own in oldreplica.N; to serve this store instead: understudy accept-store --instance"
            f" {self._instance}",
        )

    def _known_marks(self) -> _Marks:
        if self._marks is None:
            self.read()
        return self._marks or _Marks()

    def _write(self, position: Position, marks: _Marks, *, sync: bool) -> None:
        fields: dict[str, object] = {
            "node_id": position.node_id, "epoch": position.epoch, "sequence": position.sequence
        }  # fmt: skip
        if marks.accepts_next:
            fields["accepted"] = "next"
        elif marks.accepted >= 0:
            fields["accepted"] = [marks.accepted_epoch, marks.accepted]
        if marks.put_back is not None:
            fields["put_back"] = marks.put_back
        record = (json.dumps(fields).ljust(_RECORD_BYTES - 1) + "\n").encode()
        made = not self._disk.exists(self.path)
        if made:
            self._disk.make_directory(posixpath.dirname(self.path))
        file = self._disk.open(self.path, create=made)
        try:
            file.write(0, (record,))
            if sync or made:
                file.sync()
        finally:
            file.close()
        if made:
            self._disk.sync_directory(posixpath.dirname(self.path))
        self._noted, self._marks = position, marks


#: Position of a node that has seen none.
_NOTHING: Final = Position("", 0, 0)


def _marks_of(fields: dict[str, object]) -> _Marks:
    """The marks in the file. Raises ValueError, TypeError: it has others."""
    accepted, lost = fields.get("accepted"), fields.get("put_back")
    epoch, sequence = (0, -1) if accepted in (None, "next") else _two_numbers(accepted)
    return _Marks(accepted == "next", sequence, epoch, None if lost is None else _two_numbers(lost))


def _two_numbers(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("not two numbers")
    return int(value[0]), int(value[1])


class WatchedFollower(Follower):
    """A follower that notes the position it has read, and whose end must not be before the position seen earlier."""

    def __init__(
        self,
        disk: DiskReader,
        directory: str,
        seen: SeenPosition,
        *,
        syncs: bool,
        id_cache_size: int,
        quarantine: bool = False,
    ) -> None:
        """Make a follower, like ``Follower``.

        Args:
            disk: Where the store is.
            directory: Absolute path of the store.
            seen: Is checked by ``finish``.
            syncs: Whether every batch of this log is synced before the next is begun.
            id_cache_size: Duplicate ids kept per address.
            quarantine: Whether damaged records are set aside.
        """
        super().__init__(disk, directory, id_cache_size=id_cache_size, quarantine=quarantine)
        self._seen = seen
        self._syncs = syncs
        self._sample: tuple[Position, tuple[int, int]] | None = None
        """A position and the batch it ends in: durable once another batch follows."""
        self._sample_restarts = 0

    def poll(self, max_bytes: int, *, further: bool = False) -> int:
        applied = super().poll(max_bytes, further=further)
        if applied and self._syncs:
            self._note_read()
        return applied

    def finish(self, disk: DiskReader | None = None) -> None:
        """End reading as ``Follower.finish`` does.

        Raises:
            StoreBehind: the log ends before the position that was seen, or its newest segments are missing.
        """
        super().finish(disk)
        self._seen.check(position_of(self))

    def _check_names(self, names: list[str]) -> None:
        self._seen.check_epoch(names, self._directory)

    def _note_read(self) -> None:
        cursor, node_id = self._cursor, self.chain.node_id
        if cursor is None or node_id is None or not cursor.sequence:
            return
        batch = (cursor.number, cursor.batch)
        sample = self._sample if self._sample_restarts == self.restarts else None
        if sample is not None and sample[1] == batch:
            return
        if sample is not None:
            self._seen.note(sample[0])
        self._sample, self._sample_restarts = (Position(node_id, cursor.epoch, cursor.sequence), batch), self.restarts


def check_identity(disk: Disk, instance: str, directories: Sequence[str]) -> None:
    """Compare the identity that the instance directory notes with the one beside each directory of the store.

    Args:
        disk: Where all of them are.
        instance: Instance directory; without ``IDENTITY_NOTE`` in it nothing is checked.
        directories: Directories of the store; ``IDENTITY_FILE`` is expected in the parent of each.

    Raises:
        WrongStore: there is no identity, or another one.
        StoreError: a file cannot be read.
    """
    note_path = f"{instance}/{IDENTITY_NOTE}"
    noted = _store_id(disk, note_path)
    if noted is None:
        return
    for path in dict.fromkeys(f"{posixpath.dirname(directory)}/{IDENTITY_FILE}" for directory in directories):
        found = _store_id(disk, path)
        if found != noted:
            what = f"{path} is missing" if found is None else f"{path} names the store {found}"
            raise WrongStore(
                f"{what}, but {note_path} says that this node uses the store {noted}",
                hint="is the store mounted? If it was given up on purpose, remove the note",
            )


def _store_id(disk: Disk, path: str) -> str | None:
    data = _read_file(disk, path)
    if data is None:
        return None
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return str(json.loads(data)["store_id"])
    raise WrongStore(f"{path} holds no identity of a store")


def _read_file(disk: Disk, path: str) -> bytes | None:
    try:
        file = disk.open(path, read_only=True)
    except FileNotFoundError:
        return None
    try:
        return file.read(0, _FILE_BYTES_MAX)
    finally:
        file.close()


def behind_kept(found: Position, kept: tuple[int, int], keeper: str, accept: str) -> StoreBehind:
    """The error of a log that ends before the position that is kept outside of the instance.

    Args:
        found: End of the log.
        kept: Epoch and sequence.
        keeper: Name of the lock manager.
        accept: The second part of the hint: the way to go on without the rest.
    """
    return StoreBehind(
        f"the log of this node ends at {found}, but {keeper} has noted epoch {kept[0]}, sequence {kept[1]} for it: an"
        " older state of its disk was put back",
        hint=f"start the other node of the pair, and this one copies its data{accept}",
    )


def position_of(follower: Follower) -> Position:
    """The position that a follower has read up to."""

    # not the state's node id: a log that begins with a snapshot need not have an EPOCH record any more
    return Position(follower.chain.node_id or "", follower.chain.epoch, follower.state.sequence)
