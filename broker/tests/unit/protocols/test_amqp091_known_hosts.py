"""Clients of AMQP 0-9-1 learn of the other nodes of the cluster: in connection.open-ok, and through amq.qpid."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from support.amqp091 import AmqpClient, AmqpNode, Received, declared, got
from support.core import FakeConnection
from understudy.cluster.membership.client_endpoints import EndpointDialer
from understudy.cluster.membership.services import ClusterServices
from understudy.cluster.membership.topology import Member
from understudy.ports import Security
from understudy.protocols.amqp091.endpoint_checks import EndpointCheck as Check
from understudy.protocols.amqp091.endpoint_checks import Event, Place, State
from understudy.protocols.amqp091.host_notices import HostNotices
from understudy.protocols.amqp091.known_hosts import KnownHosts
from understudy.protocols.amqp091.protocol import Amqp091Protocol
from understudy.protocols.handlers import AcceptorOptions
from understudy.session.prefixes import NO_PREFIXES
from understudy.terms import Amqp091Options
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import PROTOCOL_HEADER, FrameDecoder, method_frame
from understudy.wire.core.packets import ClientEndpoint, ClientEndpoints
from understudy.wire.core.peer import Link
from understudy.wire.core.transport import TransportConfiguration

INTERVAL_MS = 1_000


def connector(host: str) -> TransportConfiguration:
    return TransportConfiguration("c", parameters={"host": host, "port": 61616})


def place(host: str, port: int = 5672, *, tls: bool = False) -> ClientEndpoint:
    return ClientEndpoint("AMQP091", tls, host, port)


class Places:
    """Nodes by the place at which they answer. Implements ``Dialer``."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[str, int], str] = {}
        self.dials: list[tuple[str, int, bool]] = []
        self.connections: list[FakeConnection] = []

    def dial(self, target: TransportConfiguration, link: Link) -> None:
        self.dials.append((target.host, target.port, target.parameters.get("sslEnabled") is True))
        node_id = self.nodes.get((target.host, target.port))
        if node_id is None:
            link.disconnected("refused")
            return
        connection: Any = FakeConnection("there")
        self.connections.append(connection)
        link.connected(connection)
        assert connection.sent == [PROTOCOL_HEADER]
        start = m.ConnectionStart(0, 9, {"qpid.cluster.node": node_id}, b"PLAIN", b"en_US")
        frames = method_frame(start, 0)
        link.receive_data(frames[:9])
        link.receive_data(frames[9:])
        link.disconnected("closed")


class Seeded:
    """Random bytes, the same ones in each run. Implements ``Entropy``."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def token(self, length_bytes: int) -> bytes:
        return self._random.randbytes(length_bytes)


class KnownNode(AmqpNode):
    """A node with known hosts; the statements of other nodes come by ``state``."""

    def __init__(self) -> None:
        super().__init__()
        self.places = Places()
        office = self.world.office
        self.topology.set_primary(self.services.node_id, connector("here"), 1)
        self.hosts = KnownHosts(
            self.services.node_id, self.topology, EndpointDialer(self.places), office.timers, Seeded()
        )
        self.notices = HostNotices(self.hosts, office, self.services.clock, office.timers, 3)
        self.amqp.known_hosts = self.hosts

    def state(self, node_id: str, *endpoints: ClientEndpoint, answers: bool = True) -> None:
        """A member of the cluster states its places."""
        if answers:
            self.places.nodes |= {(each.host, each.port): node_id for each in endpoints}
        self.topology.update(Member(node_id, 5, connector(node_id)))
        self.topology.endpoints.learn(node_id, ClientEndpoints(node_id, True, endpoints))
        self.pass_ms(0)

    def leave(self, node_id: str) -> None:
        """A member of the cluster is lost."""
        self.topology.endpoints.forget(node_id)
        self.topology.remove(node_id)
        self.pass_ms(0)

    def back_up(self, *endpoints: ClientEndpoint) -> None:
        """The passive node of the own pair states its places, and announces itself."""
        own = self.services.node_id
        self.topology.endpoints.learn("backup", ClientEndpoints(own, False, endpoints))
        self.topology.set_backup(own, connector("other"))

    def told(self, *, security: Security = Security.NONE) -> list[str]:
        """Known hosts in connection.open-ok."""
        client = self.amqp_client()
        client.connection.security = security
        client.send_bytes(PROTOCOL_HEADER)
        client.only(m.ConnectionStart)
        tune = client.ask(m.ConnectionStartOk({}, "PLAIN", b"\0u\0p", "en_US"), m.ConnectionTune, 0)
        client.send(m.ConnectionTuneOk(tune.channel_max, tune.frame_max, 0), 0)
        text = client.ask(m.ConnectionOpen("/"), m.ConnectionOpenOk, 0).known_hosts
        return text.split(",") if text else []

    def pass_ms(self, duration_ms: int) -> None:
        self.world.clock.advance(duration_ms)
        self.world.turn()


# --- connection.open-ok --------------------------------------------------------------------------


def test_a_node_alone_lists_nothing() -> None:
    assert KnownNode().told() == []
    assert AmqpNode().amqp.known_hosts is None


def test_the_other_node_of_the_pair_comes_first_and_the_rest_in_random_order() -> None:
    node = KnownNode()
    hosts = [f"host-{number}" for number in range(4)]
    for each in hosts:
        node.state(each, place(each))
    node.back_up(place("other"))
    lists = [node.told() for _ in range(20)]
    assert {each[0] for each in lists} == {"other:5672"}
    assert {frozenset(each[1:]) for each in lists} == {frozenset(f"{host}:5672" for host in hosts)}
    assert len({tuple(each) for each in lists}) > 1


def test_a_passive_node_of_another_pair_or_one_that_has_not_announced_itself_is_not_listed() -> None:
    node = KnownNode()
    node.topology.endpoints.learn("p", ClientEndpoints("B", False, (place("passive"),)))
    node.topology.endpoints.learn("w", ClientEndpoints(node.services.node_id, False, (place("watches"),)))
    assert node.told() == []


def test_entries_with_tls_are_for_clients_with_tls() -> None:
    node = KnownNode()
    node.state("B", place("b"), place("b", 5671, tls=True))
    assert node.told() == ["b:5672"]
    assert sorted(node.told(security=Security.TLS)) == ["amqps:b:5671", "b:5672"]
    assert sorted(node.places.dials) == [("b", 5671, True), ("b", 5672, False)]


def test_an_ipv6_address_has_brackets() -> None:
    node = KnownNode()
    node.state("B", place("fd00::1"))
    assert node.told() == ["[fd00::1]:5672"]


def test_a_list_has_whole_entries_and_at_most_255_bytes() -> None:
    node = KnownNode()
    for number in range(6):
        node.state(f"node-{number}", place(f"{number}".rjust(60, "h")))
    entries = node.told()
    assert len(entries) == 3
    assert all(len(each) == 65 for each in entries)
    node.state("long", place("l" * 200))
    assert len(node.hosts.entries(tls=True)) == 6


def test_a_list_has_at_most_ten_entries() -> None:
    node = KnownNode()
    for number in range(12):
        node.state(f"node-{number}", place(f"h{number}"))
    assert len(node.told()) == 10


@pytest.mark.parametrize("answering", [None, "another"])
def test_a_place_that_does_not_lead_to_its_node_is_not_listed_until_it_does(answering: str | None) -> None:
    node = KnownNode()
    if answering is not None:
        node.places.nodes["b", 5672] = answering
    node.state("B", place("b"), answers=False)
    assert node.told() == []
    node.places.nodes["b", 5672] = "B"
    node.pass_ms(600)
    assert node.told() == ["b:5672"]
    del node.places.nodes["b", 5672]
    node.pass_ms(61_000)
    assert node.told() == []


def test_the_connections_of_checks_are_closed() -> None:
    node = KnownNode()
    node.state("B", place("b"))
    assert [each.aborted for each in node.places.connections] == [True]


def test_a_silent_place_is_given_up() -> None:
    node = KnownNode()
    links: list[Link] = []
    node.places.dial = lambda target, link: links.append(link)  # type: ignore[method-assign]
    node.state("B", place("b"))
    connection: Any = FakeConnection("there")
    links[0].connected(connection)
    node.pass_ms(5_000)
    assert connection.aborted
    assert node.told() == []
    links[0].receive_data(method_frame(m.ConnectionStart(0, 9, {"qpid.cluster.node": "B"}), 0))
    assert node.told() == [], "an answer after the time does not count"
    node.pass_ms(500)
    node.leave("B")
    node.pass_ms(120_000)
    assert len(links) == 2, "the wait was 500 ms, and nothing is checked once the node has gone"


def test_an_answer_of_another_protocol_fails_the_check() -> None:
    node = KnownNode()
    links: list[Link] = []
    node.places.dial = lambda target, link: links.append(link)  # type: ignore[method-assign]
    node.state("B", place("b"))
    connection: Any = FakeConnection("there")
    links[0].connected(connection)
    links[0].receive_data(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert connection.aborted
    assert node.told() == []


def test_a_check_that_has_ended_makes_no_further_connection() -> None:
    node = KnownNode()
    check = Check(Place("B", place("b")), EndpointDialer(node.places), node.world.office.timers, lambda: None)
    check.fire(Event.DIAL)
    check.fire(Event.END)
    check.fire(Event.END)
    assert check.state is State.ENDED
    node.pass_ms(120_000)
    assert len(node.places.dials) == 1


def test_closed_known_hosts_check_nothing() -> None:
    node = KnownNode()
    node.state("B", place("b"))
    node.hosts.close()
    node.state("C", place("c"))
    node.pass_ms(120_000)
    assert [host for host, *_ in node.places.dials] == ["b"]


def test_connection_start_names_the_node() -> None:
    node = KnownNode()
    client = node.amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    start, _ = client.only(m.ConnectionStart)
    assert start.server_properties["qpid.cluster.node"] == node.services.node_id


@pytest.mark.parametrize("known_hosts", [True, False])
def test_an_acceptor_may_tell_its_clients_of_no_other_node(known_hosts: bool) -> None:
    node = AmqpNode()
    cluster = ClusterServices(node.topology)
    protocol = Amqp091Protocol(node.services, cluster)
    node.topology.set_primary(node.services.node_id, connector("here"), 1)
    node.topology.set_backup(node.services.node_id, connector("other"))
    stated = ClientEndpoints(node.services.node_id, False, (place("other"),))
    node.topology.endpoints.learn("backup", stated)
    made = protocol.handler(cluster, AcceptorOptions(amqp091=Amqp091Options(known_hosts=known_hosts)))
    client = AmqpClient(node)
    client.handler = cast(Any, made(cast(Any, client.connection), NO_PREFIXES))
    client.send_bytes(PROTOCOL_HEADER)
    client.received()
    tune = client.ask(m.ConnectionStartOk({}, "PLAIN", b"\0u\0p", "en_US"), m.ConnectionTune, 0)
    client.send(m.ConnectionTuneOk(tune.channel_max, tune.frame_max, 0), 0)
    opened = client.ask(m.ConnectionOpen("/"), m.ConnectionOpenOk, 0)
    assert opened.known_hosts == ("other:5672" if known_hosts else "")
    protocol.close()


# --- amq.qpid ------------------------------------------------------------------------------------


def bound(client: AmqpClient, queue: str = "q", key: str = "cluster") -> None:
    declared(client, queue)
    client.ask(m.QueueBind(0, queue, "amq.qpid", key), m.QueueBindOk)
    assert isinstance(client.node, KnownNode)
    client.node.pass_ms(0)


def lists(client: AmqpClient, queue: str = "q") -> list[list[str]]:
    """The lists that have come, oldest first."""
    found = []
    while (message := got(client, queue)) is not None:
        found.append(_entries(message))
    return found


def _entries(message: Received) -> list[str]:
    assert message.properties is not None
    headers = message.properties.headers
    assert headers is not None
    assert message.body == b""
    assert isinstance(message.method, m.BasicGetOk)
    assert (message.method.exchange, message.method.routing_key) == ("amq.qpid", "cluster")
    raw, entries = str(headers["qpid.known.hosts"]).encode(), []
    while raw:
        entries.append(raw[1 : 1 + raw[0]].decode())
        raw = raw[1 + raw[0] :]
    assert entries == headers["qpid.known.hosts.list"]
    return sorted(entries)


def test_a_binding_brings_the_list_at_once_and_each_change_a_message() -> None:
    node = KnownNode()
    node.state("B", place("b"))
    client = node.channel()
    bound(client)
    assert lists(client) == [["b:5672"]]
    node.pass_ms(INTERVAL_MS)
    node.state("C", place("c", tls=True))
    assert lists(client) == [["amqps:c:5672", "b:5672"]]
    node.pass_ms(INTERVAL_MS)
    node.leave("B")
    assert lists(client) == [["amqps:c:5672"]]


def test_changes_that_follow_each_other_are_one_message_in_a_second_with_the_last_list() -> None:
    node = KnownNode()
    client = node.channel()
    bound(client)
    assert lists(client) == [[]]
    for _ in range(10):
        node.state("B", place("b"))
        node.pass_ms(50)
        node.leave("B")
        node.pass_ms(50)
        node.state("C", place("c"))
    node.pass_ms(INTERVAL_MS)
    found = lists(client)
    assert len(found) <= 2
    assert found[-1] == ["c:5672"]
    node.pass_ms(10 * INTERVAL_MS)
    assert lists(client) == []


def test_versions_grow_and_begin_with_the_epoch() -> None:
    node = KnownNode()
    client = node.channel()
    bound(client)
    node.pass_ms(INTERVAL_MS)
    node.state("B", place("b"))
    versions = [got(client).properties.headers["qpid.cluster.version"] for _ in range(2)]
    assert versions == [(3 << 32) + 1, (3 << 32) + 2]


def test_other_keys_bring_nothing() -> None:
    node = KnownNode()
    client = node.channel()
    bound(client, key="other")
    node.state("B", place("b"))
    node.pass_ms(INTERVAL_MS)
    assert lists(client) == []


def test_a_queue_that_is_unbound_or_deleted_gets_nothing_more() -> None:
    node = KnownNode()
    client = node.channel()
    bound(client)
    bound(client, "gone")
    client.ask(m.QueueUnbind(0, "q", "amq.qpid", "cluster"), m.QueueUnbindOk)
    client.ask(m.QueueDelete(0, "gone"), m.QueueDeleteOk)
    assert lists(client) == [[]]
    node.pass_ms(INTERVAL_MS)
    node.state("B", place("b"))
    assert lists(client) == []


def test_an_exchange_that_is_bound_passes_the_list_on() -> None:
    node = KnownNode()
    client = node.channel()
    client.ask(m.ExchangeDeclare(0, "x", "fanout"), m.ExchangeDeclareOk)
    declared(client)
    client.ask(m.QueueBind(0, "q", "x", ""), m.QueueBindOk)
    client.ask(m.ExchangeBind(0, "x", "amq.qpid", "cluster"), m.ExchangeBindOk)
    node.pass_ms(0)
    assert lists(client) == [[]]


def test_bindings_that_were_there_before_get_the_list_of_a_node_that_becomes_active() -> None:
    node = KnownNode()
    client = node.channel()
    bound(client)
    lists(client)
    office = node.world.office
    HostNotices(node.hosts, office, node.services.clock, office.timers, 4)
    node.pass_ms(0)
    assert got(client).properties.headers["qpid.cluster.version"] == (4 << 32) + 1


def test_a_full_queue_loses_a_list_and_gets_the_next_one() -> None:
    node = KnownNode()
    client = node.channel()
    declared(client, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    client.ask(m.QueueBind(0, "q", "amq.qpid", "cluster"), m.QueueBindOk)
    node.pass_ms(INTERVAL_MS)
    node.state("B", place("b"))
    assert lists(client) == []


def test_closed_notices_send_nothing() -> None:
    node = KnownNode()
    client = node.channel()
    node.notices.close()
    bound(client)
    assert lists(client) == []


# --- protection ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        m.ExchangeDeclare(0, "amq.qpid", "direct", durable=True),
        m.ExchangeDeclare(0, "amq.qpid", "fanout"),
        m.ExchangeDelete(0, "amq.qpid"),
        m.ExchangeBind(0, "amq.qpid", "amq.direct", "cluster"),
    ],
)
def test_the_exchange_cannot_be_declared_deleted_or_fed(request_: Any) -> None:
    client = KnownNode().channel()
    assert client.code(request_) == 403
    client.ask(m.ExchangeDeclare(0, "amq.qpid", "", passive=True), m.ExchangeDeclareOk)


def test_a_publish_to_the_exchange_is_refused() -> None:
    client = KnownNode().channel()
    bound(client)
    lists(client)
    client.publish("cluster", exchange="amq.qpid")
    assert client.only(m.ChannelClose)[0].reply_code == 403


def test_no_message_comes_through_the_exchange_from_an_alternate_or_a_dead_letter_exchange() -> None:
    client = KnownNode().channel()
    bound(client)
    lists(client)
    arguments = {"alternate-exchange": "amq.qpid"}
    client.ask(m.ExchangeDeclare(0, "x", "direct", arguments=arguments), m.ExchangeDeclareOk)
    client.publish("cluster", exchange="x")
    dead = {"x-dead-letter-exchange": "amq.qpid", "x-dead-letter-routing-key": "cluster"}
    declared(client, "d", arguments=dead)
    client.publish("d")
    client.send(m.BasicGet(0, "d"))
    message, _ = client.only(m.BasicGetOk)
    client.send(m.BasicReject(message.delivery_tag, requeue=False))
    assert client.received() == []
    assert lists(client) == []


def test_frames_of_the_check_are_those_of_a_client() -> None:
    node = KnownNode()
    client = node.amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    decoder = FrameDecoder(8192)
    decoder.receive(b"".join(client.connection.sent))
    assert decoder.next() is not None
