"""Reads ``bridges`` of broker.xml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from understudy.config.bridge import BridgeConfiguration, BridgeConnection, BridgeTarget
from understudy.config.document import Document, Node
from understudy.config.model import AcceptorConfiguration, ConnectorConfiguration
from understudy.limits import BRIDGE_CONCURRENCY_MAX

#: These numbers are integers of 32 bits in Artemis, and credit is one on the wire.
_INT_MAX: Final = (1 << 31) - 1


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
            self._check_target(node, bridge)
            self._check_login(node, bridge, has_cluster_password=has_cluster_password)
            self._check_numbers(node)
            yield bridge

    def _target(self, node: Node) -> BridgeTarget:
        values = self._values(node, BridgeTarget)
        password = node.child("password")
        if password is not None:
            values["password"] = self._password(password)
        return BridgeTarget(**values)

    def _check_target(self, node: Node, bridge: BridgeConfiguration) -> None:
        error = self._document.error_at
        if not bridge.target.static_connectors and bridge.target.discovery_group is None:
            raise error(node, "static-connectors or discovery-group-ref is required")
        if bridge.target.static_connectors and bridge.target.discovery_group is not None:
            raise error(node, "static-connectors and discovery-group-ref exclude each other")
        if bridge.target.discovery_group is not None and bridge.target.user is not None:
            hint = "without user and password both brokers prove the cluster-password"
            raise error(
                node,
                "user and password are not sent to discovered brokers: every host of the network can broadcast",
                hint=hint,
            )
        if bridge.forwarding_address is not None:
            return
        own = {(each.host.lower(), each.port) for each in self._acceptors}
        for name in bridge.target.static_connectors:
            connector = self._connectors[name]
            if (connector.host.lower(), connector.port) in own:
                message = f"connector {name!r} is an acceptor of this broker, to which each message would come back"
                raise error(node, message, hint="set forwarding-address, or a connector of another broker")

    def _check_login(self, node: Node, bridge: BridgeConfiguration, *, has_cluster_password: bool) -> None:
        error = self._document.error_at
        if (bridge.target.user is None) != (bridge.target.password is None):
            raise error(node, "user and password are given together or not at all")
        if bridge.target.user is None and not has_cluster_password:
            hint = "without user and password both brokers prove the same cluster-password, whose default is public"
            raise error(node, "a bridge needs user and password, or a cluster-password of its own", hint=hint)

    def _check_numbers(self, node: Node) -> None:
        error = self._document.error_at
        for name, may_be_off in (
            ("retry-interval", False),
            ("max-retry-interval", False),
            ("pending-ack-timeout", False),
            ("min-large-message-size", False),
            ("connection-ttl", True),
            ("check-period", True),
            ("confirmation-window-size", True),
            ("producer-window-size", True),
        ):
            child = node.child(name)
            value = int(str(child.value)) if child is not None else 1
            if child is not None and (value < 1 or value > _INT_MAX) and not (may_be_off and value == -1):
                raise error(child, f"{value}: 1 to {_INT_MAX}{' or -1' if may_be_off else ''}")
        multiplier = node.child("retry-interval-multiplier")
        if multiplier is not None and not float(str(multiplier.value)) > 0:
            raise error(multiplier, f"{multiplier.value} is not above 0")
        concurrency = node.child("concurrency")
        if concurrency is not None and not 1 <= int(str(concurrency.value)) <= BRIDGE_CONCURRENCY_MAX:
            raise error(concurrency, f"{concurrency.value}: 1 to {BRIDGE_CONCURRENCY_MAX}")
