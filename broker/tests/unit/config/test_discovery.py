"""The elements of broadcast and discovery groups."""

from __future__ import annotations

import pytest

from understudy.config.changes import changes
from understudy.config.discovery import BroadcastGroupConfiguration, CarrierConfiguration, DiscoveryGroupConfiguration
from understudy.config.reading.reader import read_broker_xml
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError

CONNECTORS = (
    "<connectors><connector name='a'>tcp://h:1</connector><connector name='b'>tcp://h:2</connector></connectors>"
)
GROUP = "<group-address>231.7.7.7</group-address><group-port>9876</group-port>"


def read(body: str) -> LoadedConfig:
    data = f"<configuration><core>\n{CONNECTORS}\n{body}</core></configuration>".encode()
    return read_broker_xml(data, file="broker.xml", base_directory="/srv/node")


def broadcast(inside: str, connectors: str = "<connector-ref>a</connector-ref>") -> str:
    return f"<broadcast-groups><broadcast-group name='b'>{inside}{connectors}</broadcast-group></broadcast-groups>"


def discovery(inside: str) -> str:
    return f"<discovery-groups><discovery-group name='d'>{inside}</discovery-group></discovery-groups>"


def test_defaults() -> None:
    found = read(broadcast(GROUP) + discovery(GROUP)).configuration
    carrier = CarrierConfiguration(None, -1, "231.7.7.7", 9876)
    assert found.broadcast_groups == (BroadcastGroupConfiguration("b", carrier, ("a",), 2_000),)
    assert found.discovery_groups == (DiscoveryGroupConfiguration("d", carrier, 10_000, 10_000),)


@pytest.mark.parameter(
    "broadcast-group/name",
    "broadcast-group/local-bind-address",
    "broadcast-group/local-bind-port",
    "broadcast-group/group-address",
    "broadcast-group/group-port",
    "broadcast-group/broadcast-period",
    "broadcast-group/connector-ref",
    "discovery-group/name",
    "discovery-group/local-bind-address",
    "discovery-group/local-bind-port",
    "discovery-group/group-address",
    "discovery-group/group-port",
    "discovery-group/refresh-timeout",
    "discovery-group/initial-wait-timeout",
)
def test_all_elements() -> None:
    more = f"{GROUP}<local-bind-address>10.0.0.1</local-bind-address><local-bind-port>5432</local-bind-port>"
    two = "<connector-ref>a</connector-ref><connector-ref>b</connector-ref>"
    times = "<refresh-timeout>1</refresh-timeout><initial-wait-timeout>2</initial-wait-timeout>"
    loaded = read(broadcast(f"{more}<broadcast-period>3</broadcast-period>", two) + discovery(more + times))
    found = loaded.configuration
    carrier = CarrierConfiguration("10.0.0.1", 5432, "231.7.7.7", 9876)
    assert found.broadcast_groups == (BroadcastGroupConfiguration("b", carrier, ("a", "b"), 3),)
    assert found.discovery_groups == (DiscoveryGroupConfiguration("d", carrier, 1, 2),)
    assert loaded.warnings == ()


@pytest.mark.parameter("discovery-group/jgroups-file", "discovery-group/jgroups-channel")
def test_a_jgroups_stack_is_named_relative_to_etc() -> None:
    inside = "<jgroups-file>stack.xml</jgroups-file><jgroups-channel>cluster</jgroups-channel>"
    found = read(discovery(inside)).configuration.discovery_groups[0].carrier
    assert (found.jgroups_file, found.jgroups_channel) == ("/srv/node/etc/stack.xml", "cluster")


def test_a_group_is_either_a_multicast_address_or_a_jgroups_stack() -> None:
    inside = "<jgroups-file>stack.xml</jgroups-file><jgroups-channel>cluster</jgroups-channel>"
    assert "group-address and jgroups-file exclude each other" in str(fails(discovery(GROUP + inside)))


def test_the_reserved_address_is_refused() -> None:
    group = "<group-address>224.0.0.0</group-address><group-port>9876</group-port>"
    assert "224.0.0.0 is reserved" in str(fails(discovery(group)))


def test_a_group_without_connectors_is_warned_of() -> None:
    (warning,) = read(broadcast(GROUP, "")).warnings
    assert "names no connector" in str(warning)


def fails(body: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(body)
    return caught.value


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (broadcast("<group-port>1</group-port>"), "group-address is missing"),
        (discovery("<group-address>231.7.7.7</group-address>"), "group-port is missing"),
        (discovery(GROUP.replace("231.7.7.7", "10.0.0.1")), "'10.0.0.1' is no multicast address"),
        (discovery(GROUP.replace("231.7.7.7", "group.example")), "no multicast address"),
        (discovery(GROUP.replace("9876", "70000")), "70000 is outside"),
        (discovery(GROUP + "<local-bind-address>::1</local-bind-address>"), "'::1' is no such address"),
        (broadcast(GROUP + "<local-bind-port>0</local-bind-port>"), "0 is no port"),
        (broadcast(GROUP + "<broadcast-period>0</broadcast-period>"), "0 is outside"),
        (discovery(GROUP + "<refresh-timeout>0</refresh-timeout>"), "0 is outside"),
        (broadcast(GROUP, "<connector-ref>c</connector-ref>"), "there is no connector 'c'"),
        (discovery("<jgroups-file>f.xml</jgroups-file>"), "jgroups-channel is missing"),
    ],
)
def test_errors_name_the_place(body: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(body)
    assert text in str(caught.value)
    assert caught.value.line == 3


def test_a_changed_group_needs_a_restart() -> None:
    before, after = read(discovery(GROUP)), read(discovery(GROUP.replace("9876", "9877")))
    change = changes(before.configuration, after.configuration)
    assert change.restart == ("discovery-groups/discovery-group[@name='d']",)
