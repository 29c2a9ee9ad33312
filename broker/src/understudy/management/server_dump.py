"""A summary of the node in the log, at every ``server-dump-interval``: for nodes whose metrics are not scraped.

Not here: metrics (``metrics``), which have the same numbers and more.
"""

from __future__ import annotations

import logging
from typing import Final

from understudy.ports import Timer, Timers
from understudy.protocols.core.services import CoreServices

log = logging.getLogger(__name__)

#: Addresses that page named in one summary.
_PAGING_SHOWN_MAX: Final = 20


class ServerDump:
    """Logs the summary now and then."""

    def __init__(self, services: CoreServices, timers: Timers, interval_ms: int) -> None:
        """Args:
        services: Of the active node.
        timers: For the interval.
        interval_ms: Between two summaries; 0 or less is never.
        """
        self._services = services
        self._timers = timers
        self._interval_ms = interval_ms
        self._timer: Timer | None = None
        if interval_ms > 0:
            # as in Artemis the first one is written at once
            self._timer = timers.call_later(0, self._dump)

    def close(self) -> None:
        """No further summaries."""
        if self._timer is not None:
            self._timer.cancel()

    def _dump(self) -> None:
        services = self._services
        office = services.post_office
        queues = office.queues()
        addresses = office.directory.addresses.values()
        log.info(
            "server summary",
            extra={
                "connections": len(services.connections),
                "sessions": services.session_count(),
                "consumers": sum(queue.consumer_count for queue in queues),
                "addresses": len(addresses),
                "queues": len(queues),
                "messages": sum(queue.message_count for queue in queues),
                "delivering": sum(queue.delivering_count for queue in queues),
                "memory_bytes": office.memory_bytes,
                "paging": sorted(address.name for address in addresses if address.paging)[:_PAGING_SHOWN_MAX],
                "disk_used_percent": round(services.store.disk_used_percent, 1),
            },
        )
        self._timer = self._timers.call_later(self._interval_ms, self._dump)
