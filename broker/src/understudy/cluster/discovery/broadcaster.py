"""A broadcast group: the connectors of an active node, sent once per broadcast-period (artemis-ha s. 7.1).

A carrier that cannot be opened, or a datagram that cannot be sent, is logged once until a broadcast succeeds, and tried
again after the period. Not here: sockets and files (``carriers.Endpoint``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum, auto

from understudy.cluster.discovery.carriers import Carrier, Endpoint
from understudy.dataclass import dataclass
from understudy.errors import ProtocolError
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Timer, Timers
from understudy.wire.core.broadcast import Broadcast
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BroadcastSettings:
    """Settings of a broadcast-group."""

    name: str
    carrier: Carrier
    connectors: Sequence[TransportConfiguration]
    period_ms: int = 2_000


class BroadcastState(Enum):
    """States of a broadcast group."""

    STOPPED = auto()
    OPENING = auto()
    """The carrier could not be opened so far."""
    BROADCASTING = auto()


class BroadcastEvent(Enum):
    """Events of a broadcast group."""

    START = auto()
    OPENED = auto()
    PERIOD = auto()
    """A period has passed."""
    STOP = auto()


_S, _E = BroadcastState, BroadcastEvent


class Broadcaster(Machine[BroadcastState, BroadcastEvent]):
    """Sender of one broadcast group."""

    STATES = BroadcastState
    EVENTS = BroadcastEvent
    INITIAL = BroadcastState.STOPPED

    def __init__(self, settings: BroadcastSettings, broadcaster_id: str, endpoint: Endpoint, timers: Timers) -> None:
        """Args:
        broadcaster_id: New with every start of the process.
        endpoint: Sends.
        """
        super().__init__()
        self.settings = settings
        self.sent = 0
        """Number of broadcasts sent."""
        self.failed = 0
        """Broadcasts that could not be sent."""
        self.error: str | None = None
        """The reason why the last one could not be sent."""
        self._broadcaster_id = broadcaster_id
        self._endpoint = endpoint
        self._timers = timers
        self._timer: Timer | None = None
        self._node_id = ""

    def start(self, node_id: str) -> None:
        """Send a broadcast at once, then one per period; the active node has the id ``node_id``."""
        self._node_id = node_id
        self.fire(BroadcastEvent.START)

    def stop(self) -> None:
        """Broadcast nothing any more."""
        self.fire(BroadcastEvent.STOP)

    # --- actions ---------------------------------------------------------------------------------

    def _open(self) -> None:
        self._timer = None
        try:
            self._endpoint.open_sender()
        except OSError as error:
            self._report(error, "AMQ222116", "cannot start a broadcast group")
            self._later()
            return
        self.fire(BroadcastEvent.OPENED)

    def _broadcast(self) -> None:
        try:
            data = Broadcast(self._node_id, self._broadcaster_id, tuple(self.settings.connectors)).encode()
            self._endpoint.send(data, self._node_id)
        except (OSError, ProtocolError) as error:
            self._report(error, "AMQ224033", "cannot broadcast the connectors of this node")
        else:
            self.sent += 1
            self.error = None
        self._later()

    def _report(self, error: Exception, identifier: str, text: str) -> None:
        self.failed += 1
        if self.error is None:
            extra = {"id": identifier, "group": self.settings.name, "to": str(self.settings.carrier)}
            log.warning("%s; it is tried again", text, extra={**extra, "error": str(error)})
        self.error = str(error)

    def _later(self) -> None:
        self._timer = self._timers.call_later(self.settings.period_ms, lambda: self.fire(BroadcastEvent.PERIOD))

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.error = None
        self._endpoint.close_sender()

    # The table comes last: it names the functions above.
    TABLE = table(
        BroadcastState,
        BroadcastEvent,
        {
            (_S.STOPPED, _E.START): To(_S.OPENING, _open),
            (_S.STOPPED, _E.STOP): IGNORED,
            (_S.OPENING, _E.OPENED): To(_S.BROADCASTING, _broadcast),
            (_S.OPENING, _E.PERIOD): To(_S.OPENING, _open),
            (_S.OPENING, _E.STOP): To(_S.STOPPED, _close),
            (_S.BROADCASTING, _E.PERIOD): To(_S.BROADCASTING, _broadcast),
            (_S.BROADCASTING, _E.STOP): To(_S.STOPPED, _close),
        },
        otherwise={_E.START: IGNORED, _E.OPENED: ILLEGAL, _E.PERIOD: ILLEGAL},
    )
