"""Interfaces of the pure packages to I/O: small protocols that are passed at construction.

Nothing outside ``runtime/``, ``cli/``, ``spark/``, ``testing/`` and the two client shells imports
asyncio, sockets, threads, clocks, randomness or opens files (docs/build/architecture.md); it uses these
instead. ``runtime/`` implements them for real machines, ``testing/`` for the seeded simulation.

All calls are made from one thread, the one that runs the loop, unless a docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol, TypeVar

from understudy.errors import StoreError
from understudy.kernel.log import Batch, Outcome
from understudy.tls.certificates import DistinguishedName


class Clock(Protocol):
    """Two clocks: wall time for timestamps shown to users and peers, monotonic time for every decision."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 UTC. May jump. The cheapest of these calls; a node reads it once per turn."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC. May jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back."""
        ...


class Timer(Protocol):
    """A call that a ``Timers`` will make."""

    def cancel(self) -> None:
        """Cancel the call; does nothing if it already ran."""
        ...


class Timers(Protocol):
    """Calls in the future, on the same thread."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call once after ``delay_ms`` monotonic milliseconds; 0 means the next turn."""
        ...


class Entropy(Protocol):
    """Randomness: unguessable in production, seeded in the simulation."""

    def token(self, length_bytes: int) -> bytes:
        """Return ``length_bytes`` random bytes."""
        ...


class Security(Enum):
    """Protection of the bytes of a connection on their way."""

    NONE = auto()
    """The connection is not encrypted."""
    TLS = auto()
    """TLS; this side has not verified the name of the other one, or there is none to verify."""
    TLS_VERIFIED = auto()
    """TLS; the certificate of the other side is valid for the dialled name."""


class OutputSealer(Protocol):
    """Seals the output of a connection between nodes (``wire.sealed``)."""

    def seal(self, pieces: Sequence[bytes]) -> Sequence[bytes | memoryview]:
        """The bytes to write for the next output, in order."""
        ...


class Connection(Protocol):
    """The outgoing half of one byte stream."""

    @property
    def peer(self) -> str:
        """Address ``host:port`` of the other side, for logs and management."""
        ...

    @property
    def certificate_subject(self) -> DistinguishedName | None:
        """Subject of the certificate of the other side, if TLS has verified one."""
        ...

    def send(self, data: bytes) -> None:
        """Append to the outgoing buffer; the shell writes it once per turn. Never blocks.

        After ``close`` or a lost connection it does nothing.
        """
        ...

    def flush(self) -> None:
        """Write everything sent so far at once, not at the end of the turn."""
        ...

    def outgoing_bytes(self) -> int:
        """Bytes accepted by ``send`` that the kernel has not taken yet."""
        ...

    def close(self) -> None:
        """Close once everything sent so far is written."""
        ...

    def abort(self) -> None:
        """Close now and drop unsent bytes."""
        ...


class SealableConnection(Connection, Protocol):
    """A connection on which another node may prove the cluster password."""

    upgrade_without_name: bool
    """Whether the connection began with a request for an HTTP upgrade that names no server."""

    @property
    def local(self) -> str:
        """``host:port`` of this side."""
        ...

    @property
    def security(self) -> Security:
        """Protection of the connection's bytes."""
        ...

    def seal(self, sealer: OutputSealer) -> None:
        """Seal everything that is sent from now on; earlier output is written as it is."""
        ...


class Stream(Protocol):
    """Accepted byte stream. Its bytes are read by its ``Streams``, and written here.

    The methods have the names of a transport of asyncio, so that the transports of a loop are streams themselves: no
    call lies between a connection and its socket.
    """

    def writelines(self, pieces: Iterable[bytes | memoryview], /) -> None:
        """Write the pieces in order, without blocking; bytes that the kernel does not take now are kept for later."""
        ...

    def get_write_buffer_size(self) -> int:
        """Number of bytes that were given to ``writelines`` and that the kernel has not taken yet."""
        ...

    def pause_reading(self) -> None:
        """Deliver no bytes of the stream before ``resume_reading``, not even those that were read already."""
        ...

    def resume_reading(self) -> None:
        """Read the stream and deliver its bytes again."""
        ...

    def close(self) -> None:
        """Write the kept bytes, then close the stream. ``AcceptedConnection.connection_lost`` follows, never within
        this call.
        """
        ...

    def abort(self) -> None:
        """Close the stream and drop the kept bytes. ``AcceptedConnection.connection_lost`` follows, never within this
        call.
        """
        ...


class StreamHandler(Protocol):
    """Layer above an accepted connection, as far as a reader asks it."""

    @property
    def proved(self) -> bool:
        """Whether the client has logged in: then reads may be long."""
        ...


class AcceptedConnection(Protocol):
    """Connection over an accepted stream, as its ``Streams`` sees it. Called on the loop's thread."""

    @property
    def handler(self) -> StreamHandler | None:
        """The layer above; None once the connection is lost."""
        ...

    def connection_lost(self, reason: str) -> None:
        """The stream is closed: called once, and nothing is delivered after it."""
        ...

    def resume_writing(self) -> None:
        """The kernel has taken so many of the kept bytes that ``Stream.get_write_buffer_size`` is low again."""
        ...


A = TypeVar("A", bound=AcceptedConnection)


class StreamAcceptor(Protocol[A]):
    """Makes connections of accepted streams, and handles their input. Called on the loop's thread."""

    def accept(self, stream: Stream, peer: str, local: str) -> A | None:
        """The connection over a new stream; None: it is refused and already aborted.

        Args:
            peer: ``host:port`` of the other side.
            local: ``host:port`` of this side.
        """
        ...

    def receive(self, arrivals: Iterable[tuple[A, memoryview]]) -> None:
        """Handle received bytes of some connections, in this order, which have come for one turn of the loop.

        Args:
            arrivals: Each connection at most once, with at least one byte: at most ``limits.READ_BYTES_MAX``, and
                ``limits.READ_BYTES_BEFORE_LOGIN_MAX`` while its handler is not proved. The views are valid during the
                call only.
        """
        ...


class ListeningPlace(NamedTuple):
    """Address at which an acceptor listens, and the options of its sockets."""

    host: str
    port: int
    backlog: int
    """Connections that the kernel keeps until they are accepted."""
    send_buffer_bytes: int
    """Size of the send buffer of an accepted socket; 0 or less: left to the system."""
    receive_buffer_bytes: int
    """Size of the receive buffer of an accepted socket; 0 or less: left to the system."""
    connections_max: int
    """Number of connections that the acceptor admits."""


class Streams(Protocol):
    """Listens for the streams of one acceptor and reads them: the event loop, or another reader (ADR 0167)."""

    def bind(self, place: ListeningPlace, acceptor: StreamAcceptor[A]) -> Awaitable[None]:
        """Take an address. Until ``serve`` clients are refused, and no other process can listen there.

        Raises:
            OSError: the address cannot be had.
        """
        ...

    def serve(self) -> Awaitable[None]:
        """Listen at the addresses that ``bind`` has taken. Raises OSError when that is not possible."""
        ...

    def check(self) -> None:
        """Repeat what ages, every connection-ttl-check-interval: keep descriptors ready for accepted sockets."""
        ...

    def stop(self) -> None:
        """Release the addresses; accepted streams go on. ``bind`` may follow."""
        ...


class Space(NamedTuple):
    """Space of one file system, in bytes, without the bytes reserved for root."""

    free_bytes: int
    total_bytes: int
    """Used and free bytes together."""


class FileReader(Protocol):
    """One file that is open for reading. Every method raises ``DiskFailed``."""

    @property
    def path(self) -> str:
        """Path with which the file was opened."""

    def size(self) -> int:
        """Size of the file in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes at ``offset``; short only at the end of the file."""
        ...

    def forget_cached(self, offset: int, length: int) -> None:
        """Drop the bytes from caches of this machine, so that the next read asks the medium. Bytes that are not written
        to the medium yet stay. Advice only: nothing happens where the file system has no such call.
        """
        ...

    def data_ranges(self, offset: int) -> list[tuple[int, int]]:
        """Begin and end of the parts at or after ``offset`` whose bytes may differ from zero, in order.

        As reported by the file system; one that does not record unwritten blocks reports one part up to the end of the
        file.
        """
        ...

    def close(self) -> None:
        """Close the file."""


class File(FileReader, Protocol):
    """One open file. Every method raises ``DiskFull`` for ENOSPC/EDQUOT and ``DiskFailed`` else.

    A ``DiskFailed`` from ``sync`` is final for the file: the kernel may have dropped the pages,
    so it must never be retried as if it had worked.
    """

    def write(self, offset: int, buffers: Sequence[bytes]) -> None:
        """All buffers, in order, at ``offset``; a short write is completed or raised."""
        ...

    def allocate(self, length: int) -> None:
        """Reserve blocks so that later writes below ``length`` do not find the disk full.

        Reads of the reserved range give zeros and ``size`` becomes at least ``length``.
        """
        ...

    def truncate(self, length: int) -> None:
        """Set the size of the file."""

    def links(self) -> int:
        """Number of names that the file has (hard links)."""

    def begin_sync(self, offset: int, length: int) -> None:
        """Ask the system to begin to write a range to the medium, without waiting for it: a later ``sync`` has less to
        do. Nothing is safe before that sync, which also reports the errors; a system that cannot do it does nothing.
        """
        ...

    def sync(self) -> None:
        """fdatasync: data and the metadata needed to read it back are on the medium."""
        ...


class DiskReader(Protocol):
    """Read access to a file system. Paths are absolute text. Errors as for ``FileReader``; a missing file raises
    ``FileNotFoundError``.
    """

    def open(self, path: str, *, read_only: bool = False) -> FileReader:
        """Open an existing file; readers pass ``read_only``."""
        ...

    def list(self, directory: str) -> list[str]:
        """Names in a directory, sorted; empty if the directory does not exist."""
        ...


class Disk(DiskReader, Protocol):
    """Read and write access to a file system. Errors as for ``File``."""

    def within(self, directory: str) -> AbstractContextManager[Disk]:
        """The same file system for a few operations on a directory and the files directly in it.

        The path of the directory is looked up once, when the block begins: on a network file system each directory of
        a path costs requests in every operation. If the path leads to another directory meanwhile, the block goes on
        with the first one. Other paths, and a directory that does not exist, are looked up as usual. The result is
        used by one thread, and not after the block.
        """
        ...

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing (or reading only); ``create`` makes an empty new file and
        raises ``FileExistsError`` if there is one.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents, mode 0700; an existing one is left as it is. Raises ``DiskFailed`` also
        if there is a file at its place.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file within its file system, replacing ``target``."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name in its file system. Raises ``FileExistsError`` if ``target`` exists, and
        ``DiskFailed`` also if the file system has no links.
        """

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; nothing if it does not exist. Raises ``DiskFailed`` if it is not empty."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in it durable."""
        ...

    def sync_files(self, files: Sequence[File]) -> Sequence[StoreError | None]:
        """``File.sync`` of several files of this disk, where possible at the same time, so that the medium empties its
        cache for many of them at once.

        Returns:
            The error of each file; None: it is synced.
        """
        ...

    def space(self, path: str) -> Space:
        """The free and the total bytes of the file system of a path."""
        ...

    def modified_ns(self, path: str) -> int:
        """Modification time, wall nanoseconds as the file system keeps it; the file server's own
        clock on a network file system, so only compare it with itself.
        """
        ...

    def touch(self, path: str) -> None:
        """Set the modification time of an existing file to now."""
        ...


class Executor(Protocol):
    """Runs callbacks on the loop's thread: of timers, log writers and workers, and the work of the node after them."""

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call later, but before the loop waits for events. From the loop's thread only."""
        ...

    def completed(self, call: Callable[..., object], *args: object) -> None:
        """Call now; a ``BrokerError`` that it raises ends the node. From the loop's thread only."""
        ...


class Fence(Protocol):
    """Says whether written batches may be confirmed, and messages delivered: not when another node may have the store
    (ADR 0004, ADR 0156)."""

    @property
    def proved_until_ms(self) -> int:
        """Boot time (``CLOCK_BOOTTIME``) until which the proof is valid without a new request."""
        ...

    @property
    def proved_at_ms(self) -> int | None:
        """Boot time of the last proof; None: there is no lock that is proved."""
        ...

    def why_not_confirm(self) -> BaseException | None:
        """The reason why nothing may be confirmed; None: it may. Asked after ``proved_until_ms`` at the end of each
        batch, and before a delivery."""
        ...


class Operation(Protocol):
    """A change to files of the store, as a value: one of the classes of ``store.log.operations``."""


class BatchWrite(Protocol):
    """A batch of the log that the log writer writes to the file itself, in the place of ``OperationApplier.apply``."""

    @property
    def file(self) -> File:
        """File of the segment."""
        ...

    @property
    def batch(self) -> Batch:
        """Bytes to write, and the state of the segment before them."""
        ...

    @property
    def end(self) -> Callable[[Batch, int, Sequence[list[Any] | None], BaseException | None], None]:
        """The function that takes the outcome over: the batch, digest of the segment with the written bytes, summary of
        each written buffer (empty if the write has failed), failure of the write or of the sync.
        """
        ...


class BatchThread(Protocol):
    """A thread without the interpreter that executes batches of the log, one after another (``kernel.log``)."""

    def fileno(self) -> int:
        """Descriptor that is readable while a batch has ended and was not taken."""
        ...

    def submit(self, descriptor: int, batch: Batch) -> None:
        """Write, sync, and only then compute digest and summaries. The descriptor must not be closed before the outcome
        was taken.

        Raises:
            ValueError: The thread was closed.
        """
        ...

    def execute(self, descriptor: int, batch: Batch) -> Outcome:
        """The same on the calling thread; other threads may use the interpreter meanwhile."""
        ...

    def take(self) -> Outcome | None:
        """Outcome of the next batch that has ended; None: none has."""
        ...

    def close(self) -> None:
        """Let the thread end once it has executed everything it was given."""
        ...


class OperationApplier(Protocol):
    """Executes operations on the files of a directory. Its calls block and run on the thread of a writer."""

    def apply(self, operations: Sequence[Operation]) -> None:
        """Execute the operations in order; the first error ends the execution. Raises the errors of the operations."""
        ...

    def begin_batch(self, operations: Sequence[Operation]) -> BatchWrite | None:
        """A batch of the log (``store.log.operations.is_batch``) for a writer that writes it itself. Does not block.
        Either ``BatchWrite.end`` or ``apply`` with the same operations must follow.

        Returns:
            None: the batch can only be given to ``apply``.

        Raises:
            DiskFailed: The segment has failed before.
        """
        ...


class LogWriter(Protocol):
    """Executes operations in order on another thread, one submission at a time.

    A link to a replica takes the operations here: it is a log writer in front of the local one
    (docs/build/architecture.md, "Replication").
    """

    def submit(self, operations: Sequence[Operation], done: Callable[[BaseException | None], None]) -> None:
        """Execute the operations, then call ``done`` on the loop's thread, with the error if there was one: then
        the operations after it were not executed. The operations and their bytes are not changed after the call.

        A batch of the log (``store.log.operations.is_batch``) ends with the permission of the fence only.
        """
        ...

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Call ``work`` on the writer's thread, after everything submitted before, then ``done`` as for ``submit``.
        For work that changes no file of the store: it reads.
        """
        ...

    def close(self) -> None:
        """Finish everything submitted, call each ``done``, accept nothing more."""
        ...


class HoldableLogWriter(LogWriter, Protocol):
    """The log writer of an activation, which must not compete for the processor and the store."""

    def hold(self) -> None:
        """Begin no job before ``release``."""
        ...

    def release(self) -> None:
        """Begin the held jobs, in order."""
        ...


class Worker(Protocol):
    """Runs long computations on other threads, in no order and without shared state."""

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Call ``work`` on another thread, then ``done`` on the loop's thread, with the error if one was raised."""
        ...

    def close(self) -> None:
        """Accept nothing more; pending work is finished or dropped."""
        ...


class FileLock(Protocol):
    """An exclusive lock on a file, kept by the operating system or the file server."""

    def try_acquire(self) -> bool:
        """Acquire it without waiting; True if held. Raises ``DiskFailed`` if the file system gives no answer."""
        ...

    def release(self) -> None:
        """Release the lock."""

    def verify(self) -> bool:
        """Whether the lock is still held: not if the file was replaced, the descriptor is stale or the lease is
        lost."""
        ...
