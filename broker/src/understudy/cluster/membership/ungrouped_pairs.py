"""Replicated pairs of one cluster without a group-name: their backups may register at the active node of either pair.

An active node of a replicated pair says its state on each link before it announces itself; an announcement without a
group-name that follows is one of another such pair. It is logged once for each node id, and shown by management
(ADR 0119).
"""

from __future__ import annotations

import logging

from understudy.dataclass import dataclass
from understudy.limits import CLUSTER_NODES_MAX

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwnPair:
    """The pair of this node."""

    replicated: bool = False
    group: str | None = None


class UngroupedPairs:
    """Other replicated pairs without a group-name, as an active node without one has heard of them."""

    def __init__(self, own: OwnPair | None = None) -> None:
        """``own``: the pair of this node; None: it has none."""
        self._watches = own is not None and own.replicated and own.group is None
        self.node_ids: set[str] = set()
        """Node ids of the pairs, at most ``CLUSTER_NODES_MAX``."""

    def announced(self, node_id: str, own_id: str, at: str, group: str | None) -> None:
        """The active node of a replicated pair has announced itself.

        Args:
            own_id: Node id of the pair of this node.
            at: URL of its connector.
            group: The group-name of the pair.
        """
        if not self._watches or node_id == own_id:
            return
        if group is not None:
            self.node_ids.discard(node_id)
        elif node_id not in self.node_ids and len(self.node_ids) < CLUSTER_NODES_MAX:
            self.node_ids.add(node_id)
            log.warning(
                "two replicated pairs of this cluster have no group-name: a backup of one may become the replica of the"
                " other",
                extra={
                    "node_id": own_id,
                    "other": node_id,
                    "at": at,
                    "hint": "give each replicated pair a group-name of its own (docs/operate/replication.md)",
                },
            )
