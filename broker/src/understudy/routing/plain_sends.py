"""The short way in for plain messages, a run of them at a time.

Most messages need nothing of what ``PostOffice.send`` looks after: they go to the one queue of an address without
limits, now and outside a transaction. A client that sends without waiting has many of them in one read of its socket;
they are taken here together: the address is looked up once, the log gets them in one pass, and one entry of the
operation context releases them all. Queues, log, answers and their order are those of the same messages sent one by
one.

Not here: everything that is not plain (``post_office``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from understudy.kernel import Sends, keep_sends
from understudy.routing.duplicate_ids import DuplicateIdCache
from understudy.store.reference import RunSlice

if TYPE_CHECKING:
    from understudy.routing.post_office import Order, PostOffice
    from understudy.routing.queue import Queue

Answered = Callable[[Sequence[int]], None]
"""Answers the requests with these correlation ids: their messages are safe."""

#: Longer ones go the long way, where the store asks whether there is room for a segment of their own.
_PLAIN_BYTES_MAX: Final = 32 * 1024


def take_plain(office: PostOffice, sends: Sends, row: int, order: Order, answered: Answered | None) -> tuple[int, int]:
    """Take the plain messages from ``row`` on, which are all for one address.

    Args:
        office: Where they are routed.
        sends: In the order in which they came.
        row: The first one.
        order: Of the session.
        answered: Called when they are durable, with their correlation ids; None if no answer is wanted.

    Returns:
        How many were taken and their bytes; the next one, if any, has to go the long way.

    Raises:
        StoreError: the journal has failed.
    """
    address = office.directory.addresses.get(sends.address(row) or "")
    if address is None or address.limited or address.alters_messages or office.store.full:
        return 0, 0
    queue = address.sole_queue
    if queue is None:
        return 0, 0
    count = sends.alike(row, _PLAIN_BYTES_MAX, queue.routing_type)
    durable = queue.durable and sends.durable(row)
    detected = bool(sends.duplicate_id(row))
    if detected:
        count = _unseen(address.duplicate_ids, sends, row, count) if durable else 0
    if not count:
        return 0, 0
    store = office.store
    first_id = store.next_ids(count)
    if durable:
        runs = store.store_run(sends, row, count, first_id, address.address_id, queue.queue_id)
    else:
        runs = [keep_sends(sends, row, count, first_id)]
    if detected:
        sequence = store.last_sequence - count
        for number in range(count):
            address.duplicate_ids.add(sends.duplicate_id(row + number), sequence + number + 1)
    size_bytes = sum([run.size_bytes for run in runs])
    slices = [RunSlice(run, 0, run.count, sends.priority(row), -1) for run in runs]
    address.messages_routed += count
    # a queue of a wildcard address is counted there
    holder = queue.address
    holder.size_bytes += size_bytes
    holder.memory_bytes += size_bytes
    holder.message_count += count
    office.memory_bytes += size_bytes
    office.memory_count += count
    queue.incoming += count
    context = office.context
    if durable:
        order.sequence = store.last_sequence
    elif order.sequence > context.durable:
        # behind whatever else the session waits for; the end of the log keeps the order whole
        order.sequence = context.appended
    ids = sends.correlation_ids if count == sends.count else sends.correlation_ids[row : row + count]
    context.when_durable(order.sequence, _arrive, office, queue, slices, answered, ids)
    return count, size_bytes


def _unseen(seen: DuplicateIdCache, sends: Sends, row: int, count: int) -> int:
    """How many of ``count`` messages from ``row`` on have duplicate ids that differ and were not seen."""
    ids: set[bytes] = set()
    for number in range(count):
        duplicate_id = sends.duplicate_id(row + number)
        if duplicate_id in ids or duplicate_id in seen:
            return number
        ids.add(duplicate_id)
    return count


def _arrive(
    office: PostOffice,
    queue: Queue,
    runs: list[RunSlice],
    answered: Answered | None,
    correlation_ids: Sequence[int],
) -> None:
    """Released: visible to consumers, and their producer may know."""
    address = queue.address
    if (
        queue.kind is not None
        or address.memory_bytes > address.memory_max_bytes
        or office.memory_bytes > office.memory_max_bytes
        or address.counts_messages
        or office.counts_messages
    ):
        references = [each for run in runs for each in run]
        for number, reference in enumerate(references):
            office.arrive((queue,), [reference], None)
            if answered is not None:
                answered(correlation_ids[number : number + 1])
        return
    for run in runs:
        queue.add_run(run)
    if answered is not None:
        answered(correlation_ids)
