"""The groups of a node, made from its configuration."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from understudy.cluster.discovery.carriers import (
    AnnouncementDirectory,
    Carrier,
    Endpoint,
    MemberList,
    Multicast,
    Receive,
)
from understudy.config.discovery import BroadcastGroupConfiguration, CarrierConfiguration, DiscoveryGroupConfiguration
from understudy.config.model import ClusterConnectionConfiguration, Configuration, ConnectorConfiguration
from understudy.errors import ConfigError
from understudy.runtime.base.environment import system_environment
from understudy.runtime.base.node_configuration import NodeConfiguration
from understudy.runtime.base.turn import Turn
from understudy.runtime.members.discovery import NodeDiscovery, carrier_of, make_discovery
from understudy.testing.manual_time import ManualTime
from understudy.wire.core.broadcast import Broadcast
from understudy.wire.core.transport import TransportConfiguration

GROUP = CarrierConfiguration(group_address="231.7.7.7", group_port=9876)


class Silent:
    """A carrier that keeps sent datagrams; implements ``Endpoint``."""

    def __init__(self) -> None:
        self.receive: Receive = lambda data, source: None
        self.sent: list[Broadcast] = []

    def listen(self, receive: Receive) -> None:
        self.receive = receive

    def open_sender(self) -> None:
        """Nothing to open."""

    def send(self, datagram: bytes, name: str) -> None:
        self.sent.append(Broadcast.decode(datagram))

    def close_sender(self) -> None:
        """Nothing to close."""

    def close(self) -> None:
        """Nothing to close."""


def make(carrier: CarrierConfiguration = GROUP, **parameters: str) -> tuple[NodeDiscovery, list[Silent]]:
    """The groups of a node with connector ``core``, and the carriers that were opened."""
    made: list[Silent] = []

    def endpoint(carrier: Carrier, turn: Turn) -> Endpoint:
        made.append(Silent())
        return made[-1]

    async def build() -> NodeDiscovery:
        loop = asyncio.get_running_loop()
        time = ManualTime()
        environment = replace(system_environment(loop), discovery_endpoint=endpoint, clock=time, timers=time)
        configuration = Configuration(
            connectors=(ConnectorConfiguration("core", "h", 1, parameters=dict(parameters)),),
            cluster_connections=(ClusterConnectionConfiguration("c", "core", discovery_group="d"),),
            broadcast_groups=(BroadcastGroupConfiguration("b", carrier, ("core",)),),
            discovery_groups=(
                DiscoveryGroupConfiguration("d", carrier),
                DiscoveryGroupConfiguration("unused", carrier),
            ),
        )
        found = make_discovery(
            NodeConfiguration(configuration, environment), environment, Turn(loop, environment.timers)
        )
        found.start()
        found.broadcast("own-node")
        return found

    return asyncio.run(build()), made


def heard(found: NodeDiscovery, carrier: Silent, **parameters: str) -> TransportConfiguration:
    other = TransportConfiguration("x", parameters={"host": "h", "port": "2", **parameters})
    carrier.receive(Broadcast("other", "u", (other,)).encode(), "10.0.0.2")
    (connector,) = found.connectors("d")
    return connector


@pytest.mark.parameter("cluster-connection/discovery-group-ref/discovery-group-name", "discovery-group/name")
def test_only_groups_of_cluster_connections_are_opened() -> None:
    found, carriers = make()
    assert list(found.groups) == ["d"]
    assert len(carriers) == 2
    assert heard(found, carriers[0]).port == 2
    assert found.connectors("unused") == found.connectors(None) == []
    assert found.groups["d"].entries.own_node_id == "own-node"
    found.stop_broadcasting()
    assert found.groups["d"].entries.own_node_id is None


def test_passwords_are_not_broadcast() -> None:
    _, carriers = make(sslEnabled="true", trustStorePath="/t.pem", trustStorePassword="secret", keyStorePath="/k.pem")
    ((connector,),) = (each.connectors for each in carriers[1].sent)
    assert connector.parameters == {"host": "h", "port": "1", "sslEnabled": "true", "trustStorePath": "/t.pem"}


@pytest.mark.parametrize(("own", "expected"), [({}, False), ({"sslEnabled": "true"}, True)])
def test_a_broadcast_does_not_switch_tls_off(own: dict[str, str], expected: bool) -> None:
    found, carriers = make(**own)
    assert (heard(found, carriers[0]).parameters.get("sslEnabled") == "true") is expected


def test_a_list_of_members_is_opened_once(tmp_path: Path) -> None:
    stack = tmp_path / "stack.xml"
    stack.write_text('<config><TCP/><TCPPING initial_hosts="a[7800]"/></config>')
    _, carriers = make(CarrierConfiguration(jgroups_file=str(stack), jgroups_channel="c"))
    assert len(carriers) == 1


@pytest.mark.parameter(
    "broadcast-group/local-bind-address",
    "broadcast-group/local-bind-port",
    "broadcast-group/group-address",
    "broadcast-group/group-port",
    "broadcast-group/jgroups-file",
    "broadcast-group/jgroups-channel",
    "discovery-group/local-bind-address",
    "discovery-group/local-bind-port",
    "discovery-group/group-address",
    "discovery-group/group-port",
    "discovery-group/jgroups-file",
    "discovery-group/jgroups-channel",
)
def test_carriers_of_the_configuration(tmp_path: Path) -> None:
    full = CarrierConfiguration("10.0.0.1", 5432, "231.7.7.7", 9876)
    assert carrier_of(full) == Multicast("231.7.7.7", 9876, "10.0.0.1", 5432)
    stack = tmp_path / "stack.xml"
    of_stack = CarrierConfiguration(jgroups_file=str(stack), jgroups_channel="c")
    with pytest.raises(ConfigError, match="cannot be read"):
        carrier_of(of_stack)
    stack.write_text('<config><TCP/><TCPPING initial_hosts="a[7800]"/></config>')
    assert isinstance(carrier_of(of_stack), MemberList)
    stack.write_text('<config><TCP/><FILE_PING location="/x"/></config>')
    assert carrier_of(of_stack) == AnnouncementDirectory("/x", "c")
