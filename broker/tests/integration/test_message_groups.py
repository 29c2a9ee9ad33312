"""Message groups in a cluster: a group stays with one queue of one member (artemis-ha s. 7.8, ADR 0071)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.members import Members, depth, third_of, url, wait_knows, wait_until
from support.nodes import Nodes
from support.processes import READY_S, Node, Pair
from understudy.client.sync import Consumer, Session, connect


def handler(kind: str, inner: str = "") -> str:
    return f'<grouping-handler name="groups"><type>{kind}</type>{inner}</grouping-handler>'


def local_first(inner: str = "", remote: str = "") -> Callable[[int], str]:
    """The first member decides, the others ask it."""
    return lambda number: handler("LOCAL", inner) if number == 0 else handler("REMOTE", remote)


@pytest.fixture
def make_members(nodes: Nodes) -> Callable[..., Members]:
    """Makes members with grouping handlers."""

    def make(count: int = 2, **options: object) -> Members:
        options.setdefault("extra", local_first())
        return nodes.members(count, **options)

    return make


def facts(node: Node) -> dict[str, Any]:
    found = node.get("/api/v1/cluster")[1]["grouping"]
    assert isinstance(found, dict)
    return found


def send(session: Session, group: str, *bodies: str, address: str = "q", **options: Any) -> None:
    producer = session.producer(address)
    for body in bodies:
        producer.send(body, properties={"_AMQ_GROUP_ID": group}, **options)
    producer.close()


def send_to(node: Node, group: str, *bodies: str) -> None:
    with connect(url(node)) as connection, connection.session() as session:
        send(session, group, *bodies)


def take(consumer: Consumer, idle_s: float = 1.0) -> list[tuple[str, str]]:
    """Group and body of everything that comes until nothing comes any more."""
    found = []
    while (each := consumer.receive(idle_s)) is not None:
        found.append((str(each.properties["_AMQ_GROUP_ID"]), each.text or ""))
    return found


def wait_consumers(nodes: list[Node]) -> None:
    """Wait until each member knows the queue ``q`` of each other one, with a consumer."""
    for node in nodes:
        wait_knows(node, "q", nodes=len(nodes) - 1, consumers=len(nodes) - 1)


@pytest.mark.parameter("grouping-handler/type")
def test_a_group_stays_with_one_consumer_whatever_member_its_messages_are_sent_to(
    make_members: Callable[..., Members],
) -> None:
    nodes = make_members(3).start().nodes
    connections = [connect(url(node)) for node in nodes]
    sessions = [connection.session() for connection in connections]
    consumers = [session.consumer("q") for session in sessions]
    wait_consumers(nodes)
    for number in range(10):
        for group in range(12):
            for member, session in enumerate(sessions):
                send(session, f"g{group}", f"{member} {number:02}")
    received = [take(consumer) for consumer in consumers]
    assert sum(map(len, received)) == 360
    owners: dict[str, set[int]] = {}
    for member, messages in enumerate(received):
        for group, _ in messages:
            owners.setdefault(group, set()).add(member)
        for group in range(12):
            for sender in range(3):
                bodies = [body for of, body in messages if of == f"g{group}" and body[0] == str(sender)]
                assert bodies == sorted(set(bodies)), "the order of a producer was lost"
    assert len(owners) == 12
    assert all(len(each) == 1 for each in owners.values()), owners
    assert len({next(iter(each)) for each in owners.values()}) == 3, "all members have groups"
    assert [facts(node)["groups"] for node in nodes] == [12, 12, 12]
    for connection in connections:
        connection.close()


def test_two_members_that_begin_a_group_at_once_agree(make_members: Callable[..., Members]) -> None:
    nodes = make_members(3).start().nodes
    connections = [connect(url(node)) for node in nodes]
    consumers = [connection.session().consumer("q") for connection in connections]
    wait_consumers(nodes)

    def produce(member: int) -> None:
        with connections[member].session() as session:
            producer = session.producer("q")
            sends = [
                producer.send_nowait(f"{member} {number}", properties={"_AMQ_GROUP_ID": f"g{group}"})
                for group in range(40)
                for number in range(3)
            ]
            for each in sends:
                each.result(READY_S)

    threads = [threading.Thread(target=produce, args=(member,)) for member in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * READY_S)
        assert not thread.is_alive()
    received = [take(consumer) for consumer in consumers]
    assert sum(map(len, received)) == 360
    owners = [{group for group, _ in messages} for messages in received]
    assert sum(map(len, owners)) == 40, "a group has two queues"
    for messages in received:
        for group in {of for of, _ in messages}:
            for sender in range(3):
                own = [body for of, body in messages if of == group and body[0] == str(sender)]
                assert own == sorted(own)
    for connection in connections:
        connection.close()


def queue_of(nodes: list[Node], group: str) -> int:
    """The member that gets messages of a group now. No queue has consumers."""
    before = [depth(node, "q") for node in nodes]
    send_to(nodes[-1], group, "where")
    wait_until(lambda: sum(depth(node, "q") for node in nodes) == sum(before) + 1, "it did not arrive", nodes[0])
    return [depth(node, "q") - count for node, count in zip(nodes, before, strict=True)].index(1)


STRICT = "<message-load-balancing>STRICT</message-load-balancing>"
"""Groups are spread over queues without consumers, so that tests can look at their depths."""


def wait_linked(nodes: list[Node]) -> None:
    for node in nodes:
        wait_knows(node, "q", nodes=len(nodes) - 1)


@pytest.mark.long
def test_bindings_outlast_kills_of_the_member_that_decides(make_members: Callable[..., Members]) -> None:
    nodes = make_members(3, cluster=STRICT).start().nodes
    first, _, third = nodes
    wait_linked(nodes)
    places = {f"g{number}": queue_of(nodes, f"g{number}") for number in range(6)}
    assert set(places.values()) == {0, 1, 2}
    first.kill()
    # known groups go on without it
    elsewhere = next(group for group, place in places.items() if place != 0)
    began = time.monotonic()
    send_to(third, elsewhere, "while it is away")
    assert time.monotonic() - began < 4, "it asked"
    first.start().wait_ready("active")
    wait_linked(nodes)
    third.kill()
    # its knowledge is lost
    third.start().wait_ready("active")
    wait_linked(nodes)
    assert {group: queue_of(nodes, group) for group in places} == places
    assert facts(first)["groups"] == 6
    assert facts(third)["proposals"] >= 6


@pytest.mark.long
def test_the_backup_of_the_member_that_decides_has_its_bindings(tmp_path: Path) -> None:
    pair = Pair(tmp_path, extra=handler("LOCAL"))
    for node in (pair.primary, pair.backup):
        text = node.config.read_text()
        node.config.write_text(text.replace("<static-connectors>", STRICT + "<static-connectors>"))
    third = third_of(pair, tmp_path)
    third.config.write_text(third.config.read_text().replace(handler("LOCAL"), handler("REMOTE")))
    try:
        pair.start()
        third.start().wait_ready("active")
        nodes = [pair.primary, third]
        for node in nodes:
            send_queue(node)
        wait_linked(nodes)
        places = {f"g{number}": queue_of(nodes, f"g{number}") for number in range(6)}
        assert set(places.values()) == {0, 1}
        pair.primary.kill()
        pair.backup.wait_ready("active")
        third.kill()
        third.start().wait_ready("active")
        nodes = [pair.backup, third]
        wait_linked(nodes)
        assert {group: queue_of(nodes, group) for group in places} == places
        assert facts(pair.backup) == {**facts(pair.backup), "type": "LOCAL", "groups": 6}
    finally:
        pair.end()
        third.end()


def send_queue(node: Node) -> None:
    with connect(url(node)) as connection, connection.session() as session:
        session.create_queue("q", address="q", routing="anycast")


@pytest.mark.parameter("grouping-handler/group-timeout", "grouping-handler/reaper-period")
def test_idle_groups_are_free_again_at_all_members(make_members: Callable[..., Members]) -> None:
    times = "<group-timeout>1500</group-timeout><reaper-period>200</reaper-period>"
    nodes = make_members(extra=local_first(times, times), cluster=STRICT).start().nodes
    first, second = nodes
    wait_linked(nodes)
    with connect(url(second)) as connection, connection.session() as session:
        send(session, "idle", "x")
        send(session, "busy", "x")
        assert facts(first)["groups"] == facts(second)["groups"] == 2
        began = time.monotonic()
        # a group in use is not idle, although the member that decides does not see its messages
        while time.monotonic() - began < 3:
            send(session, "busy", "x")
            time.sleep(0.05)
    assert facts(first)["groups"] == facts(second)["groups"] == 1
    for node in nodes:
        wait_until(lambda node=node: facts(node)["groups"] == 0, "the group is not free", node)  # type: ignore[misc]
    assert facts(first)["freed"] == facts(second)["freed"] == 2


def test_a_group_whose_queue_is_deleted_gets_another_one(make_members: Callable[..., Members]) -> None:
    kept = "<auto-create-queues>false</auto-create-queues><auto-delete-addresses>false</auto-delete-addresses>"
    nodes = make_members(cluster=STRICT, settings=kept).start().nodes
    first, second = nodes
    with connect(url(second)) as connection, connection.session() as session:
        for node in nodes:
            with connect(url(node)) as other, other.session() as making:
                making.create_queue("r", address="r", routing="anycast")
        for node in nodes:
            wait_knows(node, "r")
        groups = [f"g{number}" for number in range(6)]
        for group in groups:
            send(session, group, "before", address="r")
        wait_until(lambda: depth(first, "r") + depth(second, "r") == 6, "they did not arrive", first)
        there = depth(second, "r")
        assert 0 < there < 6
        session.delete_queue("r")
        for node in nodes:
            wait_until(lambda node=node: facts(node)["groups"] == 6 - there, "not free", node)  # type: ignore[misc]
        for group in groups:
            send(session, group, "after", address="r")
    wait_until(lambda: depth(first, "r") == 6 - there + 6, "they did not arrive", first)


@pytest.mark.parameter("grouping-handler/timeout")
def test_without_a_decision_messages_go_on_without_their_group_in_order(make_members: Callable[..., Members]) -> None:
    """The session waits for ten proposals; another session of the same client goes on meanwhile."""
    remote = "<timeout>300</timeout>"
    nodes = make_members(extra=local_first("", remote)).start().nodes
    first, second = nodes
    wait_linked(nodes)
    send_to(second, "known", "before")
    first.kill()
    with connect(url(second)) as connection, connection.session() as session, connection.session() as other:
        producer = session.producer("q")
        began = time.monotonic()
        sends = [
            producer.send_nowait(f"{number}", properties={"_AMQ_GROUP_ID": group})
            for number, group in enumerate(["new", "known", "new", "known"])
        ]
        send(other, "known", "of another session")
        assert time.monotonic() - began < 2, "another session waited"
        assert facts(second)["waiting"] == 1
        for each in sends:
            each.result(READY_S)
        assert 2.5 < time.monotonic() - began < 8
        wait_until(lambda: depth(second, "q") == 6, "not all are here", second)
        bodies = [body for _, body in take(session.consumer("q"))]
        assert bodies == ["before", "of another session", "0", "1", "2", "3"]
    assert facts(second)["ungrouped"] == 2
    assert "messages are routed without their group" in second.log.read_text()


def test_a_large_message_and_a_transaction_wait_for_the_decision(make_members: Callable[..., Members]) -> None:
    nodes = make_members().start().nodes
    first, second = nodes
    with connect(url(first)) as near, connect(url(second)) as far, near.session() as here:
        here_consumer = here.consumer("q")
        wait_knows(second, "q", consumers=1)
        with far.session(transacted=True) as transacted:
            producer = transacted.producer("q")
            producer.send("one", properties={"_AMQ_GROUP_ID": "large"})
            producer.send("x" * 300_000, properties={"_AMQ_GROUP_ID": "large"})
            producer.send("y" * 300_000, properties={"_AMQ_GROUP_ID": "other"})
            producer.send("two", properties={"_AMQ_GROUP_ID": "large"})
            assert here_consumer.receive(0.3) is None
            transacted.commit()
        with far.session() as plain:
            send(plain, "first of its session", "z" * 300_000, "three")
        found = take(here_consumer)
        assert [(group, body[:5]) for group, body in found] == [
            ("large", "one"),
            ("large", "xxxxx"),
            ("other", "yyyyy"),
            ("large", "two"),
            ("first of its session", "zzzzz"),
            ("first of its session", "three"),
        ]
    assert facts(first)["groups"] == 3
