"""``understudy data prune``: the example of document 001, 30.3.4, and copies below the directories of a store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from understudy.cli.main import cli

NAMES = ("bindings", "journal", "large-messages", "paging")


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    made = CliRunner().invoke(cli, ["create", str(tmp_path / "node"), "--allow-anonymous"])
    assert made.exit_code == 0, made.output
    data = tmp_path / "node" / "data"
    for name in NAMES:
        for number in ("", "1", "2", "10"):
            (data / f"{name}{number}").mkdir(parents=True)
            (data / f"{name}{number}" / "a-file").write_text(number)
        (data / f"{name}-old").mkdir()
    for number in (1, 2):
        (data / "journal" / f"oldreplica.{number}").mkdir()
    return tmp_path / "node"


def prune(instance: Path, *options: str) -> str:
    done = CliRunner().invoke(cli, ["data", "prune", "--instance", str(instance), *options])
    assert done.exit_code == 0, done.output
    return done.output


def left(instance: Path) -> list[str]:
    return sorted(each.name for each in (instance / "data").iterdir())


def test_the_directory_in_use_and_the_highest_number_stay(instance: Path) -> None:
    planned = json.loads(prune(instance, "--dry-run", "--json"))["planned"]
    assert len(left(instance)) == 5 * len(NAMES)
    output = prune(instance)
    assert output.splitlines() == [f"removed {path}" for path in planned]
    assert left(instance) == sorted(f"{name}{kept}" for name in NAMES for kept in ("", "10", "-old"))
    assert [each.name for each in (instance / "data" / "journal").glob("oldreplica.*")] == ["oldreplica.2"]
    assert prune(instance) == "nothing to remove\n"


def test_more_copies_are_kept_on_request(instance: Path) -> None:
    prune(instance, "--keep", "2")
    assert {"journal", "journal2", "journal10"} <= set(left(instance))
    assert "journal1" not in left(instance)


def test_a_directory_that_another_server_uses_stays(instance: Path) -> None:
    config = instance / "etc" / "broker.xml"
    paths = "".join(
        f"<{name}-directory>data/{name}1/store</{name}-directory>"
        for name in ("bindings", "journal", "large-messages", "paging")
    )
    server = f'<server name="other">{paths}</server></configuration>'
    config.write_text(config.read_text().replace("</configuration>", server))
    prune(instance)
    assert {f"{name}1" for name in NAMES} <= set(left(instance))
    assert "journal2" not in left(instance)
