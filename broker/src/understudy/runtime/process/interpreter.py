"""Settings of the Python interpreter in a server process: garbage collector, thread switching and freed memory.

Objects of the hot path (messages, references, waiting tuples) have no cycles, and closed connections break theirs, so
reference counts free them. The collector is needed only for cycles left by errors, yet with its defaults it traverses
all objects every few hundred messages: half of the broker's time with 100,000 messages in memory. Therefore the objects
made by the start are excluded for good, and the rest is collected rarely: by the number of objects, and by memory
(``Collector``), because a few objects can hold many megabytes.

The thread of the journal needs the interpreter briefly when a sync has ended; a busy loop releases it by default
only every 5 ms, which is longer than the sync. Figures: ADR 0015, ADR 0023.

A batch for a replica, or what a passive node reads of the log, is a block of up to 8 MiB that is freed at once. The C
library gives such memory back to the kernel each time, which has to clear it again for the next block (ADR 0089).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from collections.abc import Callable
from typing import Final

#: Threshold of the youngest generation, in net new objects: a collection of that many takes about 0.5 ms, for which no
#: client is served (ADR 0215).
YOUNGEST: Final = 2_000
#: Collections of a younger generation per collection of the next.
MIDDLE: Final = 5
OLDEST: Final = 5_000
#: Interval in s at which Python lets another thread run.
SWITCH_SECONDS: Final = 0.0001
#: The C library keeps so many freed bytes at the end of its heap, and takes blocks of up to this size from there.
KEPT_BYTES: Final = 32 * 1024 * 1024
HEAP_BLOCK_BYTES_MAX: Final = 16 * 1024 * 1024
#: ``M_TRIM_THRESHOLD`` and ``M_MMAP_THRESHOLD`` of glibc's ``mallopt``.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
#: Period of the check of resident memory.
CHECK_SECONDS: Final = 5.0
#: Growth of resident memory since the last full collection that causes the next one: this many bytes, or this
#: share of it, whichever is more. A full collection of 200,000 objects takes 55 ms.
GROWTH_BYTES: Final = 64 * 1024 * 1024
GROWTH_SHARE: Final = 0.25


def start_up() -> None:
    """Disable the collector until ``settle``: a start creates objects that remain, and traversing all of them again for
    every few hundred new objects took more than half of a start with 50,000 queues.
    """
    gc.disable()


def settle() -> None:
    """Enable the collector at the end of the start; exclude the present objects."""
    keep_what_exists()
    gc.enable()
    gc.set_threshold(YOUNGEST, MIDDLE, OLDEST)
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next large block. Nothing with another one than glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # setting one of the two thresholds ends the automatic adjustment of both, so both are set
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX)


def keep_what_exists() -> None:
    """Exclude all present objects from collection, garbage included: collecting it first would block
    all connections, and there is little.
    """
    gc.freeze()


def resident_bytes() -> int:
    """Resident memory of this process; 0 if the kernel does not report it."""
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
        """Record the present size, and check every ``CHECK_SECONDS``."""
        self._limit_bytes = _limit(self._resident())
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def stop(self) -> None:
        """Stop checking. Does nothing if it was not started."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        resident = self._resident()
        if resident > self._limit_bytes:
            self._collect()
            self._limit_bytes = _limit(self._resident())
        else:
            # released memory may be allocated again without a collection only once
            self._limit_bytes = min(self._limit_bytes, _limit(resident))
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)


def _limit(resident: int) -> int:
    return resident + max(GROWTH_BYTES, int(resident * GROWTH_SHARE))
