"""The threads that wait at one connection: one reads, the others follow; and how they are woken (ADR 0043).

All methods are called with the lock of the connection held, unless they say otherwise.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from math import ceil
from typing import Any, Final, Protocol

NEVER_MS: Final = float("inf")
_LONGEST_POLL_MS: Final = 3_600_000


class Outcome:
    """Outcome of a call of the core that one thread waits for."""

    __slots__ = ("_error", "_result", "_settled")

    def __init__(self) -> None:
        self._settled = False
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether there is an outcome, or no thread waits for it any more."""
        return self._settled

    def set_result(self, result: Any, /) -> None:
        """Called by the core."""
        self._settled, self._result = True, result

    def set_exception(self, exception: BaseException, /) -> None:
        """Called by the core."""
        self._settled, self._error = True, exception

    def abandon(self) -> None:
        """The thread has stopped waiting; the core cancels the call as far as possible."""
        self._settled = True

    def result(self) -> Any:
        """The result that the core has put in; an error is raised."""
        if self._error is not None:
            raise self._error
        return self._result


class CanWait(Protocol):
    """A connection at which a thread can wait."""

    def wait(self, done: Callable[[], bool], deadline_ms: float | None = None) -> None:
        """Serve the connection until ``done()`` is true or the deadline on the monotonic clock has passed."""
        ...


class Signal:
    """Wakes the threads that wait for a change."""

    def __init__(self, link: CanWait) -> None:
        self._link = link
        self._count = 0

    def set(self) -> None:
        """Something has changed: every thread that waits now is woken when the lock is released."""
        self._count += 1

    def wait(self, deadline_s: float | None = None) -> None:
        """Wait for the next ``set``, at most until a moment of ``Link.now_s``."""
        seen = self._count
        self._link.wait(lambda: self._count != seen, None if deadline_s is None else deadline_s * 1000)


class Turn:
    """One thread that waits."""

    __slots__ = ("_gate", "_open", "depth", "done")

    def __init__(self, done: Callable[[], bool], depth: int) -> None:
        self.done = done
        """Whether its wait is over."""
        self.depth = depth
        """How often the thread holds the lock."""
        self._gate = threading.Lock()
        self._gate.acquire()
        self._open = False

    def wake(self) -> None:
        """Let ``pause`` return, now or when it is called."""
        if not self._open:
            self._open = True
            self._gate.release()

    def pause(self, delay_s: float) -> bool:
        """Wait for ``wake``, -1 for any time; whether it came. Without the lock of the connection."""
        return self._gate.acquire(True, delay_s)

    def close(self, *, woken: bool) -> None:
        """End the turn, with the lock held again: the next ``pause`` waits for another ``wake``."""
        if self._open:
            self._open = False
            if not woken:
                self._gate.acquire(False)


class Waiters:
    """The waiting threads of one connection. At most one of them, the reader, polls the socket."""

    def __init__(self, lock: Any) -> None:
        """Args:
        lock: The connection's, a ``threading.RLock``.
        """
        self._lock = lock
        self._turns: list[Turn] = []
        self._reader: Turn | None = None
        self._poll = select.poll()
        self._polled: int | None = None
        self._polls_until_ms = 0.0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._polling = False
        """Whether the reader is in its poll, without the lock."""
        self._woken = False
        self._poll.register(self._wake_read, select.POLLIN)

    def __del__(self) -> None:
        self.dispose()

    def dispose(self) -> None:
        """Close the pipe that wakes the reader, when no thread waits any more."""
        reading, writing, self._wake_read, self._wake_write = self._wake_read, self._wake_write, -1, -1
        if reading >= 0:
            os.close(reading)
            os.close(writing)

    @property
    def disposed(self) -> bool:
        """Whether the descriptors are closed."""
        return self._wake_read < 0

    def __bool__(self) -> bool:
        """Whether a thread waits."""
        return bool(self._turns)

    @property
    def reading(self) -> bool:
        """Whether a thread polls the socket."""
        return self._reader is not None

    def watch(self, descriptor: int | None, events: int = select.POLLIN) -> None:
        """Let the reader poll this descriptor from now on; None for no socket."""
        if self._polled is not None and self._polled != descriptor:
            self._poll.unregister(self._polled)
        self._polled = descriptor
        if descriptor is not None:
            self._poll.register(descriptor, events)
        self.wake_reader()

    def wait(self, turn: Turn, deadline_ms: float | None, read: Callable[[float], None]) -> None:
        """Wait until the turn is done, or until the deadline.

        Args:
            deadline_ms: None for no deadline.
            read: Polls and reads once, at most until a moment, if this thread is the reader.
        """
        until_ms = NEVER_MS if deadline_ms is None else deadline_ms
        try:
            # Inside: an exception of a signal handler may come after each call, and the turn must not stay.
            self._turns.append(turn)
            while not turn.done() and time.monotonic() * 1000 < until_ms:
                if self._reader is None:
                    self._reader = turn
                    try:
                        read(until_ms)
                    finally:
                        self._reader = None
                else:
                    self._follow(turn, until_ms)
        finally:
            if turn in self._turns:
                self._turns.remove(turn)
            self._next_reader()

    def _next_reader(self) -> None:
        if self._turns and self._reader is None:
            self._turns[0].wake()

    def _follow(self, turn: Turn, until_ms: float) -> None:
        """Wait for the reader, without the lock."""
        delay_s = -1.0 if until_ms == NEVER_MS else min(max(0.0, until_ms / 1000 - time.monotonic()), 3600.0)
        woken: bool = self._unlocked(turn, lambda: turn.pause(delay_s))
        turn.close(woken=woken)

    def poll(self, until_ms: float) -> bool:
        """Called by the reader: wait for the socket, a wake-up or the moment, without the lock. Whether the socket has
        something.
        """
        left_ms = min(until_ms - time.monotonic() * 1000, _LONGEST_POLL_MS)
        delay_ms = None if until_ms == NEVER_MS else max(0, ceil(left_ms))
        self._polls_until_ms = until_ms
        reader = self._reader
        assert reader is not None, "only the reader polls"
        self._polling = True
        try:
            found: list[tuple[int, int]] = self._unlocked(reader, lambda: self._poll.poll(delay_ms))
        finally:
            self._polling = False
        ready = False
        for descriptor, _ in found:
            if descriptor == self._wake_read:
                self._woken = False
                os.read(descriptor, 64)
            else:
                ready = True
        return ready

    def _unlocked(self, turn: Turn, call: Callable[[], Any]) -> Any:
        """Release the lock, however often it is held, for one call; as ``threading.Condition.wait`` does."""
        held = (turn.depth, threading.get_ident())
        try:
            # Inside: an exception of a signal handler may come after each call.
            held = self._lock._release_save()
            turn.depth = held[0]
            return call()
        finally:
            try:
                if not self._lock._is_owned():
                    self._lock._acquire_restore(held)
            finally:
                # A signal handler may also raise between the question and the acquisition: its exception leaves this
                # method with the lock held, as every other one does.
                if not self._lock._is_owned():
                    self._lock._acquire_restore(held)

    def wake_ready(self, timer_ms: float) -> None:
        """Wake the threads whose wait is over, a thread to read, and the reader if a timer is earlier than it knows."""
        for turn in self._turns:
            if turn.done():
                if turn is self._reader:
                    self.wake_reader()
                else:
                    turn.wake()
        if timer_ms < self._polls_until_ms:
            self.wake_reader()  # nothing if it is not in its poll
        self._next_reader()

    def wake_reader(self) -> None:
        """Let the reader poll anew."""
        if self._polling and not self._woken:
            self._woken = True
            os.write(self._wake_write, b"\0")
