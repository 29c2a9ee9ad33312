"""The blocking shell's lock, timer and calls: the ``core.connection.Link`` of one connection.

A connection has no thread of its own and no event loop: a thread that needs an answer reads the socket itself
(ADR 0043).

- One lock for each connection. The core is called with it held only; it is released while a thread waits.
- A thread that waits becomes the *reader* if there is none: it polls the socket until its wait is over or the next
  timer of the core is due, gives the core the bytes received, and wakes the threads whose wait is over with it. The
  others wait for the reader. A reader that leaves wakes the next one (``sync.waiting``).
- Where no thread waits, the keeper reads and keeps the time (``sync.keeper``).
- A dial has a thread that ends with it (``sync.dialling``).
- Listeners and callbacks of futures are called on a thread of their own, without a lock (``sync.callbacks``).

The names that the generated modules of this package use are those of ``aio.link``.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from socket import socket
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar, cast

from understudy.client.core.connection.state import ClientState
from understudy.client.core.connection.tracing import Tracing
from understudy.client.core.session.state import SessionState
from understudy.client.core.url.options import ClientUrl, Connector
from understudy.client.host import Surroundings, dial_error
from understudy.client.sync.callbacks import callbacks
from understudy.client.sync.dialling import Dial
from understudy.client.sync.keeper import Care, keeper
from understudy.client.sync.waiting import NEVER_MS, Outcome, Signal, Turn, Waiters
from understudy.client.sync.wire import Wire
from understudy.errors import ConnectionLost, IllegalState, ObjectClosed

__all__ = ["Link", "Signal", "run_handler"]

_log = logging.getLogger("understudy.client")
R = TypeVar("R")
#: Reads of a socket in a row before other work is looked at.
_READS_MAX: Final = 16
#: Calls without a wait that had something to write, after which the calling thread writes it itself.
_LAZY_CALLS_MAX: Final = 32


def run_handler(handler: Callable[[R], object], received: R) -> Any:
    """Call the application's handler of a message."""
    return handler(received)


class Owner(Protocol):
    """The application's object of a connection."""

    _closed: bool

    def warn_if_open(self) -> None:
        """Warn that the object was never closed."""
        ...


class _Clock:
    """The clocks of the system."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.wall_ms = wall_ms

    def wall_ns(self) -> int:
        return self.wall_ms() * 1_000_000

    def monotonic_ms(self) -> int:
        return int(time.monotonic() * 1000)


class _Entropy:
    def __init__(self, token: Callable[[int], bytes]) -> None:
        self.token = token


class _OtherProcess:
    """The lock of a connection that another process has made."""

    def __enter__(self) -> None:
        raise IllegalState(
            "the connection was made before a fork and belongs to the parent process",
            hint="make a connection in each process, after the fork",
        )

    def __exit__(self, *raised: object) -> None: ...


class _Once:
    """A function that is called once, by whichever thread calls first; the others wait until it has returned."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Callable[[], object] | None = function
        self._lock = threading.RLock()  # the function may ask for the outcome of its own future

    def __call__(self) -> None:
        with self._lock:
            function, self._function = self._function, None
            if function is None:
                return
            try:
                function()
            except Exception:
                _log.exception("the end of a span raised an error")


class _SendFuture(Future[None]):
    """The future of a send. A thread that waits for its result reads the socket.

    The span of the send, if there is one, has ended when ``result`` or ``exception`` returns: the thread that asks ends
    it if the thread for callbacks has not done so yet.
    """

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._ended: Callable[[], None] | None = None
        self.set_running_or_notify_cancel()  # a call given to the core cannot be cancelled

    def end_span(self, ended: Callable[[Any], None]) -> None:
        """Call the function once with this future when the send has its outcome, before ``result`` returns."""
        self._ended = once = _Once(partial(ended, self))
        self.add_done_callback(lambda _: once())

    def result(self, timeout: float | None = None) -> None:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            self._link.wait_for(self.done, timeout)
        if self._ended is not None and self.done():
            self._ended()

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        """Call the function when the send has its outcome, on the client's thread for callbacks."""
        super().add_done_callback(lambda future: callbacks.call(partial(fn, future)))


def end_span(future: Future[None], ended: Callable[[Any], None]) -> None:
    """Call the function with the future when the send has its outcome, before the application gets the outcome."""
    cast(_SendFuture, future).end_span(ended)


class Link:
    """The lock, the core, the socket and the waiting threads of one connection.

    Used as ``with link.lock, link:``, which is what the methods that ``aio`` marks as exclusive do.
    """

    def __init__(
        self,
        url: ClientUrl,
        user: str | None,
        password: str | None,
        surroundings: Surroundings,
        tracing: Tracing,
        start: int,
    ) -> None:
        """Args:
        start: Which connector of the URL to dial first.
        """
        self.lock: Any = threading.RLock()
        self.clock = _Clock(surroundings.wall_ms)
        self.entropy = entropy = surroundings.entropy
        self.tracing = tracing
        self.care = Care()
        self.timer_ms = NEVER_MS
        """The next moment at which the core must be called."""
        self._owner: weakref.ref[Owner] | None = None
        self._waiters = Waiters(self.lock)
        self._wire: Wire | None = None
        self._attempt = 0
        self._dials: dict[int, Dial] = {}
        self._space = Signal(self)
        self._depth = 0
        self._busy = False
        self._in_core = False
        self._dirty = False
        self._lazy_calls = 0
        self._ended = False
        self._keeper = keeper()
        self.core = ClientState(url, self, self.clock, _Entropy(entropy), user=user, password=password, start=start)
        self._keeper.add(self)

    # the lock

    def __enter__(self) -> None:
        self._depth += 1
        self._busy = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if kind is not None and self._busy and not issubclass(kind, Exception):
            self._abort(kind)
        if self._depth:
            return
        try:
            self._leave()
        except BaseException as raised:
            if not isinstance(raised, Exception):
                self._abort(type(raised))
            raise
        finally:
            self._busy = False

    def _leave(self) -> None:
        """The lock is about to be released for good: hand on what a later thread has to do."""
        if self.core.closed is not None:
            self._end()
            return
        if self._dirty:
            self._lazy_calls += 1
            if self._lazy_calls > _LAZY_CALLS_MAX:
                self._flush()
            else:
                self._ask_keeper()
        if self._waiters:
            self._waiters.wake_ready(self.timer_ms)
        elif self.timer_ms < self.care.until_ms or self.care.until_ms == NEVER_MS:
            self._ask_keeper()

    def _ask_keeper(self) -> None:
        if not self.care.asked:
            self._keeper.ask(self)

    def _abort(self, kind: type[BaseException]) -> None:
        """A signal handler raised while the core changed its state, which cannot be trusted any more."""
        error = ObjectClosed(f"{kind.__name__} interrupted the client in the middle of a step: connection closed")
        _log.error("%s", error)
        try:
            self.core.close(error)
        except Exception:
            _log.exception("the connection could not be closed in order")
            self.core.closed = error
        self.hang_up()

    def _end(self) -> None:
        """The connection has ended: no thread will wait any more, and the keeper forgets it."""
        if not self._ended:
            self._ended = True
            self.timer_ms = NEVER_MS
            self._keeper.remove(self)
        self._waiters.wake_ready(NEVER_MS)
        if not self._waiters:
            self._waiters.dispose()

    # called by the core

    def dial(self, connector: Connector, attempt: int) -> None:
        """Open a transport for the core."""
        self._dials[attempt] = Dial(self, connector, attempt)

    def cancel(self, attempt: int) -> None:
        """Stop opening that transport."""
        dial = self._dials.pop(attempt, None)
        if dial is not None:
            dial.cancelled = True

    def hang_up(self) -> None:
        """Drop the transport and every dial under way."""
        for attempt in tuple(self._dials):
            self.cancel(attempt)
        wire, self._wire = self._wire, None
        if wire is not None:
            self._waiters.watch(None)
            self._keeper.unwatch(self)
            wire.hang_up()
        self.core.link.pump.socket(writable=True)
        self._space.set()

    def wants_flush(self) -> None:
        """The core has bytes to send."""
        self._dirty = True

    def wake_at(self, moment_ms: int) -> None:
        """Call the core at that monotonic moment, if not before."""
        self.timer_ms = min(self.timer_ms, moment_ms)

    def notify(self, call: Callable[[], None]) -> None:
        """Call a listener of the application."""
        callbacks.call(call)

    def log(self, event: str, text: str, *, warning: bool = False) -> None:
        """Write a line to the log."""
        _log.log(logging.WARNING if warning else logging.INFO, "%s: %s", event, text)

    # dials, called by their threads

    def dialled(self, dial: Dial, connection: socket) -> None:
        """The dial has opened a socket."""
        with self.lock, self:
            if dial.cancelled or self._dials.pop(dial.attempt, None) is None:
                connection.close()
                return
            self._wire = Wire(connection)
            self._attempt = dial.attempt
            self._waiters.watch(self._wire.descriptor)
            self._call_core(lambda: self.core.transport_up(dial.attempt))
            self._flush()
            self._look_again()

    def not_dialled(self, dial: Dial, error: Exception) -> None:
        """The dial has failed."""
        with self.lock, self:
            if not dial.cancelled and self._dials.pop(dial.attempt, None) is not None:
                refused = dial_error(dial.connector, error)
                self._call_core(lambda: self.core.transport_lost(dial.attempt, refused))
                self._look_again()

    def _look_again(self) -> None:
        """Socket or timer have changed without a call of the application."""
        if self._waiters:
            self._waiters.wake_reader()
        elif self.core.closed is None:
            self._ask_keeper()

    # the socket; with the lock

    def _call_core(self, call: Callable[[], Any]) -> Any:
        """Make a call of the core in which no thread may wait."""
        self._in_core = True
        try:
            return call()
        finally:
            self._in_core = False

    def _flush(self) -> None:
        """Write the output of the core, as far as the socket takes it."""
        self._lazy_calls = 0
        self._dirty = False
        data = self._call_core(self.core.data_to_send)
        if data and self._wire is not None:
            self._write(self._wire, data)

    def _write(self, wire: Wire, data: bytes = b"") -> None:
        writable = wire.writable
        try:
            wire.write(data)
        except OSError as error:
            self._lost(error)
            return
        if wire.writable != writable:
            self._waiters.watch(wire.descriptor, wire.events)
            self.core.link.pump.socket(writable=wire.writable)
            if wire.writable:
                self._space.set()
            else:
                self._look_again()

    def _read(self) -> bool:
        """Give the core the bytes that have arrived; whether there were any."""
        found = False
        for _ in range(_READS_MAX):
            wire = self._wire
            if wire is None:
                break
            try:
                data = wire.read()
            except OSError as error:
                self._lost(error)
                return True
            if data is None:
                break
            found = True
            if not data:
                self._lost(None)
                break
            self._call_core(partial(self.core.receive_data, data))
            if wire.drained_by(data):
                break
        return found

    def _lost(self, error: Exception | None) -> None:
        attempt, self._attempt = self._attempt, 0
        reason = f": {error}" if error is not None else ""
        lost = ConnectionLost(f"the connection to {self.core.connector} ended{reason}")
        self.hang_up()
        self._call_core(lambda: self.core.transport_lost(attempt, lost))

    def work(self, *, ready: bool = True) -> None:
        """Do all work that needs no waiting: write, read, timers.

        Args:
            ready: Whether the socket may have something.
        """
        wire = self._wire
        if wire is not None and not wire.writable:
            self._write(wire)
        if ready:
            self._read()
        if self.timer_ms <= time.monotonic() * 1000:
            self.timer_ms = NEVER_MS
            moment_ms = self._call_core(self.core.handle_deadline)
            if moment_ms is not None:
                self.wake_at(moment_ms)
        if self._dirty:
            self._flush()
        self._waiters.wake_ready(NEVER_MS)

    def poll(self) -> bool:
        """Read from the socket, unless another thread does; whether bytes had arrived."""
        return not self._waiters.reading and self._read()

    @property
    def polled(self) -> tuple[int, int] | None:
        """Descriptor and events that the keeper polls for; None without a socket."""
        return None if self._wire is None else (self._wire.descriptor, self._wire.events)

    # waiting; with the lock

    @property
    def waited_at(self) -> bool:
        """Whether a thread waits."""
        return bool(self._waiters)

    def wait(self, done: Callable[[], bool], deadline_ms: float | None = None) -> None:
        """Wait until ``done``, or until the deadline.

        Raises:
            IllegalState: it is called inside of the core, such as by a body that is read while it is sent: the wait
                would never end.
        """
        if self._in_core:
            raise IllegalState("a blocking call inside of the same connection would wait for itself without end")
        self.care.attended = True
        self.care.expects = False
        if self._dirty:
            self._flush()
        if self._waiters:
            # Another thread reads: it must know of an earlier timer, and write what the socket did not get yet.
            self._waiters.wake_ready(0.0 if self._dirty else self.timer_ms)
        turn = Turn(done, self._depth)
        self._busy = False  # an exception of a signal handler does no harm while it waits
        try:
            self._depth = 0
            self._waiters.wait(turn, deadline_ms, self._read_until)
        finally:
            self._depth = turn.depth
            if self._ended and not self._waiters:
                self._waiters.dispose()
        self._busy = True

    def _read_until(self, until_ms: float) -> None:
        """Poll once as the reader, and give the core the bytes that have arrived."""
        if self._dirty:
            self._busy = True
            self._flush()
            self._busy = False
        if self._waiters.disposed:
            raise self.core.closed or ObjectClosed("the connection is closed")
        wire = self._wire
        more = self._dirty or (wire is not None and wire.pending)
        ready = self._waiters.poll(0.0 if more else min(until_ms, self.timer_ms))
        self._busy = True
        self.work(ready=ready or more)
        self._busy = False

    def wait_for(self, done: Callable[[], bool], timeout_s: float | None) -> None:
        """Wait until ``done``, at most so long. Without the lock."""
        with self.lock, self:
            self.wait(done, None if timeout_s is None else self.now_ms() + timeout_s * 1000)

    # called by the endpoints

    @property
    def writable(self) -> bool:
        """Whether the socket takes bytes."""
        return self._wire is None or self._wire.writable

    def wait_writable(self) -> None:
        """Wait until the socket takes bytes."""
        self._space.wait()

    def new_future(self) -> Future[None]:
        """Make the future of a send."""
        self.care.expects = True
        return _SendFuture(self)

    def now_s(self) -> float:
        """Monotonic seconds, with fractions."""
        return time.monotonic()

    def now_ms(self) -> float:
        """Monotonic milliseconds, with fractions."""
        return time.monotonic() * 1000

    def sleep(self, delay_ms: float) -> None:
        """Wait that long."""
        self.wait(lambda: False, self.now_ms() + delay_ms)

    def ask(self, start: Callable[[Outcome], None]) -> Any:
        """Start something that ends in a waiter, and wait for its outcome."""
        with self.lock, self:
            outcome = Outcome()
            start(outcome)
            if not outcome.done():
                try:
                    self.wait(outcome.done)
                except BaseException:
                    outcome.abandon()
                    raise
            return outcome.result()

    def opened(self, connection: Owner) -> None:
        """The application has a connection on this link."""
        self._owner = weakref.ref(connection)

    @property
    def usable(self) -> bool:
        """Whether the link can still do something: it has not ended and belongs to this process."""
        return not self._ended

    def soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call from the keeper's thread; safe in a finalizer, which may run on any thread. Only if ``usable``."""
        self._keeper.soon(partial(call, *arguments))

    def forget_session(self, session: SessionState) -> None:
        """Close a session whose object the application lost; its messages in work are given back."""
        with self.lock, self:
            if session.closed is None:
                session.close(Outcome(), failed=True)

    def close(self) -> None:
        """End at once; pending output is given to the socket first."""
        if isinstance(self.lock, _OtherProcess):
            return
        with self.lock, self:
            self.core.leave()
            self._flush()
            self.core.close()

    # the end of the process

    def at_exit(self) -> None:
        """The program ends: warn about a connection that was not closed, and end it."""
        owner = self._owner() if self._owner is not None else None
        if owner is not None:
            owner.warn_if_open()
        self.close()

    def forked(self) -> None:
        """Called in the child of a fork: the connection belongs to the parent. Its descriptors are closed here, nothing
        is sent.
        """
        self.lock = _OtherProcess()
        self._ended = True
        owner = self._owner() if self._owner is not None else None
        if owner is not None:
            owner._closed = True  # closing the connection is harmless, and no warning is due here
        self._waiters.dispose()
        if self._wire is not None:
            self._wire.drop()
