"""Pending logins: password checks that wait for a worker thread, shared and in fair order.

A check costs tens of milliseconds of a processor (``authentication``), so it never runs on the loop.
Logins with the same user and password share one check, so that a thousand clients that reconnect at
once cost one. Hosts take turns, so that guesses from one host do not delay others. While too many
logins have failed (``login_guard``), a password is refused without a check, when the login arrives
and again when its turn comes. Exempt are passwords that were correct before, and further sessions of
the same user on a connection that has logged in.

Checks that ask a directory run on other threads, with turns of their own, so a directory that does not answer delays
no user of the users file. Logins that wait count for the same limits.

Invariant: the callback of every accepted login is called exactly once, on the loop, unless it is cancelled.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Final

from understudy.errors import AuthenticationFailed, BrokerError, SessionRejected, forget_frames
from understudy.limits import LDAP_LOOKUPS_MAX, LOGINS_WAITING_MAX, LOGINS_WAITING_OF_HOST_MAX
from understudy.ports import Worker
from understudy.security.authentication import PasswordCheck, Principal
from understudy.security.authorization import SecurityPolicy
from understudy.security.login_guard import LoginGuard
from understudy.tls.certificates import DistinguishedName

log = logging.getLogger(__name__)

#: Reasons for which logins fail. ``unusable-credentials``: user name or password are missing or too long;
#: ``too-many-failures``: the password was not checked, because too many logins had failed (``login_guard``).
REASONS: Final = (
    "wrong-credentials",
    "unusable-credentials",
    "unknown-certificate",
    "too-many-failures",
    "too-many-waiting",
    "directory-unavailable",
    "check-failed",
)

Told = Callable[[Principal | BrokerError], None]
"""Called once with the principal, or with the error of the login."""


class Login:
    """One login whose password is being checked."""

    __slots__ = ("exempt", "host", "on_proved", "told", "user")

    def __init__(self, host: str, user: str, told: Told, *, exempt: bool, on_proved: bool) -> None:
        self.host = host
        self.user = user
        self.exempt = exempt
        """Whether earlier failed logins are ignored."""
        self.on_proved = on_proved
        """Whether the connection has logged in before."""
        self.told: Told | None = told

    def cancel(self) -> None:
        """Cancel the login: its callback is not called."""
        self.told = None


class _Check:
    __slots__ = ("check", "logins")

    def __init__(self, check: PasswordCheck) -> None:
        self.check = check
        self.logins: list[Login] = []


class _Lane:
    """Checks for the same threads: those that run, and those that wait in turns by host."""

    __slots__ = ("_at_once", "_turns", "running", "worker")

    def __init__(self, worker: Worker, at_once: int) -> None:
        self.worker = worker
        self._at_once = at_once
        self.running = 0
        self._turns: OrderedDict[str, deque[_Check]] = OrderedDict()
        """Waiting checks by the host that asked first; the host whose turn it is comes first."""

    def add(self, host: str, check: _Check) -> None:
        """Let a check wait for its turn."""
        self._turns.setdefault(host, deque()).append(check)

    def next(self) -> _Check | None:
        """The check whose turn it is; None: there is none, or enough of them run."""
        if self.running >= self._at_once or not self._turns:
            return None
        host, waiting = self._turns.popitem(last=False)
        check = waiting.popleft()
        if waiting:
            self._turns[host] = waiting
        return check


class Logins:
    """Password checks in progress: shared between equal logins, taken in turns between hosts."""

    def __init__(
        self,
        policy: SecurityPolicy,
        guard: LoginGuard,
        worker: Worker,
        *,
        lookups: Worker | None = None,
        at_once: int = 4,
    ) -> None:
        """Args:
        policy: Checks users and passwords.
        guard: Counts failed logins.
        worker: Runs checks that are computed.
        lookups: Runs those that ask a directory; None: there are none.
        at_once: Maximum number of computed checks given to the worker; further ones wait here, in turns by host.
        """
        self._policy = policy
        self._guard = guard
        self._computing = _Lane(worker, at_once)
        self._asking = _Lane(lookups or worker, LDAP_LOOKUPS_MAX)
        self._checks: dict[bytes, _Check] = {}
        """Pending checks, waiting or running, by key."""
        self._waiting: Counter[str] = Counter()
        self.failures = dict.fromkeys(REASONS, 0)
        """Failed logins so far, by reason."""
        self.succeeded_count = self.failed_count = 0
        """Number of successful logins so far, if passwords are checked."""

    @property
    def waiting_count(self) -> int:
        """Number of pending logins."""
        return self._waiting.total()

    def ask(
        self,
        host: str,
        user: str | None,
        password: str | None,
        told: Told,
        *,
        proved_user: str | None = None,
        certificate: DistinguishedName | None = None,
    ) -> Principal | Login:
        """The principal of a client, if no check is required; otherwise None, and ``told`` is called later.

        Args:
            host: Address of the client.
            user: User name of the login.
            password: Password of the login.
            told: Called with the outcome, unless that is returned or raised.
            proved_user: User as which the connection has logged in before; None = it has not.
            certificate: Subject of the verified certificate of the client; None = it has none.

        Raises:
            AuthenticationFailed: the credentials are invalid, or too many logins have failed.
            SessionRejected: too many logins wait.
        """
        try:
            found = self._policy.begin(user, password, certificate)
        except AuthenticationFailed:
            self._ask_guard(host, user, proved=proved_user is not None)
            self._guard.failed(host, user)
            self.failed_count += 1
            by_certificate = certificate is not None and not password
            self.failures["unknown-certificate" if by_certificate else "unusable-credentials"] += 1
            raise
        if isinstance(found, Principal):
            # a cached login resets the count too, so failed logins of other clients do not lock its user out
            self.succeeded_count += self._policy.checks
            return found
        same_user = proved_user is not None and proved_user == user
        login = Login(host, user or "", told, exempt=found.was_right or same_user, on_proved=proved_user is not None)
        self._check_guard(login)
        if self._waiting[host] >= LOGINS_WAITING_OF_HOST_MAX or self.waiting_count >= LOGINS_WAITING_MAX:
            self.failures["too-many-waiting"] += 1
            raise SessionRejected(f"{self._waiting[host]} logins of {host} wait already, try again")
        self._waiting[host] += 1
        check = self._checks.get(found.key)
        if check is None:
            check = self._checks[found.key] = _Check(found)
            self._lane(check).add(host, check)
        check.logins.append(login)
        self._next()
        return login

    def _lane(self, check: _Check) -> _Lane:
        return self._asking if check.check.asks_directory else self._computing

    def _next(self) -> None:
        for lane in (self._computing, self._asking):
            while (check := lane.next()) is not None:
                if self._wanted(check):
                    self._run(lane, check)
                else:
                    del self._checks[check.check.key]

    def _wanted(self, check: _Check) -> bool:
        """Refuse the logins whose host has too many failures by now. Whether any login is left."""
        wanted: list[Login] = []
        for login in check.logins:
            if login.told is None:
                self._forget(login)
                continue
            try:
                self._check_guard(login)
                wanted.append(login)
            except AuthenticationFailed as error:
                self._tell(login, error)
        check.logins = wanted
        return bool(wanted)

    def _check_guard(self, login: Login) -> None:
        """Raises AuthenticationFailed if too many logins from this host or of this user have failed."""
        if not login.exempt:
            self._ask_guard(login.host, login.user, proved=login.on_proved)

    def _ask_guard(self, host: str, user: str | None, *, proved: bool) -> None:
        try:
            self._guard.check(host, user, proved=proved)
        except AuthenticationFailed:
            self.failures["too-many-failures"] += 1
            raise

    def _run(self, lane: _Lane, check: _Check) -> None:
        answer: list[bool | None] = []
        lane.running += 1
        lane.worker.run(lambda: answer.append(check.check.run()), partial(self._ran, lane, check, answer))

    def _ran(self, lane: _Lane, check: _Check, answer: list[bool | None], error: BaseException | None) -> None:
        lane.running -= 1
        if error is None and answer[0] is None:
            self._lane(check).add(check.logins[0].host, check)
        else:
            self._finish(check, bool(answer and answer[0]), error)
        self._next()

    def _finish(self, check: _Check, right: bool, error: BaseException | None) -> None:
        del self._checks[check.check.key]
        outcome: Principal | BrokerError
        try:
            if error is not None:
                log.error("a password could not be checked", exc_info=error)
                raise SessionRejected("the password could not be checked, try again")
            outcome = check.check.finish(right)
        except BrokerError as failure:
            forget_frames(failure)
            outcome = failure
        for login in check.logins:
            if isinstance(outcome, AuthenticationFailed):
                self._guard.failed(login.host, login.user)
                self.failed_count += 1
                self.failures["wrong-credentials"] += 1
            else:
                if isinstance(outcome, BrokerError):
                    self.failures["directory-unavailable" if error is None else "check-failed"] += 1
                self.succeeded_count += isinstance(outcome, Principal)
            self._tell(login, outcome)

    def _tell(self, login: Login, outcome: Principal | BrokerError) -> None:
        self._forget(login)
        told, login.told = login.told, None
        if told is not None:
            told(outcome)

    def _forget(self, login: Login) -> None:
        self._waiting[login.host] -= 1
        if not self._waiting[login.host]:
            del self._waiting[login.host]
