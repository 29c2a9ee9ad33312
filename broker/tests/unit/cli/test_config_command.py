"""``understudy config``: changes of broker.xml from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from understudy.cli.node.configuration.commands import config
from understudy.cli.node.instances import config_of, create_instance, default_options
from understudy.errors import ConfigError


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    create_instance(tmp_path / "node", default_options())
    return tmp_path / "node"


def run(*arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(config, arguments, input=typed)


def test_a_value_is_set_and_the_effects_are_named(instance: Path) -> None:
    before = config_of(instance).read_text()
    done = run(
        "set",
        "core/global-max-messages",
        "5000",
        "core/message-expiry-scan-period",
        "9000",
        "--instance",
        str(instance),
    )
    assert done.exit_code == 0, done.output
    assert "+    <global-max-messages>5000</global-max-messages>" in done.output
    assert "needs a restart: message-expiry-scan-period, global-max-messages" in done.output
    assert f"{config_of(instance)}: written" in done.output
    after = config_of(instance).read_text()
    assert after != before
    assert "<message-expiry-scan-period>9000</message-expiry-scan-period>" in after
    again = run("set", "core/global-max-messages", "5000", "--instance", str(instance))
    assert again.output == f"{config_of(instance)}: nothing to change\n"


def test_dry_run_writes_nothing(instance: Path) -> None:
    before = config_of(instance).read_bytes()
    path = "core/addresses/address[@name='orders']/anycast/queue[@name='orders']"
    done = run("add", path, "--instance", str(instance), "--dry-run")
    assert done.exit_code == 0, done.output
    assert "applies at once: addresses" in done.output
    assert done.output.endswith("nothing was written\n")
    assert config_of(instance).read_bytes() == before


def test_added_entries_are_removed_again(instance: Path) -> None:
    before = config_of(instance).read_bytes()
    path = "core/connectors/connector[@name='peer']"
    assert run("add", path, "tcp://10.0.0.2:61616", "--instance", str(instance)).exit_code == 0
    assert b"tcp://10.0.0.2:61616" in config_of(instance).read_bytes()
    assert run("remove", path, "--instance", str(instance)).exit_code == 0
    assert config_of(instance).read_bytes() == before


def test_a_change_that_the_reader_refuses_is_not_written(instance: Path) -> None:
    before = config_of(instance).read_bytes()
    done = run("set", "core/acceptors/acceptor/@name", "", "--instance", str(instance))
    assert isinstance(done.exception, ConfigError)
    assert "attribute 'name' is missing" in str(done.exception)
    assert config_of(instance).read_bytes() == before


def test_a_file_that_cannot_be_used_is_corrected(instance: Path) -> None:
    path = config_of(instance)
    path.write_text(path.read_text().replace("<name>understudy</name>", "<name></name>"))
    done = run("set", "core/name", "-", "--config", str(path), typed="a\n")
    assert done.exit_code == 0, done.output
    assert "<name>a</name>" in path.read_text()


def test_difference(instance: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.xml"
    other.write_text(
        config_of(instance).read_text().replace("</name>", "</name><global-max-messages>7</global-max-messages>")
    )
    done = run("diff", str(other), "--instance", str(instance))
    assert done.exit_code == 1
    assert "<global-max-messages>7</global-max-messages>" in done.output
    assert "needs a restart: global-max-messages" in done.output
    same = run("diff", str(config_of(instance)), "--instance", str(instance))
    assert (same.exit_code, same.output) == (0, "no difference\n")


def test_usage(instance: Path) -> None:
    done = run("set", "core/name", "--instance", str(instance))
    assert done.exit_code == 2
    assert "core/name has no value" in done.output


@pytest.mark.parametrize("command", ["set", "add", "remove", "diff"])
def test_help_has_an_example(command: str) -> None:
    assert f"Example: understudy config {command} " in run(command, "--help").output
