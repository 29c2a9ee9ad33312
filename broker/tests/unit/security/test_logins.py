"""Password checks that wait: shared, fair between hosts, bounded, told exactly once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.core import LazyWorker
from support.directories import ADA, ADA_ROLES, FakeDirectory, role
from support.routing import manual_time
from understudy.errors import AuthenticationFailed, BrokerError, SessionRejected
from understudy.limits import LDAP_LOOKUPS_MAX
from understudy.security import logins as logins_module
from understudy.security.authentication import Authenticator, LoginCache, OtherLogins, Principal
from understudy.security.authorization import RoleSecurity
from understudy.security.directory import DirectorySession, DirectoryUnavailable
from understudy.security.login_guard import FAILURES_OF_USER_MAX, WINDOW_MS, LoginGuard
from understudy.security.login_modules import LoginModule
from understudy.security.logins import Login, Logins
from understudy.security.password_hashes import HashParameters, PasswordHash
from understudy.security.settings import SecuritySettings
from understudy.tls.certificates import DistinguishedName

CHEAP = HashParameters(n=2, r=1, p=1)
USERS = ("ann", "ben", "cat")


class CountingEntropy:
    def __init__(self) -> None:
        self._calls = itertools.count(1)

    def token(self, length_bytes: int) -> bytes:
        return next(self._calls).to_bytes(length_bytes, "big")


class SteppedLogins:
    """Logins of three users, whose passwords are their names, over a worker that the test runs step by step."""

    def __init__(self, at_once: int = 1, cache_ms: int = 10_000, modules: tuple[LoginModule, ...] = ()) -> None:
        entropy, self.clock, self.worker, self.lookups = CountingEntropy(), manual_time(), LazyWorker(), LazyWorker()
        users = {user: PasswordHash.make(user, entropy, CHEAP) for user in USERS}
        cache = LoginCache(lifetime_ms=cache_ms)
        authenticator = Authenticator(users, {}, entropy, self.clock, cache=cache, others=OtherLogins(modules=modules))
        policy = RoleSecurity(authenticator, SecuritySettings())
        guard = LoginGuard(self.clock)
        self.logins = Logins(policy, guard, self.worker, lookups=self.lookups, at_once=at_once)
        self.told: list[tuple[str, Principal | BrokerError]] = []

    def ask(
        self, user: str, password: str, host: str = "h", name: str = "", proved_user: str | None = None
    ) -> Principal | Login:
        return self.logins.ask(
            host,
            user,
            password,
            lambda outcome: self.told.append((name or f"{user}@{host}", outcome)),
            proved_user=proved_user,
        )

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]


def test_a_login_waits_for_its_check_and_the_next_one_does_not() -> None:
    rig = SteppedLogins()
    assert isinstance(rig.ask("ann", "ann"), Login)
    assert rig.told == []
    assert rig.worker.work() == 1
    assert rig.told == [("ann@h", Principal("ann"))]
    assert rig.ask("ann", "ann") == Principal("ann")
    assert rig.logins.waiting_count == 0


def test_a_thousand_clients_that_come_back_cost_one_check() -> None:
    rig = SteppedLogins()
    for number in range(1000):
        rig.ask("ann", "ann", host=f"h{number % 5}")
    assert rig.worker.work() == 1
    assert len(rig.told) == 1000
    assert all(outcome == Principal("ann") for _, outcome in rig.told)


def test_a_wrong_password_fails_all_logins_that_gave_it_and_counts_for_their_hosts() -> None:
    rig = SteppedLogins()
    for _ in range(FAILURES_OF_USER_MAX):
        rig.ask("ann", "wrong", host="bad")
    rig.ask("ann", "wrong", host="other")
    rig.worker.work()
    assert len(rig.told) == FAILURES_OF_USER_MAX + 1
    assert all(isinstance(outcome, AuthenticationFailed) for _, outcome in rig.told)
    with pytest.raises(AuthenticationFailed, match="failed logins"):
        rig.ask("ann", "ann", host="bad")
    assert isinstance(rig.ask("ann", "ann", host="other"), Login)


def test_hosts_take_turns() -> None:
    rig = SteppedLogins()
    for number in range(4):
        rig.ask("ann", f"guess {number}", host="guesser", name=f"g{number}")
    rig.ask("ben", "ben", host="honest", name="honest")
    rig.worker.work()
    assert rig.names.index("honest") <= 2, "after the guess under way and at most one more"


def test_a_host_that_fails_too_often_is_refused_at_its_turn_without_a_check() -> None:
    rig = SteppedLogins()
    for number in range(FAILURES_OF_USER_MAX + 5):
        rig.ask("ann", f"guess {number}")
    assert rig.worker.work() == FAILURES_OF_USER_MAX
    assert len(rig.told) == FAILURES_OF_USER_MAX + 5
    assert "failed logins" in str(rig.told[-1][1])
    rig.clock.advance(WINDOW_MS)
    rig.ask("ann", "ann")
    rig.worker.work()
    assert rig.told[-1][1] == Principal("ann")


def test_a_host_that_failed_does_not_take_others_along() -> None:
    rig = SteppedLogins()
    for number in range(FAILURES_OF_USER_MAX):
        rig.ask("ann", f"guess {number}", host="bad")
    rig.ask("ann", "ann", host="bad", name="refused")
    rig.ask("ann", "ann", host="good", name="let in")
    rig.ask("cat", "cat", host="bad", name="another user")
    rig.worker.work()
    outcomes = dict(rig.told)
    assert isinstance(outcomes["refused"], AuthenticationFailed)
    assert outcomes["let in"] == Principal("ann")
    assert outcomes["another user"] == Principal("cat")


def fail_often(rig: SteppedLogins, host: str = "h", user: str = "ann") -> None:
    """Until a password of the user is not looked at any more."""
    for number in range(FAILURES_OF_USER_MAX):
        rig.ask(user, f"guess {number}", host=host)
    rig.worker.work()
    with pytest.raises(AuthenticationFailed, match="too many"):
        rig.ask(user, "another guess", host=host)
    rig.told.clear()


def test_a_remembered_success_is_let_in_whatever_failed_since() -> None:
    rig = SteppedLogins()
    rig.ask("ann", "ann")
    rig.worker.work()
    fail_often(rig)
    assert rig.ask("ann", "ann") == Principal("ann")


def test_a_password_that_was_right_before_is_checked_and_not_refused_unseen() -> None:
    """The success is too old to be remembered, so it is checked again, beside the guesses."""
    rig = SteppedLogins()
    rig.ask("ann", "ann")
    rig.worker.work()
    rig.clock.advance(3_600_000)
    fail_often(rig)
    assert isinstance(rig.ask("ann", "ann", host="elsewhere"), Login)
    assert isinstance(rig.ask("ann", "ann"), Login)
    rig.worker.work()
    assert [outcome for _, outcome in rig.told] == [Principal("ann")] * 2


def test_another_session_of_a_connection_that_has_logged_in_is_not_refused_unseen() -> None:
    """A further session of the same user has its password checked; one of another user is a guess like any other."""
    rig = SteppedLogins(cache_ms=0)
    fail_often(rig)
    assert isinstance(rig.ask("ann", "ann", proved_user="ann"), Login)
    with pytest.raises(AuthenticationFailed, match="too many"):
        rig.ask("ann", "guess", proved_user="ben")


def test_a_guess_now_and_then_keeps_no_user_out() -> None:
    """One wrong password in 0.8 s from the address, and right ones between, also of users that come first then."""
    rig = SteppedLogins(cache_ms=1_000)
    outcomes = []
    for second in range(100):
        rig.ask("ann", f"guess {second}", name="guess")
        user = USERS[second // 10 % 3]
        found = rig.ask(user, user, name="right")
        rig.worker.work()
        outcomes.append(found if isinstance(found, Principal) else dict(rig.told)["right"])
        rig.told.clear()
        rig.clock.advance(800)
    assert all(isinstance(outcome, Principal) for outcome in outcomes)


def test_a_cancelled_login_is_neither_answered_nor_checked() -> None:
    rig = SteppedLogins()
    running = rig.ask("ann", "ann")
    waiting = rig.ask("ben", "ben")
    assert isinstance(running, Login)
    assert isinstance(waiting, Login)
    running.cancel()
    waiting.cancel()
    assert rig.worker.work() == 1, "the running check is finished, waiting ones are not begun"
    assert rig.told == []
    assert rig.logins.waiting_count == 0


def test_waiting_logins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins_module, "LOGINS_WAITING_OF_HOST_MAX", 2)
    monkeypatch.setattr(logins_module, "LOGINS_WAITING_MAX", 3)
    rig = SteppedLogins()
    rig.ask("ann", "ann")
    rig.ask("ann", "ann")
    with pytest.raises(SessionRejected):
        rig.ask("ann", "ann")
    rig.ask("ann", "ann", host="other")
    with pytest.raises(SessionRejected):
        rig.ask("ann", "ann", host="third")
    rig.worker.work()
    assert len(rig.told) == 3
    assert rig.ask("ann", "ann", host="third") == Principal("ann")


def test_a_check_that_breaks_is_no_login() -> None:
    rig = SteppedLogins()
    rig.ask("ann", "ann")
    _, done = rig.worker.jobs.popleft()
    done(MemoryError("no memory for scrypt"))
    assert isinstance(rig.told[0][1], SessionRejected)
    rig.ask("ann", "ann")
    rig.worker.work()
    assert rig.told[1][1] == Principal("ann")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.sampled_from(USERS), st.sampled_from((*USERS, "x")), st.sampled_from("AB")),
            st.tuples(st.just("work"), st.integers(1, 3)),
            st.tuples(st.just("cancel"), st.integers(0, 20)),
            st.tuples(st.just("wait"), st.integers(0, 20_000)),
        ),
        max_size=60,
    ),
    st.integers(1, 3),
)
def test_every_waiting_login_is_answered_once_and_rightly(steps: list[tuple[object, ...]], at_once: int) -> None:
    """Any order of asking, working, leaving and waiting: exactly one answer each, and only the right ones."""
    rig = SteppedLogins(at_once)
    outcomes: dict[int, list[Principal | BrokerError]] = {}
    rights: dict[int, bool] = {}
    open_logins: dict[int, Login] = {}
    cancelled: set[int] = set()
    for number, step in enumerate(steps):
        if step[0] == "ask":
            _, user, password, host = step
            rights[number] = user == password
            outcomes[number] = []
            try:
                found = rig.logins.ask(str(host), str(user), str(password), outcomes[number].append)
            except AuthenticationFailed as error:
                outcomes[number].append(error)
                continue
            if isinstance(found, Login):
                open_logins[number] = found
            else:
                outcomes[number].append(found)
        elif step[0] == "work":
            rig.worker.work(int(str(step[1])))
        elif step[0] == "cancel":
            numbers = [each for each in open_logins if not outcomes[each]]
            if numbers:
                chosen = numbers[int(str(step[1])) % len(numbers)]
                open_logins[chosen].cancel()
                cancelled.add(chosen)
        else:
            rig.clock.advance(int(str(step[1])))
    rig.worker.work()
    assert rig.logins.waiting_count == 0
    for number, told in outcomes.items():
        assert len(told) == (0 if number in cancelled else 1)
        if told and isinstance(told[0], Principal):
            assert rights[number]


def test_logins_are_counted_by_their_outcome() -> None:
    rig = SteppedLogins()
    rig.ask("ann", "ann")
    rig.ask("ben", "wrong")
    while rig.worker.work():
        pass
    assert (rig.logins.succeeded_count, rig.logins.failed_count) == (1, 1)
    assert rig.ask("ann", "ann") == Principal("ann"), "remembered, and still counted as a login"
    assert rig.logins.succeeded_count == 2


def failures(rig: SteppedLogins) -> dict[str, int]:
    return {reason: count for reason, count in rig.logins.failures.items() if count}


def test_failed_logins_are_counted_by_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SteppedLogins()
    rig.ask("ben", "wrong")
    rig.worker.work()
    with pytest.raises(AuthenticationFailed):
        rig.ask("ben", None)  # type: ignore[arg-type]
    with pytest.raises(AuthenticationFailed):
        rig.logins.ask("h", None, None, rig.told.append, certificate=DistinguishedName("CN=x", "CN=x"))  # type: ignore[arg-type]
    assert failures(rig) == {"wrong-credentials": 1, "unusable-credentials": 1, "unknown-certificate": 1}
    monkeypatch.setattr(logins_module, "LOGINS_WAITING_MAX", 0)
    with pytest.raises(SessionRejected):
        rig.ask("ann", "ann")
    assert failures(rig)["too-many-waiting"] == 1
    for _ in range(FAILURES_OF_USER_MAX):
        with pytest.raises(AuthenticationFailed):
            rig.ask("cat", None)  # type: ignore[arg-type]
    with pytest.raises(AuthenticationFailed, match="too many failed logins"):
        rig.ask("cat", "cat")
    assert failures(rig)["too-many-failures"] == 1


def test_a_check_that_fails_is_counted_apart(caplog: pytest.LogCaptureFixture) -> None:
    rig = SteppedLogins()
    rig.ask("ann", "ann")
    (check,) = rig.logins._checks.values()
    rig.logins._finish(check, False, OSError("no memory"))
    assert failures(rig) == {"check-failed": 1}


# --- directories -------------------------------------------------------------------------------------


def file_and_directory(directory: FakeDirectory) -> tuple[LoginModule, ...]:
    return LoginModule("sufficient"), LoginModule("sufficient", directory)


class DownDirectory(FakeDirectory):
    def open(self) -> DirectorySession:
        raise DirectoryUnavailable("login.config:1 ldap://h:389 gives no answer")


def test_a_user_of_the_directory_is_cached_for_the_interval_with_its_roles() -> None:
    directory = FakeDirectory({"(uid=ada)": [ADA], ADA_ROLES: [role("a")]})
    rig = SteppedLogins(modules=file_and_directory(directory))
    rig.ask("ada", "right")
    assert rig.worker.work() == 1
    assert rig.told == []
    assert rig.lookups.work() == 1
    ada = Principal("ada", frozenset({"a"}), by_directory=True)
    assert rig.told == [("ada@h", ada)]
    assert rig.ask("ada", "right") == ada
    rig.clock.advance(10_000)
    assert isinstance(rig.ask("ada", "right"), Login)


def test_a_directory_that_is_slow_delays_no_user_of_the_users_file() -> None:
    rig = SteppedLogins(modules=file_and_directory(FakeDirectory({})))
    for number in range(LDAP_LOOKUPS_MAX + 4):
        rig.ask(f"user {number}", "guess", host=f"h{number}")
    rig.worker.work()
    assert len(rig.lookups.jobs) == LDAP_LOOKUPS_MAX
    rig.ask("ann", "ann", host="file")
    rig.worker.work()
    assert rig.names == ["ann@file"]
    rig.lookups.work()
    assert len(rig.told) == LDAP_LOOKUPS_MAX + 5
    assert rig.logins.waiting_count == 0


def test_clients_that_come_back_at_once_share_one_lookup() -> None:
    directory = FakeDirectory({"(uid=ada)": [ADA]})
    rig = SteppedLogins(modules=(LoginModule("required", directory),))
    for number in range(100):
        rig.ask("ada", "right", host=f"h{number}")
    assert not rig.worker.jobs
    rig.lookups.work()
    assert len(directory.bound) == 1
    assert len(rig.told) == 100


def test_no_answer_of_a_directory_is_no_wrong_password(caplog: pytest.LogCaptureFixture) -> None:
    rig = SteppedLogins(modules=file_and_directory(DownDirectory({})))
    for _ in range(FAILURES_OF_USER_MAX + 1):
        rig.ask("ada", "right")
        rig.worker.work()
        rig.lookups.work()
    assert {type(outcome) for _, outcome in rig.told} == {SessionRejected}
    assert "a directory gave no answer for a login" in caplog.text
    assert rig.logins.failed_count == 0


def test_a_wrong_password_at_the_directory_counts_as_failed() -> None:
    rig = SteppedLogins(modules=file_and_directory(FakeDirectory({"(uid=ada)": [ADA]})))
    for number in range(FAILURES_OF_USER_MAX):
        rig.ask("ada", f"guess {number}")
        rig.worker.work()
        rig.lookups.work()
    assert all(isinstance(outcome, AuthenticationFailed) for _, outcome in rig.told)
    with pytest.raises(AuthenticationFailed, match="failed logins"):
        rig.ask("ada", "another guess")
