"""One turn of the loop: collect everything that is ready, then deliver, write and flush once.

Calls append to buffers and mark connections dirty; the shell flushes once per turn (ADR 0015). Bytes, finished
writes and timers ask for a turn; however many ask, one runs. So a thousand messages that arrive together cost one
journal batch and one write per socket.

The turn is also the only executor of the node: timers, log writers and workers hand it their completed calls
(``ports.Executor``), so that an error in it is reported and the node's work follows.

After a turn in which a sync ended the loop stays awake for a moment (``AWAKE_NS``): a client that waited for
it is about to send the next message, and putting the process to sleep and waking it costs more than the wait (ADR
0015). If no bytes come in that time, staying awake is only tried again now and then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from understudy.errors import BrokerError
from understudy.ports import Timer, Timers

log = logging.getLogger(__name__)

#: How long the loop polls without sleeping once a sync has ended within a turn.
AWAKE_NS: Final = 60_000
#: After this many polls in a row without bytes the loop sleeps at once,
IDLE_POLLS_MAX: Final = 16
#: and tries again after this many syncs.
SKIPPED_POLLS: Final = 256


class Flushable(Protocol):
    """A connection with something to write."""

    def flush(self) -> None:
        """Write the collected output to the socket."""
        ...

    def abort(self) -> None:
        """End the connection at once, without sending its output."""
        ...


class Pausable(Protocol):
    """A connection that is not read while the log is congested."""

    def congested(self) -> bool:
        """Whether the input of the connection must wait for the disk."""
        ...

    def resume_reading(self) -> None:
        """Read from the socket again."""
        ...


class Congestion(Protocol):
    """Measure of the bytes that wait for the disk: above a limit no socket is read."""

    @property
    def congested(self) -> bool:
        """Whether no client should be read."""
        ...


class Turn:
    """Runs ``work`` and the dirty connections' flush at most once per loop iteration.

    Implements ``ports.Executor`` and ``ports.Timers``.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timers: Timers, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """
        Args:
            loop: Where turns run.
            now_ns: Measures how long the loop stays awake.
        """
        self._loop = loop
        self.schedule: Callable[[], object] = partial(loop.call_soon, self._run)
        """Has a turn run in the next iteration of the loop; the caller sets ``scheduled`` first. ``request`` does both,
        at the cost of a call for each read."""
        self._timers = timers
        self._now_ns = now_ns
        self._awake = False
        self._awake_until_ns = 0
        self._idle_polls = 0
        """Number of turns in a row without bytes while the loop was awake."""
        self._polls_to_skip = 0
        """Syncs left after which the loop does not stay awake."""
        self.scheduled = False
        """A turn is about to run."""
        self._working = False
        """True in a turn before its flush: output marked now is written by it."""
        self._dirty: list[Flushable] = []
        self._completed: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.paused: dict[Pausable, None] = {}
        """Connections that are not read, in the order in which they were paused."""
        self.congestion: Congestion | None = None
        """Congestion of the log; None while there is none."""
        self.work: Callable[[bool], bool] | None = None
        """Delivers and hands batches to the journal; True when it wants another turn. It is called once per turn, and
        again, with True, when a sync has ended within it."""
        self.on_error: Callable[[BrokerError], None] | None = None
        """Called with an error that answers no request: the store cannot continue."""

    def request(self) -> None:
        """Have a turn run soon."""
        if not self.scheduled:
            self.scheduled = True
            self.schedule()

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call after the work of this turn, whose flush sends its results; or at the beginning of the next."""
        self._completed.append((call, args))
        if not self._working:
            self.request()

    def after_this(self, call: Callable[[], object]) -> None:
        """Call in the next iteration of the loop, after what its sockets bring until then."""
        self._loop.call_soon(call)

    def mark_dirty(self, connection: Flushable) -> None:
        """Called when the connection has buffered something since its last flush."""
        self._dirty.append(connection)
        if not self._working:
            self.request()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """A timer whose callback is followed by a turn; see ``ports.Timers``."""
        return self._timers.call_later(delay_ms, lambda: self.completed(callback))

    def completed(self, call: Callable[..., object], *args: object) -> None:
        """Call now and have a turn run soon; see ``ports.Executor``."""
        self.request()
        try:
            call(*args)
        except BrokerError as error:
            self.report(error)

    def report(self, error: BrokerError) -> None:
        """Give an error that answers no request to ``on_error``. Raises it when there is no ``on_error``."""
        if self.on_error is None:
            raise error
        self.on_error(error)

    def _run(self) -> None:
        self._working = True
        try:
            if self._completed:
                self._call_completed()
            self.scheduled = synced = False
            while True:
                work = self.work
                try:
                    if work is not None and work(synced):
                        self.request()
                except BrokerError as error:
                    self.report(error)
                if synced or not self._completed:
                    break
                # a sync has ended within this turn: the responses that it releases go out with the rest
                synced = True
                asked, self.scheduled = self.scheduled, True
                self._call_completed()
                self.scheduled = asked
            if synced and self._polls_to_skip and not self._awake:
                self._polls_to_skip -= 1
            elif synced:
                self._stay_awake()
            if self.paused:
                self._resume_paused()
        except BaseException:
            # a bug that answers no request: the rest of the work is for the next turn
            self.scheduled = False
            self.request()
            raise
        finally:
            self._working = False
            if self._completed:
                self.request()
            dirty, self._dirty = self._dirty, []
            for connection in dirty:
                try:
                    connection.flush()
                except Exception:
                    # a bug in one connection closes that connection only
                    log.exception("connection dropped: internal error")
                    connection.abort()

    def _call_completed(self) -> None:
        """Requests for a turn that come meanwhile are met by the work that follows."""
        waiting, self._completed = self._completed, []
        bug: Exception | None = None
        for call, args in waiting:
            try:
                call(*args)
            except Exception as error:  # an error prevents none of the other calls
                if isinstance(error, BrokerError) and self.on_error is not None:
                    self.on_error(error)
                else:
                    bug = bug or error
        if bug is not None:
            raise bug

    def _resume_paused(self) -> None:
        """Read again, except where a large message is still being written; called when the journal has caught up."""
        if self.congestion is not None and self.congestion.congested:
            return
        for connection in [each for each in self.paused if not each.congested()]:
            del self.paused[connection]
            connection.resume_reading()

    def _stay_awake(self) -> None:
        if self._awake:
            # a sync after the last one means that bytes have arrived
            self._idle_polls = 0
        self._awake_until_ns = self._now_ns() + AWAKE_NS
        if not self._awake:
            self._awake = True
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        """A loop that has something to call does not wait for its sockets, it only looks at them."""
        if self._now_ns() < self._awake_until_ns:
            self._loop.call_soon(self._look_again)
            return
        self._awake = False
        self._idle_polls += 1
        if self._idle_polls >= IDLE_POLLS_MAX:
            self._polls_to_skip = SKIPPED_POLLS
