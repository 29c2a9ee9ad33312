"""The repairs of an active node, one after the other (ADR 0114).

Reads of this node's files and the writes run on the threads of the log writers; the other node is asked by a
``CopySource``, which is there while a replica is in sync. A repair that needs it meanwhile ends with
``Outcome.DAMAGED_HERE``; the caller tries again when ``on_attach`` is called.

Not here: the steps of a repair and the proof of its bytes (``repair``), the consequences of its outcome
(``routing.lifecycle.quarantine``, ``scrubbing``).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import ClassVar, Final, Protocol

from understudy.dataclass import dataclass
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.message import LargeBody
from understudy.ports import Disk, LogWriter
from understudy.store.log.operations import ReplaceBytes
from understudy.store.log.segment import segment_name
from understudy.store.repair import Answer, Ask, Outcome, Place, Repair, Write, repair_file, repair_record
from understudy.store.replication.copy_messages import Directory

log = logging.getLogger(__name__)

Done = Callable[[Outcome], None]

#: Outcomes after which the bytes of this node are right.
RIGHT: Final = (Outcome.READABLE, Outcome.REPAIRED)


class OtherCopy(Protocol):
    """The store of the other node of a pair."""

    def ask(self, wanted: Ask, answered: Callable[[Answer | None], None]) -> None:
        """Read bytes there; ``answered`` is called once, with None if the other node is lost or has no such file."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two directories of a store."""

    directory: str
    """Absolute path of the directory."""
    writer: LogWriter
    """Log writer that changes the files in the directory."""
    prefix: str = ""
    """Prefix of names for the writer."""


@dataclass(slots=True)
class Pair:
    """The two nodes of a pair, for descriptions of damage."""

    node: str
    """Name of this node."""
    wait_ms: int
    """Longest wait of a damaged message for the other copy, while there is none; negative: no limit."""
    other: str = ""
    """Name of the node that has the other copy, or had it last."""


class RepairsState(Enum):
    """States of the repair under way."""

    IDLE = auto()
    """No repair is under way."""
    READING = auto()
    ASKING = auto()
    WRITING = auto()
    CLOSED = auto()


class RepairsEvent(Enum):
    """Events of the repair under way."""

    BEGIN = auto()
    """The next repair begins. Its argument is the job."""
    ASK = auto()
    """The other node is to be asked for bytes; the argument is the ``Ask``."""
    ANSWERED = auto()
    """The other node has answered, or cannot; the argument is the ``Answer`` or None."""
    WRITE = auto()
    """The right bytes are known. Its argument is the ``Write``."""
    WRITTEN = auto()
    """The bytes are written. Its argument is the error or None."""
    ENDED = auto()
    """The repair has ended. Its argument is the ``Outcome``."""
    CLOSE = auto()


_S, _E = RepairsState, RepairsEvent


@dataclass(slots=True)
class _Job:
    """A repair and what to call at its end."""

    place: Place
    steps: Repair
    done: Done


class Repairs(Machine[RepairsState, RepairsEvent]):
    """The repairs of one store."""

    STATES: ClassVar[type[Enum]] = RepairsState
    EVENTS: ClassVar[type[Enum]] = RepairsEvent
    INITIAL: ClassVar[Enum] = RepairsState.IDLE

    def __init__(self, disk: Disk, sides: Mapping[Directory, Side]) -> None:
        """
        Args:
            disk: Where the store is.
        """
        super().__init__()
        self._disk = disk
        self._sides = sides
        self._waiting: deque[_Job] = deque()
        self._job: _Job | None = None
        self._other: OtherCopy | None = None
        self.pair: Pair | None = None
        """The pair of which each node has a copy; None: there is no other copy."""
        self.on_attach: Callable[[], None] = lambda: None
        """Called when the other node becomes available for questions."""
        self.on_repaired: Callable[[], None] = lambda: None
        """Called when bytes of this node were replaced or proved to be right."""
        self.repaired = 0
        """Files and records that were replaced by those of the other node since the activation."""
        self.read_wrong = 0
        """Files and records that were read wrong once."""

    # --- the other copy -----------------------------------------------------------------------------

    @property
    def attached(self) -> bool:
        """Whether the other node can be asked for bytes."""
        return self._other is not None

    def expect_other(self, node: str, wait_ms: int) -> None:
        """The other node of a pair has a copy, or will have one; the arguments are those of ``Pair``."""
        self.pair = Pair(node, wait_ms)

    def attach(self, other: OtherCopy) -> None:
        """Called when a replica is in sync."""
        self._other = other
        self.on_attach()

    def detach(self) -> None:
        """Note that the other node is lost; ``OtherCopy`` answers open questions with None."""
        self._other = None

    # --- repairs -----------------------------------------------------------------------------------

    def record(self, number: int, epoch: int, offset: int, length: int, done: Done) -> None:
        """Repair a record of a segment."""
        place = self._place(Directory.LOG, segment_name(number, epoch))
        self._add(_Job(place, repair_record(self._disk, place, offset, length), done))

    def segment(self, number: int, epoch: int, done: Done) -> None:
        """Repair a sealed segment."""
        self.file(Directory.LOG, segment_name(number, epoch), None, done)

    def body(self, large: LargeBody, done: Done) -> None:
        """Repair the body of a large message."""
        place = replace(self._place(Directory.BODIES, f"{large.file_id}.large"), needed=True)
        self._add(_Job(place, repair_file(self._disk, place, large), done))

    def file(self, directory: Directory, name: str, large: LargeBody | None, done: Done) -> None:
        """Repair a whole file; ``large`` of a body."""
        place = self._place(directory, name)
        self._add(_Job(place, repair_file(self._disk, place, large), done))

    def _place(self, directory: Directory, name: str) -> Place:
        return Place(directory, name, f"{self._sides[directory].directory}/{name}")

    def _add(self, job: _Job) -> None:
        self._waiting.append(job)
        self._next()

    def _next(self) -> None:
        if self._state is RepairsState.IDLE and self._waiting:
            self.fire(RepairsEvent.BEGIN, self._waiting.popleft())

    def close(self) -> None:
        """Begin nothing any more; nothing is called any more."""
        self.fire(RepairsEvent.CLOSE)

    # --- actions ------------------------------------------------------------------------------------

    def _begin(self, job: _Job) -> None:
        self._job = job
        self._step(None)

    def _step(self, answer: Answer | None) -> None:
        """Read on, on the thread of a writer, up to the next effect."""
        job = self._job
        assert job is not None
        found: list[Ask | Write | Outcome] = []

        def work() -> None:
            try:
                found.append(job.steps.send(answer))
            except StopIteration as ended:
                found.append(ended.value)

        self._sides[Directory.LOG].writer.run(work, partial(self._stepped, found))

    def _stepped(self, found: list[Ask | Write | Outcome], error: BaseException | None) -> None:
        effect = found[0] if found else Outcome.DAMAGED_HERE
        if error is not None:
            assert self._job is not None
            log.warning("damage cannot be repaired", extra={"file": self._job.place.path, "error": str(error)})
        if isinstance(effect, Ask):
            self.fire(RepairsEvent.ASK, effect)
        elif isinstance(effect, Write):
            self.fire(RepairsEvent.WRITE, effect)
        else:
            self.fire(RepairsEvent.ENDED, effect)

    def _ask(self, wanted: Ask) -> None:
        if self._other is None:
            self.fire(RepairsEvent.ANSWERED, None)
        else:
            self._other.ask(wanted, partial(self.fire, RepairsEvent.ANSWERED))

    def _write(self, write: Write) -> None:
        side = self._sides[write.directory]
        operation = ReplaceBytes(side.prefix + write.name, write.offset, write.data, write.cut_at, write.create)
        side.writer.submit([operation], partial(self.fire, RepairsEvent.WRITTEN))

    def _written(self, error: BaseException | None) -> None:
        if error is not None:
            # the next look at the file finds it unchanged
            log.error("damage cannot be repaired: the disk refuses", extra={"error": str(error)})
        self._step(None)

    def _end(self, outcome: Outcome) -> None:
        job, self._job = self._job, None
        assert job is not None
        if outcome is Outcome.REPAIRED:
            self.repaired += 1
            log.warning("damaged bytes were replaced by those of the other node", extra={"file": job.place.path})
        elif outcome is Outcome.READABLE:
            self.read_wrong += 1
            log.warning("bytes read wrong, and right at the second time", extra={"file": job.place.path})
        if outcome in RIGHT:
            self.on_repaired()
        job.done(outcome)
        self._next()

    def _drop(self) -> None:
        self._waiting.clear()
        self._job = self._other = None

    TABLE = table(
        RepairsState,
        RepairsEvent,
        {
            (_S.IDLE, _E.BEGIN): To(_S.READING, _begin),
            (_S.READING, _E.ASK): To(_S.ASKING, _ask),
            (_S.READING, _E.WRITE): To(_S.WRITING, _write),
            (_S.READING, _E.ENDED): To(_S.IDLE, _end),
            (_S.ASKING, _E.ANSWERED): To(_S.READING, _step),
            (_S.WRITING, _E.WRITTEN): To(_S.READING, _written),
            (_S.IDLE, _E.CLOSE): To(_S.CLOSED, _drop),
            (_S.READING, _E.CLOSE): To(_S.CLOSED, _drop),
            (_S.ASKING, _E.CLOSE): To(_S.CLOSED, _drop),
            (_S.WRITING, _E.CLOSE): To(_S.CLOSED, _drop),
            (_S.CLOSED, _E.ASK): IGNORED,
            (_S.CLOSED, _E.ANSWERED): IGNORED,
            (_S.CLOSED, _E.WRITE): IGNORED,
            (_S.CLOSED, _E.WRITTEN): IGNORED,
            (_S.CLOSED, _E.ENDED): IGNORED,
            (_S.CLOSED, _E.CLOSE): IGNORED,
        },
        otherwise={
            _E.BEGIN: ILLEGAL,
            _E.ASK: ILLEGAL,
            _E.ANSWERED: ILLEGAL,
            _E.WRITE: ILLEGAL,
            _E.WRITTEN: ILLEGAL,
            _E.ENDED: ILLEGAL,
            _E.CLOSE: ILLEGAL,
        },
    )
