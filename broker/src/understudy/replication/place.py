"""The place of the replica at an active node: which configured nodes may have it (ADR 0119)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from understudy.wire.core import packets

log = logging.getLogger(__name__)


class ReplicaPlace:
    """The place for one replica at an active node."""

    def __init__(self, *, primary: bool = False, kept: Callable[[], bool] = lambda: False) -> None:
        """Args:
        primary: The node is configured as primary, and is not one of two equal nodes.
        kept: Whether the place is kept for the primary, because a backup of any pair may ask for it: the node is an
            active backup without a group-name in a cluster with other pairs.
        """
        self._primary = primary
        self._kept = kept
        self._said = ""
        """The last refusal of a primary: it asks again every few seconds, and is logged once."""

    def refusal(self, node_id: str, registration: packets.ReplicaRegistration) -> str | None:
        """Reason why a node does not get the place, whose group-name and node id fit; None: it may.

        Args:
            node_id: Node id of the store of the active node.
        """
        if registration.wants_failback and self._primary:
            # two nodes that ask each other for the place would wait without end
            text = (
                f"{registration.name} is configured as primary like this node, node {node_id}: make one of them the"
                " backup, or, if they belong to two pairs, give each pair a group-name of its own"
            )
            if text != self._said:
                self._said = text
                log.warning("a primary asks for the place of a replica", extra={"reason": text})
            return text
        if registration.node_id is None and not registration.wants_failback and self._kept():
            return f"this backup serves node {node_id} and keeps its place for the primary"
        return None
