"""The connectors of a node by name: those of its broker.xml, and those that management added since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from understudy.config.model import ConnectorConfiguration
from understudy.wire.core.transport import TransportConfiguration


class Connectors:
    """The connectors of one node, for its whole life. The added ones are those of its last activation."""

    def __init__(self, configured: Iterable[ConnectorConfiguration] = (), instance_directory: str = "") -> None:
        """Args:
        configured: Connectors of broker.xml.
        instance_directory: Relative paths of certificates in the URL of an added one start in its directory ``etc``.
        """
        self.configured = {each.name: each for each in configured}
        self.added: dict[str, ConnectorConfiguration] = {}
        self.instance_directory = instance_directory

    def all(self) -> Sequence[ConnectorConfiguration]:
        """The connectors of broker.xml in their order, then the added ones."""
        return [*self.configured.values(), *self.added.values()]

    def get(self, name: str) -> ConnectorConfiguration | None:
        """The connector of a name, if there is one."""
        return self.configured.get(name) or self.added.get(name)

    def transport(self, name: str) -> TransportConfiguration:
        """A connector as it travels to others; KeyError if there is none of the name.

        Its key store belongs to this node and is left out: every client that subscribes to the topology gets the
        parameters, before it logs in.
        """
        connector = self.get(name)
        if connector is None:
            raise KeyError(name)
        public = {key: value for key, value in connector.parameters.items() if not key.startswith("keyStore")}
        return TransportConfiguration(name, parameters={"host": connector.host, "port": str(connector.port), **public})
