"""Deletes queues and addresses that were made on demand and are no longer used (manual,
"Address Settings": auto-delete-queues, auto-delete-addresses).

A queue goes when it had consumers once, has none now for ``auto-delete-queues-delay``, holds no
more than ``auto-delete-queues-message-count`` messages and nothing is on its way to it. It must be
found like that by two sweeps in a row, so that a client which reconnects finds it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.ports import Clock
from understudy.routing.address import Address
from understudy.routing.queue import Queue

if TYPE_CHECKING:
    from understudy.routing.directory import Directory


class AutoDeletion:
    """See the module's text."""

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._candidates: set[Queue | Address] = set()

    def sweep(self) -> None:
        """Delete what was idle at the last sweep and still is."""
        now_ms = self._clock.wall_ms()
        idle: set[Queue | Address] = set()
        for queue in list(self._directory.queues.values()):
            if _queue_idle(queue, now_ms):
                if queue in self._candidates:
                    self._directory.delete_queue(queue.name)
                else:
                    idle.add(queue)
        for address in list(self._directory.addresses.values()):
            if _address_idle(address, now_ms):
                if address in self._candidates:
                    self._directory.delete_address(address.name)
                else:
                    idle.add(address)
        self._candidates = idle


def delete_unbound(directory: Directory, address: Address) -> None:
    """Delete an address that was made on demand if nothing is left of it; a delay leaves that to the sweep."""
    settings = address.settings
    if (
        address.auto_created
        and settings.auto_delete_addresses
        and not settings.auto_delete_addresses_delay
        and not address.bindings
        and not address.diverts
        and directory.addresses.get(address.name) is address
    ):
        directory.delete_address(address.name)


def _queue_idle(queue: Queue, now_ms: int) -> bool:
    configuration = queue.configuration
    kept_messages = configuration.auto_delete_message_count
    return (
        bool(configuration.auto_delete)
        and (queue.used or queue.address.settings.auto_delete_queues_skip_usage_check)
        and not queue.consumer_count
        and not queue.incoming
        and (kept_messages == -1 or queue.message_count <= (kept_messages or 0))
        and now_ms - queue.consumers_left_ms >= (configuration.auto_delete_delay or 0)
    )


def _address_idle(address: Address, now_ms: int) -> bool:
    settings = address.settings
    return (
        address.auto_created
        and (address.used or settings.auto_delete_addresses_skip_usage_check)
        and not address.bindings
        and not address.diverts
        and settings.auto_delete_addresses
        and now_ms - address.empty_since_ms >= settings.auto_delete_addresses_delay
    )
