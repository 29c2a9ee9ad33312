"""A node of a replicated pair that is not active: the permission, the search, the copy, the take-over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from support.standby import ManualListener, Node
from understudy.errors import ActivationRefused, BrokerError, LockManagerUnavailable, ManagementError, StoreBehind
from understudy.ha.replication.ports import Cause, Found
from understudy.ha.replication.promotion import Promotion
from understudy.ha.replication.standby_life import REQUEST_AGAIN_MS, REQUEST_MS, StandbyState


def test_the_newest_data_activates_without_looking_for_another_node() -> None:
    node = Node()
    node.life.begin()
    node.authority.answer()
    assert node.calls == ["take place", "activate"]
    assert node.replica.seeks == 0


def test_stale_data_never_activates() -> None:
    node = Node()
    node.life.begin()
    node.authority.answer(ActivationRefused("the newest is 7"))
    assert (node.calls, node.replica.seeks) == ([], 1)
    node.life.not_found("refused")
    node.time.advance(2_000)
    node.authority.answer(ActivationRefused("the newest is 7"))
    assert (node.calls, node.replica.seeks) == ([], 2)


def test_an_incomplete_copy_does_not_even_ask() -> None:
    node = Node(complete=False)
    node.life.begin()
    assert (node.authority.calls, node.replica.seeks) == ([], 1)


def test_a_node_whose_place_is_taken_is_spare_until_it_is_accepted() -> None:
    node = Node()
    node.life.begin()
    node.authority.answer(ActivationRefused("the newest is 7"))
    node.life.not_found("refused")
    assert (node.life.spare, node.life.waiting_because) == (False, "the newest is 7")
    node.replica.found = Found.PLACE_TAKEN
    assert (node.life.spare, node.life.waiting_because) == (True, None)
    node.time.advance(2_000)
    node.authority.answer(ActivationRefused("the newest is 7"))
    assert node.life.spare, "while it looks again"
    node.life.accepted()
    assert not node.life.spare


def test_no_answer_is_no_permission() -> None:
    node = Node()
    node.life.begin()
    node.time.advance(REQUEST_MS)
    assert (node.calls, node.replica.seeks) == ([], 1)
    assert node.authority.requested is None, "cancelled"
    node.life.not_found("refused")
    node.time.advance(2_000)
    node.authority.answer(LockManagerUnavailable("no quorum"))
    assert (node.calls, node.replica.seeks) == ([], 2)


@pytest.mark.parametrize("event", ["lost", "fail over"])
def test_a_replica_in_sync_takes_over_once_everything_received_is_executed(event: str) -> None:
    node = Node()
    node.in_sync()
    if event == "lost":
        node.life.lost("reset")
    else:
        node.life.fail_over()
    assert node.authority.requested is None
    node.replica.ended[0]()
    node.authority.answer()
    assert node.calls == ["activate"]


def test_a_replica_whose_active_node_goes_on_without_it_begins_again() -> None:
    node = Node()
    node.in_sync()
    node.life.lost("reset")
    node.replica.ended[0]()
    node.authority.answer(ActivationRefused("the newest is 4"))
    assert node.calls == ["queue again"]


def test_a_replica_in_sync_asks_until_there_is_an_answer() -> None:
    node = Node()
    node.in_sync()
    node.life.lost("reset")
    node.replica.ended[0]()
    for _ in range(3):
        node.authority.answer(LockManagerUnavailable("no quorum"))
        assert node.calls == []
        node.time.advance(REQUEST_AGAIN_MS)
    node.authority.answer()
    assert node.calls == ["activate"]


def test_an_incomplete_copy_is_not_used_when_the_active_node_is_lost() -> None:
    node = Node(complete=False)
    node.life.begin()
    node.life.accepted()
    node.life.lost("reset")
    assert node.calls == ["take place"]
    node.replica.ended[0]()
    assert node.calls == ["take place", "queue again"]
    assert node.authority.calls == []


PROMOTED = Promotion("n", 6, None, 7)


def by_votes(**around: Any) -> Node:
    """A node of a pair without a lock manager."""
    node = Node(**around)
    node.authority.by_votes = True
    return node


def test_a_node_that_votes_looks_for_an_active_one_before_it_requests_the_permission() -> None:
    node = by_votes()
    node.life.begin()
    assert (node.calls, node.authority.calls, node.replica.seeks) == ([], [], 1)
    node.life.not_found("refused")
    node.time.advance(0)
    assert (node.authority.calls, node.authority.cause) == (["request"], Cause.START)
    node.authority.answer(ActivationRefused("a copy"))
    assert node.replica.seeks == 2
    node.life.not_found("refused")
    node.time.advance(99)
    assert node.authority.calls == ["request"]
    node.time.advance(1)
    assert node.authority.calls == ["request"] * 2


@pytest.mark.parametrize(
    ("votes", "waits_ms"), [(True, [0, 100, 200, 400, 1_300]), (False, [100, 200, 400, 1_300])], ids=["votes", "lock"]
)
def test_the_first_searches_take_one_retry_replication_wait_together(votes: bool, waits_ms: list[int]) -> None:
    node = by_votes() if votes else Node()
    node.life.begin()
    if not votes:
        node.authority.answer(ActivationRefused("stale"))
    assert sum(waits_ms) == 2_000
    for seeks, wait_ms in enumerate([*waits_ms, 2_000, 2_000], 1):
        assert node.replica.seeks == seeks
        node.life.not_found("refused")
        requests = len(node.authority.calls)
        if wait_ms:
            node.time.advance(wait_ms - 1)
            assert len(node.authority.calls) == requests, wait_ms
        node.time.advance(1 if wait_ms else 0)
        assert len(node.authority.calls) == requests + 1, wait_ms
        node.authority.answer(ActivationRefused("stale"))


def test_a_search_counts_once_all_broadcasts_were_heard() -> None:
    """Before that, the active node may be one of which nothing was heard."""
    heard = False
    node = by_votes(all_heard=lambda: heard)
    node.life.begin()
    for seeks in (1, 2, 3):
        assert (node.authority.calls, node.replica.seeks) == ([], seeks)
        heard = seeks == 3
        node.life.not_found("no other connector is configured")
        node.time.advance(1_000)
    assert node.authority.calls == ["request"]


def test_a_replica_in_sync_of_a_node_that_votes_is_announced_to_the_cluster() -> None:
    node = by_votes()
    node.life.begin()
    node.life.accepted()
    node.life.in_sync()
    assert node.calls == ["take place", "follow", "announce"]


def test_a_replica_in_sync_of_a_node_with_a_lock_watches_the_cluster_under_the_node_id_of_its_pair() -> None:
    """A new replica has no node id when it joins, so its places for clients are those of no pair (ADR 0194)."""
    node = Node()
    node.life.begin()
    node.authority.answer(ActivationRefused("stale"))
    before = node.watching
    node.life.accepted()
    node.life.in_sync()
    assert node.watching == before + 1
    assert "announce" not in node.calls


@pytest.mark.parametrize(("told", "cause"), [(True, Cause.TOLD), (False, Cause.LOST)])
def test_the_authority_knows_whether_the_replica_was_requested_to_take_over(told: bool, cause: Cause) -> None:
    node = Node()
    node.in_sync()
    if told:
        node.life.fail_over()
        # the connection ends after the last packet
    node.life.lost("reset")
    node.replica.ended[0]()
    assert node.authority.cause is cause


@pytest.mark.parametrize("early", [True, False])
def test_a_promotion_waits_for_the_end_of_the_search_then_the_node_asks_again(early: bool) -> None:
    node = by_votes()
    answers: list[Promotion | BrokerError] = []
    node.life.begin()
    if early:
        node.life.promote(answers.append)
        assert node.authority.promoted is None
    node.life.not_found("refused")
    if not early:
        node.life.promote(answers.append)
    assert node.authority.promoted is not None
    node.authority.promoted(PROMOTED)
    assert (answers, node.authority.calls) == ([PROMOTED], ["request"])
    node.authority.answer()
    assert node.calls == ["take place", "activate"]


def test_a_node_listens_for_its_last_replica_after_one_retry_wait_and_until_it_copies() -> None:
    listening: list[bool] = []
    node = by_votes(listener=ManualListener(listening))
    node.authority.listening = True
    node.life.begin()
    node.life.not_found("refused")
    for wait_ms in (0, 100, 200, 400, 1_300):
        node.time.advance(wait_ms)
        node.authority.answer(ActivationRefused("its replica may have newer data"))
        assert listening == []
        node.life.not_found("refused")
    assert listening == [True]
    node.time.advance(2_000)
    node.authority.answer(ActivationRefused("its replica may have newer data"))
    node.life.accepted()
    assert listening == [True, False]


def test_a_refusal_is_logged_after_one_retry_wait_and_shown_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """After a failback that goes well the node is refused, and finds the new active node with one of these searches."""
    node = Node()
    node.life.begin()
    for wait_ms in (100, 200, 400, 1_300, 2_000):
        node.authority.answer(ActivationRefused("the newest is 7"))
        assert node.life.waiting_because == "the newest is 7"
        assert caplog.messages == [], wait_ms
        node.life.not_found("refused")
        node.time.advance(wait_ms)
    node.authority.answer(ActivationRefused("the newest is 7"))
    node.life.not_found("refused")
    assert caplog.messages == ["not active"], "once"


def test_a_refusal_is_not_logged_if_an_active_node_is_found(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.in_sync()
    node.life.lost("connection reset")
    node.replica.ended.pop()()
    node.authority.answer()
    assert "not active" not in caplog.messages


def test_a_lock_manager_without_an_answer_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.life.begin()
    node.authority.answer(LockManagerUnavailable("no answer"))
    assert caplog.messages == ["not active"]


def test_a_promotion_ends_if_an_active_node_is_found() -> None:
    node = by_votes()
    answers: list[Promotion | BrokerError] = []
    node.life.begin()
    node.life.promote(answers.append)
    node.life.accepted()
    assert "an active node was found" in str(answers)
    node.life.promote(answers.append)
    assert "COPYING" in str(answers[1])


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    ("found", "text"),
    [(Found.PLACE_TAKEN, "which has another replica"), (Found.PARTNER_ACTIVATES, "found and activates")],
)
def test_a_node_is_not_promoted_beside_a_node_that_its_last_search_found(early: bool, found: Found, text: str) -> None:
    node = by_votes()
    answers: list[Promotion | BrokerError] = []
    node.life.begin()
    if early:
        node.life.promote(answers.append)
    node.replica.found = found
    node.life.not_found("refused")
    if not early:
        node.life.promote(answers.append)
    assert text in str(answers)
    assert node.authority.promoted is None
    # the other node is gone when it is looked for again
    node.replica.found = Found.NOTHING
    node.time.advance(2_000)
    node.authority.answer(ActivationRefused("the other node may have newer data"))
    node.life.not_found("refused")
    node.life.promote(answers.append)
    assert node.authority.promoted is not None


@pytest.mark.parametrize("state", list(StandbyState))
def test_it_stops_in_every_state(state: StandbyState) -> None:
    node = Node(complete=state is not StandbyState.COPYING, empties=state is StandbyState.EMPTYING)
    steps: dict[StandbyState, list[Callable[[], None]]] = {
        StandbyState.REQUESTING: [node.life.begin],
        StandbyState.SEEKING: [node.life.begin, lambda: node.time.advance(REQUEST_MS)],
        StandbyState.PAUSED: [
            node.life.begin,
            lambda: node.time.advance(REQUEST_MS),
            lambda: node.life.not_found("refused"),
        ],
        StandbyState.EMPTYING: [
            node.set_aside,
            node.life.begin,
            lambda: node.authority.answer(ActivationRefused("stale")),
            lambda: node.life.not_found("refused"),
        ],
        StandbyState.PROMOTING: [
            node.life.begin,
            lambda: node.time.advance(REQUEST_MS),
            lambda: node.life.not_found("refused"),
            lambda: node.life.promote(lambda outcome: None),
        ],
        StandbyState.COPYING: [node.life.begin, node.life.accepted],
        StandbyState.IN_SYNC: [node.in_sync],
        StandbyState.ENDING_COPY: [node.in_sync, lambda: node.life.lost("reset")],
        StandbyState.TAKING_OVER: [node.in_sync, lambda: node.life.lost("reset"), lambda: node.replica.ended[0]()],
        StandbyState.TAKE_OVER_PAUSED: [
            node.in_sync,
            lambda: node.life.lost("reset"),
            lambda: node.replica.ended[0](),
            lambda: node.authority.answer(LockManagerUnavailable("no quorum")),
        ],
    }
    for step in steps.get(state, []):
        step()
    assert node.life.state is state
    node.calls.clear()
    node.life.stop()
    node.time.advance(100_000)
    assert node.life.state is StandbyState.IDLE
    assert node.calls == []
    assert node.authority.requested is None
    assert node.time.pending() == 0


def test_a_node_with_a_lock_manager_learns_the_members_of_the_cluster_too() -> None:
    node = Node()
    node.life.begin()
    assert node.watching == 1


def searched(node: Node, times: int) -> None:
    """Let that many searches find no active node."""
    for _ in range(times):
        if node.authority.requested is not None:
            node.authority.answer(ActivationRefused("the newest is 7", hint="accept the loss"))
        node.life.not_found("192.0.2.9:61616: refused")
        node.time.advance(2_000)


def hints(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [vars(each)["hint"] for each in caplog.records if each.getMessage() == "not active"]


def test_the_hint_to_accept_a_loss_comes_only_when_every_member_was_asked(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    missing = node.replica.missing
    missing.append("tcp://192.0.2.7:61616")
    node.life.begin()
    searched(node, 8)
    found = [each for each in caplog.records if each.getMessage() == "not active"]
    assert [vars(each)["not_asked"] for each in found] == [["tcp://192.0.2.7:61616"]]
    assert "accept the loss" not in hints(caplog)
    missing.clear()
    searched(node, 2)
    assert hints(caplog)[1:] == ["accept the loss"]


def test_a_copy_without_an_active_node_says_which_nodes_refused_it(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(complete=False)
    node.life.begin()
    assert node.life.waiting_because is None
    searched(node, 8)
    text = "no active node takes this one as its replica: 192.0.2.9:61616: refused"
    assert node.life.waiting_because == text
    assert [each.getMessage() for each in caplog.records] == ["not a replica"]
    node.life.accepted()
    assert node.life.waiting_because is None


def test_a_node_whose_data_is_old_says_also_which_nodes_did_not_take_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = Node()
    node.life.begin()
    searched(node, 8)
    found = [vars(each)["reason"] for each in caplog.records if each.getMessage().startswith("no active node takes")]
    assert found == ["192.0.2.9:61616: refused"]


def test_data_that_must_not_be_served_is_not_and_the_node_looks_for_an_active_one() -> None:
    why: StoreBehind | None = StoreBehind("an older state of its disk was put back")
    node = Node(why_not_serve=lambda: why)
    node.life.begin()
    assert node.authority.requested is None
    assert (node.replica.seeks, node.life.waiting_because) == (1, str(why))
    node.life.not_found("none")
    why = None
    node.time.advance(2_000)
    assert node.authority.requested is not None


def test_a_node_with_more_records_than_the_last_active_one_waits_and_says_so() -> None:
    node = Node()
    node.life.begin()
    node.authority.answer(ActivationRefused("the newest is 3"))
    node.replica.found = Found.PUT_BACK
    outcome: list[Promotion | BrokerError] = []
    node.life.promote(outcome.append)
    node.life.not_found("its disk was put back")
    assert isinstance(outcome[0], ManagementError)
    # the next search finds nothing: the other node has stopped
    node.time.advance(2_000)
    node.authority.answer(ActivationRefused("the newest is 3"))
    node.replica.found = Found.NOTHING
    node.life.not_found("none")
    assert node.life.waiting_because is not None
    assert "understudy promote" in node.life.waiting_because
    node.life.promote(outcome.append)
    assert node.life.state is StandbyState.PROMOTING
