"""A cluster of one of our nodes and a real Artemis: topology, balancing and redistribution in both directions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.artemis import ArtemisNode
from support.members import Traffic, members_xml, url, wait_knows, wait_until
from support.processes import READY_S, Node, invoke
from understudy.client.sync import Consumer, connect

pytestmark = pytest.mark.maven


SECOND = """</cluster-connection><cluster-connection name="second"><connector-ref>n{own}</connector-ref>
  <address>news,q2</address><retry-interval>100</retry-interval>
  <message-load-balancing>STRICT</message-load-balancing>
  <static-connectors><connector-ref>n{other}</connector-ref></static-connectors>
</cluster-connection></cluster-connections>"""


def with_second(text: str, number: int) -> str:
    """A broker.xml with a second cluster connection and the queue ``q2``."""
    queue = '<addresses><address name="q2"><anycast><queue name="q2"/></anycast></address>'
    text = text.replace("<addresses>", queue)
    end = "</cluster-connection></cluster-connections>"
    assert end in text
    return text.replace(end, SECOND.format(own=number, other=1 - number))


class Mixed:
    """Our node ``ours`` and the Artemis node ``theirs``, each with the anycast queue ``q`` and the address ``news``."""

    def __init__(self, artemis: Path, directory: Path, mode: str, *, second: bool = False) -> None:
        """``second``: both also have a cluster connection ``second`` with STRICT for ``news`` and ``q2``."""
        balancing = f"<message-load-balancing>{mode}</message-load-balancing>"
        if second:
            balancing = f"<address>!news,!q2</address>{balancing}"
        (port, text), (their_port, their_text) = members_xml(directory, 2, cluster=balancing)
        if second:
            text, their_text = with_second(text, 0), with_second(their_text, 1)
        theirs = "<artemis-members><connector-ref>n1</connector-ref></artemis-members></cluster-connection>"
        self.ours = Node(directory / "n0", "primary", port)
        self.ours.config.parent.mkdir(parents=True)
        self.ours.config.write_text(text.replace("</cluster-connection>", theirs, 1))
        nio = "<journal-type>NIO</journal-type>"
        their_text = their_text.replace("<connectors>", nio + "<connectors>", 1)
        self.theirs = ArtemisNode(artemis, directory / "instance", their_port, their_text)

    def start(self) -> Mixed:
        self.theirs.start()
        self.ours.start().wait_ready("active")
        self.theirs.wait_ready("active")
        return self

    def end(self) -> None:
        self.ours.end()
        self.theirs.end()


@pytest.fixture
def make_mixed(artemis: Path, tmp_path: Path) -> Iterator[Callable[[str], Mixed]]:
    """Makes a mixed cluster, and ends it after the test."""
    made: list[Mixed] = []

    def make(mode: str = "ON_DEMAND", *, second: bool = False) -> Mixed:
        made.append(Mixed(artemis, tmp_path, mode, second=second))
        return made[-1].start()

    yield make
    for each in made:
        each.end()


def take(consumer: Consumer, count: int) -> list[str]:
    taken = [consumer.receive(READY_S) for _ in range(count)]
    return [each.text or "" for each in taken if each is not None]


def rest(consumer: Consumer) -> list[str]:
    bodies = []
    while (each := consumer.receive_nowait()) is not None:
        bodies.append(each.text or "")
    return bodies


def wait_their_knowledge(mixed: Mixed, queue: str, consumers: int) -> None:
    """Wait until the Artemis node lists our queue, by sending: it has no operation for remote consumers."""
    wait_until(
        lambda: len(json.loads(str(invoke(mixed.ours, "broker", "listNetworkTopology")[1]))) == 2,
        "the topology is not complete",
        mixed.ours,
    )
    wait_knows(mixed.ours, queue, consumers=consumers)


@pytest.mark.feature("load balancing between members")
def test_messages_go_to_a_consumer_at_artemis(make_mixed: Callable[..., Mixed]) -> None:
    mixed = make_mixed()
    bodies = [f"message {number}" for number in range(50)]
    with connect(url(mixed.theirs)) as there, there.session() as reading, connect(url(mixed.ours)) as here:  # type: ignore[arg-type]
        consumer = reading.consumer("q")
        wait_knows(mixed.ours, "q", consumers=1)
        with here.session() as writing:
            producer = writing.producer("q")
            for body in bodies:
                producer.send(body)
        assert take(consumer, 50) == bodies
        assert rest(consumer) == []


@pytest.mark.feature("load balancing between members")
def test_messages_from_artemis_go_to_a_consumer_here(make_mixed: Callable[..., Mixed]) -> None:
    mixed = make_mixed()
    bodies = [f"message {number}" for number in range(50)]
    with connect(url(mixed.ours)) as here, here.session() as reading, connect(url(mixed.theirs)) as there:  # type: ignore[arg-type]
        consumer = reading.consumer("q")
        wait_their_knowledge(mixed, "q", 0)
        with there.session() as writing:
            producer = writing.producer("q")
            for body in bodies:
                producer.send(body)
        # those that Artemis took before it knew the consumer are redistributed
        assert sorted(take(consumer, 50)) == sorted(bodies)
        assert rest(consumer) == []


@pytest.mark.long
@pytest.mark.feature("subscriptions at several members")
def test_a_subscription_at_each_broker_gets_a_copy(make_mixed: Callable[..., Mixed]) -> None:
    mixed = make_mixed()
    with (
        connect(url(mixed.ours)) as here,
        connect(url(mixed.theirs)) as there,  # type: ignore[arg-type]
        here.session() as ours,
        there.session() as theirs,
    ):
        for session, name in ((ours, "a"), (theirs, "b")):
            session.create_queue(name, address="news", routing="multicast")
        first, second = ours.consumer("a", routing="multicast"), theirs.consumer("b", routing="multicast")
        wait_knows(mixed.ours, "b", consumers=1)
        ours.producer("news", routing="multicast").send("from here")
        assert take(first, 1) == take(second, 1) == ["from here"]
        producer = theirs.producer("news", routing="multicast")
        # Artemis knows our queue only when its own connection has reported it
        for number in range(200):
            producer.send(f"from there {number}")
            assert take(second, 1) == [f"from there {number}"]
            found = first.receive(0.05)
            if found is not None:
                break
        assert found is not None
        assert (found.text or "").startswith("from there")


@pytest.mark.long
@pytest.mark.feature("redistribution between members")
def test_redistribution_between_the_two(make_mixed: Callable[..., Mixed]) -> None:
    mixed = make_mixed("OFF_WITH_REDISTRIBUTION")
    bodies = [f"message {number}" for number in range(100)]
    with connect(url(mixed.ours)) as here, connect(url(mixed.theirs)) as there:  # type: ignore[arg-type]
        for source, target in ((here, there), (there, here)):
            with source.session() as writing, target.session() as reading:
                producer = writing.producer("q")
                for body in bodies:
                    producer.send(body)
                consumer = reading.consumer("q")
                assert sorted(take(consumer, 100)) == sorted(bodies)
                assert rest(consumer) == []


@pytest.mark.long
@pytest.mark.feature("cluster password")
@pytest.mark.parameter("cluster-connection/artemis-members/connector-ref", "cluster-password")
def test_without_artemis_members_the_password_is_neither_sent_nor_taken(artemis: Path, tmp_path: Path) -> None:
    mixed = Mixed(artemis, tmp_path, "ON_DEMAND")
    text = mixed.ours.config.read_text()
    begin, end = text.index("<artemis-members>"), text.index("</artemis-members>")
    mixed.ours.config.write_text(text[:begin] + text[end + len("</artemis-members>") :])
    try:
        mixed.start()
        wait_until(
            lambda: "plain cluster password" in mixed.ours.log.read_text(), "Artemis was not refused", mixed.ours
        )
        assert mixed.ours.get("/api/v1/cluster")[1]["remote_queues"] == []
    finally:
        mixed.end()


@pytest.mark.long
@pytest.mark.feature("load balancing between members")
@pytest.mark.parametrize("target", ["artemis", "understudy"])
def test_kills_of_both_brokers_lose_and_double_nothing(
    make_mixed: Callable[..., Mixed], tmp_path: Path, target: str
) -> None:
    mixed = make_mixed()
    wait_knows(mixed.ours, "q")
    places = (mixed.ours, mixed.theirs) if target == "artemis" else (mixed.theirs, mixed.ours)
    traffic = Traffic(tmp_path, *map(url, places), 3_000)  # type: ignore[arg-type]
    try:
        for count, node in ((600, mixed.theirs), (1_500, mixed.ours)):
            wait_until(lambda count=count: traffic.confirmed() >= count, "nothing is confirmed", mixed.ours)  # type: ignore[misc]
            node.kill()
            node.start()
            node.wait_ready("active")
        traffic.finish()
    finally:
        traffic.end()


@pytest.mark.long
@pytest.mark.feature("load balancing between members")
def test_two_cluster_connections_balance_each_address_in_both_directions(make_mixed: Callable[..., Mixed]) -> None:
    """``q`` with ON_DEMAND goes to consumers; ``q2`` with STRICT goes to both nodes in turn. Nothing comes twice."""
    mixed = make_mixed(second=True)
    with connect(url(mixed.ours)) as here, connect(url(mixed.theirs)) as there:  # type: ignore[arg-type]
        wait_knows(mixed.ours, "q2")
        with here.session() as ours, there.session() as theirs:
            for source, target in ((ours, theirs), (theirs, ours)):
                producer = source.producer("q2")
                # Artemis knows our queue only when its own connection has reported it
                probe = target.consumer("q2")
                for _ in range(200):
                    producer.send("probe")
                    if probe.receive(0.1) is not None:
                        break
                else:
                    raise AssertionError("q2 is not balanced")
                probe.close()
                first, second = source.consumer("q2"), target.consumer("q2")
                for each in (first, second):
                    while each.receive(0.5) is not None:
                        pass
                bodies = [f"strict {number}" for number in range(40)]
                for body in bodies:
                    producer.send(body)
                assert sorted(take(first, 20) + take(second, 20)) == sorted(bodies)
                assert rest(first) == rest(second) == []
                first.close()
                second.close()
                consumer = target.consumer("q")
                if target is theirs:
                    wait_knows(mixed.ours, "q", consumers=1)
                writer = source.producer("q")
                for body in bodies:
                    writer.send(body)
                # those that Artemis took before it knew the consumer are redistributed
                assert sorted(take(consumer, 40)) == sorted(bodies)
                assert rest(consumer) == []
                consumer.close()
    found = {each["name"]: each for each in mixed.ours.get("/api/v1/cluster")[1]["connections"]}  # type: ignore[attr-defined]
    assert set(found) == {"cluster", "second"}
    for each in found.values():
        assert each["acknowledged"] >= 20, found
