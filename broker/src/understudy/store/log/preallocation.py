"""The segments ahead of the log: made, allocated and synced before they are needed, and filled with zeros
where that pays.

One is made at a time, through the log writer, after the batches. A disk that is full is asked again
every second (``retry``). ADR 0015: overwriting blocks that were written before is what a small sync is
quick at; blocks that are only reserved must be turned into written ones by the same sync. So after a
small batch ``zero`` overwrites the next piece of the next segment, on the writer's thread. A log that is
written in large batches gains nothing and has no piece overwritten.

Invariants: numbers are consecutive; a segment is READY only when its file is whole and synced; zeros go
only into a segment that is not in use, or before the first batch that is written to it (the writer keeps
the order).

Not here: their records, when they are sealed (``journal``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field, replace
from enum import Enum, auto
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFull
from understudy.ports import Clock, LogWriter, Operation
from understudy.store.log.operations import CreateSegment, GrowSegment, KeepReserve, RemoveFile, SyncFile, WriteZeros
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, segment_name

#: Time in ms after a full disk until the next segment is requested again.
PREPARE_RETRY_MS: Final = 1_000
#: Most segments prepared ahead: a node that takes over looks into each of them.
AHEAD_MAX: Final = 4
#: Zeros written at once: a batch that comes meanwhile waits for so much.
ZEROS_BYTES: Final = 256 * 1024


class Readiness(Enum):
    """How far a segment is."""

    PREPARING = auto()
    READY = auto()
    """The file of the segment is whole and synced."""
    NO_SPACE = auto()
    """The disk was full; making the segment is tried again."""


@dataclass(slots=True)
class Segment:
    """A segment to be written, perhaps before its file exists."""

    number: int
    name: str
    needed_bytes: int
    readiness: Readiness = Readiness.PREPARING
    made: bool = False
    """Whether the file of the segment exists."""
    format_version: int = 0
    """Version in the header of the file; 0 before it is made."""
    zeroed_bytes: int = HEADER_BLOCK_BYTES
    """Offset up to which the blocks of the file have been written with zeros."""
    sync: SyncFile = field(init=False)
    """The operation after each batch."""

    def __post_init__(self) -> None:
        self.sync = SyncFile(self.name)


class Preallocation:
    """Prepares segments before the journal needs them."""

    def __init__(
        self,
        *,
        writer: LogWriter,
        clock: Clock,
        first: SegmentHeader,
        ahead: int,
        on_prepared: Callable[[], None],
        on_failure: Callable[[BaseException], None],
        on_space: Callable[[], None],
    ) -> None:
        """Begin to prepare the first spare segments.

        Args:
            writer: Makes them.
            clock: Used for the times in headers and for trying again.
            first: Header of the first spare segment. Those after it have the following numbers; each gets the time
                at which it is made.
            ahead: How many spare segments, at least one and at most ``AHEAD_MAX``.
            on_prepared: Called when one was made, or could not be.
            on_failure: Called with an error of the disk other than a full one.
            on_space: Called when ``no_space`` has changed.
        """
        self._writer = writer
        self._clock = clock
        self._header = first
        self._segment_bytes = first.allocated_bytes
        self._format_version = first.format_version
        self._on_prepared = on_prepared
        self._on_failure = on_failure
        self._on_space = on_space
        self.no_space = False
        """The next segment could not be allocated."""
        self.preparing = False
        """Whether a spare segment is being made."""
        self._stopped = False
        self._zeroing = False
        self.wants_zeros = False
        """Whether ``zero`` may have something to overwrite."""
        self._to_prepare: deque[Segment] = deque()
        self._retry_at_ms = 0
        self._spares: deque[Segment] = deque()
        for index in range(min(max(ahead, 1), AHEAD_MAX)):
            self._add(first.number + index)

    def take(self, needed_bytes: int) -> Segment:
        """The next segment, perhaps not READY yet, and grown to so many bytes if it is smaller."""
        segment = self._spares.popleft()
        self.wants_zeros = True
        if needed_bytes > segment.needed_bytes:
            # a record larger than a segment: it grows before anything goes into it
            segment.needed_bytes = needed_bytes
            if segment.readiness is Readiness.READY:
                self._prepare(segment)
        self._add((self._spares[-1] if self._spares else segment).number + 1)
        return segment

    def use_format(self, version: int) -> None:
        """Later segments have records of another format version: those that are prepared are made anew."""
        self._format_version = version
        for segment in self._spares:
            if segment.readiness is Readiness.READY:
                self._prepare(segment)

    def retry(self, *, at_once: bool = False) -> None:
        """Ask for the next segment again if the disk was full and a second has passed, or ``at_once``."""
        if self.no_space and not self._stopped and (at_once or self._clock.monotonic_ms() >= self._retry_at_ms):
            self.prepare_next()

    def prepare_next(self) -> None:
        """Make the next that is not READY, unless one is being made."""
        if self.preparing or not self._to_prepare:
            return
        self.preparing = True
        segment = self._to_prepare[0]
        needed_bytes = segment.needed_bytes

        operations: list[Operation]
        if segment.made and segment.format_version == self._format_version:
            operations = [GrowSegment(segment.name, needed_bytes)]
        else:
            version = self._format_version
            header = replace(
                self._header,
                number=segment.number,
                created_ms=self._clock.wall_ms(),
                allocated_bytes=needed_bytes,
                format_version=version,
            )
            # a prepared segment of another format version is replaced; it has no records
            operations = [RemoveFile(segment.name)] if segment.made else []
            operations.append(CreateSegment(header))
            segment.made, segment.format_version = False, version
        self._writer.submit(operations, lambda error: self._prepared(segment, needed_bytes, error))

    def zero(self) -> None:
        """Overwrite the next piece of the next segment; called when a small batch has been written."""
        segment = self._spares[0]
        begin = segment.zeroed_bytes
        length = min(ZEROS_BYTES, segment.needed_bytes - begin)
        self.wants_zeros = False
        if self._zeroing or self._stopped or segment.readiness is not Readiness.READY or length <= 0:
            return
        self._zeroing = True

        def zeroed(error: BaseException | None) -> None:
            self._zeroing = False
            self.wants_zeros = True
            if isinstance(error, DiskFull):
                # overwriting takes space of its own there; the reserved blocks may still serve
                segment.zeroed_bytes = segment.needed_bytes
            elif error is not None:
                self._on_failure(error)
            else:
                segment.zeroed_bytes = begin + length

        self._writer.submit([WriteZeros(segment.name, begin, length)], zeroed)

    def keep_reserve(self) -> None:
        """Once the spare is there, or the reserve was used: space for the first segment and the spare of
        a node that activates on a full disk. Without it the journal goes on, and asks again with the next spare.
        """

        def kept(error: BaseException | None) -> None:
            if error is not None:
                self._on_failure(error)

        self._writer.submit([KeepReserve(2 * self._segment_bytes)], kept)

    def stop(self) -> None:
        """Prepare no further segment unasked; ``prepare_next`` still works."""
        self._stopped = True

    def unused(self) -> list[str]:
        """Names of the segments that were made and not taken, in order."""
        return [spare.name for spare in self._spares if spare.made]

    def _add(self, number: int) -> None:
        segment = Segment(number, segment_name(number, self._header.epoch), self._segment_bytes)
        self._spares.append(segment)
        self._prepare(segment)

    def _prepare(self, segment: Segment) -> None:
        segment.readiness = Readiness.PREPARING
        self._to_prepare.append(segment)
        if not self.no_space:
            self.prepare_next()

    def _prepared(self, segment: Segment, needed_bytes: int, error: BaseException | None) -> None:
        self.preparing = False
        if isinstance(error, DiskFull):
            segment.readiness = Readiness.NO_SPACE
            self.no_space = True
            self._on_space()
            self._retry_at_ms = self._clock.monotonic_ms() + PREPARE_RETRY_MS
        elif error is not None:
            self._on_failure(error)
            return
        else:
            if not segment.made:
                segment.made, segment.zeroed_bytes = True, HEADER_BLOCK_BYTES
            if self.no_space:
                self.no_space = False
                self._on_space()
            if segment.needed_bytes == needed_bytes and segment.format_version == self._format_version:
                segment.readiness = Readiness.READY
                self.wants_zeros = True
                self._to_prepare.popleft()
                if segment is self._spares[-1] and not self._stopped:
                    self.keep_reserve()
            if not self._stopped:
                self.prepare_next()
        self._on_prepared()
