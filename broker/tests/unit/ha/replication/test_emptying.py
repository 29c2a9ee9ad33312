"""A node whose messages have moved to another one, until it asks to become active without them (ADR 0126)."""

from __future__ import annotations

import pytest

from support.standby import MOVED, Node
from understudy.errors import ActivationRefused, StoreBehind
from understudy.ha.replication.ports import Found
from understudy.ha.replication.standby_life import StandbyState


def test_a_node_whose_messages_have_moved_sets_its_data_aside_and_asks_again() -> None:
    node = Node(empties=True)
    node.set_aside()
    node.life.begin()
    node.authority.answer(ActivationRefused("the newest is 8"))
    assert node.empty.begun == [], "an active node is looked for first"
    node.life.not_found("refused")
    assert (node.empty.begun, node.life.state) == ([MOVED], StandbyState.EMPTYING)
    node.empty.ended(None)
    assert node.life.state is StandbyState.REQUESTING
    node.authority.answer()
    assert node.calls == ["take place", "activate"]


def test_the_data_stays_while_an_active_node_is_known() -> None:
    node = Node(empties=True)
    node.set_aside()
    node.life.begin()
    node.authority.answer(ActivationRefused("the newest is 8"))
    node.replica.found = Found.PLACE_TAKEN
    node.life.not_found("refused")
    assert node.empty.begun == []


def test_an_answer_of_the_lock_manager_ends_a_request_that_was_repeated_meanwhile() -> None:
    node = Node(empties=True)
    node.life.hear_moved(MOVED)
    node.life.begin()
    node.authority.answer(ActivationRefused("the newest is 8"))
    node.life.not_found("refused")
    node.time.advance(2_000)
    assert (node.life.state, node.authority.requested is None) == (StandbyState.REQUESTING, False)
    assert node.authority.finding is not None
    node.authority.finding(MOVED)
    assert (node.life.state, node.authority.requested) == (StandbyState.EMPTYING, None)


def test_an_answer_that_comes_late_changes_nothing() -> None:
    node = Node(empties=True)
    node.life.hear_moved(MOVED)
    node.life.begin()
    node.authority.answer(ActivationRefused("the newest is 8"))
    node.life.not_found("refused")
    node.time.advance(2_000)
    node.authority.answer()
    assert node.authority.finding is not None
    node.authority.finding(MOVED)
    assert (node.empty.begun, node.calls) == ([], ["take place", "activate"])


def test_a_node_goes_on_setting_aside_before_it_asks_for_anything() -> None:
    node = Node(empties=True)
    node.empty.pending = True
    node.life.begin()
    assert (node.empty.begun, node.authority.calls) == ([None], [])


def test_data_that_cannot_be_set_aside_ends_the_node() -> None:
    node = Node(empties=True)
    node.set_aside()
    node.life.begin()
    node.authority.answer(ActivationRefused("the newest is 8"))
    node.life.not_found("refused")
    node.empty.ended(StoreBehind("the disk is gone"))
    assert node.calls == ["fail: the disk is gone"]


def test_the_record_that_another_node_keeps_reaches_the_authority() -> None:
    node = Node(empties=True)
    node.set_aside()
    node.life.begin()
    node.authority.answer(ActivationRefused("the newest is 8"))
    node.life.not_found("refused")
    assert node.authority.heard == MOVED


def test_the_node_that_has_the_messages_gets_time_to_say_more_than_a_lock_manager_knows() -> None:
    node = Node(empties=True)
    node.authority.moved = MOVED
    node.life.begin()
    began_ms = node.time.monotonic_ms()
    while not node.empty.begun:
        if node.authority.requested is not None:
            node.authority.answer(ActivationRefused("the newest is 8"))
        node.life.not_found("refused")
        node.time.advance(100)
    assert 1_500 <= node.time.monotonic_ms() - began_ms <= 4_500


def search(node: Node) -> None:
    """One search without an active node, after a request that is refused."""
    while node.authority.requested is None:
        node.time.advance(100)
    node.authority.answer(ActivationRefused("the newest is 8"))
    node.life.not_found("refused")


@pytest.mark.parametrize("heard", [True, False])
def test_data_that_lacks_the_end_waits_for_the_node_that_has_the_messages(*, heard: bool) -> None:
    """A search that began before the record was found may have missed it, and one without its answer did."""
    node = Node(empties=True)
    node.empty.lacking = True
    node.replica.others_missing.append("tcp://other:61616")
    node.life.begin()
    for _ in range(5):
        search(node)
    node.authority.moved = MOVED
    for _ in range(5):
        search(node)
    assert node.empty.begun == []
    if heard:
        node.life.hear_moved(MOVED)
    else:
        node.replica.others_missing.clear()
    search(node)
    assert node.empty.begun == [MOVED]


def test_the_first_search_after_the_record_was_found_counts() -> None:
    node = Node(empties=True)
    node.empty.lacking = True
    node.life.begin()
    for _ in range(5):
        search(node)
    node.authority.moved = MOVED
    search(node)
    assert node.empty.begun == []
    search(node)
    assert node.empty.begun == [MOVED]
