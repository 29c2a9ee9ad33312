"""Logins by certificate: which user a certificate belongs to, and with which roles."""

from __future__ import annotations

import pytest

from support.certificates import make
from understudy.config.model import SecuritySettingConfiguration
from understudy.errors import AuthenticationFailed, ConfigError
from understudy.security.authentication import Authenticator, Guest, OtherLogins, Principal, parse_certificate_users
from understudy.security.authorization import RoleSecurity
from understudy.security.certificate_users import CertificateUsers
from understudy.security.settings import SecuritySettings
from understudy.terms import Permission
from understudy.testing.manual_time import ManualTime
from understudy.tls.certificates import DistinguishedName, subject_of

USERS = """
# the most specific part first
alice = CN=alice, OU=clients, O=Example
bob = cn=bob,ou=clients,o=Example
systems = /CN=.*, OU=systems, O=Example/
compact = /CN=[a-z]+,OU=compact/
"""
ROLES = "send = alice, systems\nconsume = alice\n"


def users(text: str = USERS, roles: str = ROLES) -> CertificateUsers:
    return parse_certificate_users(text, users_file="cert-users.properties", roles=roles, roles_file="r")


def subject(text: str) -> DistinguishedName:
    return subject_of(make(text).der)


class Entropy:
    def token(self, length_bytes: int) -> bytes:
        return bytes(length_bytes)


def authenticator(certificates: CertificateUsers | None, guest: Guest | None = None) -> Authenticator:
    return Authenticator({}, {}, Entropy(), ManualTime(), others=OtherLogins(guest, certificates))


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("CN=alice,OU=clients,O=Example", "alice"),
        ("CN=bob,OU=clients,O=Example", "bob"),
        ("CN=pump 7,OU=systems,O=Example", "systems"),
        ("CN=abc,OU=compact", "compact"),
        ("CN=Alice,OU=clients,O=Example", None),
        ("CN=alice,OU=clients", None),
        ("CN=alice,OU=clients,O=Example,C=DE", None),
        # the expression must match the whole name
        ("CN=x,OU=systems,O=Example,C=DE", None),
        ("CN=x\\, OU\\=systems\\, O\\=Example,O=Evil", None),
    ],
)
def test_the_user_of_a_certificate(name: str, user: str | None) -> None:
    assert users().user_of(subject(name)) == user


def test_a_certificate_logs_in_without_a_password_only() -> None:
    alice = subject("CN=alice,OU=clients,O=Example")
    checks = authenticator(users())
    expected = Principal("alice", frozenset({"send", "consume"}), by_certificate=True)
    for user, password in ((None, None), ("", ""), ("another", None)):
        assert checks.begin(user, password, alice) == expected
    # with a password, the password decides
    assert not isinstance(checks.begin("alice", "guess", alice), Principal)
    with pytest.raises(AuthenticationFailed, match="no user for the client certificate 'CN=mallory'"):
        checks.begin(None, None, subject("CN=mallory"))
    with pytest.raises(AuthenticationFailed, match="required"):
        checks.begin(None, None, None)
    with pytest.raises(AuthenticationFailed, match="required"):
        authenticator(None).begin(None, None, alice)


def test_a_certificate_goes_before_the_guest() -> None:
    guest = Guest(Principal("guest", frozenset({"guests"})))
    checks = authenticator(users(), guest)
    alice = checks.begin(None, None, subject("CN=alice,OU=clients,O=Example"))
    assert isinstance(alice, Principal)
    assert alice.user == "alice"
    assert checks.begin(None, None, subject("CN=mallory")) == guest.principal


def test_changed_files_count_for_clients_that_have_logged_in() -> None:
    granted = SecuritySettingConfiguration("#", {Permission.SEND: frozenset({"send"})})
    policy = RoleSecurity(authenticator(users()), SecuritySettings((granted,)))
    alice = policy.begin(None, None, subject("CN=alice,OU=clients,O=Example"))
    assert isinstance(alice, Principal)
    assert policy.allows(alice, Permission.SEND, "a")
    policy.change_users(authenticator(users(USERS, "other = alice")))
    assert not policy.allows(alice, Permission.SEND, "a")
    policy.change_users(authenticator(users()))
    assert policy.allows(alice, Permission.SEND, "a")
    policy.change_users(authenticator(users("carol = CN=carol")))
    assert not policy.allows(alice, Permission.SEND, "a")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alice = no name", "cert-users.properties:1.*is no distinguished name"),
        ("a = /(/", "cert-users.properties:1.*is no regular expression"),
        ("a = CN=x\nb = cn=x", "cert-users.properties:2.*belongs to 'a' and 'b'"),
        ("CN", "cert-users.properties:1"),
    ],
)
def test_errors_name_the_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        users(text)
