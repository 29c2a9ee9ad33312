"""Execution of operations on the files of one directory (ADR 0048).

The applier has the files open that are being written: segments with their digests, snapshots, bodies of large
messages. It decides nothing: its fields describe an operation completely. The same class executes the recorded or
replicated operations of another node on a copy of the directory.

All methods block. Operations of one file come from one thread; those of different files may come from several.

Not here: the operations (``operations``), the thread that they run on (``ports.LogWriter``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, DiskFailed, DiskFull, LockLost, StoreError
from understudy.kernel.log import crc32
from understudy.ports import Disk, File, LogWriter, Operation
from understudy.store.log import replaced_bytes, tidying
from understudy.store.log.chain import newest_epoch
from understudy.store.log.open_files import OpenBody, OpenFile, OpenFiles
from understudy.store.log.operations import (
    Append,
    BodyEnd,
    CloseFiles,
    CreateFile,
    CreateSegment,
    EmptyPool,
    FinishBodies,
    GiveUpReserve,
    GrowSegment,
    KeepReserve,
    MakeDirectory,
    PruneRetained,
    RemoveFile,
    RenameFile,
    ReplaceBytes,
    RequireEpoch,
    RewriteFile,
    SealSegment,
    SyncDirectory,
    SyncFile,
    TidyUp,
    WriteBody,
    WriteFile,
    WriteZeros,
)
from understudy.store.log.segment import SegmentBatch, SegmentFile, create_segment
from understudy.store.log.segment_pool import PoolSettings, SegmentPool
from understudy.store.log.segment_skim import Skim
from understudy.store.retention import Retention, RetentionSettings
from understudy.store.snapshots.reserve import give_up_reserve, keep_reserve

#: Completed bodies whose checksums are known before a record of the log is.
_CHECKSUMS_MAX: Final = 10_000
#: Suffix of a body that is not complete.
UNFINISHED: Final = ".tmp"


@dataclass(slots=True)
class Body:
    """The body of a large message that is being written, or was just completed."""

    file: File | None
    written_bytes: int = 0
    crc: int = 0
    error: BaseException | None = None
    """Error for which the body cannot be completed; None: there was none."""
    named: File | None = None
    """File of a complete body that is being synced under its name."""


class Applier:
    """Executor of operations on the files of one directory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        retention: RetentionSettings | None = None,
        *,
        summaries: bool = True,
        pool: SegmentPool | None = None,
    ) -> None:
        """Nothing is touched yet.

        Args:
            disk: Where the directory is.
            directory: Absolute path.
            retention: Where the files go that are to be retained; None: they are removed.
            summaries: Whether segments are summarised for ``take_skim`` while they are written.
            pool: Keeps files of removed segments for later ones, and gives them back on a full disk; None: no file
                is kept.
        """
        self.disk = disk
        self._summaries = summaries
        self.directory = directory
        self._retention = Retention(disk, retention) if retention is not None else None
        self._pool = pool if pool is not None else SegmentPool(disk, directory, PoolSettings(files_max=0))
        self._sealed: set[str] = set()
        """Segments that this applier has sealed: no other process has them open for writing."""
        self._segments: dict[str, SegmentFile] = {}
        """Segments being written, by the names of their files."""
        self._files: dict[str, File] = {}
        """Open files that are no segments, by their names."""
        self._bodies: dict[str, Body] = {}
        self._skims: dict[str, Skim | None] = {}
        self._checksums: dict[str, tuple[int, int]] = {}
        """Size and crc of the bodies that were completed last, by name."""
        self.unsynced: StoreError | None = None
        """Error of the first sync of this directory that failed after a removal: what the directory holds is unknown
        since then."""

    def apply(self, operations: Sequence[Operation], disk: Disk | None = None) -> None:
        """Execute operations in order; the first error ends it.

        Args:
            operations: What to do.
            disk: Is used instead of the applier's own, which it gives other means to reach.

        Raises:
            LockLost: another node has the store.
            DiskFull, DiskFailed: the disk refused.
        """
        for operation in operations:
            kind = type(operation)
            # the two of a batch without another call
            if kind is Append:
                segment = self._segments[operation.name]  # type: ignore[attr-defined]  # by its kind
                try:
                    segment.write(operation.offset, operation.parts)  # type: ignore[attr-defined]  # by its kind
                except DiskFull:
                    if not self._pool.give_back():
                        raise
                    segment.write(operation.offset, operation.parts)  # type: ignore[attr-defined]  # by its kind
            elif kind is SyncFile:
                self._segments[operation.name].sync()  # type: ignore[attr-defined]  # by its kind
            else:
                self._execute(operation, disk or self.disk)

    def begin_batch(self, operations: Sequence[Operation]) -> SegmentBatch | None:
        """Begin a batch that the writer writes itself; see ``ports.OperationApplier``."""
        append = operations[0]
        assert type(append) is Append
        return self._segments[append.name].begin_batch(append.offset, append.parts, sync=len(operations) > 1)

    def _execute(self, operation: Operation, disk: Disk) -> None:
        """Execute one operation, on a full disk without the kept files."""
        execute = _EXECUTE[type(operation)]
        try:
            execute(self, operation, disk)
        except DiskFull:
            if not self._pool.give_back() or type(operation) not in _REPEATABLE:
                raise
            execute(self, operation, disk)

    def adopt_pool(self) -> None:
        """Use the files that an earlier activation has kept for later segments."""
        self._pool.adopt()

    @property
    def kept(self) -> tuple[int, int]:
        """Number and bytes of the files of removed segments that are kept for later ones. May be read by any thread."""
        return self._pool.files, self._pool.size_bytes

    def take_skim(self, name: str) -> Skim | None:
        """Summary of the records of a segment that was sealed (``segment_skim``); None if it is not known."""
        return self._skims.pop(name, None)

    def take_body(self, name: str) -> Body:
        """The outcome of a body that ``FinishBodies`` named."""
        return self._bodies.pop(name)

    # --- continuing elsewhere -----------------------------------------------------------------------

    def positions(self) -> dict[str, int]:
        """How far the files that grow were written: segments, and unfinished bodies by their names on the disk. May be
        called by any thread while operations are executed; the bytes up to a position do not change any more.
        """
        # each list is made without a switch of threads, so it is consistent
        segments, bodies = list(self._segments.items()), list(self._bodies.items())
        found = {name: segment.position for name, segment in segments}
        found.update({name + UNFINISHED: body.written_bytes for name, body in bodies if body.file is not None})
        return found

    def describe_open(self) -> OpenFiles:
        """The open files. Only while no operation is executed."""
        bodies = sorted((name, body) for name, body in self._bodies.items() if body.file is not None)
        return OpenFiles(
            tuple(segment.describe(name) for name, segment in sorted(self._segments.items())),
            tuple(OpenFile(name) for name in sorted(self._files)),
            tuple(OpenBody(name, body.written_bytes, body.crc) for name, body in bodies),
        )

    def resume(self, open_files: OpenFiles) -> None:
        """Open files as another applier has them open; operations that were meant for that one may follow. Only before
        the first operation. Segments that are continued have no summary (``take_skim``).

        Raises:
            JournalCorrupt: a segment has other bytes.
            DiskFailed, FileNotFoundError: a file cannot be opened.
        """
        for segment in open_files.segments:
            file = self.disk.open(self._path(segment.name))
            try:
                self._segments[segment.name] = SegmentFile.resumed(file, self._path(segment.name), segment)
            except BaseException:
                file.close()
                raise
        for each in open_files.files:
            self._files[each.name] = self.disk.open(self._path(each.name))
        for body in open_files.bodies:
            file = self.disk.open(self._path(body.name) + UNFINISHED)
            self._bodies[body.name] = Body(file, body.written_bytes, body.crc)

    def checksum_of(self, name: str) -> tuple[int, int] | None:
        """Size and crc of a body that was completed not long ago, before a record may name it. Called by any thread."""
        return self._checksums.get(name)

    def body_written(self, name: str) -> int | None:
        """Bytes written of an unfinished body; None if it is not open."""
        body = self._bodies.get(name)
        return body.written_bytes if body is not None and body.file is not None else None

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}" if name else self.directory

    # --- segments -----------------------------------------------------------------------------------

    def _create_segment(self, operation: CreateSegment, disk: Disk) -> None:
        segment = create_segment(disk, self.directory, operation.header, operation.records, self._pool.take)
        if not self._summaries:
            segment.leave_out_summary()
        self._segments[operation.name] = segment

    def _grow_segment(self, operation: GrowSegment, disk: Disk) -> None:
        segment = self._segments[operation.name]
        segment.allocate(operation.allocated_bytes)
        segment.sync()

    def _write_zeros(self, operation: WriteZeros, disk: Disk) -> None:
        self._segments[operation.name].zero(operation.offset, operation.length)

    def _seal_segment(self, operation: SealSegment, disk: Disk) -> None:
        name = operation.name
        segment = self._segments[name]
        segment.seal(operation.record, operation.sequence, operation.offsets)
        self._skims[name] = segment.skimmed
        self._sealed.add(name)
        del self._segments[name]
        segment.close()

    def _rewrite_file(self, operation: RewriteFile, disk: Disk) -> None:
        file = disk.open(self._path(operation.name))
        try:
            file.write(operation.offset, (file.read(operation.offset, operation.length),))
            file.sync()
        finally:
            file.close()

    def _replace_bytes(self, operation: ReplaceBytes, disk: Disk) -> None:
        replaced_bytes.replace(disk, self.directory, operation)

    # --- files --------------------------------------------------------------------------------------

    def _create_file(self, operation: CreateFile, disk: Disk) -> None:
        path = self._path(operation.name)
        self._close(operation.name)
        with suppress(FileNotFoundError):
            disk.remove(path)
        self._files[operation.name] = disk.open(path, create=True)

    def _write_file(self, operation: WriteFile, disk: Disk) -> None:
        file = self._files[operation.name]
        file.write(operation.offset, (operation.data,))
        file.sync()

    def _rename_file(self, operation: RenameFile, disk: Disk) -> None:
        self._close(operation.name)
        disk.rename(self._path(operation.name), self._path(operation.target))

    def _remove_file(self, operation: RemoveFile, disk: Disk) -> None:
        path = self._path(operation.name)
        self._close(operation.name)
        may_keep = operation.name in self._sealed and operation.retain and operation.sync
        self._sealed.discard(operation.name)
        kept: str | None = None
        if operation.retain and self._retention is not None:
            if not disk.exists(path):
                return
            self._retention.retire(path)
            with suppress(FileNotFoundError):
                # the file was moved away
                disk.remove(path)
        else:
            try:
                kept = self._pool.keep(operation.name) if may_keep else None
                if kept is None:
                    disk.remove(path)
            except FileNotFoundError:
                return
        if operation.sync:
            try:
                disk.sync_directory(self.directory)
            except StoreError as error:
                self.unsynced = self.unsynced or error
                raise
        if kept is not None:
            self._pool.offer(kept)

    def _make_directory(self, operation: MakeDirectory, disk: Disk) -> None:
        path = self._path(operation.name)
        if not disk.exists(path):
            disk.make_directory(path)
            if operation.sync:
                disk.sync_directory(self.directory)

    def _sync_directory(self, operation: SyncDirectory, disk: Disk) -> None:
        disk.sync_directory(self._path(operation.name))

    def _close_files(self, operation: CloseFiles, disk: Disk) -> None:
        open_files: list[SegmentFile | File] = [*self._segments.values(), *self._files.values()]
        open_files += [body.file for body in self._bodies.values() if body.file is not None]
        self._segments.clear()
        self._files.clear()
        self._bodies.clear()
        for file in open_files:
            file.close()

    def _close(self, name: str) -> None:
        """Close a file if it is open."""
        segment = self._segments.pop(name, None)
        if segment is not None:
            segment.close()
        file = self._files.pop(name, None)
        if file is not None:
            file.close()
        body = self._bodies.pop(name.removesuffix(UNFINISHED), None) if name.endswith(UNFINISHED) else None
        if body is not None and body.file is not None:
            with suppress(StoreError):
                body.file.close()

    # --- the directory ------------------------------------------------------------------------------

    def _require_epoch(self, operation: RequireEpoch, disk: Disk) -> None:
        if newest_epoch(disk.list(self.directory)) > operation.epoch:
            raise LockLost(f"another node has taken {self.directory} over")

    def _tidy_up(self, operation: TidyUp, disk: Disk) -> None:
        if tidying.tidy(disk, self.directory, operation.epoch, operation.names, operation.ends, cut_ends=operation.cut):
            self._pool.adopt()

    def _keep_reserve(self, operation: KeepReserve, disk: Disk) -> None:
        keep_reserve(disk, self.directory, operation.size_bytes)

    def _give_up_reserve(self, operation: GiveUpReserve, disk: Disk) -> None:
        give_up_reserve(disk, self.directory)

    def _empty_pool(self, operation: EmptyPool, disk: Disk) -> None:
        self._pool.give_back()

    def _prune_retained(self, operation: PruneRetained, disk: Disk) -> None:
        if self._retention is not None:
            self._retention.prune(operation.now_ms)

    # --- bodies of large messages -------------------------------------------------------------------

    def _write_body(self, operation: WriteBody, disk: Disk) -> None:
        body = self._write_piece(operation, disk)
        if operation.sync and body.file is not None:
            body.file.begin_sync(0, body.written_bytes)

    def _write_piece(self, operation: WriteBody | BodyEnd, disk: Disk) -> Body:
        """Raises DiskFailed if an earlier piece has failed."""
        name = operation.name
        if not operation.offset and name not in self._bodies:
            self._bodies[name] = Body(disk.open(self._path(name) + UNFINISHED, create=True))
        body = self._bodies.get(name)
        if body is None or body.file is None or body.written_bytes != operation.offset:
            raise DiskFailed(f"{self._path(name)}: an earlier piece was not written")
        if operation.parts:
            data = b"".join(operation.parts)
            body.file.write(operation.offset, (data,))
            body.crc = crc32(data, body.crc)
            body.written_bytes += len(data)
        return body

    def _finish_bodies(self, operation: FinishBodies, disk: Disk) -> None:
        self._each_body(operation.ends, self._write_end, disk)
        self._each_body(operation.ends, self._name_body, disk)
        named = [(self._bodies[end.name], end) for end in operation.ends]
        durable = [
            (body, body.named) for body, end in named if end.durable and body.error is None and body.named is not None
        ]
        for (body, _), error in zip(durable, disk.sync_files([file for _, file in durable]), strict=True):
            # final, also on a full disk: the system may have dropped the pages
            body.error = error
        for body, end in named:
            # a body that failed before it had its name still has its file
            file = body.named or body.file
            body.named = body.file = None
            if file is not None:
                with suppress(StoreError):
                    file.close()
            if body.error is None:
                while len(self._checksums) >= _CHECKSUMS_MAX:
                    del self._checksums[next(iter(self._checksums))]
                self._checksums[end.name] = (body.written_bytes, body.crc)
        if any(body.error is None for body, _ in durable):
            disk.sync_directory(self._path(operation.directory))

    def _each_body(self, ends: Sequence[BodyEnd], step: Callable[[BodyEnd, Disk], object], disk: Disk) -> None:
        """Execute one step for all bodies that have not failed."""
        for end in ends:
            body = self._bodies.get(end.name)
            if body is None or body.error is None:
                try:
                    try:
                        step(end, disk)
                    except DiskFull:
                        if not self._pool.give_back():
                            raise
                        step(end, disk)
                except (BrokerError, OSError) as error:
                    self._bodies.setdefault(end.name, Body(None)).error = error

    def _write_end(self, end: BodyEnd, disk: Disk) -> None:
        body = self._write_piece(end, disk)
        if end.durable and body.file is not None:
            # the medium has begun with all files of the group when they are synced
            body.file.begin_sync(0, body.written_bytes)

    def _name_body(self, end: BodyEnd, disk: Disk) -> None:
        """Give a body its name, before it is synced: a file system with a journal then needs one commit for its blocks
        and its name. No record names it yet, so a crash leaves a file that the next activation removes.
        """
        body = self._bodies[end.name]
        disk.rename(self._path(end.name) + UNFINISHED, self._path(end.name))
        body.named, body.file = body.file, None


def appliers_of(disk: Disk, log: str, bodies: str, pool_files: int) -> tuple[Applier, Applier]:
    """Appliers of both directories of a replica, which share the kept files.

    Args:
        disk: Where the directories are.
        log: Directory of the log.
        bodies: Directory of large messages.
        pool_files: Number of files of removed segments that are kept.
    """
    pool = SegmentPool(disk, log, PoolSettings(pool_files))
    return Applier(disk, log, summaries=False, pool=pool), Applier(disk, bodies, pool=pool)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of a log and the writers that change them."""

    applier: Applier
    """Applier of the directory; executes what both writers get."""
    writer: LogWriter
    """Writes and syncs the batches."""
    housekeeper: LogWriter
    """Does the work that no batch waits for; may be the same as ``writer``."""


#: Operations that change nothing when the disk is full, so that they can be executed again.
_REPEATABLE: Final = frozenset({CreateSegment, GrowSegment, WriteFile})
_EXECUTE: Final[dict[type, Callable[[Applier, Any, Disk], None]]] = {
    CreateSegment: Applier._create_segment,
    GrowSegment: Applier._grow_segment,
    WriteZeros: Applier._write_zeros,
    SealSegment: Applier._seal_segment,
    RewriteFile: Applier._rewrite_file,
    ReplaceBytes: Applier._replace_bytes,
    CreateFile: Applier._create_file,
    WriteFile: Applier._write_file,
    RenameFile: Applier._rename_file,
    RemoveFile: Applier._remove_file,
    MakeDirectory: Applier._make_directory,
    SyncDirectory: Applier._sync_directory,
    CloseFiles: Applier._close_files,
    RequireEpoch: Applier._require_epoch,
    TidyUp: Applier._tidy_up,
    KeepReserve: Applier._keep_reserve,
    GiveUpReserve: Applier._give_up_reserve,
    EmptyPool: Applier._empty_pool,
    PruneRetained: Applier._prune_retained,
    WriteBody: Applier._write_body,
    FinishBodies: Applier._finish_bodies,
}
