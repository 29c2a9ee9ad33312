"""Connectors of a node: their announced parameters, and the TLS settings of its own connections."""

from __future__ import annotations

from typing import cast

import pytest

from support.config import PASSWORD, core
from understudy.config.reading.reader import read_broker_xml
from understudy.runtime.base.environment import Environment
from understudy.runtime.base.node_configuration import NodeConfiguration
from understudy.tls.settings import TlsSettings
from understudy.wire.core.transport import TransportConfiguration

TLS = "sslEnabled=true;trustStorePath=/t.p12;trustStorePassword=known;keyStorePath=/k.pem;keyStorePassword=secret"


@pytest.fixture
def node() -> NodeConfiguration:
    body = (
        f'{PASSWORD}<connectors><connector name="own">tcp://a:1?{TLS};verifyHost=false</connector>'
        '<connector name="other">tcp://b:1?sslEnabled=true;sniHost=x</connector>'
        '<connector name="plain">tcp://c:1</connector></connectors>'
        '<cluster-connections><cluster-connection name="c"><connector-ref>own</connector-ref>'
        "</cluster-connection></cluster-connections>"
    )
    loaded = read_broker_xml(core(body), file="broker.xml", base_directory="/srv/node")
    return NodeConfiguration(loaded.configuration, cast(Environment, None))


def test_the_key_store_of_a_connector_is_not_announced(node: NodeConfiguration) -> None:
    assert node.connectors.transport("own").parameters == {
        "host": "a",
        "port": "1",
        "sslEnabled": True,
        "trustStorePath": "/t.p12",
        "trustStorePassword": "known",
        "verifyHost": False,
    }


def test_settings_for_the_connections_of_the_node(node: NodeConfiguration) -> None:
    own = node.tls_for(node.connectors.transport("own"))
    assert own is not None
    assert own.key_store is not None
    assert (own.key_store.path, own.verify_host) == ("/k.pem", False)
    assert node.tls_for(node.connectors.transport("other")) == TlsSettings(sni_host="x")
    assert node.tls_for(node.connectors.transport("plain")) is None
    # a node that was learnt from the network: with the stores of the own connector, never with its announced paths
    announced = TransportConfiguration.from_url("tcp://d:1?sslEnabled=true&trustStorePath=/evil&trustAll=true")
    assert node.tls_for(announced) == own
    moved = TransportConfiguration("other", parameters={"host": "evil", "port": 1, "sslEnabled": True})
    assert node.tls_for(moved) == own
