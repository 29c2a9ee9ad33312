"""Changes that an operator or the configuration makes to a queue or an address that exists.

A changed queue keeps its id, its messages and its consumers; its record goes to the log again, and
the later record of an id replaces the earlier one. Messages that are in the queue stay there, also
if a new filter would not let them in or a ring became smaller.

Not here: making and deleting (``directory``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Final

from understudy.errors import DiskFull, InvalidQueueConfiguration, UnexpectedRoutingType
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.binding import Binding
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.addresses.records import queue_record
from understudy.routing.filter import parse_filter
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.terms import RoutingType
from understudy.texts import counted

#: Settings that may change while a queue holds messages and has consumers.
CHANGEABLE: Final = frozenset(
    {
        "routing_type",
        "filter",
        "max_consumers",
        "purge_on_no_consumers",
        "exclusive",
        "group_rebalance",
        "group_rebalance_pause_dispatch",
        "group_buckets",
        "group_first_key",
        "last_value",
        "last_value_key",
        "non_destructive",
        "consumers_before_dispatch",
        "delay_before_dispatch",
        "ring_size",
        "enabled",
        "paused",
        "configuration_managed",
        "user",
    }
)


def change_queue(office: PostOffice, queue: Queue, wanted: QueueConfiguration) -> None:
    """Give a queue the settings of ``wanted``; None and equal values change nothing, and an empty
    filter takes everything. A queue that becomes a last-value queue keeps the newest of each key.

    Raises:
        InvalidQueueConfiguration: something that cannot change while the queue exists, fewer consumers allowed than
            there are, or a number with more bits than the wire has for it.
        UnexpectedRoutingType: the address does not take it.
        InvalidSelector, DiskFull
    """
    current = queue.configuration
    changes = {}
    for field in fields(QueueConfiguration):
        value, before = getattr(wanted, field.name), getattr(current, field.name)
        if value is not None and (value or None) != (before or None):
            changes[field.name] = value
    refused = changes.keys() - CHANGEABLE
    if refused:
        raise InvalidQueueConfiguration(f"queue {queue.name!r}: {', '.join(sorted(refused))} cannot be changed")
    if not changes:
        return
    if changes.get("last_value") is False:
        changes["last_value_key"] = None
    if changes.get("filter") == "":
        changes["filter"] = None
    full = replace(current, **changes).with_last_value_key()
    full.check_numbers()
    limit = full.max_consumers
    if limit is not None and 0 <= limit < queue.consumers.count:
        raise InvalidQueueConfiguration(
            f"queue {queue.name!r} has {counted(queue.consumers.count, 'consumer')}, more than {limit}"
        )
    routing_type = RoutingType(full.routing_type or RoutingType.MULTICAST)
    address = office.directory.address_of(queue)
    if routing_type not in address.routing_types:
        raise UnexpectedRoutingType(f"address {address.name!r} is not {routing_type.name.lower()}")
    selector = queue.filter
    if full.filter != current.filter:
        selector = parse_filter(full.filter)
        address.check_filter(selector)
    if queue.durable:
        office.store.store_queue(queue_record(queue.queue_id, address.address_id, full))
    queue.filter = selector
    queue.configure(full)
    office.routing.exchanges.changes += 1
    address.add_binding(Binding(queue.name, address.name, routing_type, queue, selector))
    _refresh_linked(office, address)
    if full.filter != current.filter:
        for listener in office.directory.listeners:
            listener.queue_updated(queue)


def pause_queue(office: PostOffice, queue: Queue, *, persist: bool) -> None:
    """Deliver nothing of a queue before ``resume_queue``; with ``persist`` not after a restart or takeover either."""
    if persist:
        change_queue(office, queue, replace(queue.configuration, paused=True))
    queue.pause()


def resume_queue(office: PostOffice, queue: Queue) -> None:
    """Deliveries go on, and a persisted pause is over."""
    if queue.configuration.paused:
        change_queue(office, queue, replace(queue.configuration, paused=False))
    if not office.directory.address_of(queue).paused:
        queue.resume()


def pause_address(office: PostOffice, address: Address, *, persist: bool) -> None:
    """Pause every queue of an address, those that are bound later included, until ``resume_address``.

    Args:
        address: Takes messages as before.
        persist: Keep the pause over a restart or failover. Pausing again without it leaves a pause that is
            kept as it is.

    Raises:
        DiskFull: the pause cannot be kept; nothing was paused.
    """
    if persist and not address.pause_stored:
        address.pause_stored = True
        try:
            office.directory.store_address(address)
        except DiskFull:
            address.pause_stored = False
            raise
    address.paused = True
    for binding in address.bindings.values():
        binding.queue.pause()


def resume_address(office: PostOffice, address: Address) -> None:
    """End the pause of an address and of all its queues, also of those that were paused by themselves (as in
    Artemis). An address that is not paused is left alone.

    Raises:
        DiskFull: the end of a stored pause cannot be written; the pause goes on.
    """
    if not address.paused:
        return
    if address.pause_stored:
        address.pause_stored = False
        try:
            office.directory.store_address(address)
        except DiskFull:
            address.pause_stored = True
            raise
    address.paused = False
    for binding in address.bindings.values():
        resume_queue(office, binding.queue)


def change_routing_types(office: PostOffice, address: Address, routing_types: Collection[RoutingType]) -> None:
    """Let an address route in these ways and no others.

    Raises:
        UnexpectedRoutingType: a queue is bound in a way that would go, or none would be left.
        DiskFull
    """
    wanted = set(routing_types)
    if not wanted:
        raise UnexpectedRoutingType(f"address {address.name!r} would have no routing type")
    lost = address.routing_types - wanted
    for binding in address.bindings.values():
        if binding.routing_type in lost:
            raise UnexpectedRoutingType(
                f"address {address.name!r} has the {binding.routing_type.name.lower()} queue {binding.name!r}"
            )
    if wanted == address.routing_types:
        return
    before, address.routing_types = address.routing_types, wanted
    if address.stored:
        try:
            office.directory.store_address(address)
        except DiskFull:
            address.routing_types = before
            raise
    address.refresh()


def _refresh_linked(office: PostOffice, address: Address) -> None:
    """Addresses that a wildcard address covers route to its queues, too."""
    for other in office.directory.addresses.values():
        if address in other.linked:
            other.refresh()
