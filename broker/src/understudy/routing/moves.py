"""Copies of messages that move to other queues (``Acceptance.move``): of one message, or of neighbours in a run.

Not here: which messages move, and where (``lifecycle.dead_letters``, ``balancing``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from understudy.kernel import Sends
from understudy.kernel.log import keep_sends
from understudy.message import Message
from understudy.routing.addresses.address import Address
from understudy.routing.queues.queue import Queue
from understudy.routing.references import arriving, references_of
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import Arrival, MessageReference, RunSlice

_UNLIMITED: Final = 1 << 62


def alike(store: MessageStore, sends: Sends, row: int, queue: Queue) -> int:
    """How many of the messages from ``row`` on, which leave a queue, can be copied together; 0: the first one is copied
    alone (``MessageCopy``).
    """
    return sends.alike(row, store.settings.run_message_bytes_max, queue.routing_type, _UNLIMITED, _UNLIMITED)[0]


class Copies(Protocol):
    """Copies of messages that move to queues of one address (``Acceptance.move``)."""

    @property
    def address(self) -> Address:
        """The address."""
        ...

    @property
    def queues(self) -> tuple[Queue, ...]:
        """Queues that get each of the copies."""
        ...

    @property
    def durable(self) -> bool:
        """Whether the log gets the copies."""
        ...

    @property
    def deliveries(self) -> int:
        """How often each message was delivered by another node, before it came here."""
        ...

    def record(self, store: MessageStore, transaction_id: int) -> Sequence[Arrival]:
        """Give the log those that are durable. Returns all of them. Raises DiskFull: nothing was appended."""
        ...


class MessageCopy:
    """The copy of one message. Implements ``Copies``."""

    __slots__ = ("_message", "address", "deliveries", "durable_ids", "queues")

    def __init__(
        self, message: Message, address: Address, queues: tuple[Queue, ...], original: MessageReference
    ) -> None:
        """
        Args:
            message: The copy, with its id.
            queues: None: the message ends.
            original: The log gets the copy of every message that it has.
        """
        self.address = address
        self.queues = queues
        self._message, self.deliveries = arriving(message, queues)
        logged = message.durable or original.durable
        self.durable_ids = tuple([queue.queue_id for queue in queues if queue.durable]) if logged else ()

    @property
    def durable(self) -> bool:
        return bool(self.durable_ids)

    def record(self, store: MessageStore, transaction_id: int) -> Sequence[Arrival]:
        message, location = self._message, None
        if self.durable:
            location = store.store_message(
                message, self.address.address_id, self.durable_ids, tx_id=transaction_id, large=message.is_large
            )
        return (references_of(store, message, self.queues, location, 0),)


class RunCopies:
    """Copies of messages for one queue, with new ids. Implements ``Copies``."""

    __slots__ = ("_count", "_row", "_sends", "address", "queues")

    deliveries = 0

    def __init__(self, address: Address, queue: Queue, sends: Sends, row: int, count: int) -> None:
        """
        Args:
            address: The messages were sent to it.
            queue: Gets the copies.
            sends: Has the messages in rows that are alike (``alike``), without duplicate ids.
            row: The first one.
            count: How many.
        """
        self.address = address
        self.queues = (queue,)
        self._sends = sends
        self._row = row
        self._count = count

    @property
    def durable(self) -> bool:
        return self.queues[0].durable and self._sends.durable(self._row)

    def record(self, store: MessageStore, transaction_id: int) -> Sequence[Arrival]:
        if store.context.gathered is not None:
            # message ids rise with the log
            store.context.gathered.close()
        sends, row, count = self._sends, self._row, self._count
        first_id = store.last_id + 1
        store.last_id += count
        if self.durable:
            queue_ids = (self.queues[0].queue_id,)
            runs = store.store_run(
                [(sends, row, count)], count, first_id, self.address.address_id, queue_ids, transaction_id
            )
        else:
            runs = [keep_sends([(sends, row, count)], first_id)]
        priority = sends.priority(row)
        return [(RunSlice(run, 0, run.count, priority, -1),) for run in runs]
