"""Log lines of refused logins: one for each user and host in a period, with the number of those between two lines."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from understudy.errors import BrokerError
from understudy.ports import Clock
from understudy.security.login_guard import network_of

log = logging.getLogger(__name__)

#: Further refusals of one user from one host within this time after a line are counted only. Milliseconds.
PERIOD_MS: Final = 10_000
#: Pairs of user and host that are remembered; beyond it the oldest are dropped.
REMEMBERED_MAX: Final = 1_000


class RefusalLog:
    """Logs refused logins. Guessing of passwords cannot fill the log."""

    def __init__(self, clock: Clock) -> None:
        """Begin without refusals."""
        self._clock = clock
        self._told: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()
        """Time of the last line and number of refusals since, by network and user."""

    def note(self, user: str | None, peer: str, connection_id: str, error: BrokerError) -> None:
        """A login was refused.

        Args:
            user: User name of the login.
            peer: ``host:port`` of the client.
            connection_id: Id of its connection, as in the lists of management.
            error: Reason of the refusal.
        """
        key = network_of(peer.rpartition(":")[0]), (user or "")[:100]
        now_ms = self._clock.monotonic_ms()
        told_ms, further = self._told.pop(key, (now_ms - PERIOD_MS, 0))
        if now_ms - told_ms < PERIOD_MS:
            self._told[key] = told_ms, further + 1
            return
        self._told[key] = now_ms, 0
        if len(self._told) > REMEMBERED_MAX:
            self._told.popitem(last=False)
        log.warning(
            "login refused",
            extra={
                "user": user,
                "peer": peer,
                "connection": connection_id,
                "reason": str(error),
                "further_since_last_line": further,
            },
        )
