"""Retroactive addresses (manual, "Retroactive Addresses"): queues made later get the last messages of their address.

An address whose setting ``retroactive-message-count`` is above 0 has a divert that copies every message to an address
of its own, where a ring queue for each routing type keeps that many. A new queue of the address gets copies of what the
ring of its routing type holds and its filter takes, in the order of the ring, before anything else. The names are those
of Artemis: ``internal-naming-prefix``, the address, and what the resource is.

Not here: rings and diverts as such (``ring``, ``diverts``). Invariant: the resources are in the log, so an activation
finds them with the address and makes only those that a changed setting asks for.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final, NamedTuple

from understudy.errors import DiskFull, InvalidQueueConfiguration, LimitExceeded
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.addresses.updates import change_queue
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.routing.response_order import ResponseOrder
from understudy.terms import DivertDefinition, DivertRouting, RoutingType

log = logging.getLogger(__name__)

_SUFFIX: Final = "retro"
_TYPES: Final = (RoutingType.MULTICAST, RoutingType.ANYCAST)


class Names(NamedTuple):
    """Names of the resources of one address."""

    address: str
    divert: str
    queues: dict[RoutingType, str]


class Retroactive:
    """Makes, uses and deletes the resources of retroactive addresses."""

    def __init__(self, office: PostOffice, prefix: str) -> None:
        """Args:
        office: Restored; from now on its directory reports creations and deletions.
        prefix: ``internal-naming-prefix``.
        """
        self._office = office
        self._prefix = prefix
        office.directory.retroactive = self
        self.settings_changed()

    def names(self, address: str) -> Names:
        """Names of the resources of an address."""
        delimiter = self._office.directory.settings.wildcards.delimiter
        queues = {kind: self._name(address, f"queue{delimiter}{kind.name.lower()}", delimiter) for kind in _TYPES}
        return Names(self._name(address, "address", delimiter), self._name(address, "divert", delimiter), queues)

    def divert_of(self, address: str) -> str:
        """Name of the internal divert of a retroactive address."""
        return self.names(address).divert

    def keeps_messages(self, address: Address) -> bool:
        """Whether a ring holds messages for queues that an address gets later; none gets them once the setting is 0."""
        if address.settings.retroactive_message_count <= 0:
            return False
        rings = map(self._office.directory.queues.get, self.names(address.name).queues.values())
        return any(ring is not None and ring.message_count + ring.incoming for ring in rings)

    def _name(self, address: str, resource: str, delimiter: str) -> str:
        return f"{self._prefix}{address}{delimiter}{resource}{delimiter}{_SUFFIX}"

    def is_resource(self, name: str) -> bool:
        """Whether an address, queue or divert of that name was made for a retroactive address."""
        return name.startswith(self._prefix) and name.endswith(_SUFFIX)

    # -- what the directory tells -----------------------------------------------------------------

    def settings_changed(self) -> None:
        """Make what the settings of an address ask for and is not there yet; rings take their new size."""
        for address in list(self._office.directory.addresses.values()):
            self.address_created(address)

    def address_created(self, address: Address) -> None:
        """Make the resources of an address, if it is to have some. A resource for which a limit or the disk leaves no
        space is missing; the log has a warning.
        """
        address.retroactive_resource = self.is_resource(address.name)
        count = address.settings.retroactive_message_count
        if count <= 0 or address.internal or not address.stored or address.retroactive_resource:
            return
        try:
            self._make(address, count)
        except (DiskFull, InvalidQueueConfiguration, LimitExceeded) as error:
            log.warning("no retroactive resources", extra={"address": address.name, "error": str(error)})

    def _make(self, address: Address, count: int) -> None:
        office, names = self._office, self.names(address.name)
        directory = office.directory
        if names.address not in directory.addresses:
            directory.create_address(names.address, _TYPES)
        for kind, name in names.queues.items():
            queue = directory.queues.get(name)
            if queue is None:
                directory.create_queue(
                    QueueConfiguration(
                        name=name, address=names.address, routing_type=kind, max_consumers=0, ring_size=count
                    )
                )
            elif queue.configuration.ring_size != count:
                change_queue(office, queue, replace(queue.configuration, ring_size=count))
        if names.divert not in office.diverts.by_name:
            office.diverts.create(
                DivertDefinition(names.divert, address.name, names.address, routing_type=DivertRouting.PASS)
            )

    def queue_created(self, queue: Queue) -> None:
        """Copy to a new queue what the ring of its address and routing type holds for it."""
        office = self._office
        address = office.directory.address_of(queue)
        if address.settings.retroactive_message_count <= 0 or self.is_resource(queue.name):
            return
        ring = office.directory.queues.get(self.names(address.name).queues[queue.routing_type])
        if ring is None:
            return
        order = ResponseOrder()
        for _, reference in ring.browse((9, -1)):
            message = ring.read(reference)
            if queue.filter is not None and not queue.filter.matches(message):
                continue
            copy = message.replace(address=address.name, message_id=office.store.next_id())
            try:
                office.acceptance.accept(address, copy, (queue,), 0, order, None, None, None)
            except DiskFull as error:
                log.warning("retroactive messages left out", extra={"queue": queue.name, "error": str(error)})
                return

    def address_deleted(self, name: str) -> None:
        """Remove the resources of a deleted address; the divert was kept in its record."""
        if self.is_resource(name):
            return
        directory, names = self._office.directory, self.names(name)
        if names.address in directory.addresses:
            directory.delete_address(names.address, force=True)
