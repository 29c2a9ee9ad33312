"""Deletes queues and addresses that were made on demand and are no longer used (manual,
"Address Settings": auto-delete-queues, auto-delete-addresses).

A queue goes when it was used, has no consumers now, none since ``auto-delete-queues-delay``, holds no
more than ``auto-delete-queues-message-count`` messages and nothing is on its way to it. It was used if
a consumer has left it, or if messages in it were acknowledged, expired or killed (as in Artemis). Two
sweeps in a row must find it like that, so that a client which reconnects finds it again.

An address stays while it keeps retroactive messages: the next queue that is bound to it gets them.

An activation deletes at once every queue made on demand that is empty, used or not: its clients make
it again when they need it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from understudy.errors import DiskFull
from understudy.ports import Clock
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.directory import Directory
from understudy.routing.queues.queue import Queue

log = logging.getLogger(__name__)

#: Queues and addresses that are looked at in one step of a sweep; a deletion counts as so many of them.
_STEP: Final = 50
_DELETION: Final = 10


class AutoDeletion:
    """Decides which auto-created queues and addresses are unused, and deletes them."""

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._candidates: dict[Queue | Address, int] = {}
        """Idle at the last sweep, and since when."""

    def sweep(self) -> Iterator[None]:
        """Delete addresses and queues that were idle at the last sweep and still are, in steps."""
        now_ms = self._clock.wall_ms()
        idle: dict[Queue | Address, int] = {}
        done = 0
        for queue in list(self._directory.queues.values()):
            if done >= _STEP:
                done = 0
                yield
            done += 1
            if not queue.deleted and _queue_idle(queue, now_ms):
                if self._candidates.get(queue) == queue.consumers.left_ms:
                    self._delete(queue)
                    done += _DELETION
                else:
                    idle[queue] = queue.consumers.left_ms
        for name, address in list(self._directory.addresses.items()):
            if done >= _STEP:
                done = 0
                yield
            done += 1
            if self._directory.addresses.get(name) is not address:
                continue
            if _unbound(self._directory, address) and _address_idle(address, now_ms):
                if self._candidates.get(address) == address.empty_since_ms:
                    self._directory.delete_address(name)
                    done += _DELETION
                else:
                    idle[address] = address.empty_since_ms
        self._candidates = idle

    def sweep_at_activation(self) -> None:
        """Delete queues made on demand that are empty, before there are clients. Deletions for which the disk
        has no space are left to the sweeps.
        """
        for queue in list(self._directory.queues.values()):
            if _may_go(queue) and not queue.message_count:
                try:
                    self._delete(queue)
                except DiskFull:
                    return

    def _delete(self, queue: Queue) -> None:
        log.info("deleting auto-created queue", extra={"queue": queue.name, "id": "AMQ224112"})
        self._directory.delete_queue(queue.name)
        delete_unbound(self._directory, queue.address.name)


def delete_unbound(directory: Directory, name: str) -> None:
    """Delete an address that was made on demand if nothing is left of it; a delay leaves that to the sweep."""
    address = directory.addresses.get(name)
    if (
        address is not None
        and address.auto_created
        and address.settings.auto_delete_addresses
        and not address.settings.auto_delete_addresses_delay
        and _unbound(directory, address)
    ):
        directory.delete_address(name)


def _unbound(directory: Directory, address: Address) -> bool:
    """Whether an address has no queues, no diverts but that of its own retroactive messages, and none of those."""
    retroactive = directory.retroactive
    if retroactive is None:
        return not (address.bindings or address.diverts)
    own = retroactive.divert_of(address.name)
    unbound = not address.bindings and all(divert.name == own for divert in address.diverts)
    return unbound and not retroactive.keeps_messages(address)


def _may_go(queue: Queue) -> bool:
    """Whether a queue may be deleted for being idle, whatever is in it."""
    return bool(queue.configuration.auto_delete) and not (queue.internal or queue.consumers.count or queue.incoming)


def _queue_idle(queue: Queue, now_ms: int) -> bool:
    configuration = queue.configuration
    kept_messages = configuration.auto_delete_message_count
    unused_too = queue.address.settings.auto_delete_queues_skip_usage_check
    since_ms = queue.created_ms if unused_too else queue.consumers.left_ms
    return (
        _may_go(queue)
        and (unused_too or queue.used)
        and (kept_messages == -1 or queue.message_count <= (kept_messages or 0))
        and now_ms - since_ms >= (configuration.auto_delete_delay or 0)
    )


def _address_idle(address: Address, now_ms: int) -> bool:
    settings = address.settings
    return (
        address.auto_created
        and (address.used or settings.auto_delete_addresses_skip_usage_check)
        and settings.auto_delete_addresses
        and now_ms - address.empty_since_ms >= settings.auto_delete_addresses_delay
    )
