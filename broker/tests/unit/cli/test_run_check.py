"""Goal: faults that would keep a node from starting, or users from working, are reported before the start.

Method: the command's own entry point over files in a temporary directory.
"""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from understudy.cli.data.prune import prune_copies
from understudy.cli.node.accept_store import accept_store
from understudy.cli.node.configuration.commands import config
from understudy.cli.node.run import read_configuration, run
from understudy.errors import ConfigError
from understudy.runtime.base.environment import SystemEntropy
from understudy.security.password_hashes import HashParameters, PasswordHash

HASH = "ENC(scrypt:16384:8:1:" + "00" * 16 + ":" + "00" * 32 + ")"
SETTING = '<security-setting match="#"><permission type="send" roles="apps"/></security-setting>'


def check(directory: Path, *, security: bool = True, settings: str = SETTING) -> Result:
    (directory / "broker.xml").write_text(
        f"<configuration><core><security-enabled>{str(security).lower()}</security-enabled>"
        f"<security-settings>{settings}</security-settings></core></configuration>"
    )
    return CliRunner().invoke(run, ["--check", "--config", str(directory / "broker.xml")])


def users(directory: Path, text: str = f"app = {HASH}\n") -> None:
    (directory / "artemis-users.properties").write_text(text)


def roles(directory: Path, text: str = "apps = app\n") -> None:
    (directory / "artemis-roles.properties").write_text(text)


def test_users_roles_and_permissions_that_fit_are_usable(tmp_path: Path) -> None:
    users(tmp_path)
    roles(tmp_path)
    result = check(tmp_path)
    assert result.exit_code == 0
    assert "usable, 0 warnings" in result.output


def test_passwords_in_plain_text_are_warned_of(tmp_path: Path) -> None:
    users(tmp_path)
    roles(tmp_path)
    acceptors = (
        '<acceptor name="near">tcp://localhost:1</acceptor><acceptor name="nearer">tcp://127.0.0.1:2</acceptor>'
        '<acceptor name="far">tcp://0.0.0.0:3</acceptor><acceptor name="amqp">tcp://10.0.0.1:4?protocols=AMQP091</acceptor>'
    )
    for security, warned in ((True, ["'far'", "'amqp'"]), (False, [])):
        (tmp_path / "broker.xml").write_text(
            f"<configuration><core><security-enabled>{str(security).lower()}</security-enabled>"
            f"<acceptors>{acceptors}</acceptors><security-settings>{SETTING}</security-settings></core></configuration>"
        )
        result = CliRunner().invoke(run, ["--check", "--config", str(tmp_path / "broker.xml")])
        assert f"usable, {len(warned)} warnings" in result.output
        lines = [line for line in result.output.splitlines() if "has no TLS" in line]
        assert len(lines) == len(warned)
        for line, name in zip(lines, warned, strict=True):
            assert f"acceptor {name}" in line
            assert "passwords in plain text" in line


def test_the_default_login_of_rabbitmq_is_warned_of(tmp_path: Path) -> None:
    stored = PasswordHash.make("guest", SystemEntropy(), HashParameters(2, 8, 1))
    users(tmp_path, f"app = {HASH}\nguest = {stored}\n")
    roles(tmp_path)
    result = check(tmp_path)
    assert "usable, 1 warning" in result.output
    assert "user 'guest' has the password that everyone knows" in result.output


def test_the_properties_of_the_launcher_of_artemis_have_values(tmp_path: Path) -> None:
    config = tmp_path / "etc" / "broker.xml"
    config.parent.mkdir()
    config.write_text(
        "<configuration><core><journal-directory>${data.dir}/journal</journal-directory>"
        "<paging-directory>${artemis.instance}/p</paging-directory></core></configuration>"
    )
    found = read_configuration(config, tmp_path, ()).configuration
    assert found.journal_directory == f"{tmp_path}/data/journal"
    assert found.paging_directory == f"{tmp_path}/p"
    given = read_configuration(config, tmp_path, ("data.dir=/srv/data",)).configuration
    assert given.journal_directory == "/srv/data/journal"


def test_every_missing_file_is_named(tmp_path: Path) -> None:
    error = check(tmp_path).exception
    assert isinstance(error, ConfigError)
    assert f"{tmp_path}/artemis-users.properties and {tmp_path}/artemis-roles.properties cannot be read" in str(error)
    users(tmp_path)
    error = check(tmp_path).exception
    assert "artemis-users" not in str(error)
    assert "artemis-roles.properties cannot be read" in str(error)


def test_without_security_no_file_is_needed(tmp_path: Path) -> None:
    assert check(tmp_path, security=False).exit_code == 0


def test_a_users_file_that_cannot_be_used_names_file_and_line(tmp_path: Path) -> None:
    users(tmp_path, "app = open-sesame\n")
    roles(tmp_path)
    error = check(tmp_path).exception
    assert isinstance(error, ConfigError)
    assert f"{tmp_path}/artemis-users.properties" in str(error)
    assert "open-sesame" not in str(error)


@pytest.mark.parametrize(
    ("users_text", "roles_text", "settings", "warning"),
    [
        ("", "apps = \n", SETTING, "artemis-users.properties: has no user, so no client can log in"),
        (f"app = {HASH}\n", "apps = app, other\n", SETTING, "user 'other' is not in artemis-users.properties"),
        (f"app = {HASH}\n", "apps = app\n", "", "security-settings: there is none, so no user may do anything"),
        (f"app = {HASH}\n", "ops = app\n", SETTING, "security-setting '#': no user of the users file has"),
    ],
)
def test_users_without_access_give_a_warning(
    tmp_path: Path, users_text: str, roles_text: str, settings: str, warning: str
) -> None:
    users(tmp_path, users_text)
    roles(tmp_path, roles_text)
    result = check(tmp_path, settings=settings)
    assert result.exit_code == 0
    assert warning in result.output


BASE = """<configuration><core><name>n</name><security-enabled>false</security-enabled>{}
<acceptors><acceptor name="core">tcp://127.0.0.1:{}</acceptor></acceptors></core>{}</configuration>"""
SETTINGS = """<address-settings><address-setting match="#"><max-delivery-attempts>3</max-delivery-attempts>
</address-setting></address-settings>"""
SERVER = """<server xmlns="urn:activemq:core" name="second"><security-enabled>false</security-enabled>
<bindings-directory>second/b</bindings-directory><journal-directory>second/j</journal-directory>
<large-messages-directory>second/l</large-messages-directory><paging-directory>second/p</paging-directory>
<acceptors><acceptor name="core">tcp://127.0.0.1:{}</acceptor></acceptors></server>"""


def compared(directory: Path, before: str, after: str) -> list[str]:
    """Lines of a check after the first one."""
    (directory / "present.xml").write_text(before)
    (directory / "broker.xml").write_text(after)
    arguments = ["--check", "--config", str(directory / "broker.xml"), "--running", str(directory / "present.xml")]
    result = CliRunner().invoke(run, arguments)
    assert result.exit_code == 0, result.exception
    return [line for line in result.output.splitlines() if ": usable," not in line and not line.startswith("warning: ")]


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (BASE.format("", 5001, ""), BASE.format("", 5001, ""), []),
        (BASE.format("", 5001, ""), BASE.format(SETTINGS, 5001, ""), ["applies at once: address-settings"]),
        (
            BASE.format("", 5001, ""),
            BASE.format(SETTINGS, 5002, ""),
            ["applies at once: address-settings", "needs a restart: acceptors/acceptor[@name='core']"],
        ),
        (
            BASE.format("", 5001, SERVER.format(5003)),
            BASE.format("", 5001, SERVER.format(5004)),
            ["needs a restart: server 'second': acceptors/acceptor[@name='core']"],
        ),
        (BASE.format("", 5001, ""), BASE.format("", 5001, SERVER.format(5003)), ["needs a restart: server 'second'"]),
    ],
)
def test_a_check_says_what_a_running_node_applies_at_once(
    tmp_path: Path, before: str, after: str, lines: list[str]
) -> None:
    assert compared(tmp_path, before, after) == lines


def test_a_present_file_that_cannot_be_used_needs_a_restart(tmp_path: Path) -> None:
    (line,) = compared(tmp_path, BASE.format("<unknown/>", 5001, ""), BASE.format("", 5001, ""))
    assert line.startswith("needs a restart: everything, because this release cannot use the present file (")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [(run, ["--check"]), (accept_store, []), (config, ["print"]), (prune_copies, ["--instance", "."])],
)
@pytest.mark.parametrize("text", ["data.dir", "=x"])
def test_a_property_without_name_or_value_is_refused(command: click.Command, arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(command, [*arguments, "--property", text])
    assert done.exit_code == 2
    assert "--property" in done.output
    assert "NAME=VALUE is wanted" in done.output


@pytest.mark.parametrize("option", ["--user", "--running"])
def test_an_option_of_the_check_starts_no_node(tmp_path: Path, option: str) -> None:
    done = CliRunner().invoke(run, ["--instance", str(tmp_path), option, "root"])
    assert done.exit_code == 2
    assert "go with --check only" in done.output
