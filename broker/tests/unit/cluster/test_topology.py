"""The members of the cluster: order of events, removals, and the protected entry of an active node."""

from __future__ import annotations

import logging

import pytest

from understudy.cluster.membership.topology import Member, Topology
from understudy.errors import RemoteProtocolError
from understudy.limits import CLUSTER_NODES_MAX, NODE_ID_CHARACTERS_MAX
from understudy.wire.core.transport import TransportConfiguration


def connector(port: int, name: str = "c") -> TransportConfiguration:
    return TransportConfiguration(name, parameters={"host": "h", "port": str(port)})


A, B, C = connector(1), connector(2), connector(3)


class Listener:
    def __init__(self, topology: Topology) -> None:
        self.heard: list[object] = []
        self.end = topology.listen(self.heard.append, lambda node_id, event_id: self.heard.append((node_id, event_id)))


def test_listeners_hear_changes_of_one_entry_per_node() -> None:
    topology = Topology()
    listener = Listener(topology)
    topology.set_primary("n", A, 100)
    topology.set_backup("n", B)
    assert topology.member("n") == Member("n", 101, A, B)
    topology.set_primary("n", B, 200)
    assert topology.member("n") == Member("n", 200, B, None), "an active node is not a backup"
    listener.end()
    topology.set_backup("n", None)
    assert len(listener.heard) == 3
    topology.clear()
    assert topology.members() == []


@pytest.mark.parametrize(
    ("news", "first_hand", "expected"),
    [
        (Member("n", 99, C, None), False, Member("n", 100, A, B)),
        (Member("n", 100, C, None), False, Member("n", 100, A, B)),
        (Member("n", 50, A, None), True, Member("n", 100, A, B)),
        (Member("n", 50, C, None), True, Member("n", 101, C, B)),
        (Member("n", 50, B, A), True, Member("n", 101, B, A)),
        (Member("n", 101, C, None), False, Member("n", 101, C, B)),
        (Member("n", 101, None, C), False, Member("n", 101, A, C)),
        (Member("n", 101, B, None), False, Member("n", 101, B, None)),
        (Member("n", 101, A, None), True, Member("n", 101, A, B)),
    ],
    ids=[
        "older", "same time", "older of itself", "another node of the pair of itself, its clock early",
        "backup became primary, its clock early", "newer primary", "newer backup", "backup became primary",
        "newer without backup",
    ],
)  # fmt: skip
def test_an_update_counts_when_it_is_newer(news: Member, first_hand: bool, expected: Member) -> None:
    topology = Topology()
    topology.update(Member("n", 100, A, B))
    assert topology.update(news, first_hand=first_hand) is (expected.event_id != 100)
    assert topology.member("n") == expected


def test_a_primary_is_added_to_an_entry_that_only_has_a_backup() -> None:
    topology = Topology()
    topology.set_backup("n", B)
    topology.update(Member("n", 0, A))
    assert topology.member("n") == Member("n", 2, A, B)


def test_a_removal_is_remembered_against_older_news() -> None:
    topology = Topology()
    listener = Listener(topology)
    topology.update(Member("n", 100, A))
    assert not topology.remove("n", 99)
    assert topology.remove("n", 100)
    assert not topology.remove("n", 200)
    assert not topology.update(Member("n", 99, A))
    assert topology.update(Member("n", 99, A), first_hand=True), "the node itself is there again"
    assert [each for each in listener.heard if isinstance(each, tuple)] == [("n", 100)]


def test_a_removal_wins_against_news_of_the_same_id_that_other_members_repeat() -> None:
    """Members that repeat changes to each other end: an update and a removal of one id would go round without end."""
    members = [Topology() for _ in range(4)]
    under_way: list[tuple[Topology, Member | tuple[str, int]]] = []
    for member in members:
        others = [each for each in members if each is not member]
        member.update(Member("n", 100, A))
        member.listen(
            lambda news, others=others: under_way.extend((other, news) for other in others),  # type: ignore[misc]
            lambda *gone, others=others: under_way.extend((other, gone) for other in others),  # type: ignore[misc]
        )
    members[0].remove("n", 101)
    members[1].update(Member("n", 101, A, B))
    for _ in range(100):
        if not under_way:
            break
        other, news = under_way.pop(0)
        if isinstance(news, Member):
            other.update(news)
        else:
            other.remove(*news)
    assert under_way == []
    assert [member.member("n") for member in members] == [None] * 4


def test_a_noticed_removal_is_newer_than_the_entry_and_older_than_a_restart() -> None:
    topology = Topology()
    topology.update(Member("n", 100, A))
    topology.remove("n")
    assert not topology.update(Member("n", 101, A))
    assert topology.update(Member("n", 102, A))


def test_a_passive_node_without_an_active_one_is_removed() -> None:
    topology = Topology()
    topology.set_backup("n", B)
    topology.set_backup("n", None)
    assert topology.members() == []


def test_an_active_node_protects_its_entry(caplog: pytest.LogCaptureFixture) -> None:
    topology = Topology()
    topology.set_primary("me", A, 100)
    with caplog.at_level(logging.INFO):
        assert not topology.update(Member("me", 99, C)), "news of the time before its activation"
        assert not caplog.records
        assert not topology.update(Member("me", 101, C))
        assert not topology.update(Member("me", 50, C), first_hand=True)
        assert not topology.remove("me", 1_000)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert "split brain" in caplog.records[0].message
    assert topology.member("me") == Member("me", 100, A)


def test_another_member_may_report_the_backup_of_an_active_node() -> None:
    topology = Topology()
    topology.set_primary("me", A, 100)
    topology.update(Member("me", 99, A, B))
    assert topology.member("me") == Member("me", 100, A)
    topology.update(Member("me", 101, connector(1, "other name"), B))
    assert topology.member("me") == Member("me", 101, A, B)


def test_an_active_node_goes_on_from_the_id_that_others_have_for_it() -> None:
    topology = Topology()
    topology.set_primary("me", A, 100)
    assert topology.update(Member("me", 500, A))
    assert topology.member("me") == Member("me", 500, A)
    assert not topology.update(Member("me", 500, A)), "members that repeat it to each other come to an end"
    topology.set_backup("me", B)
    assert topology.member("me") == Member("me", 501, A, B), "newer for the others"


def test_the_protection_ends_with_clear() -> None:
    topology = Topology()
    topology.set_primary("me", A, 100)
    topology.clear()
    assert topology.update(Member("me", 1, C))


def test_nodes_seen_is_the_highest_number_at_the_same_time() -> None:
    topology = Topology()
    topology.update(Member("a", 1, A, B))
    topology.update(Member("b", 1, C))
    topology.remove("a")
    topology.update(Member("c", 1, A))
    assert topology.nodes_seen == 2
    topology.clear()
    assert topology.nodes_seen == 2


def test_the_number_of_members_and_their_ids_are_limited() -> None:
    topology = Topology()
    for number in range(CLUSTER_NODES_MAX + 1):
        topology.update(Member(str(number), 1, A))
    assert len(topology.members()) == CLUSTER_NODES_MAX
    for number in range(CLUSTER_NODES_MAX):
        topology.remove(str(number))
        topology.update(Member(f"again {number}", 1, A))
    assert len(topology._removed) <= CLUSTER_NODES_MAX
    topology.remove("again 1")
    assert not topology.update(Member("x" * (NODE_ID_CHARACTERS_MAX + 1), 1, A))


def test_a_connector_without_a_port_number_is_refused() -> None:
    topology = Topology()
    bad = TransportConfiguration("c", parameters={"host": "h", "port": "first"})
    for call in (
        lambda: topology.update(Member("n", 1, bad)),
        lambda: topology.update(Member("n", 1, A, bad)),
        lambda: topology.set_backup("n", bad),
    ):
        with pytest.raises(RemoteProtocolError):
            call()
    assert topology.members() == []
