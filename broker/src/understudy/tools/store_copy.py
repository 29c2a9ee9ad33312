"""A consistent copy of a whole store, also of one that a broker is writing (``understudy data backup``).

A copy has the log up to one record, the snapshots and the quarantine, and the body of every large message that lives
there. It is made in passes: files that do not change any more are taken once, the newest segment up to its last valid
record, and then the copy itself is read. If it is not whole, because the broker has dropped a segment or removed the
body of a message that was consumed meanwhile, another pass takes the files that are new. A named reader that holds the
log from its beginning keeps the segments in place, so that a pass normally suffices. At the end every byte is verified.

Not here: which node is copied and its reader (``cli.data.store_copies.backup``); a copy in the place of a store
(``tools.restore``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, JournalCorrupt, LargeMessageFailed, StoreError
from understudy.ids import NodeId
from understudy.message import LargeBody, large_body_of
from understudy.ports import File
from understudy.store.log.segment import parse_name, read_header
from understudy.store.messages.large_messages import LargeReader
from understudy.store.quarantine import read_entries
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.store_files import (
    StoreDirectories,
    is_entry,
    is_segment,
    is_unfinished,
    list_store,
)
from understudy.store.snapshots.reserve import RESERVE_NAME
from understudy.tools.contents import (
    Contents,
    LiveMessage,
    beginning_is_missing,
    live_messages,
    prepared_messages,
    read_contents,
)
from understudy.tools.inspect import verify
from understudy.tools.log_copy import CopyState, Extent, LogCopy

#: Number of times that changed files are copied again.
PASSES_MAX: Final = 10
_PIECE_BYTES: Final = 4 * 1024 * 1024
_UNFINISHED: Final = ".tmp"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """Figures of a finished copy of a store."""

    node_id: NodeId
    epoch: int
    sequence: int
    """The copy has the log up to this record."""
    messages: int
    """Number of references in all queues."""
    prepared: int
    """Number of prepared transactions."""
    bodies: int
    """Bodies of large messages."""
    size_bytes: int
    """Bytes of the files as they are read; the rest of the newest segment takes no space."""
    passes: int


class _Changed(Exception):
    """The store has changed while it was copied, so that the copy is not whole."""


def copy_store(
    source: StoreDirectories, target: StoreDirectories, progress: Progress = lambda doing: None
) -> StoreCopy:
    """Copy a store into empty directories, durably, and verify every byte of the copy.

    Args:
        source: Only read.
        target: Target, whose directories are made if they are missing.
        progress: Called with each step.

    Raises:
        StoreError: the target holds a store.
        JournalCorrupt: the source is damaged, or its log is incomplete.
        LargeMessageFailed: the body of a message that lives in the source is missing or damaged there.
        DiskFailed: a file cannot be read or written, or the source changes faster than it can be copied.
    """
    if list_store(target.disk, target):
        raise StoreError(f"{target.log} holds a store already", hint="name an empty directory")
    for path in (target.log, target.bodies):
        target.disk.make_directory(path)
    why = ""
    for number in range(1, PASSES_MAX + 1):
        progress(f"pass {number}: copying {source.log}")
        try:
            return _Pass(source, target, number, progress).run()
        except FileNotFoundError as error:
            why = f"{error.filename or error} has disappeared"
        except _Changed as changed:
            why = str(changed)
    raise DiskFailed(
        f"{source.log} changes faster than it can be copied: {why} after {PASSES_MAX} passes",
        hint="copy the passive node, or stop this one first",
    )


class _Pass:
    """One pass of a copy over the files of a store."""

    def __init__(self, source: StoreDirectories, target: StoreDirectories, number: int, progress: Progress) -> None:
        self._source = source
        self._target = target
        self._number = number
        self._progress = progress

    def run(self) -> StoreCopy:
        log = self._copy_log()
        # before the copy is read: its entries say which damaged records are passed over
        kept = self._copy_set_aside()
        made, contents = self._read_copy(log)
        needed = {large.file_id: large for large in _bodies(made, contents)}
        for large in needed.values():
            self._copy_body(large, made)
        for directory, name in list_store(self._target.disk, self._target):
            if directory is Directory.BODIES and int(name.partition(".")[0]) not in needed.keys() | kept:
                self._target.disk.remove(self._target.path(directory, name))
        self._sync()
        self._progress("verifying every byte of the copy")
        report = verify(self._target.disk, self._target.log)
        for problem in report.problems:
            raise self._damaged(problem.file, problem.offset, problem.message)
        assert made.node_id is not None
        epoch, sequence = made.position
        messages = sum(map(len, contents.state.references.values()))
        size_bytes = sum(self._size(*key) for key in list_store(self._target.disk, self._target))
        return StoreCopy(
            made.node_id, epoch, sequence, messages, contents.prepared, len(needed), size_bytes, self._number
        )

    # --- the log ------------------------------------------------------------------------------------------

    def _copy_log(self) -> LogCopy:
        """Copy snapshots, then segments: a snapshot is never newer than the end of the copied log."""
        source, target = self._source, self._target
        names = [name for directory, name in list_store(source.disk, source) if directory is Directory.LOG]
        names = [name for name in names if not is_unfinished(Directory.LOG, name) and name != RESERVE_NAME]
        for name in names:
            if not is_segment(Directory.LOG, name) and not is_entry(Directory.LOG, name):
                self._copy_file(Directory.LOG, name)
        log = LogCopy(source.disk, source.log)
        if log.problem is not None or log.state in (CopyState.DAMAGED, CopyState.SHORT):
            problem = log.problem
            assert problem is not None, log.state
            self._check_name(problem.file)
            raise self._damaged(problem.file, problem.offset, problem.message)
        if not log.extents:
            raise JournalCorrupt("the log has no record", file=source.log, offset=0)
        newest = log.extents[-1]
        sealed = {extent.name for extent in log.extents if extent.seal}
        # segments made after the snapshot hold later records only, so a later pass copies them
        segments = [name for name in names if is_segment(Directory.LOG, name) and _number(name) <= newest.number]
        if newest.name not in segments:
            raise _Changed(f"{newest.name} was begun")
        for name in segments:
            if name == newest.name and not newest.seal:
                self._copy_open(newest)
            else:
                self._copy_file(Directory.LOG, name, again=name not in sealed)
        for directory, name in list_store(target.disk, target):
            if directory is Directory.LOG and not is_entry(directory, name) and name not in names:
                target.disk.remove(target.path(directory, name))
        return log

    def _read_copy(self, log: LogCopy) -> tuple[LogCopy, Contents]:
        """The copied log with its contents.

        Raises:
            _Changed: it is not that of the source.
        """
        made = LogCopy(self._target.disk, self._target.log)
        if made.position != log.position or made.problem is not None:
            raise _Changed(f"the copy ends at {made.position} and the log at {log.position}")
        contents = read_contents(made)
        if made.position != log.position:
            # files that do not change any more were copied
            assert made.problem is not None
            raise self._damaged(made.problem.file, made.problem.offset, made.problem.message)
        if beginning_is_missing(made, contents):
            raise _Changed("the beginning of the log was dropped")
        return made, contents

    def _copy_open(self, extent: Extent) -> None:
        """Copy the newest segment up to its last valid record; after it the copy reads as zeros, like a new segment."""
        path = self._target.path(Directory.LOG, extent.name)
        source = self._source.disk.open(self._source.path(Directory.LOG, extent.name), read_only=True)
        try:
            size = read_header(source, extent.number, extent.epoch).allocated_bytes
            file = self._new_file(path)
            try:
                _copy_bytes(source, file, extent.end)
                file.truncate(max(size, extent.end))
                file.sync()
            finally:
                file.close()
        finally:
            source.close()
        self._check_name(source.path)

    def _copy_file(self, directory: Directory, name: str, *, again: bool = False) -> None:
        """Copy a file that does not change; one that an earlier pass has copied stays unless ``again``."""
        path = self._target.path(directory, name)
        source = self._source.disk.open(self._source.path(directory, name), read_only=True)
        try:
            size = source.size()
            if not again and self._target.disk.exists(path) and self._size(directory, name) == size:
                return
            file = self._new_file(path)
            try:
                _copy_bytes(source, file, size)
                file.sync()
            finally:
                file.close()
        finally:
            source.close()
        self._check_name(source.path)

    def _check_name(self, path: str) -> None:
        """Raise FileNotFoundError if a file was removed while it was copied: the node may have made a later segment of
        it.
        """
        if not self._source.disk.exists(path):
            raise FileNotFoundError(path)

    def _new_file(self, path: str) -> File:
        if self._target.disk.exists(path):
            self._target.disk.remove(path)
        return self._target.disk.open(path, create=True)

    # --- bodies and entries of the quarantine ---------------------------------------------------------------

    def _copy_body(self, large: LargeBody, made: LogCopy) -> None:
        """Copy the file of one large body and compare its bytes with the checksum in the log.

        Raises:
            _Changed: the body is not there, and the log has gone on: its message may have been consumed.
            LargeMessageFailed: it is missing or wrong, and the log has not gone on.
        """
        name = f"{large.file_id}.large"
        path = self._target.path(Directory.BODIES, name)
        if self._target.disk.exists(path):
            return  # an earlier pass has compared the file with its checksum
        try:
            reader = LargeReader(self._source.disk, self._source.path(Directory.BODIES, name), large)
            file = self._new_file(path + _UNFINISHED)
            try:
                reader.copy_into(file)
            finally:
                file.close()
        except LargeMessageFailed as error:
            if LogCopy(self._source.disk, self._source.log).position > made.position:
                raise _Changed(str(error)) from error
            raise
        self._target.disk.rename(path + _UNFINISHED, path)

    def _copy_set_aside(self) -> set[int]:
        """Copy the quarantine with its bodies as they are; the ids of these bodies."""
        disk, source = self._source.disk, self._source
        kept = set()
        for directory, name in list_store(disk, source):
            if is_entry(directory, name) and not is_unfinished(directory, name):
                self._target.disk.make_directory(_directory_of(self._target.path(directory, name)))
                self._copy_file(directory, name, again=True)
        for entry in (found.entry for found in read_entries(self._target.disk, self._target.log)):
            body = f"{entry.file_id}.large"
            if entry.file_id and disk.exists(source.path(Directory.BODIES, body)):
                self._copy_file(Directory.BODIES, body)
                kept.add(entry.file_id)
        return kept

    # --- files ------------------------------------------------------------------------------------------------

    def _damaged(self, file: str, offset: int, message: str) -> JournalCorrupt:
        """An error that names the file of the source, also where the copy of it was read."""
        place = file.replace(self._target.log, self._source.log, 1)
        hint = "see it with `understudy data verify`, and read the intact records with `understudy data salvage`"
        return JournalCorrupt(message, file=place, offset=offset, hint=hint)

    def _size(self, directory: Directory, name: str) -> int:
        file = self._target.disk.open(self._target.path(directory, name), read_only=True)
        try:
            return file.size()
        finally:
            file.close()

    def _sync(self) -> None:
        disk = self._target.disk
        folders = {_directory_of(self._target.path(*key)) for key in list_store(disk, self._target)}
        for path in sorted({*folders, self._target.log, self._target.bodies}, reverse=True):
            disk.sync_directory(path)
        for path in sorted({_directory_of(self._target.log), _directory_of(self._target.bodies)}):
            disk.sync_directory(path)


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]


def _number(name: str) -> int:
    parsed = parse_name(name)
    assert parsed is not None, name
    return parsed[0]


def _copy_bytes(source: File, target: File, length: int) -> None:
    offset = 0
    while offset < length:
        data = source.read(offset, min(_PIECE_BYTES, length - offset))
        if not data:
            raise _Changed(f"{source.path} has become shorter")
        target.write(offset, (data,))
        offset += len(data)


def _bodies(copy: LogCopy, contents: Contents) -> Iterator[LargeBody]:
    """Location of the body of every large message in a queue or a prepared transaction."""
    waiting = (
        prepared_messages(copy, contents, transaction_id)
        for transaction_id, transaction in contents.state.transactions.items()
        if transaction.prepared
    )
    everything: Iterator[LiveMessage] = chain(live_messages(copy, contents), chain.from_iterable(waiting))
    for live in everything:
        if live.large:
            yield large_body_of(live.record.encoded)
