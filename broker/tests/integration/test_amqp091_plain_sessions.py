"""Sessions of AMQP 0-9-1 over failovers, by a client that shares no code with the broker (ADR 0195, ADR 0194)."""

from __future__ import annotations

import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from support.nodes import Nodes
from support.plain091 import (
    CONFIRM_SELECT,
    CONFIRM_SELECT_OK,
    END_SESSION,
    FORCED,
    KEEP_SESSION,
    LOCKED,
    NOT_FOUND,
    TX_COMMIT,
    TX_COMMIT_OK,
    TX_ROLLBACK,
    TX_ROLLBACK_OK,
    TX_SELECT,
    TX_SELECT_OK,
    Closed,
    PlainClient,
    connect_again,
)
from support.processes import TOKEN, Node, Pair
from support.replicated import ReplicatedPair, wait_until

#: First delivery tag after one failover.
SECOND_GENERATION = 1 << 48
PUBLISHES = 600
#: Publishes that a client sends ahead of their confirms.
WINDOW = 100

AnyPair = Pair | ReplicatedPair


def _shared(nodes: Nodes) -> AnyPair:
    return nodes.pair().start()


def _replicated(nodes: Nodes) -> AnyPair:
    return nodes.replicated().start()


PAIRS = pytest.mark.parametrize(
    "started",
    [pytest.param(_shared, id="shared-store"), pytest.param(_replicated, id="replicated", marks=pytest.mark.long)],
)
LONG_PAIRS = pytest.mark.parametrize(
    "started", [pytest.param(_shared, id="shared-store"), pytest.param(_replicated, id="replicated")]
)


def new_uuid() -> str:
    return str(uuid.uuid4())


def asked(verb: str, name: str, timeout_s: int = 60) -> dict[str, str | int]:
    return {f"qpid.session.{verb}": name, "qpid.session.timeout": timeout_s}


def known_port(client: PlainClient) -> int:
    """Port of the first host that the broker names, which is the passive node."""
    host, port = client.known_hosts[0].rsplit(":", 1)
    assert host == "127.0.0.1"
    return int(port)


def connected(node: Node, name: str) -> PlainClient:
    """A client with a new session, at a node that names its passive one."""
    client = PlainClient(node.port, asked("start", name))

    def named() -> bool:
        nonlocal client
        if not client.known_hosts:
            client.close(KEEP_SESSION)
            client = PlainClient(node.port, asked("resume", name))
        return bool(client.known_hosts)

    wait_until(named, node)
    assert client.server_properties["capabilities"]["qpid.session"] is True
    assert client.server_properties["qpid.session.timeout"] == 300
    return client


def stale_acknowledgements(node: Node) -> float:
    request = urllib.request.Request(
        f"http://{node.host}:{node.http_port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        lines = str(answer.read(), "utf-8").splitlines()
    (found,) = [line for line in lines if line.startswith("understudy_amqp091_stale_acknowledgements_total")]
    return float(found.rpartition(" ")[2])


@PAIRS
def test_each_publish_is_in_the_queue_once_after_a_kill(nodes: Nodes, started: Callable[[Nodes], AnyPair]) -> None:
    pair = started(nodes)
    name = new_uuid()
    client = connected(pair.primary, name)
    port = known_port(client)
    assert port == pair.backup.port
    status = client.channel()
    assert (status["resumed"], status["mode"]) == (False, "none")
    client.declare("work")
    client.ask(CONFIRM_SELECT, CONFIRM_SELECT_OK, b"\0")
    sent = 0
    with pytest.raises(OSError):
        while True:
            # it goes on while the node is killed, so that publishes are on their way
            sent += 1
            client.publish("work", b"%d" % sent)
            client.read_waiting()
            client.wait_confirmed(sent - WINDOW)
            if client.confirmed >= PUBLISHES // 2 and pair.primary.process is not None:
                pair.primary.process.kill()
    confirmed = client.confirmed
    client.cut()
    again = connect_again(port, asked("resume", name))
    status = again.resume(publishes=sent)
    assert (status["resumed"], status["mode"]) == (True, "confirm")
    accepted = status["publishes"]["accepted"]
    assert confirmed <= accepted <= sent
    assert again.status["session"]["uuid"] == name
    assert again.status["session"]["generation"] == 1
    last = sent + 50
    for number in range(accepted + 1, last + 1):
        again.publish("work", b"%d" % number)
    again.wait_confirmed(last)
    assert again.refused == []
    again.close()
    reader = PlainClient(port)
    reader.channel("")
    assert Counter(reader.drain("work")) == Counter(b"%d" % number for number in range(1, last + 1))
    reader.close()


@LONG_PAIRS
@pytest.mark.long
def test_a_consumer_goes_on_with_its_deliveries_after_a_close_that_keeps_the_session_and_after_a_kill(
    nodes: Nodes, started: Callable[[Nodes], AnyPair]
) -> None:
    pair = started(nodes)
    name = new_uuid()
    client = connected(pair.primary, name)
    port = known_port(client)
    client.channel()
    client.declare("work")
    client.ask(CONFIRM_SELECT, CONFIRM_SELECT_OK, b"\0")
    for number in range(1, 21):
        client.publish("work", b"%d" % number)
    client.wait_confirmed(20)
    client.consume("work", "reader", 10)
    came = client.wait_deliveries(10)
    assert came == [(number, False, b"%d" % number) for number in range(1, 11)]
    client.ack(1)
    client.ack(2)
    client.close(KEEP_SESSION)

    # at the same node: 3 to 7 were seen and stay outstanding under their tags, the others come again under theirs
    client = PlainClient(pair.primary.port, asked("resume", name))
    status = client.resume(tag=7, publishes=20)
    assert status["resumed"]
    assert not status["deliveries"]["lost"]
    first, last = status["deliveries"]["unacked"]
    assert first == 3
    # 11 and 12 were sent if the node has read the acknowledgements before the close
    assert 10 <= last <= 12
    assert [(each["tag"], each["queue"], each["state"]) for each in status["consumers"]] == [
        ("reader", "work", "active")
    ]
    assert status["prefetch"] == 10
    came = client.wait_deliveries(5)
    assert came == [(number, number <= last, b"%d" % number) for number in range(8, 13)]
    client.ack(3)
    client.publish("work", b"21")
    client.wait_confirmed(21)
    # the confirm came after the acknowledgement of 3 was written, which let 13 come
    assert client.wait_deliveries(1) == [(13, False, b"13")]

    pair.primary.kill()
    client.cut()
    client = connect_again(port, asked("resume", name))
    status = client.resume(tag=13, publishes=21)
    assert status["resumed"]
    assert status["deliveries"] == {"unacked": [], "lost": True}
    assert client.status["session"]["generation"] == 1
    came = client.wait_deliveries(10)
    assert [each.body for each in came] == [b"%d" % number for number in range(4, 14)]
    assert all(each.redelivered for each in came)
    assert [each.tag for each in came] == [SECOND_GENERATION + number for number in range(1, 11)]
    # acknowledgements of the first generation count for nothing: they neither end the channel nor a delivery
    before = stale_acknowledgements(pair.backup)
    for tag in (4, 5, 13):
        client.ack(tag)
    client.ack(12, multiple=True)
    client.publish("work", b"22")
    client.wait_confirmed(22)
    assert client.deliveries == []
    assert stale_acknowledgements(pair.backup) - before >= 4
    found = [each.body for each in came]
    client.ack(came[-1].tag, multiple=True)
    while len(found) < 19:
        more = client.wait_deliveries(1)
        found += [each.body for each in more]
        client.ack(more[-1].tag, multiple=True)
    assert found == [b"%d" % number for number in range(4, 23)]
    client.close()
    reader = PlainClient(port)
    reader.channel("")
    assert reader.drain("work") == []
    reader.close()


@LONG_PAIRS
@pytest.mark.long
def test_a_transaction_is_rolled_back_and_its_next_commit_refused_after_a_kill(
    nodes: Nodes, started: Callable[[Nodes], AnyPair]
) -> None:
    pair = started(nodes)
    name = new_uuid()
    client = connected(pair.primary, name)
    port = known_port(client)
    client.channel()
    client.declare("work")
    client.declare("mine", exclusive=True)
    client.ask(TX_SELECT, TX_SELECT_OK)
    client.publish("work", b"1")
    client.ask(TX_COMMIT, TX_COMMIT_OK)
    client.publish("work", b"2")
    assert client.declare("work", passive=True) == 1
    pair.primary.kill()
    client.cut()
    client = connect_again(port, asked("resume", name))
    status = client.resume(publishes=2)
    assert status["mode"] == "tx"
    assert status["tx"] == {"open": False, "commits": 1, "rolled-back": True}
    # exclusive queues do not outlive a failover
    assert client.status["session"]["queues"] == []
    client.publish("work", b"2")
    with pytest.raises(Closed, match="406"):
        client.ask(TX_COMMIT, TX_COMMIT_OK)
    client.cut()
    client = connect_again(port, asked("resume", name))
    client.channel()
    client.ask(TX_SELECT, TX_SELECT_OK)
    client.publish("work", b"3")
    client.ask(TX_ROLLBACK, TX_ROLLBACK_OK)
    client.publish("work", b"4")
    client.ask(TX_COMMIT, TX_COMMIT_OK)
    client.close()
    reader = PlainClient(port)
    reader.channel("")
    assert reader.drain("work") == [b"1", b"4"]
    with pytest.raises(Closed, match="404"):
        reader.declare("mine", passive=True)
    reader.cut()


@pytest.mark.long
def test_a_session_is_taken_over_while_its_former_connection_is_open(nodes: Nodes) -> None:
    pair = nodes.pair().start()
    name = new_uuid()
    first = connected(pair.primary, name)
    first.channel()
    first.declare("mine", exclusive=True)
    first.publish("mine", b"1")
    first.publish("mine", b"2")
    first.consume("mine", "reader", 1)
    assert first.wait_deliveries(1) == [(1, False, b"1")]
    # a start does not take it, and neither does another user
    assert refusal(pair.primary, asked("start", name)) == LOCKED
    unknown = refusal_text(pair.primary, asked("resume", new_uuid()))
    assert unknown.startswith("404 ")
    assert refusal_text(pair.primary, asked("resume", name), "another") == unknown
    second = PlainClient(pair.primary.port, asked("resume", name))
    assert first.closed_with() == FORCED
    status = second.resume(tag=0, publishes=2)
    assert status["resumed"]
    assert second.wait_deliveries(1) == [(1, True, b"1")]
    second.ack(1)
    assert second.wait_deliveries(1) == [(2, False, b"2")]
    # for a client whose properties never change, too; its channels are new, and its queue is there
    third = PlainClient(pair.primary.port, asked("attach", name))
    assert second.closed_with() == FORCED
    third.channel("")
    assert third.drain("mine") == [b"2"]
    third.close(END_SESSION)
    assert refusal(pair.primary, asked("resume", name)) == NOT_FOUND


@pytest.mark.long
def test_an_open_session_moves_to_another_member_whose_client_asks_for_it(nodes: Nodes) -> None:
    members = nodes.members(2)
    members.start()
    home, other = members.nodes

    def linked() -> bool:
        links = home.get("/api/v1/cluster")[1].get("links", [])
        assert isinstance(links, list)
        return any(each["state"] == "JOINED" for each in links)

    wait_until(linked, home)
    name = new_uuid()
    first = PlainClient(home.port, asked("start", name))
    first.channel()
    first.declare("work")
    first.ask(CONFIRM_SELECT, CONFIRM_SELECT_OK, b"\0")
    for number in (1, 2):
        first.publish("work", b"%d" % number)
    first.consume("work", "reader", 1)
    assert first.wait_deliveries(1) == [(1, False, b"1")]
    second = connect_again(other.port, asked("resume", name))
    assert first.closed_with() == FORCED
    status = second.resume(tag=1, publishes=3)
    # queues do not move: the publishes are where they were confirmed, and the consumer is cancelled
    assert (status["resumed"], status["publishes"]["accepted"]) == (True, 2)
    assert [each["state"] for each in status["consumers"]] == ["cancelled"]
    assert status["deliveries"] == {"unacked": [], "lost": True}
    assert second.status["session"]["generation"] == 1
    second.declare("work")
    second.publish("work", b"3")
    second.wait_confirmed(3)
    second.close()
    for node, bodies in ((home, [b"1", b"2"]), (other, [b"3"])):
        assert refusal(node, asked("resume", name)) == NOT_FOUND
        reader = PlainClient(node.port)
        reader.channel("")
        assert reader.drain("work") == bodies
        reader.close()


@pytest.mark.long
def test_an_open_session_is_not_taken_over_where_the_acceptor_refuses_it(nodes: Nodes) -> None:
    pair = nodes.active(acceptor="?sessionTakeover=false")
    name = new_uuid()
    first = PlainClient(pair.primary.port, asked("start", name))
    for verb in ("resume", "attach"):
        assert refusal(pair.primary, asked(verb, name)) == LOCKED
    first.cut()
    PlainClient(pair.primary.port, asked("resume", name)).close()


@LONG_PAIRS
@pytest.mark.long
def test_the_node_that_takes_over_refuses_what_the_killed_one_would_have_refused(
    nodes: Nodes, started: Callable[[Nodes], AnyPair]
) -> None:
    """Unknown sessions, those of other users and those whose timeout is over, in one text."""
    pair = started(nodes)
    name, ended, short = new_uuid(), new_uuid(), new_uuid()
    client = connected(pair.primary, name)
    client.channel()
    gone = PlainClient(pair.primary.port, asked("start", ended))
    gone.channel()
    gone.close(END_SESSION)
    # a session of which nothing is kept
    PlainClient(pair.primary.port, asked("start", new_uuid(), 0)).cut()
    PlainClient(pair.primary.port, asked("start", short, 1)).channel()
    pair.primary.kill()
    client.cut()
    # the timeout of a session without a connection begins when the other node takes over
    again = connect_again(pair.backup.port, asked("resume", name))
    assert again.resume()["resumed"]
    unknown = refusal_text(pair.backup, asked("resume", new_uuid()))
    assert unknown.startswith("404 ")
    assert refusal_text(pair.backup, asked("resume", ended)) == unknown
    assert refusal_text(pair.backup, asked("resume", name), "another") == unknown
    # the open session was not touched
    again.declare("work")
    # its timeout, and some time for the timer
    time.sleep(1.5)
    assert refusal(pair.backup, asked("resume", short)) == NOT_FOUND
    # a new one may have the name of one that is over
    PlainClient(pair.backup.port, asked("start", short)).close()
    again.close()


def refusal_text(node: Node, session: dict[str, str | int], user: str = "u") -> str:
    """Code and text with which a node refuses a session."""
    with pytest.raises(Closed) as refused:
        PlainClient(node.port, session, user)
    return str(refused.value)


def refusal(node: Node, session: dict[str, str | int], user: str = "u") -> int:
    """Code with which a node refuses a session."""
    return int(refusal_text(node, session, user).split()[0])
