"""Logins of a connection: a request during its password check, and the input that is held until then.

The check takes tens of milliseconds and runs on another thread (``security.logins``). Meanwhile the connection is
served: pings are answered and its other sessions continue. Input that must not be handled before the login is
held in order. What the input is, and which of it is held, depends on the protocol (``LoginOwner``).
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from understudy.errors import BrokerError, LimitExceeded
from understudy.limits import FRAMES_BEFORE_LOGIN_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.security.authentication import Principal
from understudy.security.logins import Login, Logins
from understudy.tls.certificates import DistinguishedName

R = TypeVar("R")
"""Login request of a protocol."""
I = TypeVar("I")  # noqa: E741
"""Unit of held input of a protocol, for instance a frame."""
R_contra = TypeVar("R_contra", contravariant=True)
I_contra = TypeVar("I_contra", contravariant=True)


class LoginOwner(Protocol[R_contra, I_contra]):
    """A connection whose logins are checked."""

    host: str
    """Address of the client without port."""
    user: str | None
    """User of the latest login; None before the first."""

    def logged_in(self, request: R_contra, principal: Principal) -> None:
        """The login succeeded. Raises BrokerError: the request is refused for another reason."""

    def login_failed(self, request: R_contra, error: BrokerError) -> None:
        """The login, or the request, is refused."""

    def receive_held(self, item: I_contra) -> None:
        """Handle input that was held; it may be held again. Raises BrokerError: close the connection."""

    def fail(self, error: BrokerError) -> None:
        """Close the connection because of an error."""


class State(Enum):
    """States of the logins of a connection."""

    OPEN = auto()
    CHECKING = auto()
    """A password is being checked; input is held."""
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


class LoginStep(Machine[State, Event], Generic[R, I]):
    """Logins of one connection, one after the other."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.OPEN

    def __init__(self, owner: LoginOwner[R, I], logins: Logins, certificate: DistinguishedName | None = None) -> None:
        """Args:
        owner: The connection.
        certificate: Subject of the verified certificate of the client; None: it has none.
        """
        super().__init__()
        self._certificate = certificate
        self._owner = owner
        self._logins = logins
        self._login: Login | None = None
        self._request: R | None = None
        self._failures = 0
        """Number of failed logins on the connection."""
        self._inputs = 0
        """Number of units of input received before the first login."""
        self._held: deque[I] = deque()
        self.held_bytes = 0
        """Size of the held input."""

    @property
    def checking(self) -> bool:
        """Whether a password is being checked."""
        return self._state is State.CHECKING

    def log_in(self, request: R, user: str | None, password: str | None) -> None:
        """Call ``logged_in`` at once, or after the check of the password.

        Raises:
            AuthenticationFailed, SessionRejected: the login is refused at once.
            BrokerError: raised by ``logged_in``.
        """
        owner = self._owner
        found = self._logins.ask(
            owner.host,
            user,
            password,
            self._told,
            proved_user=owner.user if self._failures < FAILURES_OF_PROVED_MAX else None,
            certificate=self._certificate,
        )
        if isinstance(found, Principal):
            owner.logged_in(request, found)
        else:
            self.fire(Event.ASK, request, found)

    def count_input(self) -> None:
        """Count a unit of input received before the first login. Raises LimitExceeded."""
        self._inputs += 1
        if self._inputs > FRAMES_BEFORE_LOGIN_MAX:
            raise LimitExceeded(f"more than {FRAMES_BEFORE_LOGIN_MAX} frames before a login")

    def hold(self, item: I, size_bytes: int) -> None:
        """Hold input received during a login."""
        self._held.append(item)
        self.held_bytes += size_bytes

    def close(self) -> None:
        """Cancel the login and drop held input; called when the connection was lost."""
        self.fire(Event.CLOSE)
        self._held.clear()
        self.held_bytes = 0

    # --- actions ---------------------------------------------------------------------------------

    def _wait(self, request: R, login: Login) -> None:
        self._request, self._login = request, login

    def _cancel(self) -> None:
        if self._login is not None:
            self._login.cancel()
        self._request = self._login = None

    def _told(self, outcome: Principal | BrokerError) -> None:
        self.fire(Event.ANSWER, outcome)

    def _go_on(self, outcome: Principal | BrokerError) -> None:
        request, owner = self._request, self._owner
        self._request = self._login = None
        assert request is not None
        if isinstance(outcome, BrokerError):
            self._failures += 1
            owner.login_failed(request, outcome)
        else:
            try:
                owner.logged_in(request, outcome)
            except BrokerError as error:
                owner.login_failed(request, error)
        try:
            self._receive_held()
        except BrokerError as error:
            owner.fail(error)

    def _receive_held(self) -> None:
        held, self._held = self._held, deque()
        self.held_bytes = 0
        for item in held:
            # input that must wait for the next login is held again, in order
            self._owner.receive_held(item)

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
        # a connection checks one login at a time; a further request waits
        otherwise={Event.ASK: ILLEGAL, Event.ANSWER: ILLEGAL, Event.CLOSE: ILLEGAL},
    )
