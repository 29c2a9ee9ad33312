"""Which sessions may be asked for on another connection, and by whom (ADR 0009).

A stock client reattaches before it logs in, with the session's name alone. So the name is the
secret: only names that can be unguessable take part, they are never shown, and the peer must
come from the host that created the session. A client that does not prove that gets the answer of a name that
does not exist; after too many of those the host is not looked up any more.

Detached sessions end when their client's connection TTL is over, and are bounded per node and host.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

from understudy.limits import (
    DETACHED_SESSION_MS_MAX,
    DETACHED_SESSIONS_MAX,
    DETACHED_SESSIONS_OF_HOST_MAX,
    REATTACH_GUESSES_OF_HOST_MAX,
    REATTACH_NAME_CHARACTERS_MIN,
)
from understudy.ports import Clock, Timers
from understudy.routing.sweep import Sweep

if TYPE_CHECKING:
    from understudy.protocols.core.session import CoreSession

#: How often detached sessions are looked at; also the time that guesses of a host are counted for.
_SCAN_MS: Final = 2_000
_GUESS_WINDOW_MS: Final = 60_000
_HOSTS_MAX: Final = 10_000


class Reattachments:
    """The sessions of a node that may be reattached, by their secret names."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._sessions: dict[str, tuple[str, CoreSession]] = {}
        """By name: the host that created it, and its handler."""
        self._detached: dict[CoreSession, tuple[str, int]] = {}
        """Host, and the monotonic time at which it ends; in the order in which they were lost."""
        self._hosts: Counter[str] = Counter()
        self._guesses: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Host to the beginning of its window and the names asked for in vain since."""
        self._sweep = Sweep(timers, _SCAN_MS, self._end_overdue)

    @property
    def detached_count(self) -> int:
        """Sessions that wait for their client."""
        return len(self._detached)

    def add(self, handler: CoreSession, host: str) -> None:
        """A new session; a name that is taken stays with the older one."""
        name = handler.session.name
        if len(name) >= REATTACH_NAME_CHARACTERS_MIN:
            self._sessions.setdefault(name, (host, handler))

    def remove(self, handler: CoreSession) -> None:
        """It has ended."""
        name = handler.session.name
        found = self._sessions.get(name)
        if found is not None and found[1] is handler:
            del self._sessions[name]
        self.found_again(handler)

    def keep(self, handler: CoreSession, ttl_ms: int) -> bool:
        """Its connection is lost: keep it for that long (-1 = as long as there is). False = end it."""
        found = self._sessions.get(handler.session.name)
        if found is None or found[1] is not handler or not handler.channel.survives:
            return False
        host = found[0]
        if len(self._detached) >= DETACHED_SESSIONS_MAX or self._hosts[host] >= DETACHED_SESSIONS_OF_HOST_MAX:
            return False
        longest_ms = min(ttl_ms, DETACHED_SESSION_MS_MAX) if ttl_ms >= 0 else DETACHED_SESSION_MS_MAX
        self._detached[handler] = (host, self._clock.monotonic_ms() + longest_ms)
        self._hosts[host] += 1
        return True

    def find(self, name: str, host: str) -> CoreSession | None:
        """The session of the name if that host may have it, attached or not."""
        now_ms = self._clock.monotonic_ms()
        began_ms, count = self._guesses.get(host, (now_ms, 0))
        if now_ms - began_ms >= _GUESS_WINDOW_MS:
            began_ms, count = now_ms, 0
        if count >= REATTACH_GUESSES_OF_HOST_MAX:
            return None
        found = self._sessions.get(name)
        if found is not None and found[0] == host:
            return found[1]
        self._guesses[host] = (began_ms, count + 1)
        self._guesses.move_to_end(host)
        if len(self._guesses) > _HOSTS_MAX:
            self._guesses.popitem(last=False)
        return None

    def found_again(self, handler: CoreSession) -> None:
        """Its client has it back."""
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

    def end(self, handler: CoreSession) -> None:
        """Its client does not come back: what only its connection kept goes, too."""
        scope = handler.session.connection
        handler.close(failed=True)
        if not any(other.session.connection is scope for other in self._detached):
            scope.delete_temporary_queues(handler.channel.connection.services.post_office)

    def close(self) -> None:
        """The node stops: end the detached; the others end with their connections."""
        self._sweep.close()
        for handler in list(self._detached):
            self.end(handler)
