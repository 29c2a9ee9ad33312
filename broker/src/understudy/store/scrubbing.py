"""A scrubber: compares the files of a store with their checksums in the background (ADR 0115).

A *pass* reads every sealed segment, snapshot and body once, from the medium and not from the cache of the machine,
which keeps no page of it either, at a limited rate. Bodies are compared with the records of the log that name them;
one that no record names is counted and not compared. A file that does not fit is repaired with the bytes of the other
node, if there is one (``repairs``); else it is reported in each pass. Damage that the quarantine names is left out.

Runs on an active node and on a replica in sync. Reading is done in steps on another thread.

Not here: the checks (``store.file_checks``, ``store.replication.conditions``), which thread
(``runtime.replica.scrubbing``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import ClassVar, Final

from understudy.dataclass import dataclass
from understudy.errors import StoreError
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.message import LargeBody
from understudy.ports import Clock, Timer, Timers, Worker
from understudy.store.file_checks import Condition
from understudy.store.log.segment import parse_name
from understudy.store.quarantine import read_known_damage
from understudy.store.repair import Outcome
from understudy.store.replication.conditions import FileConditions, Key, is_settled
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.store_files import StoreDirectories, is_segment, list_store

log = logging.getLogger(__name__)

#: Longest time from the begin of an activation, or of a copy in sync, to the first pass.
FIRST_PASS_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class ScrubSettings:
    """Settings of a scrubber."""

    rate_bytes: int
    """Bytes read per second; 0: the scrubber makes no passes."""
    period_ms: int
    """Milliseconds from the begin of a pass to the begin of the next."""


@dataclass(frozen=True, slots=True)
class ScrubStore:
    """The store, as the scrubber sees it."""

    directories: StoreDirectories
    positions: Callable[[], Mapping[str, int]]
    """Ends of the segments that are being written, by name; called on the other thread."""
    completed: Callable[[str], tuple[int, int] | None]
    """Size and crc of a body that was completed not long ago; called on the other thread."""
    repair: Callable[[Directory, str, LargeBody | None, Callable[[Outcome], None]], None]
    """Repairs a damaged file or body and passes the outcome to the callback."""


@dataclass(slots=True)
class ScrubReport:
    """Progress and findings of the scrubber."""

    running: bool = False
    """A pass is under way."""
    pass_bytes: int = 0
    """Bytes read in the pass under way, or the last one."""
    pass_files: int = 0
    """Files compared in the present pass."""
    unverified: int = 0
    """Large bodies of the present pass that no record of the log names."""
    passes: int = 0
    """Number of complete passes."""
    completed_ms: int = 0
    """Wall time of the end of the last complete pass; 0: there was none."""
    damaged: int = 0
    """Files found that do not fit their checksum."""
    repaired: int = 0
    """Number of damaged files that were repaired."""


@dataclass(frozen=True, slots=True)
class _Damage:
    """A file that does not fit."""

    key: Key
    large: LargeBody | None


class ScrubberState(Enum):
    """States of a scrubber."""

    WAITING = auto()
    """The scrubber waits for the next pass."""
    READING = auto()
    RESTING = auto()
    """The scrubber rests for the rate."""
    REPAIRING = auto()
    CLOSED = auto()


class ScrubberEvent(Enum):
    """Events of a scrubber."""

    BEGIN = auto()
    READ = auto()
    """A piece of a file was read. Its argument is the bytes."""
    RESTED = auto()
    FOUND = auto()
    """A file is damaged. Its argument says which one and where."""
    REPAIRED = auto()
    """A repair has ended. The arguments are the damaged file and the ``Outcome``."""
    PASS_ENDED = auto()
    FAILED = auto()
    """The pass cannot go on. Its argument is the error."""
    CLOSE = auto()


_S, _E = ScrubberState, ScrubberEvent


class Scrubber(Machine[ScrubberState, ScrubberEvent]):
    """Passes over one store that verify sealed segments and large bodies."""

    STATES: ClassVar[type[Enum]] = ScrubberState
    EVENTS: ClassVar[type[Enum]] = ScrubberEvent
    INITIAL: ClassVar[Enum] = ScrubberState.WAITING

    def __init__(
        self, store: ScrubStore, settings: ScrubSettings, worker: Worker, clock: Clock, timers: Timers
    ) -> None:
        """
        Args:
            store: Where the files are.
            settings: See there.
            worker: Reads.
            clock: Used for the rate and the times in the report.
            timers: Used for the rate and the period.
        """
        super().__init__()
        self._store = store
        self._settings = settings
        self._worker = worker
        self._clock = clock
        self._timers = timers
        self.report = ScrubReport()
        self._steps: Generator[int | _Damage, None, None] = iter(())  # type: ignore[assignment]  # no pass yet
        self._timer: Timer | None = None
        self._began_ms = self._read_ms = 0
        if settings.rate_bytes > 0:
            self._later(min(FIRST_PASS_MS, settings.period_ms), ScrubberEvent.BEGIN)

    def _later(self, delay_ms: int, event: ScrubberEvent) -> None:
        self._timer = self._timers.call_later(delay_ms, partial(self.fire, event))

    def close(self) -> None:
        """Begin no step any more."""
        self.fire(ScrubberEvent.CLOSE)

    # --- actions ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        report = self.report
        report.running, report.pass_bytes, report.pass_files, report.unverified = True, 0, 0, 0
        self._began_ms = self._clock.monotonic_ms()
        self._steps = self._pass()
        self._read()

    def _read(self) -> None:
        self._read_ms = self._clock.monotonic_ms()
        found: list[int | _Damage] = []

        def work() -> None:
            step = next(self._steps, None)
            if step is not None:
                found.append(step)

        self._worker.run(work, partial(self._stepped, found))

    def _stepped(self, found: list[int | _Damage], error: BaseException | None) -> None:
        if error is not None:
            self.fire(ScrubberEvent.FAILED, error)
        elif not found:
            self.fire(ScrubberEvent.PASS_ENDED)
        elif isinstance(found[0], _Damage):
            self.fire(ScrubberEvent.FOUND, found[0])
        else:
            self.fire(ScrubberEvent.READ, found[0])

    def _rest(self, size_bytes: int) -> None:
        self.report.pass_bytes += size_bytes
        due_ms = self._read_ms + 1000 * size_bytes // self._settings.rate_bytes
        self._later(max(due_ms - self._clock.monotonic_ms(), 0), ScrubberEvent.RESTED)

    def _repair(self, damage: _Damage) -> None:
        self.report.damaged += 1
        path = self._store.directories.path(*damage.key)
        log.error("a file of the store does not fit its checksum", extra={"file": path})
        self._store.repair(*damage.key, damage.large, partial(self.fire, ScrubberEvent.REPAIRED, damage))

    def _repaired(self, damage: _Damage, outcome: Outcome) -> None:
        if outcome in (Outcome.REPAIRED, Outcome.READABLE):
            self.report.repaired += 1
        else:
            log.error(
                "a damaged file of the store is left as it is: no other copy of it fits",
                extra={"file": self._store.directories.path(*damage.key), "outcome": outcome.name},
            )
        self._read()

    def _end_pass(self) -> None:
        report = self.report
        report.running = False
        report.passes += 1
        report.completed_ms = self._clock.wall_ms()
        log.info(
            "the files of the store were compared with their checksums",
            extra={"bytes": report.pass_bytes, "files": report.pass_files, "unverified": report.unverified},
        )
        self._wait()

    def _fail(self, error: BaseException) -> None:
        self.report.running = False
        log.warning("the files of the store are not compared to the end", extra={"error": str(error)})
        self._wait()

    def _wait(self) -> None:
        elapsed_ms = self._clock.monotonic_ms() - self._began_ms
        self._later(max(self._settings.period_ms - elapsed_ms, 0), ScrubberEvent.BEGIN)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # --- on another thread --------------------------------------------------------------------------

    def _pass(self) -> Generator[int | _Damage, None, None]:
        """Numbers of bytes that were read, and damaged files."""
        directories = self._store.directories
        conditions = FileConditions(directories, self._store.completed)
        known = read_known_damage(directories.disk, directories.log)
        names = list_store(directories.disk, directories)
        learned = False
        for key in names:
            number, epoch, _ = parse_name(key[1]) or (0, 0, False)
            if known.touches(number, epoch):
                continue
            if key[0] is Directory.BODIES and not learned:
                learned = True
                yield from conditions.learn(self._store.positions(), names)
            damage = yield from self._look(conditions, key, names)
            if damage is not None:
                yield damage

    def _look(
        self, conditions: FileConditions, key: Key, names: Collection[Key]
    ) -> Generator[int, None, _Damage | None]:
        directories = self._store.directories
        with suppress(FileNotFoundError):
            file = directories.disk.open(directories.path(*key), read_only=True)
            try:
                written = is_segment(*key) and key[1] in self._store.positions()
                sealed = is_segment(*key) and conditions.is_sealed(file, key, names)
                if written or not is_settled(key, complete=sealed):
                    return None
                condition, _ = yield from conditions.look(file, key, past_cache=True)
            finally:
                file.close()
            self.report.pass_files += 1
            self.report.unverified += condition is Condition.UNKNOWN
            # a file that was removed meanwhile is not damaged
            if condition is Condition.DAMAGED and _exists(directories, key):
                return _Damage(key, conditions.large(key))
        return None

    TABLE = table(
        ScrubberState,
        ScrubberEvent,
        {
            (_S.WAITING, _E.BEGIN): To(_S.READING, _begin),
            (_S.READING, _E.READ): To(_S.RESTING, _rest),
            (_S.READING, _E.FOUND): To(_S.REPAIRING, _repair),
            (_S.READING, _E.PASS_ENDED): To(_S.WAITING, _end_pass),
            (_S.READING, _E.FAILED): To(_S.WAITING, _fail),
            (_S.RESTING, _E.RESTED): To(_S.READING, _read),
            (_S.REPAIRING, _E.REPAIRED): To(_S.READING, _repaired),
            (_S.WAITING, _E.CLOSE): To(_S.CLOSED, _close),
            (_S.READING, _E.CLOSE): To(_S.CLOSED, _close),
            (_S.RESTING, _E.CLOSE): To(_S.CLOSED, _close),
            (_S.REPAIRING, _E.CLOSE): To(_S.CLOSED, _close),
            (_S.CLOSED, _E.READ): IGNORED,
            (_S.CLOSED, _E.FOUND): IGNORED,
            (_S.CLOSED, _E.REPAIRED): IGNORED,
            (_S.CLOSED, _E.PASS_ENDED): IGNORED,
            (_S.CLOSED, _E.FAILED): IGNORED,
            (_S.CLOSED, _E.CLOSE): IGNORED,
        },
        otherwise={
            _E.BEGIN: ILLEGAL,
            _E.READ: ILLEGAL,
            _E.RESTED: ILLEGAL,
            _E.FOUND: ILLEGAL,
            _E.REPAIRED: ILLEGAL,
            _E.PASS_ENDED: ILLEGAL,
            _E.FAILED: ILLEGAL,
        },
    )


def _exists(directories: StoreDirectories, key: Key) -> bool:
    try:
        return key in list_store(directories.disk, directories)
    except StoreError:
        return True
