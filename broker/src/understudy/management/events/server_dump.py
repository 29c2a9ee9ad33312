"""A summary of the node in the log, at every ``server-dump-interval``: for nodes whose metrics are not scraped.

Not here: metrics (``metrics``), which have more numbers.
"""

from __future__ import annotations

import logging
from typing import Final

from understudy.ports import Timer, Timers
from understudy.protocols.services import ProtocolServices

log = logging.getLogger(__name__)

#: Maximum number of paging addresses in a summary.
_PAGING_SHOWN_MAX: Final = 20


class ServerDump:
    """Logs the summary periodically."""

    def __init__(self, services: ProtocolServices, timers: Timers, interval_ms: int) -> None:
        """Args:
        services: Services of the active node.
        timers: Timers for the interval.
        interval_ms: Time between two summaries; 0 or less = none.
        """
        self._services = services
        self._timers = timers
        self._interval_ms = interval_ms
        self._timer: Timer | None = None
        if interval_ms > 0:
            # the first summary is written at once, as in Artemis
            self._timer = timers.call_later(0, self._dump)

    def close(self) -> None:
        """Stop writing summaries."""
        if self._timer is not None:
            self._timer.cancel()

    def _dump(self) -> None:
        services = self._services
        office = services.sessions.post_office
        queues = office.queues()
        addresses = office.directory.addresses.values()
        log.info(
            "server summary",
            extra={
                "connections": len(services.connections),
                "sessions": services.connections.session_count,
                "consumers": sum(queue.consumers.count for queue in queues),
                "addresses": len(addresses),
                "queues": len(queues),
                "messages": sum(queue.message_count for queue in queues),
                "delivering": sum(queue.delivering_count for queue in queues),
                "memory_bytes": office.memory.held_bytes,
                "paging": sorted(address.name for address in addresses if address.paging)[:_PAGING_SHOWN_MAX],
                "disk_used_percent": round(services.sessions.post_office.store.disk_used_percent, 1),
            },
        )
        self._timer = self._timers.call_later(self._interval_ms, self._dump)
