"""Grouping handlers: which queue gets the messages of a group (artemis-ha s. 7.8, ADR 0071)."""

from __future__ import annotations

from typing import Any

import pytest

from support.grouping import HERE, THERE, GroupingNode
from support.routing import World
from understudy.cluster.balancing import groups as groups_module
from understudy.cluster.balancing.group_binding import PROPOSALS_MAX
from understudy.cluster.balancing.group_notices import GroupNotice, read_group_notice
from understudy.cluster.balancing.groups import bindings_in, forget_bindings
from understudy.errors import DiskFull
from understudy.properties import Properties
from understudy.store.setting_record import SettingKind

NEAR, FAR = "q" + HERE, "q" + THERE


def kept(node: GroupingNode) -> dict[str, object]:
    """The bindings that a restart would find."""
    settings = node.world.store.found().settings
    return {
        match: record.values["queue"]
        for (scope, match), record in settings.items()
        if scope is SettingKind.GROUP and record.values is not None
    }


# -- LOCAL ----------------------------------------------------------------------------------------


def test_a_decision_counts_when_its_record_is_durable() -> None:
    node = GroupingNode("LOCAL")
    assert not node.ask("g.q", FAR, NEAR, name="first")
    assert not node.ask("g.q", NEAR, FAR, name="second")
    assert (node.decided, node.groups.queue_of("g.q")) == ([], None)
    node.sync()
    assert node.decided == ["first", "second"]
    assert node.groups.queue_of("g.q") == FAR
    assert node.ask("g.q", NEAR, FAR)
    assert kept(node) == {"g.q": FAR}
    assert node.published == []


def test_bindings_are_there_after_a_restart() -> None:
    node = GroupingNode("LOCAL")
    node.ask("g.q", FAR)
    node.sync()
    again = GroupingNode("LOCAL", world=node.world)
    assert again.groups.bound == 1
    assert again.ask("g.q", NEAR, FAR)
    assert again.groups.queue_of("g.q") == FAR


def test_a_proposal_of_another_member_is_answered_when_it_is_durable_and_the_next_one_with_the_same_queue() -> None:
    node = GroupingNode("LOCAL")
    node.heard("PROPOSAL", "g.q", FAR)
    node.heard("PROPOSAL", "g.q", NEAR)
    assert node.published == []
    node.sync()
    first, second = GroupNotice("PROPOSAL_RESPONSE", "g.q", FAR), GroupNotice("PROPOSAL_RESPONSE", "g.q", NEAR, FAR)
    assert node.published == [first, second]
    node.heard("PROPOSAL", "g.q", NEAR)
    assert node.published == [first, second, second]
    assert node.published[-1].chosen == FAR
    assert kept(node) == {"g.q": FAR}
    assert node.groups.counts.proposals == 3


def test_a_proposal_without_a_queue_only_asks() -> None:
    node = GroupingNode("LOCAL")
    node.heard("PROPOSAL", "g.q", None)
    node.sync()
    assert (node.published, node.groups.bindings, kept(node)) == ([], {}, {})
    node.heard("PROPOSAL", "g.q", FAR)
    node.sync()
    node.published.clear()
    node.heard("PROPOSAL", "g.q", None)
    assert [each.chosen for each in node.published] == [FAR]


def test_a_group_whose_queue_is_gone_is_free_and_the_others_learn_it() -> None:
    node = GroupingNode("LOCAL")
    far = node.remote()
    queue = node.world.queue("q")
    for key, wanted in (("a.q", FAR), ("b.q", NEAR)):
        node.ask(key, wanted)
    node.sync()
    node.bindings.remove(far)
    node.world.office.directory.delete_queue(queue.name)
    node.sync()
    assert node.published == [GroupNotice("UNPROPOSAL", "a.q", FAR), GroupNotice("UNPROPOSAL", "b.q", NEAR)]
    assert (kept(node), node.groups.bound, node.groups.counts.freed) == ({}, 0, 2)


@pytest.mark.parametrize(("kind", "known"), [("LOCAL", True), ("REMOTE", True), ("REMOTE", False)])
def test_a_consumer_does_not_own_a_group_any_more_that_its_queue_has_lost(kind: str, known: bool) -> None:
    """Also where the group is not known, because all its messages were sent at the member that decides."""
    node = GroupingNode(kind)
    queue = node.world.queue("q")
    if kind == "LOCAL":
        node.ask("g.q", NEAR)
    elif known:
        node.heard("PROPOSAL_RESPONSE", "g.q", NEAR)
    node.sync()
    consumer: Any = object()
    queue.groups.owners["g"] = queue.groups.owners["h"] = consumer
    node.heard("UNPROPOSAL", "g.q", NEAR)
    assert list(queue.groups.owners) == ["h"]


def test_an_unproposal_of_another_queue_changes_nothing() -> None:
    node = GroupingNode("LOCAL")
    node.ask("g.q", FAR)
    node.sync()
    node.heard("UNPROPOSAL", "g.q", NEAR)
    assert node.groups.queue_of("g.q") == FAR
    node.heard("UNPROPOSAL", "g.q", FAR)
    node.sync()
    assert (node.groups.queue_of("g.q"), kept(node)) == (None, {})


def test_a_queue_that_is_not_known_yet_is_waited_for() -> None:
    node = GroupingNode("LOCAL")
    node.ask("g.q", FAR)
    node.sync()
    again = GroupingNode("LOCAL", world=node.world)
    assert not again.ask("g.q", NEAR, name="waits")
    again.world.clock.advance(4_999)
    assert again.decided == []
    again.remote()
    assert again.decided == ["waits"]
    assert again.ask("g.q", NEAR, FAR)
    assert again.groups.queue_of("g.q") == FAR


def test_a_queue_that_does_not_become_known_in_time_loses_the_group() -> None:
    node = GroupingNode("LOCAL", timeout_ms=100)
    node.heard("PROPOSAL", "g.q", FAR)
    node.sync()
    node.published.clear()
    assert not node.ask("g.q", NEAR, name="waits")
    node.world.clock.advance(100)
    assert node.decided == ["waits"]
    assert node.published == [GroupNotice("UNPROPOSAL", "g.q", FAR)]
    assert not node.ask("g.q", NEAR)
    node.sync()
    assert kept(node) == {"g.q": NEAR}


def test_idle_groups_are_freed_and_used_ones_are_not() -> None:
    node = GroupingNode("LOCAL", group_timeout_ms=1_000, reaper_period_ms=100)
    for key in ("idle.q", "used.q", "proposed.q"):
        node.ask(key, NEAR)
    node.sync()
    for _ in range(11):
        assert node.ask("used.q", NEAR)
        node.heard("PROPOSAL", "proposed.q", NEAR)
        node.world.clock.advance(100)
    node.sync()
    assert sorted(kept(node)) == ["proposed.q", "used.q"]
    assert [each for each in node.published if each.kind == "UNPROPOSAL"] == [GroupNotice("UNPROPOSAL", "idle.q", NEAR)]
    node.groups.close()
    assert node.world.clock.pending() == World(automatic=False).clock.pending()


def test_many_idle_groups_are_freed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "_FREED_AT_ONCE", 10)
    node = GroupingNode("LOCAL", group_timeout_ms=1_000, reaper_period_ms=1_500)
    for number in range(25):
        node.ask(f"{number}.q", NEAR)
    node.sync()
    node.world.clock.advance(1_500)
    assert node.groups.bound == 0
    assert len(node.published) == 25


def test_the_least_recently_used_group_is_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "GROUP_BINDINGS_MAX", 3)
    node = GroupingNode("LOCAL")
    for key in "abc":
        node.ask(key, NEAR)
        node.sync()
    node.ask("a", NEAR)
    node.ask("d", NEAR)
    node.sync()
    assert sorted(kept(node)) == ["a", "c", "d"]
    assert node.published == [GroupNotice("UNPROPOSAL", "b", NEAR)]


def test_a_decision_that_cannot_be_written_is_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    node = GroupingNode("LOCAL")

    with monkeypatch.context() as patched:
        patched.setattr(node.world.store, "full", True)
        with pytest.raises(DiskFull):
            node.ask("g.q", NEAR)
        node.heard("PROPOSAL", "g.q", NEAR)
    assert (node.groups.bindings, node.published) == ({}, [])
    assert not node.ask("g.q", NEAR)
    node.sync()
    assert node.decided == ["g.q"]


def test_a_bug_in_one_session_keeps_no_other_one_waiting() -> None:
    node = GroupingNode("LOCAL")

    def fails() -> None:
        raise RuntimeError("a bug")

    waits = node.groups.ask("g.q", [NEAR], lambda: NEAR)
    assert waits is not None
    waits.when_decided(fails)
    assert not node.ask("g.q", NEAR, name="next")
    with pytest.raises(RuntimeError, match="a bug"):
        node.sync()
    assert node.decided == ["next"]


def test_a_second_local_handler_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    node = GroupingNode("LOCAL")
    node.ask("g.q", NEAR)
    node.sync()
    node.heard("PROPOSAL_RESPONSE", "g.q", NEAR)
    assert not caplog.records
    node.heard("PROPOSAL_RESPONSE", "g.q", NEAR, FAR)
    node.heard("PROPOSAL_RESPONSE", "h.q", FAR)
    assert ["only one may have a LOCAL" in each.message for each in caplog.records] == [True]
    assert node.groups.queue_of("g.q") == NEAR


def test_a_node_that_does_not_decide_any_more_forgets_its_bindings() -> None:
    node = GroupingNode("LOCAL")
    node.ask("g.q", NEAR)
    node.sync()
    forget_bindings(node.world.store)
    node.sync()
    assert (bindings_in(node.world.store), kept(node)) == ([], {})


def test_two_addresses_with_one_routing_name_do_not_take_the_group_from_each_other() -> None:
    """The key is that of Artemis: an address with an anycast queue, and a multicast queue of the same name."""
    node = GroupingNode("LOCAL", timeout_ms=100)
    node.world.queue("one", address="q")
    node.ask("g.q", "one" + HERE)
    node.sync()
    assert node.ask("g.q", "q" + HERE), "it waits for nothing"
    assert node.ask("g.q", "one" + HERE)
    node.world.clock.advance(1_000)
    assert (node.published, node.groups.counts.ungrouped, kept(node)) == ([], 1, {"g.q": "one" + HERE})


# -- REMOTE ---------------------------------------------------------------------------------------


def test_messages_wait_for_the_answer_in_order_and_all_members_learn_it() -> None:
    node = GroupingNode("REMOTE", address="jms")
    for name in ("first", "second"):
        assert not node.ask("g.q", NEAR, FAR, name=name)
    assert node.published == [GroupNotice("PROPOSAL", "g.q", NEAR)]
    node.heard("PROPOSAL_RESPONSE", "h.q", FAR)
    assert node.decided == []
    node.heard("PROPOSAL_RESPONSE", "g.q", NEAR, FAR)
    assert node.decided == ["first", "second"]
    assert (node.groups.queue_of("g.q"), node.groups.queue_of("h.q")) == (FAR, FAR)
    assert node.ask("h.q", NEAR, FAR), "the answer for another member counts here too"
    assert len(node.published) == 1


def test_after_ten_proposals_messages_go_on_without_their_group(caplog: pytest.LogCaptureFixture) -> None:
    node = GroupingNode("REMOTE", timeout_ms=100)
    outcomes: list[str | None] = []

    def again() -> None:
        waits = node.groups.ask("g.q", [NEAR], lambda: NEAR)
        if waits is None:
            outcomes.append(node.groups.queue_of("g.q"))
        else:
            waits.when_decided(again)

    again()
    node.world.clock.advance(100 * PROPOSALS_MAX - 1)
    assert outcomes == []
    node.world.clock.advance(1)
    assert outcomes == [None]
    assert [each.kind for each in node.published] == ["PROPOSAL"] * PROPOSALS_MAX
    assert "without their group" in caplog.text
    assert node.groups.counts.ungrouped == 1
    assert (node.groups.waiting, node.groups.bindings) == (0, {})
    assert not node.ask("g.q", NEAR), "the next message is proposed anew"


def test_an_answer_that_comes_late_counts() -> None:
    node = GroupingNode("REMOTE", timeout_ms=100)
    assert not node.ask("g.q", NEAR)
    node.world.clock.advance(250)
    assert node.groups.bindings == {}, "the session was gone"
    node.heard("PROPOSAL_RESPONSE", "g.q", NEAR)
    assert node.ask("g.q", NEAR)


def test_a_decided_queue_that_this_member_does_not_know_is_waited_for_and_then_given_back() -> None:
    node = GroupingNode("REMOTE", timeout_ms=100)
    node.heard("PROPOSAL_RESPONSE", "g.q", FAR)
    assert not node.ask("g.q", NEAR, name="one")
    node.world.clock.advance(99)
    node.remote()
    assert node.decided == ["one"]
    node.heard("PROPOSAL_RESPONSE", "h.q", "r" + THERE)
    assert not node.ask("h.q", NEAR, name="two")
    node.world.clock.advance(100)
    assert node.decided == ["one", "two"]
    assert node.published == [GroupNotice("UNPROPOSAL", "h.q", "r" + THERE)]


def test_bindings_are_confirmed_after_the_member_that_decides_was_away() -> None:
    node = GroupingNode("REMOTE", timeout_ms=100)
    for key in ("same", "moved", "silent"):
        node.heard("PROPOSAL_RESPONSE", key, NEAR)
    node.groups.member_reported("another")
    assert node.ask("same", NEAR, FAR)
    node.groups.member_reported(THERE)
    for key in ("same", "moved", "silent"):
        assert node.groups.queue_of(key) == NEAR
        assert not node.ask(key, FAR, NEAR, name=key)
    assert node.published == [GroupNotice("PROPOSAL", key, NEAR) for key in ("same", "moved", "silent")]
    node.heard("PROPOSAL_RESPONSE", "same", NEAR, NEAR)
    node.heard("PROPOSAL_RESPONSE", "moved", NEAR, FAR)
    node.world.clock.advance(100)
    assert node.decided == ["same", "moved", "silent"]
    assert [node.groups.queue_of(key) for key in ("same", "moved", "silent")] == [NEAR, FAR, NEAR]


def test_a_freed_group_is_proposed_again() -> None:
    node = GroupingNode("REMOTE")
    node.heard("PROPOSAL_RESPONSE", "g.q", FAR)
    node.heard("UNPROPOSAL", "g.q", NEAR)
    assert node.groups.queue_of("g.q") == FAR
    node.heard("UNPROPOSAL", "g.q", FAR)
    assert node.groups.queue_of("g.q") is None
    assert not node.ask("g.q", NEAR)
    assert [each for each in node.published if each.kind == "PROPOSAL"] == [GroupNotice("PROPOSAL", "g.q", NEAR)]


def test_groups_of_a_queue_that_is_gone_are_forgotten_without_a_notification() -> None:
    node = GroupingNode("REMOTE")
    far = node.remote()
    node.heard("PROPOSAL_RESPONSE", "g.q", FAR)
    node.bindings.remove(far)
    assert (node.groups.bindings, node.published) == ({}, [])


def test_proposals_without_an_answer_are_published_again_for_a_member_that_begins_to_listen() -> None:
    node = GroupingNode("REMOTE")
    node.ask("g.q", NEAR)
    node.heard("PROPOSAL_RESPONSE", "h.q", NEAR)
    node.groups.resend()
    assert node.published == [GroupNotice("PROPOSAL", "g.q", NEAR)] * 2


def test_a_group_in_use_is_renewed_before_it_counts_as_idle() -> None:
    node = GroupingNode("REMOTE", group_timeout_ms=1_000)
    node.ask("g.q", NEAR)
    node.heard("PROPOSAL_RESPONSE", "g.q", NEAR)
    for _ in range(10):
        node.world.clock.advance(100)
        assert node.ask("g.q", NEAR)
    assert node.published == [GroupNotice("PROPOSAL", "g.q", NEAR)] * 3


def test_notifications_are_passed_on_as_far_as_max_hops_allows() -> None:
    node = GroupingNode("REMOTE", max_hops=2)
    for kind in ("PROPOSAL", "PROPOSAL_RESPONSE", "UNPROPOSAL"):
        node.heard(kind, "g.q", NEAR)
        node.heard(kind, "g.q", NEAR, distance=1)
    assert [(each.kind, each.distance) for each in node.published] == [
        ("PROPOSAL", 1),
        ("PROPOSAL_RESPONSE", 1),
        ("UNPROPOSAL", 1),
        ("UNPROPOSAL", 2),
    ]


@pytest.mark.parametrize("kind", ["LOCAL", "REMOTE"])
def test_management_clients_of_every_member_learn_that_a_group_is_free(kind: str) -> None:
    node = GroupingNode(kind)
    node.heard("UNPROPOSAL", "g.q", NEAR)
    assert node.published == [GroupNotice("UNPROPOSAL", "g.q", NEAR, distance=1)]
    if kind == "REMOTE":
        node.heard("PROPOSAL", "g.q", NEAR)
        assert len(node.published) == 1


def test_sessions_that_wait_share_the_bytes_that_they_may_hold() -> None:
    node = GroupingNode("REMOTE")
    waits = node.groups.ask("g.q", [NEAR], lambda: NEAR)
    assert waits is not None
    assert waits.allowance_bytes == groups_module.GROUP_HELD_BYTES_OF_SESSION_MAX
    for _ in range(1_000):
        waits.when_decided(lambda: None)
    assert node.groups.waiting == 1_000
    assert 1_000 * waits.allowance_bytes <= groups_module.GROUP_HELD_BYTES_OF_NODE_MAX


def test_a_node_that_stops_calls_nothing_later() -> None:
    for kind in ("LOCAL", "REMOTE"):
        node = GroupingNode(kind, timeout_ms=100)
        node.ask("g.q", NEAR)
        node.groups.close()
        node.sync()
        node.world.clock.advance(1_000)
        assert node.decided == []


# -- notifications --------------------------------------------------------------------------------


def test_the_form_of_notifications_is_that_of_artemis() -> None:
    common = {"_AMQ_Binding_Type": 0, "_AMQ_Address": "jms", "_AMQ_Distance": 0}
    assert GroupNotice("PROPOSAL", "g.q", NEAR).properties("jms") == {
        "_JBM_ProposalGroupId": "g.q",
        "_JBM_ProposalValue": NEAR,
        **common,
    }
    assert GroupNotice("PROPOSAL_RESPONSE", "g.q", NEAR).properties("jms") == {
        "_JBM_ProposalGroupId": "g.q",
        "_JBM_ProposalValue": NEAR,
        "_JBM_ProposalAltValue": None,
        **common,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"_JBM_ProposalGroupId": None},
        {"_JBM_ProposalGroupId": 7},
        {"_JBM_ProposalValue": b"bytes"},
        {"_JBM_ProposalAltValue": "x" * 10_000},
        {"_AMQ_Distance": "far"},
        {"_AMQ_NotifType": "BINDING_ADDED"},
    ],
)
def test_a_notification_that_is_not_understood_is_left_aside(change: dict[str, Any]) -> None:
    good = {"_AMQ_NotifType": "PROPOSAL", **GroupNotice("PROPOSAL", "g.q", NEAR).properties("")}
    assert read_group_notice(Properties(good)) == GroupNotice("PROPOSAL", "g.q", NEAR)
    assert read_group_notice(Properties({**good, **change})) is None
