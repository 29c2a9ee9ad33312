"""Help and errors of groups of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from understudy.cli.main import cli


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("group", [[], ["data"], ["queue"], ["cluster"], ["pipeline"], ["witness"], ["config"]])
def test_no_sentence_of_the_help_is_cut(group: list[str], width: int) -> None:
    shown = CliRunner().invoke(cli, [*group, "--help"], terminal_width=width).output
    # click ends a sentence that it cuts with three points after a word
    assert not re.search(r"\w\.\.\.$", shown, re.MULTILINE)
    assert shown.count("Commands:\n") == (0 if not group else 1)


def test_every_command_is_in_a_section_of_the_help() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    assert "Other commands:" not in shown
    assert "Handing the service over:" in shown


@pytest.mark.parametrize(
    ("given", "near"),
    [
        (["statsu"], "status"),
        (["queu", "stat"], "queue"),
        (["queue", "sta"], "stat"),
        (["data", "verfy"], "verify"),
        (["FAILOVER"], "failover"),
    ],
)
def test_a_misspelt_command_is_answered_with_similar_ones(given: list[str], near: str) -> None:
    found = CliRunner().invoke(cli, given)
    assert found.exit_code == 2
    assert "there is no command" in found.output
    assert near in found.output.partition("did you mean")[2]


def test_a_name_like_no_command_is_an_error_without_a_guess() -> None:
    found = CliRunner().invoke(cli, ["xyzzyx"])
    assert found.exit_code == 2
    assert "there is no command 'xyzzyx'\n" in found.output


def leaves(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Each command that is no group, with its help."""
    with click.Context(command, info_name=path) as context:
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from leaves(found, f"{path} {name}")
        else:
            yield path, command.get_help(context)


def test_every_help_has_an_example_of_its_command() -> None:
    found = dict(leaves(cli, "understudy"))
    assert len(found) > 100
    # these have the names of Artemis, too
    wanted = {path: path.replace("queue list", "queue stat").replace("user rm", "user remove") for path in found}
    shown = {path: " ".join(text.partition("Example")[2].split()) for path, text in found.items()}
    assert [path for path in found if wanted[path] not in shown[path]] == []


def test_an_example_about_a_store_names_its_journal() -> None:
    for path, text in leaves(cli, "understudy"):
        example = " ".join(text.partition("Example")[2].split())
        assert "/srv/broker/data" not in example.replace("/srv/broker/data/journal", ""), path
