"""The dials under way of one client connection: their numbers, their deadlines and the stagger between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from understudy.client.core.url.options import Connector
from understudy.ports import Clock


class Dialler(Protocol):
    """Opens transports. Implemented by the shells."""

    def dial(self, connector: Connector, attempt: int) -> None:
        """Begin to open a transport; the outcome is reported with the number of the attempt."""
        ...

    def cancel(self, attempt: int) -> None:
        """Cancel an attempt; its outcome is not reported."""
        ...


class Link(Dialler, Protocol):
    """The shell as a connection sees it."""

    def hang_up(self) -> None:
        """Drop the transport and every dial under way at once."""
        ...

    def wants_flush(self) -> None:
        """Have the shell fetch ``data_to_send`` before this turn of the loop ends, as bytes or acknowledgements
        wait."""
        ...

    def wake_at(self, moment_ms: int) -> None:
        """Call ``handle_deadline`` at that monotonic moment, if not before."""
        ...

    def notify(self, call: Callable[[], None]) -> None:
        """Call a listener of the application, now or later; in the order in which they are given."""
        ...

    def log(self, event: str, text: str, *, warning: bool = False) -> None:
        """Write a line to the client's log; ``event`` is its category."""
        ...


class Dials:
    """Numbers dials from 1 and keeps those that are neither answered nor cancelled."""

    def __init__(self, dialler: Dialler, clock: Clock) -> None:
        self._dialler = dialler
        self._clock = clock
        self._last = 0
        self._open: dict[int, tuple[Connector, int]] = {}
        self._stagger_ms: int | None = None

    def begin(self, connector: Connector) -> int:
        """Dial. Returns the monotonic moment at which it expires."""
        self._last += 1
        deadline_ms = self._clock.monotonic_ms() + connector.connect_timeout_ms
        self._open[self._last] = (connector, deadline_ms)
        self._dialler.dial(connector, self._last)
        return deadline_ms

    def stagger(self, delay_ms: int) -> int:
        """Begin the wait after which another connector is dialled. Returns the moment of its end."""
        self._stagger_ms = self._clock.monotonic_ms() + delay_ms
        return self._stagger_ms

    def won(self, attempt: int) -> Connector | None:
        """Record that a dial has opened a transport, and cancel the others.

        Returns:
            The connector; None if the dial is not under way.
        """
        found = self._open.pop(attempt, None)
        if found is None:
            return None
        for other in self._open:
            self._dialler.cancel(other)
        self.clear()
        return found[0]

    def failed(self, attempt: int) -> Connector | None:
        """Record that a dial has failed. Returns its connector; None if the dial is not under way."""
        found = self._open.pop(attempt, None)
        return None if found is None else found[0]

    def expired(self, now_ms: int) -> list[Connector]:
        """Cancel the dials whose connect timeout is over."""
        late = [attempt for attempt, (_, deadline_ms) in self._open.items() if now_ms >= deadline_ms]
        for attempt in late:
            self._dialler.cancel(attempt)
        return [self._open.pop(attempt)[0] for attempt in late]

    def stagger_due(self, now_ms: int) -> bool:
        """Whether the wait is over; true once."""
        if self._stagger_ms is None or now_ms < self._stagger_ms:
            return False
        self._stagger_ms = None
        return True

    def next_deadline_ms(self) -> int | None:
        """The next moment at which a dial times out or another one begins; None without any."""
        moments = [deadline_ms for _, deadline_ms in self._open.values()]
        if self._stagger_ms is not None:
            moments.append(self._stagger_ms)
        return min(moments, default=None)

    def clear(self) -> None:
        """Forget every dial; the transports are dropped elsewhere."""
        self._open.clear()
        self._stagger_ms = None
