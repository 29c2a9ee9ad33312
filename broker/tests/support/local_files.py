"""A worker whose jobs are carried out by the test, and the file of an activation sequence in memory."""

from __future__ import annotations

from collections.abc import Callable

from understudy.errors import BrokerError
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.replication.given_promise import GivenPromise
from understudy.ports import Worker
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.disk import SimVolume

_Done = Callable[[BaseException | None], None]


class StepWorker(Worker):
    """Jobs wait until the test takes their next step: work, then done."""

    def __init__(self, *, immediate: bool = False) -> None:
        self.jobs: list[tuple[Callable[[], None] | None, _Done, BaseException | None]] = []
        self.immediate = immediate

    def run(self, work: Callable[[], None], done: _Done) -> None:
        self.jobs.append((work, done, None))
        if self.immediate:
            self.step()
            self.step()

    def step(self) -> None:
        """Carry out the work of the first job, or call its ``done``."""
        work, done, error = self.jobs.pop(0)
        if work is None:
            done(error)
            return
        try:
            work()
        except (BrokerError, OSError) as failure:
            error = failure
        self.jobs.insert(0, (None, done, error))

    def close(self) -> None:
        self.jobs.clear()


def local_sequence(value: int | None = None, volume: SimVolume | None = None) -> tuple[LocalSequence, SimVolume]:
    """A sequence with this number in a directory in memory, whose writes succeed at once."""
    volume = volume or SimVolume()
    disk = volume.disk("host")
    disk.make_directory("/locks")
    local = LocalSequence(disk, "/locks", StepWorker(immediate=True))
    if value is not None:
        local.write(value, lambda error: None)
    return local, volume


def given_promise(time: ManualTime, volume: SimVolume | None = None, worker: Worker | None = None) -> GivenPromise:
    """The promise of a replica whose process starts now, with its note in a directory in memory."""
    disk = (volume or SimVolume()).disk("host")
    disk.make_directory("/locks")
    return GivenPromise(disk, "/locks", worker or StepWorker(immediate=True), time, time)
