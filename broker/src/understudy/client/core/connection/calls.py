"""Blocking calls of one channel: one in flight, the others in line, each with its deadline.

Artemis-core s. 3.3: a channel has at most one blocking call; its correlation id counts down
from -2; it completes on its expected answer with that id (or -1, for requests that carry none) or
on any EXCEPTION. Sends, which are answered by their own positive ids, are not calls (``sends``).

What becomes of a call whose connection was lost is said by the call itself (``Interrupted``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol, TypeVar

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, CallTimedOut, ConnectionLost, LocalProtocolError
from understudy.ports import Clock
from understudy.wire.core.packets import NullResponse, Packet

T_contra = TypeVar("T_contra", contravariant=True)


class Waiter(Protocol[T_contra]):
    """Receives the outcome of a call; an ``asyncio.Future`` is one."""

    def done(self) -> bool:
        """Whether a result or an error was set, or the caller has cancelled."""
        ...

    def set_result(self, result: T_contra, /) -> None:
        """Finish with a result."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Finish with an error."""
        ...


class Interrupted(Enum):
    """The meaning of a lost connection for a call that may or may not have been carried out."""

    REISSUE = "reissue"
    """Safe to ask again: a query, a close, a creation that tolerates being done already."""
    FORGET = "forget"
    """The purpose of the call went with the server's session: it counts as done."""
    FAIL = "fail"
    """The call fails with ``Call.interruption``, as only the caller can find out whether it was executed."""


Done = Callable[[Any, BaseException | None], None]


@dataclass(slots=True, eq=False)
class Call:
    """One request that waits for an answer."""

    name: str
    """Description for error messages, such as "create queue q1"."""
    build: Callable[[int], Packet]
    """Makes the packet from the correlation id, when it is sent."""
    expected: tuple[type[Packet], ...]
    done: Done
    interrupted: Interrupted = Interrupted.REISSUE
    interruption: Callable[[BrokerError, bool], BaseException] | None = None
    """The error of ``Interrupted.FAIL`` from the cause and whether the request had been sent;
    also raised when time runs out."""
    bound: bool = False
    """Means the server's session of now: with that gone it is decided even if it was never sent."""
    tolerated: tuple[type[BrokerError], ...] = ()
    """Errors that mean "already done" once the call was issued twice."""
    sent: bool = False
    reissued: bool = False
    dropped: bool = False
    """Whether the broker, which goes on, has ended the connection while this call was in flight."""
    correlation_id: int = 0
    deadline_ms: int | None = None


def settle(waiter: Waiter[Any], result: Callable[[Any], object] | None = None) -> Done:
    """A ``done`` that hands the outcome to a waiter, through ``result`` if given."""

    def done(packet: Any, error: BaseException | None) -> None:
        if waiter.done():
            return
        if error is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(result(packet) if result is not None else packet)

    return done


class Calls:
    """The line of calls of one channel.

    Invariant: only the first call can be in flight, and only while ``open``.
    """

    def __init__(
        self,
        send: Callable[[Packet], None],
        clock: Clock,
        wake_at: Callable[[int], None],
        *,
        timeout_ms: int,
        failover_timeout_ms: int,
    ) -> None:
        """Args:
        wake_at: Gets the moment of every new deadline.
        timeout_ms: Longest wait for an answer.
        failover_timeout_ms: Longest wait for the channel to open again; -1 = endless.
        """
        self._send = send
        self._clock = clock
        self._wake_at = wake_at
        self._timeout_ms = timeout_ms
        self._failover_timeout_ms = failover_timeout_ms
        self._line: deque[Call] = deque()
        self._correlation = -1
        self._open = False
        self._ended: BrokerError | None = None

    def __len__(self) -> int:
        return len(self._line)

    @property
    def in_flight(self) -> Call | None:
        """The call whose answer is awaited."""
        return self._line[0] if self._line and self._line[0].sent else None

    @property
    def bound(self) -> bool:
        """Whether a call whose outcome depends on the server's session is queued and was not sent. Earlier work then
        belongs to that call; work after a call that was sent belongs to the next one.
        """
        return any(call.bound and call.interrupted is Interrupted.FAIL and not call.sent for call in self._line)

    def add(self, call: Call, *, first: bool = False) -> None:
        """Queue a call; with ``first``, ahead of all others but the one in flight."""
        if self._ended is not None:
            call.done(None, self._ended)
            return
        if not self._open and self._failover_timeout_ms >= 0:
            self._deadline(call, self._failover_timeout_ms)
        if not first:
            self._line.append(call)
        else:
            self._line.insert(1 if self.in_flight is not None else 0, call)
        self._advance()

    def open(self) -> None:
        """The channel works: send the first call. One in flight (a reattached session) goes on."""
        self._open = True
        for call in self._line:
            call.deadline_ms = None
        flying = self.in_flight
        if flying is not None:
            self._deadline(flying, self._timeout_ms)
        self._advance()

    def suspend(self, release: BrokerError | None = None) -> None:
        """The connection was lost; ``reset`` or ``open`` decides on the calls.

        Args:
            release: The error that lost the connection, if the call in flight gets no answer any more: one
                whose outcome only the caller can find out is not kept waiting for a failover.
        """
        if not self._open:
            return
        self._open = False
        flying = self.in_flight
        if release is not None and flying is not None and flying.interrupted is Interrupted.FAIL:
            self._line.popleft()
            _interrupt(flying, release)
        for call in self._line:
            call.deadline_ms = None
            if self._failover_timeout_ms >= 0:
                self._deadline(call, self._failover_timeout_ms)

    def reset(self, error: BrokerError, *, dropped: bool = False) -> None:
        """The server's side of the channel is gone: decide the calls that belonged to it.

        Args:
            error: What ended the connection.
            dropped: Whether the same broker goes on and ended only the connection. A call that it does so for twice
                fails: asked again, it would end the connection again.
        """
        line, self._line = self._line, deque()
        for call in line:
            if not call.sent and not call.bound:
                self._line.append(call)
            elif call.interrupted is Interrupted.REISSUE and call.dropped and dropped:
                call.done(None, twice_dropped(call.name, error))
            elif call.interrupted is Interrupted.REISSUE:
                call.sent, call.reissued, call.dropped = False, True, dropped
                self._line.append(call)
            else:
                _interrupt(call, error)

    def end(self, error: BrokerError) -> None:
        """Fail every call, and those added later: no answer will come any more."""
        self._ended = error
        while self._line:
            _interrupt(self._line.popleft(), error)

    def answer(self, packet: Packet) -> bool:
        """Take an answer. Returns whether it belonged to the call in flight."""
        call = self.in_flight
        if call is None or not isinstance(packet, call.expected):
            return False
        if isinstance(packet, NullResponse) and packet.correlation_id not in (-1, call.correlation_id):
            return False
        self._line.popleft()
        call.done(packet, None)
        self._advance()
        return True

    def fail(self, error: BrokerError) -> bool:
        """Fail the call that an EXCEPTION answers. Returns whether there was one."""
        call = self.in_flight
        if call is None:
            return False
        self._line.popleft()
        if call.reissued and isinstance(error, call.tolerated):
            call.done(None, None)
        else:
            call.done(None, error)
        self._advance()
        return True

    def next_deadline_ms(self) -> int | None:
        """The earliest moment at which ``expire`` has something to do."""
        deadlines = [call.deadline_ms for call in self._line if call.deadline_ms is not None]
        return min(deadlines) if deadlines else None

    def expire(self, now_ms: int) -> CallTimedOut | None:
        """Fail the calls whose time is over. One that was sent stays in flight for its late answer: a session that is
        attached again gets the request or the answer once more, and the next call must not take that for its own.

        Returns:
            An error if one of them was in flight on an open channel: then the connection has
            failed (artemis-core s. 3.3).
        """
        due = [call for call in self._line if call.deadline_ms is not None and call.deadline_ms <= now_ms]
        failed = None
        for call in due:
            place = self._line.index(call)
            del self._line[place]
            if call.done is _ignored:
                # a session that lives on answers every request; one that does not is no reason to wait again
                continue
            if call.sent:
                late = replace(call, done=_ignored, interrupted=Interrupted.FORGET, bound=True, deadline_ms=None)
                self._line.insert(place, late)
            if self._open:
                failed = CallTimedOut(f"{call.name}: no answer within {self._timeout_ms} ms")
                error: BrokerError = failed
            else:
                error = CallTimedOut(f"{call.name}: no failover within {self._failover_timeout_ms} ms")
            call.done(None, call.interruption(error, call.sent) if call.interruption else error)
        if failed is None:
            self._advance()
        return failed

    def _advance(self) -> None:
        while self._open and self._line and not self._line[0].sent:
            call = self._line[0]
            # Counted down for every blocking call, even where the packet has no field for it.
            self._correlation -= 1
            call.correlation_id = self._correlation
            call.sent = True
            self._deadline(call, self._timeout_ms)
            try:
                self._send(call.build(call.correlation_id))
            except LocalProtocolError as error:
                # a text beyond the limits: nothing was sent, so the next call can have the channel
                self._line.remove(call)
                call.done(None, error)

    def _deadline(self, call: Call, delay_ms: int) -> None:
        call.deadline_ms = self._clock.monotonic_ms() + delay_ms
        self._wake_at(call.deadline_ms)


def _ignored(packet: Any, error: BaseException | None) -> None:
    """The answer of a call that has failed already."""


def twice_dropped(name: str, error: BrokerError) -> ConnectionLost:
    """The error of a request for which the broker has ended the connection twice."""
    return ConnectionLost(
        f"{name}: the broker has ended the connection twice while it was under way: {error}",
        hint="it is not repeated; the log of the broker says why it ended the connection",
    )


def _interrupt(call: Call, error: BrokerError) -> None:
    if call.interrupted is Interrupted.FORGET:
        call.done(None, None)
    else:
        call.done(None, call.interruption(error, call.sent) if call.interruption else error)
