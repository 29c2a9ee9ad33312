"""Logins at a real OpenLDAP server: users, roles, TLS, servers that are down, and characters of filters."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import slapd
from support.certificates import make
from support.ports import free_port
from support.processes import Node
from support.slapd import MANAGER_PASSWORD, SUFFIX, Slapd, login_config
from understudy.cli.node.check import check_security
from understudy.cli.node.user_files import logins_beside, security_of
from understudy.client.sync import connect
from understudy.config.logins.login_config import read_logins
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import AuthenticationFailed, SecurityError, SessionRejected
from understudy.limits import LDAP_LOOKUPS_MAX
from understudy.runtime.base.environment import SystemEntropy
from understudy.runtime.logins.ldap import LdapDirectory
from understudy.security.authorization import Principal, SecurityPolicy
from understudy.security.directory import DirectoryUnavailable, look_up
from understudy.security.password_hashes import PasswordHash

pytestmark = pytest.mark.skipif(not slapd.installed(), reason="slapd (OpenLDAP) is not installed")
PAIR_OF_ROLES = frozenset({"producers"})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    place = tmp_path_factory.mktemp("slapd")
    authority = make("CN=authority,O=Example", authority=True)
    authority.write_certificate(place / "authority.pem")
    make("CN=directory,O=Example", authority, names=("127.0.0.1",)).write(place / "server.pem")
    directory = Slapd(place / "one", tls=(place / "server.pem", place / "authority.pem"))
    directory.start()
    yield directory
    directory.stop()


def authority_of(server: Slapd) -> Path:
    assert server.authority is not None
    return server.authority


def lookup(login: str, user: str, password: str | None) -> frozenset[str] | None:
    """The roles that the module of a login.config gives a user."""
    (module,) = read_logins(f"activemq {{ {login} }};", ["activemq"], "/etc/login.config").passwords
    assert module.ldap is not None
    return look_up(LdapDirectory(module.ldap), user, password)


def test_a_user_has_the_roles_of_the_search(server: Slapd) -> None:
    login = login_config(server.url)
    assert lookup(login, "ada", "password of ada") == PAIR_OF_ROLES
    assert lookup(login, "bob", "password of bob") == frozenset()
    assert lookup(login, "ada", "password of bob") is None
    assert lookup(login, "eve", "password of ada") is None


def test_roles_of_roles_and_roles_in_the_entry_of_the_user(server: Slapd) -> None:
    expanded = login_config(server.url, "expandRoles=true", "expandRolesMatching=(member={0})")
    assert lookup(expanded, "ada", "password of ada") == {"producers", "everything"}
    named = login_config(server.url, "userRoleName=description")
    assert lookup(named, "bob", "password of bob") == {"everything"}
    whole = login_config(server.url, without=("roleName",))
    assert lookup(whole, "ada", "password of ada") == {f"cn=producers,ou=groups,{SUFFIX}"}


def test_bases_end_with_the_name_in_the_url_and_the_depth_counts(server: Slapd) -> None:
    short = login_config(f"{server.url}/dc=example,dc=org", "userBase=ou=people", "roleBase=ou=groups")
    assert lookup(short, "ada", "password of ada") == PAIR_OF_ROLES
    one_level = login_config(server.url, without=("userSearchSubtree",))
    assert lookup(one_level, "ada", "password of ada") == PAIR_OF_ROLES
    assert lookup(one_level, "o,d(d) *", "password of odd") is None


def test_names_of_entries_are_user_names_without_a_user_search(server: Slapd) -> None:
    login = login_config(server.url, without=("userSearchMatching", "userBase"))
    name = f"uid=ada,ou=people,{SUFFIX}"
    assert lookup(login, name, "password of ada") == PAIR_OF_ROLES
    assert lookup(login, name, "wrong") is None
    assert lookup(login, "no name of an entry", "password of ada") is None


@pytest.mark.parametrize(
    "user", ["*", "a*", "ada)(uid=*", "ada)(|(uid=*", "\\61da", "ada\0", "(", ")", "\udc80", " ", ""]
)
def test_characters_of_filters_in_a_user_name_have_no_meaning(server: Slapd, user: str) -> None:
    assert lookup(login_config(server.url), user, "password of ada") is None


def test_a_user_whose_name_has_characters_of_filters_logs_in(server: Slapd) -> None:
    assert lookup(login_config(server.url), "o,d(d) *", "password of odd") == PAIR_OF_ROLES


def test_a_bind_without_password_is_no_login(server: Slapd) -> None:
    assert lookup(login_config(server.url), "ada", "") is None


def test_two_entries_of_one_user_name_prove_neither(server: Slapd) -> None:
    login = login_config(server.url, "userSearchMatching=(mail={0})")
    with pytest.raises(DirectoryUnavailable, match="more than one entry for user"):
        lookup(login, "twin@example.org", "password of ada")


@pytest.mark.parametrize("start_tls", [True, False])
def test_tls_is_verified(server: Slapd, start_tls: bool) -> None:
    url = server.url if start_tls else server.tls_url
    options = ["startTls=true"] if start_tls else []
    trusted = login_config(url, *options, f"trustStorePath={authority_of(server)}")
    assert lookup(trusted, "ada", "password of ada") == PAIR_OF_ROLES
    with pytest.raises(DirectoryUnavailable, match="certificate verify failed"):
        lookup(login_config(url, *options), "ada", "password of ada")
    other_name = login_config(url.replace("127.0.0.1", "localhost"), *options, f"trustStorePath={authority_of(server)}")
    with pytest.raises(DirectoryUnavailable, match="localhost"):
        lookup(other_name, "ada", "password of ada")


def test_a_server_without_tls_gets_no_password(tmp_path: Path) -> None:
    plain = Slapd(tmp_path / "plain").start()
    try:
        with pytest.raises(DirectoryUnavailable, match="startTLS failed"):
            lookup(login_config(plain.url, "startTls=true"), "ada", "password of ada")
    finally:
        plain.stop()


def test_a_wrong_password_of_the_module_is_named(server: Slapd) -> None:
    with pytest.raises(DirectoryUnavailable, match="does not let connectionUsername in: invalidCredentials") as caught:
        lookup(login_config(server.url, "connectionPassword=secret"), "ada", "password of ada")
    assert "secret" not in str(caught.value)


def test_referrals_are_passed_over_or_refused(server: Slapd, tmp_path: Path) -> None:
    referring = Slapd(tmp_path / "referring", referral=server.url).start()
    try:
        elsewhere = ("userBase=ou=people,dc=elsewhere", "userSearchSubtree=true")
        assert lookup(login_config(referring.url, *elsewhere), "ada", "password of ada") is None
        with pytest.raises(DirectoryUnavailable, match="refers to another server"):
            lookup(login_config(referring.url, *elsewhere, "referral=throw"), "ada", "password of ada")
    finally:
        referring.stop()


def test_the_next_server_answers_for_one_that_is_down_or_silent(server: Slapd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        down = f"ldap://127.0.0.1:{free_port()} ldap://127.0.0.1:{silent.getsockname()[1]}"
        assert (
            lookup(login_config(f"{down} {server.url}", "readTimeout=1000"), "ada", "password of ada") == PAIR_OF_ROLES
        )
        began = time.monotonic()
        with pytest.raises(DirectoryUnavailable) as caught:
            lookup(login_config(down, "readTimeout=1000"), "ada", "password of ada")
        assert time.monotonic() - began < 10
        assert str(caught.value).count("gives no answer") == 2


# --- a broker ----------------------------------------------------------------------------------------


BROKER_XML = """<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"><name>n</name>
  <acceptors><acceptor name="a">tcp://127.0.0.1:{port}</acceptor></acceptors>
  <security-settings><security-setting match="#">
    <permission type="send" roles="producers"/><permission type="consume" roles="consumers"/>
    <permission type="createAddress" roles="producers,consumers"/>
    <permission type="createDurableQueue" roles="producers,consumers"/>
  </security-setting></security-settings>
  <addresses><address name="q"><anycast><queue name="q"/></anycast></address></addresses>
</core></configuration>"""


def instance(directory: Path, login: str, port: int = 1) -> Path:
    """The directory etc of an instance with a login.config, and a users file with carl, who may consume."""
    etc = directory / "etc"
    etc.mkdir(parents=True)
    (etc / "broker.xml").write_text(BROKER_XML.format(port=port))
    (etc / "login.config").write_text(f"activemq {{ {login} }};")
    (etc / "login.config").chmod(0o600)
    (etc / "artemis-users.properties").write_text(f"carl = {PasswordHash.make('password of carl', SystemEntropy())}\n")
    (etc / "artemis-roles.properties").write_text("consumers = carl\n")
    return etc


def policy(etc: Path) -> SecurityPolicy:
    loaded = read_broker_xml((etc / "broker.xml").read_bytes(), file="broker.xml", base_directory=str(etc.parent))
    return security_of(loaded.configuration, etc)


PROPERTIES = "org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule"


def test_users_file_and_directory_together(server: Slapd, tmp_path: Path) -> None:
    etc = instance(tmp_path, f"{PROPERTIES} sufficient; {login_config(server.url, flag='sufficient')}")
    security = policy(etc)
    assert security.authenticate("carl", "password of carl") == Principal("carl", frozenset({"consumers"}))
    assert security.authenticate("ada", "password of ada") == Principal("ada", PAIR_OF_ROLES, by_directory=True)
    for user, password in (("carl", "password of ada"), ("ada", "password of carl"), ("ada", "")):
        with pytest.raises(AuthenticationFailed):
            security.authenticate(user, password)
    assert security.known_logins == 2


def test_a_directory_alone_needs_no_users_file(server: Slapd, tmp_path: Path) -> None:
    etc = instance(tmp_path, login_config(server.url))
    (etc / "artemis-users.properties").unlink()
    (etc / "artemis-roles.properties").unlink()
    assert policy(etc).authenticate("ada", "password of ada").roles == PAIR_OF_ROLES
    assert not logins_beside(etc).has_users_file
    loaded = read_broker_xml((etc / "broker.xml").read_bytes(), file="broker.xml", base_directory=str(tmp_path))
    (warning,) = check_security(loaded.configuration, etc)
    assert "unencrypted" in warning


def test_a_successful_login_is_cached_for_the_interval_and_a_dead_server_refuses_the_next(
    server: Slapd, tmp_path: Path
) -> None:
    own = Slapd(tmp_path / "own").start()
    try:
        etc = instance(tmp_path / "instance", login_config(own.url))
        security = policy(etc)
        assert security.authenticate("ada", "password of ada").roles == PAIR_OF_ROLES
    finally:
        own.stop()
    assert security.authenticate("ada", "password of ada").roles == PAIR_OF_ROLES
    with pytest.raises(SessionRejected, match="the directory of users gave no answer, try again"):
        security.authenticate("bob", "password of bob")


def test_a_broker_serves_others_while_the_directory_is_silent(server: Slapd, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ldap://127.0.0.1:{silent.getsockname()[1]}"
        module = login_config(url, "readTimeout=4000", flag="sufficient")
        node = _node(tmp_path, f"{PROPERTIES} sufficient; {module}")
        try:
            node.wait_ready("active")
            waiting = [threading.Thread(target=_refused, args=(node.port, f"user {number}")) for number in range(12)]
            for thread in waiting:
                thread.start()
            lookups = [silent.accept() for _ in range(LDAP_LOOKUPS_MAX)]
            began = time.monotonic()
            with connect(f"tcp://127.0.0.1:{node.port}", user="carl", password="password of carl") as client:
                assert client.session().consumer("q").receive_nowait() is None
            assert time.monotonic() - began < 4
            for link, _ in lookups:
                link.close()
            for thread in waiting:
                thread.join(60)
                assert not thread.is_alive()
            assert "a directory gave no answer for a login" in node.log.read_text()
            assert "password of" not in node.log.read_text()
        finally:
            node.end()


def test_permissions_of_a_broker_are_those_of_the_roles_in_the_directory(server: Slapd, tmp_path: Path) -> None:
    node = _node(tmp_path, login_config(server.url, "startTls=true", f"trustStorePath={authority_of(server)}"))
    try:
        node.wait_ready("active")
        url = f"tcp://127.0.0.1:{node.port}"
        with connect(url, user="ada", password="password of ada") as client:
            client.session().producer("q").send(b"body")
            with pytest.raises(SecurityError, match="no permission 'consume'"):
                client.session().consumer("q")
        with pytest.raises(AuthenticationFailed), connect(url, user="ada", password="wrong") as client:
            client.session()
        assert MANAGER_PASSWORD not in node.log.read_text()
    finally:
        node.end()


def _node(directory: Path, login: str) -> Node:
    port = free_port()
    instance(directory, login, port)
    return Node(directory, "primary", port).start()


def _refused(port: int, user: str) -> None:
    with (
        connect(f"tcp://127.0.0.1:{port}?callTimeout=9000", user=user, password="guess") as client,
        pytest.raises(SessionRejected),
    ):
        client.session()
