"""Messages between the members of a cluster, as real processes (docs/operate/clustering.md, ADR 0068)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.members import Members, Traffic, depth, third_of, url, wait_knows, wait_until
from support.nodes import Nodes
from support.processes import READY_S, Node, Pair, invoke
from understudy.client.sync import Consumer, connect
from understudy.errors import BrokerError


@pytest.fixture
def make_members(nodes: Nodes) -> Callable[..., Members]:
    """Makes members that are configured and not started."""
    return nodes.members


def send(node: Node, bodies: list[str], address: str = "q", **options: object) -> None:
    with connect(url(node)) as connection, connection.session() as session:
        producer = session.producer(address, **({"routing": "anycast"} | options))  # type: ignore[arg-type]
        for body in bodies:
            producer.send(body)


def receive(consumer: Consumer, count: int) -> list[str]:
    taken = [consumer.receive(READY_S) for _ in range(count)]
    return [each.text or "" for each in taken if each is not None]


def rest(consumer: Consumer) -> list[str]:
    """Everything that the broker has for the consumer now."""
    bodies = []
    while (each := consumer.receive_nowait()) is not None:
        bodies.append(each.text or "")
    return bodies


def bodies_of(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


@pytest.mark.parameter("cluster-connection/message-load-balancing")
def test_messages_go_to_the_member_with_a_consumer(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    with connect(url(second)) as connection, connection.session() as session:
        consumer = session.consumer("q")
        wait_knows(first, "q", consumers=1)
        send(first, bodies_of(20))
        assert receive(consumer, 20) == bodies_of(20)
    wait_until(lambda: depth(first, "q") == 0, "messages stayed", first)


def test_a_local_consumer_and_a_remote_one_take_turns(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    with (
        connect(url(first)) as one,
        connect(url(second)) as other,
        one.session() as here,
        other.session() as there,
    ):
        near, far = here.consumer("q"), there.consumer("q")
        wait_knows(first, "q", consumers=1)
        send(first, bodies_of(20))
        assert len(receive(near, 10)) == len(receive(far, 10)) == 10
        assert rest(near) == rest(far) == []


def test_without_consumers_messages_stay_and_strict_spreads_them(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    wait_knows(first, "q")
    send(first, bodies_of(10))
    assert depth(first, "q") == 10
    assert depth(second, "q") == 0


@pytest.mark.parameter("cluster-connection/message-load-balancing")
def test_strict_spreads_messages_over_members_without_consumers(make_members: Callable[..., Members]) -> None:
    members = make_members(3, cluster="<message-load-balancing>STRICT</message-load-balancing>").start()
    wait_knows(members.nodes[0], "q", nodes=2)
    send(members.nodes[0], bodies_of(30))
    for node in members.nodes:
        wait_until(lambda node=node: depth(node, "q") == 10, "not a third", node)  # type: ignore[misc]


@pytest.mark.parameter("cluster-connection/message-load-balancing")
def test_off_keeps_messages_of_queues_here_and_sends_those_of_topics_to_all(
    make_members: Callable[..., Members],
) -> None:
    first, second = make_members(cluster="<message-load-balancing>OFF</message-load-balancing>").start().nodes
    with connect(url(second)) as connection, connection.session() as session:
        session.create_queue("subscription", address="news", routing="multicast")
        queue, subscription = session.consumer("q"), session.consumer("subscription", routing="multicast")
        wait_knows(first, "subscription", consumers=1)
        send(first, bodies_of(5))
        send(first, ["today"], "news", routing="multicast")
        assert receive(subscription, 1) == ["today"]
        assert queue.receive_nowait() is None
    assert depth(first, "q") == 5


def test_each_subscription_of_each_member_gets_a_copy_once(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    with connect(url(first)) as one, connect(url(second)) as other, one.session() as here, other.session() as there:
        for session, name in ((here, "a"), (here, "shared"), (there, "b"), (there, "c"), (there, "shared")):
            session.create_queue(name, address="news", routing="multicast")
        there.create_queue("sport", address="news", routing="multicast", filter="kind = 'sport'")
        consumers = {name: there.consumer(name, routing="multicast") for name in ("b", "c", "sport")}
        consumers["a"] = here.consumer("a", routing="multicast")
        for name in ("b", "c", "sport"):
            wait_knows(first, name, consumers=1)
        wait_knows(first, "shared")
        producer = here.producer("news", routing="multicast")
        producer.send("goal", properties={"kind": "sport"})
        producer.send("rain", properties={"kind": "weather"})
        for name, expected in (("a", 2), ("b", 2), ("c", 2), ("sport", 1)):
            got = receive(consumers[name], expected)
            assert got == ["goal", "rain"][:expected], name
            assert rest(consumers[name]) == []
        # queues of one name share the messages
        wait_until(lambda: depth(first, "shared") + depth(second, "shared") == 2, "shared", first)


def test_a_consumer_with_a_filter_gets_only_messages_that_it_wants(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    with connect(url(second)) as connection, connection.session() as session, connect(url(first)) as writing:
        consumer = session.consumer("q", filter="size > 5")
        wait_knows(first, "q", consumers=1)
        with writing.session() as writer:
            producer = writer.producer("q")
            for size in range(10):
                producer.send(f"size {size}", properties={"size": size})
        assert receive(consumer, 4) == ["size 6", "size 7", "size 8", "size 9"]
    assert depth(first, "q") == 6


@pytest.mark.parameter("redistribution-delay")
def test_redistribution_takes_waiting_messages_to_a_consumer_that_comes(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    send(first, bodies_of(1_200))
    with connect(url(second)) as connection, connection.session() as session:
        consumer = session.consumer("q")
        assert receive(consumer, 1_200) == bodies_of(1_200)
        assert rest(consumer) == []
    assert depth(first, "q") == 0


def test_redistribution_leaves_groups_and_messages_for_local_filters(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    with connect(url(first)) as one, connect(url(second)) as other, one.session() as here, other.session() as there:
        here.consumer("q", filter="kind = 'local'", window_bytes=0)
        producer = here.producer("q")
        producer.send("stays", properties={"kind": "local"})
        producer.send("leaves", properties={"kind": "other"})
        producer.send("grouped", properties={"kind": "other", "_AMQ_GROUP_ID": "g"})
        consumer = there.consumer("q")
        assert receive(consumer, 1) == ["leaves"]
        assert rest(consumer) == []
    assert depth(first, "q") == 2


@pytest.mark.parameter("redistribution-delay")
def test_no_redistribution_without_redistribution_delay(make_members: Callable[..., Members]) -> None:
    first, second = make_members(settings="").start().nodes
    send(first, bodies_of(5))
    with connect(url(second)) as connection, connection.session() as session:
        consumer = session.consumer("q")
        wait_knows(first, "q", consumers=1)
        send(first, ["routed there"])
        assert receive(consumer, 1) == ["routed there"]
        assert rest(consumer) == []
    assert depth(first, "q") == 5


@pytest.mark.parameter("cluster-connection/message-load-balancing")
def test_off_with_redistribution_moves_messages_to_a_consumer_elsewhere(make_members: Callable[..., Members]) -> None:
    mode = "<message-load-balancing>OFF_WITH_REDISTRIBUTION</message-load-balancing>"
    first, second = make_members(cluster=mode).start().nodes
    with connect(url(second)) as connection, connection.session() as session:
        consumer = session.consumer("q")
        wait_knows(first, "q", consumers=1)
        send(first, bodies_of(30))
        assert receive(consumer, 30) == bodies_of(30)


@pytest.mark.parameter("cluster-connection/min-large-message-size")
def test_a_large_message_travels(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    body = "x" * 1_500_000
    send(first, [body])
    with connect(url(second)) as connection, connection.session() as session:
        consumer = session.consumer("q")
        for sent in (body, body + "!"):
            if sent != body:
                send(first, [sent])
            received = consumer.receive(READY_S)
            assert received is not None
            assert received.read_body()[5:].decode("utf-16-le") == sent


def test_a_transaction_arrives_as_a_whole(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    with connect(url(second)) as connection, connection.session() as session, connect(url(first)) as writing:
        consumer = session.consumer("q")
        wait_knows(first, "q", consumers=1)
        with writing.session("transacted") as writer:
            producer = writer.producer("q")
            producer.send("dropped")
            writer.rollback()
            producer.send("kept")
            writer.commit()
        assert receive(consumer, 1) == ["kept"]
        assert rest(consumer) == []


@pytest.mark.parameter(
    "cluster-connection/max-hops", "cluster-connection/static-connectors/allow-direct-connections-only"
)
def test_max_hops_2_reaches_the_end_of_a_chain(make_members: Callable[..., Members]) -> None:
    members = make_members(
        3,
        cluster="<max-hops>2</max-hops><message-load-balancing>STRICT</message-load-balancing>",
        knows=lambda number: [[1], [2], [1]][number],
        direct_only=True,
    ).start()
    first, second, third = members.nodes
    wait_knows(first, "q", nodes=2)
    send(first, bodies_of(30))
    for node in (first, second, third):
        wait_until(lambda node=node: depth(node, "q") == 10, "not a third", node)  # type: ignore[misc]


def test_with_max_hops_2_a_node_does_not_send_to_itself_by_its_neighbour(make_members: Callable[..., Members]) -> None:
    cluster = "<max-hops>2</max-hops><message-load-balancing>STRICT</message-load-balancing>"
    first, second = make_members(2, cluster=cluster).start().nodes
    wait_knows(first, "q")
    wait_knows(second, "q")
    send(first, bodies_of(30))
    wait_until(lambda: depth(second, "q") == 15, "not a half", second)
    assert depth(first, "q") == 15
    for node in (first, second):
        queues = node.get("/api/v1/cluster")[1]["remote_queues"]
        assert len(queues) == 1, queues


def test_the_last_node_of_a_one_way_chain_sends_nothing_back(make_members: Callable[..., Members]) -> None:
    """A cluster connection without a target takes messages and sends none (003, "Chain cluster")."""
    members = make_members(
        3,
        cluster="<max-hops>2</max-hops><message-load-balancing>STRICT</message-load-balancing>",
        knows=lambda number: [[1], [2], []][number],
        direct_only=True,
    ).start()
    first, second, third = members.nodes
    wait_knows(first, "q", nodes=2)
    send(first, bodies_of(30))
    for node in (first, second, third):
        wait_until(lambda node=node: depth(node, "q") == 10, "not a third", node)  # type: ignore[misc]
    send(third, bodies_of(12))
    assert depth(third, "q") == 22
    assert third.get("/api/v1/cluster")[1]["remote_queues"] == []


def test_a_node_without_targets_sends_nothing_to_members_that_it_hears_of(make_members: Callable[..., Members]) -> None:
    strict = "<message-load-balancing>STRICT</message-load-balancing>"
    first, last = make_members(2, cluster=strict, knows=lambda number: [[1], []][number]).start().nodes
    wait_knows(first, "q")
    send(first, bodies_of(10))
    wait_until(lambda: depth(last, "q") == 5, "not a half", last)
    send(last, bodies_of(10))
    assert (depth(first, "q"), depth(last, "q")) == (5, 15)


@pytest.mark.parameter("cluster-connection/address")
def test_an_excluded_address_is_not_balanced(make_members: Callable[..., Members]) -> None:
    first, second = make_members(cluster="<address>!q</address>").start().nodes
    with connect(url(second)) as connection, connection.session() as session:
        session.create_queue("subscription", address="news", routing="multicast")
        wait_knows(first, "subscription")
        known = first.get("/api/v1/cluster")[1]["remote_queues"]
        assert [each["queue"] for each in known] == ["subscription"]  # type: ignore[index, union-attr]


@pytest.mark.parameter("cluster-connection/max-hops")
def test_max_hops_0_keeps_everything_here(make_members: Callable[..., Members]) -> None:
    mode = "<max-hops>0</max-hops><message-load-balancing>STRICT</message-load-balancing>"
    first, _ = make_members(cluster=mode).start().nodes
    wait_until(lambda: "queues of another node are known" in first.log.read_text(), "no report came", first)
    send(first, bodies_of(10))
    assert depth(first, "q") == 10
    assert first.get("/api/v1/cluster")[1]["remote_queues"] == []


def test_a_reply_goes_to_the_temporary_queue_of_a_client_of_another_member(
    make_members: Callable[..., Members],
) -> None:
    """Also without auto-creation; the address of the reply queue goes with it."""
    settings = "<auto-create-queues>false</auto-create-queues><auto-create-addresses>false</auto-create-addresses>"
    first, second = make_members(settings=settings).start().nodes
    with connect(url(second)) as connection, connection.session() as asking:
        asking.create_queue("replies", address="replies", routing="anycast", temporary=True)
        consumer = asking.consumer("replies")
        wait_knows(first, "replies", consumers=1)
        send(first, ["the answer"], "replies")
        assert receive(consumer, 1) == ["the answer"]
    wait_until(lambda: "replies" not in str(invoke(first, "broker", "getAddressNames")[1]), "the address stayed", first)


def test_the_answer_to_an_address_query_has_cluster_names_of_queues_elsewhere(
    make_members: Callable[..., Members],
) -> None:
    """The answer names no queue ``far``, so a JMS client that consumes makes a queue of that name at its own member, as
    it does with Artemis.
    """
    first, second = make_members().start().nodes
    with connect(url(first)) as connection, connection.session() as session:
        session.create_queue("far", address="far", routing="anycast")
    wait_knows(second, "far")
    node_id = str(first.get("/api/v1/node")[1]["node_id"])
    with connect(url(second)) as connection, connection.session() as session:
        found = session.query_address("far")
        assert (found.exists, found.queue_names) == (True, (f"far{node_id}",))
        session.create_queue("far", address="far", routing="anycast")
        assert set(session.query_address("far").queue_names) == {"far", f"far{node_id}"}


@pytest.mark.parametrize("mode", ["ON_DEMAND", "STRICT", "OFF", "OFF_WITH_REDISTRIBUTION"])
def test_messages_for_a_queue_of_another_member_are_not_divided_with_a_queue_made_here(
    make_members: Callable[..., Members], mode: str
) -> None:
    """Without load balancing they stay, and a queue is made for them."""
    first, second = make_members(cluster=f"<message-load-balancing>{mode}</message-load-balancing>").start().nodes
    with connect(url(second)) as connection, connection.session() as session:
        session.create_queue("far", address="far", routing="anycast")
    wait_knows(first, "far")
    send(first, bodies_of(10), "far")
    place = second if mode in ("ON_DEMAND", "STRICT") else first
    with connect(url(place)) as connection, connection.session() as session:
        assert receive(session.consumer("far"), 10) == bodies_of(10)


def test_a_message_that_expires_on_its_way_to_a_member_goes_to_the_expiry_address_of_its_address(
    make_members: Callable[..., Members],
) -> None:
    """Not to that of the address of the store-and-forward queue."""
    settings = (
        '</address-setting><address-setting match="far"><expiry-address>EXP</expiry-address>'
        "<auto-create-expiry-resources>true</auto-create-expiry-resources>"
    )
    often = "<message-expiry-scan-period>200</message-expiry-scan-period>"
    first, second = make_members(settings=settings, extra=lambda _: often).start().nodes
    with connect(url(second)) as connection, connection.session() as session:
        session.create_queue("far", address="far", routing="anycast")
    wait_knows(first, "far")
    second.kill()
    wait_until(lambda: "member of the cluster lost" in first.log.read_text(), "the loss was not noticed", first)
    with connect(url(first)) as connection, connection.session() as session:
        session.producer("far", routing="anycast").send("late", ttl_s=0.5)
        wait_until(lambda: "EXP" in str(invoke(first, "broker", "getAddressNames")[1]), "nothing has expired", first)
        expired = session.consumer("EXP::EXP.far", routing="multicast").receive(READY_S)
        assert expired is not None
        assert (expired.text, expired.properties["_AMQ_ORIG_ADDRESS"]) == ("late", "far")
        assert not [name for name in expired.properties if name.startswith("_AMQ_ROUTE_TO")]


def test_a_message_for_an_address_elsewhere_survives_kills_of_both(
    make_members: Callable[..., Members],
) -> None:
    first, second = make_members().start().nodes
    with connect(url(second)) as connection, connection.session() as session:
        session.create_queue("far", address="far", routing="anycast")
    wait_knows(first, "far")
    second.kill()
    wait_until(lambda: "member of the cluster lost" in first.log.read_text(), "the loss was not noticed", first)
    send(first, ["kept"], "far")
    first.kill()
    first.start().wait_ready("active")
    second.start().wait_ready("active")
    with connect(url(second)) as connection, connection.session() as session:
        assert receive(session.consumer("far"), 1) == ["kept"]


def test_a_store_and_forward_queue_that_an_operator_deletes_is_made_again(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    wait_knows(first, "q")
    (bridge,) = first.get("/api/v1/cluster")[1]["bridges"]  # type: ignore[misc]
    assert invoke(first, "broker", "destroyQueue", bridge["queue"], True)[0] == 200  # type: ignore[index]
    send(first, ["here"])
    assert depth(first, "q") == 1
    # the other node announces itself again
    second.kill()
    second.start().wait_ready("active")
    with connect(url(second)) as connection, connection.session() as session:
        assert receive(session.consumer("q"), 1) == ["here"]


def test_a_client_cannot_choose_queues_or_use_a_queue_of_the_broker(make_members: Callable[..., Members]) -> None:
    first, _ = make_members().start().nodes
    wait_knows(first, "q")
    (bridge,) = first.get("/api/v1/cluster")[1]["bridges"]  # type: ignore[misc]
    with connect(url(first)) as connection, connection.session() as session:
        with pytest.raises(BrokerError, match="takes no messages of clients"):
            session.producer(str(bridge["queue"]), routing="multicast").send("for whom")  # type: ignore[index]
        session.producer("q").send("here", properties={"_AMQ_ROUTE_TO": bytes(8)})
        assert receive(session.consumer("q"), 1) == ["here"]


def test_a_session_that_has_sent_to_the_name_before_may_not_any_more(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    wait_knows(first, "q")
    (bridge,) = first.get("/api/v1/cluster")[1]["bridges"]  # type: ignore[misc]
    name = str(bridge["queue"])  # type: ignore[index]
    with connect(url(first)) as connection, connection.session() as session:
        producer = session.producer(name, routing="multicast")
        assert invoke(first, "broker", "destroyQueue", name, True)[0] == 200
        producer.send("to an address without queues")
        second.kill()
        second.start().wait_ready("active")
        again = "there is no store-and-forward queue again"
        wait_until(lambda: invoke(first, f"queue.{name}", "getMessageCount") == (200, 0), again, first)
        with pytest.raises(BrokerError, match="takes no messages of clients"):
            producer.send("for the member")


@pytest.mark.parameter("cluster-connection/use-duplicate-detection")
def test_kills_of_both_members_lose_and_double_nothing(make_members: Callable[..., Members], tmp_path: Path) -> None:
    first, second = make_members().start().nodes
    wait_knows(first, "q")
    traffic = Traffic(tmp_path, url(first), url(second), 3_000)
    try:
        for count, node in ((500, second), (1_000, first), (1_500, second), (2_000, first)):
            wait_until(lambda count=count: traffic.confirmed() >= count, "nothing is confirmed", first)  # type: ignore[misc]
            node.kill()
            node.start().wait_ready("active")
        traffic.finish()
        wait_until(lambda: depth(first, "q") == depth(second, "q") == 0, "messages are left", first)
    finally:
        traffic.end()


_QUEUE = """<address-settings><address-setting match="#">
<redistribution-delay>0</redistribution-delay></address-setting></address-settings>
<addresses><address name="q"><anycast><queue name="q"/></anycast></address></addresses>"""


@pytest.mark.long
@pytest.mark.parametrize("target", ["pair", "third"])
def test_a_failover_of_either_side_loses_and_doubles_nothing(tmp_path: Path, target: str) -> None:
    pair = Pair(tmp_path / "pair", extra=_QUEUE)
    third = third_of(pair, tmp_path)
    traffic = None
    try:
        third.start().wait_ready("active")
        pair.start()
        for node in (pair.primary, third):
            wait_knows(node, "q")
        urls = (url(third), pair.url) if target == "pair" else (pair.url, url(third))
        traffic = Traffic(tmp_path, *urls, 3_000)
        wait_until(lambda: traffic.confirmed() >= 800, "nothing is confirmed", third)  # type: ignore[union-attr]
        pair.primary.kill()
        pair.backup.wait_ready("active")
        traffic.finish()
        wait_until(lambda: depth(pair.backup, "q") == depth(third, "q") == 0, "messages are left", third)
    finally:
        if traffic is not None:
            traffic.end()
        pair.end()
        third.end()


def test_a_changed_filter_of_a_queue_is_known_to_the_other_member(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    wait_knows(first, "q")
    assert invoke(second, "broker", "updateQueue", json.dumps({"name": "q", "filter-string": "n = 1"}))[0] == 200

    def known() -> bool:
        queues: Any = first.get("/api/v1/cluster")[1]["remote_queues"]
        return [each["filter"] for each in queues if each["queue"] == "q"] == ["n = 1"]

    wait_until(known, "the filter is not known", first)


@pytest.mark.long
def test_a_message_that_fails_at_every_member_becomes_a_dead_letter(make_members: Callable[..., Members]) -> None:
    """The delivery count goes with the message to the next member: otherwise no member would ever give up."""
    settings = (
        "<redistribution-delay>0</redistribution-delay><max-delivery-attempts>5</max-delivery-attempts>"
        "<dead-letter-address>DLQ</dead-letter-address>"
    )
    nodes = make_members(settings=settings).start().nodes
    for node in nodes:
        with connect(url(node)) as connection, connection.session() as session:
            session.create_queue("DLQ")
    send(nodes[0], ["poison"])
    counts: list[int] = []
    while len(counts) < 5:
        node = nodes[len(counts) % 2]
        with connect(url(node)) as connection, connection.session(transacted=True) as session:
            consumer = session.consumer("q")
            session.start()
            received = consumer.receive(READY_S)
            assert received is not None
            counts.append(received.delivery_count)
            consumer.acknowledge(received)
            session.rollback()
    assert counts == [1, 2, 3, 4, 5]
    assert sum(depth(node, "DLQ") for node in nodes) == 1
    assert sum(depth(node, "q") for node in nodes) == 0


@pytest.mark.long
def test_an_address_deleted_by_force_forgets_queues_of_other_members(make_members: Callable[..., Members]) -> None:
    first, second = make_members().start().nodes
    for node in (first, second):
        with connect(url(node)) as connection, connection.session() as session:
            session.create_queue("x")
    wait_knows(first, "x")
    assert invoke(first, "broker", "deleteAddress", "x", True)[0] == 200
    known = [each["queue"] for each in first.get("/api/v1/cluster")[1]["remote_queues"]]
    assert "x" not in known
    assert "q" in known
    send(first, ["stays here"], "x")
    assert (depth(first, "x"), depth(second, "x")) == (1, 0)
