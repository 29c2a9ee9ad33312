"""Critical analyzer: detects that the loop, or a thread that writes to the store, hangs, for instance on a disk.

Implements critical-analyzer of the manual. Each watched activity is a ``CriticalPath`` that records since when it
has been busy; one daemon thread checks all of them. It is a thread because the loop itself may hang (a
small batch is synced on it, ADR 0015), and it takes no lock and accesses no disk before it has decided.

Invariant: a process that was stopped and continued as a whole is not considered stuck: a path must still be stuck
after a second check.

Not here: whether the store is still ours. Nothing is confirmed without a recent proof of the lock, however long a
sync took (``ha.shared.policy``); the analyzer only ends a stuck node, so that its lock becomes free.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from understudy.config.model import CriticalAnalyzerPolicy
from understudy.runtime.base.logs import inheriting

log = logging.getLogger(__name__)

#: Delay of the second check of a stuck path, before the policy is applied.
SECOND_LOOK_MS: Final = 1_000
#: Longest time for logging the reason before the process ends: the log may be on the disk that hangs.
FAREWELL_MS: Final = 5_000
#: Exit code of a process ended by the analyzer: the node failed.
EXIT_CODE: Final = 1


class CriticalPath:
    """An activity that must not take long, and the time since which it is busy."""

    __slots__ = ("loop_since_ns", "name", "since_ns")

    def __init__(self, name: str) -> None:
        self.name = name
        """Name for the log."""
        self.since_ns = 0
        """Monotonic nanoseconds; 0 while idle. Set by the watched code, read by the analyzer."""
        self.loop_since_ns = 0
        """The same for a part of the activity that is begun and ended on the loop beside that on another thread."""

    def busy_since_ns(self) -> int:
        """Earliest of both; 0 if neither part is busy."""
        since_ns, loop_since_ns = self.since_ns, self.loop_since_ns
        return min(since_ns, loop_since_ns) or since_ns or loop_since_ns


class CriticalAnalyzer:
    """Watches the critical paths of a node from its own thread."""

    def __init__(
        self,
        paths: Sequence[CriticalPath],
        policy: CriticalAnalyzerPolicy,
        *,
        timeout_ms: int,
        check_period_ms: int = 0,
        shut_down: Callable[[str], None],
        halt: Callable[[int], object] = os._exit,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Nothing is watched before ``start``.

        Args:
            paths: Watched paths in addition to the loop; the list may grow.
            timeout_ms: critical-analyzer-timeout.
            check_period_ms: critical-analyzer-check-period; 0 is half of the timeout.
            shut_down: Stops the node, with a reason; called on the loop.
            halt: Ends the process.
            now_ns: The monotonic clock.
        """
        self._paths = paths
        self._policy = policy
        self._timeout_ns = timeout_ms * 1_000_000
        self._period_s = (check_period_ms or timeout_ms // 2) / 1000
        self._shut_down = shut_down
        self._halt = halt
        self._now_ns = now_ns
        self._loop_path = CriticalPath("the loop")
        self._stopped = threading.Event()
        """The event on which the thread waits between checks."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reported: dict[str, int] = {}
        """Paths already logged, by name, with the time since which they were stuck."""
        self._asked_ns: int | None = None
        """Time at which the node was requested to stop."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to watch, on another thread. Called on the loop."""
        self._loop = loop
        self._beat()
        threading.Thread(target=inheriting(self._watch), name="critical-analyzer", daemon=True).start()

    def stop(self) -> None:
        """Stop watching. Called on the loop."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def stuck(self, now_ns: int) -> dict[str, int]:
        """Names of the paths that are busy for longer than the timeout, with the time since which they are."""
        found = {}
        for path in (self._loop_path, *self._paths):
            since_ns = path.busy_since_ns()
            if since_ns and now_ns - since_ns > self._timeout_ns:
                found[path.name] = since_ns
        return found

    def act(self, found: dict[str, int], now_ns: int) -> None:
        """Apply the policy to the stuck paths, once per incident."""
        new = {name: since_ns for name, since_ns in found.items() if self._reported.get(name) != since_ns}
        self._reported.update(new)
        if new:
            self._say(new, now_ns)
        if self._policy is CriticalAnalyzerPolicy.HALT:
            self._halt(EXIT_CODE)
        elif self._policy is CriticalAnalyzerPolicy.SHUTDOWN:
            if self._asked_ns is None:
                self._asked_ns = now_ns
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._shut_down, f"stuck: {', '.join(found)}")
            elif now_ns - self._asked_ns > self._timeout_ns:
                # the hanging path prevents a clean stop, too
                self._halt(EXIT_CODE)

    def _beat(self) -> None:
        self._loop_path.since_ns = self._now_ns()
        assert self._loop is not None
        self._timer = self._loop.call_later(self._period_s / 2, self._beat)

    def _watch(self) -> None:
        while not self._stopped.wait(self._period_s):
            first = self.stuck(self._now_ns())
            if not first or self._stopped.wait(SECOND_LOOK_MS / 1000):
                continue
            now_ns = self._now_ns()
            found = {name: since_ns for name, since_ns in self.stuck(now_ns).items() if first.get(name) == since_ns}
            if found:
                self.act(found, now_ns)

    def _say(self, found: dict[str, int], now_ns: int) -> None:
        """Log on a separate thread, so that a log that hangs does not delay the policy."""
        seconds = {name: (now_ns - since_ns) // 1_000_000_000 for name, since_ns in found.items()}
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = "\n".join(
            f"--- {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
            for ident, frame in sys._current_frames().items()
        )

        def say() -> None:
            text = ", ".join(f"{name} for {since_s} s" for name, since_s in seconds.items())
            log.critical("stuck: %s (critical-analyzer-policy %s)\n%s", text, self._policy.value, stacks)

        saying = threading.Thread(target=inheriting(say), name="critical-analyzer-log", daemon=True)
        saying.start()
        saying.join(FAREWELL_MS / 1000)
