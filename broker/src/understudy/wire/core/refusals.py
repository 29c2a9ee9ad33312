"""Log lines about connections to other nodes that one side refused, without one line for every attempt."""

from __future__ import annotations

import logging
from typing import Final

from understudy.limits import CLUSTER_NODES_MAX
from understudy.ports import Clock
from understudy.wire.core.peer import CorePeer

log = logging.getLogger(__name__)

#: A reason that stays the same is logged again after this time.
REPEATED_MS: Final = 60_000


class RefusalLog:
    """The reasons that were logged last, by the connector of the other node."""

    def __init__(self, clock: Clock) -> None:
        """Args:
        clock: Its monotonic time decides when a reason is logged again.
        """
        self._clock = clock
        self._logged: dict[str, tuple[str, int]] = {}

    def note(self, peer: CorePeer) -> None:
        """A connection has ended; nothing is logged if it was not refused."""
        if not peer.refusal:
            return
        url, now_ms = peer.target.to_url(), self._clock.monotonic_ms()
        reason, logged_ms = self._logged.get(url, ("", 0))
        if reason == peer.refusal and now_ms - logged_ms < REPEATED_MS:
            return
        if url not in self._logged and len(self._logged) >= CLUSTER_NODES_MAX:
            self._logged.clear()
        self._logged[url] = (peer.refusal, now_ms)
        log.warning("connection to another node refused", extra={"peer": url, "error": peer.refusal})
