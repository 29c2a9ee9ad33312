"""Goal: bridges that management creates run, are kept by the log, and end when they are destroyed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.bridged import Listener
from support.core import CoreNode
from support.managed import ManagedWorld
from understudy.cluster.bridges.bridges import Bridges
from understudy.cluster.membership.connectors import Connectors
from understudy.cluster.membership.services import ClusterServices
from understudy.config.bridge import BridgeConfiguration, BridgeTarget
from understudy.config.model import Configuration, ConnectorConfiguration
from understudy.store.setting_record import SettingKind
from understudy.terms import ADD_HEADERS_TRANSFORMER

CONFIGURATION: dict[str, Any] = {
    "connectors": (ConnectorConfiguration("c", "there", 61616), ConnectorConfiguration("d", "there", 61617)),
    "cluster_password": "a password of our own",
}
BRIDGE = {"name": "b", "queue-name": "q", "static-connectors": ["c"], "user": "u", "password": "secret of u"}


def managed(**more: Any) -> ManagedWorld:
    return ManagedWorld(configuration=CONFIGURATION | more)


def create(node: ManagedWorld, **more: object) -> None:
    node.ask("broker", "createBridge", json.dumps(BRIDGE | {name.replace("_", "-"): more[name] for name in more}))


def again(node: ManagedWorld, configuration: dict[str, Any] | None = None) -> Bridges:
    """The bridges of the next activation over the same log."""
    next_node = CoreNode(world=node.world)
    wanted = Configuration(**(configuration or CONFIGURATION))
    cluster = ClusterServices(next_node.topology, connectors=Connectors(wanted.connectors))
    return Bridges(wanted, cluster, next_node.services, node.world.clock, Listener())  # type: ignore[arg-type]


def test_a_bridge_is_created_started_and_found_after_the_next_activation() -> None:
    node = managed()
    create(node, forwarding_address="t", concurrency=2)
    assert node.ask("broker", "getBridgeNames") == ["b-0", "b-1"]
    assert node.ask("bridge.b-0", "isStarted") is True
    assert node.ask("bridge.b-1", "getForwardingAddress") == "t"
    found = again(node).by_name
    assert [*found] == ["b-0", "b-1"]
    assert found["b-0"].configuration.target == BridgeTarget(("c",), user="u", password="secret of u")


def test_the_log_has_no_plain_password() -> None:
    node = managed()
    create(node)
    (record,) = (each for key, each in node.world.store.found().settings.items() if key[0] is SettingKind.BRIDGE)
    assert "secret" not in str(record.values)
    assert str(record.values["password"]).startswith("ENC(")


def test_forms_with_a_parameter_for_each_value() -> None:
    node = managed()
    retries = (7, 1.5, 3, 4, True, 1024)
    rest = (30_000, "c, d", False, True, "u", "p")
    java = ADD_HEADERS_TRANSFORMER
    node.ask("broker", "createBridge", "one", "q", "t", "n = 1", None, *retries, 2048, *rest)
    node.ask("broker", "createBridge", "two", "q", None, None, java, '{"k": "v"}', *retries, 2048, *rest)
    node.ask("broker", "createBridge", "three", "q", None, None, java, {"k": "w"}, *retries, 2048, *rest)
    node.ask("broker", "createBridge", "four", "q", None, "", "", *retries, *rest)
    bridges = node.managed.bridges
    assert bridges is not None
    found = {name: bridge.configuration for name, bridge in bridges.by_name.items()}
    one = found["one"]
    assert (one.forwarding_address, one.filter, one.transformer_class_name) == ("t", "n = 1", None)
    assert (one.connection.retry_interval_ms, one.connection.initial_connect_attempts) == (7, 3)
    assert (one.connection.retry_interval_multiplier, one.connection.reconnect_attempts) == (1.5, 4)
    assert (one.confirmation_window_size_bytes, one.producer_window_size_bytes) == (1024, 2048)
    assert (one.target.static_connectors, one.target.ha, one.target.user) == (("c", "d"), True, "u")
    assert (found["two"].transformer_properties, found["three"].transformer_properties) == ({"k": "v"}, {"k": "w"})
    assert found["four"].producer_window_size_bytes == 1 << 20
    assert json.loads(node.ask("bridge.two", "getTransformerPropertiesAsJSON")) == {"k": "v"}


def test_a_destroyed_bridge_is_gone_now_and_after_the_next_activation() -> None:
    node = managed()
    create(node, concurrency=2)
    node.ask("broker", "destroyBridge", "b")
    assert node.ask("broker", "getBridgeNames") == []
    assert not again(node).by_name
    assert "there is no bridge 'b'" in node.refused("broker", "destroyBridge", "b")
    create(node)
    assert node.ask("broker", "getBridgeNames") == ["b"]


def test_a_bridge_of_broker_xml_is_there_again_after_the_next_activation() -> None:
    configured = {"bridges": (BridgeConfiguration("xml", "q", BridgeTarget(("c",))),)}
    node = managed(**configured)
    node.ask("broker", "destroyBridge", "xml")
    assert node.ask("broker", "getBridgeNames") == []
    assert [*again(node, CONFIGURATION | configured).by_name] == ["xml"]


def test_broker_xml_comes_first_and_unusable_bridges_are_left_aside(caplog: pytest.LogCaptureFixture) -> None:
    node = managed()
    create(node)
    configured = {"bridges": (BridgeConfiguration("b", "other", BridgeTarget(("c",))),)}
    assert again(node, CONFIGURATION | configured).by_name["b"].configuration.queue_name == "other"
    assert "replaces one that management created" in caplog.text
    assert not again(node, CONFIGURATION | {"connectors": ()}).by_name
    assert "left aside" in caplog.text
    # with its connector it is there again
    assert [*again(node).by_name] == ["b"]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (("{",), "not valid JSON"),
        (("[]",), "not a JSON object"),
        (('{"name": "b"}',), "queue-name is required"),
        ((json.dumps(BRIDGE | {"static-connectors": ["x"]}),), "there is no connector 'x'"),
        ((json.dumps(BRIDGE | {"name": "taken"}),), "there is a bridge 'taken'"),
        ((json.dumps(BRIDGE | {"name": "x" * 70_000}),), "limit 65536"),
        (("b", "q", None, None, "x", "{", 1, 1.0, 1, 1, True, 1, 1, 1, "c", False, False, "u", "p"), "not valid JSON"),
        (
            ("b", "q", None, None, None, 1, 1.0, 1, 1, True, 1, 1, "g", True, False, None, None),
            "no discovery-group 'g'",
        ),
    ],
)
def test_wrong_requests_create_nothing(parameters: tuple[object, ...], text: str) -> None:
    node = managed()
    create(node, name="taken")
    assert text in node.refused("broker", "createBridge", *parameters)
    assert node.ask("broker", "getBridgeNames") == ["taken"]
    assert [*again(node).by_name] == ["taken"]
