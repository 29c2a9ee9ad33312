"""Interfaces, socket bindings, and the transports and groups that refer to them."""

from __future__ import annotations

import pytest

from understudy.config.model import Configuration
from understudy.config.reading.reader import read_broker_xml
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError

SOCKETS = """
<interface name="public" inet-address="10.0.0.1"/>
<interface name="any" inet-address="0.0.0.0"/>
<socket-binding-group name="standard-sockets" default-interface="public" port-offset="100">
  <socket-binding name="http" port="8080"/>
  <socket-binding name="messaging" port="5445"/>
  <socket-binding name="fixed" port="5446" fixed-port="true" interface="any"/>
  <socket-binding name="group" multicast-address="231.7.7.7" multicast-port="9876"/>
  <outbound-socket-binding name="other" host="10.0.0.2" port="5445"/>
</socket-binding-group>
"""


def read(core: str, sockets: str = SOCKETS, servers: str = "") -> LoadedConfig:
    data = f"<configuration>{sockets}<core><name>n</name>{core}</core>{servers}</configuration>"
    return read_broker_xml(data.encode(), file="broker.xml", base_directory="/srv/node")


def core_of(core: str, sockets: str = SOCKETS) -> Configuration:
    return read(core, sockets).configuration


def acceptor(attributes: str, text: str = "") -> str:
    return f'<acceptors><acceptor name="a" {attributes}>{text}</acceptor></acceptors>'


def connector(attributes: str, text: str = "") -> str:
    return f'<connectors><connector name="c" {attributes}>{text}</connector></connectors>'


@pytest.mark.parametrize(
    ("binding", "place"),
    [("messaging", ("10.0.0.1", 5545)), ("fixed", ("0.0.0.0", 5446)), ("http", ("10.0.0.1", 8180))],
)
def test_an_acceptor_listens_at_its_binding_with_the_offset(binding: str, place: tuple[str, int]) -> None:
    (found,) = core_of(acceptor(f'socket-binding="{binding}"', "?tcpNoDelay=false")).acceptors
    assert (found.host, found.port) == place
    assert found.tcp_no_delay is False
    assert found.http_upgrade is False


@pytest.mark.parametrize(("binding", "url"), [("messaging", "tcp://10.0.0.1:5545"), ("other", "tcp://10.0.0.2:5445")])
def test_a_connector_leads_to_its_binding(binding: str, url: str) -> None:
    assert core_of(connector(f'socket-binding="{binding}"')).connector("c").url == url


def test_an_http_acceptor_and_connector_begin_with_upgrades() -> None:
    found = core_of(
        acceptor('http-listener="default"') + connector('socket-binding="http" endpoint="a" server-name="other"')
    )
    assert found.acceptors[0].http_upgrade is True
    assert found.acceptors[0].port == 8180
    assert found.connector("c").parameters == {
        "httpUpgradeEnabled": True,
        "httpUpgradeEndpoint": "a",
        "activemqServerName": "other",
    }


@pytest.mark.parameter("discovery-group/socket-binding", "broadcast-group/socket-binding")
def test_a_group_of_members_uses_the_multicast_address_of_its_binding() -> None:
    found = core_of(
        '<discovery-groups><discovery-group name="d"><socket-binding>group</socket-binding></discovery-group>'
        "</discovery-groups>"
    )
    carrier = found.discovery_groups[0].carrier
    assert (carrier.group_address, carrier.group_port, carrier.local_bind_address) == ("231.7.7.7", 9876, "10.0.0.1")
    sent = core_of(
        '<broadcast-groups><broadcast-group name="b"><socket-binding>group</socket-binding></broadcast-group>'
        "</broadcast-groups>"
    )
    carrier = sent.broadcast_groups[0].carrier
    assert (carrier.group_address, carrier.group_port, carrier.local_bind_address) == ("231.7.7.7", 9876, "10.0.0.1")


CHANNEL = (
    '<discovery-groups><discovery-group name="d"><jgroups-channel>activemq-cluster</jgroups-channel></discovery-group>'
    "</discovery-groups>"
)


@pytest.mark.parametrize(
    ("sockets", "place"),
    [
        ("", ("230.0.0.4", 45688, None)),
        (SOCKETS.replace('"group"', '"jgroups-udp"'), ("231.7.7.7", 9876, "10.0.0.1")),
    ],
)
def test_a_channel_without_a_file_is_a_multicast_group(sockets: str, place: tuple[str, int, str | None]) -> None:
    carrier = core_of(CHANNEL, sockets).discovery_groups[0].carrier
    assert (carrier.group_address, carrier.group_port, carrier.local_bind_address) == place
    assert carrier.jgroups_channel == "activemq-cluster"


def test_a_cluster_connection_without_members_uses_the_only_channel() -> None:
    cluster = (
        '<cluster-connections><cluster-connection name="c"><connector-ref>c</connector-ref>{}</cluster-connection>'
        "</cluster-connections>"
    )
    common = "<cluster-password>a password of our own</cluster-password>" + connector('socket-binding="messaging"')
    loaded = read(common + cluster.format("") + CHANNEL)
    assert loaded.configuration.cluster_connections[0].discovery_group == "d"
    assert any("members are found by discovery-group 'd'" in str(each) for each in loaded.warnings)
    alone = read(common + cluster.format("<static-connectors/>") + CHANNEL)
    assert alone.configuration.cluster_connections[0].discovery_group is None


def test_a_server_with_the_settings_of_core_has_its_logins_and_permissions() -> None:
    core = (
        "<security-enabled>false</security-enabled><cluster-user>u</cluster-user>"
        "<cluster-password>a password of our own</cluster-password>"
        '<address-settings><address-setting match="#"><max-delivery-attempts>3</max-delivery-attempts>'
        "</address-setting>"
        "</address-settings>"
    )
    paths = "".join(
        f"<{each}-directory>data/b/{each}</{each}-directory>"
        for each in ("bindings", "journal", "large-messages", "paging")
    )
    taken = read(core, servers=f'<server name="b" settings="core">{paths}</server>').server("b")
    assert (taken.security_enabled, taken.cluster_user) == (False, "u")
    assert taken.address_settings[0].max_delivery_attempts == 3
    own = read(core, servers=f'<server name="b">{paths}</server>').server("b")
    assert own.security_enabled is True
    assert own.address_settings == ()


@pytest.mark.parametrize(
    ("core", "sockets", "message"),
    [
        (acceptor('socket-binding="mesaging"'), SOCKETS, "there is no socket-binding 'mesaging' .*'messaging'"),
        (acceptor('socket-binding="messaging"', "tcp://h:1"), SOCKETS, "a socket-binding has the address"),
        (acceptor('socket-binding="messaging" http-listener="default"'), SOCKETS, "exclude each other"),
        (acceptor('socket-binding="group"'), SOCKETS.replace(' default-interface="public"', ""), "has no interface"),
        (connector('socket-binding="fixed"'), SOCKETS, "no other host connects"),
        (connector('endpoint="a"', "tcp://h:1"), SOCKETS, "endpoint is for a connector with a socket-binding"),
        ("", SOCKETS.replace('"public" port', '"nowhere" port'), "there is no interface 'nowhere'"),
        ("", SOCKETS.replace('port="5445"', 'port="65500"', 1), "the port is 65600"),
        ("", SOCKETS.replace(' multicast-port="9876"', ""), "give both"),
        ("", SOCKETS.replace('"messaging"', '"http"'), "'http' stands twice"),
    ],
)
def test_errors_name_the_fault(core: str, sockets: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(core, sockets)


def test_a_missing_binding_is_a_fault_that_a_later_change_can_correct() -> None:
    with pytest.raises(ConfigError) as caught:
        read(acceptor('socket-binding="later"'))
    assert caught.value.names_missing
    with pytest.raises(ConfigError) as caught:
        read(acceptor('socket-binding="later"') + connector("", "tcp://h:0"))
    assert not caught.value.names_missing
