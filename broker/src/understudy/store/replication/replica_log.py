"""Execution of the operations of an active node on the backup (docs/build/architecture.md, "Replication").

The link gives every submission with its index to ``receive``, in the order of the stream. All that was received is
executed in one job, in order, on another thread; meanwhile the next ones are collected. A job of nothing but small
batches may be executed at once (``Runner.run_batch``). Within a job consecutive
batches of one segment are synced once, after the last of them. That changes no order that matters: the sync comes
before every other operation except those that only prepare files of their own (``_INDEPENDENT``).

A submission counts as durable when its operations were executed and everything written before it is synced. The first
error ends the execution for good: ``note_incomplete`` is called on the same thread, because an operation may have been
executed in part, then ``on_failure`` on the loop.

Not here: decoding (``operation_codec``), what the active node makes of the progress (``log.operation_context``).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, LimitExceeded, RemoteProtocolError, StoreError
from understudy.limits import REPLICA_BACKLOG_BYTES_MAX
from understudy.ports import Operation
from understudy.store.log.applier import UNFINISHED, Applier
from understudy.store.log.operations import (
    Append,
    BodyEnd,
    CloseFiles,
    CreateFile,
    CreateSegment,
    FinishBodies,
    MakeDirectory,
    RenameFile,
    SealSegment,
    SyncDirectory,
    SyncFile,
    WriteBody,
    WriteFile,
    WriteZeros,
    is_batch,
)
from understudy.store.quarantine import DIRECTORY_NAME
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.store_files import belongs

log = logging.getLogger(__name__)

#: Operations on files that no record names yet, or that hold none: a batch before them may be synced after them.
_INDEPENDENT: Final = frozenset({WriteZeros, WriteBody, CreateFile, WriteFile})
#: Operations on open segments only: an unknown name is refused when they are executed.
_OF_OPEN_SEGMENTS: Final = frozenset({Append, SyncFile})


class Runner(Protocol):
    """Runs a job on another thread. One job at a time is given to it."""

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Call ``work`` on another thread, then ``done`` on the loop's thread."""
        ...

    def run_batch(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None], size_bytes: int
    ) -> None:
        """Run as ``run``; batches of ``size_bytes`` may also be written before the return, and ``done`` is called
        later.
        """
        ...


class ReplicaProgress(NamedTuple):
    """How far a replica is."""

    received: int
    """Index of the last submission in memory."""
    durable: int
    """Index of the last one that is executed and durable."""
    sequence: int
    """Sequence of the last durable record of the log."""


@dataclass(frozen=True, slots=True)
class _Received:
    index: int
    directory: Directory
    operations: Sequence[Operation]
    size_bytes: int
    at_once: bool
    """Whether the submission is a batch whose receipt is reported before it is executed."""


class ReplicaLog:
    """Executes the stream of operations on the files of a complete copy."""

    def __init__(
        self,
        log: Applier,
        bodies: Applier,
        runner: Runner,
        *,
        sequence: int,
        on_progress: Callable[[ReplicaProgress], None],
        on_failure: Callable[[BaseException], None],
        note_incomplete: Callable[[], None],
    ) -> None:
        """
        Args:
            log: Continues the directory of the log (``CopyTarget.log``).
            bodies: Continues the directory of large messages.
            runner: Runs the jobs.
            sequence: Sequence of the last record in the copy.
            on_progress: Called on the loop after each job.
            on_failure: Called on the loop, once, with the error that ended the execution.
            note_incomplete: Notes durably that the copy must not become active; runs on the other thread.
        """
        self._appliers = {Directory.LOG: log, Directory.BODIES: bodies}
        self._runner = runner
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._note_incomplete = note_incomplete
        self.progress = ReplicaProgress(0, 0, sequence)
        self.failure: BaseException | None = None
        self.waiting_bytes = 0
        """Bytes of the submissions that are not executed yet, as given by the caller."""
        self._waiting: deque[_Received] = deque()
        self._running = False
        self._ended: Callable[[BaseException | None], None] | None = None
        """Callback of ``finish``, called when the stream has been executed; None before."""
        self._sequence = sequence
        """Sequence of the last record executed; belongs to the job."""
        self._unsynced: str | None = None
        """Segment with batches of this job that are to be synced."""

    def receive(
        self, index: int, directory: Directory, operations: Sequence[Operation], size_bytes: int, *, at_once: bool
    ) -> None:
        """The next submission; ignored after a failure.

        Args:
            index: Higher than the one before.
            directory: That the names are relative to.
            operations: Operations as decoded; not empty.
            size_bytes: Encoded.
            at_once: A batch may be executed before the return; not if its receipt is to be reported first.

        Raises:
            RemoteProtocolError: the index does not rise, or a name is not of a file of a store.
            LimitExceeded: ``REPLICA_BACKLOG_BYTES_MAX`` bytes wait already.
        """
        assert self._ended is None, "receive after finish"
        if self.failure is not None:
            return
        if index <= self.progress.received:
            raise RemoteProtocolError(f"submission {index} after {self.progress.received}")
        if not operations:
            raise RemoteProtocolError(f"submission {index} has no operations")
        for operation in operations:
            if type(operation) not in _OF_OPEN_SEGMENTS:
                _check_names(directory, operation)
        if self.waiting_bytes and self.waiting_bytes + size_bytes > REPLICA_BACKLOG_BYTES_MAX:
            raise LimitExceeded(f"{self.waiting_bytes} bytes of operations wait to be executed")
        self.waiting_bytes += size_bytes
        at_once = at_once and is_batch(operations)
        self._waiting.append(_Received(index, directory, operations, size_bytes, at_once))
        self.progress = self.progress._replace(received=index)
        self._run()

    def finish(self, ended: Callable[[BaseException | None], None]) -> None:
        """Execute everything that was received, close the files, then call ``ended``, with the error if there was one.
        Nothing is received after this.
        """
        self._ended = ended
        self._run()

    def _run(self) -> None:
        if self._running:
            return
        if self._waiting and self.failure is None:
            taken, self._waiting = self._waiting, deque()
            self._running = True
            if all(each.at_once for each in taken):
                size_bytes = sum(each.size_bytes for each in taken)
                self._runner.run_batch(
                    lambda: self._execute_all(taken), lambda error: self._executed(taken, error), size_bytes
                )
            else:
                self._runner.run(lambda: self._execute_all(taken), lambda error: self._executed(taken, error))
        elif self._ended is not None:
            ended, self._ended = self._ended, None
            self._running = True
            self._runner.run(self._close_files, lambda error: ended(self.failure or error))

    def _executed(self, taken: deque[_Received], error: BaseException | None) -> None:
        self._running = False
        self.waiting_bytes -= sum(each.size_bytes for each in taken)
        if error is None:
            self.progress = ReplicaProgress(self.progress.received, taken[-1].index, self._sequence)
            self._on_progress(self.progress)
        else:
            self.failure = error
            self._waiting.clear()
            self.waiting_bytes = 0
            self._on_failure(error)
        self._run()

    # --- on the other thread ------------------------------------------------------------------------

    def _execute_all(self, taken: deque[_Received]) -> None:
        try:
            for each in taken:
                self._execute(each)
            self._sync()
        except (BrokerError, OSError, KeyError, AssertionError) as error:
            log.error("an operation of the active node cannot be executed", extra={"error": str(error)})
            with suppress(StoreError, OSError):
                self._note_incomplete()
            if isinstance(error, (KeyError, AssertionError)):
                # of a file that is not open, or at a position that is not its end
                raise RemoteProtocolError(f"submission {each.index} does not fit the files: {error!r}") from error
            raise

    def _execute(self, received: _Received) -> None:
        applier = self._appliers[received.directory]
        for operation in received.operations:
            kind = type(operation)
            if isinstance(operation, Append):
                name, last_sequence = operation.name, operation.last_sequence
                if self._unsynced not in (None, name):
                    self._sync()
                # an active node of an earlier version cuts records into parts
                applier.apply((operation._replace(parts=(b"".join(operation.parts),)),))
                self._sequence = last_sequence
            elif kind is SyncFile:
                if self._unsynced not in (None, operation.name):  # type: ignore[attr-defined]
                    self._sync()
                self._unsynced = operation.name  # type: ignore[attr-defined]
            elif isinstance(operation, SealSegment):
                if self._unsynced == operation.name:
                    # the seal syncs the same file
                    self._unsynced = None
                self._sync()
                applier.apply((operation,))
                applier.take_skim(operation.name)
                self._sequence = operation.sequence
            elif isinstance(operation, FinishBodies):
                self._sync()
                _finish_bodies(applier, operation)
            else:
                if kind not in _INDEPENDENT:
                    self._sync()
                applier.apply((operation,))

    def _sync(self) -> None:
        name, self._unsynced = self._unsynced, None
        if name is not None:
            self._appliers[Directory.LOG].apply((SyncFile(name),))

    def _close_files(self) -> None:
        for applier in self._appliers.values():
            applier.apply([CloseFiles()])


def _finish_bodies(applier: Applier, operation: FinishBodies) -> None:
    """Complete bodies. One whose earlier piece is missing has failed at the active node, too, which removes it."""
    incomplete = {end.name: applier.body_written(end.name) for end in operation.ends}
    incomplete = {
        end.name: incomplete[end.name]
        for end in operation.ends
        if incomplete[end.name] != end.offset and not (end.offset == 0 and incomplete[end.name] is None)
    }
    applier.apply((operation,))
    failed: BaseException | None = None
    for end in operation.ends:
        if incomplete.get(end.name) is None:
            # a segment with an open file is closed when it is removed
            error = applier.take_body(end.name).error
            if error is not None and end.name not in incomplete:
                failed = failed or error
    if failed is not None:
        raise failed


def _names(operation: Any) -> list[str]:
    """Names of files in an operation."""
    match operation:
        case RenameFile(name, target):
            return [name, target]
        case FinishBodies(ends):
            return [end.name for end in ends]
        case WriteBody(name) | BodyEnd(name):
            return [name, name + UNFINISHED]
        case CreateSegment():
            return [operation.name]
        case _:
            return [operation.name] if hasattr(operation, "name") else []


def _check_names(directory: Directory, operation: Operation) -> None:
    if isinstance(operation, (MakeDirectory, SyncDirectory)):
        if operation.name not in ("", DIRECTORY_NAME):
            raise RemoteProtocolError(f"{type(operation).__name__}: {operation.name!r} is no directory of a store")
        return
    if isinstance(operation, FinishBodies) and operation.directory:
        raise RemoteProtocolError(f"FinishBodies: {operation.directory!r} is no directory of a store")
    for name in _names(operation):
        if not belongs(directory, name):
            raise RemoteProtocolError(f"{type(operation).__name__}: {name!r} is no file of a store")
