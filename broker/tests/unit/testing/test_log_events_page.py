"""The page of log events: each event has an id, a meaning and an action, and the page is up to date."""

from __future__ import annotations

import re
from collections import Counter

import click
import pytest

from documents.log_events_page import MEANINGS, Event, events, page
from support.architecture import ROOT
from understudy.cli.main import cli


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs/operate/log-events.md").read_text() == page(), "run `make docs`"


def test_two_events_have_two_ids() -> None:
    own = Counter(each.id for each in events() if each.id.startswith("UND"))
    assert {id_ for id_, count in own.items() if count > 1} == set()


def test_every_event_has_a_meaning_and_an_action() -> None:
    texts = {each.text for each in events()}
    assert len(texts) > 300
    assert texts - MEANINGS.keys() == set(), "add them to .ci/documents/log_events.toml"
    assert MEANINGS.keys() - texts == set(), "these events are logged no more"
    for text, found in MEANINGS.items():
        assert found.keys() == {"meaning", "action"}, text
        assert all(re.fullmatch(r".{4,}\.", value) for value in found.values()), (text, found)
        assert found["meaning"] != "None.", text


def test_an_event_without_a_meaning_is_found() -> None:
    with pytest.raises(KeyError, match="an unknown event"):
        assert Event("UND000000", "info", "an unknown event", "x").meaning


def test_a_level_that_is_chosen_is_the_most_severe_one() -> None:
    levels = {each.text: each.level for each in events()}
    assert (levels["this node has no backup"], levels["number changed"]) == ("warning", "info")


def commands() -> set[str]:
    """The commands that meanings and actions name."""
    texts = "\n".join(value for found in MEANINGS.values() for value in found.values())
    return {each.strip() for each in re.findall(r"`understudy ((?:[a-z-]+ ?)+)", texts)}


@pytest.mark.parametrize("command", sorted(commands()))
def test_the_commands_that_an_action_names_exist(command: str) -> None:
    found: click.Command = cli
    context = click.Context(cli)
    for word in command.split():
        if not isinstance(found, click.Group) or word.startswith("--"):
            break
        next_command = found.get_command(context, word)
        assert next_command is not None, f"understudy {command}: no command {word!r}"
        found = next_command
