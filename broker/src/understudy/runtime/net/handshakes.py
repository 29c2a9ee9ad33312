"""TLS handshakes of one acceptor: how many are under way, and the threads on which they compute.

A handshake costs about a millisecond of a processor, so a thousand clients that reconnect at once would stop the loop
for a second. The steps run on worker threads, where OpenSSL releases the interpreter lock. At the limit further
connections wait; one whose client has been silent for ``TLS_HANDSHAKE_STALLED_MS`` meanwhile loses its place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from understudy.limits import TLS_HANDSHAKE_STALLED_MS, TLS_HANDSHAKES_MAX
from understudy.ports import Clock, Worker

log = logging.getLogger(__name__)


class Handshaking(Protocol):
    """A connection during its handshake."""

    silent_since_ms: int | None
    """Monotonic time since which it waits for its client; None while it does not."""

    def begin(self) -> None:
        """Start the handshake: the connection has a place."""

    def displace(self) -> None:
        """End the connection because another one takes its place. Calls ``Handshakes.end``."""


class Handshakes:
    """Connections of one acceptor that are in their handshake."""

    def __init__(self, worker: Worker, clock: Clock, limit: int = TLS_HANDSHAKES_MAX) -> None:
        """Args:
        worker: Runs the steps of handshakes; closed with ``close``.
        clock: Used for the silence of clients.
        limit: Handshakes under way at a time.
        """
        self._worker = worker
        self._clock = clock
        self._limit = limit
        # dicts, not sets: in the order in which they came
        self._under_way: dict[Handshaking, None] = {}
        self._waiting: dict[Handshaking, None] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def waiting_count(self) -> int:
        """Connections that wait for a place."""
        return len(self._waiting)

    def now_ms(self) -> int:
        """Monotonic time for ``Handshaking.silent_since_ms``."""
        return self._clock.monotonic_ms()

    def ask(self, handshake: Handshaking) -> None:
        """Begin the handshake of a connection, now or when there is a place for it."""
        if len(self._under_way) < self._limit:
            self._under_way[handshake] = None
            handshake.begin()
        else:
            self._waiting[handshake] = None
            self.check()

    def end(self, handshake: Handshaking) -> None:
        """Called when the handshake of a connection is over, or the connection is lost."""
        self._waiting.pop(handshake, None)
        if handshake not in self._under_way:
            return
        del self._under_way[handshake]
        following = next(iter(self._waiting), None)
        if following is not None:
            del self._waiting[following]
            self._under_way[following] = None
            following.begin()

    def check(self) -> None:
        """Take the places of silent clients, as many as connections wait."""
        if not self._waiting:
            return
        latest_ms = self._clock.monotonic_ms() - TLS_HANDSHAKE_STALLED_MS
        stalled = [
            each for each in self._under_way if each.silent_since_ms is not None and each.silent_since_ms <= latest_ms
        ]
        for handshake in stalled[: len(self._waiting)]:
            handshake.displace()

    def compute(self, step: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run a step on a thread; ``done`` is called on the loop."""
        self._worker.run(step, done)

    def close(self) -> None:
        """End the threads of the handshakes."""
        self._worker.close()
