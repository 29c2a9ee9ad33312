"""Addresses and ports by the names of socket bindings.

Not here: the elements that refer to them (``config.reading.transport``, ``config.reading.discovery_reader``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from understudy.config.reading.document import Document, Node, nearest
from understudy.config.sockets.schema import INTERFACE, PORT_MAX, SOCKET_BINDING_GROUP
from understudy.dataclass import dataclass

#: Addresses that stand for all interfaces of a host; no other host reaches it by them.
ANY_ADDRESS: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Multicast:
    """The multicast group of a socket binding."""

    address: str
    port: int
    local_address: str | None
    """Address of the interface; None: the choice of the system."""


class SocketBindings:
    """The named addresses and ports of one document."""

    def __init__(self, document: Document, nodes: Sequence[Node]) -> None:
        """Args:
        document: Makes errors.
        nodes: The elements ``interface`` and ``socket-binding-group``. Errors of them are added to the document.
        """
        self._document = document
        self._interfaces = {
            name: node for node, name in document.entries(each for each in nodes if each.element is INTERFACE)
        }
        groups = document.entries(each for each in nodes if each.element is SOCKET_BINDING_GROUP)
        self._bindings: dict[str, tuple[Node, Node]] = {}
        for group, _ in groups:
            document.attempt(partial(self._check_interface, group, "default-interface"), None)
            for kind in ("socket-binding", "outbound-socket-binding"):
                for node, name in document.entries(group.all(kind)):
                    self._add(group, node, name)

    def _add(self, group: Node, node: Node, name: str) -> None:
        if name in self._bindings:
            message = f"{name!r} stands twice, first on line {self._bindings[name][1].line}"
            self._document.errors.append(self._document.error_at(node, message))
            return
        self._bindings[name] = (group, node)
        self._document.attempt(lambda: self._check_binding(group, node), None)

    def _check_interface(self, node: Node, attribute: str) -> None:
        name = node.attributes.get(attribute)
        if name is not None and str(name) not in self._interfaces:
            error = self._document.error_at(node, f"there is no interface {str(name)!r}")
            raise self._document.consequence("interface", error, str(name))

    def _check_binding(self, group: Node, node: Node) -> None:
        self._check_interface(node, "interface")
        given = [name in node.attributes for name in ("multicast-address", "multicast-port")]
        if any(given) and not all(given):
            raise self._document.error_at(node, "multicast-address and multicast-port are one address: give both")
        port = _port(group, node)
        if port > PORT_MAX:
            message = f"with the port-offset the port is {port}, the highest is {PORT_MAX}"
            raise self._document.error_at(node, message)

    def place(self, node: Node, name: str) -> tuple[str, int]:
        """Host and port of a binding.

        Args:
            node: The element that refers to it.
            name: Name of the binding.

        Raises:
            ConfigError: there is no such binding, or it has no interface.
        """
        group, binding = self._found(node, name)
        if binding.element.name == "outbound-socket-binding":
            return str(binding.attributes["host"]), int(binding.attributes["port"])
        host = self._address(group, binding)
        if host is None:
            message = f"socket-binding {name!r} has no interface, and its group no default-interface"
            raise self._document.error_at(node, message)
        return host, _port(group, binding)

    def multicast(self, node: Node, name: str) -> Multicast:
        """The multicast group of a binding. Arguments as of ``place``. Raises ConfigError: there is none."""
        group, binding = self._found(node, name)
        if "multicast-address" not in binding.attributes:
            message = f"socket-binding {name!r} has no multicast-address"
            raise self._document.error_at(node, message, hint="add multicast-address and multicast-port to it")
        host = self._address(group, binding)
        return Multicast(
            str(binding.attributes["multicast-address"]),
            int(binding.attributes["multicast-port"]),
            None if host in ANY_ADDRESS else host,
        )

    def has(self, name: str) -> bool:
        """Whether there is a binding of a name."""
        return name in self._bindings

    def _found(self, node: Node, name: str) -> tuple[Node, Node]:
        if name not in self._bindings:
            hint = nearest(name, self._bindings)
            error = self._document.error_at(node, f"there is no socket-binding {name!r}", hint=hint)
            raise self._document.consequence("socket-binding", error, name)
        return self._bindings[name]

    def _address(self, group: Node, binding: Node) -> str | None:
        named = binding.attributes.get("interface", group.attributes.get("default-interface"))
        interface = None if named is None else self._interfaces.get(str(named))
        return None if interface is None else str(interface.attributes["inet-address"])


def _port(group: Node, node: Node) -> int:
    port = int(node.attributes.get("port", 0))
    fixed = port == 0 or node.attributes.get("fixed-port") is True
    return port if fixed else port + int(group.attributes.get("port-offset", 0))
