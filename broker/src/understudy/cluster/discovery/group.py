"""A discovery group of a node: listens to a carrier and keeps the entries (artemis-ha s. 7.1).

A carrier that cannot be opened is logged and opened again later. Entries are removed when their time has come, without
waiting for the next datagram as Artemis does. Not here: sockets and files (``carriers.Endpoint``), the rules of the
entries (``entries``), and what becomes of the connectors (``cluster.membership.membership``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto

from understudy.cluster.discovery.carriers import Carrier, Endpoint
from understudy.cluster.discovery.entries import Entries, Outcome
from understudy.dataclass import dataclass
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Timer, Timers
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

#: Wait before a carrier is opened again. Milliseconds.
REOPEN_MS = 5_000


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """Settings of a discovery-group."""

    name: str
    carrier: Carrier
    refresh_timeout_ms: int = 10_000
    initial_wait_timeout_ms: int = 10_000


class GroupState(Enum):
    """States of a discovery group."""

    CLOSED = auto()
    OPENING = auto()
    """The carrier could not be opened so far."""
    LISTENING = auto()


class GroupEvent(Enum):
    """Events of a discovery group."""

    START = auto()
    OPENED = auto()
    REOPEN = auto()
    STOP = auto()


_S, _E = GroupState, GroupEvent


class Group(Machine[GroupState, GroupEvent]):
    """Receiver of one discovery group."""

    STATES = GroupState
    EVENTS = GroupEvent
    INITIAL = GroupState.CLOSED

    def __init__(
        self, settings: DiscoverySettings, broadcaster_id: str, endpoint: Endpoint, clock: Clock, timers: Timers
    ) -> None:
        """Nothing is opened before ``start``.

        Args:
            broadcaster_id: Id of this node as a broadcaster; its broadcasts are ignored.
            endpoint: Receives.
            clock: Used for the age of entries.
            timers: Used for the removal of entries.
        """
        super().__init__()
        self.settings = settings
        self.entries = Entries(settings.name, settings.refresh_timeout_ms, lambda other: other == broadcaster_id)
        self.error: str | None = None
        """The reason why the carrier could not be opened."""
        self.waited = False
        """Whether initial-wait-timeout has passed since the start."""
        self._endpoint = endpoint
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._waiting: Timer | None = None
        self._listeners: list[Callable[[], None]] = []

    def start(self) -> None:
        """Listen for datagrams of the group."""
        self.fire(GroupEvent.START)

    def stop(self) -> None:
        """Listen no more and forget the entries; listeners are not called."""
        self.fire(GroupEvent.STOP)

    def listen(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever ``connectors`` has changed."""
        self._listeners.append(changed)

    def connectors(self) -> list[TransportConfiguration]:
        """The connector of every entry."""
        return [each.connector for each in self.entries.all()]

    def receive(self, data: bytes, source: str) -> None:
        """Take a datagram; see ``carriers.Receive``."""
        if self.state is not GroupState.LISTENING:
            return
        outcome = self.entries.receive(data, source, self._clock.monotonic_ms())
        if outcome in (Outcome.ADDED, Outcome.CHANGED):
            self._changed()

    def _changed(self) -> None:
        self._schedule()
        for each in self._listeners:
            each()

    def _schedule(self) -> None:
        next_ms = self.entries.next_expiry_ms()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if next_ms is not None:
            delay_ms = max(1, next_ms - self._clock.monotonic_ms())
            self._timer = self._timers.call_later(delay_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.entries.expire(self._clock.monotonic_ms()):
            self._changed()
        else:
            self._schedule()

    def _wait_over(self) -> None:
        self._waiting = None
        self.waited = True
        settings = self.settings
        if not self.entries.outcomes[Outcome.ADDED]:
            values = {"at": str(settings.carrier), "timeout_ms": settings.initial_wait_timeout_ms}
            log.warning(
                "no other node was discovered within initial-wait-timeout", extra={"group": settings.name, **values}
            )

    # --- actions ---------------------------------------------------------------------------------

    def _start(self) -> None:
        self.waited = False
        self._waiting = self._timers.call_later(self.settings.initial_wait_timeout_ms, self._wait_over)
        self._open()

    def _open(self) -> None:
        self._timer = None
        try:
            self._endpoint.listen(self.receive)
        except OSError as error:
            if self.error is None:
                extra = {"group": self.settings.name, "at": str(self.settings.carrier), "error": str(error)}
                log.error("cannot listen for other nodes; it is tried again", extra=extra)
            self.error = str(error)
            self._timer = self._timers.call_later(REOPEN_MS, lambda: self.fire(GroupEvent.REOPEN))
            return
        self.fire(GroupEvent.OPENED)

    def _opened(self) -> None:
        self.error = None

    def _close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.entries.clear()
        self._endpoint.close()

    # The table comes last: it names the functions above.
    TABLE = table(
        GroupState,
        GroupEvent,
        {
            (_S.CLOSED, _E.START): To(_S.OPENING, _start),
            (_S.CLOSED, _E.STOP): IGNORED,
            (_S.OPENING, _E.OPENED): To(_S.LISTENING, _opened),
            (_S.OPENING, _E.REOPEN): To(_S.OPENING, _open),
            (_S.OPENING, _E.STOP): To(_S.CLOSED, _close),
            (_S.LISTENING, _E.STOP): To(_S.CLOSED, _close),
        },
        otherwise={_E.START: IGNORED, _E.OPENED: ILLEGAL, _E.REOPEN: ILLEGAL},
    )
