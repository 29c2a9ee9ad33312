"""Scale-down: the messages of a node that stops move to a member: real processes (docs/operate/scale-down.md)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from support.members import Members, depth, third_of, url, wait_knows, wait_until
from support.nodes import Nodes
from support.processes import READY_S, Node, Pair, invoke
from understudy.client.sync import connect
from understudy.ids import Xid


def scale_down(inner: str = "") -> str:
    return f"<ha-policy><primary-only><scale-down>{inner}</scale-down></primary-only></ha-policy>"


def to(*names: str) -> str:
    return "<connectors>" + "".join(f"<connector-ref>{name}</connector-ref>" for name in names) + "</connectors>"


@pytest.fixture
def make_members(nodes: Nodes) -> Callable[..., Members]:
    """Makes members of which the first one is scaled down."""

    def make(count: int = 2, inner: str = to("n1"), **options: object) -> Members:
        options.setdefault("extra", lambda number: scale_down(inner) if number == 0 else "")
        return nodes.members(count, **options)

    return make


def send(node: Node, bodies: list[str], address: str = "q", routing: str = "anycast", **options: object) -> None:
    with connect(url(node)) as connection, connection.session() as session:
        producer = session.producer(address, routing=routing)
        outcomes = []
        for body in bodies:
            producer.wait_sendable()
            outcomes.append(producer.send_nowait(body, **options))
        for outcome in outcomes:
            outcome.result(READY_S)


def take_all(node: Node, queue: str, count: int, routing: str = "anycast") -> list[str]:
    """The messages of a queue, in order, and none after them."""
    with connect(url(node)) as connection, connection.session() as session:
        consumer = session.consumer(queue, routing=routing)
        taken = [each for _ in range(count) if (each := consumer.receive(READY_S)) is not None]
        for each in taken:
            session.acknowledge(each)
        assert consumer.receive(timeout_s=0.2) is None
        return [each.text or "" for each in taken]


def numbered(count: int, name: str = "message") -> list[str]:
    return [f"{name} {number}" for number in range(count)]


@pytest.mark.parameter("scale-down/enabled", "scale-down/connectors/connector-ref")
def test_messages_of_a_node_that_stops_are_at_the_other_one(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    send(first, numbered(200))
    assert first.terminate() == 0, first.tail()
    assert take_all(second, "q", 200) == numbered(200)
    first.start().wait_ready("active")
    assert depth(first, "q") == 0, "it was moved, not copied"


def test_subscriptions_share_a_message_and_filters_are_kept(make_members: Callable[..., Members]) -> None:
    """A message of several queues goes once; queues that the target does not have are made."""
    first, second = make_members().start().nodes
    with connect(url(first)) as connection, connection.session() as session:
        for name, selector in (("all", None), ("again", None), ("odd", "odd = 1")):
            session.create_queue(name, address="news", routing="multicast", filter=selector)
        producer = session.producer("news", routing="multicast")
        for number in range(100):
            producer.send(f"item {number}", properties={"odd": number % 2})
        consumer = session.consumer("again", routing="multicast")
        for _ in range(10):
            taken = consumer.receive(READY_S)
            assert taken is not None
            session.acknowledge(taken)
    assert first.terminate() == 0, first.tail()
    assert take_all(second, "all", 100, "multicast") == numbered(100, "item")
    assert take_all(second, "again", 90, "multicast") == numbered(100, "item")[10:]
    assert take_all(second, "odd", 50, "multicast") == numbered(100, "item")[1::2]
    send(second, ["even"], "news", "multicast", properties={"odd": 0})
    assert depth(second, "odd") == 0, "the filter was not kept"


def test_everything_that_a_message_has_arrives(make_members: Callable[..., Members]) -> None:
    """Priorities, properties, large bodies, messages that are not durable, and scheduled ones, which come in time."""
    first, second = make_members().start().nodes
    large = bytes(range(256)) * 4096
    with connect(url(first)) as connection, connection.session() as session:
        producer = session.producer("kinds")
        producer.send("low", priority=1)
        producer.send("high", priority=8, properties={"name": "value", "number": 7})
        producer.send("volatile", durable=False)
        producer.send(large)
        producer.send("later", delay_s=8)
    assert first.terminate() == 0, first.tail()
    with connect(url(second)) as connection, connection.session() as session:
        consumer = session.consumer("kinds")
        taken = [each for _ in range(5) if (each := consumer.receive(READY_S)) is not None]
        assert [each.text for each in taken if each.message.body != large] == ["high", "volatile", "low", "later"]
        assert [each.message.body for each in taken].count(large) == 1
        assert dict(taken[0].properties)["number"] == 7
        assert not any(name.startswith("_AMQ_ROUTE") for each in taken for name in each.properties)


def test_paged_messages_keep_their_order(make_members: Callable[..., Members]) -> None:
    settings = "<max-size-bytes>100K</max-size-bytes><address-full-policy>PAGE</address-full-policy>"
    first, second = make_members(settings=settings).start().nodes
    bodies = [f"{number} " + "x" * 1000 for number in range(1000)]
    send(first, bodies)
    assert first.terminate() == 0, first.tail()
    assert take_all(second, "q", 1000) == bodies


def test_prepared_transactions_are_decided_at_the_target(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    kept, dropped = Xid(1, b"kept", b"b"), Xid(1, b"dropped", b"b")
    with connect(url(first)) as connection:
        with connection.session() as plain:
            for name in ("in-kept", "in-dropped"):
                plain.producer(name).send(f"held {name}")
        for xid, name in ((kept, "kept"), (dropped, "dropped")):
            session = connection.session(xa=True)
            consumer, producer = session.consumer(f"in-{name}"), session.producer(f"out-{name}")
            session.xa.start(xid)
            received = consumer.receive(READY_S)
            assert received is not None
            session.acknowledge(received)
            producer.send(f"sent {name}")
            producer.send(b"large" * 100_000)
            session.xa.end(xid)
            session.xa.prepare(xid)
    assert first.terminate() == 0, first.tail()
    with connect(url(second)) as connection:
        with connection.session() as plain:
            for name in ("in-kept", "in-dropped", "out-kept", "out-dropped"):
                assert plain.consumer(name).receive(timeout_s=0.2) is None, f"{name}: the branch is not decided"
        session = connection.session(xa=True)
        assert set(session.xa.recover()) == {kept, dropped}
        session.xa.commit(kept)
        session.xa.rollback(dropped)
    assert take_all(second, "in-kept", 0) == []
    assert take_all(second, "in-dropped", 1) == ["held in-dropped"]
    assert depth(second, "out-kept") == 2
    assert depth(second, "out-dropped") == 0
    first.start().wait_ready("active")
    with connect(url(first)) as connection:
        assert connection.session(xa=True).xa.recover() == ()


def test_duplicate_ids_are_known_at_the_target(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    for duplicate_id in ("text", b"\xff\x00bytes"):
        send(first, ["once"], duplicate_id=duplicate_id)
    assert take_all(first, "q", 2) == ["once", "once"]
    assert first.terminate() == 0, first.tail()
    for duplicate_id in ("text", b"\xff\x00bytes"):
        send(second, ["again"], duplicate_id=duplicate_id)
    send(second, ["new"], duplicate_id="new")
    assert take_all(second, "q", 1) == ["new"]
    second.kill()
    second.start().wait_ready("active")
    send(second, ["again"], duplicate_id="text")
    assert depth(second, "q") == 0, "the ids were not stored"


def test_without_a_target_messages_stay_and_the_log_says_so(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    send(first, numbered(20))
    second.terminate()
    assert first.terminate() == 0, first.tail()
    assert "no other node takes the messages" in first.log.read_text()
    first.start().wait_ready("active")
    assert take_all(first, "q", 20) == numbered(20)


@pytest.mark.parametrize("connector", ["n2", None])
def test_management_scales_down_a_member_that_is_not_configured_for_it(
    make_members: Callable[..., Members], connector: str | None
) -> None:
    """scaleDown(connector) of Artemis: the connector is tried first; without one any member takes the messages."""
    members = make_members(3, extra=lambda number: "").start()
    first, second, third = members.nodes
    wait_knows(first, "q", nodes=2)
    send(first, numbered(50))
    assert invoke(first, "broker", "scaleDown", "unknown") == (422, "there is no connector 'unknown'")
    assert invoke(first, "broker", "scaleDown", connector) == (200, None)
    assert first.process is not None
    assert first.process.wait(READY_S) == 0, first.tail()
    # all go to one member; a consumer at another one would fetch them from there
    (holder,) = (each for each in (second, third) if depth(each, "q"))
    assert connector is None or holder is third
    assert take_all(holder, "q", 50) == numbered(50)
    first.start().wait_ready("active")
    assert depth(first, "q") == 0, "it was moved, not copied"
    assert first.terminate() == 0
    assert first.log.read_text().count("messages move") == 1, "asked for once"


def test_a_node_of_a_pair_is_not_scaled_down_on_request(pair_and_third: tuple[Pair, Node]) -> None:
    pair, _ = pair_and_third
    status, text = invoke(pair.primary, "broker", "scaleDown", None)
    assert (status, str(text)[:29]) == (422, "only a node without a backup,")


@pytest.mark.parameter("scale-down/group-name")
def test_only_a_member_of_the_group_takes_the_messages(make_members: Callable[..., Members]) -> None:
    def extra(number: int) -> str:
        group = "" if number == 1 else "<group-name>blue</group-name>"
        enabled = "<enabled>false</enabled>" if number else ""
        return scale_down(enabled + group)

    first, second, third = make_members(3, extra=extra).start().nodes
    wait_knows(first, "q", nodes=2)
    send(first, numbered(50))
    assert first.terminate() == 0, first.tail()
    assert depth(second, "q") == 0
    assert take_all(third, "q", 50) == numbered(50)
    assert third.terminate() == 0
    assert "messages move" not in third.log.read_text(), "its scale-down is not enabled"


def test_messages_for_a_third_node_that_is_away_reach_it_through_the_target(
    make_members: Callable[..., Members],
) -> None:
    first, second, third = make_members(3).start().nodes
    with connect(url(third)) as connection, connection.session() as session:
        session.create_queue("subscription", address="news", routing="multicast")
    for node in (first, second):
        wait_knows(node, "subscription", nodes=1)
    third.kill()
    wait_until(lambda: not any(each["connected"] for each in remote(first, "subscription")), "it is connected", first)
    send(first, numbered(50), "news", "multicast")
    assert sum(flow["waiting"] for flow in flows(first).values()) == 50
    assert first.terminate() == 0, first.tail()
    third.start().wait_ready("active")
    assert take_all(third, "subscription", 50, "multicast") == numbered(50)


def remote(node: Node, queue: str) -> list[dict[str, object]]:
    return [each for each in node.get("/api/v1/cluster")[1]["remote_queues"] if each["queue"] == queue]


def flows(node: Node) -> dict[str, dict[str, int]]:
    return {each["name"]: each for each in node.get("/api/v1/cluster")[1]["bridges"]}


@pytest.mark.long
def test_a_target_that_is_killed_gets_each_message_once(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    send(first, [f"{number} " + "y" * 500 for number in range(20_000)])
    first.process.terminate()
    wait_until(lambda: depth(second, "q") > 1000, "nothing moves", second)
    second.kill()
    second.start().wait_ready("active")
    assert first.process.wait(READY_S) == 0, first.tail()
    numbers = [int(body.split()[0]) for body in take_all(second, "q", 20_000)]
    assert sorted(numbers) == list(range(20_000))


def test_messages_that_others_keep_for_the_node_follow_it(make_members: Callable[..., Members]) -> None:
    """The target puts its own into its queue, a third node sends its own to the target; the kept queues are deleted."""
    first, second, third = make_members(3).start().nodes
    with connect(url(first)) as connection, connection.session() as session:
        session.create_queue("subscription", address="news", routing="multicast")
    send(first, ["before"], "news", "multicast")
    for node, name in ((second, "from the target"), (third, "from the third")):
        wait_knows(node, "subscription", nodes=1)
        (kept,) = [each for each in flows(node) if each.endswith(node_id(first))]
        invoke(node, f"queue.{kept}", "pause")
        send(node, numbered(20, name), "news", "multicast")
        assert depth(node, kept) == 20
    assert first.terminate() == 0, first.tail()
    wait_until(lambda: depth(second, "subscription") == 41, "messages are missing", second)
    expected = ["before", *numbered(20, "from the target"), *numbered(20, "from the third")]
    assert sorted(take_all(second, "subscription", 41, "multicast")) == sorted(expected)
    for node in (second, third):
        wait_until(lambda node=node: len(flows(node)) == 1, "the queue to the node that is gone stays", node)  # type: ignore[misc]


def node_id(node: Node) -> str:
    return str(invoke(node, "broker", "getNodeID")[1])


def test_a_client_goes_on_at_the_target(make_members: Callable[..., Members]) -> None:
    """The client knows only the first node: the disconnect packet of that node names the target, and the topology has
    the address of the target.
    """
    first, second = make_members(extra=lambda number: scale_down(to("n1") if number == 0 else to("n0"))).start().nodes
    with connect(url(first)) as connection, connection.session() as session:
        producer, consumer = session.producer("q"), session.consumer("q")
        for body in numbered(500):
            producer.send(body)

        def take_until(last: str) -> list[str]:
            """Bodies up to this one, without those that come again because their acknowledgement was under way."""
            taken: dict[str, None] = {}
            while last not in taken:
                each = consumer.receive(READY_S)
                assert each is not None, f"{last} is missing"
                session.acknowledge(each)
                taken[each.text or ""] = None
            return list(taken)

        seen = take_until("message 99")
        assert first.terminate() == 0, first.tail()
        producer.send("after")
        seen += take_until("after")
        assert list(dict.fromkeys(seen)) == [*numbered(500), "after"]
        # it belongs to the target now, and finds it again
        second.kill()
        second.start().wait_ready("active")
        producer.send("later")
        assert take_until("later")[-1] == "later"


@pytest.fixture
def pair_and_third(nodes: Nodes) -> tuple[Pair, Node]:
    """A pair whose backup moves its messages to the other members, and such a member."""
    pair = nodes.pair(failover_on_shutdown=True)
    third = nodes.keep(third_of(pair, nodes.directory))
    text = pair.backup.config.read_text()
    text = text.replace("<backup>", "<backup><scale-down/>")
    connector = f'<connectors><connector name="third">tcp://127.0.0.1:{third.port}</connector>'
    text = text.replace("<connectors>", connector)
    text = text.replace("<static-connectors>", "<static-connectors><connector-ref>third</connector-ref>")
    pair.backup.config.write_text(text)
    third.start().wait_ready("active")
    pair.start()
    return pair, third


def test_a_backup_moves_the_messages_of_its_dead_primary(pair_and_third: tuple[Pair, Node]) -> None:
    pair, third = pair_and_third
    with connect(url(pair.primary)) as connection, connection.session() as session:
        session.create_queue("orders")
    send(pair.primary, numbered(300), "orders")
    pair.primary.kill()
    wait_until(lambda: "scaled down" in pair.backup.log.read_text(), "nothing moved", pair.backup)
    pair.backup.wait_ready("passive")
    assert take_all(third, "orders", 300) == numbered(300)
    # it waits for its primary and does not serve
    time.sleep(3)
    pair.backup.wait_ready("passive")
    pair.primary.start().wait_ready("active")
    assert depth(pair.primary, "orders") == 0
    pair.wait_announced()
    send(pair.primary, ["new"], "orders")
    pair.primary.kill()
    wait_until(lambda: pair.backup.log.read_text().count("scaled down") == 2, "not again", pair.backup)
    assert take_all(third, "orders", 1) == ["new"]


def test_a_backup_without_a_target_tries_again(pair_and_third: tuple[Pair, Node]) -> None:
    pair, third = pair_and_third
    send(pair.primary, numbered(30), "orders")
    third.kill()
    pair.primary.kill()
    wait_until(lambda: "no other node takes the messages" in pair.backup.log.read_text(), "it has one", pair.backup)
    third.start().wait_ready("active")
    wait_until(lambda: "scaled down" in pair.backup.log.read_text(), "nothing moved", pair.backup)
    assert take_all(third, "orders", 30) == numbered(30)


@pytest.mark.long
def test_an_interrupted_scale_down_is_completed_before_clients_are_served(make_members: Callable[..., Members]) -> None:
    """The messages that the target has already would otherwise be delivered by both nodes."""
    first, second = make_members().start().nodes
    send(first, [f"{number} " + "y" * 500 for number in range(20_000)])
    first.process.terminate()
    wait_until(lambda: depth(second, "q") > 1000, "nothing moves", second)
    first.kill()
    first.start().wait_ready("active")
    assert "an interrupted scale-down is completed first" in first.log.read_text()
    assert depth(first, "q") == 0
    assert [int(body.split()[0]) for body in take_all(second, "q", 20_000)] == list(range(20_000))
    # and it serves like any other
    send(first, ["new"])
    assert take_all(first, "q", 1) == ["new"]


def _configure(node: Node, settings: str) -> None:
    """Add address settings of one member."""
    text = node.config.read_text()
    node.config.write_text(text.replace("</address-settings>", f"{settings}</address-settings>"))


def test_an_address_that_stays_full_at_the_target_keeps_no_other_one_back(make_members: Callable[..., Members]) -> None:
    """The full address comes first; a queue after it moves, and no message is lost or doubled."""
    members = make_members()
    first, second = members.nodes
    _configure(
        second,
        """<address-setting match="q"><max-size-bytes>30000</max-size-bytes>
        <address-full-policy>FAIL</address-full-policy></address-setting>""",
    )
    members.start()
    send(first, [f"{number} " + "x" * 2000 for number in range(100)], "q")
    send(first, numbered(100), "z")
    assert first.terminate(120) == 0, first.tail()
    assert take_all(second, "z", 100) == numbered(100)
    assert 0 < depth(second, "q") < 100
    log = first.log.read_text()
    assert "an address of the target of the scale-down stays full" in log
    assert "scaled down in part" in log
    first.start().wait_ready("active")
    assert depth(first, "q") + depth(second, "q") == 100
