"""A seeded asyncio loop with virtual time, and the processes that live and die on it.

Stock asyncio code (tasks, futures, queues, timeouts, task groups, plain protocols) runs unchanged.
Differences to a real loop:

- **Time is virtual.** ``loop.time()`` starts at 0 and jumps to the next timer when nothing is
  ready; running a callback takes no time. There is no wall clock and no randomness except
  ``loop.random(name)``, a stream per purpose derived from the seed.
- **Order is drawn from the seed.** Handles that are ready together are merged at random. Each
  handle belongs to the task (or connection) whose context it was created in; handles of one
  such *strand* keep their order, as asyncio promises, everything else interleaves freely. Strands
  are numbered by a context variable in order of creation and sorted before the draw, because a
  ``set`` of tasks (``TaskGroup`` keeps one) is iterated in the order of addresses, which differs
  between processes.
- **Every handle belongs to a process** (one incarnation of a node, a client, or None: the world
  that directs the run), again by a context variable, so whatever a process starts is its own.
  ``SimProcess.kill`` makes the loop skip all its handles, timers and task steps from that moment
  on, like SIGKILL. ``pause`` keeps them back until ``resume``, like SIGSTOP.
- **The dead have no effects.** The tasks of a killed process are neither cancelled nor collected
  while the loop lives: the loop keeps a reference, so no ``finally`` block, ``GeneratorExit`` or
  ``__del__`` of theirs runs. Garbage collection of cycles is off while the loop runs (its moments
  are not reproducible). When the loop is closed, after the run was judged, the coroutines are
  closed and whatever they try then meets a closed loop. A process killed in the middle of a
  callback (a disk operation can do that) unwinds by ``ProcessKilled``; the simulated disk, lock
  and network refuse a dead process, so the ``finally`` blocks on the way reach nothing.

Not simulated and refused loudly: executors and threads, datagrams, Unix sockets, subprocesses,
TLS. TCP is in ``sim_network``, storage in ``sim_disk``.

Uses the private parts ``_ready``, ``_scheduled``, ``_run_once`` and ``Handle._context`` of CPython's
asyncio; ``tests/simulation/test_sim_loop.py`` checks them on every supported version.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import heapq
import random
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum
from types import FunctionType, MethodType
from typing import Any, Final, NoReturn, TypeVar, cast

from understudy.dataclass import dataclass
from understudy.testing.sim.handles import SimHandle, SimTimerHandle
from understudy.testing.sim.trace import Trace

T = TypeVar("T")

#: Number of handles at one virtual instant above which the run counts as livelocked.
STEPS_PER_INSTANT_MAX: Final = 500_000
#: Cancelled timers kept in the heap before it is rebuilt without them.
_CANCELLED_TIMERS_MAX: Final = 256
#: Awaits in ``finally`` blocks that are cut off when a coroutine is closed.
_BURY_ATTEMPTS: Final = 100

_PROCESS: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar("sim_process", default=None)
_STRAND: contextvars.ContextVar[int] = contextvars.ContextVar("sim_strand", default=0)


def with_strand(context: contextvars.Context, loop: SimLoop) -> contextvars.Context:
    """Copy of a context with a strand of its own for the calls made from it."""
    context.run(_STRAND.set, loop.next_strand())
    return context


class SimulationStuck(Exception):
    """The run cannot go on: nothing is ready and no timer is set, or time does not advance."""


class ProcessKilled(BaseException):
    """Unwinds the callback during which its own process was killed.

    A BaseException, so that no ``except Exception`` of the simulated program stops it.
    """


class Death(Enum):
    """The kind of end of a process."""

    EXITED = "exited"
    """The process has ended by itself; for the others the same as KILLED."""

    KILLED = "killed"
    """SIGKILL: the kernel lives, closes sockets and drops locks at once; written pages survive."""
    POWER_LOST = "power-lost"
    """The whole host loses its power: peers get no packet, unsynced data is lost."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Something no correct run contains: an exception that reached the loop."""

    time: float
    """Virtual time of the failure in seconds."""
    process: str
    """Name of the process, or ``world``."""
    message: str
    exception: BaseException | None

    def __str__(self) -> str:
        cause = f": {type(self.exception).__name__}: {self.exception}" if self.exception else ""
        return f"{self.time:.6f} {self.process}: {self.message}{cause}"


class SimProcess:
    """One incarnation of a simulated process: what starts in its context lives and dies with it."""

    def __init__(self, loop: SimLoop, name: str, host: str, incarnation: int) -> None:
        self.name = name
        """Name of the process, which a restart keeps."""
        self.host = host
        """Name of the machine; network and power faults act on it."""
        self.incarnation = incarnation
        """Counts the starts of this name, from 1."""
        self.label = f"{name}.{incarnation}"
        self.alive = True
        self.paused = False
        self.resumed_s = -1.0
        """Virtual time of the last ``resume``."""
        self.death: Death | None = None
        self._loop = loop
        self._deferred: list[asyncio.Handle] = []
        self._on_death: list[Callable[[Death], None]] = []

    def __repr__(self) -> str:
        return f"<SimProcess {self.label}>"

    def new_context(self) -> contextvars.Context:
        """A context whose handles belong to this process, with a strand of its own."""
        context = contextvars.Context()
        context.run(_PROCESS.set, self)
        context.run(_STRAND.set, self._loop.next_strand())
        return context

    def create_task(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine as part of this process."""
        return self._loop.create_task(coroutine, context=self.new_context())

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call at once, in this process."""
        return self.new_context().run(function, *arguments)

    def on_death(self, callback: Callable[[Death], None]) -> None:
        """Call when the process is killed, in order of registration, from the killer's context."""
        self._on_death.append(callback)

    def kill(self, death: Death = Death.KILLED) -> None:
        """End it now: nothing of it ever runs again. Harmless when it is dead already."""
        if not self.alive:
            return
        self.alive = False
        self.death = death
        self._deferred.clear()
        self._loop.record(f"{self.label} {death.value}")
        for callback in self._on_death:
            callback(death)

    def pause(self) -> None:
        """Run nothing of it until ``resume``; its sockets and disk go on (they are the kernel's)."""
        if self.alive and not self.paused:
            self.paused = True
            self._loop.record(f"{self.label} paused")

    def resume(self) -> None:
        """Run again, beginning with callbacks that became ready meanwhile."""
        if not self.paused:
            return
        self.paused = False
        self.resumed_s = self._loop.time()
        self._loop.record(f"{self.label} resumed")
        self._loop.add_ready(self._deferred)
        self._deferred = []

    def check_alive(self) -> None:
        """Called by simulated devices before any effect.

        Raises:
            ProcessKilled: this process is dead.
        """
        if not self.alive:
            raise ProcessKilled(self.label)

    def defer(self, handle: asyncio.Handle) -> None:
        """Keep a handle back until ``resume``."""
        self._deferred.append(handle)


class SimLoop(asyncio.BaseEventLoop):
    """The event loop of one simulation; ``seed`` determines every choice."""

    _closed: bool
    _ready: deque[SimHandle | SimTimerHandle]
    _scheduled: list[tuple[float, int, SimTimerHandle]]
    """A heap. Timers that are due together are taken in order of creation, as on a real clock, whose readings never
    tie."""
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, seed: int, *, write_trace: Callable[[str], object] | None = None) -> None:
        """
        Args:
            seed: decides everything that is open.
            write_trace: takes the trace as text lines, for people; it does not change the run.
        """
        super().__init__()
        self.seed = seed
        self.trace = Trace(write_trace)
        self.failures: list[Failure] = []
        """Unhandled exceptions; a judge treats any as a failed run."""
        self.steps = 0
        """Number of handles that have run."""
        self._now = 0.0
        self._order = self.random("order")
        self._strands = 0
        self._timers = 0
        self._steps_at_instant = 0
        self._incarnations: dict[str, int] = {}
        self._processes: list[SimProcess] = []
        self._tasks: list[tuple[asyncio.Task[Any], SimProcess | None]] = []
        self._tasks_prune_at = 256
        self._current: SimProcess | None = None
        self.network: Any = None
        """The ``SimNetwork`` that ``create_server`` and ``create_connection`` use, once there is one."""
        self.set_debug(False)
        self.set_task_factory(cast(Any, self._new_task))

    # --- randomness, processes, trace ----------------------------------------------------------

    def random(self, purpose: str) -> random.Random:
        """A stream of its own for each purpose: a new draw in one does not shift the others."""
        return random.Random(f"{self.seed}/{purpose}")

    def new_process(self, name: str, host: str = "") -> SimProcess:
        """The next incarnation of ``name``, on ``host`` (default: a host of the same name)."""
        incarnation = self._incarnations.get(name, 0) + 1
        self._incarnations[name] = incarnation
        process = SimProcess(self, name, host or name, incarnation)
        self._processes = [known for known in self._processes if known.alive] + [process]
        self.record(f"{process.label} starts on {process.host}")
        return process

    def processes_on(self, host: str) -> list[SimProcess]:
        """The living processes on a host, oldest first."""
        return [process for process in self._processes if process.alive and process.host == host]

    def next_strand(self) -> int:
        """A number for something whose handles keep their order among themselves."""
        self._strands += 1
        return self._strands

    def record(self, event: str) -> None:
        """Add an event to the trace."""
        self.trace.record(self._now, event)

    @staticmethod
    def current_process() -> SimProcess | None:
        """The process whose code is running; None for the world."""
        return _PROCESS.get()

    # --- what asyncio asks of a loop -----------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the start of the run."""
        return self._now

    def call_soon(  # type: ignore[override]  # no types of extra arguments
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedule a call like asyncio's; calls of several strands are ordered by the seed."""
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]  # private in asyncio
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # no types of extra arguments
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a call like asyncio's, in virtual seconds; calls due at the same moment are ordered by the seed."""
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]  # private in asyncio
        self._timers += 1
        timer = SimTimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, self._timers, timer))
        return timer

    def call_later(  # type: ignore[override]  # no types of extra arguments
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a call like asyncio's, in virtual seconds."""
        when = self._now + delay if delay > 0.0 else self._now
        return self.call_at(when, callback, *args, context=context)

    def _new_task(
        self,
        loop: SimLoop,
        coroutine: Coroutine[Any, Any, Any],
        *,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        if context is None:
            context = contextvars.copy_context()
        # also when the context is the caller's: he gave it away, and each task needs its own number
        context.run(_STRAND.set, self.next_strand())
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context, **options)
        self._tasks.append((task, context.get(_PROCESS)))
        if len(self._tasks) > self._tasks_prune_at:
            self._tasks = [entry for entry in self._tasks if not entry[0].done()]
            self._tasks_prune_at = max(256, 2 * len(self._tasks))
        return task

    def add_ready(self, handles: list[asyncio.Handle]) -> None:
        """Make handles ready that were kept back."""
        self._ready.extend(cast(Any, handles))

    def _write_to_self(self) -> None:
        """Do nothing: only one thread exists, so no call has to wake the loop."""

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: the loop has no selector."""

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Listen on the simulated network; see ``SimNetwork.listen``."""
        return self._need_network().listen(protocol_factory, host, port, **options)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect through the simulated network; see ``SimNetwork.connect``."""
        return await self._need_network().connect(protocol_factory, host, port, **options)

    def _need_network(self) -> Any:
        if self.network is None:
            raise RuntimeError("this loop has no SimNetwork")
        return self.network

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]  # no types of extra arguments
        """Refused: a thread's actions do not depend on the seed."""
        raise NotImplementedError("the simulation has no threads: give the code a port instead of an executor")

    async def create_datagram_endpoint(self, *args: Any, **options: Any) -> NoReturn:
        """Refuse to make an endpoint: the simulation has no datagrams."""
        raise NotImplementedError("the simulation has no datagrams")

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> NoReturn:
        """Refused: names are resolved by ``create_connection``."""
        raise NotImplementedError("the simulation resolves names in create_connection only")

    # --- running -------------------------------------------------------------------------------

    def run_until(self, condition: Callable[[], bool] | None = None, *, deadline: float) -> bool:
        """Run until the condition holds (asked once per turn) or virtual time reaches ``deadline``.

        Returns:
            Whether the condition held. Without one, False at the deadline.

        Raises:
            SimulationStuck: nothing is ready, no timer is set and the condition does not hold.
        """
        self._check_closed()  # type: ignore[attr-defined]  # private in asyncio
        with self._running():
            while True:
                if condition is not None and condition():
                    return True
                self._drop_dead_timers()
                if not self._ready and (not self._scheduled or self._scheduled[0][0] > deadline):
                    if condition is None or self._scheduled:
                        self._now = max(self._now, deadline)
                        return False
                    raise SimulationStuck(self._describe_stuck())
                self._turn()

    def run_until_complete(self, future: Any) -> Any:
        """Run like asyncio's, with the garbage collector off, so that its runs do not depend on when it collects."""
        with _collection_off():
            return super().run_until_complete(future)

    @contextmanager
    def _running(self) -> Iterator[None]:
        if events._get_running_loop() is not None:
            raise RuntimeError("another loop runs in this thread")
        events._set_running_loop(self)
        try:
            with _collection_off():
                yield
        finally:
            events._set_running_loop(None)

    def _run_once(self) -> None:
        self._drop_dead_timers()
        self._turn()

    def _turn(self) -> None:
        """Run one turn of the loop, after dropping the timers that will never run."""
        ready = self._ready
        if not ready:
            if not self._scheduled:
                if self._stopping:
                    return
                raise SimulationStuck(self._describe_stuck())
            if not self._stopping:
                self._advance(self._scheduled[0][0])
        self._take_due_timers()
        # most turns have one handle
        for handle in (ready.popleft(),) if len(ready) == 1 else self._draw_order():
            if handle._cancelled:
                continue
            context = handle._context
            process = context.get(_PROCESS)
            if process is None:
                label = "-"
            elif not process.alive:
                continue
            elif process.paused:
                process.defer(handle)
                continue
            else:
                label = process.label
            self._current = process
            self.steps += 1
            self._steps_at_instant += 1
            self.trace.record(self._now, f"{label} {context.get(_STRAND, 0)} {_name_of(handle._callback)}")
            handle._run()
        self._current = None
        if self._steps_at_instant > STEPS_PER_INSTANT_MAX:
            raise SimulationStuck(f"{STEPS_PER_INSTANT_MAX} steps without time passing at {self._now:.6f} s")

    def _advance(self, when: float) -> None:
        if when > self._now:
            self._now = when
            self._steps_at_instant = 0

    def _take_due_timers(self) -> None:
        scheduled, now = self._scheduled, self._now
        while scheduled and scheduled[0][0] <= now:
            timer = heapq.heappop(scheduled)[2]
            timer._scheduled = False
            self._ready.append(timer)

    def _drop_dead_timers(self) -> None:
        """Drop cancelled timers and those of dead processes, which neither run nor move the time."""
        if self._timer_cancelled_count > _CANCELLED_TIMERS_MAX:
            alive = []
            for entry in self._scheduled:
                if _is_void(entry[2]):
                    entry[2]._scheduled = False
                else:
                    alive.append(entry)
            heapq.heapify(alive)
            self._scheduled = alive
            self._timer_cancelled_count = 0
        scheduled = self._scheduled
        while scheduled and _is_void(scheduled[0][2]):
            timer = heapq.heappop(scheduled)[2]
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1

    def _draw_order(self) -> list[SimHandle | SimTimerHandle]:
        """The ready handles: order within a strand kept, strands merged at random."""
        handles = list(self._ready)
        self._ready.clear()
        strands: dict[int, list[SimHandle | SimTimerHandle]] = {}
        for handle in handles:
            strands.setdefault(handle._context.get(_STRAND, 0), []).append(handle)
        if len(strands) < 2:
            return handles
        turns = [number for number in sorted(strands) for _ in strands[number]]
        self._order.shuffle(turns)
        queues = {number: iter(queue) for number, queue in strands.items()}
        return [next(queues[number]) for number in turns]

    def _describe_stuck(self) -> str:
        waiting = [
            (task, process) for task, process in self._tasks if not task.done() and (process is None or process.alive)
        ]
        lines = [f"nothing is ready and no timer is set at {self._now:.6f} s; {len(waiting)} tasks wait"]
        for task, process in waiting[:20]:
            coroutine = cast(Any, task.get_coro())
            frame = getattr(coroutine, "cr_frame", None)
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"
            lines.append(f"  {process.label if process else 'world'} {coroutine.__qualname__} at {place}")
        return "\n".join(lines)

    # --- failures and the end ------------------------------------------------------------------

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Collect an unhandled exception, unless its process was killed."""
        exception = context.get("exception")
        process = self._current
        if isinstance(exception, ProcessKilled) or self.is_closed():
            return
        if process is not None and not process.alive:
            return
        label = process.label if process is not None else "world"
        self.record(f"failure in {label}: {type(exception).__name__ if exception else context['message']}")
        self.failures.append(Failure(self._now, label, context["message"], exception))

    def close(self) -> None:
        """End the run. Coroutines that still wait are closed, and reach nothing any more."""
        if self.is_closed():
            return
        super().close()
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            for task, _ in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # private in asyncio
                    _bury(task.get_coro())
            self._tasks.clear()
        finally:
            sys.unraisablehook = hook


def _is_void(timer: SimTimerHandle) -> bool:
    """Whether a timer was cancelled, or its process is dead."""
    if timer._cancelled:
        return True
    process = timer._context.get(_PROCESS)
    return process is not None and not process.alive


def _name_of(callback: Any) -> str:
    """The name of a callback in the trace; that of its coroutine for a step of a task."""
    kind = type(callback)
    if kind is not MethodType and kind is not FunctionType:
        while isinstance(callback, functools.partial):
            callback = callback.func
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            callback = owner.get_coro()
    name = getattr(callback, "__qualname__", None)
    return name if type(name) is str else type(callback).__name__


def _bury(coroutine: Any) -> None:
    """Close a coroutine that will never be resumed, from the innermost await outwards, so that what
    its ``finally`` blocks raise against the closed loop is dropped here and not at some collection.
    """
    for _ in range(_BURY_ATTEMPTS):
        innermost, inner = coroutine, coroutine
        while inner is not None:
            if getattr(inner, "cr_frame", None) is not None:
                innermost = inner
            inner = getattr(inner, "cr_await", None)
        try:
            innermost.close()
        except BaseException:
            # an error after the run was judged has no effect
            continue
        if getattr(coroutine, "cr_frame", None) is None:
            return


@contextmanager
def _collection_off() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
