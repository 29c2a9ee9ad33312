"""Several nodes in one cluster: the real dialling side and the real cluster channel, over a network in memory."""

from __future__ import annotations

import pytest

from support.membership import Network, Node, connector, three
from understudy.cluster.membership.announcement import announcement_fault
from understudy.cluster.membership.member_link import MemberLink
from understudy.cluster.membership.membership import Event, LinkObserver, Membership, MembershipSettings, State
from understudy.cluster.membership.topology import Member
from understudy.errors import MachineError
from understudy.ha.votes.decisions import ClusterVoter, VoteOptions
from understudy.ha.votes.round import Answer, Question
from understudy.machine import ILLEGAL
from understudy.runtime.members.member_rules import ClusterBallot
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration

ALL = {"A": ("a", None), "B": ("b", None), "C": ("c", None)}


def test_every_node_learns_all_members_and_connects_to_each() -> None:
    network, *nodes = three()
    for node in nodes:
        assert node.sees() == ALL
        assert node.joined_to() == {"a", "b", "c"} - {node.host}
    assert len(network.pipes) == 6


def test_a_member_that_is_only_announced_by_another_is_dialled() -> None:
    network = Network()
    hub = network.node("hub").activate("HUB")
    left, right = network.node("left", "hub").activate("L"), network.node("right", "hub").activate("R")
    network.run(200)
    for node in (hub, left, right):
        assert set(node.sees()) == {"HUB", "L", "R"}
    assert left.joined_to() == {"hub", "right"}


@pytest.mark.parameter(
    "cluster-connection/static-connectors/allow-direct-connections-only",
    "cluster-connection/static-connectors/connector-ref",
)
def test_only_static_members_are_dialled_with_direct_connections() -> None:
    network = Network()
    network.node("hub").activate("HUB")
    left = network.node("left", "hub", settings=MembershipSettings(direct_connections_only=True)).activate("L")
    network.node("right").activate("R")
    network.nodes["hub"].topology.update(Member("R", 1, connector("right")))
    network.run(200)
    assert "R" in left.sees()
    assert {link.target.host for link in left.membership.links.values()} == {"hub"}


def test_the_backup_is_known_to_all_members() -> None:
    network, a, b, c = three()
    spare = network.node("spare", "a").stand_by("A")
    network.run(300)
    for node in (a, b, c, spare):
        assert node.sees() == {**ALL, "A": ("a", "spare")}
    assert spare.membership.announced_to == connector("a")
    spare.die()
    network.run(300)
    assert a.sees() == b.sees() == c.sees() == ALL


def test_a_backup_announced_through_another_member_is_known_to_its_primary() -> None:
    network = Network()
    a, b = network.node("a", "b").activate("A"), network.node("b", "a").activate("B")
    spare = network.node("spare", "b")
    network.cuts.add(frozenset(("spare", "a")))
    spare.stand_by("A")
    network.run(1_000)
    assert a.sees()["A"] == b.sees()["A"] == ("a", "spare")


def test_a_lost_member_is_removed_everywhere_and_returns() -> None:
    network, a, b, c = three()
    a.die()
    network.run(100)
    assert b.sees() == c.sees() == {"B": ("b", None), "C": ("c", None)}
    a.topology.clear()
    a.activate("A")
    network.run(1_000)
    for node in (a, b, c):
        assert node.sees() == ALL


def test_a_removal_is_ignored_while_the_own_link_is_open() -> None:
    """One pair of members loses the network between them; the third sees both."""
    network, a, b, c = three()
    network.cut("a", "b")
    network.run(3_000)
    assert a.sees() == {"A": ("a", None), "C": ("c", None)}
    assert b.sees() == {"B": ("b", None), "C": ("c", None)}
    assert c.sees() == ALL
    network.cuts.clear()
    network.run(3_000)
    for node in (a, b, c):
        assert node.sees() == ALL


def test_the_backup_takes_the_place_of_its_primary() -> None:
    network, a, b, c = three()
    spare = network.node("spare", "a").stand_by("A")
    network.run(300)
    a.die()
    network.run(200)
    spare.activate("A")
    network.run(1_000)
    for node in (spare, b, c):
        assert node.sees() == {**ALL, "A": ("spare", None)}
        assert node.joined_to() == {
            "spare",
            "b",
            "c",
        } - {node.host}
    a.topology.clear()
    a.stand_by("A")
    network.run(1_000)
    for node in (spare, b, c):
        assert node.sees()["A"] == ("spare", "a")


def test_two_nodes_active_under_one_id_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    network, a, b, _ = three()
    network.run(3_000)
    network.node("spare", "a", "b").activate("A")
    network.run(1_000)
    assert "split brain" in caplog.text
    assert a.sees()["A"] == ("a", None)
    assert network.nodes["spare"].sees()["A"] == ("spare", None)
    assert b.sees()["A"] == ("spare", None)


def discover(node: Node, *hosts: str) -> None:
    node.membership.set_discovered([connector(each) for each in hosts])


def test_a_discovered_node_is_dialled_and_tells_the_others() -> None:
    network = Network()
    network.node("b").activate("B")
    network.node("c", "b").activate("C")
    a = network.node("a").activate("A")
    discover(a, "a", "b")
    network.run(1_000)
    assert set(a.sees()) == {"A", "B", "C"}
    assert a.joined_to() == {"b", "c"}
    discover(a)
    network.run(1_000)
    assert a.joined_to() == {"b", "c"}, "the connection does not depend on the broadcasts"


def test_a_discovered_address_without_a_node_is_forgotten_with_its_entry() -> None:
    network = Network()
    a = network.node("a").activate("A")
    discover(a, "forged")
    network.run(3_000)
    assert {"forged"} == {link.target.host for link in a.membership.links.values()}
    discover(a)
    dials = len(network.dials)
    network.run(3_000)
    assert not a.membership.links
    assert len(network.dials) == dials


def test_a_backup_finds_its_active_node_by_discovery() -> None:
    network = Network()
    a = network.node("a").activate("A")
    spare = network.node("spare").stand_by("A")
    discover(spare, "a")
    network.run(500)
    assert spare.membership.announced_to == connector("a")
    assert a.sees() == {"A": ("a", "spare")}


def test_a_node_that_is_discovered_again_is_tried_again() -> None:
    network = Network()
    settings = MembershipSettings(initial_connect_attempts=2)
    a = network.node("a", settings=settings).activate("A")
    discover(a, "b")
    network.run(5_000)
    assert not a.membership.links
    network.node("b").activate("B")
    network.run(2_000)
    assert not a.joined_to()
    discover(a)
    discover(a, "b")
    network.run(1_000)
    assert a.joined_to() == {"b"}


@pytest.mark.parametrize("later_ms", [0, 300, 10_000])
def test_of_two_nodes_with_one_id_exactly_one_is_the_younger(later_ms: int) -> None:
    """However close their starts are, exactly one of them is the younger."""
    network = Network()
    found: dict[str, list[bool]] = {"a": [], "b": []}
    nodes = {host: network.node(host) for host in found}
    for host, node in nodes.items():
        node.membership.on_twin = lambda connector, younger, host=host: found[host].append(younger)  # type: ignore[misc]
        node.activate("SAME")
        network.run(later_ms)
    discover(nodes["a"], "b")
    discover(nodes["b"], "a")
    network.run(10_000)
    assert set(found["a"]) == {False}
    assert set(found["b"]) == {True}


def test_a_node_is_not_its_own_twin() -> None:
    network, *nodes = three()
    found: list[bool] = []
    for node in nodes:
        node.membership.on_twin = lambda connector, younger: found.append(younger)
    network.run(10_000)
    spare = network.node("spare", "a").stand_by("A")
    nodes[0].die()
    network.run(1_000)
    spare.activate("A")
    network.run(10_000)
    assert found == []


def test_a_clean_stop_ends_the_links_to_the_member() -> None:
    network, a, b, _ = three()
    a.stop()
    network.run(3_000)
    # "c" is the only one with "a" as static connector
    assert [link.target.host for link in b.membership.links.values()] == ["c"]
    assert "A" not in b.sees()


def test_a_passive_node_is_not_dialled() -> None:
    network = Network()
    network.node("a", "spare").activate("A")
    network.node("spare", "a").stand_by("A")
    network.run(500)
    network.dials.clear()
    network.run(10_000)
    assert network.dials == []


@pytest.mark.parametrize(("attempts", "dials"), [(3, 3), (0, 0), (-1, 25)])
@pytest.mark.parameter("cluster-connection/topology-scanner-attempts")
def test_a_missing_static_connector_is_looked_for_as_often_as_configured(attempts: int, dials: int) -> None:
    network = Network()
    settings = MembershipSettings(topology_scanner_attempts=attempts)
    network.node("b").activate("B")
    network.node("a", "b", "missing", settings=settings).activate("A")
    network.run(20_000)
    # one attempt is made before the first member is connected
    assert len([each for each in network.dials if each[1] == "missing"]) in (max(1, dials), max(1, dials) + 1)


@pytest.mark.parameter("cluster-connection/initial-connect-attempts")
def test_initial_connect_attempts_end_the_search() -> None:
    network = Network()
    network.node("a", "missing", settings=MembershipSettings(initial_connect_attempts=4)).activate("A")
    network.run(20_000)
    assert len(network.dials) == 4


@pytest.mark.parameter("cluster-connection/reconnect-attempts")
def test_reconnect_attempts_end_the_search_for_a_member_that_was_connected() -> None:
    network = Network()
    other = network.node("b").activate("B")
    network.node("a", "b", settings=MembershipSettings(reconnect_attempts=2)).activate("A")
    network.run(1_000)
    other.die()
    network.dials.clear()
    network.run(20_000)
    assert len(network.dials) == 2


@pytest.mark.parametrize(("attempts", "dials"), [(-1, 40), (3, 3)])
def test_a_static_connector_of_a_node_that_stopped_is_tried_as_at_the_start(attempts: int, dials: int) -> None:
    """Whatever reconnect-attempts says: an operator who stops a member starts it again."""
    network = Network()
    settings = MembershipSettings(reconnect_attempts=0, initial_connect_attempts=attempts)
    other = network.node("b").activate("B")
    node = network.node("a", "b", settings=settings).activate("A")
    network.run(1_000)
    other.stop()
    network.dials.clear()
    network.run(20_000)
    assert len(network.dials) in (dials, dials - 1)
    if attempts < 0:
        other.activate("B")
        network.run(1_000)
        assert set(node.sees()) == {"A", "B"}
        other.die()
        network.dials.clear()
        network.run(20_000)
        assert network.dials == [], "it did not stop this time"


@pytest.mark.parameter("cluster-connection/notification-interval", "cluster-connection/notification-attempts")
def test_announcements_are_repeated_as_often_as_configured() -> None:
    network = Network()
    settings = MembershipSettings(notification_interval_ms=1_000, notification_attempts=3)
    node = network.node("a", settings=settings).activate("A")
    events: list[int] = []
    node.topology.listen(lambda member: events.append(member.event_id), lambda node_id, event_id: None)
    network.run(20_000)
    assert len(events) == 3
    assert events == sorted(set(events))


def test_a_node_that_watches_announces_nothing() -> None:
    network, a, _, _ = three()
    spare = network.node("spare", "a")
    spare.membership.watch("A")
    network.run(300)
    assert set(spare.sees()) == {"A", "B", "C"}
    assert a.sees() == ALL
    spare.membership.announce("A")
    network.run(300)
    assert a.sees()["A"] == ("a", "spare")


class Identified(LinkObserver):
    """Keeps the ids of the nodes to which messages can go."""

    def __init__(self) -> None:
        self.nodes: set[str | None] = set()

    def link_identified(self, link: MemberLink) -> None:
        self.nodes.add(link.node_id)

    def link_received(self, link: MemberLink, packet: packets.Packet) -> None:
        """Nothing is expected."""

    def link_lost(self, link: MemberLink) -> None:
        self.nodes.discard(link.node_id)


@pytest.mark.parametrize("node_id", ["A", "X"])
def test_an_active_node_uses_the_links_that_it_had_while_it_was_passive(node_id: str) -> None:
    """Also that to the node whose backup it was, when it has become the replica of another one (ADR 0119)."""
    network, *_ = three()
    spare = network.node("spare", "a")
    spare.membership.watch("A")
    network.run(300)
    observer = Identified()
    spare.topology.set_primary(node_id, connector("spare"), network.time.wall_ms())
    spare.membership.observe(observer)
    spare.membership.join(node_id)
    assert observer.nodes == {"A", "B", "C"} - {node_id}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_pair_is_a_transition_or_a_written_refusal(state: State, event: Event) -> None:
    membership = Network().node("a").membership
    membership._state = state
    if Membership.TABLE[state, event] is ILLEGAL:
        with pytest.raises(MachineError):
            membership.fire(event)
        assert membership.state is state
    else:
        membership.fire(event)


# --- votes -------------------------------------------------------------------------------------------


class Configured:
    """The part of a node's configuration that a ballot reads."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def own_connector(self) -> TransportConfiguration:
        return connector(self._node.host)


def voter(node: Node, **options: int) -> ClusterVoter:
    ballot = ClusterBallot(node.membership, node.topology, Configured(node))  # type: ignore[arg-type]  # a part of it
    return ClusterVoter(VoteOptions(**options), ballot, node.network.time)


def test_a_backup_wins_the_vote_when_its_primary_died() -> None:
    network, a, _, _ = three()
    spare = network.node("spare", "a").stand_by("A")
    network.run(300)
    a.die()
    network.run(100)
    decided: list[bool] = []
    voter(spare).ask_whether_gone("A", decided.append)
    network.run(100)
    assert decided == [True]


def test_a_backup_that_only_lost_its_own_link_loses_the_vote() -> None:
    network, a, _, _ = three()
    spare = network.node("spare", "a").stand_by("A")
    network.run(300)
    network.cut("spare", "a")
    network.run(100)
    decided: list[bool] = []
    voter(spare, retries=2).ask_whether_gone("A", decided.append)
    network.run(6_000)
    assert decided == [False]
    voter(a).ask_whether_active(decided.append)
    network.run(100)
    assert decided == [False, True]


def test_an_isolated_backup_and_an_isolated_primary_lose_the_vote() -> None:
    network, a, _, _ = three()
    spare = network.node("spare", "a").stand_by("A")
    network.run(300)
    for lonely in ("spare", "a"):
        for other in ("a", "b", "c", "spare"):
            if other != lonely:
                network.cut(lonely, other)
    network.run(100)
    decided: list[bool] = []
    voter(spare, retries=1).ask_whether_gone("A", decided.append)
    voter(a).ask_whether_active(decided.append)
    network.run(6_000)
    assert decided == [False, False]


def test_a_primary_whose_backup_is_active_loses_the_vote() -> None:
    network, a, _, _ = three()
    network.run(3_000)
    network.node("spare", "a", "b", "c").activate("A")
    network.run(1_000)
    decided: list[bool] = []
    voter(a).ask_whether_active(decided.append)
    network.run(100)
    assert decided == [False]


def test_a_cancelled_request_casts_nothing() -> None:
    network, a, _, _ = three()
    cast: list[object] = []
    ballot = ClusterBallot(a.membership, a.topology, Configured(a))  # type: ignore[arg-type]  # a part of it
    ballot.put(Question("B"), cast.append, lambda: cast.append("all")).cancel()
    network.run(100)
    assert cast == []
    ballot.put(Question("B"), cast.append, lambda: cast.append("all"))
    network.run(100)
    text = connector("b").to_vote_text()
    assert cast == [Answer(False, text), Answer(False, text), "all"]


def test_a_backup_of_another_store_knows_that_no_active_node_has_its_node_id() -> None:
    network = Network()
    network.node("a").activate("A")
    spare = network.node("spare", "a").stand_by("OTHER")
    network.run(300)
    assert spare.membership.announced_to is None
    fault = announcement_fault(spare.membership, spare.topology)
    assert fault == "this backup has the store of node OTHER, but a:61616 is node A: is it the same store directory?"


def test_a_backup_that_is_announced_or_whose_primary_is_not_reached_has_no_fault() -> None:
    network, _, _, c = three()
    spare = network.node("spare", "a", "b").stand_by("A")
    network.run(300)
    assert announcement_fault(spare.membership, spare.topology) is None
    network.nodes["a"].die()
    network.run(300)
    assert spare.membership.announced_to is None
    assert announcement_fault(spare.membership, spare.topology) is None, "it takes over, or its primary returns"
    assert announcement_fault(c.membership, c.topology) is None, "an active node"


def test_a_backup_with_another_cluster_password_says_which_node_refuses_it() -> None:
    network = Network()
    network.node("a").activate("A")
    spare = network.node("spare", "a", password="another").stand_by("A")
    network.run(300)
    fault = announcement_fault(spare.membership, spare.topology)
    assert fault is not None
    assert fault.startswith("this backup is announced to no node: a:61616: ")
    assert "cluster" in fault
