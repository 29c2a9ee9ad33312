"""Permissions: which setting counts, and that nothing is granted by accident."""

from __future__ import annotations

import itertools

import pytest

from support.directories import ADA, ADA_ROLES, FakeDirectory, role
from support.routing import manual_time
from understudy.config.model import Configuration, SecuritySettingConfiguration
from understudy.errors import AuthenticationFailed, ConfigError, NotAuthorized
from understudy.security.authentication import Authenticator
from understudy.security.authorization import (
    NoSecurity,
    Permission,
    Principal,
    RoleSecurity,
    SecurityPolicy,
    UserTexts,
    authenticator_of,
    security_policy,
)
from understudy.security.directory import Entry
from understudy.security.login_modules import LoginModule
from understudy.security.password_hashes import HashParameters
from understudy.security.settings import SecuritySettings
from understudy.wildcards import Wildcards

CHEAP = HashParameters(n=2, r=1, p=1)
ADMIN = Principal("ada", frozenset({"admins"}))
USER = Principal("uwe", frozenset({"users", "guests"}))


class CountingEntropy:
    def __init__(self) -> None:
        self._calls = itertools.count(1)

    def token(self, length_bytes: int) -> bytes:
        return next(self._calls).to_bytes(length_bytes, "big")


def setting(match: str, **roles: str) -> SecuritySettingConfiguration:
    permissions = {Permission[name.upper()]: frozenset(names.split()) for name, names in roles.items()}
    return SecuritySettingConfiguration(match, permissions)


def policy(*settings: SecuritySettingConfiguration, cache_size: int = 1000) -> RoleSecurity:
    return RoleSecurity(
        Authenticator({}, {}, CountingEntropy(), manual_time()), SecuritySettings(settings), cache_size=cache_size
    )


def may(
    security: SecurityPolicy, principal: Principal, permission: Permission, address: str, queue: str | None = None
) -> bool:
    try:
        security.check(principal, permission, address, queue)
    except NotAuthorized:
        return False
    return True


def test_a_role_that_has_the_permission_may() -> None:
    security = policy(setting("orders", send="admins users", consume="admins"))
    assert may(security, ADMIN, Permission.SEND, "orders")
    assert may(security, USER, Permission.SEND, "orders")
    assert may(security, ADMIN, Permission.CONSUME, "orders")
    assert not may(security, USER, Permission.CONSUME, "orders")


@pytest.mark.parametrize("permission", Permission)
def test_every_permission_is_its_own(permission: Permission) -> None:
    security = policy(SecuritySettingConfiguration("a", {permission: frozenset({"admins"})}))
    assert [each for each in Permission if may(security, ADMIN, each, "a")] == [permission]


def test_answers_are_counted_and_questions_are_not() -> None:
    security = policy(setting("#", send="admins"))
    assert security.allows(ADMIN, Permission.SEND, "a")
    assert not security.allows(USER, Permission.SEND, "a")
    assert (security.allowed_count, security.refused_count) == (0, 0)
    assert may(security, ADMIN, Permission.SEND, "a")
    assert not may(security, USER, Permission.SEND, "a")
    assert (security.allowed_count, security.refused_count) == (1, 1)
    assert security.known_answers == 2
    assert security.known_logins == 0


def test_where_nothing_matches_no_permission_is_granted() -> None:
    assert not may(policy(setting("orders", send="admins")), ADMIN, Permission.SEND, "other")
    assert not may(policy(), ADMIN, Permission.SEND, "other")


def test_a_user_without_a_role_has_no_permission() -> None:
    assert not may(policy(setting("#", send="admins")), Principal("x"), Permission.SEND, "a")


def test_the_most_specific_match_counts_alone() -> None:
    """The manual's example: settings are not inherited."""
    security = policy(
        setting("#", manage="admins"),
        setting("globalqueues.europe.orders.#", send="users", consume="users"),
        setting("globalqueues.europe.#", send="admins", create_durable_queue="admins"),
    )
    plastics = "globalqueues.europe.orders.plastics"
    assert may(security, USER, Permission.SEND, plastics)
    assert not may(security, ADMIN, Permission.SEND, plastics)
    assert not may(security, ADMIN, Permission.CREATE_DURABLE_QUEUE, plastics)
    assert may(security, ADMIN, Permission.SEND, "globalqueues.europe.sport")
    assert may(security, ADMIN, Permission.MANAGE, "elsewhere")
    assert not may(security, ADMIN, Permission.MANAGE, "globalqueues.europe")


def test_an_exact_match_beats_any_wildcard() -> None:
    security = policy(setting("a.*", send="users"), setting("a.b", send="admins"), setting("a.#", send="users"))
    assert may(security, ADMIN, Permission.SEND, "a.b")
    assert not may(security, USER, Permission.SEND, "a.b")
    assert may(security, USER, Permission.SEND, "a.c")


def test_a_fully_qualified_queue_has_its_own_setting() -> None:
    security = policy(setting("foo", consume="admins", send="admins"), setting("foo::q1", consume="users"))
    assert may(security, USER, Permission.CONSUME, "foo", "q1")
    assert may(security, USER, Permission.CONSUME, "foo::q1")
    assert not may(security, ADMIN, Permission.CONSUME, "foo", "q1")
    assert not may(security, ADMIN, Permission.SEND, "foo", "q1")
    assert may(security, ADMIN, Permission.CONSUME, "foo", "q2")
    assert not may(security, USER, Permission.CONSUME, "foo", "q2")
    assert may(security, ADMIN, Permission.SEND, "foo")


def test_a_refusal_names_user_permission_and_address() -> None:
    security = policy()
    with pytest.raises(NotAuthorized, match="user 'ada' has no permission 'send' on address 'orders'"):
        security.check(ADMIN, Permission.SEND, "orders")
    with pytest.raises(NotAuthorized, match="'consume' on queue 'q' of address 'orders'"):
        security.check(ADMIN, Permission.CONSUME, "orders", "q")


@pytest.mark.parametrize("cache_size", [0, 1, 2, 1000])
def test_answers_are_the_same_whatever_is_remembered(cache_size: int) -> None:
    security = policy(setting("a.#", send="admins"), setting("a.b", send="users"), cache_size=cache_size)
    questions = list(itertools.product((ADMIN, USER), ("a.b", "a.c", "b"), (Permission.SEND, Permission.BROWSE)))
    expected = {(ADMIN, "a.c", Permission.SEND), (USER, "a.b", Permission.SEND)}
    for _ in range(3):
        for question in questions:
            principal, address, permission = question
            assert may(security, principal, permission, address) is (question in expected)
    assert len(security._answers) <= cache_size


def test_two_users_of_one_name_with_other_roles_are_not_confused() -> None:
    security = policy(setting("a", send="admins"))
    assert may(security, Principal("x", frozenset({"admins"})), Permission.SEND, "a")
    assert not may(security, Principal("x"), Permission.SEND, "a")


def test_other_wildcards() -> None:
    signs = Wildcards(delimiter="/", any_words=">", single_word="+")
    security = RoleSecurity(
        Authenticator({}, {}, CountingEntropy(), manual_time()),
        SecuritySettings([setting("a/+/c", send="admins")], signs),
    )
    assert may(security, ADMIN, Permission.SEND, "a/b/c")
    assert not may(security, ADMIN, Permission.SEND, "a/b")


def test_without_security_every_client_may_do_everything() -> None:
    security = NoSecurity()
    assert security.authenticate(None, None) == Principal("")
    assert security.authenticate("x", "whatever") == Principal("x")
    assert all(may(security, Principal(""), each, "any") for each in Permission)


def test_the_policy_of_a_configuration() -> None:
    configuration = Configuration(security_settings=(setting("#", send="admins"),), authorization_cache_size=0)
    security = security_policy(
        configuration,
        CountingEntropy(),
        manual_time(),
        UserTexts("ada = pw", "users", "admins = ada", "roles"),
        allow_plain=True,
        parameters=CHEAP,
    )
    principal = security.authenticate("ada", "pw")
    assert principal == ADMIN
    security.check(principal, Permission.SEND, "a")
    with pytest.raises(AuthenticationFailed):
        security.authenticate("ada", "other")


def test_the_policy_of_a_configuration_refuses_plain_passwords_by_default() -> None:
    with pytest.raises(ConfigError, match="users:1: user 'ada'"):
        security_policy(
            Configuration(),
            CountingEntropy(),
            manual_time(),
            UserTexts("ada = pw", "users", "", "roles"),
        )


def test_the_files_are_not_looked_at_without_security() -> None:
    security = security_policy(
        Configuration(security_enabled=False),
        CountingEntropy(),
        manual_time(),
        UserTexts("?", "u", "?", "r"),
    )
    assert isinstance(security, NoSecurity)


def test_changed_users_and_roles_count_for_clients_that_logged_in_before() -> None:
    configuration = Configuration(security_settings=(setting("#", send="admins"),))
    entropy, clock = CountingEntropy(), manual_time()
    before = UserTexts("ada = pw\nbob = pw", "users", "admins = ada, bob", "roles")
    security = security_policy(configuration, entropy, clock, before, allow_plain=True, parameters=CHEAP)
    assert isinstance(security, RoleSecurity)
    told: list[str] = []
    security.settings.listeners.append(lambda: told.append("changed"))
    ada, bob = security.authenticate("ada", "pw"), security.authenticate("bob", "pw")
    assert may(security, ada, Permission.SEND, "a")
    after = UserTexts("ada = other", "users", "others = ada", "roles")
    security.change_users(authenticator_of(configuration, entropy, clock, after, allow_plain=True, parameters=CHEAP))
    assert told == ["changed"]
    assert not may(security, ada, Permission.SEND, "a")
    assert not may(security, bob, Permission.SEND, "a")
    for user, password in (("ada", "pw"), ("bob", "pw")):
        with pytest.raises(AuthenticationFailed):
            security.authenticate(user, password)
    assert security.authenticate("ada", "other").roles == {"others"}


def test_roles_of_a_directory_stay_when_the_users_file_changes() -> None:
    configuration = Configuration(security_settings=(setting("#", send="a", consume="admins"),))
    entropy, clock = CountingEntropy(), manual_time()
    answers = {"(uid=ada)": [ADA], ADA_ROLES: [role("a")]}
    mapping = FakeDirectory(answers, authenticateUser="false")
    proving = FakeDirectory({**answers, "(uid=dan)": [Entry("uid=dan", {})]})
    modules = LoginModule("sufficient", proving), LoginModule("required"), LoginModule("optional", mapping)
    before = UserTexts("ada = pw", "users", "admins = ada", "roles", modules=modules)
    security = security_policy(configuration, entropy, clock, before, allow_plain=True, parameters=CHEAP)
    assert isinstance(security, RoleSecurity)
    by_both, by_directory = security.authenticate("ada", "pw"), security.authenticate("dan", "right")
    assert (by_both.roles, by_directory.roles) == ({"admins", "a"}, frozenset())
    assert (by_both.by_directory, by_directory.by_directory) == (False, True)
    for users, sends, consumes in (("ada = pw", True, False), ("eve = pw", False, False)):
        after = UserTexts(users, "users", "", "roles", modules=modules)
        security.change_users(
            authenticator_of(configuration, entropy, clock, after, allow_plain=True, parameters=CHEAP)
        )
        assert may(security, by_both, Permission.SEND, "a") == sends
        assert may(security, by_both, Permission.CONSUME, "a") == consumes
    proved = security.authenticate("ada", "right")
    security.change_users(authenticator_of(configuration, entropy, clock, after, allow_plain=True, parameters=CHEAP))
    assert may(security, proved, Permission.SEND, "a")


def test_a_guest_has_only_its_role_and_is_off_by_default() -> None:
    settings = (setting("open.#", send="guests admins"), setting("#", send="admins"))
    texts = UserTexts("ada = pw", "users", "admins = ada", "roles")

    def made(**guest: bool) -> SecurityPolicy:
        configuration = Configuration(security_settings=settings, **guest)  # type: ignore[arg-type]
        return security_policy(
            configuration, CountingEntropy(), manual_time(), texts, allow_plain=True, parameters=CHEAP
        )

    with pytest.raises(AuthenticationFailed):
        made().authenticate(None, None)
    security = made(guest_login=True)
    guest = security.authenticate(None, None)
    assert guest == Principal("guest", frozenset({"guests"}))
    assert may(security, guest, Permission.SEND, "open.a")
    assert not may(security, guest, Permission.SEND, "a")
    assert not may(security, guest, Permission.CONSUME, "open.a")
