"""Networks of a node from its configuration: connectors, topologies, and the settings of memberships."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.member_link import LinkSettings
from understudy.cluster.membership.membership import MembershipSettings
from understudy.cluster.membership.network import ClusterNetwork
from understudy.cluster.membership.services import ClusterServices
from understudy.cluster.membership.topology import Topology
from understudy.config.high_availability import HighAvailabilityPolicy, ReplicationConfiguration
from understudy.config.model import ClusterConnectionConfiguration, Configuration, ConnectorConfiguration
from understudy.runtime.base.environment import Environment, SystemEntropy
from understudy.runtime.base.node_configuration import NodeConfiguration
from understudy.runtime.base.turn import Turn
from understudy.runtime.members.networks import make_networks, membership_settings
from understudy.testing.manual_time import ManualTime
from understudy.tls.settings import TlsSettings
from understudy.wire.core.peer import PeerOptions
from understudy.wire.core.transport import TransportConfiguration

CONFIGURATION = Configuration(
    connectors=(
        ConnectorConfiguration("own", "a", 1),
        ConnectorConfiguration("other", "a", 2, TlsSettings(sni_host="x"), {"sslEnabled": True}),
        ConnectorConfiguration("peer", "b", 1),
        ConnectorConfiguration("third", "c", 1),
    ),
    cluster_connections=(
        ClusterConnectionConfiguration("one", "own", ("peer",)),
        ClusterConnectionConfiguration("two", "other", ("third",)),
        ClusterConnectionConfiguration("three", "own", ("third", "peer")),
    ),
)
CHANGED = ClusterConnectionConfiguration(
    "c",
    "own",
    allow_direct_connections_only=True,
    check_period_ms=1,
    connection_ttl_ms=2,
    call_timeout_ms=3,
    retry_interval_ms=4,
    retry_interval_multiplier=1.5,
    max_retry_interval_ms=6,
    initial_connect_attempts=7,
    reconnect_attempts=8,
    topology_scanner_attempts=9,
    notification_interval_ms=10,
    notification_attempts=11,
)


def make(configuration: Configuration = CONFIGURATION) -> tuple[ClusterNetwork, ...]:
    async def build() -> tuple[ClusterNetwork, ...]:
        time, loop = ManualTime(), asyncio.get_running_loop()
        node = NodeConfiguration(configuration, cast(Environment, None))
        return make_networks(node, ClusterCredentials("u", "p", SystemEntropy()), loop, time, Turn(loop, time))

    return asyncio.run(build())


def test_every_parameter_is_a_setting_of_the_membership() -> None:
    policy = HighAvailabilityPolicy(replication=ReplicationConfiguration(group_name="fish"))
    settings = membership_settings(replace(CONFIGURATION, ha_policy=policy), [CHANGED])
    assert settings == MembershipSettings(
        link=LinkSettings(4, 1.5, 6, PeerOptions(connection_ttl_ms=2, check_period_ms=1, call_timeout_ms=3)),
        initial_connect_attempts=7,
        reconnect_attempts=8,
        topology_scanner_attempts=9,
        notification_interval_ms=10,
        notification_attempts=11,
        direct_connections_only=True,
        group="fish",
    )


def test_the_defaults_are_those_of_a_cluster_connection() -> None:
    settings = membership_settings(CONFIGURATION, [ClusterConnectionConfiguration("c", "own")])
    assert settings == MembershipSettings(link=LinkSettings(peer=PeerOptions(60_000, 30_000, 30_000)))


def test_of_several_with_one_connector_the_first_decides_and_all_must_be_direct() -> None:
    one, other = replace(CHANGED, name="one"), ClusterConnectionConfiguration("other", "own")
    assert membership_settings(CONFIGURATION, [one, other]) == replace(
        membership_settings(CONFIGURATION, [one]), direct_connections_only=False
    )
    assert not membership_settings(CONFIGURATION, [other, one]).direct_connections_only


def test_each_own_connector_has_a_topology_and_links_to_the_members_of_its_cluster_connections() -> None:
    first, second = make()
    assert (first.connections, second.connections) == (("one", "three"), ("two",))
    assert (first.connector.to_url(), second.connector.name) == ("tcp://a:1", "other")
    assert first.topology is not second.topology
    for network, hosts in ((first, {"b", "c"}), (second, {"c"})):
        network.topology.set_primary("node", network.connector, 1)
        asked: list[str] = []
        network.membership._dialer = Recorder(asked)
        network.membership.watch("node")
        assert set(asked) == hosts


class Recorder:
    """Keeps the hosts that are dialled. Implements ``wire.core.peer.Dialer``."""

    def __init__(self, hosts: list[str]) -> None:
        self._hosts = hosts

    def dial(self, target: TransportConfiguration, link: object) -> None:
        self._hosts.append(target.host)


def test_services_of_a_cluster_connection_have_its_topology() -> None:
    networks = make()
    services = ClusterServices(networks[1].topology, networks=networks)
    assert services.of(None).topology is networks[0].topology
    for name, network in (("one", networks[0]), ("two", networks[1]), ("three", networks[0])):
        assert services.of(name).topology is network.topology
        assert services.of(name).dialer is network.dialer
    alone = ClusterServices(Topology())
    assert alone.of(None) is alone


def test_members_are_dialled_with_the_tls_settings_of_the_own_connector_of_their_network() -> None:
    node = NodeConfiguration(CONFIGURATION, cast(Environment, None))
    announced = TransportConfiguration.from_url("tcp://d:1?sslEnabled=true")
    assert node.tls_for(announced, own_name="other") == TlsSettings(sni_host="x")
    assert node.tls_for(announced, own_name="own") == node.tls_for(announced) == TlsSettings()


def test_the_pair_uses_the_cluster_connection_that_its_replication_names() -> None:
    policy = HighAvailabilityPolicy(replication=ReplicationConfiguration(cluster_name="two"))
    node = NodeConfiguration(replace(CONFIGURATION, ha_policy=policy), cast(Environment, None))
    own = node.own_connector()
    assert own is not None
    assert own.name == "other"
