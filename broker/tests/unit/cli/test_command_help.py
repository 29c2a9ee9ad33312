"""Help and errors of groups of commands."""

from __future__ import annotations

import re

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
