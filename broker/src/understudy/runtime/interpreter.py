"""How the Python interpreter is set in a server process: its collector of cycles and its change of threads.

What the hot path makes (messages, references, tuples that wait) has no cycles, and closed connections break theirs:
reference counts free both. The collector only has to find what errors leave behind, yet with its defaults it walks
everything every few hundred messages: half of the broker's time with 100,000 messages in memory. So what start-up
made is left out for good, and the rest is looked at seldom: by the number of objects, and by memory (``Collector``),
because a few objects can hold many megabytes.

The journal's thread needs the interpreter for a moment when a sync has ended, and a busy loop gives it up by default
only every 5 ms: longer than the sync. Figures: ADR 0015, ADR 0023.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from typing import Final

#: Net new objects before the youngest are looked at; a walk of that many takes one or two milliseconds.
YOUNGEST: Final = 50_000
#: Walks of a younger generation per walk of the next.
MIDDLE: Final = 20
OLDEST: Final = 50
#: How long a thread that wants to run waits for the one that runs.
SWITCH_SECONDS: Final = 0.0001
#: How often resident memory is looked at.
CHECK_SECONDS: Final = 5.0
#: Growth of resident memory since the last full collection that asks for the next one: this many bytes, or this
#: share of it, whichever is more. A full collection of 200,000 objects takes 55 ms.
GROWTH_BYTES: Final = 64 * 1024 * 1024
GROWTH_SHARE: Final = 0.25


def start_up() -> None:
    """Until ``settle`` nothing looks for cycles: a start makes what stays, and walking all of it again for every few
    hundred new objects took more than half of a start with 50,000 queues.
    """
    gc.disable()


def settle() -> None:
    """Once, when start-up is over: what exists now stays."""
    keep_what_exists()
    gc.enable()
    gc.set_threshold(YOUNGEST, MIDDLE, OLDEST)
    sys.setswitchinterval(SWITCH_SECONDS)


def keep_what_exists() -> None:
    """The collector does not look at it any more, garbage included: looking for that first would hold
    up all connections, and there is little.
    """
    gc.freeze()


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


class Collector:
    """Runs a full collection of cycles whenever resident memory has grown by ``GROWTH_BYTES`` or ``GROWTH_SHARE``.

    Args:
        loop: Runs the check.
        resident: Resident memory now, in bytes.
        collect: A full collection.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        resident: Callable[[], int] = resident_bytes,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._loop = loop
        self._resident = resident
        self._collect = collect
        self._timer: asyncio.TimerHandle | None = None
        self._limit_bytes = 0

    def start(self) -> None:
        """Check now, without a collection, and then every ``CHECK_SECONDS``."""
        self._limit_bytes = _limit(self._resident())
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def stop(self) -> None:
        """Check no more. Does nothing when it was not started."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        resident = self._resident()
        if resident > self._limit_bytes:
            self._collect()
            self._limit_bytes = _limit(self._resident())
        else:
            # memory that was given back may be taken again without a collection only once
            self._limit_bytes = min(self._limit_bytes, _limit(resident))
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)


def _limit(resident: int) -> int:
    return resident + max(GROWTH_BYTES, int(resident * GROWTH_SHARE))
