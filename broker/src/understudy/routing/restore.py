"""Taking over what the log says at activation: addresses, queues, duplicate ids, references.

This is on the way of every failover, so the backlog must cost next to nothing: references are
adopted in bulk, nothing is done per message in Python, and bodies stay in the log until they are
delivered.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING

from understudy.config.model import RoutingType
from understudy.routing.address import Address
from understudy.routing.directory import queue_configuration
from understudy.routing.queue import Queue
from understudy.store.reference import LargeReference, MessageReference
from understudy.store.state import StoreState

if TYPE_CHECKING:
    from understudy.routing.post_office import PostOffice

_priority = attrgetter("priority")
_scheduled = attrgetter("scheduled_ms")
_size = attrgetter("size_bytes")


def restore(office: PostOffice, state: StoreState) -> int:
    """Build everything in an empty post office. Returns the number of references taken over."""
    directory = office.directory
    by_id: dict[int, Address] = {}
    for record in state.addresses.values():
        by_id[record.address_id] = directory.adopt_address(
            record.address_id,
            record.name,
            {RoutingType(number) for number in record.routing_types},
            auto_created=record.auto_created,
            internal=bool(record.settings.get("internal", False)),
            duplicate_ids=state.duplicate_ids.get(record.address_id, ()),
        )
    total = 0
    shared: dict[Address, list[dict[int, MessageReference]]] = {}
    for entry in state.queues.values():
        address = by_id.get(entry.address_id)
        if address is None:
            # The address went with a forced deletion whose end the log does not have.
            _give_up(office, state.take_references(entry.queue_id))
            continue
        settings = directory.settings.of(address.name)
        configuration = queue_configuration(entry, address.name).filled(settings)
        queue = directory.adopt_queue(entry.queue_id, configuration, address)
        references = state.take_references(entry.queue_id)
        if references:
            total += len(references)
            _adopt(office, queue, address, list(references.values()))
            shared.setdefault(address, []).append(references)
    for address, held in shared.items():
        if len(held) > 1:
            _share(address, held)
    for queue_id in list(state.references):
        _give_up(office, state.take_references(queue_id))
    return total


def _give_up(office: PostOffice, references: dict[int, MessageReference]) -> None:
    """Nobody will ever have these: the files of large ones may go."""
    for reference in references.values():
        if isinstance(reference, LargeReference):
            office.store.large.release(reference.file_id)


def _adopt(office: PostOffice, queue: Queue, address: Address, references: list[MessageReference]) -> None:
    address.adopt(sum(map(_size, references)), len(references))
    if max(map(_scheduled, references)):
        now_ms = office.clock.wall_ms()
        for reference in references:
            if reference.scheduled_ms > now_ms:
                queue.schedule(reference)
                office.scheduled.add(queue, reference, reference.scheduled_ms)
        references = [reference for reference in references if reference.scheduled_ms <= now_ms]
    priorities = set(map(_priority, references))
    queue.adopt(references, priorities.pop() if len(priorities) == 1 else None)


def _share(address: Address, held: list[dict[int, MessageReference]]) -> None:
    """Messages in several queues of an address count once."""
    seen: Counter[int] = Counter()
    for references in held:
        seen.update(references.keys())
    counts = {message_id: count for message_id, count in seen.items() if count > 1}
    if not counts:
        return
    sizes: dict[int, int] = {}
    for references in held:
        for message_id in counts.keys() & references.keys():
            sizes[message_id] = references[message_id].size_bytes
    address.share(counts, sizes)
