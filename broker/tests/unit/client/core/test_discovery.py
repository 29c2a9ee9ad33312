"""Datagrams of brokers: accepted announcements, and datagrams that are dropped without cost."""

from __future__ import annotations

import pytest

from understudy.client.core.connection.discovery import Discovery, check_trust
from understudy.client.core.url.options import ClientOptions, Connector, DiscoveryGroup, TlsOptions
from understudy.errors import ConfigError, LimitExceeded, ProtocolError
from understudy.limits import BROADCAST_BYTES_MAX, BROADCAST_CONNECTORS_MAX, BROADCAST_NODES_MAX
from understudy.wire.core.broadcast import Broadcast
from understudy.wire.core.transport import TransportConfiguration

GROUP = DiscoveryGroup("231.7.7.7", refresh_timeout_ms=1000)


def connector(host: str, **more: str) -> TransportConfiguration:
    return TransportConfiguration("c", parameters={"host": host, "port": "5", **more})


def datagram(node_id: str = "n", host: str = "a", unique: str = "u", **more: str) -> bytes:
    return Broadcast(node_id, unique, (connector(host, **more),)).encode()


class Listening:
    def __init__(self, template: Connector | None = None) -> None:
        self.lines: list[str] = []
        self.discovery = Discovery(GROUP, template or Connector("", 0), self.lines.append)

    def hosts(self, now_ms: int) -> list[str]:
        return [each.host for each in self.discovery.connectors(now_ms)]


def test_a_broadcast_is_decoded_with_zeros_after_it() -> None:
    sent = Broadcast("node", "broadcaster", (connector("a"), connector("b")))
    assert Broadcast.decode(sent.encode()) == sent
    assert Broadcast.decode(sent.encode() + bytes(3000)) == sent, "Java sends its whole buffer"


@pytest.mark.parameter("client/refreshTimeout")
def test_entries_are_refreshed_and_forgotten() -> None:
    listening = Listening()
    assert listening.discovery.receive(datagram("1", "a"), 0)
    assert listening.discovery.receive(datagram("2", "b"), 500)
    assert listening.hosts(999) == ["a", "b"]
    assert listening.hosts(1000) == ["b"]
    listening.discovery.receive(datagram("2", "c"), 1400)
    assert listening.hosts(2000) == ["c"]


def test_the_last_connector_of_a_node_wins() -> None:
    listening = Listening()
    listening.discovery.receive(Broadcast("1", "u", (connector("a"), connector("b"))).encode(), 0)
    assert listening.hosts(0) == ["b"]


def test_two_broadcasters_of_one_node_give_a_warning() -> None:
    listening = Listening()
    listening.discovery.receive(datagram(unique="u"), 0)
    listening.discovery.receive(datagram(unique="v"), 0)
    assert any("same node id" in line for line in listening.lines)


@pytest.mark.parametrize("cut", range(len(datagram())))
def test_a_cut_off_datagram_is_counted_and_told_once(cut: int) -> None:
    listening = Listening()
    for _ in range(2):
        assert not listening.discovery.receive(datagram()[:cut], 0)
    assert (listening.discovery.refused, len(listening.lines)) == (2, 1)


def test_limits() -> None:
    with pytest.raises(LimitExceeded):
        Broadcast.decode(bytes(BROADCAST_BYTES_MAX + 1))
    with pytest.raises(ProtocolError):
        Broadcast.decode(Broadcast("n", "u", (connector("a"),) * (BROADCAST_CONNECTORS_MAX + 1)).encode())
    listening = Listening()
    for number in range(BROADCAST_NODES_MAX + 50):
        listening.discovery.receive(datagram(str(number), f"h{number}"), 0)
    assert len(listening.hosts(0)) == BROADCAST_NODES_MAX


def test_a_connector_without_a_host_is_no_place() -> None:
    listening = Listening()
    assert not listening.discovery.receive(Broadcast("1", "u", (TransportConfiguration("c"),)).encode(), 0)
    assert not listening.discovery.receive(datagram(port="99999"), 0)
    assert listening.hosts(0) == []


def test_our_tls_holds_whatever_a_datagram_says() -> None:
    own = Connector("", 0, TlsOptions(trust_store_path="/ca.pem"))
    listening = Listening(own)
    listening.discovery.receive(datagram(sslEnabled="false"), 0)
    (found,) = listening.discovery.connectors(0)
    assert found.tls == own.tls


def test_a_password_is_sent_only_to_a_proven_broker() -> None:
    plain = Connector("a", 1)
    proven = Connector("a", 1, TlsOptions())
    for unproven in (
        plain,
        Connector("a", 1, TlsOptions(trust_all=True)),
        Connector("a", 1, TlsOptions(verify_host=False)),
    ):
        with pytest.raises(ConfigError, match="datagram"):
            check_trust((proven, unproven), ClientOptions(), "secret")
        check_trust((unproven,), ClientOptions(), None)
        check_trust((unproven,), ClientOptions(trust_discovery=True), "secret")
    check_trust((proven,), ClientOptions(), "secret")
