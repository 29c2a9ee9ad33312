"""Reads ``bridges`` of broker.xml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from understudy.config.bridge import BridgeConfiguration, BridgeConnection, BridgeTarget
from understudy.config.bridge_check import bridge_faults
from understudy.config.document import Document, Node
from understudy.config.model import AcceptorConfiguration, ConnectorConfiguration


class BridgeReader:
    """Bridges of one document."""

    def __init__(
        self,
        document: Document,
        values: Callable[[Node, type], dict[str, Any]],
        password: Callable[[Node], str],
        connectors: Mapping[str, ConnectorConfiguration],
        acceptors: Sequence[AcceptorConfiguration],
    ) -> None:
        """Args:
        document: For errors.
        values: Values of a bridge that are fields of a dataclass.
        password: The text of a password that may be masked. Raises ConfigError.
        connectors: Of the document, by name.
        acceptors: Of the document.
        """
        self._document = document
        self._values = values
        self._password = password
        self._connectors = connectors
        self._acceptors = acceptors

    def read(self, nodes: Iterator[tuple[Node, str]], *, has_cluster_password: bool) -> Iterator[BridgeConfiguration]:
        """The bridges.

        Args:
            nodes: Each with its name.
            has_cluster_password: Whether the document sets a cluster password of its own.

        Raises:
            ConfigError: a value cannot be used.
        """
        for node, name in nodes:
            bridge = BridgeConfiguration(
                name=name,
                target=self._target(node),
                connection=BridgeConnection(**self._values(node, BridgeConnection)),
                **self._values(node, BridgeConfiguration),
            )
            self._check(node, bridge, has_cluster_password=has_cluster_password)
            yield bridge

    def _target(self, node: Node) -> BridgeTarget:
        values = self._values(node, BridgeTarget)
        password = node.child("password")
        if password is not None:
            values["password"] = self._password(password)
        return BridgeTarget(**values)

    def _check(self, node: Node, bridge: BridgeConfiguration, *, has_cluster_password: bool) -> None:
        own = frozenset((each.host.lower(), each.port) for each in self._acceptors)
        for fault in bridge_faults(bridge, self._place_of, own, has_cluster_password=has_cluster_password):
            child = None if fault.element is None else node.child(fault.element)
            raise self._document.error_at(child or node, fault.text, hint=fault.hint)

    def _place_of(self, connector: str) -> tuple[str, int]:
        return self._connectors[connector].host, self._connectors[connector].port
