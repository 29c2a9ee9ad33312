"""Ends of a connection between two nodes: the one that the dialling node means, and those that the accepting one has.

The dialling node names in its proof of the cluster password the end that it means to reach, and the accepting node
refuses a connection that is meant for another one (ADR 0111). So a stranger that is dialled can pass the proof on to no
node. A name that the other side gives is compared, never resolved.

Not here: the proof (``cluster.membership.handshake``), and the configuration of a node
(``runtime.members.credentials``).
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from understudy.dataclass import dataclass
from understudy.limits import LINK_END_CHARACTERS_MAX
from understudy.wire.core import packets

#: Number of places whose compared form is kept.
_PLACES_MAX: Final = 256


def place_of(host: str, port: int | str) -> str:
    """``host:port`` as it is compared: names in lower case, addresses in their shortest form, IPv6 in brackets."""
    port = str(port)
    return (_kept_place_of if len(host) + len(port) <= LINK_END_CHARACTERS_MAX else _place_of)(host, port)


def _place_of(host: str, port: str) -> str:
    text = host.strip("[]").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return f"{text}:{port}"
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return f"[{address}]:{port}" if mapped is None else f"{mapped}:{port}"
    return f"{address}:{port}"


#: Nodes of a cluster compare the same few places again and again.
_kept_place_of: Final = lru_cache(maxsize=_PLACES_MAX)(_place_of)


def place_of_socket(address: str) -> str:
    """``host:port`` of a socket as it is compared (``place_of``); empty if it is not known."""
    host, _, port = address.rpartition(":")
    return place_of(host, port) if host else ""


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` of a socket has a loopback address; False if it is not known."""
    host = place_of_socket(address).rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class OwnEnds:
    """Ends at which other nodes reach this one."""

    connectors: frozenset[tuple[str, str]] = frozenset()
    """``place_of`` and name of the server of its connectors and acceptors; the name is empty where no other server
    shares the port."""

    def refusal(self, hello: packets.ClusterHello, local: str, node_id: str) -> str:
        """Reason why a connection is not meant for this node; empty: it is.

        Args:
            local: ``host:port`` of this side of the socket.
            node_id: Node id of the store of this node; empty: not known.
        """
        named = place_of_socket(hello.place), hello.server
        arrived = place_of_socket(local)
        dialled = place_of_socket(hello.address)
        by_address = bool(dialled) and dialled == arrived and self._has_server(hello.server)
        if named not in self.connectors and not by_address:
            meant = f"{hello.place} at {hello.address}" + (f", server {hello.server!r}" if hello.server else "")
            own = ", ".join(sorted({place for place, _ in self.connectors} | {arrived}))
            return (
                f"the connection is meant for {_clipped(meant)}, which is not this node: its ends are {own}; with"
                " address translation between the nodes give the dialled address as a connector of this node and name"
                " it in connector-ref of its cluster-connection"
            )
        if hello.node_id and node_id and hello.node_id != node_id:
            return f"the connection is meant for node id {_clipped(hello.node_id)}, that of this node is {node_id}"
        return ""

    def _has_server(self, name: str) -> bool:
        return not self.connectors or any(server == name for _, server in self.connectors)


def _clipped(text: str) -> str:
    """Shortened text of another node for a log line."""
    return text if len(text) <= LINK_END_CHARACTERS_MAX else text[:LINK_END_CHARACTERS_MAX] + "…"
