"""Nodes that do not accept the proof of the cluster password of this node, logged from time to time."""

from __future__ import annotations

import logging
from typing import Final

from understudy.limits import CLUSTER_NODES_MAX

log = logging.getLogger(__name__)

#: The same host is logged again after this time.
REPEATED_MS: Final = 60_000


class RefusedPeers:
    """The hosts that were logged, at most ``CLUSTER_NODES_MAX``."""

    def __init__(self) -> None:
        self._logged: dict[str, int] = {}

    def note(self, peer: str, now_ms: int) -> None:
        """A node has ended its connection when it was to prove the cluster password.

        Args:
            peer: ``host:port`` of the other side.
            now_ms: Monotonic time.
        """
        host = peer.rpartition(":")[0]
        if now_ms - self._logged.get(host, -REPEATED_MS) < REPEATED_MS:
            return
        if len(self._logged) >= CLUSTER_NODES_MAX:
            self._logged.clear()
        self._logged[host] = now_ms
        log.warning(
            "a node did not accept the cluster password of this node",
            extra={"peer": peer, "hint": "give both nodes the same cluster-user and cluster-password"},
        )
