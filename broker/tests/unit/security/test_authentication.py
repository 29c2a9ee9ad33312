"""Users and passwords: files, hashes, costs, and what an attacker may learn."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from support.routing import manual_time
from understudy.errors import AuthenticationFailed, ConfigError
from understudy.security import password_hashes
from understudy.security.authentication import (
    CREDENTIAL_CHARACTERS_MAX,
    Authenticator,
    Guest,
    LoginCache,
    OtherLogins,
    PasswordCheck,
    Principal,
    parse_roles,
    parse_users,
)
from understudy.security.password_hashes import HashParameters, PasswordHash

CHEAP = HashParameters(n=2, r=1, p=1)
FILE = "artemis-users.properties"


class CountingEntropy:
    """Different bytes at every call, the same in every run."""

    def __init__(self) -> None:
        self._calls = itertools.count(1)

    def token(self, length_bytes: int) -> bytes:
        return next(self._calls).to_bytes(length_bytes, "big")


@pytest.fixture
def derivations(monkeypatch: pytest.MonkeyPatch) -> list[HashParameters]:
    """The cost of every hash that was computed."""
    costs: list[HashParameters] = []
    real: Callable[[str, bytes, HashParameters], bytes] = password_hashes._derive

    def counted(password: str, salt: bytes, parameters: HashParameters) -> bytes:
        costs.append(parameters)
        return real(password, salt, parameters)

    monkeypatch.setattr(password_hashes, "_derive", counted)
    return costs


CLOCK = manual_time()


def login(found: Authenticator, user: str | None, password: str | None) -> Principal:
    """The whole of it, in one thread."""
    begun = found.begin(user, password)
    return begun if isinstance(begun, Principal) else begun.finish(begun.run())


def authenticator(cache_size: int = 1000, cache_ms: int = 10_000, **passwords: str) -> Authenticator:
    entropy = CountingEntropy()
    users = {user: PasswordHash.make(password, entropy, CHEAP) for user, password in passwords.items()}
    return Authenticator(
        users, {"alice": frozenset({"admins"})}, entropy, CLOCK, cache=LoginCache(cache_size, cache_ms)
    )


# --- hashes ----------------------------------------------------------------------------------


def test_a_hash_survives_being_written() -> None:
    made = PasswordHash.make("sécret", CountingEntropy(), CHEAP)
    text = str(made)
    assert text.startswith("ENC(scrypt:2:1:1:")
    assert "sécret" not in text
    read = PasswordHash.parse(text)
    assert read == made
    assert read.verify("sécret")
    assert not read.verify("secret")


def test_equal_passwords_have_different_hashes() -> None:
    entropy = CountingEntropy()
    assert PasswordHash.make("x", entropy, CHEAP).digest != PasswordHash.make("x", entropy, CHEAP).digest


def test_the_hash_is_scrypt_of_rfc_7914() -> None:
    stored = PasswordHash.parse(
        "ENC(scrypt:16384:8:1:536f6469756d43686c6f72696465:"
        "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2)"
    )
    assert stored.verify("pleaseletmein")


@pytest.mark.parametrize(
    "text",
    [
        "secret",
        "",
        "ENC(scrypt:2:1:1:00)",
        "ENC(1024:AA:BB)",
        f"ENC(md5:2:1:1:{'00' * 16}:{'00' * 32})",
        f"ENC(scrypt:3:1:1:{'00' * 16}:{'00' * 32})",
        f"ENC(scrypt:0:1:1:{'00' * 16}:{'00' * 32})",
        f"ENC(scrypt:2:0:1:{'00' * 16}:{'00' * 32})",
        f"ENC(scrypt:-2:1:1:{'00' * 16}:{'00' * 32})",
        f"ENC(scrypt:1073741824:8:1:{'00' * 16}:{'00' * 32})",
        f"ENC(scrypt:2:1:1000:{'00' * 16}:{'00' * 32})",
        f"ENC(scrypt:99999999999:1:1:{'00' * 16}:{'00' * 32})",
        f"ENC(scrypt:2:1:1:{'00' * 4}:{'00' * 32})",
        f"ENC(scrypt:2:1:1:{'00' * 16}:{'00' * 31})",
        f"ENC(scrypt:2:1:1:zz:{'00' * 32})",
    ],
)
def test_no_hash_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        PasswordHash.parse(text)


# --- files -----------------------------------------------------------------------------------


def test_a_users_file() -> None:
    stored = str(PasswordHash.make("pw", CountingEntropy(), CHEAP))
    text = f"# comment\n! another\n\n  alice = {stored}\r\nbob:{stored}\n"
    users = parse_users(text, file=FILE, entropy=CountingEntropy())
    assert list(users) == ["alice", "bob"]
    assert users["bob"].verify("pw")


def test_plain_passwords_are_refused_without_showing_them() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_users("# x\nalice = topsecret", file=FILE, entropy=CountingEntropy())
    assert str(caught.value).startswith(f"{FILE}:2: user 'alice': the password is not hashed")
    assert "topsecret" not in str(caught.value)
    assert caught.value.line == 2


def test_plain_passwords_are_hashed_when_they_are_allowed() -> None:
    users = parse_users("alice = a=b:c", file=FILE, entropy=CountingEntropy(), allow_plain=True, parameters=CHEAP)
    assert users["alice"].parameters == CHEAP
    assert users["alice"].verify("a=b:c")


def test_a_broken_hash_is_no_plain_password() -> None:
    with pytest.raises(ConfigError, match="not of the form"):
        parse_users("alice = ENC(abc)", file=FILE, entropy=CountingEntropy(), allow_plain=True)


@pytest.mark.parametrize("text", ["alice", "= pw", "alice =", "alice = ENC(x)\nalice = y", f"alice = {'x' * 5000}"])
def test_a_wrong_line_is_a_config_error_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_users(text, file=FILE, entropy=CountingEntropy(), allow_plain=True, parameters=CHEAP)
    assert caught.value.file == FILE
    assert caught.value.line in (1, 2)


def test_a_users_name_is_named_once() -> None:
    with pytest.raises(ConfigError, match="'alice' is repeated, first on line 1"):
        parse_users("alice = a\nalice = b", file=FILE, entropy=CountingEntropy(), allow_plain=True, parameters=CHEAP)


def test_a_roles_file() -> None:
    roles = parse_roles("admins = alice, bob ,\nusers = bob\nempty =", file="artemis-roles.properties")
    assert roles == {"alice": frozenset({"admins"}), "bob": frozenset({"admins", "users"})}


def test_a_wrong_roles_file() -> None:
    with pytest.raises(ConfigError, match=r"artemis-roles\.properties:1: no 'name = value'"):
        parse_roles("admins", file="artemis-roles.properties")


# --- checking --------------------------------------------------------------------------------


def test_the_right_password_gives_the_principal_with_its_roles() -> None:
    found = authenticator(alice="pw", bob="pw2")
    assert login(found, "alice", "pw") == Principal("alice", frozenset({"admins"}))
    assert login(found, "bob", "pw2") == Principal("bob")


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("alice", "wrong"),
        ("alice", ""),
        ("bob", "pw"),
        ("", "pw"),
        (None, "pw"),
        ("alice", None),
        (None, None),
        ("alice", "x" * (CREDENTIAL_CHARACTERS_MAX + 1)),
        ("x" * (CREDENTIAL_CHARACTERS_MAX + 1), "pw"),
        ("alice", "\ud800"),
        ("\udfff", "pw"),
        ("Alice", "pw"),
    ],
)
def test_logins_with_wrong_credentials_fail(user: str | None, password: str | None) -> None:
    found = authenticator(alice="pw")
    for _ in range(2):
        with pytest.raises(AuthenticationFailed):
            login(found, user, password)


def test_failures_do_not_tell_whether_the_user_exists(derivations: list[HashParameters]) -> None:
    found = authenticator(alice="pw")
    messages, costs = [], []
    for user in ("alice", "stranger"):
        derivations.clear()
        with pytest.raises(AuthenticationFailed) as caught:
            login(found, user, "wrong")
        messages.append(str(caught.value).replace(user, "X"))
        costs.append(list(derivations))
    assert messages[0] == messages[1]
    assert costs[0] == costs[1] == [CHEAP]


def test_the_decoy_never_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    found = authenticator(alice="pw")
    monkeypatch.setattr(PasswordHash, "verify", lambda self, password: True)
    with pytest.raises(AuthenticationFailed):
        login(found, "stranger", "anything")


def test_a_storm_of_returning_clients_is_hashed_once(derivations: list[HashParameters]) -> None:
    found = authenticator(alice="pw")
    derivations.clear()
    for _ in range(100):
        login(found, "alice", "pw")
    assert len(derivations) == 1


def test_the_memory_does_not_let_others_in() -> None:
    found = authenticator(alice="pw", al="icepw")
    login(found, "alice", "pw")
    for user, password in (("al", "icepw2"), ("alicep", "w"), ("alice", "pw ")):
        with pytest.raises(AuthenticationFailed):
            login(found, user, password)


def test_the_memory_is_bounded_and_keeps_the_latest(derivations: list[HashParameters]) -> None:
    found = authenticator(cache_size=2, a="1", b="2", c="3")
    for user, password in (("a", "1"), ("b", "2"), ("a", "1"), ("c", "3")):
        login(found, user, password)
    derivations.clear()
    login(found, "a", "1")
    login(found, "c", "3")
    assert derivations == []
    login(found, "b", "2")
    assert len(derivations) == 1


def test_no_memory_when_it_is_switched_off(derivations: list[HashParameters]) -> None:
    found = authenticator(cache_size=0, alice="pw")
    derivations.clear()
    login(found, "alice", "pw")
    login(found, "alice", "pw")
    assert len(derivations) == 2


def test_the_memory_is_short_and_use_does_not_renew_it(derivations: list[HashParameters]) -> None:
    found = authenticator(alice="pw")
    login(found, "alice", "pw")
    derivations.clear()
    for _ in range(4):
        CLOCK.advance(2_499)
        login(found, "alice", "pw")
    assert derivations == []
    CLOCK.advance(10)
    login(found, "alice", "pw")
    assert len(derivations) == 1


def test_no_memory_with_an_interval_of_zero(derivations: list[HashParameters]) -> None:
    found = authenticator(cache_ms=0, alice="pw")
    derivations.clear()
    login(found, "alice", "pw")
    login(found, "alice", "pw")
    assert len(derivations) == 2


def test_a_check_is_the_same_for_the_same_login_and_tells_nothing() -> None:
    found = authenticator(alice="pw", bob="pw")
    keys = []
    for user, password in (("alice", "pw"), ("alice", "pw"), ("alice", "p"), ("bob", "pw")):
        check = found.begin(user, password)
        assert isinstance(check, PasswordCheck)
        keys.append(check.key)
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_no_password_is_kept_in_memory() -> None:
    found = authenticator(alice="very secret indeed")
    check = found.begin("alice", "very secret indeed")
    assert isinstance(check, PasswordCheck)
    check.finish(check.run())
    assert "very secret" not in repr([getattr(check, name) for name in check.__slots__])
    assert b"very secret" not in b"".join(found._verified)
    assert "very secret" not in repr(vars(found))


def test_no_login_succeeds_without_users() -> None:
    with pytest.raises(AuthenticationFailed):
        login(Authenticator({}, {}, CountingEntropy(), manual_time()), "alice", "pw")


def guested(*, on_wrong_credentials: bool = False) -> Authenticator:
    guest = Guest(Principal("guest", frozenset({"guests"})), on_wrong_credentials)
    users = {"ada": PasswordHash.make("pw", CountingEntropy(), CHEAP)}
    return Authenticator(users, {}, CountingEntropy(), manual_time(), others=OtherLogins(guest))


def outcome(authenticator: Authenticator, user: str | None, password: str | None) -> Principal:
    found = authenticator.begin(user, password)
    return found if isinstance(found, Principal) else found.finish(found.run())


@pytest.mark.parametrize(("user", "password"), [(None, None), ("", ""), (None, "")])
def test_a_client_without_credentials_is_the_guest(user: str | None, password: str | None) -> None:
    assert outcome(guested(), user, password) == Principal("guest", frozenset({"guests"}))
    with pytest.raises(AuthenticationFailed):
        outcome(Authenticator({}, {}, CountingEntropy(), manual_time()), user, password)


@pytest.mark.parametrize(
    ("user", "password"), [("ada", "wrong"), ("ada", None), ("guest", "guest"), ("eve", ""), (None, "pw")]
)
def test_wrong_credentials_make_no_guest_unless_configured(user: str | None, password: str | None) -> None:
    with pytest.raises(AuthenticationFailed):
        outcome(guested(), user, password)
    assert outcome(guested(on_wrong_credentials=True), user, password).user == "guest"
    assert outcome(guested(on_wrong_credentials=True), "ada", "pw").user == "ada"


def test_the_guest_is_none_of_the_users() -> None:
    with pytest.raises(ConfigError, match="guest-user 'ada'"):
        Authenticator(
            {"ada": PasswordHash.make("pw", CountingEntropy(), CHEAP)}, {}, CountingEntropy(), manual_time(),
            others=OtherLogins(Guest(Principal("ada"))),
        )  # fmt: skip
