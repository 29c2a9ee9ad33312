"""The cluster as the broker describes it: node ids with their primaries and their backups.

The rules of artemis-core s. 8.1: an update counts only if it is newer than the stored entry or
fills a gap, it is ignored if it is older than a removal, and a missing connector never erases a
known one. Not here: what the client does with it (``failover``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from understudy.client.core.url.options import Connector
from understudy.dataclass import dataclass

#: Nodes remembered; a cluster is far smaller, and a peer must not fill our memory.
_NODES_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Node:
    """A pair, or a primary alone. Both servers of a pair carry one node id."""

    node_id: str
    event_id: int
    """Wall-clock milliseconds at the sender; orders events."""
    primary: Connector | None
    backup: Connector | None


class Topology:
    """Nodes by id."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._removed: dict[str, int] = {}
        self.own_node_id: str | None = None
        """The node that the sessions of this client live on; both servers of its pair carry it."""
        self.complete = False
        """Whether the broker has listed all nodes on the present connection."""

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, node_id: str) -> Node | None:
        """The node, or None."""
        return self._nodes.get(node_id)

    def node_up(self, node_id: str, event_id: int, primary: Connector | None, backup: Connector | None) -> bool:
        """Take an announcement. Returns whether the topology has changed."""
        if event_id < self._removed.get(node_id, event_id):
            return False
        known = self._nodes.get(node_id)
        if known is None:
            if len(self._nodes) >= _NODES_MAX:
                return False
            self._nodes[node_id] = Node(node_id, event_id, primary, backup)
            self._removed.pop(node_id, None)
            return True
        if event_id > known.event_id:
            new = Node(node_id, event_id, primary or known.primary, backup or known.backup)
        else:
            new = replace(known, primary=known.primary or primary, backup=known.backup or backup)
        self._nodes[node_id] = new
        return new != known

    def node_down(self, node_id: str, event_id: int) -> bool:
        """Forget a node unless a newer announcement of it is known; whether it was forgotten."""
        known = self._nodes.get(node_id)
        if known is not None and known.event_id > event_id:
            return False
        if len(self._removed) < _NODES_MAX or node_id in self._removed:
            self._removed[node_id] = event_id
        return self._nodes.pop(node_id, None) is not None

    def forget(self, node_id: str) -> None:
        """The node said itself that it stops; it may be announced again at any time."""
        self._nodes.pop(node_id, None)

    def primaries(self) -> tuple[Connector, ...]:
        """Connectors of the serving nodes, by node id.

        Each node lists the nodes of its cluster in an order of its own. A round over the nodes visits each of them once
        only if the order is the same whichever node the topology came from.
        """
        nodes = sorted(self._nodes.values(), key=lambda node: node.node_id)
        return tuple(node.primary for node in nodes if node.primary is not None)

    def node_at(self, connector: Connector) -> Node | None:
        """The node one of whose servers is at ``connector``, or the only one there is.

        A broker lists itself, so in a complete topology of one node that node is the one dialled even if
        it advertises another spelling of its host. Nodes are listed one by one, in any order.
        """
        for node in self._nodes.values():
            for each in (node.primary, node.backup):
                if each is not None and each.place == connector.place:
                    return node
        return next(iter(self._nodes.values())) if self.complete and len(self._nodes) == 1 else None
