"""Options of the LDAPLoginModule: values that are read, errors, and warnings."""

from __future__ import annotations

import pytest

from understudy.config.logins.ldap_login import DEFAULT_TIMEOUT_MS, TIMEOUT_MS_MAX, LdapLogin, read_ldap_login
from understudy.config.logins.message_format import MessageFormat
from understudy.config.password_codec import PasswordCodec
from understudy.errors import ConfigError

OPTIONS = {
    "debug": "true",
    "initialContextFactory": "com.sun.jndi.ldap.LdapCtxFactory",
    "connectionProtocol": "",
    "connectionURL": "ldap://one:1389",
    "connectionUsername": "cn=reader",
    "connectionPassword": "secret",
    "userBase": "ou=people",
    "userSearchMatching": "(uid={0})",
    "roleBase": "ou=roles",
    "roleSearchMatching": "(member={0})",
}


def read(**changed: str) -> LdapLogin:
    return read_ldap_login({**OPTIONS, **changed}, "/etc/node", "login.config", 7)[0]


def warnings(**changed: str) -> list[str]:
    return read_ldap_login({**OPTIONS, **changed}, "/etc/node", "login.config", 7)[1]


def test_options_have_the_defaults_of_artemis_except_for_time_limits() -> None:
    found = read()
    assert [str(server) for server in found.servers] == ["ldap://one:1389"]
    assert (found.username, found.password) == ("cn=reader", "secret")
    assert found.users is not None
    assert (found.users.base, found.users.filter.fill("x"), found.users.subtree) == ("ou=people", "(uid=x)", False)
    assert (found.role_name, found.expand, found.authenticate, found.refuse_referrals) == (None, None, True, False)
    assert (found.connect_timeout_ms, found.read_timeout_ms) == (DEFAULT_TIMEOUT_MS, DEFAULT_TIMEOUT_MS)
    assert (found.start_tls, found.tls) == (False, None)


def test_several_servers_share_the_name_that_bases_end_with() -> None:
    found = read(connectionURL="ldap://one/dc=example,dc=org  LDAP://[::1]:7/dc=example,dc=org")
    assert [str(server) for server in found.servers] == ["ldap://one:389", "ldap://[::1]:7"]
    assert found.users is not None
    assert found.users.base == "ou=people,dc=example,dc=org"
    assert str(read(connectionURL="ldaps://one").servers[0]) == "ldaps://one:636"


def test_time_limits_of_zero_are_the_longest_ones() -> None:
    assert read(connectionTimeout="0", readTimeout="250").connect_timeout_ms == TIMEOUT_MS_MAX
    assert read(readTimeout="250").read_timeout_ms == 250


def test_a_masked_password_is_read_and_no_password_is_shown() -> None:
    found = read(connectionPassword=PasswordCodec().mask("plain secret"))
    assert found.password == "plain secret"
    assert "plain secret" not in repr(found)


def test_trust_stores_are_relative_to_the_file() -> None:
    found = read(startTls="true", trustStorePath="ca.pem")
    assert found.tls is not None
    assert found.tls.trust_store is not None
    assert found.tls.trust_store.path == "/etc/node/ca.pem"
    assert found.tls.verify_host


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"connectionURL": ""}, "LDAPLoginModule needs connectionURL"),
        ({"connectionURL": "http://one"}, "connectionURL: a server is ldap://HOST:PORT"),
        ({"connectionURL": "ldap://one:port"}, "connectionURL: a server is ldap://HOST:PORT"),
        ({"connectionURL": "ldap://user@one"}, "connectionURL: a server is ldap://HOST:PORT"),
        ({"connectionURL": "ldap://one/dc=a ldap://two/dc=b"}, "the names after the servers differ"),
        ({"connectionURL": "ldap://one ldaps://two"}, "some of the servers are ldaps:// and some are not"),
        ({"connectionURL": " ".join(["ldap://one"] * 17)}, "one to 16 servers"),
        ({"connectionPassword": ""}, "LDAPLoginModule needs connectionPassword"),
        ({"connectionPassword": "ENC(xyz)"}, "connectionPassword: a masked password is hexadecimal"),
        ({"authentication": "DIGEST-MD5"}, "authentication=DIGEST-MD5 is not served"),
        ({"userBase": ""}, "userSearchMatching needs userBase"),
        ({"userSearchMatching": "uid={0}"}, "a search filter stands in parentheses"),
        ({"userSearchMatching": "(uid={1})"}, r"userSearchMatching: there is no argument \{1\}"),
        ({"roleSearchMatching": "(member={0)"}, "roleSearchMatching: a single '{'"),
        ({"expandRoles": "true"}, "expandRoles=true needs expandRolesMatching"),
        ({"referral": "maybe"}, "referral=maybe is not one of"),
        ({"readTimeout": "5 s"}, "readTimeout: '5 s' is no number"),
        ({"startTls": "true", "connectionURL": "ldaps://one"}, "begin with TLS already"),
        ({"trustStorePath": "ca.pem"}, "trustStorePath needs ldaps:// or startTls=true"),
        ({"startTls": "true", "trustStorePath": "ca.jks"}, "trustStoreType: /etc/node/ca.jks is a Java key store"),
    ],
)
def test_an_option_that_cannot_be_used_is_an_error_with_the_line(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(**changed)
    assert (caught.value.file, caught.value.line) == ("login.config", 7)
    assert "secret" not in str(caught.value)


def test_options_without_effect_are_named() -> None:
    encrypted = {"connectionURL": "ldaps://one"}
    assert warnings(**encrypted) == []
    found = warnings(**encrypted, connectionPool="true", typo="x", referral="follow", trustAll="true")
    assert [text.removeprefix("login.config:7 ").partition(":")[0] for text in found] == [
        "option connectionPool has no effect",
        "option typo has no effect",
        "option referral=follow has no effect",
        "trustAll=true",
    ]
    (plain,) = warnings()
    assert "unencrypted" in plain
    (without_roles,) = warnings(**encrypted, roleSearchMatching="")
    assert "users have no roles" in without_roles


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("(a={0})", "(a=X{1}'Z)"),
        ("(|(a={1})(b={0}))", "(|(a=Y)(b=X{1}'Z))"),
        ("it''s '{0}' {1}", "it's {0} Y"),
        ("'open {0}", "open {0}"),
        ("", ""),
    ],
)
def test_arguments_are_put_in_once_and_as_they_are(text: str, filled: str) -> None:
    assert MessageFormat.parse(text, 2).fill("X{1}'Z", "Y") == filled


@pytest.mark.parametrize("text", ["{", "}", "{0", "{a}", "{2}", "{}", "{-1}", "{0,number}", "{²}"])
def test_a_place_without_argument_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"single|no argument"):
        MessageFormat.parse(text, 2)
