"""Sessions of AMQP 0-9-1 that move to another node of the cluster (ADR 0199; rows 33 and 34 of its catalogue)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.amqp091 import AmqpClient, AmqpNode, bodies, declared
from support.amqp091_moves import Cluster
from support.amqp091_sessions import UUID, connected, opened, refused, resume_text, resumed, started
from support.lost_fence import replace_node
from understudy.cluster.membership.session_moves import SessionMove
from understudy.cluster.membership.topology import Member, Topology
from understudy.protocols.amqp091.deliveries import GENERATION_SHIFT
from understudy.protocols.amqp091.moves import departures
from understudy.protocols.amqp091.moves.members import Members
from understudy.protocols.amqp091.sessions import ClientSessions, State
from understudy.store.setting_record import SettingKind
from understudy.testing.manual_time import ManualTime
from understudy.wire.amqp091 import methods as m
from understudy.wire.core.packets import MoveStep
from understudy.wire.core.transport import TransportConfiguration

GENERATION = 1 << GENERATION_SHIFT


def begun(cluster: Cluster, name: str = "a", **more: object) -> AmqpClient:
    """A client with a session, a channel with confirms, and two messages in the queue of its node."""
    for node in cluster.nodes.values():
        declared(node.channel(), durable=True)
    made = started(cluster.nodes[name], **more)
    made.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    for body in (b"1", b"2"):
        made.publish("q", body, delivery_mode=2)
    made.received()
    return made


def open_or_code(client: AmqpClient) -> int:
    """0: connection.open-ok came; else the code of connection.close."""
    (answer,) = client.received()
    if isinstance(answer.method, m.ConnectionOpenOk):
        return 0
    assert isinstance(answer.method, m.ConnectionClose), answer
    client.lose()
    return answer.method.reply_code


def moved(cluster: Cluster, name: str = "b") -> AmqpClient:
    client = cluster.seek(name)
    cluster.run()
    assert open_or_code(client) == 0
    return client


def session_of(node: AmqpNode) -> State | None:
    session = node.amqp.sessions.find(UUID)
    return None if session is None else session.state


def records(node: AmqpNode) -> list[str]:
    return sorted(match for kind, match in node.store.state.settings if kind is SettingKind.CLIENT_SESSION)


# --- row 33: the session goes on at another node ---------------------------------------------------


def test_a_session_goes_on_at_another_node() -> None:
    cluster = Cluster()
    begun(cluster).lose()
    client = moved(cluster)
    status = opened(client, resume_text(0, 3))
    assert status["session"]["generation"] == 1
    assert status["channel"]["resumed"]
    assert (status["channel"]["mode"], status["channel"]["publishes"]["accepted"]) == ("confirm", 2)
    client.publish("q", b"3", delivery_mode=2)
    (confirm,) = client.received()
    assert isinstance(confirm.method, m.BasicAck)
    assert confirm.method.delivery_tag == 3
    assert (bodies(cluster.nodes["a"].channel()), bodies(cluster.nodes["b"].channel())) == ([b"1", b"2"], [b"3"])
    assert cluster.homes() == ["b"]
    assert (records(cluster.nodes["a"]), records(cluster.nodes["b"])) == ([], [UUID, f"{UUID}/1"])


def test_a_session_comes_back_and_goes_again() -> None:
    cluster = Cluster("abc")
    begun(cluster).lose()
    for generation, name in enumerate("bacab", 1):
        client = moved(cluster, name)
        assert opened(client, resume_text(0, generation + 2))["session"]["generation"] == generation
        client.publish("q", b"x", delivery_mode=2)
        client.received()
        client.lose()
        assert cluster.homes() == [name]
    assert resumed(moved(cluster, "c"), 0, 7)[0]["publishes"]["accepted"] == 7


def test_the_connection_of_a_session_that_moves_is_closed_and_heard_no_more() -> None:
    cluster = Cluster()
    first = begun(cluster)
    client = moved(cluster)
    (closed,) = first.received()
    assert isinstance(closed.method, m.ConnectionClose)
    assert closed.method.reply_code == 320
    first.publish("q", b"late", delivery_mode=2)
    assert resumed(client, 0, 3)[0]["publishes"]["accepted"] == 2
    assert bodies(cluster.nodes["a"].channel()) == [b"1", b"2"]


def test_publishes_that_are_not_decided_are_waited_for() -> None:
    cluster = Cluster()
    first = begun(cluster)
    cluster.sync_by_hand()
    first.publish("q", b"3", delivery_mode=2)
    client = cluster.seek("b")
    while cluster.deliver():
        pass
    assert session_of(cluster.nodes["a"]) is State.LEAVING
    assert client.received() == [], "the third publish is not durable"
    cluster.run()
    assert open_or_code(client) == 0
    assert resumed(client, 0, 3)[0]["publishes"]["accepted"] == 3


def test_deliveries_go_back_to_their_queues_and_consumers_go_on_where_their_queue_is() -> None:
    cluster = Cluster()
    first = begun(cluster)
    declared(first, "own", exclusive=True)
    for queue in ("q", "own"):
        first.send(m.BasicConsume(0, queue, queue))
    first.received()
    client = moved(cluster)
    channel, _ = resumed(client, 2, 2)
    assert channel["deliveries"] == {"unacked": [], "lost": True}
    assert {each["tag"]: each["state"] for each in channel["consumers"]} == {"q": "active", "own": "cancelled"}
    assert bodies(cluster.nodes["a"].channel()) == [b"1", b"2"]
    assert "own" not in cluster.nodes["a"].world.office.directory.queues
    client.send(m.BasicAck(2, multiple=True))
    assert client.received() == [], "acknowledgements of the former node count for nothing"
    cluster.nodes["b"].channel().publish("q", b"new")
    (came,) = client.received()
    assert isinstance(came.method, m.BasicDeliver)
    assert (came.method.delivery_tag, came.method.redelivered) == (GENERATION + 1, False)


def test_commits_are_known_at_the_other_node_and_the_open_transaction_is_rolled_back() -> None:
    cluster = Cluster()
    for node in cluster.nodes.values():
        declared(node.channel(), durable=True)
    first = started(cluster.nodes["a"])
    first.ask(m.TxSelect(), m.TxSelectOk)
    first.publish("q", b"1", delivery_mode=2)
    first.ask(m.TxCommit(), m.TxCommitOk)
    first.publish("q", b"2", delivery_mode=2)
    client = moved(cluster)
    channel, _ = resumed(client, 0, 2)
    assert channel["tx"] == {"open": False, "commits": 1, "rolled-back": True}
    assert bodies(cluster.nodes["a"].channel()) == [b"1"]


def test_another_user_does_not_get_the_session_from_another_node() -> None:
    cluster = Cluster()
    first = begun(cluster)
    client = cluster.seek("b", user="v")
    cluster.run()
    assert open_or_code(client) == 404
    first.publish("q", b"3")
    assert first.received(), "the session is not disturbed"
    assert cluster.homes() == ["a"]


def test_an_unknown_session_is_refused_when_all_members_have_answered() -> None:
    cluster = Cluster("abc")
    client = cluster.seek("a")
    assert client.received() == []
    cluster.run()
    assert open_or_code(client) == 404


def test_a_member_that_was_lost_may_have_the_session() -> None:
    cluster = Cluster()
    begun(cluster).lose()
    cluster.cut = {"a"}
    cluster.members["b"].lost = True
    client = cluster.seek("b")
    assert open_or_code(client) == 320
    cluster.members["b"].lost = False
    client = cluster.seek("b")
    assert open_or_code(client) == 404
    cluster.cut = set()
    moved(cluster)


def test_a_member_that_is_reached_after_the_others_were_asked_may_have_the_session() -> None:
    cluster = Cluster("abc")
    begun(cluster).lose()
    cluster.cut = {"a"}
    cluster.members["b"].lost = True
    client = cluster.seek("b")
    cluster.cut = set()
    cluster.members["b"].lost = False
    cluster.run()
    assert open_or_code(client) == 320
    moved(cluster)


def test_a_member_that_does_not_answer_is_waited_for_within_limits() -> None:
    cluster = Cluster()
    begun(cluster).lose()
    codes = []
    for user in ("u", "v", "u"):
        client = cluster.seek("b", user=user)
        if user == "u":
            cluster.in_flight.clear()
        cluster.pass_ms(5_000)
        codes.append(open_or_code(client))
    # the first time a could be of an earlier release, which knows no questions
    assert codes == [404, 404, 320]
    moved(cluster)


def test_a_member_that_another_member_has_lost_may_have_the_session() -> None:
    """A node that has just started does not know of members that were lost before (simulation: 910005)."""
    cluster = Cluster("abc")
    begun(cluster).lose()
    cluster.cut = {"a"}
    cluster.members["c"].lost = True
    client = cluster.seek("b")
    cluster.run()
    assert open_or_code(client) == 320
    cluster.members["c"].lost = False
    client = cluster.seek("b")
    cluster.run()
    assert open_or_code(client) == 404


def test_a_node_that_was_replaced_does_not_say_that_there_is_no_session() -> None:
    """The node that has taken over may have got the session meanwhile (simulation: amqp091-members 880007)."""
    cluster = Cluster()
    replace_node(cluster.nodes["a"].world.office)
    for name in "ba":
        client = cluster.seek(name)
        cluster.run()
        assert open_or_code(client) == 320, name
    alone = AmqpNode()
    replace_node(alone.world.office)
    assert refused(alone, "resume").reply_code == 320


def test_a_node_that_was_replaced_does_not_end_a_session_that_was_given() -> None:
    cluster = Cluster()
    begun(cluster).lose()
    client = cluster.seek("b")
    while cluster.in_flight[0].move.step != MoveStep.STORED:
        cluster.deliver()
        for node in cluster.nodes.values():
            node.settle()
    replace_node(cluster.nodes["a"].world.office)
    cluster.run()
    assert cluster.homes() == []
    assert client.received() == [], "the node that has taken over ends the session when it is asked again"
    cluster.crash("a")
    cluster.pass_ms(1_000)
    assert cluster.homes() == ["b"]


def test_a_session_in_use_stays_where_take_over_is_refused() -> None:
    cluster = Cluster()
    first = begun(cluster)
    options = cluster.nodes["b"].amqp.options.amqp091
    object.__setattr__(options, "session_takeover", False)
    try:
        client = cluster.seek("b")
        cluster.run()
        assert open_or_code(client) == 405
    finally:
        object.__setattr__(options, "session_takeover", True)
    first.publish("q", b"3")
    assert first.received()


def test_a_session_of_a_stock_client_stays_at_its_node() -> None:
    cluster = Cluster()
    connected(cluster.nodes["a"], "attach").lose()
    client = cluster.seek("b")
    cluster.run()
    assert open_or_code(client) == 405
    assert cluster.homes() == ["a"]


def test_a_state_that_is_too_long_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "AMQP091_MOVED_STATE_BYTES_MAX", 100)
    cluster = Cluster()
    begun(cluster).lose()
    client = cluster.seek("b")
    cluster.run()
    assert open_or_code(client) == 320
    assert cluster.homes() == ["a"]
    assert resumed(connected(cluster.nodes["a"]), 0, 2)[0]["publishes"]["accepted"] == 2


def test_a_node_with_too_many_sessions_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    begun(cluster).lose()
    monkeypatch.setattr("understudy.protocols.amqp091.sessions.AMQP091_SESSIONS_OF_USER_MAX", 0)
    client = cluster.seek("b")
    assert open_or_code(client) == 530
    assert not cluster.in_flight
    assert cluster.homes() == ["a"]


def test_searches_of_a_host_are_limited() -> None:
    cluster = Cluster()
    begun(cluster).lose()
    codes = []
    for _ in range(101):
        client = cluster.seek("b", user="v")
        cluster.run()
        codes.append(open_or_code(client))
    assert codes == [404] * 100 + [320]
    cluster.pass_ms(1_000)
    moved(cluster)


def test_the_client_may_leave_while_its_session_moves() -> None:
    cluster = Cluster()
    begun(cluster).lose()
    cluster.seek("b").lose()
    cluster.run()
    assert cluster.homes() == ["b"]
    assert resumed(connected(cluster.nodes["b"]), 0, 2)[0]["publishes"]["accepted"] == 2


def test_a_session_that_moves_is_refused_at_both_nodes() -> None:
    cluster = Cluster()
    begun(cluster).lose()
    cluster.sync_by_hand()
    cluster.seek("b")
    cluster.deliver()
    for name in "ab":
        client = cluster.seek(name)
        if name == "a":
            assert open_or_code(client) == 320
    assert cluster.homes() == []


def test_the_timeout_ends_a_session_on_its_way() -> None:
    cluster = Cluster()
    begun(cluster, timeout=10).lose()
    client = cluster.seek("b")
    cluster.deliver()
    cluster.cut = {"b"}
    cluster.members["b"].lost = True
    cluster.pass_ms(10_000)
    assert session_of(cluster.nodes["a"]) is None
    assert open_or_code(client) == 320
    cluster.cut = set()
    cluster.members["b"].lost = False
    client = cluster.seek("b")
    cluster.run()
    assert open_or_code(client) == 404


# --- the other members ---------------------------------------------------------------------------


def connector(host: str) -> TransportConfiguration:
    return TransportConfiguration("c", parameters={"host": host, "port": 61616})


class Links:
    """Links of a node to others, as ``Membership`` has them."""

    def __init__(self) -> None:
        self.topology = Topology()
        self.membership = self
        self.links: dict[str, Any] = {}
        self.statics: list[Any] = []

    def static_links(self) -> list[Any]:
        return self.statics

    def link(self, node_id: str, *, joined: bool, plain: bool = False) -> Any:
        made = SimpleNamespace(node_id=node_id, joined=joined, is_plain=plain, target=connector(node_id), sent=[])
        made.send = made.sent.append
        self.links[node_id] = made
        return made

    def become_known(self, node_id: str) -> None:
        self.topology.update(Member(node_id, 5, connector(node_id)))


def test_members_are_asked_while_they_are_reached() -> None:
    links, clock = Links(), ManualTime()
    members = Members("own", cast(Any, [links]), clock)
    members.listen(lambda move, answer: None)
    clock.advance(60_000)
    reached, artemis = links.link("n1", joined=True), links.link("n2", joined=True, plain=True)
    links.link("own", joined=True)
    assert members.reached() == ["n1"]
    for node_id in ("n1", "n3"):
        members.send(node_id, SessionMove(MoveStep.ASK, "t", "own", UUID))
    assert [each.vote.uuid for each in reached.sent] == [UUID]
    assert artemis.sent == []
    assert not members.missing()


def test_a_member_that_is_dialled_or_was_lost_shortly_before_is_missing() -> None:
    links, clock = Links(), ManualTime()
    members = Members("own", cast(Any, [links]), clock)
    members.listen(lambda move, answer: None)
    static = links.link("n1", joined=False)
    links.statics = [static, None]
    assert members.missing(), "this node has become active a moment ago"
    clock.advance(30_000)
    assert not members.missing()
    links.become_known("n1")
    clock.advance(300_000)
    assert members.missing(), "an active member is not reached yet"
    static.joined = True
    assert not members.missing()
    static.joined = False
    links.topology.remove("n1")
    clock.advance(29_999)
    assert members.missing()
    clock.advance(1)
    assert not members.missing()
    members.close()
    links.become_known("n1")


def test_the_other_node_of_the_pair_is_not_missing_after_a_failover() -> None:
    """A node that was active under the same id has no session that this node does not have."""
    links = Links()
    links.topology.update(Member("own", 5, connector("primary"), connector("backup")))
    links.topology.remove("own")
    links.topology.set_primary("own", connector("backup"), 7)
    links.topology.set_primary("own", connector("backup"), 8)
    members = Members("own", cast(Any, [links]), ManualTime())
    links.statics = [links.link("primary", joined=False)]
    assert not members.missing()
    links.statics.append(links.link("n1", joined=False))
    assert members.missing()


# --- row 34: crashes and lost messages at each step ------------------------------------------------


def step(cluster: Cluster, number: int) -> bool:
    """One event of a move: a sync of a node, or a message. Returns whether something is left to do."""
    which = number % 3
    if which < 2:
        cluster.nodes["ab"[which]].sync()
        cluster.turn()
        return True
    return cluster.deliver()


def events_of_a_move() -> int:
    """Number of events until the client has its session."""
    cluster = Cluster()
    begun(cluster).lose()
    cluster.sync_by_hand()
    client = cluster.seek("b")
    number = 0
    while not client.connection.sent:
        step(cluster, number)
        number += 1
    return number


EVENTS = events_of_a_move()


def found_again(cluster: Cluster) -> int:
    """Let the client try at both nodes until it has its session. Returns the number of its attempts."""
    for attempt in range(40):
        client = cluster.seek("ba"[attempt % 2])
        cluster.run()
        assert len(cluster.homes()) <= 1
        if not client.connection.sent:
            cluster.pass_ms(5_000)
        code = open_or_code(client)
        if code == 0:
            channel, _ = resumed(client, 0, 2)
            assert channel["resumed"]
            assert channel["publishes"]["accepted"] == 2
            return attempt + 1
        assert code == 320, "the session exists"
        cluster.pass_ms(1_000)
    raise AssertionError("the session is at no node")


def test_a_move_has_all_of_its_steps() -> None:
    assert EVENTS > 9


@pytest.mark.parametrize("victim", "ab")
@pytest.mark.parametrize("crashed", range(EVENTS))
def test_after_a_crash_at_any_step_one_node_has_the_session(crashed: int, victim: str) -> None:
    cluster = Cluster()
    begun(cluster).lose()
    cluster.sync_by_hand()
    cluster.seek("b")
    for number in range(crashed):
        step(cluster, number)
        assert len(cluster.homes()) <= 1
    cluster.crash(victim)
    assert len(cluster.homes()) <= 1
    found_again(cluster)
    assert len(cluster.homes()) == 1


@pytest.mark.parametrize("kind", list(MoveStep))
def test_after_a_lost_message_one_node_has_the_session(kind: MoveStep) -> None:
    cluster = Cluster()
    begun(cluster).lose()
    cluster.seek("b")
    lost = 0
    for _ in range(100):
        for node in cluster.nodes.values():
            node.settle()
        if cluster.in_flight and cluster.in_flight[0].move.step == kind and not lost:
            cluster.in_flight.popleft()
            lost += 1
        elif not cluster.deliver():
            break
        assert len(cluster.homes()) <= 1
    found_again(cluster)
    assert len(cluster.homes()) == 1


def test_a_state_that_comes_after_an_inquiry_is_not_stored() -> None:
    cluster = Cluster()
    begun(cluster).lose()
    cluster.seek("b")
    for node in cluster.nodes.values():
        node.settle()
    cluster.deliver()
    state = cluster.in_flight.popleft()
    assert state.move.step == MoveStep.STATE
    cluster.pass_ms(1_000)
    assert cluster.homes() == ["a"], "the home has asked, and goes on with the session"
    cluster.in_flight.append(state)
    cluster.run()
    assert cluster.homes() == ["a"]


# --- planted bugs --------------------------------------------------------------------------------


def test_the_tests_find_a_session_that_is_used_before_its_home_has_ended_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the other node has the session as soon as it is stored."""
    as_shipped = ClientSessions.arrive

    def arrive(self: ClientSessions, *arguments: object) -> object:
        session = as_shipped(self, *arguments)  # type: ignore[arg-type]  # the arguments of the call pass through
        if session is not None:
            session._state = State.DETACHED
        return session

    monkeypatch.setattr(ClientSessions, "arrive", arrive)
    failures = 0
    for crashed in range(EVENTS):
        try:
            test_after_a_crash_at_any_step_one_node_has_the_session(crashed, "a")
        except AssertionError:
            failures += 1
    assert failures
