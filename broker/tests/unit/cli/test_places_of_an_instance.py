"""Refused commands on an instance directory: the error names the place and a way to get on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from support.command_tree import leaves
from understudy.cli.main import cli
from understudy.errors import BrokerError, ConfigError

#: Commands of an instance. One that has no broker.xml runs no node.
COMMANDS: Final = {
    path: command for path, command in leaves(cli) if any(each.name == "instance" for each in command.params)
}


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    made = CliRunner().invoke(cli, ["create", str(tmp_path / "node"), "--allow-anonymous"])
    assert made.exit_code == 0, made.output
    return tmp_path / "node"


@pytest.mark.parametrize("directory", ["journal", "bindings", "large-messages", "paging"])
def test_a_backup_is_not_put_into_a_directory_of_the_broker(instance: Path, directory: str) -> None:
    target = instance / "data" / directory / "copy"
    found = CliRunner().invoke(cli, ["data", "backup", "--instance", str(instance), "--to", str(target)])
    assert found.exit_code == 2
    assert f"is in {instance}/data/{directory} of the broker" in found.output
    assert not target.exists()


def test_users_of_an_instance_without_logins_are_refused_with_the_way_to_have_them(instance: Path) -> None:
    found = CliRunner().invoke(cli, ["user", "list", "--instance", str(instance)])
    assert isinstance(found.exception, ConfigError)
    assert "asks no client for a login" in str(found.exception)
    for name in ("artemis-users.properties", "artemis-roles.properties"):
        (instance / "etc" / name).touch()
    added = CliRunner().invoke(
        cli, ["user", "add", "al", "--role", "amq", "--instance", str(instance)], input="secret\n"
    )
    assert added.exit_code == 0, added.output
    assert '"al"' in CliRunner().invoke(cli, ["user", "list", "--json", "--instance", str(instance)]).output


def value_of(parameter: click.Parameter, directory: Path) -> str:
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    if isinstance(kind, click.Path):
        return str(directory / "file" if kind.file_okay else directory)
    return "1"


@pytest.mark.parametrize("path", sorted(COMMANDS))
@pytest.mark.parametrize("written", [None, b"[]", b'{"servers": 3}', b"\xff"])
def test_no_command_fails_on_an_instance_that_does_not_run(
    path: str, written: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "run").mkdir()
    (tmp_path / "file").write_text("1\n")
    if written is not None:
        (tmp_path / "run" / "node.json").write_bytes(written)
    given = list[str]()
    for each in COMMANDS[path].params:
        if each.name == "instance":
            given += ["--instance", str(tmp_path)]
        elif each.name == "yes" or (each.required and isinstance(each, click.Option) and each.is_flag):
            given.append(each.opts[0])
        elif each.required:
            given += [each.opts[0]] if isinstance(each, click.Option) else []
            given.append(value_of(each, tmp_path))
    found = CliRunner().invoke(cli, [*path.split(), *given], input="secret\n")
    # the error is one of those that the command line shows in one line
    assert found.exception is None or isinstance(found.exception, (SystemExit, BrokerError)), given
