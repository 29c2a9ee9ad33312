"""One turn of the loop: collect everything that is ready, then deliver, write and flush once.

Calls append to buffers and mark things dirty; the shell flushes once per turn (ADR 0015).
Whatever wakes the node (bytes, a finished write, a timer) asks for a turn; however many ask, one
runs. So a thousand messages that arrive together cost one journal batch and one write per socket.

After a turn in which a sync ended the loop stays awake for a moment (``AWAKE_NS``): a client that waited for
it is about to send the next, and going to sleep and being woken costs more than the wait (ADR 0015). If no
bytes come in that time, staying awake is only tried again now and then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from understudy.errors import BrokerError
from understudy.ports import File, LogWriter, Timer, Timers, Worker

log = logging.getLogger(__name__)

#: How long the loop looks for more without sleeping once a sync has ended within a turn.
AWAKE_NS: Final = 60_000
#: So often in a row there may be no bytes in that time before the loop sleeps at once,
VAIN_MAX: Final = 16
#: and after so many syncs it tries again.
REST_SYNCS: Final = 256


class Flushable(Protocol):
    """A connection with something to write."""

    def flush(self) -> None: ...

    def abort(self) -> None:
        """End it at once."""
        ...


class Turn:
    """Runs ``work`` and the dirty connections' flush at most once per loop iteration."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._loop = loop
        self._now_ns = now_ns
        self._awake = False
        self._awake_until_ns = 0
        self._vain = 0
        """How often in a row no bytes came while it was awake."""
        self._rest = 0
        """Syncs after which it does not stay awake."""
        self._scheduled = False
        self._working = False
        """In a turn, before its flush: what is marked now goes out with it."""
        self._dirty: list[Flushable] = []
        self._soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.work: Callable[[], bool] | None = None
        """Delivers and hands batches to the journal; True when it wants another turn."""
        self.on_error: Callable[[BrokerError], None] | None = None
        """Called with an error that answers no request: the store can no longer do what was asked."""

    def request(self) -> None:
        """Have a turn run soon."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call behind the work of this turn, whose rest sends what comes of it; or at the beginning of the next."""
        self._soon.append((call, args))
        if not self._working:
            self.request()

    def after_this(self, call: Callable[[], object]) -> None:
        """Call in the next turn of the loop, after what its sockets bring meanwhile or between that."""
        self._loop.call_soon(call)

    def mark_dirty(self, connection: Flushable) -> None:
        """The connection has buffered something since its last flush."""
        self._dirty.append(connection)
        if not self._working:
            self.request()

    def guarded(self, call: Callable[[], object]) -> None:
        """Call; an error that answers no request goes to ``on_error`` and not to the loop."""
        try:
            call()
        except BrokerError as error:
            if self.on_error is None:
                raise
            self.on_error(error)

    def _run(self) -> None:
        self._working = True
        try:
            if self._soon:
                self._call_waiting()
            self._scheduled = False
            self.guarded(self._work)
            if self._soon:
                # a sync has ended within this turn: what it releases goes out with the rest
                asked, self._scheduled = self._scheduled, True
                self._call_waiting()
                self._scheduled = asked
                self.guarded(self._work)
                self._stay_awake()
        except BaseException:
            # a bug that answers no request: what was left undone is for the next turn
            self._scheduled = False
            self.request()
            raise
        finally:
            self._working = False
            if self._soon:
                self.request()
            self._flush()

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            try:
                connection.flush()
            except Exception:
                # one connection's bug costs that connection and delays no other
                log.exception("connection dropped: internal error")
                connection.abort()

    def _call_waiting(self) -> None:
        """Whatever asks for a turn meanwhile has it: the work comes right behind."""
        waiting, self._soon = self._soon, []
        bug: Exception | None = None
        for call, args in waiting:
            try:
                self.guarded(partial(call, *args))
            except Exception as error:  # keeps none of the others from being heard
                bug = bug or error
        if bug is not None:
            raise bug

    def _stay_awake(self) -> None:
        if self._awake:
            # one sync behind the other: bytes came
            self._vain = 0
        elif self._rest:
            self._rest -= 1
            return
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
        self._vain += 1
        if self._vain >= VAIN_MAX:
            self._rest = REST_SYNCS

    def _work(self) -> None:
        if self.work is not None and self.work():
            self.request()


class TurningTimers:
    """Timers whose callbacks are followed by a turn."""

    def __init__(self, timers: Timers, turn: Turn) -> None:
        self._timers = timers
        self._turn = turn

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        def run() -> None:
            self._turn.guarded(callback)
            self._turn.request()

        return self._timers.call_later(delay_ms, run)


class TurningWorker:
    """A worker whose results are followed by a turn."""

    def __init__(self, worker: Worker, turn: Turn) -> None:
        self._worker = worker
        self._turn = turn

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        def finished(error: BaseException | None) -> None:
            self._turn.guarded(lambda: done(error))
            self._turn.request()

        self._worker.run(work, finished)

    def close(self) -> None:
        self._worker.close()


class TurningLogWriter:
    """A log writer whose completions are followed by a turn, and count only with permission.

    ``why_not_confirm`` is asked after each written batch: an error there makes the batch a failed one,
    so nothing that rests on it is ever confirmed (a node that has lost its lock, ADR 0004).
    """

    def __init__(self, writer: LogWriter, turn: Turn, why_not_confirm: Callable[[], BaseException | None]) -> None:
        self._writer = writer
        self._turn = turn
        self._why_not_confirm = why_not_confirm
        self._held: list[Callable[[], None]] | None = None
        """Jobs that wait for ``release``, in order; None: none waits."""

    def hold(self) -> None:
        """Begin no job before ``release``: the node that activates needs its processor and its store for itself."""
        self._held = []

    def release(self) -> None:
        """Begin what was held, in order."""
        held, self._held = self._held, None
        for begin in held or ():
            begin()

    def submit(
        self, file: File, offset: int, buffers: Sequence[bytes], done: Callable[[BaseException | None], None]
    ) -> None:
        def finished(error: BaseException | None) -> None:
            self._turn.request()
            outcome = self._why_not_confirm() if error is None else error
            self._turn.guarded(partial(done, outcome))

        self._begin(partial(self._writer.submit, file, offset, buffers, finished))

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        def finished(error: BaseException | None) -> None:
            self._turn.request()
            self._turn.guarded(partial(done, error))

        self._begin(partial(self._writer.run, work, finished))

    def _begin(self, begin: Callable[[], None]) -> None:
        if self._held is None:
            begin()
        else:
            self._held.append(begin)

    def close(self) -> None:
        self.release()
        self._writer.close()
