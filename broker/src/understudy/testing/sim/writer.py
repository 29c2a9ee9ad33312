"""Log writers and workers of the simulation: jobs take seeded time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from understudy.errors import BrokerError
from understudy.ports import Operation, OperationApplier, Timer, Timers
from understudy.store.log.operations import is_batch

_Done = Callable[[BaseException | None], None]


class SimWorker:
    """Implements ``ports.Worker`` with seeded latency."""

    def __init__(self, timers: Timers, stream: random.Random, *, latency_ms_max: int = 5) -> None:
        """
        Args:
            timers: When steps happen.
            stream: How long each takes.
            latency_ms_max: Longest step.
        """
        self._timers = timers
        self._stream = stream
        self._latency_ms_max = latency_ms_max
        self._jobs: deque[tuple[list[Callable[[], None]], _Done]] = deque()
        self._timer: Timer | None = None
        self._closed = False

    def run(self, work: Callable[[], None], done: _Done) -> None:
        self._add([work], done)

    def close(self) -> None:
        self._closed = True

    def kill(self) -> None:
        """Stop everything: the process is dead."""
        self._closed = True
        self._jobs.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._jobs

    def _add(self, steps: list[Callable[[], None]], done: _Done) -> None:
        assert not self._closed, "log writer used after close"
        self._jobs.append((steps, done))
        if len(self._jobs) == 1:
            self._schedule()

    def _schedule(self) -> None:
        self._timer = self._timers.call_later(self._stream.randint(0, self._latency_ms_max), self._step)

    def _step(self) -> None:
        self._timer = None
        steps, done = self._jobs[0]
        error: BaseException | None = None
        try:
            steps.pop(0)()
        except (BrokerError, OSError) as failure:
            error = failure
        if error is None and steps:
            self._schedule()
            return
        self._jobs.popleft()
        if self._jobs:
            self._schedule()
        done(error)


class SimLogWriter(SimWorker):
    """Implements ``ports.LogWriter`` with seeded latency: write and sync of a batch are two steps, so that a crash can
    fall between them. All other operations of a submission are one step.
    """

    def __init__(
        self, timers: Timers, stream: random.Random, applier: OperationApplier, *, latency_ms_max: int = 5
    ) -> None:
        """Make a writer, like ``SimWorker``; the applier executes the operations."""
        super().__init__(timers, stream, latency_ms_max=latency_ms_max)
        self.applier = applier

    def submit(self, operations: Sequence[Operation], done: _Done) -> None:
        if is_batch(operations):
            self.submit_batch(operations, done)
        else:
            self._add([partial(self.applier.apply, operations)], done)

    def submit_batch(self, operations: Sequence[Operation], done: _Done) -> None:
        """Execute a batch of the log, one operation at a time."""
        self._add([partial(self.applier.apply, (operation,)) for operation in operations], done)
