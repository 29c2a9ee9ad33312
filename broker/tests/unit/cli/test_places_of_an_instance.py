"""Refused commands on an instance directory: the error names the place and a way to get on."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from understudy.cli.main import cli
from understudy.errors import ConfigError


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
