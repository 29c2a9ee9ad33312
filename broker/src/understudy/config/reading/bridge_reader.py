"""Reads ``bridges`` of broker.xml."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from understudy.config.bridge import BridgeConfiguration, BridgeConnection, BridgeTarget
from understudy.config.model import AcceptorConfiguration, ConnectorConfiguration
from understudy.config.reading.bridge_check import bridge_faults
from understudy.config.reading.document import Document, Node
from understudy.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class BridgeValues:
    """Values of an element ``bridge`` that are read as in other elements. All raise ConfigError."""

    plain: Callable[[Node, type], dict[str, Any]]
    """Function that reads the children of a node that are fields of a dataclass."""
    target: Callable[[Node], dict[str, Any]]
    """Function that reads the names of a target's connectors and its discovery group."""
    routing: Callable[[Node], dict[str, Any]]
    """Filter and transformer of the bridge."""
    password: Callable[[Node], str]
    """The text of a password that may be masked."""


class BridgeReader:
    """Reader of the bridges of one document."""

    def __init__(
        self,
        document: Document,
        values: BridgeValues,
        connectors: Mapping[str, ConnectorConfiguration],
        acceptors: Sequence[AcceptorConfiguration],
        *,
        has_cluster_password: bool,
    ) -> None:
        """Args:
        values: Read the values of a bridge.
        connectors: Connectors of the document, by name.
        has_cluster_password: Whether the document sets a cluster password of its own.
        """
        self._document = document
        self._values = values
        self._connectors = connectors
        self._acceptors = acceptors
        self._has_cluster_password = has_cluster_password

    def read(self, node: Node, name: str) -> BridgeConfiguration:
        """The bridge of an element with its name. Raises ConfigError: a value cannot be used."""
        bridge = BridgeConfiguration(
            name=name,
            target=self._target(node),
            connection=BridgeConnection(**self._values.plain(node, BridgeConnection)),
            **self._values.plain(node, BridgeConfiguration),
            **self._values.routing(node),
        )
        self._check(node, bridge)
        return bridge

    def _target(self, node: Node) -> BridgeTarget:
        values = self._values.plain(node, BridgeTarget) | self._values.target(node)
        password = node.child("password")
        if password is not None:
            values["password"] = self._values.password(password)
        return BridgeTarget(**values)

    def _check(self, node: Node, bridge: BridgeConfiguration) -> None:
        own = frozenset((each.host.lower(), each.port) for each in self._acceptors)
        for fault in bridge_faults(bridge, self._place_of, own, has_cluster_password=self._has_cluster_password):
            child = None if fault.element is None else node.child(fault.element)
            raise self._document.error_at(child or node, fault.text, hint=fault.hint)

    def _place_of(self, connector: str) -> tuple[str, int]:
        return self._connectors[connector].host, self._connectors[connector].port
