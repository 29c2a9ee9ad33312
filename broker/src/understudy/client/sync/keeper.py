"""The thread that looks after the connections at which no thread waits, one for each process (ADR 0043).

It reads what arrives for them, keeps their timers (pings, time limits, the pauses of a failover), and writes what calls
that do not wait have left. A connection at which threads wait is left to them: its socket is taken out of the keeper's
poll when it becomes ready, and put back after ``_TICK_MS`` to twice as much without a waiting thread.

Order of locks: that of a connection first; the keeper holds none of its own while it takes one.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Any, Final, Protocol

from understudy.client.sync.waiting import NEVER_MS

_log = logging.getLogger("understudy.client")
#: Between two looks at connections that threads have waited at lately, milliseconds.
_TICK_MS: Final = 100.0
#: Before another look at a connection whose lock another thread holds, seconds.
_BUSY_S: Final = 0.002


class Care:
    """The state that keeper and connection share; guarded by the connection's lock."""

    __slots__ = ("asked", "attended", "expects", "until_ms", "watched")

    def __init__(self) -> None:
        self.asked = False
        """The keeper was asked to come, and has not come yet."""
        self.attended = False
        """A thread has waited since the last look."""
        self.expects = False
        """An answer is expected for which no thread waits."""
        self.until_ms = NEVER_MS
        """The keeper comes at this moment at the latest; ``NEVER_MS``: a thread that leaves has to ask."""
        self.watched: int | None = None
        """The descriptor in the keeper's poll."""


class Kept(Protocol):
    """A connection as the keeper sees it."""

    lock: Any
    care: Care

    def __enter__(self) -> Any: ...

    def __exit__(self, *raised: Any) -> None: ...

    @property
    def waited_at(self) -> bool:
        """Whether a thread waits."""
        ...

    @property
    def timer_ms(self) -> float:
        """The next timer."""
        ...

    @property
    def polled(self) -> tuple[int, int] | None:
        """Descriptor and events to poll for; None without a socket."""
        ...

    def work(self) -> None:
        """Do all work that needs no wait."""
        ...

    def at_exit(self) -> None:
        """The program ends: warn about a connection that was not closed, and end it."""
        ...

    def forked(self) -> None:
        """Called in the child of a fork: the connection belongs to the parent."""
        ...


class Keeper:
    """Looks after connections, on a daemon thread that starts with the first of them."""

    def __init__(self) -> None:
        self._links: set[Kept] = set()
        self._asked: deque[Kept] = deque()
        self._calls: deque[Callable[[], object]] = deque()
        self._poll = select.poll()
        self._watched: dict[int, Kept] = {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._poll.register(self._wake_read, select.POLLIN)
        self._next_ms = NEVER_MS
        self._later: set[Kept] = set()
        """Connections whose lock was held by another thread."""
        threading.Thread(target=self._run, name="understudy-client-keeper", daemon=True).start()

    # called by the connections, with their lock held

    def add(self, link: Kept) -> None:
        """Look after a new connection."""
        self._links.add(link)

    def remove(self, link: Kept) -> None:
        """The connection has ended."""
        self.unwatch(link)
        self._links.discard(link)

    def ask(self, link: Kept) -> None:
        """Come soon: something is to be written, or a timer is earlier than the keeper knows."""
        link.care.asked = True
        self._asked.append(link)
        self._wake()

    def unwatch(self, link: Kept) -> None:
        """Do not poll its socket."""
        watched, link.care.watched = link.care.watched, None
        if watched is not None:
            self._watched.pop(watched, None)
            self._poll.unregister(watched)

    # called from anywhere, in finalizers too

    def soon(self, call: Callable[[], object]) -> None:
        """Call on the keeper's thread."""
        self._calls.append(call)
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # the pipe is full of wake-ups

    # the thread

    def _run(self) -> None:
        while True:
            delay_ms = None
            if self._next_ms != NEVER_MS:
                delay_ms = min(max(0, ceil(self._next_ms - _now_ms())), 3_600_000)
            if self._later:
                # Not the poll: a socket that is ready would end it at once.
                time.sleep(_BUSY_S)
                delay_ms = 0
            for descriptor, _ in self._poll.poll(delay_ms):
                if descriptor == self._wake_read:
                    os.read(descriptor, 4096)
                else:
                    self._guarded(self._watched.get(descriptor), self._ready)
            while self._calls:
                self._call(self._calls.popleft())
            for link in tuple(self._later):
                self._later.discard(link)
                self._guarded(link, self._come)
            while self._asked:
                self._guarded(self._asked.popleft(), self._come)
            if self._next_ms <= _now_ms():
                self._next_ms = NEVER_MS
                for link in tuple(self._links):
                    self._guarded(link, self._look)

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            _log.exception("a connection that was never closed could not be ended")

    def _guarded(self, link: Kept | None, step: Callable[[Kept], None]) -> None:
        if link is None:
            return
        if not link.lock.acquire(blocking=False):
            # A thread is at it, perhaps for long (it reads a large body from a file): the others must not wait for it.
            self._later.add(link)
            return
        try:
            with link:
                step(link)
                self._next_ms = min(self._next_ms, link.care.until_ms)
        except Exception:
            # A defect of the client: the connection would stay as it is without end.
            _log.exception("an error while a connection without waiting threads was served")
            self._links.discard(link)
        finally:
            link.lock.release()

    def _ready(self, link: Kept) -> None:
        """Let a link whose socket is ready read and write."""
        if link.waited_at or link.care.attended:
            self.unwatch(link)
            self._look_again(link)
        else:
            link.work()
            self._keep(link)

    def _come(self, link: Kept) -> None:
        """The connection has asked for it."""
        care = link.care
        care.asked = False
        link.work()
        if care.expects and not link.waited_at:
            care.expects = False
            self._keep(link)
        elif care.attended or link.waited_at:
            self._look_again(link)
        else:
            self._keep(link)

    def _look(self, link: Kept) -> None:
        """The moment of a timer or a tick."""
        care = link.care
        if link.waited_at:
            care.until_ms = NEVER_MS  # the waiting threads do everything
            return
        link.work()
        if care.attended:
            care.attended = False
            self._look_again(link)
        else:
            self._keep(link)

    def _look_again(self, link: Kept) -> None:
        link.care.until_ms = min(_now_ms() + _TICK_MS, link.timer_ms)

    def _keep(self, link: Kept) -> None:
        """Poll its socket, and come again at its next timer."""
        polled = link.polled
        if polled is None or polled[0] != link.care.watched:
            self.unwatch(link)
        if polled is not None:
            link.care.watched = polled[0]
            self._watched[polled[0]] = link
            self._poll.register(*polled)
        # Not never: that would mean that a thread that leaves has to ask.
        link.care.until_ms = min(link.timer_ms, _now_ms() + 3_600_000)

    # the end of the process

    def at_exit(self) -> None:
        """Warn about connections that were not closed, and end them."""
        for link in tuple(self._links):
            link.at_exit()

    def forked(self) -> None:
        """Called in the child of a fork: the thread and the connections belong to the parent."""
        os.close(self._wake_read)
        os.close(self._wake_write)
        for link in tuple(self._links):
            link.forked()


def _now_ms() -> float:
    return time.monotonic() * 1000


_lock = threading.Lock()
_keeper: Keeper | None = None


def keeper() -> Keeper:
    """The keeper of this process, started if need be."""
    global _keeper
    with _lock:
        if _keeper is None:
            _keeper = Keeper()
        return _keeper


def _at_exit() -> None:
    if _keeper is not None:
        _keeper.at_exit()


def _after_fork() -> None:
    global _keeper, _lock
    _lock = threading.Lock()
    forked, _keeper = _keeper, None
    if forked is not None:
        forked.forked()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
