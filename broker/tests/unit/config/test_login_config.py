"""``login.config`` and ``bootstrap.xml`` of Artemis: mapped modules, reported modules, damaged files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from understudy.cli.node.user_files import login_modules, logins_beside, user_files, with_guest
from understudy.config.bootstrap_file import Bootstrap, read_bootstrap
from understudy.config.logins.login_config import Logins, read_logins, read_realms
from understudy.config.model import Configuration
from understudy.errors import ConfigError

JAAS = "org.apache.activemq.artemis.spi.core.security.jaas."
#: As `artemis create` writes it, with a guest, a certificate and a module that is left aside.
TEXT = f"""
/* a comment; with }} signs */
activemq {{
   // users first
   {JAAS}PropertiesLoginModule sufficient
       debug=false
       reload=true
       org.apache.activemq.jaas.properties.user="my-users.properties"
       org.apache.activemq.jaas.properties.role="my-roles.properties";

   {JAAS}OIDCLoginModule optional
       url="http://localhost:389" token="a \\"quoted\\" {{secret}}";
   {JAAS}GuestLoginModule sufficient
       org.apache.activemq.jaas.guest.user="visitor"
       org.apache.activemq.jaas.guest.role="visitors";
}};
CertLogin {{ {JAAS}TextFileCertificateLoginModule required
   org.apache.activemq.jaas.textfiledn.user="dns.properties"
   org.apache.activemq.jaas.textfiledn.role="dn-roles.properties"; }};
Empty {{ }};
"""


def read(text: str, *realms: str) -> Logins:
    return read_logins(text, realms or ("activemq",), "login.config")


def test_modules_have_class_flag_options_and_line() -> None:
    realms = read_realms(TEXT, "login.config")
    assert list(realms) == ["activemq", "CertLogin", "Empty"]
    users, other, _ = realms["activemq"]
    assert (users.name, users.flag, users.line) == ("PropertiesLoginModule", "sufficient", 5)
    assert users.options["reload"] == "true"
    assert other.options["token"] == 'a "quoted" {secret}'
    assert realms["Empty"] == ()


def test_known_modules_are_mapped_and_others_are_reported() -> None:
    found = read(TEXT, "activemq", "CertLogin")
    assert (found.users_file, found.roles_file) == ("my-users.properties", "my-roles.properties")
    assert (found.certificate_users_file, found.certificate_roles_file) == ("dns.properties", "dn-roles.properties")
    assert (found.guest_user, found.guest_role, found.guest_on_wrong_credentials) == ("visitor", "visitors", True)
    (warning,) = found.warnings
    assert warning.startswith("login.config:11 login module OIDCLoginModule is left aside: ")
    assert "secret" not in warning


def test_a_guest_with_invalidated_credentials_is_only_a_client_without_any() -> None:
    text = f"activemq {{ {JAAS}GuestLoginModule sufficient credentialsInvalidate=true; }};"
    assert not read(text).guest_on_wrong_credentials
    assert read(text).guest_user == "guest"


def test_a_class_of_their_own_is_reported() -> None:
    (warning,) = read("activemq { com.example.Mine required; };").warnings
    assert "login module Mine is left aside: Java classes cannot be loaded here" in warning


def test_a_missing_realm_is_reported() -> None:
    (warning,) = read(TEXT, "other").warnings
    assert "there is no realm 'other'; the file has 'activemq', 'CertLogin', 'Empty'" in warning


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("activemq", 1, "'{' is missing"),
        ("activemq {\n a required", 2, "an option is missing"),
        ("activemq {\n a sometimes; };", 2, "'sometimes' is not one of required"),
        ("activemq { a required b=; };", 1, "a value is missing"),
        ("activemq { a required; }", 1, "';' is missing"),
        ("a { }; a { };", 1, "realm 'a' stands twice"),
        ('a { b required c="open; };', 1, "unexpected '\"'"),
    ],
)
def test_a_damaged_file_names_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_realms(text, "login.config")
    assert message in str(caught.value)
    assert caught.value.line == line


BOOTSTRAP = b"""<?xml version="1.0"?><broker xmlns="http://activemq.apache.org/schema">
<jaas-security domain="mine" certificate-domain="CertLogin"/><server configuration="file:/etc/broker.xml"/>
<web path="web"><binding name="artemis" uri="http://localhost:8161"/></web></broker>"""


def test_bootstrap_names_the_realms() -> None:
    assert read_bootstrap(BOOTSTRAP, "b") == Bootstrap(("mine", "CertLogin"), None, ("http://localhost:8161",))
    assert read_bootstrap(b"<broker/>", "b") == Bootstrap()
    other = b'<broker xmlns="http://activemq.apache.org/schema"><security-manager class-name="a.B"/></broker>'
    assert read_bootstrap(other, "b").security_manager == "a.B"
    with pytest.raises(ConfigError, match="not well-formed"):
        read_bootstrap(b"<broker>", "bootstrap.xml")


def test_the_files_of_an_instance_are_those_of_its_login_config(tmp_path: Path) -> None:
    assert logins_beside(tmp_path) == Logins()
    usual = ["artemis-users.properties", "artemis-roles.properties"]
    assert [path.name for path in user_files(tmp_path, Logins())] == usual
    (tmp_path / "login.config").write_text(TEXT.replace("activemq {", "mine {"))
    (tmp_path / "bootstrap.xml").write_bytes(BOOTSTRAP)
    found = logins_beside(tmp_path)
    assert [path.name for path in user_files(tmp_path, found)] == [
        "my-users.properties", "my-roles.properties", "dns.properties", "dn-roles.properties",
    ]  # fmt: skip
    guest = with_guest(Configuration(), found)
    assert (guest.guest_login, guest.guest_user, guest.guest_login_on_wrong_credentials) == (True, "visitor", True)
    own = Configuration(guest_login=True, guest_user="ours")
    assert with_guest(own, found) is own


LDAP = f'{JAAS}LDAPLoginModule optional connectionURL="ldap://h" authentication=none roleSearchMatching="(m={{0}})"'


def test_modules_for_ldap_are_password_modules_in_their_order() -> None:
    text = f"""activemq {{ {JAAS}PropertiesLoginModule sufficient; {LDAP} roleBase="ou=r"; }};
    certificates {{ {LDAP} roleBase="ou=r"; }};"""
    found = read(text, "activemq", "certificates")
    assert [(each.flag, each.ldap is None) for each in found.passwords] == [("sufficient", True), ("optional", False)]
    assert found.has_users_file
    assert [warning.partition(" ")[2] for warning in found.warnings] == [
        "passwords go to ldap://h:389 unencrypted; ldaps:// or startTls=true encrypts",
        "login module LDAPLoginModule is left aside: it stands in the realm of certificates",
    ]


def test_without_a_module_for_the_users_file_beside_ldap_that_file_proves_no_password() -> None:
    assert not read(f"activemq {{ {LDAP} roleBase=x; }};").has_users_file
    assert read(f"activemq {{ {JAAS}GuestLoginModule optional; }};").has_users_file


def test_ldap_with_kerberos_is_left_aside() -> None:
    found = read(f"activemq {{ {JAAS}LDAPLoginModule required authentication=GSSAPI; }};")
    assert found.passwords == ()
    (warning,) = found.warnings
    assert "login module LDAPLoginModule is left aside: authentication=GSSAPI is Kerberos" in warning


def test_without_the_package_for_directories_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ldap3", None)
    monkeypatch.delitem(sys.modules, "understudy.runtime.logins.ldap", raising=False)
    with pytest.raises(ConfigError, match="LDAPLoginModule needs the package ldap3") as caught:
        login_modules(read(f"activemq {{ {LDAP} roleBase=x; }};"))
    assert caught.value.hint == "pip install 'understudy[ldap]'"
    assert login_modules(read(f"activemq {{ {JAAS}GuestLoginModule optional; }};")) == ()
