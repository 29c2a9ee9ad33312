"""Reading a log that another node writes, strictly read-only; also cold recovery.

``poll`` applies the records written since the last call. A passive node polls all the time, so
that taking over costs the unread tail; a node that starts cold polls until it is caught up. Then,
holding the store's lock, ``finish`` reads the rest and decides what the last bytes are: a torn
tail, which is not part of the log, or damage, which is an error (docs/build/journal-format.md s. 2.3).

While another node may be writing, an unreadable record at the tail is only "not yet": it may be half
written or half visible. When the writer turns out to have written less than was read here (a new
epoch ends a segment earlier, the beginning was trimmed past our position, or the disk lost bytes
that were only cached), the follower starts over from the beginning: ``state`` is a new object.

It begins with the newest snapshot that is whole and fits the log, else with the first segment. A
damaged one is said and passed over; so is one that a node wrote which had lost the store, as soon as
the log shows it (docs/build/journal-format.md s. 3).

Not here: what the records mean (``state``), which segments count (``chain``), whether the end that was reached
is the end of the log (``end``).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from understudy.errors import DiskFailed, JournalCorrupt, StoreError
from understudy.ids import NodeId
from understudy.limits import ID_CACHE_SIZE, RECORD_BYTES_MAX
from understudy.ports import DiskReader, FileReader
from understudy.store.log.chain import Chain, Link, read_chain
from understudy.store.log.reading.damage import DamageReader
from understudy.store.log.reading.end import complaint, judge_beginning, judge_tail, read_range
from understudy.store.log.reading.follower_life import FollowerEvent, FollowerLife, FollowerState
from understudy.store.log.reading.replay import Cursor, Stop, read_frame, replay
from understudy.store.log.reading.settled_files import SettledFiles
from understudy.store.log.records import HEADER, HEADER_BYTES, SegmentEnd
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, read_header, seed_of, segment_name
from understudy.store.snapshots.snapshot import (
    SnapshotHeader,
    SnapshotLoader,
    parse_snapshot_name,
    read_snapshot_header,
    snapshot_names,
)
from understudy.store.state import StoreState

log = logging.getLogger(__name__)

#: Bytes read at a time while there is much to read ...
READ_BYTES: Final = 4 * 1024 * 1024
#: ... and when asking whether anything is new, which on a network file system travels each time.
_READ_BYTES_MIN: Final = 4096
#: Number of changes of the log after which a poll that reads it is given up.
_ATTEMPTS: Final = 8


_CAUGHT_UP: Final = (FollowerState.EMPTY, FollowerState.CAUGHT_UP, FollowerState.ENDED)


class Follower:
    """Reads the log of another node, or of an earlier activation, into a ``StoreState``. Usable until ``close``."""

    def __init__(
        self,
        disk: DiskReader,
        directory: str,
        *,
        node_id: NodeId | None = None,
        id_cache_size: int = ID_CACHE_SIZE,
        quarantine: bool = False,
    ) -> None:
        """Nothing is read yet.

        Args:
            disk: Where the store is.
            directory: Absolute path of the store.
            node_id: Id of the node whose log it must be; None for any.
            id_cache_size: Duplicate ids kept per address.
            quarantine: Pass over damaged records whose extent is known (``damage``).
        """
        self._disk = disk
        self._directory = directory
        self._node_id = node_id
        self.damage = DamageReader(disk, directory, allow=quarantine)
        self._id_cache_size = id_cache_size
        self._file: FileReader | None = None
        self.restarts = 0
        """How often the follower had to read the log again from a snapshot or its beginning."""
        self.rejected: dict[str, JournalCorrupt] = {}
        """Names of snapshots that cannot be used, and why."""
        self._left_behind: list[str] = []
        """Names in the directory when segments that were not read had been removed."""
        self._loader: SnapshotLoader | None = None
        self._loader_file: FileReader | None = None
        self._files: SettledFiles | None = None
        """The files that ``finish`` reads: no other process writes to the log now."""
        self._life = FollowerLife(self)
        self._reset()

    def _reset(self) -> None:
        self.state = StoreState(self._id_cache_size)
        self.damage.begin()
        self.lag_bytes = 0
        """Bytes that may be readable and are not applied yet; at most, as files are preallocated."""
        self.torn: tuple[str, int, int] | None = None
        """File, offset and length of a batch after the end that ``finish`` took for one that was never synced."""
        self.chain = Chain(0, (), None, False)
        self._names: list[str] = []
        self.base: SnapshotHeader | None = None
        """The snapshot that reading began with."""
        self._cursor: Cursor | None = None
        self._previous: Cursor | None = None
        """Cursor at the end of the previous segment; None in the first one."""
        self._index = 0
        """Index of the cursor's link in the chain."""
        self._stop: Stop | None = None
        """Reason why the last reading ended; None: only because enough was read."""
        self._chunk_bytes = _READ_BYTES_MIN
        self._ends: list[SegmentEnd] = []
        """Ends of the segments before the cursor's."""
        self._close_segment()

    @property
    def caught_up(self) -> bool:
        """Whether the last poll reached the end of the readable records."""
        return self._life.state in _CAUGHT_UP

    def close(self) -> None:
        """Close the open files. It can be polled again."""
        self._close_segment()
        self._life.fire(FollowerEvent.CLOSE)

    def drop_snapshot(self) -> None:
        """Close the snapshot that is being read, and forget its content; called by the machine."""
        snapshot, self._loader_file, self._loader = self._loader_file, None, None
        self.state = StoreState(self._id_cache_size)
        if snapshot is not None:
            with suppress(StoreError):
                snapshot.close()

    def begin_again(self) -> None:
        """Forget everything that was read; called by the machine."""
        self.restarts += 1
        self.drop_snapshot()
        self._reset()

    def _close_segment(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(StoreError):
                file.close()

    @property
    def position(self) -> tuple[int, int] | None:
        """Segment number and offset up to which the log was applied; None before the first."""
        return (self._cursor.number, self._cursor.offset) if self._cursor else None

    def ends(self) -> list[SegmentEnd]:
        """End of each segment with records, as read so far, in order; trimmed ones are left out."""
        ends = list(self._ends)
        cursor = self._cursor
        if cursor is not None:
            ends.append(SegmentEnd(cursor.number, cursor.epoch, cursor.offset))
        return [end for end in ends if end.number in self.state.segments and end.end > HEADER_BLOCK_BYTES]

    def last_read(self) -> Cursor | None:
        """The cursor after the last record that was read; None for an empty log."""
        cursor = self._cursor
        return cursor if cursor is not None and cursor.offset > HEADER_BLOCK_BYTES else self._previous

    # --- following ------------------------------------------------------------------------------

    def poll(self, max_bytes: int, *, further: bool = False) -> int:
        """Apply readable records, at most about ``max_bytes``; the bytes applied.

        Args:
            max_bytes: Bytes of the log after which it ends.
            further: Whether it goes on where the last one ended for ``max_bytes``, and looks at the directory only when
                a segment ends.

        Raises:
            JournalCorrupt: damage that no writer can explain.
            StoreVersionUnsupported: the log was written by a newer Understudy.
            WrongNode: the log belongs to another node.
            DiskFailed: it cannot be read.
        """
        applied = 0
        further = further and self._file is not None and self._stop is None
        for _ in range(_ATTEMPTS):
            try:
                if not further:
                    self._update_chain()
                applied += self._advance(max_bytes, further=further)
                if not further or self._stop is None:
                    return applied
                further = False
            except FileNotFoundError:
                further = False
                # the segment was trimmed, or renamed into place, between listing and opening
                self._names = []
                if self._files is not None:
                    self._files.forget()
            except JournalCorrupt as error:
                if further or self._is_gone(error.file):
                    further = False
                    # removed while it was read: a later segment is made of its file
                    self._names = []
                    continue
                error.hint = self.damage.hint()
                raise
        raise JournalCorrupt("segments disappear while they are read", file=self._directory, offset=0)

    def _is_gone(self, path: str) -> bool:
        """Whether a segment that was listed is not there any more. Its bytes may be those of a later segment."""
        name = path.rpartition("/")[2]
        if parse_name(name) is None or name not in self._names:
            return False
        if self._files is not None:
            self._files.forget()
        return name not in self._disk.list(self._directory)

    def quiet(self) -> bool:
        """Whether nothing follows the last record that was read, as one read of the open segment tells.

        Looks up no name and opens nothing: on a network file system this is one request, where ``poll`` makes some
        thirty. The writer of the segment is always noticed, a new epoch and news that a mount with cached attributes
        hides only by ``poll``. False also when there is no open segment, or it cannot be read.
        """
        cursor, file = self._cursor, self._file
        if not self.caught_up or cursor is None or file is None or cursor.sealed is not None:
            return False
        try:
            return not file.read(cursor.offset, HEADER_BYTES).strip(b"\0")
        except DiskFailed:
            return False

    def finish(self, disk: DiskReader | None = None) -> None:
        """Read to the end of the log and decide what its last bytes are. Only with the store's
        lock held: no other node may be writing.

        Args:
            disk: Reads the files, if it is not that of the follower.

        Raises:
            As ``poll``, and JournalCorrupt for damage near the end.
            FileNotFoundError: a node that was active before has removed a segment while it was read.
        """
        own, files = self._disk, SettledFiles(disk or self._disk)
        # files opened before the lock was acquired may be cached
        self._close_segment()
        self._disk = self._files = files
        self.damage.read_with(files)
        self._names = []
        try:
            self._check_names(files.list(self._directory))
            self._finish()
        except JournalCorrupt as error:
            if self._is_gone(error.file):
                raise FileNotFoundError(f"{error.file} was removed while it was read") from error
            raise
        finally:
            self.close()
            files.forget()
            self._disk, self._files = own, None
            self.damage.read_with(own)

    def _check_names(self, names: list[str]) -> None:
        """Called by ``finish`` with the names in the directory, before any file is opened."""

    def _finish(self) -> None:
        if not self._confirm_position():
            self._restart()
        try:
            try:
                self._read_to_end()
            except JournalCorrupt:
                if not self._has_later_snapshot():
                    raise
                # a node that starts now would not read the damaged segment either
                self._restart()
                self._read_to_end()
            if self._cursor is not None:
                judge_beginning(
                    self._directory,
                    self.state,
                    self.chain,
                    self._names,
                    self._cursor,
                    from_snapshot=self.base is not None,
                )
            self._life.fire(FollowerEvent.END_DECIDED)
        except JournalCorrupt as error:
            hint = self.damage.hint()
            error.hint = None
            if self.rejected and self.base is None:
                name, reason = next(iter(self.rejected.items()))
                raise JournalCorrupt(
                    f"snapshot {name} cannot be used ({reason}), and the log alone is not whole: {error}",
                    file=reason.file,
                    offset=reason.offset,
                    hint=hint,
                ) from error
            error.hint = hint
            raise

    def _read_to_end(self) -> None:
        """Read the log to its end, and decide what its last bytes are."""
        while True:
            while self.poll(READ_BYTES):
                continue
            self.torn = None
            if self._cursor is not None:
                behind = self.chain.links[self._index + 1 :]
                blank = self.damage.blank.is_blank
                self.torn = judge_tail(self._disk, self._directory, self._cursor, self._stop, behind, blank)
            if not self._refuse_base():
                return

    def _has_later_snapshot(self) -> bool:
        """Whether a snapshot has more of the log than was read."""
        complete = (parse_snapshot_name(name) for name in snapshot_names(self._names) if name not in self.rejected)
        return any(parsed is not None and parsed[1] > self.state.sequence for parsed in complete)

    def _restart(self) -> None:
        self._life.fire(FollowerEvent.RESTART)

    def _refuse_base(self) -> bool:
        """Whether the snapshot turned out to be of another log than this one: begin again without."""
        base = self.state.base
        if self.base is None or base is None or self._loader is not None:
            return False
        if not self.state.refuted and self.state.sequence >= base[1]:
            return False
        path = f"{self._directory}/{self.base.name}"
        self._reject(
            self.base.name,
            JournalCorrupt(f"it needs the log up to sequence {base[1]}, which is not there", file=path, offset=0),
        )
        self._restart()
        return True

    def _reject(self, name: str, error: JournalCorrupt) -> None:
        log.warning("snapshot cannot be used", extra={"file": error.file, "error": str(error)})
        self.rejected[name] = error

    def _update_chain(self) -> None:
        names = [name for name in self._disk.list(self._directory) if name.startswith(("segment-", "snapshot-"))]
        if names == self._names:
            return
        chain = read_chain(self._disk, self._directory, names, self._node_id)
        pairs = [(link.number, link.epoch) for link in chain.links]
        cursor = self._cursor
        if cursor is not None and cursor.offset == HEADER_BLOCK_BYTES and (cursor.number, cursor.epoch) not in pairs:
            # the next epoch began before anything was written there
            self._step_back()
            cursor = self._cursor
        if cursor is not None and not self._still_on(chain, cursor):
            self._restart()
            cursor = None
        self._index = pairs.index((cursor.number, cursor.epoch)) if cursor else 0
        self.chain = chain
        self._names = names
        if self.state.removable:
            # a node may follow for years: removed segments must not be remembered
            removable, present = self.state.removable.items(), set(names)
            self.state.removable = {number: of for number, of in removable if segment_name(number, of) in present}

    def _step_back(self) -> None:
        self.close()
        self._cursor, self._previous = self._previous, None
        if self._ends:
            self._ends.pop()

    def _still_on(self, chain: Chain, cursor: Cursor) -> bool:
        """Whether all segments that were read are still part of the log."""
        ends = {(link.number, link.epoch): link.end for link in (*chain.missing, *chain.links)}
        if not any((link.number, link.epoch) == (cursor.number, cursor.epoch) for link in chain.links):
            return False
        for end in (*self._ends, SegmentEnd(cursor.number, cursor.epoch, cursor.offset)):
            # what the chain does not list was dropped: the segment we are in is part of it, so is what led there
            stated = ends.get((end.number, end.epoch), end.end)
            if stated is not None and end.end > stated:
                return False
        return True

    def _advance(self, max_bytes: int, *, further: bool) -> int:
        applied = 0
        self._life.fire(FollowerEvent.READ)
        while True:
            cursor = self._cursor
            if cursor is None:
                if self._find_base():
                    return self._load(max_bytes)
                if self.chain.hole is not None:
                    raise JournalCorrupt(
                        "segment is missing", file=f"{self._directory}/{self.chain.hole.name}", offset=0
                    )
                if not self._open_next(0):
                    self._life.fire(FollowerEvent.END_REACHED)
                    return applied
                continue
            link = self.chain.links[self._index]
            before = cursor.offset
            self._stop = self._read_on(cursor, link, max_bytes - applied)
            applied += cursor.offset - before
            if self.state.refuted and self._refuse_base():
                # the chain is read anew as well
                return max(applied, 1)
            if self._stop is Stop.BAD and self._was_left_behind(cursor):
                self._restart()
                return max(applied, 1)
            if self._stop is None:
                # the test reads every later segment, which a cold start does not need
                if self._files is None and not further:
                    self._measure_lag(cursor, self._index)
                return applied
            if link.end is not None:
                if cursor.offset != link.end:
                    raise JournalCorrupt(complaint(cursor), file=cursor.path, offset=cursor.offset)
            elif self._stop is not Stop.SEALED:
                # unreadable bytes here are only not written yet, as long as nothing follows them
                self._measure_lag(cursor, self._index + 1)
                if not self.lag_bytes:
                    self._life.fire(FollowerEvent.END_REACHED)
                return applied
            if not self._open_next(self._index + 1):
                self.lag_bytes = 0
                self._life.fire(FollowerEvent.END_REACHED)
                return applied

    # --- beginning with a snapshot ----------------------------------------------------------------

    def _find_base(self) -> bool:
        """Whether a snapshot is being loaded."""
        if self._life.state is not FollowerState.SEARCHING or not self.chain.links:
            return self._life.state is FollowerState.LOADING
        for name in snapshot_names(self._names):
            if name in self.rejected:
                continue
            file = self._disk.open(f"{self._directory}/{name}", read_only=True)
            try:
                header = read_snapshot_header(file, name)
            except JournalCorrupt as error:
                file.close()
                self._reject(name, error)
                continue
            except BaseException:
                file.close()
                raise
            if self._fits(header):
                self._loader_file = file
                self._loader = SnapshotLoader(file, header, self.state)
                self._life.fire(FollowerEvent.SNAPSHOT_FOUND)
                return True
            file.close()
        self._life.fire(FollowerEvent.NO_SNAPSHOT)
        return False

    def _fits(self, header: SnapshotHeader) -> bool:
        """Whether the log goes on from there, as far as names and stated ends tell."""
        chain = self.chain
        link = next((link for link in chain.links if link.number == header.number), None)
        return (
            link is not None
            and link.epoch == header.segment_epoch
            and link.end in (None, header.offset)
            and header.epoch <= chain.epoch
            and (header.epoch == chain.epoch or not chain.trimmed)
            and header.node_id == chain.node_id
            and all(missing.number < header.number for missing in chain.missing)
        )

    def _load(self, max_bytes: int) -> int:
        """Read on in the snapshot; the bytes read."""
        loader = self._loader
        assert loader is not None
        header = loader.header
        try:
            read = loader.step(max_bytes)
        except JournalCorrupt as error:
            self._reject(header.name, error)
            self._restart()
            return 1
        if loader.reader.end is None:
            self.lag_bytes = max(self.lag_bytes, 1)
            return read
        file, self._loader_file, self._loader = self._loader_file, None, None
        assert file is not None
        file.close()
        self._life.fire(FollowerEvent.SNAPSHOT_LOADED)
        self.base = header
        self.state.format_version = max(self.state.format_version, header.format_version)
        self._cursor = header.cursor(self._directory)
        self._ends = [
            SegmentEnd(number, use.epoch, use.end)
            for number, use in self.state.segments.items()
            if number < header.number
        ]
        self._index = next(index for index, link in enumerate(self.chain.links) if link.number == header.number)
        log.info("snapshot loaded", extra={"file": header.name, "sequence": header.sequence})
        return read

    def _was_left_behind(self, cursor: Cursor) -> bool:
        """Whether segments between the one before and this one were dropped before they were read.

        Raises:
            JournalCorrupt: they are missing, and beginning again has not helped.
        """
        if not cursor.sequence or cursor.offset != HEADER_BLOCK_BYTES:
            return False
        header = read_range(self._disk, cursor.path, cursor.offset, HEADER_BYTES)
        length = HEADER.unpack(header)[1] if len(header) == HEADER_BYTES else 0
        if length > RECORD_BYTES_MAX:
            return False
        frame = read_frame(read_range(self._disk, cursor.path, cursor.offset, length), 0, cursor.offset, cursor.seed)
        if frame is None or frame.sequence <= cursor.sequence + 1:
            return False
        if self._left_behind == self._names:
            raise JournalCorrupt(
                f"records {cursor.sequence + 1} to {frame.sequence - 1} are missing",
                file=cursor.path,
                offset=cursor.offset,
            )
        self._left_behind = self._names
        return True

    def _open_next(self, index: int) -> bool:
        """Open the segment of a link; False if it does not exist yet."""
        links = self.chain.links
        if index >= len(links):
            return False
        link = links[index]
        path = f"{self._directory}/{link.name}"
        file = self._disk.open(path, read_only=True)
        try:
            header = read_header(file, link.number, link.epoch)
        except BaseException:
            file.close()
            raise
        self.close()
        self._file = file
        self._index = index
        self.state.format_version = max(self.state.format_version, header.format_version)
        cursor = self._cursor
        if cursor is not None:
            self._ends.append(SegmentEnd(cursor.number, cursor.epoch, cursor.offset))
            self._previous = cursor
        sequence = cursor.sequence if cursor else 0
        self._cursor = Cursor(path, link.number, link.epoch, seed_of(link.number, link.epoch), sequence=sequence)
        return True

    def _read_on(self, cursor: Cursor, link: Link, budget_bytes: int) -> Stop | None:
        """Apply records of the current segment; return why that ended, None if the budget is used up."""
        until = cursor.offset + budget_bytes
        fresh = whole = False
        while True:
            if cursor.sealed is not None:
                return cursor.sealed
            if cursor.offset == link.end:
                return Stop.ENDED
            if cursor.offset >= until:
                return None
            if self._file is None:
                self._file = self._disk.open(cursor.path, read_only=True)
            length = self._chunk_bytes if link.end is None else min(self._chunk_bytes, link.end - cursor.offset)
            if not whole:
                # a step applies all records that it has read
                length = min(length, max(until - cursor.offset, _READ_BYTES_MIN))
            data = self._file.read(cursor.offset, length)
            before = cursor.offset
            stop = replay(self.state, cursor, data)
            if stop in (Stop.SEALED, Stop.CLOSED):
                cursor.sealed = stop
                return stop
            if cursor.offset > before:
                # Only a record that was cut off shows that there is more. Otherwise the log ends in these bytes, and
                # the rest of the segment is preallocated zeros: reading megabytes of them from a network file system
                # takes so long that another record is there each time, and the poll would not end.
                more = stop in (Stop.SHORT, Stop.ENDED)
                self._chunk_bytes = min(8 * self._chunk_bytes, READ_BYTES) if more else _READ_BYTES_MIN
                continue
            if stop is Stop.SHORT and not whole and length < self._chunk_bytes:
                # the record is longer than the rest of the step
                whole = True
                continue
            if stop is Stop.SHORT and len(data) == length == self._chunk_bytes:
                needed_bytes = HEADER.unpack_from(data)[1] if len(data) >= HEADER_BYTES else HEADER_BYTES
                if length < needed_bytes <= RECORD_BYTES_MAX:
                    self._chunk_bytes = needed_bytes
                    continue
            self._chunk_bytes = _READ_BYTES_MIN
            if fresh:
                if self.damage.pass_over(
                    self.state, cursor, self.chain.links[self._index :], stop, self._files is not None
                ):
                    continue
                return Stop.BLANK if stop is Stop.ENDED else stop
            # a network file system asks for news about its cached pages when a file is opened
            fresh = True
            if stop in (Stop.BAD, Stop.SHORT):
                # the medium may have what a cache of this machine has not
                self._file.forget_cached(cursor.offset, length)
            self.close()

    def _measure_lag(self, cursor: Cursor, index: int) -> None:
        """Bytes that may be readable in the links from ``index`` on."""
        self.lag_bytes = 0
        for link in self.chain.links[index:]:
            offset = cursor.offset if link.number == cursor.number else HEADER_BLOCK_BYTES
            end = link.end
            self.lag_bytes += self._readable(link, offset, cursor.sequence) if end is None else end - offset

    def _readable(self, link: Link, offset: int, above: int) -> int:
        """Bytes after an offset in a segment of the newest epoch, if something begins there."""
        path = f"{self._directory}/{link.name}"
        if self._files is not None and self.damage.blank.is_blank(path, offset, above):
            return 0
        file = self._disk.open(path, read_only=True)
        try:
            blank = not file.read(offset, HEADER_BYTES).strip(b"\0")
            return 0 if blank else max(file.size() - offset, 0)
        finally:
            file.close()

    # --- the end of the log -----------------------------------------------------------------------

    def _confirm_position(self) -> bool:
        """Whether the last batch that was applied is still there: until its sync it existed only
        in the cache of the file server, which may have lost it since.
        """
        read = self.last_read()
        if read is None:
            return True
        try:
            data = read_range(self._disk, read.path, read.batch, read.offset - read.batch)
        except FileNotFoundError:
            return False
        at = last = 0
        while at < len(data):
            frame = read_frame(data, at, read.batch, read.seed)
            passed = self.damage.length_at(read, read.batch + at) if frame is None else 0
            if frame is None and not passed:
                return False
            at += frame.length if frame is not None else passed
            last = frame.sequence if frame is not None else last + 1
        return at == read.offset - read.batch and last == read.sequence


def recover(disk: DiskReader, directory: str, *, node_id: NodeId | None = None, quarantine: bool = False) -> Follower:
    """Cold recovery: a follower that has read the whole log and decided its end.

    Raises:
        As ``Follower.poll`` and ``Follower.finish``.
    """
    follower = Follower(disk, directory, node_id=node_id, quarantine=quarantine)
    follower.finish()
    return follower
