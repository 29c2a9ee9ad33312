"""docs/operate/questions.md: every command that it names exists with its options."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from understudy.cli.main import cli

PAGE = Path(__file__).parents[4] / "docs/operate/questions.md"
TABLES, TOUR = PAGE.read_text(encoding="utf-8").split("## A tour")


def named_commands() -> list[str]:
    """Commands of the tables; a word or an option after one belongs to the group of that one."""
    found: list[str] = []
    for line in TABLES.splitlines():
        if not line.startswith("| ") or "|---" in line:
            continue
        group = ""
        for text in re.findall(r"`([^`]+)`", line.split(" | ", 1)[1]):
            if text.startswith("understudy "):
                found.append(text)
                group = " ".join(text.split()[:2])
            elif group and re.fullmatch(r"[a-z]+( --[a-z-]+)*", text) and is_command(f"{group} {text.split()[0]}"):
                found.append(f"{group} {text}")
    return found


def resolve(words: list[str]) -> tuple[click.Command, list[str]] | None:
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        next_one = command.get_command(click.Context(command), words[0])
        if next_one is None:
            return None
        command, words = next_one, words[1:]
    return command, words


def is_command(text: str) -> bool:
    found = resolve(text.split()[1:])
    return found is not None and not isinstance(found[0], click.Group)


@pytest.mark.parametrize("text", sorted({*named_commands(), *re.findall(r"^understudy .*", TOUR, re.MULTILINE)}))
def test_a_named_command_exists_with_its_options(text: str) -> None:
    found = resolve(text.split()[1:])
    assert found is not None, f"{text}: there is no such command"
    command, words = found
    if text == "understudy --help":
        return
    assert not isinstance(command, click.Group), f"{text} is a group"
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    assert [word for word in words if re.match(r"--[a-z]", word) and word not in known] == []


def test_the_page_has_every_section_with_rows() -> None:
    sections = re.split(r"^## ", TABLES, flags=re.MULTILINE)[1:]
    assert [each.splitlines()[0] for each in sections] == [
        "What an administrator needs", "Defects that were seen", "Wrong input", "Five-minute questions",
    ]  # fmt: skip
    assert all(each.count("\n| ") >= 8 for each in sections)
    assert len(named_commands()) > 80
