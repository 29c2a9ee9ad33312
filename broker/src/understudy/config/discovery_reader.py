"""Reads the elements ``broadcast-groups`` and ``discovery-groups`` (artemis-ha s. 7.1).

The file of a JGroups stack is not read here: the node reads it when it starts (``discovery.jgroups``).
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from understudy.config.discovery import (
    BroadcastGroupConfiguration,
    CarrierConfiguration,
    DiscoveryGroupConfiguration,
)
from understudy.config.document import Document, Node

_Entries = Iterator[tuple[Node, str]]


class DiscoveryReader:
    """Reads the groups of one document."""

    def __init__(self, document: Document, plain: Callable[[Node, type], dict[str, Any]], etc_directory: str) -> None:
        """Args:
        document: Makes errors.
        plain: Values of the children of an element that have a field of their name in a dataclass.
        etc_directory: Where relative paths of JGroups files start.
        """
        self._document = document
        self._plain = plain
        self._etc_directory = etc_directory

    def broadcasts(self, entries: _Entries, reference: Callable[[Node], str]) -> Iterator[BroadcastGroupConfiguration]:
        """The broadcast groups.

        Args:
            entries: Their elements and names.
            reference: Name of the connector that an element names; raises ConfigError if there is none.

        Raises:
            ConfigError: a carrier is not complete.
        """
        for node, name in entries:
            connectors = tuple(reference(each) for each in node.all("connector-ref"))
            if not connectors:
                message = "the group names no connector: nothing is broadcast that another node could use"
                self._document.warn(f"broadcast-group {name}", message, node)
            values = self._plain(node, BroadcastGroupConfiguration)
            yield BroadcastGroupConfiguration(name=name, carrier=self._carrier(node), connectors=connectors, **values)

    def groups(self, entries: _Entries) -> Iterator[DiscoveryGroupConfiguration]:
        """The discovery groups. Raises ConfigError: a carrier is not complete."""
        for node, name in entries:
            values = self._plain(node, DiscoveryGroupConfiguration)
            yield DiscoveryGroupConfiguration(name=name, carrier=self._carrier(node), **values)

    def _carrier(self, node: Node) -> CarrierConfiguration:
        error = self._document.error_at
        values = {key: value for key, value in self._plain(node, CarrierConfiguration).items() if value != ""}
        file, channel = node.child("jgroups-file"), node.child("jgroups-channel")
        if file is not None and file.value:
            if not values.get("jgroups_channel"):
                raise error(file, "jgroups-channel is missing", hint="the name that all members of the cluster use")
            values["jgroups_file"] = posixpath.join(self._etc_directory, str(file.value))
            group = node.child("group-address")
            if group is not None:
                message = "group-address has no effect: the group has a jgroups-file"
                self._document.warn(f"group-address of {node.path}", message, group)
            return CarrierConfiguration(**values)
        if channel is not None:
            hint = (
                "the file with the protocol stack of the channel; an application server has it in its own configuration"
            )
            raise error(channel, "jgroups-file is missing", hint=hint)
        self._check_multicast(node, values)
        return CarrierConfiguration(**values)

    def _check_multicast(self, node: Node, values: Mapping[str, Any]) -> None:
        error = self._document.error_at
        for name in ("group-address", "group-port"):
            if not values.get(name.replace("-", "_")):
                raise error(node, f"{name} is missing", hint="231.7.7.7 and 9876 are usual; or a jgroups-file")
        if values.get("local_bind_port") == 0:
            raise error(node.child("local-bind-port") or node, "0 is no port", hint="-1 is any port")
        group = _address(values["group_address"])
        if group is None or not group.is_multicast:
            raise error(
                node.child("group-address") or node,
                f"{values['group_address']!r} is no multicast address",
                hint="224.0.0.0 to 239.255.255.255, or ff00::/8",
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
