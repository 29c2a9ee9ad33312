"""Large messages: one file for each body, and how many references still need it.

A body is written in steps, away from the loop, to ``<id>.large.tmp``; when the last of it is written
the file gets its name, ``<id>.large``, and is synced, then the directory. Only then may a record of the
log speak of it, so a message is whole or not there (docs/build/journal-format.md s. 6). The file goes
with the last reference, but not before the record that ended that reference is durable and the
store's lock was proved once more: a node that has lost the store must not take files from the one
that has it. With retention it goes to the retained segments, where its record will be.

Steps run on a log writer of their own, so that the journal never waits for a body. Reading is done
in pieces by the caller's thread.

Invariants: at most ``LARGE_BACKLOG_BYTES_PAUSE`` and a step of one body are in memory, if its
sender is held up by ``LargeFile.backlog_bytes``; a file without references and without an unfinished
message is about to be removed; after a crash ``begin`` removes files that no reference names.

Not here: the message (``message.LargeMessage``), receiving it (``session.uploads``) and delivering it
(``session.large_delivery``).
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from understudy.errors import BrokerError, DiskFailed, LargeMessageFailed, LimitExceeded, StoreError
from understudy.ids import first_id_of_epoch
from understudy.kernel.log import crc32
from understudy.limits import LARGE_MESSAGES_UNFINISHED_MAX
from understudy.message import LargeBody
from understudy.ports import Clock, DiskReader, File, FileReader, LogWriter, Operation
from understudy.store.log.applier import UNFINISHED, Applier
from understudy.store.log.operation_context import OperationContext
from understudy.store.log.operations import BodyEnd, FinishBodies, MakeDirectory, RemoveFile, WriteBody
from understudy.store.repairs import Side

log = logging.getLogger(__name__)

#: Bytes collected before they are handed to the writer.
STEP_BYTES: Final = 256 * 1024
#: Bytes after which the medium begins to write them, so that the last sync has little left to do.
SYNC_BYTES: Final = 1024 * 1024
#: Time in ms for which a file outlives its last reference. Longer than a proof of the lock may be old
#: (``ha.shared.lock_proof.LOCK_PROOF_MS``): permission after that time rests on a proof made since.
REMOVE_AFTER_MS: Final = 4_000

#: Bytes that are read at once when a whole body is copied or verified.
_WHOLE_PIECE_BYTES: Final = 1024 * 1024
_SUFFIX: Final = ".large"
_NAME: Final = re.compile(r"(\d{1,20})\.large(\.tmp)?")

Stored = Callable[[LargeBody | None, BrokerError | None], None]
"""Callback with the place of a stored body, or with the error for which it was not stored."""


class LargeMessages:
    """The directory of large messages of an active node."""

    def __init__(
        self,
        applier: Applier,
        writer: LogWriter,
        clock: Clock,
        *,
        folder: str = "",
        why_not_remove: Callable[[], BaseException | None] = lambda: None,
        unfinished_max: int | None = None,
    ) -> None:
        """Nothing is touched before ``begin``.

        Args:
            applier: Executes the operations; with retention it keeps the files that are removed.
            writer: Used for bodies alone, so that the journal does not wait for them; its owner closes it.
            clock: Used for ``REMOVE_AFTER_MS``.
            folder: Directory of the bodies (large-messages-directory), relative to that of the applier.
            why_not_remove: None, or why the store may not be ours any more.
            unfinished_max: Files being written at a time; None: ``LARGE_MESSAGES_UNFINISHED_MAX``.
        """
        self.applier = applier
        self.disk = applier.disk
        self.folder = folder
        self.directory = f"{applier.directory}/{folder}" if folder else applier.directory
        self._prefix = f"{folder}/" if folder else ""
        self.writer = writer
        self._clock = clock
        self._why_not_remove = why_not_remove
        self.unfinished_max = LARGE_MESSAGES_UNFINISHED_MAX if unfinished_max is None else unfinished_max
        self._not_logged: set[int] = set()
        """Files of messages that are not durable: no record names the files, which are lost with this process."""
        self._context: OperationContext | None = None
        self._references: dict[int, int] = {}
        """File id to references, unfinished deliveries included."""
        self.leaving = False
        """Whether files wait to be removed: ``flush`` has something to do."""
        self._unneeded: dict[int, None] = {}
        """Files whose last reference may be gone; the next flush checks them."""
        self._outgoing: deque[tuple[int, int]] = deque()
        """Monotonic time from which a file may go, and the file."""
        self.unfinished = 0
        """Number of large bodies whose files are being written."""
        self._complete: list[tuple[LargeFile, list[bytes], Callable[[BaseException | None], None]]] = []
        """Files that are to be made safe, with their last bytes and what to call then."""
        self._completing = False
        """Whether the files of earlier bodies are being synced; later ones wait for the next round."""
        self._closed = False

    def begin(self, context: OperationContext, epoch: int, references: dict[int, int]) -> None:
        """Remove what the log does not speak of, away from the loop; called when the node is active.

        Args:
            epoch: Epoch of this activation; files of it are not looked at.
            references: File id to the number of references in the log.
        """
        self._context = context
        self._references = dict(references)
        names: list[str] = []
        self._away([MakeDirectory(self.folder)], self.directory)
        self.writer.run(
            lambda: names.extend(self.disk.list(self.directory)),
            lambda error: self._remove_orphans(names, frozenset(references), first_id_of_epoch(epoch), error),
        )

    def _remove_orphans(
        self, names: list[str], known: frozenset[int], below_id: int, error: BaseException | None
    ) -> None:
        operations: list[Operation] = []
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None or int(match[1]) >= below_id:
                continue
            if match[2] or int(match[1]) not in known:
                operations.append(RemoveFile(f"{self._prefix}{name}", retain=not match[2]))
                log.info("file of a large message that no record names is removed", extra={"file": name})
        if error is not None:
            _removed("files that no record names", error)
        elif operations:
            self._away(operations, "files that no record names")

    @property
    def side(self) -> Side:
        """The directory of the bodies, for ``repairs``."""
        return Side(self.directory, self.writer, self._prefix)

    def path_of(self, file_id: int) -> str:
        """The file of a body."""
        return f"{self.applier.directory}/{self.name_of(file_id)}"

    def name_of(self, file_id: int) -> str:
        """The file of a body, relative to the directory of the applier."""
        return f"{self._prefix}{file_id}{_SUFFIX}"

    # --- writing and reading --------------------------------------------------------------------

    def create(self, file_id: int, *, durable: bool, failed: Callable[[BrokerError], None]) -> LargeFile:
        """A file to be written.

        Args:
            file_id: A new id of the store.
            durable: Sync it; a message that does not survive a crash needs none.
            failed: Called once if writing fails before ``finish`` has called ``stored``; everything is
                removed then.

        Raises:
            LimitExceeded: ``unfinished_max`` of them are unfinished.
        """
        if self.unfinished >= self.unfinished_max:
            raise LimitExceeded(f"{self.unfinished} unfinished large messages", hint="try again later")
        return LargeFile(self, file_id, durable, failed)

    def open(self, large: LargeBody) -> LargeReader:
        """Open the file of a complete body for reading.

        Raises:
            LargeMessageFailed: its file is missing or has another size.
            DiskFailed: it cannot be read.
        """
        return LargeReader(self.disk, self.path_of(large.file_id), large)

    # --- references -----------------------------------------------------------------------------

    def hold(self, file_id: int) -> None:
        """Count one more reference that needs the file of a body."""
        self._references[file_id] = self._references.get(file_id, 0) + 1

    def release(self, file_id: int) -> None:
        """Count one reference less that needs a file; the record that says so was appended in this turn."""
        left = self._references.get(file_id, 0) - 1
        self._references[file_id] = max(left, 0)
        if left <= 0:
            self._unneeded[file_id] = None
            self.leaving = True

    def not_logged(self, file_id: int) -> None:
        """Note that a file belongs to a message that is not durable."""
        self._not_logged.add(file_id)

    def references(self, file_id: int) -> int:
        """How many need the file."""
        return self._references.get(file_id, 0)

    @property
    def count(self) -> int:
        """Files that are needed."""
        return len(self._references)

    def flush(self) -> None:
        """Check the released files; called once per turn, after every append of the turn."""
        if self._unneeded:
            unneeded = [file_id for file_id in self._unneeded if not self._references.get(file_id)]
            self._unneeded.clear()
            for file_id in unneeded:
                self._references.pop(file_id, None)
            if unneeded and self._context is not None:
                self._context.when_durable(self._context.appended, self._let_go, unneeded)
        if self._outgoing and self._outgoing[0][0] <= self._clock.monotonic_ms():
            self._remove_outgoing()
        self.leaving = bool(self._unneeded or self._outgoing)

    def _let_go(self, file_ids: list[int]) -> None:
        due_ms = self._clock.monotonic_ms() + REMOVE_AFTER_MS
        self._outgoing.extend((due_ms, file_id) for file_id in file_ids)
        self.leaving = True

    def _remove_outgoing(self) -> None:
        if self._why_not_remove() is not None:
            return
        now_ms = self._clock.monotonic_ms()
        operations: list[Operation] = []
        while self._outgoing and self._outgoing[0][0] <= now_ms:
            file_id = self._outgoing.popleft()[1]
            operations.append(RemoveFile(self.name_of(file_id), retain=file_id not in self._not_logged))
            self._not_logged.discard(file_id)
        self._away(operations, f"{len(operations)} files without references")

    def _away(self, operations: list[Operation], what: str) -> None:
        """Remove files away from the loop; those that are left only cost space, until the next activation."""
        self.away(operations, partial(_removed, what))

    def away(self, operations: list[Operation], done: Callable[[BaseException | None], None]) -> None:
        """A step of a file; dropped once this is closed."""
        if not self._closed:
            self.writer.submit(operations, done)

    def complete(self, file: LargeFile, parts: list[bytes], done: Callable[[BaseException | None], None]) -> None:
        """Make a file safe, together with those that come while others are made safe: they are synced at the same time,
        and one sync of the directory does for all of them.

        Args:
            file: File for which all other steps were begun before.
            done: Called with the error or None; not called once this is closed.
        """
        self._complete.append((file, parts, done))
        if not self._completing:
            self._complete_group()

    def _complete_group(self) -> None:
        group, self._complete = self._complete, []
        ends = tuple(file.end_of(parts) for file, parts, _ in group if not file.over)

        def finished(error: BaseException | None) -> None:
            self._completing = False
            if self._complete:
                self._complete_group()
            for file, _, done in group:
                done(file.take_outcome(error))

        self._completing = True
        self.away([FinishBodies(ends, self.folder)], finished)

    def close(self) -> None:
        """Begin no more steps. Files without references stay for ``begin``."""
        self._closed = True


class LargeFile:
    """A body being written; its pieces are written one after the other on the writer's thread."""

    __slots__ = (
        "_body", "_failed", "_folder", "_name", "_offset", "_parts", "_parts_bytes",
        "_unsynced_bytes", "_unwritten_bytes", "durable", "file_id", "over", "size_bytes",
    )  # fmt: skip

    def __init__(
        self, folder: LargeMessages, file_id: int, durable: bool, failed: Callable[[BrokerError], None]
    ) -> None:
        self.file_id = file_id
        self.size_bytes = 0
        """Bytes of the body received so far."""
        self._folder = folder
        folder.unfinished += 1
        self._name = folder.name_of(file_id)
        self.durable = durable
        self._failed = failed
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._offset = 0
        """Offset of the next piece."""
        self._unsynced_bytes = 0
        self._unwritten_bytes = 0
        self._body: LargeBody | None = None
        """Description of the body once its last piece has arrived; None before."""
        self.over = False
        """Failed, discarded or complete: no further piece is written."""

    @property
    def backlog_bytes(self) -> int:
        """Bytes taken and not yet written."""
        return self._parts_bytes + self._unwritten_bytes

    def append(self, piece: bytes) -> None:
        """The next bytes of the body."""
        if self.over or not piece:
            return
        self.size_bytes += len(piece)
        self._parts.append(piece)
        self._parts_bytes += len(piece)
        if self._parts_bytes >= STEP_BYTES:
            offset = self._offset
            parts, finished = self._taken(self._stepped)
            self._unsynced_bytes += self._offset - offset
            sync = self.durable and self._unsynced_bytes >= SYNC_BYTES
            if sync:
                self._unsynced_bytes = 0
            self._folder.away([WriteBody(self._name, offset, parts, sync)], finished)

    def finish(self, stored: Stored) -> None:
        """The body is complete: make it durable under its name, then call ``stored``. The file has no reference yet;
        the next flush removes it unless it gets one.
        """

        def done(error: BaseException | None) -> None:
            if self.over:
                return
            if error is not None:
                self._remove()
                stored(None, _broker_error(error))
                return
            self._end()
            if not self.durable:
                self._folder.not_logged(self.file_id)
            self._folder.release(self.file_id)
            stored(self._body, None)

        parts, finished = self._taken(done)
        self._folder.complete(self, parts, finished)

    def end_of(self, parts: list[bytes]) -> BodyEnd:
        """The operation that writes the last piece of a body with these fields."""
        return BodyEnd(self._name, self.size_bytes - sum(map(len, parts)), parts, self.durable)

    def take_outcome(self, error: BaseException | None) -> BaseException | None:
        """The error of the group that it was completed with, or its own."""
        if error is not None or self.over:
            return error
        body = self._folder.applier.take_body(self._name)
        self._body = LargeBody(self.file_id, body.written_bytes, body.crc)
        return body.error

    def discard(self) -> None:
        """Abandon the file and remove its bytes."""
        if not self.over:
            self._remove()

    def _taken(
        self, done: Callable[[BaseException | None], None]
    ) -> tuple[list[bytes], Callable[[BaseException | None], None]]:
        """The bytes for the next step, and the callback for its end."""
        parts, self._parts = self._parts, []
        size_bytes, self._parts_bytes = self._parts_bytes, 0
        self._unwritten_bytes += size_bytes
        self._offset += size_bytes

        def finished(error: BaseException | None) -> None:
            self._unwritten_bytes -= size_bytes
            done(error)

        return parts, finished

    def _stepped(self, error: BaseException | None) -> None:
        if error is not None and not self.over:
            self._remove()
            self._failed(_broker_error(error))

    def _end(self) -> None:
        self.over = True
        self._folder.unfinished -= 1

    def _remove(self) -> None:
        self._end()
        self._parts.clear()
        self._parts_bytes = 0

        def done(error: BaseException | None) -> None:
            if error is not None:
                log.error("cannot remove an unfinished large message", extra={"file": self._name, "error": str(error)})

        self._folder.away([RemoveFile(self._name + UNFINISHED), RemoveFile(self._name)], done)


class LargeReader:
    """A body being read, from its beginning to its end."""

    __slots__ = ("_crc", "_disk", "_file", "_large", "_offset", "path")

    def __init__(self, disk: DiskReader, path: str, large: LargeBody) -> None:
        self.path = path
        self._large = large
        self._offset = 0
        self._crc = 0
        self._disk = disk
        self._file: FileReader | None = None
        size_bytes = self._opened().size()
        if size_bytes != large.size_bytes:
            self.pause()
            raise LargeMessageFailed(f"{size_bytes} bytes where {large.size_bytes} were stored", file=path)

    def _opened(self) -> FileReader:
        if self._file is None:
            try:
                self._file = self._disk.open(self.path, read_only=True)
            except FileNotFoundError:
                raise LargeMessageFailed("the body of a large message is missing", file=self.path) from None
        return self._file

    @property
    def left_bytes(self) -> int:
        """Bytes not read yet."""
        return self._large.size_bytes - self._offset

    def read(self, length: int) -> bytes:
        """The next bytes; the last of them only if all of them together are the stored body.

        Raises:
            LargeMessageFailed: they are not.
            DiskFailed: they cannot be read.
        """
        wanted = min(length, self.left_bytes)
        data = self._opened().read(self._offset, wanted) if wanted else b""
        if len(data) != wanted:
            raise LargeMessageFailed(f"it ends at {self._offset + len(data)}", file=self.path)
        self._offset += wanted
        self._crc = crc32(data, self._crc)
        if not self.left_bytes and self._crc != self._large.crc:
            raise LargeMessageFailed("its bytes are not those that were stored", file=self.path)
        return data

    def copy_into(self, target: File) -> None:
        """Write the rest of the body to a file from its beginning on, and sync it. The file of this reader is closed.

        Raises:
            LargeMessageFailed: the bytes are not those that were stored.
            DiskFailed: they cannot be read, or not be written.
        """
        written = 0
        try:
            while self.left_bytes:
                piece = self.read(_WHOLE_PIECE_BYTES)
                target.write(written, (piece,))
                written += len(piece)
            target.sync()
        finally:
            self.pause()

    def verify(self) -> None:
        """Read the rest of the body, which compares it with the stored checksum. The file of this reader is closed.

        Raises:
            LargeMessageFailed: the bytes are not those that were stored.
            DiskFailed: they cannot be read.
        """
        try:
            while self.left_bytes:
                self.read(_WHOLE_PIECE_BYTES)
        finally:
            self.pause()

    def restart(self) -> None:
        """Start again at the first byte of the body."""
        self._offset = self._crc = 0

    def pause(self) -> None:
        """Let go of the file until it is read on: a delivery that waits for credits keeps none open."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(StoreError):
                file.close()


def _removed(what: str, error: BaseException | None) -> None:
    if error is not None:
        log.error("cannot remove files of large messages", extra={"what": what, "error": str(error)})


def _broker_error(error: BaseException) -> BrokerError:
    return error if isinstance(error, BrokerError) else DiskFailed(f"large message: {error}")
