"""Acceptors and connectors as Artemis' management describes them: a name, a factory and parameters.

The factories are names of Java classes, which tools use to identify a transport; nothing is loaded here. All
values are strings. A parameter with a password is masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from understudy.config.model import AcceptorConfiguration, ConnectorConfiguration

_PACKAGE: Final = "org.apache.activemq.artemis.core.remoting.impl.netty"
ACCEPTOR_FACTORY: Final = f"{_PACKAGE}.NettyAcceptorFactory"
CONNECTOR_FACTORY: Final = f"{_PACKAGE}.NettyConnectorFactory"
MASK: Final = "****"


def acceptor_parameters(acceptor: AcceptorConfiguration) -> dict[str, str]:
    """Parameters of an acceptor."""
    return {"scheme": "tcp", **_parameters(acceptor.host, acceptor.port, acceptor.parameters)}


def connector_parameters(connector: ConnectorConfiguration) -> dict[str, str]:
    """Parameters of a connector."""
    return _parameters(connector.host, connector.port, connector.parameters)


def _parameters(host: str, port: int, others: Mapping[str, object]) -> dict[str, str]:
    shown = {"port": str(port), "host": host}
    for name, value in others.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        shown[name] = MASK if "password" in name.lower() else text
    return shown


def described(name: str, factory: str, parameters: Mapping[str, str]) -> dict[str, object]:
    """An entry of the lists as JSON."""
    return {"name": name, "factoryClassName": factory, "params": dict(parameters), "extraProps": {}}
