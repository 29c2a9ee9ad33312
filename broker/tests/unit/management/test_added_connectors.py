"""Goal: connectors that management adds serve bridges, are kept without plain passwords, and never hide broker.xml."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.core import CoreNode
from support.managed import Listener, ManagedWorld
from understudy.cluster.bridges.bridges import Bridges
from understudy.cluster.membership.connectors import Connectors
from understudy.cluster.membership.services import ClusterServices
from understudy.config.added_connector import mask_passwords
from understudy.config.model import Configuration, ConnectorConfiguration
from understudy.store.setting_record import SettingKind

CONFIGURATION: dict[str, Any] = {
    "connectors": (ConnectorConfiguration("c", "there", 61616),),
    "cluster_password": "a password of our own",
}
BRIDGE = {"name": "b", "queue-name": "q", "static-connectors": ["added"], "user": "u", "password": "p"}


def managed() -> ManagedWorld:
    return ManagedWorld(configuration=CONFIGURATION)


def again(node: ManagedWorld, configuration: dict[str, Any] | None = None) -> Bridges:
    """The bridges of the next activation over the same log."""
    next_node, wanted = CoreNode(world=node.world), Configuration(**(configuration or CONFIGURATION))
    cluster = ClusterServices(next_node.topology, connectors=Connectors(wanted.connectors))
    return Bridges(wanted, cluster, next_node.services, node.world.clock, Listener())  # type: ignore[arg-type]


def names(node: ManagedWorld) -> list[str]:
    return [each["name"] for each in json.loads(node.ask("broker", "getConnectorsAsJSON"))]


def test_a_bridge_uses_an_added_connector_now_and_after_the_next_activation() -> None:
    node = managed()
    assert "there is no connector 'added'" in node.refused("broker", "createBridge", json.dumps(BRIDGE))
    node.ask("broker", "addConnector", "added", "tcp://192.0.2.7:61617?tcpNoDelay=false")
    assert names(node) == ["c", "added"]
    node.ask("broker", "createBridge", json.dumps(BRIDGE))
    bridges = again(node)
    assert [*bridges.by_name] == ["b"]
    (found,) = (each for each in bridges.connectors.all() if each.name == "added")
    assert (found.host, found.port, found.parameters) == ("192.0.2.7", 61617, {"tcpNoDelay": False})


def test_a_removed_connector_is_gone_now_and_after_the_next_activation() -> None:
    node = managed()
    node.ask("broker", "addConnector", "added", "tcp://192.0.2.7:61617")
    node.ask("broker", "removeConnector", "added")
    assert names(node) == ["c"]
    assert [each.name for each in again(node).connectors.all()] == ["c"]
    assert "there is no connector 'added'" in node.refused("broker", "removeConnector", "added")
    node.ask("broker", "addConnector", "added", "tcp://192.0.2.8:61617")
    assert names(node) == ["c", "added"]


def test_broker_xml_comes_first(caplog: pytest.LogCaptureFixture) -> None:
    node = managed()
    node.ask("broker", "addConnector", "added", "tcp://192.0.2.7:61617")
    configured = (*CONFIGURATION["connectors"], ConnectorConfiguration("added", "elsewhere", 1))
    connectors = again(node, CONFIGURATION | {"connectors": configured}).connectors.all()
    assert [(each.name, each.host) for each in connectors] == [("c", "there"), ("added", "elsewhere")]
    assert "a connector of broker.xml replaces an added one" in caplog.text


def test_the_log_has_no_plain_password() -> None:
    node = managed()
    url = "tcp://192.0.2.7:61617?sslEnabled=true;trustStorePath=ca.pem;trustStoreType=PEM;trustStorePassword=secret;a=b"
    node.ask("broker", "addConnector", "added", url)
    (record,) = (each for key, each in node.world.store.found().settings.items() if key[0] is SettingKind.CONNECTOR)
    assert "secret" not in str(record.values)
    assert str(record.values).count("ENC(") == 1
    assert "secret" not in str(node.ask("broker", "getConnectorsAsJSON"))
    (found,) = (each for each in again(node).connectors.all() if each.name == "added")
    assert found.tls is not None


def test_masked_and_empty_passwords_stay() -> None:
    url = "tcp://h:1?keyStorePassword=ENC(1f);trustStorePassword=&a=b"
    assert mask_passwords(url) == url


@pytest.mark.parametrize(
    ("operation", "parameters", "text"),
    [
        ("addConnector", ("c", "tcp://h:1"), "there is a connector 'c'"),
        ("addConnector", ("", "tcp://h:1"), "a connector needs a name"),
        ("addConnector", ("x", "h"), "'h' is no URL"),
        ("addConnector", ("x", "vm://0"), "no transports inside a virtual machine here"),
        ("addConnector", ("x", "tcp://h:0"), "port 0"),
        ("addConnector", ("x", "</connector><connector name='y'>tcp://h:1"), "is not served"),
        ("addConnector", ('x" y="', "tcp://h:1" + "?a=" + "b" * 70_000), "limit 65536"),
        ("removeConnector", ("c",), "is one of broker.xml"),
        ("removeConnector", ("x",), "there is no connector 'x'"),
    ],
)
def test_wrong_requests_change_nothing(operation: str, parameters: tuple[str, ...], text: str) -> None:
    node = managed()
    assert text in node.refused("broker", operation, *parameters)
    assert names(node) == ["c"]
    assert [each.name for each in again(node).connectors.all()] == ["c"]
