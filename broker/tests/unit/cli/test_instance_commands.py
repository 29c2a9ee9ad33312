"""``understudy create`` and the default instance of ``understudy run``: written files, and refused options."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import click.testing
import pytest

from understudy.cli.node.create import create
from understudy.cli.node.defaults import default_directory
from understudy.cli.node.instances import config_of, create_instance, default_options
from understudy.cli.node.run import read_configuration, run
from understudy.errors import ConfigError
from understudy.security.password_hashes import PasswordHash


def invoke(*arguments: str, given: str | None = None) -> click.testing.Result:
    runner = click.testing.CliRunner(env={"UNDERSTUDY_PASSWORD": None})
    return runner.invoke(create, arguments, input=given)


def test_create_writes_private_files_and_the_hash_of_the_password(tmp_path: Path) -> None:
    done = invoke(str(tmp_path / "node"), "--json", given="secret of admin\n")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.output)
    etc = tmp_path / "node" / "etc"
    assert facts["config"] == str(etc / "broker.xml")
    assert facts["run"] == f"understudy run --instance {tmp_path / 'node'}"
    assert sorted(path.name for path in etc.iterdir()) == [
        "artemis-roles.properties", "artemis-users.properties", "broker.xml", "management-token",
    ]  # fmt: skip
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in etc.iterdir())
    user, _, stored = (etc / "artemis-users.properties").read_text().splitlines()[-1].partition(" = ")
    assert user == "admin"
    assert PasswordHash.parse(stored).verify("secret of admin")
    assert (etc / "artemis-roles.properties").read_text().splitlines()[-1] == "amq = admin"


def test_create_leaves_an_existing_instance_alone(tmp_path: Path) -> None:
    config = create_instance(tmp_path, default_options())
    config.write_text("edited")
    done = invoke(str(tmp_path), "--allow-anonymous")
    assert isinstance(done.exception, ConfigError)
    assert "exists already" in str(done.exception)
    assert config.read_text() == "edited"


def test_force_replaces_the_configuration_keeps_the_old_one_and_the_store(tmp_path: Path) -> None:
    config = create_instance(tmp_path, default_options())
    config.write_text("edited")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "kept").write_text("message")
    assert invoke(str(tmp_path), "--allow-anonymous", "--force").exit_code == 0
    assert "<configuration" in config.read_text()
    assert (tmp_path / "etc.replaced" / "broker.xml").read_text() == "edited"
    assert (tmp_path / "data" / "kept").read_text() == "message"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "etc", "etc.replaced"]


@pytest.mark.parametrize(
    ("arguments", "given", "complaint"),
    [
        (["--allow-anonymous", "--host", "192.0.2.1"], None, "needs a loopback --host"),
        ([], "\n", "no password"),
        (["--user", "a=b"], "secret\n", "--user 'a=b'"),
        (["--role", "a, b"], "secret\n", "--role 'a, b'"),
        (["--backup"], "secret\n", "need --partner"),
        (["--partner", "host"], "secret\n", "expected HOST:PORT"),
        (["--partner", "host:99999"], "secret\n", "expected HOST:PORT"),
        (["--partner", "host:61616"], "secret\n", "needs --cluster-password-file"),
        (["--preset", "full-ha", "--partner", "host:1"], "secret\n", "--preset excludes"),
        (["--preset", "full-ha", "--backup"], "secret\n", "--preset excludes"),
        (["--port", "0"], "secret\n", "--port"),
        (["--name", "a${b}"], "secret\n", "b"),
    ],
)
def test_invalid_options_are_refused_and_nothing_is_written(
    tmp_path: Path, arguments: list[str], given: str | None, complaint: str
) -> None:
    done = invoke(str(tmp_path / "node"), *arguments, given=given)
    assert done.exit_code != 0
    assert complaint in done.output + str(done.exception)
    assert not (tmp_path / "node").exists()


def test_a_short_cluster_password_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("short\n")
    arguments = [str(tmp_path / "node"), "--partner", "host:1", "--cluster-password-file", str(file)]
    done = invoke(*arguments, given="secret\n")
    assert "shorter than 12 characters" in str(done.exception)
    assert not (tmp_path / "node").exists()


def test_the_preset_has_the_names_of_the_documents_and_a_cluster_password(tmp_path: Path) -> None:
    passwords = []
    for name in ("a", "b"):
        assert invoke(str(tmp_path / name), "--preset", "full-ha", given="secret\n").exit_code == 0
        loaded = read_configuration(config_of(tmp_path / name), tmp_path / name, ())
        passwords.append(loaded.configuration.cluster_password)
        (connection,) = loaded.configuration.cluster_connections
        assert (connection.name, connection.address, connection.connector_ref) == (
            "my-cluster",
            "jms",
            "http-connector",
        )
        assert connection.discovery_group == "dg-group1"
        assert [each.name for each in loaded.configuration.broadcast_groups] == ["bg-group1"]
        (setting,) = loaded.configuration.address_settings
        assert (setting.dead_letter_address, setting.redistribution_delay) == ("jms.queue.DLQ", 1000)
        assert loaded.warnings == ()
    assert passwords[0] != passwords[1], "each instance gets a random password"
    (tmp_path / "password").write_text("a password that both have\n")
    given = ["--preset", "full-ha", "--cluster-password-file", str(tmp_path / "password")]
    assert invoke(str(tmp_path / "c"), *given, given="secret\n").exit_code == 0
    loaded = read_configuration(config_of(tmp_path / "c"), tmp_path / "c", ())
    assert loaded.configuration.cluster_password == "a password that both have"


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        create_instance(tmp_path / "file" / "node", default_options())


@pytest.mark.parametrize(
    ("environment", "directory"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/a"}, "/state/understudy"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/a"}, "/home/a/.local/state/understudy"),
        ({"HOME": "/home/a"}, "/home/a/.local/state/understudy"),
    ],
)
def test_the_default_instance_is_in_the_state_directory(environment: dict[str, str], directory: str) -> None:
    assert default_directory(environment) == Path(directory)


def test_without_a_home_directory_the_default_instance_needs_data() -> None:
    with pytest.raises(ConfigError, match="--data"):
        default_directory({})


def test_checking_the_default_instance_writes_nothing(tmp_path: Path) -> None:
    done = click.testing.CliRunner().invoke(run, ["--check", "--data", str(tmp_path / "node")])
    assert done.exit_code == 0, done.output
    assert str(config_of(tmp_path / "node")) in done.output
    assert not (tmp_path / "node").exists()


def test_data_excludes_config_and_instance(tmp_path: Path) -> None:
    done = click.testing.CliRunner().invoke(run, ["--data", str(tmp_path), "--instance", str(tmp_path)])
    assert done.exit_code == 2
    assert "--data" in done.output


def test_an_instance_without_configuration_names_the_command_that_writes_one(tmp_path: Path) -> None:
    done = click.testing.CliRunner().invoke(run, ["--instance", str(tmp_path)])
    assert isinstance(done.exception, ConfigError)
    assert "understudy create" in str(done.exception)


@pytest.mark.parametrize("data", [[], ["--data", "data"], ["--data", "../shared"]])
def test_a_pair_needs_one_store_that_is_named(tmp_path: Path, data: list[str]) -> None:
    file = tmp_path / "password"
    file.write_text("a long enough password\n")
    arguments = [str(tmp_path / "node"), "--partner", "host:1", "--cluster-password-file", str(file), *data]
    done = invoke(*arguments, given="secret\n")
    assert "--partner needs --data with an absolute path" in done.output
    assert not (tmp_path / "node").exists()
