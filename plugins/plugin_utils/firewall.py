# SPDX-License-Identifier: Apache-2.0
"""Who may connect to which port of a node: what its firewall admits, from the nodes of the topology.

Pure: no Ansible, no files. The rules become a table of nftables in ``module_utils/packet_filter.py``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from ansible_collections.understudy.broker.plugins.plugin_utils.cluster_rules import hosted_offsets, keeps_its_port
from ansible_collections.understudy.broker.plugins.plugin_utils.model import Fault, Node
from ansible_collections.understudy.broker.plugins.plugin_utils.sockets import CLIENTS, MEMBERS, is_loopback


def ports_of(node: Node, members: Sequence[Node]) -> list[dict[str, object]]:
    """Each port that the node listens on, with the addresses and networks that may connect to it.

    Args:
        node: A node of a topology without faults.
        members: The other nodes of its cluster.
    """
    known = {
        MEMBERS: [address for other in members for address in source_addresses(other)],
        CLIENTS: _texts(node, "client_sources"),
    }
    admitted: dict[int, set[str]] = {}
    for acceptor in node.sockets.acceptors:
        sources = {address for source in acceptor.sources for address in known[source]}
        for offset in (0,) if keeps_its_port(acceptor) else (0, *hosted_offsets(node)):
            admitted.setdefault(acceptor.port + offset, set()).update(sources)
    if not is_loopback(node.sockets.management_address):
        for offset in (0, *hosted_offsets(node)):
            port = node.sockets.management_port + offset
            admitted.setdefault(port, set()).update(_texts(node, "management_sources"))
    return [{"port": port, "sources": sorted(sources)} for port, sources in sorted(admitted.items())]


def source_addresses(node: Node) -> list[str]:
    """Addresses from which a node connects to other members."""
    given = _texts(node, "source_addresses")
    return given or list(dict.fromkeys(each.advertised for each in node.sockets.acceptors if each.advertised))


def _texts(node: Node, key: str) -> list[str]:
    found = node.values[key]
    return [str(each) for each in found] if isinstance(found, list) else []


def sources_are_addresses(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """A firewall compares numbers, and a node with one needs to know its clients."""
    guarded = [node for node in nodes if node.values["firewall"]]
    for node in guarded:
        if not node.values["client_sources"]:
            problem = "is empty, but broker_firewall is true: no client could connect; give addresses or networks"
            yield Fault(node.name, "broker_client_sources", problem)
        for key in ("client_sources", "management_sources"):
            for text in _texts(node, key):
                if not _is_network(text):
                    problem = f"has {text!r}; give an address or a network, such as 10.20.0.0/16"
                    yield Fault(node.name, f"broker_{key}", problem)
    for node in nodes:
        watched = any(each.cluster_name == node.cluster_name and each is not node for each in guarded)
        for text in source_addresses(node) if watched or node in guarded else ():
            if not _is_network(text):
                problem = f"has {text!r}, which the firewalls of other nodes cannot compare; give addresses as numbers"
                yield Fault(node.name, "broker_source_addresses", problem)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


RULES = (sources_are_addresses,)
