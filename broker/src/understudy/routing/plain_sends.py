"""The short way in for plain messages, a run of them at a time.

Most messages need nothing of what ``PostOffice.send`` looks after: they go to the one queue of an address without
limits, now, outside a transaction and without a duplicate id. A client that sends without waiting has many of them in
one read of its socket; they are taken here together: the address is looked up once, the log gets them in one pass, and
one entry of the operation context releases them all. What comes out, and in which order, is the same.

Not here: everything that is not plain (``post_office``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from understudy.config.model import RoutingType
from understudy.message import DUPLICATE_ID, ROUTING_TYPE, SCHEDULED_DELIVERY, Message
from understudy.properties import NO_PROPERTIES, Properties
from understudy.store.reference import MessageReference

if TYPE_CHECKING:
    from understudy.routing.post_office import Order, PostOffice
    from understudy.routing.queue import Queue

Answered = Callable[[Sequence[int]], None]
"""Answers the requests with these correlation ids: their messages are safe."""

#: Longer ones go the long way, where the store asks whether there is room for a segment of their own.
_PLAIN_BYTES_MAX: Final = 32 * 1024
_pack_id = Struct(">q").pack


def take_plain(
    office: PostOffice,
    messages: Sequence[Message],
    order: Order,
    answered: Answered | None,
    correlation_ids: Sequence[int],
) -> tuple[int, int]:
    """Take the plain messages at the beginning of ``messages``, which are all for one address.

    Args:
        office: Where they are routed.
        messages: In the order in which they came.
        order: Of the session.
        answered: Called when they are durable, with their correlation ids; None if nobody waits.
        correlation_ids: One per message.

    Returns:
        How many were taken and their bytes; the next one, if any, has to go the long way.

    Raises:
        StoreError: the journal has failed.
    """
    first = messages[0]
    address = office.directory.addresses.get(first.address or "")
    if address is None or address.limited or address.alters_messages or office.store.full:
        return 0, 0
    queue = address.sole_queue
    if queue is None:
        return 0, 0
    durable = first.durable and queue.durable
    run = _plain_part(messages, queue.routing_type)
    count = len(run)
    if not count:
        return 0, 0
    store = office.store
    next_id = store.next_ids(count)
    size_bytes = 0
    for message in run:
        message.message_id = next_id
        offset, encoded = message.header_offset, message.encoded
        message.encoded = b"".join((encoded[:offset], _pack_id(next_id), encoded[offset + 8 :]))
        size_bytes += len(encoded)
        next_id += 1
    locations = store.store_run(run, address.address_id, queue.queue_id) if durable else None
    references = [
        MessageReference(
            message.message_id, message.priority, 0, 0, len(message.encoded), durable,
            None if locations is None else locations[number], message,
        )
        for number, message in enumerate(run)
    ]  # fmt: skip
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
    ids = correlation_ids[:count]
    if durable:
        order.sequence = store.last_sequence
    elif order.sequence > context.durable:
        # behind whatever else the session waits for; the end of the log keeps the order whole
        order.sequence = context.appended
    context.when_durable(order.sequence, _arrive, office, queue, references, answered, ids)
    return count, size_bytes


def _plain_part(messages: Sequence[Message], routing_type: RoutingType) -> Sequence[Message]:
    """The messages up to the first that is not plain, or not like the first one."""
    first = messages[0]
    name, durable, priority = first.address, first.durable, first.priority
    for count, message in enumerate(messages):
        properties = message.properties
        if (
            message.address != name
            or message.durable is not durable
            or message.priority != priority
            or message.expiration
            or len(message.encoded) > _PLAIN_BYTES_MAX
            or (properties is not NO_PROPERTIES and not _are_plain(properties, routing_type))
        ):
            return messages[:count]
    return messages


def _are_plain(properties: Properties, routing_type: RoutingType) -> bool:
    return (
        not properties.may_be_reserved
        and DUPLICATE_ID not in properties
        and SCHEDULED_DELIVERY not in properties
        and properties.get(ROUTING_TYPE, routing_type) == routing_type
    )


def _arrive(
    office: PostOffice,
    queue: Queue,
    references: list[MessageReference],
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
        for number, reference in enumerate(references):
            office.arrive((queue,), [reference], None)
            if answered is not None:
                answered(correlation_ids[number : number + 1])
        return
    queue.add_run(references)
    if answered is not None:
        answered(correlation_ids)
