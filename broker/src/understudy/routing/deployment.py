"""What the configuration says there is: addresses, queues and diverts, made at activation.

Queues that are there already become what the configuration says, with their messages; what cannot
change while a queue exists (``durable``) stays. Diverts of the configuration are made by every
activation and are not in the log. Not here: reading the configuration (``config``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from understudy.config.model import AddressConfiguration, ConfigDeletionPolicy, DivertConfiguration, RoutingType
from understudy.config.model import QueueConfiguration as ConfiguredQueue
from understudy.errors import QueueExists
from understudy.routing.changes import CHANGEABLE, change_queue
from understudy.routing.configuration import QueueConfiguration

if TYPE_CHECKING:
    from understudy.routing.post_office import PostOffice

log = logging.getLogger(__name__)


def deploy(
    office: PostOffice, addresses: Sequence[AddressConfiguration], diverts: Iterable[DivertConfiguration] = ()
) -> None:
    """Make or change everything that is configured, and delete what has gone from the configuration where
    ``config-delete-queues`` (queues that came from it) and ``config-delete-addresses`` (addresses that were not
    made on demand, with all their queues and messages) say so.

    Raises:
        QueueExists: a queue of that name is on another address; it is never moved.
        and everything ``Directory.create_queue`` and ``change_queue`` raise.
    """
    directory = office.directory
    named: set[str] = set()
    for wanted in addresses:
        types = [RoutingType(kind) for kind in wanted.routing_types] or [RoutingType.MULTICAST]
        address = directory.addresses.get(wanted.name)
        if address is None:
            directory.create_address(wanted.name, types)
        else:
            directory.add_routing_types(address, types)
        for entry in wanted.queues:
            named.add(entry.name)
            _deploy_queue(office, _configured(entry, wanted.name))
    for queue in office.queues():
        gone = queue.configuration.configuration_managed and queue.name not in named
        if gone and queue.address.settings.config_delete_queues is ConfigDeletionPolicy.FORCE:
            directory.delete_queue(queue.name, disconnect=True)
    _delete_addresses(office, {wanted.name for wanted in addresses})
    office.diverts.deploy(diverts)


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
    if existing.address.name != wanted.address:
        raise QueueExists(f"queue {wanted.name!r} exists on address {existing.address.name!r}, not {wanted.address!r}")
    full = wanted.filled(existing.address.settings)
    changed = {name: getattr(full, name) for name in CHANGEABLE}
    changed["filter"] = full.filter or ""
    change_queue(office, existing, replace(existing.configuration, **changed))


def _configured(entry: ConfiguredQueue, address: str) -> QueueConfiguration:
    """A queue of the configuration; what it leaves open the address settings say."""
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
    )
