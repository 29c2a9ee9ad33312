"""Checks that the places which other nodes state for clients of AMQP 0-9-1 lead to these nodes (ADR 0194).

This node connects to a place as a client would. connection.start names the node, before any login; then the connection
is closed. A place is checked again as long as it is stated, sooner after a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import ClassVar, Final

from understudy.cluster.membership.client_endpoints import ClientEndpoint, EndpointDialer
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.limits import AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import SealableConnection, Timer, Timers
from understudy.wire.amqp091.frames import PROTOCOL_HEADER, FrameDecoder
from understudy.wire.amqp091.layout import decode_method
from understudy.wire.amqp091.methods import ConnectionStart

log = logging.getLogger(__name__)

#: Server property of connection.start with the node id of the node.
NODE_PROPERTY: Final = "qpid.cluster.node"
#: Time for connection.start after the connection was made.
_ANSWER_MS: Final = 5_000
#: Wait before the next check: after a success, and after the first failure, which doubles up to the former.
_AGAIN_MS: Final = 60_000
_RETRY_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Place:
    """A place that a node has stated."""

    node_id: str
    endpoint: ClientEndpoint


class State(Enum):
    """States of the check of one place."""

    IDLE = auto()
    DIALLING = auto()
    """The connection is being made, or connection.start is awaited."""
    WAITING = auto()
    """The next check comes later."""
    ENDED = auto()
    """The place is not stated any more."""


class Event(Enum):
    """Events of the check of one place."""

    DIAL = auto()
    PROVE = auto()
    """The node has named itself."""
    FAIL = auto()
    END = auto()


class EndpointCheck(Machine[State, Event]):
    """The check of one place."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.IDLE

    def __init__(self, place: Place, dialer: EndpointDialer, timers: Timers, changed: Callable[[], None]) -> None:
        """Wait for ``DIAL``.

        Args:
            place: Place of a node.
            dialer: Makes connections.
            timers: Used for the time of an answer, and the next check.
            changed: Called when ``reached`` has changed.
        """
        super().__init__()
        self.place = place
        self.reached = False
        """Whether the last check has found the node."""
        self._dialer = dialer
        self._timers = timers
        self._changed = changed
        self._attempt: _Attempt | None = None
        self._timer: Timer | None = None
        self._failures = 0

    def ended(self, attempt: _Attempt, failure: str | None) -> None:
        """An attempt has its result; that of an earlier one does not count.

        Args:
            attempt: Connection that was made.
            failure: Why the node was not found; None: it was.
        """
        if attempt is self._attempt:
            self._attempt = None
            self.fire(Event.PROVE if failure is None else Event.FAIL, failure)

    def _dial(self, failure: str | None = None) -> None:
        attempt = self._attempt = _Attempt(self.place.node_id, self.ended, self._timers)
        self._dialer.dial(self.place.endpoint, attempt)

    def _prove(self, failure: str | None) -> None:
        self._failures = 0
        self._later(_AGAIN_MS)
        if not self.reached:
            self.reached = True
            self._changed()

    def _fail(self, failure: str | None) -> None:
        self._failures += 1
        self._later(min(_AGAIN_MS, _RETRY_MS << min(self._failures - 1, 10)))
        if self._failures == 1:
            endpoint = self.place.endpoint
            log.warning(
                "clients of AMQP 0-9-1 do not learn of a node: it is not reached where it says",
                extra={"node_id": self.place.node_id, "at": f"{endpoint.host}:{endpoint.port}", "reason": failure},
            )
        if self.reached:
            self.reached = False
            self._changed()

    def _later(self, delay_ms: int) -> None:
        self._timer = self._timers.call_later(delay_ms, lambda: self.fire(Event.DIAL))

    def _end(self, failure: str | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.stop()

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.IDLE, Event.DIAL): To(State.DIALLING, _dial),
            (State.WAITING, Event.DIAL): To(State.DIALLING, _dial),
            (State.DIALLING, Event.PROVE): To(State.WAITING, _prove),
            (State.DIALLING, Event.FAIL): To(State.WAITING, _fail),
            (State.IDLE, Event.END): To(State.ENDED),
            (State.DIALLING, Event.END): To(State.ENDED, _end),
            (State.WAITING, Event.END): To(State.ENDED, _end),
            (State.ENDED, Event.END): IGNORED,
        },
        otherwise={Event.DIAL: ILLEGAL, Event.PROVE: ILLEGAL, Event.FAIL: ILLEGAL},
    )


class _Attempt:
    """One connection to a place. Implements ``wire.core.peer.Link``."""

    def __init__(self, node_id: str, ended: Callable[[_Attempt, str | None], None], timers: Timers) -> None:
        self._node_id = node_id
        self._ended = ended
        self._timers = timers
        self._timer: Timer | None = None
        self._connection: SealableConnection | None = None
        self._stopped = False
        self._decoder = FrameDecoder(AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX)

    def connected(self, connection: SealableConnection) -> None:
        if self._stopped:
            connection.abort()
            return
        self._connection = connection
        self._timer = self._timers.call_later(_ANSWER_MS, lambda: self._finish("no connection.start in time"))
        connection.send(PROTOCOL_HEADER)

    def receive_data(self, data: bytes) -> None:
        if self._stopped:
            return
        try:
            self._decoder.receive(data)
            frame = self._decoder.next()
            if frame is None:
                return
            method = decode_method(frame.payload)
        except BrokerError as error:
            self._finish(str(error))
            return
        named = method.server_properties.get(NODE_PROPERTY) if isinstance(method, ConnectionStart) else None
        self._finish(None if named == self._node_id else "another node answers")

    def disconnected(self, reason: str) -> None:
        self._finish(reason)

    def stop(self) -> None:
        """Close the connection; the result does not matter any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connection is not None:
            self._connection.abort()

    def _finish(self, failure: str | None) -> None:
        if not self._stopped:
            self.stop()
            self._ended(self, failure)


class EndpointChecks:
    """The checks of all places that other nodes state."""

    def __init__(self, dialer: EndpointDialer | None, timers: Timers, changed: Callable[[], None]) -> None:
        """Check nothing yet.

        Args:
            dialer: Makes connections; None: no place is ever reached.
            timers: Used for the times of checks.
            changed: Called when a place is reached, or not any more.
        """
        self._dialer = dialer
        self._timers = timers
        self._changed = changed
        self._checks: dict[Place, EndpointCheck] = {}

    def check(self, places: Collection[Place]) -> None:
        """Check these places and no others from now on; those that were checked before keep their result."""
        for place in [each for each in self._checks if each not in places]:
            self._checks.pop(place).fire(Event.END)
        if self._dialer is None:
            return
        for place in places:
            if place not in self._checks:
                check = self._checks[place] = EndpointCheck(place, self._dialer, self._timers, self._changed)
                check.fire(Event.DIAL)

    def reached(self, place: Place) -> bool:
        """Whether the last check of a place has found its node."""
        check = self._checks.get(place)
        return check is not None and check.reached

    def close(self) -> None:
        """End all checks."""
        self.check(())
