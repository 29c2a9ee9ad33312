"""Nodes that were scaled down (artemis-ha s. 6). This node serves the clients of those whose messages it has taken;
messages that are kept for any of them go to the node that has its messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

#: Nodes that are remembered, the latest ones; Artemis remembers about ten.
REMEMBERED_MAX: Final = 100


class ScaledDownNodes:
    """The nodes that were scaled down since this one became active, and are not active again."""

    def __init__(self, *, can_scale_down: bool = False) -> None:
        """``can_scale_down``: this node has an element ``scale-down``, so clients of other nodes have to wait until
        their messages are here; a node without it serves them at once, as Artemis does.
        """
        self._can_scale_down = can_scale_down
        self._nodes: dict[str, None] = {}
        self.taken: Callable[[str], None] = lambda node_id: None
        """Called with the id of a node whose messages are here now: the other members have to learn it."""
        self.moved: Callable[[str, str], None] = lambda node_id, target_id: None
        """Called with the id of a node and of the one, this or another, that has its messages now."""

    @property
    def node_ids(self) -> tuple[str, ...]:
        """Ids of the nodes whose messages this node has, the latest last."""
        return tuple(self._nodes)

    def add(self, node_id: str, own_id: str) -> None:
        """Called when the messages of a node are here. ``own_id``: of this node."""
        self._nodes.pop(node_id, None)
        self._nodes[node_id] = None
        if len(self._nodes) > REMEMBERED_MAX:
            del self._nodes[next(iter(self._nodes))]
        log.info("another node was scaled down to this one", extra={"node_id": node_id})
        self.taken(node_id)
        self.moved(node_id, own_id)

    def add_elsewhere(self, node_id: str, target_id: str) -> None:
        """Called when the messages of a node are at a third one."""
        log.info("a node was scaled down to another one", extra={"node_id": node_id, "to": target_id})
        self.moved(node_id, target_id)

    def serves_again(self, node_id: str) -> None:
        """A node is active: its messages are there from now on, and its clients wait again when it is scaled down once
        more, until that is complete. Here they would send again what its duplicate ids do not refuse yet.
        """
        if node_id in self._nodes:
            del self._nodes[node_id]
            log.info("a node that was scaled down to this one is active again", extra={"node_id": node_id})

    def serves_clients_of(self, node_id: str) -> bool:
        """Whether clients of another node may continue on this node (CHECK_FOR_FAILOVER)."""
        return not self._can_scale_down or node_id in self._nodes
