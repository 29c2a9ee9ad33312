"""Goal: a node is empty only when its queues were empty and quiet for a while, and the report names what is left."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.draining import (
    SAMPLES_MAX,
    SETTLE_S,
    Progress,
    Sample,
    complaint,
    counts,
    remains,
    sample,
    scales_down,
)
from hypothesis import given
from hypothesis import strategies as st

SETTLE_MS = int(SETTLE_S * 1000)


def row(name: str, messages: int = 0, *, internal: bool = False, consumers: int = 0, added: int = 0) -> dict[str, Any]:
    """Row of listQueues, in which every value is text."""
    return {
        "name": name,
        "internalQueue": str(internal).lower(),
        "messageCount": str(messages),
        "consumerCount": str(consumers),
        "messagesAdded": str(added),
    }


def seen(elapsed_ms: int, messages: int, added: int = 0) -> Sample:
    return Sample(elapsed_ms, {"q": messages} if messages else {}, {"q": 0} if messages else {}, added)


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 2), st.integers(0, 1)), max_size=20))
def test_settled_means_empty_and_quiet(steps: list[tuple[int, int, int]]) -> None:
    progress, now, added = Progress(), 0, 0
    for pause, messages, more in steps:
        now, added = now + pause, added + more
        progress.add(seen(now, messages, added))
    quiet = [each for each in progress.samples if now - each.elapsed_ms <= SETTLE_MS]
    before = [each for each in progress.samples if now - each.elapsed_ms >= SETTLE_MS]
    expected = bool(before) and all(not each.depths and each.added == added for each in (*quiet, before[-1]))
    assert progress.settled is expected


@given(st.lists(st.integers(0, 5), max_size=400))
def test_progress_is_short_and_has_its_ends(depths: list[int]) -> None:
    progress = Progress([seen(number, depth) for number, depth in enumerate(depths)])
    shown = progress.as_list()
    assert len(shown) <= SAMPLES_MAX
    if depths:
        assert (shown[0]["messages"], shown[-1]["messages"]) == (depths[0], depths[-1])
        assert shown[-1]["elapsed_ms"] == len(depths) - 1
    assert [each["elapsed_ms"] for each in shown] == sorted({each["elapsed_ms"] for each in shown})


def test_queues_that_count() -> None:
    assert counts(row("orders"), [])
    assert not counts(row("DLQ"), ["DLQ", "Expiry*"])
    assert not counts(row("ExpiryQueue"), ["DLQ", "Expiry*"])
    assert not counts(row("notif", internal=True), [])
    for prefix in ("$.artemis.internal.", "$.activemq.internal.", ""):
        name = f"{prefix}sf.my.cluster.0f1e2d3c-4b5a-1697-8897-a6b5c4d3e2f1"
        assert counts(row(name, internal=True), []), "messages for other members"
    assert not counts(row("$.artemis.internal.sf.my-cluster.notif", internal=True), [])


def test_what_is_left_is_named() -> None:
    rows = [row("a", 3, added=9), row("b", 7, consumers=2, added=7), row("DLQ", 4), row("empty", added=1)]
    found = sample(rows, ["DLQ"], 5)
    assert (found.messages, found.added) == (10, 17)
    assert complaint(found, 60) == (
        "10 messages are left after 60 s: b has 7 and 2 consumers, a has 3 and no consumers"
    )
    assert "messages still came" in complaint(seen(0, 0), 60)
    many = Sample(0, {f"q{n:02}": 1 for n in range(12)}, {f"q{n:02}": 0 for n in range(12)}, 0)
    assert complaint(many, 1).endswith(", and 2 further queues")


def test_the_journal_of_a_stopped_node() -> None:
    assert remains(3, 3, 0) == ""
    assert remains(4, 3, 0) == "is stopped, and 4 messages are in its journal, of which 3 were in ignored queues"
    assert "whether messages are left is not known" in remains(0, 0, 1)


@pytest.mark.parametrize(
    ("elements", "enabled", "moves"),
    [([], "", False), (["scale-down"], "", True), (["scale-down"], "false", False), (["scale-down"], "true", True)],
)
def test_scale_down_by_configuration(elements: list[str], enabled: str, moves: bool) -> None:
    assert scales_down(elements, enabled) is moves
