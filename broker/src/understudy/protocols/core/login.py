"""A CREATESESSION whose password is being checked elsewhere, and what came behind it.

The check takes tens of milliseconds and does not run on the loop (``security.logins``). Meanwhile the
connection lives: pings are answered and its other sessions go on. What must not overtake the login is
held in order: everything for the setup channel, and frames for channels that have no session yet.

Not here: what opening a session means (``connection``).
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
    """Whether setup frames can be carried out."""

    OPEN = auto()
    CHECKING = auto()
    """A password is being checked; setup frames are held."""
    CLOSED = auto()


class Event(Enum):
    """What happens to it."""

    ASK = auto()
    """A login needs a check."""
    ANSWER = auto()
    """The check is done."""
    CLOSE = auto()
    """The connection is gone."""


#: Wrong passwords on a connection that has logged in, after which it is treated like any other.
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
        """Logins of the connection whose password was wrong."""
        self._frames = 0
        """Frames of the connection before its login."""
        self._held: deque[Frame] = deque()
        self.held_bytes = 0
        """Of frames that wait."""

    @property
    def checking(self) -> bool:
        """Whether a password is being checked."""
        return self._state is State.CHECKING

    def log_in(self, packet: Create) -> None:
        """Open the session now or when its password is known to be right.

        Raises:
            AuthenticationFailed, SessionRejected: it is refused at once.
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
        """A frame came before the login. Raises LimitExceeded."""
        self._frames += 1
        if self._frames > FRAMES_BEFORE_LOGIN_MAX:
            raise LimitExceeded(f"more than {FRAMES_BEFORE_LOGIN_MAX} frames before a login")

    def hold(self, frame: Frame) -> None:
        """It came behind a login that is not answered."""
        self._held.append(frame)
        self.held_bytes += frame.size_bytes

    def close(self) -> None:
        """The connection is gone."""
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
            # what needs to wait for the next login comes back through ``hold``, in order
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
        # one login at a time: whatever asks for another is held
        otherwise={Event.ASK: ILLEGAL, Event.ANSWER: ILLEGAL, Event.CLOSE: ILLEGAL},
    )
