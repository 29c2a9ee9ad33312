"""Taking over what the log says at activation: addresses, queues, duplicate ids, references.

This is on the way of every failover, so the backlog must cost next to nothing: references are
taken over in blocks, nothing is done per message in Python, and bodies stay in the log until they
are delivered. The one exception are messages in several queues of an address of which some queues
are through with one part and some with another: the bytes counted too often are then added up
message by message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter

from understudy.errors import BrokerError, InvalidQueueConfiguration, InvalidSelector, StoreError
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.configuration import QueueConfiguration, check_name
from understudy.routing.addresses.internal_names import internal_prefix
from understudy.routing.addresses.records import queue_configuration
from understudy.routing.addresses.settings import AddressSettings
from understudy.routing.lifecycle.retroactive import Retroactive
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.routing.shared_messages import SharedMessages
from understudy.store.log.records import QueueRecord
from understudy.store.messages.backlog import Backlog
from understudy.store.messages.reference import References
from understudy.store.state import StoreState
from understudy.terms import RoutingType


def restore(office: PostOffice, state: StoreState) -> int:
    """Build everything in an empty post office. Returns the number of references taken over.

    Raises:
        StoreError: what a valid record says is nothing that a broker could have written.
    """
    directory = office.directory
    by_id: dict[int, Address] = {}
    types: dict[tuple[int, ...], set[RoutingType]] = {}
    for record in state.addresses.values():
        routing_types = types.get(record.routing_types)
        if routing_types is None:
            routing_types = types[record.routing_types] = {RoutingType(number) for number in record.routing_types}
        settings = record.settings
        by_id[record.address_id] = directory.adopt_address(
            record.address_id,
            record.name,
            routing_types,
            auto_created=record.auto_created,
            internal=bool(settings.get("internal", False)),
            paused=bool(settings.get("paused", False)),
            duplicate_ids=state.duplicate_ids.get(record.address_id, ()),
        )
        diverts = settings.get("diverts", ())
        if diverts and isinstance(diverts, Sequence):
            try:
                office.diverts.restore(diverts)
            except (BrokerError, ValueError, TypeError, KeyError) as error:
                raise StoreError(f"a divert of address {record.name!r} in the log is none: {error!r}") from error
    total = 0
    held: dict[Address, list[tuple[Queue, Backlog]]] = {}
    configurations = _Configurations()
    for entry in state.queues.values():
        address = by_id.get(entry.address_id)
        if address is None:
            # The address went with a forced deletion whose end the log does not have.
            _give_up(office, state.take_references(entry.queue_id))
            continue
        try:
            configuration = configurations.of(entry, address.name)
            queue = directory.adopt_queue(entry.queue_id, configuration, address)
        except (InvalidSelector, InvalidQueueConfiguration) as error:
            raise StoreError(f"queue {entry.name!r} in the log is none: {error}") from error
        backlog = state.take_references(entry.queue_id)
        if backlog.count:
            total += backlog.count
            held.setdefault(address, []).append((queue, backlog))
    for address, backlogs in held.items():
        for _, backlog in backlogs:
            address.adopt(backlog.size_bytes, backlog.count)
        if len(backlogs) > 1:
            _share(address, backlogs, state)
        for queue, backlog in backlogs:
            _adopt(office, queue, backlog)
    for queue_id in list(state.references):
        _give_up(office, state.take_references(queue_id))
    office.routing.restore(state)
    return total


def settle(office: PostOffice, internal_naming_prefix: str) -> None:
    """Let messages go that a crash left behind in queues of special kinds, and make retroactive resources that are
    missing; once, when everything that is prepared was taken over, too.

    Args:
        office: Restored.
        internal_naming_prefix: Configured prefix of the names of retroactive resources.
    """
    for queue in office.queues():
        if queue.kind is not None:
            queue.kind.load()
    office.routing.exchanges.settle()
    office.directory.internal_prefix = internal_prefix(office.directory, internal_naming_prefix)
    Retroactive(office, office.directory.internal_prefix)


class _Configurations:
    """Configurations of queues from their records. Neighbours mostly differ in their names only, and share values."""

    def __init__(self) -> None:
        self._record: QueueRecord | None = None
        self._values: tuple[object, ...] = ()
        """Values of the last configuration, without name and address."""

    def of(self, record: QueueRecord, address: str) -> QueueConfiguration:
        """The complete configuration of a record.

        Raises:
            StoreError, InvalidQueueConfiguration: It is nothing that a broker could have written.
        """
        last = self._record
        if (
            last is not None
            and (last.settings is record.settings or last.settings == record.settings)
            and (last.routing_type, last.filter, last.durable) == (record.routing_type, record.filter, record.durable)
        ):
            check_name(record.name, "queue")
            check_name(address, "address")
            return QueueConfiguration(record.name, address, *self._values)  # type: ignore[arg-type]  # of another one
        full = queue_configuration(record, address).filled(AddressSettings())
        self._record, self._values = record, _values_of(full)
        return full


#: Values of a configuration in the order of its fields, without the first two: name and address.
_values_of = attrgetter(*(each.name for each in fields(QueueConfiguration)[2:]))


def _give_up(office: PostOffice, backlog: Backlog) -> None:
    """Remove the files of large messages whose references belong to no queue."""
    for file_id, count in backlog.files.items():
        for _ in range(count):
            office.store.large.release(file_id)


def _adopt(office: PostOffice, queue: Queue, backlog: Backlog) -> None:
    for reference in backlog.scheduled_after(office.clock.wall_ms()):
        # the position in the backlog is no position in the queue
        reference.position = -1
        queue.schedule(References((reference,)))
        office.scheduled.add(queue, reference, reference.scheduled_ms)
    queue.adopt(backlog)


def _share(address: Address, backlogs: list[tuple[Queue, Backlog]], state: StoreState) -> None:
    """Count messages that are in several queues of an address once."""
    shared = SharedMessages()
    seen: dict[int, int] = {}
    surplus_bytes = surplus = 0
    # The fullest first: mostly the others then hold nothing that it does not hold too.
    for queue, backlog in sorted(backlogs, key=lambda pair: -pair[1].count):
        masks = live_masks(state, queue.queue_id)
        before = dict(seen)
        overlap = shared.overlay(masks, seen)
        surplus += overlap
        if overlap == backlog.count:
            surplus_bytes += backlog.size_bytes
        elif overlap:
            surplus_bytes += sum(
                reference.size_bytes
                for reference in backlog.references()
                if before.get(reference.message_id >> 6, 0) >> (reference.message_id & 63) & 1
            )
    address.share(shared, surplus_bytes, surplus)


def live_masks(state: StoreState, queue_id: int) -> Mapping[int, int]:
    """The live messages of a queue, as ``store.live_index`` has them, without those that open transactions add."""
    masks = state.live.queues.get(queue_id, {})
    staged = [
        message_id
        for transaction in state.transactions.values()
        for message_id in transaction.added_ids.by_queue.get(queue_id, ())
    ]
    if not staged:
        return masks
    own = dict(masks)
    for message_id in staged:
        own[message_id >> 6] = own.get(message_id >> 6, 0) & ~(1 << (message_id & 63))
    return own
