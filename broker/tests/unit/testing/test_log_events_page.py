"""The page of log events: each event has an id of its own, and the page in the repository is up to date."""

from __future__ import annotations

from collections import Counter

from documents.log_events_page import MEANINGS, events, page
from support.architecture import ROOT


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs/operate/log-events.md").read_text() == page(), "run `make docs`"


def test_two_events_have_two_ids() -> None:
    own = Counter(each.id for each in events() if each.id.startswith("UND"))
    assert {id_ for id_, count in own.items() if count > 1} == set()


def test_each_meaning_belongs_to_an_event() -> None:
    used = {meaning for each in events() for meaning in [each.meaning] if meaning != ("", "")}
    assert {text for text, meaning in MEANINGS.items() if meaning not in used} == set()
