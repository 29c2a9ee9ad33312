"""The short way in for plain messages, a run of them at a time.

Most messages need nothing of what ``PostOffice.send`` looks after: they go to the same ordinary queues as every other
message of their address, now or with their transaction. A client that sends without waiting has many of them in one
read of its socket; they are taken here together: the address is looked up once, the log gets them in one pass, and one
entry of the operation context releases them all. Queues, log, answers and their order are those of the same messages
sent one by one. An address with limits takes them like that until it holds its maximum.

Not here: everything that is not plain (``post_office``), what an open transaction holds (``staging``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from understudy.config.model import AddressFullPolicy
from understudy.kernel import Run, Sends, keep_sends
from understudy.message import Message
from understudy.store.reference import RunSlice

if TYPE_CHECKING:
    from understudy.routing.address import Address
    from understudy.routing.order import BatchTransaction, Order
    from understudy.routing.post_office import PostOffice
    from understudy.routing.queue import Queue
    from understudy.store.operation_context import OperationContext

Answered = Callable[[Sequence[int]], None]
"""Answers the requests with these correlation ids: their messages are safe."""

Arrival = tuple[RunSlice, ...]
"""A run on its way to its queues: a slice for each."""

#: Longer ones go the long way, as do those of more than a quarter of a segment: the store asks whether there is room
#: for a segment of their own. Clients send what is longer than 100 KiB as large messages.
_PLAIN_BYTES_MAX: Final = 256 * 1024
_UNLIMITED: Final = 1 << 62


def take_plain(
    office: PostOffice,
    sends: Sends,
    row: int,
    order: Order,
    answered: Answered | None,
    transaction: BatchTransaction | None = None,
) -> tuple[int, int]:
    """Take the plain messages from ``row`` on, which are all for one address.

    Args:
        office: Where they are routed.
        sends: In the order in which they came.
        row: The first one.
        order: Of the session.
        answered: Called when they are durable, or taken by the transaction, with their correlation ids; None if no
            answer is wanted.
        transaction: They become visible with it.

    Returns:
        How many were taken and their bytes; the next one, if any, has to go the long way.

    Raises:
        StoreError: the journal has failed.
    """
    address = office.directory.addresses.get(sends.address(row) or "")
    if address is None or address.alters_messages or office.store.full:
        return 0, 0
    queues = address.plain_queues
    if not queues:
        return 0, 0
    room_bytes = room_count = _UNLIMITED
    if address.limited:
        room_bytes, room_count = _room(office, address, queues)
    if transaction is not None:
        room_count = min(room_count, transaction.room(len(queues)))
    longest_bytes = min(_PLAIN_BYTES_MAX, office.store.settings.segment_bytes // 4)
    count = sends.alike(row, longest_bytes, queues[0].routing_type, room_bytes)
    if count > room_count:
        count = max(room_count, 0)
    durable_ids: tuple[int, ...] = ()
    if sends.durable(row):
        if len(queues) == 1:
            durable_ids = (queues[0].queue_id,) if queues[0].durable else ()
        else:
            durable_ids = tuple([queue.queue_id for queue in queues if queue.durable])
    if transaction is not None or not durable_ids:
        # these meet the limit of memory one by one
        holder, most_bytes = queues[0].address, count * _PLAIN_BYTES_MAX
        if (
            holder.counts_messages
            or holder.memory_bytes + most_bytes > holder.memory_max_bytes
            or office.memory_bytes + most_bytes * len(queues) > office.memory_max_bytes
        ) and not _stay_in_memory(office, sends, row, count, queues):
            return 0, 0
    if count and sends.duplicate_id(row):
        ids = [sends.duplicate_id(number) for number in range(row, row + count)]
        count = address.duplicate_ids.unseen(ids)
    if not count:
        return 0, 0
    return count, _take(office, address, queues, durable_ids, sends, row, count, order, answered, transaction)


def _take(
    office: PostOffice,
    address: Address,
    queues: tuple[Queue, ...],
    durable_ids: tuple[int, ...],
    sends: Sends,
    row: int,
    count: int,
    order: Order,
    answered: Answered | None,
    transaction: BatchTransaction | None,
) -> int:
    """Take ``count`` messages from ``row`` on, which are plain, for these queues; those of ``durable_ids`` need them in
    the log. Returns their bytes.
    """
    store = office.store
    transaction_id = transaction.log_id() if transaction is not None and durable_ids else 0
    first_id = store.next_ids(count)
    if durable_ids:
        runs = store.store_run(sends, row, count, first_id, address.address_id, durable_ids, transaction_id)
    else:
        runs = [keep_sends(sends, row, count, first_id)]
    if sends.duplicate_id(row):
        duplicate_ids = [sends.duplicate_id(number) for number in range(row, row + count)]
        if durable_ids and transaction is None:
            address.duplicate_ids.extend(duplicate_ids, store.last_sequence)
        else:
            for duplicate_id in duplicate_ids:
                office.remember(address, duplicate_id, transaction, logged=bool(durable_ids))
    address.messages_routed += count
    priority = sends.priority(row)
    arrivals: list[Arrival] = []
    size_bytes = 0
    for run in runs:
        size_bytes += run.size_bytes
        if len(queues) == 1:
            arrivals.append((RunSlice(run, 0, run.count, priority, -1),))
        else:
            arrivals.append(_shared_slices(run, queues, priority))
    if len(queues) == 1:
        queue = queues[0]
        # a queue of a wildcard address is counted there
        holder = queue.address
        holder.size_bytes += size_bytes
        holder.memory_bytes += size_bytes
        holder.message_count += count
        office.memory_bytes += size_bytes
        office.memory_count += count
        queue.incoming += count
    else:
        _charge(office, queues, runs, size_bytes, count)
    context = office.context
    ids = sends.correlation_ids if count == sends.count else sends.correlation_ids[row : row + count]
    if transaction is not None:
        for arrival in arrivals:
            transaction.staged_run(queues, arrival)
        if answered is not None:
            _answer(context, order, answered, ids)
        return size_bytes
    if durable_ids:
        order.sequence = context.appended
    elif order.sequence > context.durable:
        # behind whatever else the session waits for; the end of the log keeps the order whole
        order.sequence = context.appended
    context.when_durable(order.sequence, arrive_together, office, queues, arrivals, answered, ids)
    return size_bytes


def _answer(context: OperationContext, order: Order, answered: Answered, correlation_ids: Sequence[int]) -> None:
    """Answer these requests behind what the session waits for (``PostOffice.answer``)."""
    if order.sequence > context.durable:
        order.sequence = context.appended
        context.when_durable(order.sequence, answered, correlation_ids)
    else:
        answered(correlation_ids)


def _room(office: PostOffice, address: Address, queues: tuple[Queue, ...]) -> tuple[int, int]:
    """Bytes and messages that an address takes before it or the node holds its maximum (``PostOffice.admits``)."""
    room_bytes, room_count = address.room
    if address.settings.address_full_policy is not AddressFullPolicy.PAGE:
        # each address that holds them counts them for the node
        holders = len({queue.address for queue in queues})
        room_bytes = min(room_bytes, -((office.memory_bytes - office.memory_max_bytes) // holders))
        room_count = min(room_count, -((office.memory_count - office.memory_max_count) // holders))
    return room_bytes, room_count


def _stay_in_memory(office: PostOffice, sends: Sends, row: int, count: int, queues: tuple[Queue, ...]) -> bool:
    """Whether none of ``count`` messages from ``row`` on has to leave memory at once (``PostOffice.arrive``,
    ``StagedSends.add``).
    """
    holder = queues[0].address
    size_bytes = sends.bytes_of(row, count)
    holders = len({queue.address for queue in queues})
    if (
        holder.memory_bytes + size_bytes > holder.memory_max_bytes
        or office.memory_bytes + size_bytes * holders > office.memory_max_bytes
    ):
        return False
    return not holder.counts_messages or (
        holder.message_count + count - holder.paged_count <= holder.memory_max_messages
        and office.memory_count + count * holders <= office.memory_max_count
    )


def _charge(office: PostOffice, queues: tuple[Queue, ...], runs: list[Run], size_bytes: int, count: int) -> None:
    """``PostOffice.charge`` for each message of these runs, which several queues get."""
    queue_counts: dict[Address, int] = {}
    for queue in queues:
        queue.incoming += count
        queue_counts[queue.address] = queue_counts.get(queue.address, 0) + 1
    for address, queue_count in queue_counts.items():
        address.charge_runs(runs, size_bytes, queue_count)
    office.memory_bytes += size_bytes * len(queue_counts)
    office.memory_count += count * len(queue_counts)


def _shared_slices(run: Run, queues: tuple[Queue, ...], priority: int) -> Arrival:
    shared: dict[int, Message] = {}
    return tuple([RunSlice(run, 0, run.count, priority, -1, durable=queue.durable, shared=shared) for queue in queues])


def arrive_together(
    office: PostOffice,
    queues: tuple[Queue, ...],
    arrivals: Iterable[Arrival],
    answered: Answered | None = None,
    correlation_ids: Sequence[int] = (),
) -> None:
    """Released: visible to consumers (``PostOffice.arrive``), and their producer may know."""
    address = queues[0].address
    for arrival in arrivals:
        if (
            address.memory_bytes > address.memory_max_bytes
            or office.memory_bytes > office.memory_max_bytes
            or (address.counts_messages and office.holds_too_many(address))
            or queues[0].kind is not None
            or (len(queues) > 1 and any(queue.kind is not None for queue in queues))
        ):
            for references in zip(*arrival, strict=True):
                office.arrive(queues, list(references), None)
            continue
        if office.memory_bytes > office.paging.bodies_max_bytes and all(part.durable for part in arrival):
            office.paging.page_out_run(queues, arrival)
            continue
        for queue, part in zip(queues, arrival, strict=True):
            queue.add_run(part)
    if answered is not None:
        answered(correlation_ids)


def discard_together(office: PostOffice, queues: tuple[Queue, ...], arrival: Arrival) -> None:
    """A run of a transaction that was rolled back leaves the counts (``PostOffice.discard``)."""
    for queue, part in zip(queues, arrival, strict=True):
        queue.incoming -= len(part)
        bodies, bodies_bytes = queue.address.discharge_all(part)
        office.memory_bytes -= bodies_bytes
        office.memory_count -= bodies
