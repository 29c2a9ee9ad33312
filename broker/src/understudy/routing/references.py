"""Single messages as arrivals: a reference for each of their queues."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from understudy.message import LargeMessage, Message
from understudy.routing.queues.queue import Queue
from understudy.routing.transit import arrived, deliveries_of
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import (
    Arrival,
    Location,
    MessageReference,
    References,
    parts_of,
    reference_to,
)


def arriving(message: Message, queues: tuple[Queue, ...]) -> tuple[Message, int]:
    """The message as these queues get it, and how often it was delivered before it came here."""
    if not message.properties.may_be_reserved:
        return message, 0
    # a store-and-forward queue
    passes_on = all(queue.internal for queue in queues)
    return arrived(message, keeps_deliveries=passes_on), 0 if passes_on else deliveries_of(message)


def references_of(
    store: MessageStore, message: Message, queues: tuple[Queue, ...], location: Location | None, scheduled_ms: int
) -> Arrival:
    """A part with one reference for each queue, in their order; each of a large message holds its file.

    Args:
        store: Has the files of large messages.
        message: Message with its id.
        queues: At least one.
        location: Where it is in the log; None when no queue needs it there.
        scheduled_ms: Epoch milliseconds before which it is not delivered; 0 for at once.
    """
    size_bytes = len(message.encoded)
    make: Callable[..., MessageReference] = MessageReference
    if isinstance(message, LargeMessage):
        file_id = message.large.file_id
        for _ in queues:
            store.large.hold(file_id)
        make = partial(reference_to, file_id)
    if len(queues) == 1:
        durable = queues[0].durable
        logged = location is not None and durable
        place = location if durable else None
        reference = make(
            message.message_id, message.priority, message.expiration, scheduled_ms, size_bytes, logged, place, message
        )
        return (References((reference,)),)
    return parts_of(
        make(
            message.message_id,
            message.priority,
            message.expiration,
            scheduled_ms,
            size_bytes,
            location is not None and queue.durable,
            location if queue.durable else None,
            message,
        )
        for queue in queues
    )
