"""A session of AMQP 0-9-1 that moves between the members of a cluster: each publish is there once (ADR 0199)."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from support.members import Members, wait_until
from support.processes import Node
from support.proxy import Proxy
from understudy.testing.runs.amqp_client import AmqpClient
from understudy.testing.runs.workload import NUMBER_PROPERTY, PRODUCER_PROPERTY, ClientPlan, LedgerBook
from understudy.testing.scenarios.amqp091_sessions import SessionProducerJob, produce_in_session
from understudy.wire.amqp091 import methods as m

#: Publishes between two events.
BETWEEN = 60
#: Line of a node to which a session has moved.
ARRIVED = "a client session has come from another node"
#: Class and method of connection.open, upon which a node asks the others for the session.
OPEN = bytes((0, 10, 0, 40))
_names = itertools.count(1)


class Cluster:
    """Three members, each of which clients reach over a proxy."""

    def __init__(self, directory: Path) -> None:
        self.members = Members(directory, 3, settings="<redistribution-delay>-1</redistribution-delay>")
        self.nodes = self.members.nodes
        self.proxies = [Proxy(each.port, record=True) for each in self.nodes]

    def start(self) -> None:
        """Start all, and wait until each has a link to each other one: a session moves over links only."""
        self.members.start()
        others = len(self.nodes) - 1
        wait_until(lambda: all(_linked(each) == others for each in self.nodes), "a link is missing", self.nodes[0])

    def cut(self) -> None:
        """Cut the connections of all clients; the session goes on at the next node."""
        for each in self.proxies:
            each.cut()

    def home(self) -> Node | None:
        """The node that the producer is connected to in its session; None: it is on its way."""
        return next((each for each in self.nodes if _channels(each)), None)

    def end(self) -> None:
        self.members.end()
        for each in self.proxies:
            each.close()


Event = Callable[[Cluster], object]


def test_each_publish_is_stored_once_when_the_session_moves_between_members(tmp_path: Path) -> None:
    _run(tmp_path, [Cluster.cut] * 9)


def test_each_publish_is_stored_once_when_nodes_are_killed_while_the_session_moves(tmp_path: Path) -> None:
    """The home and the other node are killed before the home has read the question of the other node, and after it has
    given the session. Between two kills the session moves once.
    """
    kills: list[Event] = [
        partial(_kill_in_a_move, given=given, kills_home=kills_home)
        for given in (False, True)
        for kills_home in (True, False)
    ]
    _run(tmp_path, [event for kill in kills for event in (Cluster.cut, kill)])


def _kill_in_a_move(cluster: Cluster, *, given: bool, kills_home: bool, attempts: int = 5) -> None:
    """Kill a node while the session moves, and start it again.

    Args:
        cluster: The nodes.
        given: Whether the home has given the session, and the other node has not read it; else the home has not read
            the question of the other node.
        kills_home: Whether the home is killed; else the other node.
        attempts: How often this is tried for a session that is given: the other node gives its question up after 5 s
            (ADR 0199), which a loaded machine may need for these steps.
    """
    wait_until(lambda: cluster.home() is not None, "no node has the session", cluster.nodes[0])
    home = cluster.home()
    assert home is not None
    others = [(node, proxy) for node, proxy in zip(cluster.nodes, cluster.proxies, strict=True) if node is not home]
    before = [len(proxy.recordings) for _, proxy in others]
    home.pause()
    cluster.cut()

    def asking() -> Node | None:
        """The node at which the client has asked for its session; None: it has not yet."""
        for (node, proxy), count in zip(others, before, strict=True):
            if any(OPEN in each.to_server for each in proxy.recordings[count:]):
                return node
        return None

    wait_until(lambda: asking() is not None, "the client has asked no other node", others[0][0])
    other = asking()
    assert other is not None
    # a node that answers this request has read the earlier input
    other.facts()
    arrivals = _arrivals(other)
    victim, survivor = (home, other) if kills_home else (other, home)
    if given:
        other.pause()
        home.resume()
        # each declare waits for the disk, as the record of the move does before it
        asyncio.run(_declare(home, 3))
    victim.kill()
    survivor.resume()
    victim.start().wait_ready("active")
    if given and kills_home:

        def arrived() -> bool:
            return _arrivals(other) > arrivals

        wait_until(lambda: arrived() or cluster.home() is not None, "no node has the session", other)
        if not arrived():
            assert attempts > 1, "the session that was given has not arrived"
            _kill_in_a_move(cluster, given=given, kills_home=kills_home, attempts=attempts - 1)


def _linked(node: Node) -> int:
    links = node.get("/api/v1/cluster")[1].get("links", [])
    assert isinstance(links, list)
    return sum(each["state"] == "JOINED" for each in links)


def _channels(node: Node) -> int:
    items = node.get("/api/v1/channels")[1].get("items", [])
    assert isinstance(items, list)
    return len(items)


def _arrivals(node: Node) -> int:
    return node.log.read_text(errors="replace").count(ARRIVED)


async def _declare(node: Node, count: int) -> None:
    """Declare durable queues one after the other."""
    client = await AmqpClient.connect("127.0.0.1", node.port, "work", 10)
    for _ in range(count):
        await client.ask(m.QueueDeclare(0, f"declared.{next(_names)}", durable=True), m.QueueDeclareOk)
    await client.close()


def _run(directory: Path, events: Sequence[Event]) -> None:
    cluster = Cluster(directory)
    try:
        cluster.start()
        asyncio.run(_produce(cluster, events))
    finally:
        cluster.end()


async def _produce(cluster: Cluster, events: Sequence[Event]) -> None:
    url = ",".join(f"tcp://127.0.0.1:{each.port}" for each in cluster.proxies)
    book = LedgerBook(lambda: time.time_ns() // 1_000_000)
    plan = ClientPlan(f"({url})?connectionTTL=10000", book.now_ms, os.urandom, book)
    for each in cluster.nodes:
        made = await AmqpClient.connect("127.0.0.1", each.port, "work", 10)
        await made.ask(m.QueueDeclare(0, "work", durable=True), m.QueueDeclareOk)
        await made.close()
    # it goes on until all events have happened
    job = SessionProducerJob("producer", "work", 1_000_000, 100, 0.005, window=20)
    producing = asyncio.create_task(produce_in_session(plan, job))
    for event in events:
        least = job.done + BETWEEN
        while job.done < least and not producing.done():
            await asyncio.sleep(0.01)
        await asyncio.to_thread(event, cluster)
    job.count = job.done + BETWEEN
    await producing
    assert book.violations == []
    found: Counter[object] = Counter()
    places = set()
    for each in cluster.nodes:
        reader = await AmqpClient.connect("127.0.0.1", each.port, "work", 10)
        await reader.ask(m.BasicConsume(0, "work", "reader"), m.BasicConsumeOk)
        while (received := await reader.receive(2)) is not None:
            found[received.properties[PRODUCER_PROPERTY], received.properties[NUMBER_PROPERTY]] += 1
            places.add(each.port)
            reader.send(m.BasicAck(received.tag))
        await reader.close()
    assert found == Counter(("producer.1", number) for number in range(1, job.done + 1))
    assert len(places) == len(cluster.nodes), "the session was at each member"
