"""Reattachment of sessions to another connection, and its authorisation (ADR 0009).

A standard client reattaches before it logs in, with only the name of the session. Therefore the name is the
secret: only names that are long enough are accepted, they are never displayed, and the peer must connect
from the host that created the session. Otherwise the response is the same as for an unknown name; after too many
of these from one host, its requests are refused without a look-up.

Detached sessions end after the connection TTL of their client; their number is limited per node and per host.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Generic, Protocol, TypeVar

from understudy.limits import (
    DETACHED_SESSION_MS_MAX,
    DETACHED_SESSIONS_MAX,
    DETACHED_SESSIONS_OF_HOST_MAX,
    REATTACH_GUESSES_OF_HOST_MAX,
    REATTACH_NAME_CHARACTERS_MIN,
)
from understudy.ports import Clock, Timers
from understudy.protocols.guesses import Guesses
from understudy.routing.lifecycle.periodic_scan import PeriodicScan
from understudy.session.session import ServerSession

#: Period of the check for expired sessions.
_SCAN_MS: Final = 2_000


class Reattachable(Protocol):
    """A session handler, as far as it matters here."""

    session: ServerSession

    @property
    def survives(self) -> bool:
        """Whether the session survives the loss of its connection."""
        ...

    def close(self, *, failed: bool) -> None:
        """End the session."""


H = TypeVar("H", bound=Reattachable)


class Reattachments(Generic[H]):
    """The sessions of a node that may be reattached, by their secret names."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._sessions: dict[str, tuple[str, H]] = {}
        """Name of the session to the host that created it and its handler."""
        self._detached: dict[H, tuple[str, int]] = {}
        """Detached sessions to host and monotonic time of expiry, in the order in which their connections were lost."""
        self._hosts: Counter[str] = Counter()
        self._guesses = Guesses(clock, REATTACH_GUESSES_OF_HOST_MAX)
        self._sweep = PeriodicScan(timers, _SCAN_MS, self._end_overdue)

    @property
    def detached_count(self) -> int:
        """Number of detached sessions."""
        return len(self._detached)

    def add(self, handler: H, host: str) -> None:
        """Add a new session; if its name is in use, the older session keeps it."""
        name = handler.session.state.name
        if len(name) >= REATTACH_NAME_CHARACTERS_MIN:
            self._sessions.setdefault(name, (host, handler))

    def remove(self, handler: H) -> None:
        """Remove a session that has ended."""
        name = handler.session.state.name
        found = self._sessions.get(name)
        if found is not None and found[1] is handler:
            del self._sessions[name]
        self.found_again(handler)

    def keep(self, handler: H, ttl_ms: int) -> bool:
        """Keep a session whose connection was lost for ``ttl_ms`` (-1 = the maximum). False = it must end."""
        found = self._sessions.get(handler.session.state.name)
        if found is None or found[1] is not handler or not handler.survives:
            return False
        host = found[0]
        if len(self._detached) >= DETACHED_SESSIONS_MAX or self._hosts[host] >= DETACHED_SESSIONS_OF_HOST_MAX:
            return False
        longest_ms = min(ttl_ms, DETACHED_SESSION_MS_MAX) if ttl_ms >= 0 else DETACHED_SESSION_MS_MAX
        self._detached[handler] = (host, self._clock.monotonic_ms() + longest_ms)
        self._hosts[host] += 1
        return True

    def find(self, name: str, host: str) -> H | None:
        """The session with a name if the host may reattach it, attached or detached."""
        if self._guesses.exhausted(host):
            return None
        found = self._sessions.get(name)
        if found is not None and found[0] == host:
            return found[1]
        self._guesses.count(host)
        return None

    def found_again(self, handler: H) -> None:
        """Called when a detached session was reattached."""
        entry = self._detached.pop(handler, None)
        if entry is not None:
            host = entry[0]
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]

    def _end_overdue(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for handler in [each for each, (_, end_ms) in self._detached.items() if end_ms <= now_ms]:
            self.end(handler)

    def end(self, handler: H) -> None:
        """End a session that was not reattached, and its connection scope."""
        session = handler.session
        scope = session.state.connection
        handler.close(failed=True)
        if not any(other.session.state.connection is scope for other in self._detached):
            scope.delete_temporary_queues(session.state.services.post_office)

    def close(self) -> None:
        """End all detached sessions when the node stops; others end with their connections."""
        self._sweep.close()
        for handler in list(self._detached):
            self.end(handler)
