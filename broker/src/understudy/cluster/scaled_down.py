"""Nodes whose messages this node has taken (artemis-ha s. 6): clients that look for one of them are served here."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)

#: Nodes that are remembered, the latest ones; Artemis remembers about ten.
REMEMBERED_MAX: Final = 100


class ScaledDownNodes:
    """The nodes that were scaled down to this one since it became active."""

    def __init__(self, *, can_scale_down: bool = False) -> None:
        """``can_scale_down``: this node has an element ``scale-down``, so clients of other nodes have to wait until
        their messages are here; a node without it serves them at once, as Artemis does.
        """
        self._can_scale_down = can_scale_down
        self._nodes: dict[str, None] = {}

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The latest last."""
        return tuple(self._nodes)

    def add(self, node_id: str) -> None:
        """The messages of a node are here."""
        self._nodes.pop(node_id, None)
        self._nodes[node_id] = None
        if len(self._nodes) > REMEMBERED_MAX:
            del self._nodes[next(iter(self._nodes))]
        log.info("another node was scaled down to this one", extra={"node_id": node_id})

    def serves_clients_of(self, node_id: str) -> bool:
        """Whether clients of another node may continue here (CHECK_FOR_FAILOVER)."""
        return not self._can_scale_down or node_id in self._nodes
