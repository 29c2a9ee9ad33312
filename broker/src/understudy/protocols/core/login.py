"""Logins of a connection: a CREATESESSION during its password check, and the frames held until then.

The check takes tens of milliseconds and runs on another thread (``security.logins``). Meanwhile the connection is
served: pings are answered and its other sessions continue. Frames that must not be handled before the login are
held in order: those of the setup channel, and those of channels without a session.

Not here: opening the session (``connection``).
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, Final

from understudy.errors import BrokerError, LimitExceeded
from understudy.limits import FRAMES_BEFORE_LOGIN_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.security.authentication import Principal
from understudy.security.logins import Login
from understudy.wire.core import packets
from understudy.wire.core.codec import Frame

if TYPE_CHECKING:
    from understudy.protocols.core.connection import CoreConnection


class State(Enum):
    """States of the logins of a connection."""

    OPEN = auto()
    CHECKING = auto()
    """A password is being checked; setup frames are held."""
    CLOSED = auto()


class Event(Enum):
    """Events of the logins of a connection."""

    ASK = auto()
    """A login needs a check."""
    ANSWER = auto()
    """The check is done."""
    CLOSE = auto()
    """The connection was lost."""


#: Failed logins on a connection that has logged in before, after which it has no exemption from the limits.
FAILURES_OF_PROVED_MAX: Final = 5

Create = packets.CreateSession | packets.CreateSessionV2


class LoginStep(Machine[State, Event]):
    """The logins of one connection, one after the other."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.OPEN

    def __init__(self, connection: CoreConnection) -> None:
        super().__init__()
        self._connection = connection
        self._login: Login | None = None
        self._packet: Create | None = None
        self._failures = 0
        """Number of failed logins on the connection."""
        self._frames = 0
        """Number of frames received before the first login."""
        self._held: deque[Frame] = deque()
        self.held_bytes = 0
        """Size of the held frames."""

    @property
    def checking(self) -> bool:
        """Whether a password is being checked."""
        return self._state is State.CHECKING

    def log_in(self, packet: Create) -> None:
        """Open the session at once, or after the check of the password.

        Raises:
            AuthenticationFailed, SessionRejected: the login is refused at once.
        """
        connection = self._connection
        found = connection.services.logins.ask(
            connection.host,
            packet.user,
            packet.password,
            self._told,
            proved_user=connection.user if self._failures < FAILURES_OF_PROVED_MAX else None,
        )
        if isinstance(found, Principal):
            connection.open_session(packet, found)
        else:
            self.fire(Event.ASK, packet, found)

    def count_frame(self) -> None:
        """Count a frame received before the login. Raises LimitExceeded."""
        self._frames += 1
        if self._frames > FRAMES_BEFORE_LOGIN_MAX:
            raise LimitExceeded(f"more than {FRAMES_BEFORE_LOGIN_MAX} frames before a login")

    def hold(self, frame: Frame) -> None:
        """Hold a frame received during a login."""
        self._held.append(frame)
        self.held_bytes += frame.size_bytes

    def close(self) -> None:
        """The connection was lost: cancel the login and drop held frames."""
        self.fire(Event.CLOSE)
        self._held.clear()
        self.held_bytes = 0

    # --- actions ---------------------------------------------------------------------------------

    def _wait(self, packet: Create, login: Login) -> None:
        self._packet, self._login = packet, login

    def _cancel(self) -> None:
        if self._login is not None:
            self._login.cancel()
        self._packet = self._login = None

    def _told(self, outcome: Principal | BrokerError) -> None:
        self.fire(Event.ANSWER, outcome)

    def _go_on(self, outcome: Principal | BrokerError) -> None:
        packet, connection = self._packet, self._connection
        self._packet = self._login = None
        assert packet is not None
        if isinstance(outcome, BrokerError):
            self._failures += 1
            connection.refuse_session(outcome, packet.user)
        else:
            try:
                connection.open_session(packet, outcome)
            except BrokerError as error:
                connection.refuse_session(error, packet.user)
        try:
            self._carry_out_held()
        except BrokerError as error:
            connection.give_up(error)

    def _carry_out_held(self) -> None:
        held, self._held = self._held, deque()
        self.held_bytes = 0
        for frame in held:
            # frames that must wait for the next login are held again by ``hold``, in order
            self._connection.receive_frame(frame)

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.OPEN, Event.ASK): To(State.CHECKING, _wait),
            (State.OPEN, Event.CLOSE): To(State.CLOSED),
            (State.CHECKING, Event.ANSWER): To(State.OPEN, _go_on),
            (State.CHECKING, Event.CLOSE): To(State.CLOSED, _cancel),
            (State.CLOSED, Event.CLOSE): IGNORED,
        },
        # one login at a time: a further request is held
        otherwise={Event.ASK: ILLEGAL, Event.ANSWER: ILLEGAL, Event.CLOSE: ILLEGAL},
    )
