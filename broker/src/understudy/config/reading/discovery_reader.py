"""Reads the elements ``broadcast-groups`` and ``discovery-groups`` (artemis-ha s. 7.1).

The file of a JGroups stack is not read here: the node reads it when it starts (``cluster.discovery.jgroups``).
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Callable, Mapping
from typing import Any, Final

from understudy.config.discovery import (
    BroadcastGroupConfiguration,
    CarrierConfiguration,
    DiscoveryGroupConfiguration,
)
from understudy.config.reading.document import Document, Node
from understudy.config.sockets.bindings import SocketBindings

#: Multicast group of a channel without a stack file, and the socket binding that gives it another one: as in the
#: profiles of WildFly.
CHANNEL_GROUP: Final = ("230.0.0.4", 45_688)
CHANNEL_BINDING: Final = "jgroups-udp"
#: Elements of a multicast group.
_MULTICAST: Final = ("group-address", "group-port", "local-bind-address", "local-bind-port", "socket-binding")
#: The base address of multicast, to which nothing is sent (RFC 5771).
_RESERVED: Final = ipaddress.IPv4Address("224.0.0.0")


class DiscoveryReader:
    """Reads the groups of one document."""

    def __init__(
        self,
        document: Document,
        plain: Callable[[Node, type], dict[str, Any]],
        etc_directory: str,
        sockets: SocketBindings,
    ) -> None:
        """Args:
        document: Makes errors.
        plain: Values of the children of an element that have a field of their name in a dataclass.
        etc_directory: Where relative paths of JGroups files start.
        sockets: Multicast groups by the names of socket bindings.
        """
        self._document = document
        self._plain = plain
        self._etc_directory = etc_directory
        self._sockets = sockets

    def broadcast(
        self, references: Callable[[Node], tuple[str, ...]], node: Node, name: str
    ) -> BroadcastGroupConfiguration:
        """Read a broadcast group.

        Args:
            references: Names of the connectors that an element names; raises ConfigError if there is none.
            node: The element of the group.

        Raises:
            ConfigError: a carrier is not complete.
        """
        connectors = references(node)
        if not connectors:
            message = "the group names no connector: nothing is broadcast that another node could use"
            self._document.warn(f"broadcast-group {name}", message, node)
        values = self._plain(node, BroadcastGroupConfiguration)
        return BroadcastGroupConfiguration(name=name, carrier=self._carrier(node), connectors=connectors, **values)

    def group(self, node: Node, name: str) -> DiscoveryGroupConfiguration:
        """A discovery group. Raises ConfigError: a carrier is not complete."""
        values = self._plain(node, DiscoveryGroupConfiguration)
        return DiscoveryGroupConfiguration(name=name, carrier=self._carrier(node), **values)

    def _carrier(self, node: Node) -> CarrierConfiguration:
        error = self._document.error_at
        values = {key: value for key, value in self._plain(node, CarrierConfiguration).items() if value != ""}
        file, channel = node.child("jgroups-file"), node.child("jgroups-channel")
        if file is not None and file.value:
            if not values.get("jgroups_channel"):
                raise error(file, "jgroups-channel is missing", hint="the name that all members of the cluster use")
            values["jgroups_file"] = posixpath.join(self._etc_directory, str(file.value))
            values["jgroups_properties"] = tuple(sorted(self._document.properties.items()))
            for name in _MULTICAST:
                group = node.child(name)
                if group is not None:
                    hint = "one of the two: a multicast address and port, or a JGroups stack"
                    raise error(group, f"{name} and jgroups-file exclude each other", hint=hint)
            return CarrierConfiguration(**values)
        binding = node.child("socket-binding")
        if binding is not None or (channel is not None and not values.get("group_address")):
            values.update(self._bound(node, binding))
        self._check_multicast(node, values)
        return CarrierConfiguration(**values)

    def _bound(self, node: Node, binding: Node | None) -> dict[str, Any]:
        """Multicast address of a socket binding; without one, that of the stack that a channel has without a file.

        Raises:
            ConfigError: there is no such binding, or the group has an address of its own as well.
        """
        for name in ("group-address", "group-port", "local-bind-address"):
            group = node.child(name)
            if binding is not None and group is not None:
                raise self._document.error_at(group, f"{name} and socket-binding exclude each other")
        if binding is None and not self._sockets.has(CHANNEL_BINDING):
            address, port = CHANNEL_GROUP
            return {"group_address": address, "group_port": port}
        found = self._sockets.multicast(binding or node, CHANNEL_BINDING if binding is None else str(binding.value))
        local = {} if found.local_address is None else {"local_bind_address": found.local_address}
        return {"group_address": found.address, "group_port": found.port, **local}

    def _check_multicast(self, node: Node, values: Mapping[str, Any]) -> None:
        error = self._document.error_at
        for name in ("group-address", "group-port"):
            if not values.get(name.replace("-", "_")):
                raise error(node, f"{name} is missing", hint="231.7.7.7 and 9876 are usual; or a jgroups-file")
        if values.get("local_bind_port") == 0:
            raise error(node.child("local-bind-port") or node, "0 is no port", hint="-1 is any port")
        group = _address(values["group_address"])
        if group == _RESERVED:
            hint = "224.0.0.1 to 239.255.255.255; 231.7.7.7 is usual"
            raise error(node.child("group-address") or node, "224.0.0.0 is reserved and cannot be used", hint=hint)
        if group is None or not group.is_multicast:
            raise error(
                node.child("group-address") or node,
                f"{values['group_address']!r} is no multicast address",
                hint="224.0.0.1 to 239.255.255.255, or ff00::/8",
            )
        local = values.get("local_bind_address")
        if local is not None:
            address = _address(local)
            if address is None or address.version != group.version:
                hint = f"an IPv{group.version} address of this host"
                raise error(node.child("local-bind-address") or node, f"{local!r} is no such address", hint=hint)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
