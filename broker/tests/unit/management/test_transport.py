"""How acceptors and connectors are described."""

from __future__ import annotations

from understudy.config.model import AcceptorConfiguration, ConnectorConfiguration
from understudy.management.transport import MASK, acceptor_parameters, connector_parameters, described


def test_parameters_are_strings_and_passwords_are_masked() -> None:
    given = {"sslEnabled": True, "keyStorePassword": "secret", "batchDelay": 5}
    shown = acceptor_parameters(AcceptorConfiguration("a", "h", 1, parameters=given))
    assert shown == {
        "scheme": "tcp", "host": "h", "port": "1", "sslEnabled": "true", "keyStorePassword": MASK, "batchDelay": "5",
    }  # fmt: skip


def test_a_connector_has_no_scheme() -> None:
    shown = connector_parameters(ConnectorConfiguration("c", "h", 2))
    assert shown == {"host": "h", "port": "2"}
    assert described("c", "F", shown) == {"name": "c", "factoryClassName": "F", "params": shown, "extraProps": {}}
