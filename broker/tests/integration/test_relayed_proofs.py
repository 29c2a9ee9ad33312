"""Goal: a stranger who is dialled by a node, or sits between two nodes, gets nothing from the proof of the cluster
password that he passes on: no session, no place as the replica, no link under a wrong name. Real processes; the frames
are passed on by ``support.stranger``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.test_discovery import GROUP, DiscoveringNodes, needs_multicast, udp
from support.certificates import make as make_certificate
from support.members import Members, wait_until
from support.nodes import Nodes
from support.ports import free_port
from support.processes import Node
from support.replicated import ReplicatedPair, wait_in_sync
from support.stranger import Stranger
from understudy.cluster.discovery.carriers import Multicast
from understudy.cluster.discovery.sockets import multicast_sender
from understudy.wire.core import packets as p
from understudy.wire.core.broadcast import Broadcast
from understudy.wire.core.transport import TransportConfiguration

#: A session of a bridge: without a login.
SESSION = p.CreateSession("of-the-stranger".ljust(40, "-"), 10, 136, None, None)
REFUSED = "which is not this node"
ITSELF = "this node itself"
LINKED = "connected to a member of the cluster"
SEALED = "of the sealed connection"

Listen = Callable[..., Stranger]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Starts a stranger."""
    made: list[Stranger] = []

    def start(*arguments: object, **options: object) -> Stranger:
        made.append(Stranger(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.fixture
def make_members(nodes: Nodes) -> Callable[..., Members]:
    """Makes members with logins required, which are configured and not started."""

    def make(count: int, **options: object) -> Members:
        # the one that is down is dialled again and again
        attempts = "<topology-scanner-attempts>-1</topology-scanner-attempts>"
        members = nodes.members(count, cluster=attempts, **options)
        for node in members.nodes:
            require_logins(node)
        return members

    return make


def require_logins(node: Node) -> None:
    text = node.config.read_text().replace("<security-enabled>false", "<security-enabled>true")
    node.config.write_text(text)
    for file in ("artemis-users.properties", "artemis-roles.properties"):
        (node.config.parent / file).write_text("")


def logged(node: Node, text: str) -> int:
    return node.log.read_text(errors="replace").count(text)


def assert_refused(stranger: Stranger, dialling: Node, accepting: Node, reason: str = REFUSED) -> None:
    """The stranger was dialled and got nothing, and both nodes say why, without a line for each attempt."""
    wait_until(
        lambda: stranger.proved > 0 or (logged(dialling, reason) > 0 and logged(accepting, reason) > 0),
        "neither linked nor refused",
        dialling,
    )
    assert stranger.proved == 0
    dialled = stranger.dialled
    wait_until(lambda: stranger.dialled >= dialled + 3, "not dialled again", dialling)
    time.sleep(0.5)
    assert stranger.proved == 0
    assert stranger.answers == []
    assert logged(accepting, "connection dropped") <= 2
    assert logged(dialling, "connection to another node refused") <= 2


# --- a stranger who is dialled ---------------------------------------------------------------------


@pytest.mark.parametrize("to", ["itself", "another"])
def test_at_the_address_of_a_static_connector_whose_owner_is_down(
    make_members: Callable[..., Members], listen: Listen, to: str
) -> None:
    members = make_members(3)
    first, second, down = members.nodes
    for node in (first, second):
        node.start().wait_ready("active")
    accepting = first if to == "itself" else second
    stranger = listen(down.port, accepting.port, asks=SESSION)
    wait_until(lambda: stranger.dialled > 0, "not dialled", first)
    if to == "itself":
        # both nodes dial the stranger, and each is passed on to the first one
        assert_refused(stranger, first, first, ITSELF)
    else:
        assert_refused(stranger, first, second)


@needs_multicast
@pytest.mark.parametrize("to", ["itself", "another"])
def test_at_an_address_of_a_forged_datagram(tmp_path: Path, listen: Listen, to: str) -> None:
    nodes, port, place = DiscoveringNodes(tmp_path), free_port(), free_port()
    try:
        first, second = nodes.add(udp(port)), nodes.add(udp(port))
        for node in (first, second):
            require_logins(node)
            node.start().wait_ready("active")
        accepting = first if to == "itself" else second
        stranger = listen(place, accepting.port, asks=SESSION)
        forged = TransportConfiguration("core", parameters={"host": "127.0.0.1", "port": str(place)})
        with multicast_sender(Multicast(GROUP, port, "127.0.0.1")) as sending:
            sending.sendto(Broadcast("forged", "x", (forged,)).encode(), (GROUP, port))
        wait_until(lambda: stranger.dialled > 1, "not dialled", first)
        reason = ITSELF if to == "itself" else REFUSED
        wait_until(
            lambda: stranger.proved > 0 or (logged(first, reason) > 0 and logged(accepting, reason) > 0),
            "neither linked nor refused",
            first,
        )
        time.sleep(0.5)
        assert stranger.proved == 0
        assert stranger.answers == []
    finally:
        for node in nodes.all:
            node.end()


def test_at_the_address_of_the_replica(tmp_path: Path, listen: Listen) -> None:
    """The active node dials the connector of its backup, which is down; the stranger registers as the replica."""
    pair = ReplicatedPair(tmp_path)
    try:
        pair.primary.start().wait_ready("active")
        own = TransportConfiguration("stranger", parameters={"host": "127.0.0.1", "port": str(pair.backup.port)})
        registration = p.ReplicaRegistration(1, "stranger", None, False, own)
        stranger = listen(pair.backup.port, pair.primary.port, asks=registration, channel_id=2)
        wait_until(lambda: stranger.dialled > 0, "not dialled", pair.primary)
        assert_refused(stranger, pair.primary, pair.primary, ITSELF)
        assert logged(pair.primary, "replica registered") == 0
        stranger.end()
        pair.backup.start()
        wait_in_sync(pair.primary, pair.backup)
    finally:
        pair.end()


def test_over_tls_with_the_name_verified(make_members: Callable[..., Members], listen: Listen, tmp_path: Path) -> None:
    """All nodes have certificates for the same name; the stranger passes the bytes of TLS on."""
    authority = make_certificate("CN=authority,O=Example", authority=True)
    ca = authority.write_certificate(tmp_path / "ca.pem")
    key = make_certificate("CN=node,O=Example", authority).write(tmp_path / "node.pem")
    members = make_members(3)
    for node in members.nodes:
        node.config.write_text(with_tls(node.config.read_text(), ca, key))
    first, second, down = members.nodes
    # before the nodes give up to dial the one that is down
    stranger = listen(down.port, second.port)
    for node in (first, second):
        node.start().wait_ready("active")
    assert_refused(stranger, first, second)
    wait_until(lambda: logged(first, LINKED) > 0, "not linked", first)
    assert logged(first, LINKED + f'", "node": "n0", "to": "tcp://127.0.0.1:{down.port}') == 0


def with_tls(text: str, ca: Path, key: Path) -> str:
    head, tail = text.split("<acceptors>")
    head = head.replace("</connector>", f"?sslEnabled=true;trustStorePath={ca}</connector>")
    tail = tail.replace("</acceptor>", f"?sslEnabled=true;keyStorePath={key}</acceptor>")
    return head + "<acceptors>" + tail


# --- a stranger between two nodes ------------------------------------------------------------------


def dialled_through(members: Members, place: int) -> None:
    """The second member announces another port than that of its acceptor, as where addresses are translated."""
    for node in members.nodes:
        text = node.config.read_text()
        own = f'<connector name="n1">tcp://127.0.0.1:{members.nodes[1].port}'
        assert own in text
        node.config.write_text(text.replace(own, f'<connector name="n1">tcp://127.0.0.1:{place}'))


def test_between_two_nodes_that_it_links(make_members: Callable[..., Members], listen: Listen) -> None:
    """Without changes the nodes are linked: the accepting node announces the dialled place as its connector."""
    members, place = make_members(2), free_port()
    dialled_through(members, place)
    first, second = members.nodes
    second.start().wait_ready("active")
    stranger = listen(place, second.port)
    first.start().wait_ready("active")
    wait_until(lambda: logged(first, LINKED) > 0, "not linked", first)
    assert stranger.proved > 0


@pytest.mark.parametrize(
    "change", [lambda data: bytes(len(data)), lambda data: data + data], ids=["changed", "repeated"]
)
def test_between_two_nodes_it_changes_nothing(
    make_members: Callable[..., Members], listen: Listen, change: Callable[[bytes], bytes]
) -> None:
    members, place = make_members(2), free_port()
    dialled_through(members, place)
    first, second = members.nodes
    second.start().wait_ready("active")
    stranger = listen(place, second.port, change=change)
    first.start().wait_ready("active")
    wait_until(lambda: stranger.proved > 0, "not dialled", first)
    wait_until(lambda: logged(second, SEALED) > 0, "not noticed", second)


def test_between_two_nodes_it_gets_no_session(make_members: Callable[..., Members], listen: Listen) -> None:
    members, place = make_members(2), free_port()
    dialled_through(members, place)
    first, second = members.nodes
    second.start().wait_ready("active")
    stranger = listen(place, second.port, asks=SESSION)
    first.start().wait_ready("active")
    wait_until(lambda: stranger.proved > 1, "not dialled again", first)
    time.sleep(1)
    assert stranger.answers == []
    assert logged(second, "session created") == 0
