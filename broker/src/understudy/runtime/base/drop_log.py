"""Log lines about connections that an acceptor drops because of their input."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from understudy.errors import BrokerError, ClusterSecurityError

log = logging.getLogger(__name__)

#: A refusal of another node for the same reason is logged again after this time.
_REPEATED_S: Final = 60.0
#: Hosts and reasons that are remembered.
_REASONS_MAX: Final = 1_000


class DropLog:
    """Logs each dropped connection; a node that is refused dials again at once, so its refusal is logged once a minute
    for each reason.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Begin without drops; ``now_s`` gives monotonic seconds."""
        self._now_s = now_s
        self._logged: dict[tuple[str, str], float] = {}

    def note(self, peer: str, error: BrokerError) -> None:
        """Called when a connection is dropped.

        Args:
            peer: ``host:port`` of the other side.
            error: Why.
        """
        if isinstance(error, ClusterSecurityError) and not self._is_due(peer.rpartition(":")[0], str(error)):
            return
        log.warning("connection dropped", extra={"peer": peer, "code": error.code, "error": str(error)})

    def _is_due(self, host: str, reason: str) -> bool:
        now_s = self._now_s()
        logged_s = self._logged.get((host, reason))
        if logged_s is not None and now_s - logged_s < _REPEATED_S:
            return False
        if len(self._logged) >= _REASONS_MAX:
            self._logged.clear()
        self._logged[host, reason] = now_s
        return True
