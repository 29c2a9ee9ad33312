"""Addresses, queues and diverts of the configuration, made at activation.

Queues that are there already become what the configuration says, with their messages; what cannot
change while a queue exists (``durable``) stays. Diverts of the configuration are made by every
activation and are not in the log. A node that takes a changed configuration while it is active does the same
again. Not here: reading the configuration (``config``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from understudy.config.model import AddressConfiguration, ConfigDeletionPolicy
from understudy.config.model import QueueConfiguration as ConfiguredQueue
from understudy.errors import (
    AddressError,
    BrokerError,
    DiskFull,
    InvalidQueueConfiguration,
    LimitExceeded,
    QueueExists,
)
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.addresses.divert import Divert
from understudy.routing.addresses.updates import CHANGEABLE, change_queue, change_routing_types
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.terms import DivertDefinition, RoutingType

log = logging.getLogger(__name__)

Refusals = tuple[BrokerError, ...]
"""Reason why items of the configuration are left out."""


def deploy(
    office: PostOffice,
    addresses: Sequence[AddressConfiguration],
    diverts: Iterable[DivertDefinition] = (),
) -> Refusals:
    """Make or change everything that is configured, and delete the items that the configuration does not have any more
    where ``config-delete-queues`` (queues that came from it) and ``config-delete-addresses`` (addresses that were not
    made on demand, with all their queues and messages) say so. A queue that came from the configuration and is on
    another address there now is deleted in the same case, with its messages, and made anew, as in Artemis.

    Args:
        addresses: Addresses with their queues.
        diverts: Made after them.

    Returns:
        Why an address, queue or divert is not as configured, each logged. It is left out, and everything else is
        applied: a backup whose file does not fit the store takes over, and one conflict in a changed file keeps
        nothing else back.
    """
    directory = office.directory
    refused: list[BrokerError] = []
    named = {entry.name for wanted in addresses for entry in wanted.queues}
    _delete_queues(office, {(wanted.name, entry.name) for wanted in addresses for entry in wanted.queues})
    for wanted in addresses:
        types = _routing_types(wanted)
        with _refusals(refused, wanted.name):
            address = directory.addresses.get(wanted.name)
            if address is None:
                address = directory.create_address(wanted.name, types)
            else:
                directory.add_routing_types(address, types)
            for entry in wanted.queues:
                with _refusals(refused, wanted.name, entry.name):
                    _deploy_queue(office, _configured(entry, wanted.name))
            _drop_routing_types(office, address, types)
    # a queue that is on another address than the file says was left out, and keeps its messages
    kept = {queue.address.name for queue in office.queues() if queue.name in named}
    _delete_addresses(office, kept.union(wanted.name for wanted in addresses))
    usable: list[DivertDefinition] = []
    for each in diverts:
        with _refusals(refused, each.address, each.name):
            Divert(each)
            usable.append(each)
    office.diverts.deploy(usable)
    return tuple(refused)


def _delete_queues(office: PostOffice, configured: Collection[tuple[str, str]]) -> None:
    """Delete the queues that came from the configuration and are not in it any more, or are on another address there.

    Args:
        configured: Names of the addresses and queues of the configuration.
    """
    for queue in office.queues():
        gone = queue.configuration.configuration_managed and (queue.address.name, queue.name) not in configured
        if gone and queue.address.settings.config_delete_queues is ConfigDeletionPolicy.FORCE:
            log.warning(
                "queue gone from the configuration",
                extra={"queue": queue.name, "address": queue.address.name, "messages": queue.message_count},
            )
            office.directory.delete_queue(queue.name, disconnect=True)


@contextmanager
def _refusals(refused: list[BrokerError], address: str, name: str = "") -> Iterator[None]:
    """Log and collect why an address, or a queue or divert of it, is not as configured."""
    try:
        yield
    except (AddressError, LimitExceeded, DiskFull) as error:
        place = f"{name!r} of address {address!r}" if name else f"address {address!r}"
        refused.append(InvalidQueueConfiguration(f"{place} is left out: {error}"))
        log.error(
            "an address, queue or divert of the configuration is left out",
            # ``name`` is a field of every log record
            extra={"address": address, "item": name, "error": str(error)},
        )


def _routing_types(wanted: AddressConfiguration) -> list[RoutingType]:
    return [RoutingType(kind) for kind in wanted.routing_types] or [RoutingType.MULTICAST]


def _drop_routing_types(office: PostOffice, address: Address, types: Collection[RoutingType]) -> None:
    """An address routes in the configured ways and no others, unless a queue that is bound needs another."""
    used = {binding.routing_type for binding in address.bindings.values()}
    change_routing_types(office, address, used.union(types))


def _delete_addresses(office: PostOffice, configured: Collection[str]) -> None:
    for address in list(office.directory.addresses.values()):
        gone = address.name not in configured and not address.auto_created and not address.internal
        if gone and address.settings.config_delete_addresses is ConfigDeletionPolicy.FORCE:
            log.warning("address gone from the configuration", extra={"address": address.name, "id": "AMQ224076"})
            office.directory.delete_address(address.name, force=True)


def _deploy_queue(office: PostOffice, wanted: QueueConfiguration) -> None:
    existing = office.directory.queues.get(wanted.name)
    if existing is None:
        office.directory.create_queue(wanted)
        return
    _check_address(existing, wanted.address)
    full = wanted.filled(existing.address.settings)
    changed = {name: getattr(full, name) for name in CHANGEABLE}
    changed["filter"] = full.filter or ""
    change_queue(office, existing, replace(existing.configuration, **changed))


def _check_address(existing: Queue, address: str) -> None:
    if existing.address.name != address:
        raise QueueExists(
            f"queue {existing.name!r} exists on address {existing.address.name!r}, not {address!r}",
            hint="delete it there, or set config-delete-queues to FORCE for that address, which deletes its messages",
        )


def _configured(entry: ConfiguredQueue, address: str) -> QueueConfiguration:
    """A queue of the configuration; the address settings supply values that it omits."""
    return QueueConfiguration(
        name=entry.name,
        address=address,
        routing_type=RoutingType(entry.routing_type),
        filter=entry.filter,
        durable=entry.durable,
        max_consumers=entry.max_consumers,
        purge_on_no_consumers=entry.purge_on_no_consumers,
        exclusive=entry.exclusive,
        group_rebalance=entry.group_rebalance,
        group_rebalance_pause_dispatch=entry.group_rebalance_pause_dispatch,
        group_buckets=entry.group_buckets,
        group_first_key=entry.group_first_key,
        last_value=entry.last_value,
        last_value_key=entry.last_value_key,
        non_destructive=entry.non_destructive,
        consumers_before_dispatch=entry.consumers_before_dispatch,
        delay_before_dispatch=entry.delay_before_dispatch,
        ring_size=entry.ring_size,
        enabled=entry.enabled,
        configuration_managed=True,
        user=entry.user or "",
    )
