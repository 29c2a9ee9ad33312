"""Runs one case on a loop of asyncio, of uvloop, and of the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

from support.epoll_streams import EpollStreams
from support.operations import FileApplier, Written
from support.ports import free_port
from understudy.ports import Clock, Disk, Fence, HoldableLogWriter, Streams, Timers, Worker
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.environment import LoopTimers, SystemClock
from understudy.runtime.base.journal_writer import ThreadLogWriter
from understudy.runtime.base.turn import Turn
from understudy.runtime.base.worker import ThreadWorker
from understudy.runtime.net.streams import LoopStreams
from understudy.testing.sim.disk import SimVolume
from understudy.testing.sim.environment import SimClock, SimTimers, Skew
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.network import SimNetwork
from understudy.testing.sim.storage import ObservedLogWriter, ObservedWorker
from understudy.testing.sim.writer import SimLogWriter, SimWorker

LOOPS: Final = ("asyncio", "uvloop", "simulated")
#: The readers of accepted sockets: those of the loops, and one that is none.
READERS: Final = (*LOOPS, "epoll")
#: A case that waits for something for longer has failed; seconds, virtual ones in the simulation.
WAIT_S: Final = 20


@dataclass
class Place:
    """The ports of one kind, on the loop that runs."""

    loop: asyncio.AbstractEventLoop
    host: str
    port: int
    """Nothing listens there."""
    disk: Disk
    directory: str
    clock: Clock
    timers: Timers
    turn: Turn
    streams: Callable[[], Streams] = LoopStreams

    def log_writer(self, file: Written | None = None, fence: Fence | None = None) -> HoldableLogWriter:
        """A log writer of this kind, whose batches go to a file."""
        applier = FileApplier(file)
        if isinstance(self.loop, SimLoop):
            inner = SimLogWriter(self.timers, self.loop.random("writer"), applier)
            return ObservedLogWriter(inner, self.loop, self.turn, fence or Permission(), lambda at_s: None)
        return ThreadLogWriter(self.loop, self.turn, applier, fence=fence)

    def worker(self) -> Worker:
        """A worker of this kind."""
        if isinstance(self.loop, SimLoop):
            return ObservedWorker(SimWorker(self.timers, self.loop.random("worker")), self.turn)
        return ThreadWorker(self.loop, self.turn)


class Permission:
    """A fence that permits everything. Implements ``ports.Fence``."""

    proved_until_ms = 1 << 60
    proved_at_ms = None

    def why_not_confirm(self) -> BaseException | None:
        """None."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


def run(kind: str, directory: Path, case: Callable[[Place], Awaitable[None]]) -> None:
    """Run a case with the ports of a kind."""
    if kind == "simulated":
        _simulate(case)
        return
    loop = uvloop.new_event_loop() if kind == "uvloop" else asyncio.new_event_loop()
    timers = LoopTimers(loop)
    place = Place(loop, "127.0.0.1", free_port(), RealDisk(), str(directory), SystemClock(), timers, Turn(loop, timers))
    if kind == "epoll":
        place.streams = EpollStreams
    try:
        loop.run_until_complete(_awaited(case(place)))
    finally:
        loop.close()


def _simulate(case: Callable[[Place], Awaitable[None]]) -> None:
    for seed in range(5):
        loop = SimLoop(seed)
        SimNetwork(loop).add_host("here")
        process = loop.new_process("here")
        timers = SimTimers(loop, Skew())
        volume = SimVolume()
        volume.disk("here").make_directory("/directory")
        clock = SimClock(loop, Skew())
        turn = Turn(loop, timers, lambda clock=clock: clock.monotonic_ms() * 1_000_000)  # type: ignore[misc]
        place = Place(loop, "here", 61616, volume.disk("here"), "/directory", clock, timers, turn)
        task = process.create_task(_awaited(case(place)))
        try:
            loop.run_until(task.done, deadline=10 * WAIT_S)
            task.result()
            assert loop.failures == []
        finally:
            loop.close()


def _awaited(case: Awaitable[None]) -> Coroutine[Any, Any, None]:
    async def main() -> None:
        await case

    return main()
