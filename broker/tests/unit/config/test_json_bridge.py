"""Bridges as JSON values: the names of Artemis, and errors that name the value."""

from __future__ import annotations

import json
import re

import pytest

from understudy.config.bridge import BridgeConfiguration, BridgeConnection, BridgeTarget
from understudy.config.json_bridge import parse_bridge
from understudy.config.model import AcceptorConfiguration, Configuration, ConnectorConfiguration
from understudy.terms import ADD_HEADERS_TRANSFORMER

NODE = Configuration(
    connectors=(ConnectorConfiguration("c", "there", 61616), ConnectorConfiguration("self", "127.0.0.1", 1)),
    acceptors=(AcceptorConfiguration("a", "127.0.0.1", 1),),
    cluster_password="a password of our own",
)
LEAST = {"name": "b", "queue-name": "q", "static-connectors": ["c"]}


def test_defaults_are_those_of_broker_xml() -> None:
    assert parse_bridge(LEAST, NODE) == BridgeConfiguration("b", "q", BridgeTarget(("c",)))


def test_every_name_is_read_as_a_value_and_as_a_text() -> None:
    values = LEAST | {
        "forwarding-address": "t", "filter-string": "n = 1", "ha": True, "retry-interval": 3,
        "retry-interval-multiplier": 1.5, "initial-connect-attempts": 5, "reconnect-attempts": 6,
        "reconnect-attempts-on-same-node": 7, "use-duplicate-detection": False, "confirmation-window-size": 2048,
        "producer-window-size": -1, "client-failure-check-period": 1, "user": "u", "password": "p",
        "connection-ttl": 2, "max-retry-interval": 4, "min-large-message-size": 1024, "call-timeout": 30000,
        "routing-type": "STRIP", "concurrency": 2, "configuration-managed": True, "pending-ack-timeout": 8,
        "client-id": "id",
        "transformer-configuration": {"class-name": ADD_HEADERS_TRANSFORMER, "properties": {"k": "v"}},
    }  # fmt: skip
    found = parse_bridge(values, NODE)
    assert found == BridgeConfiguration(
        "b", "q", BridgeTarget(("c",), None, True, "u", "p", "id"), BridgeConnection(1, 2, 3, 1.5, 4, 5, 6, 7, 8),
        "t", "n = 1", ADD_HEADERS_TRANSFORMER, {"k": "v"}, 1_024, False, 2_048, -1, "STRIP", 2,
    )  # fmt: skip
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    assert parse_bridge(texts, NODE) == found


def test_null_and_empty_are_absent() -> None:
    values = LEAST | {"forwarding-address": "", "user": None, "password": "", "filter-string": None}
    assert parse_bridge(values, NODE) == parse_bridge(LEAST, NODE)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": None}, "name is required"),
        ({"queue-name": ""}, "queue-name is required"),
        ({"colour": "red"}, "unknown name 'colour'"),
        ({"check-period": 1}, "unknown name 'check-period'"),
        ({"retry-interval": "soon"}, "retry-interval: "),
        ({"retry-interval": [1]}, "retry-interval: [1] is no"),
        ({"ha": "perhaps"}, "ha: 'perhaps' is neither true nor false"),
        ({"routing-type": "ANY"}, "routing-type: 'ANY' is not one of"),
        ({"static-connectors": ["missing"]}, "there is no connector 'missing'"),
        ({"static-connectors": "[1]"}, "a list of names is required"),
        ({"static-connectors": "c"}, "is no JSON"),
        ({"static-connectors": []}, "static-connectors or discovery-group-ref is required"),
        ({"discovery-group-name": "g"}, "there is no discovery-group 'g'"),
        ({"filter-string": "n ="}, "filter-string: "),
        ({"transformer-configuration": {"class-name": "x.Y"}}, "class 'x.Y' cannot be loaded here"),
        ({"transformer-configuration": {"properties": {}}}, "class-name and properties are required"),
        ({"transformer-configuration": {"class-name": ADD_HEADERS_TRANSFORMER, "properties": 1}}, "are no object"),
        ({"user": "u"}, "user and password are given together"),
        ({"concurrency": 0}, "concurrency: 0: 1 to 64"),
        ({"producer-window-size": 0}, "producer-window-size: 0: 1 to 2147483647 or -1"),
        ({"static-connectors": ["self"]}, "to which each message would come back"),
        ({"static-connectors": ["self"], "forwarding-address": "q"}, "to which each message would come back"),
    ],
)
def test_errors_name_the_value(change: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_bridge(LEAST | change, NODE)
