"""References of a message that was taken from a producer: one for each of its queues."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from understudy.message import LargeMessage, Message
from understudy.routing.queues.queue import Queue
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import Location, MessageReference, reference_to


def references_of(
    store: MessageStore, message: Message, queues: tuple[Queue, ...], location: Location | None, scheduled_ms: int
) -> list[MessageReference]:
    """A reference for each queue, in their order; of a large message each holds its file.

    Args:
        store: Has the files of large messages.
        message: With its id.
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
    return [
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
    ]
