"""Messages are taken to their queues in the one order of durability (ADR 0003).

A message that is durable is appended to the log. Only when the log has it on the medium does it become visible to
consumers and is its producer answered; the operation context of the store releases it. A message that is not durable
waits only for what its own session sent before, so the order of a producer holds. Each message has one tuple in the
context and one reference for each queue.

Not here: which queues get a message (``post_office``, ``address``), batches (``batch``), what a transaction holds
(``staging``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from understudy.errors import BrokerError
from understudy.message import SCHEDULED_DELIVERY, Message, Transfer
from understudy.ports import Clock
from understudy.routing.address import Address
from understudy.routing.lifecycle.scheduled import ScheduledDeliveries
from understudy.routing.memory import AddressMemory, Memory
from understudy.routing.paging import Paging
from understudy.routing.queues.queue import Queue
from understudy.routing.references import references_of
from understudy.routing.response_order import Done, ResponseOrder, RoutingTransaction, SessionTransaction
from understudy.routing.transit import arrived, deliveries_of, transfer_of
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import MessageReference, Part, References

Delivered = tuple[Queue, MessageReference]
"""A message that counts as delivered by its queue."""


def scheduled_ms(message: Message) -> int:
    """Wall time before which a message is not delivered; 0: at once."""
    scheduled = message.properties.get(SCHEDULED_DELIVERY)
    return int(scheduled) if isinstance(scheduled, int) else 0


class MessageHops(Protocol):
    """``cluster.bridges.hops`` as messages that arrive meet it."""

    def counted(self, message: Message, order: ResponseOrder, transaction: RoutingTransaction | None) -> Message | None:
        """The message, with one more hop if it came by a bridge; None: it goes in a circle, and is done with.

        Raises:
            DiskFull: it cannot become a dead letter.
        """


def refuses_no_queue(message: Message) -> bool:
    """Whether its sender wants an error instead of a confirmation if no queue takes the message."""
    return bool(transfer_of(message) & Transfer.NEEDS_QUEUE)


class Acceptance:
    """Appends messages, counts them, and makes them visible in their queues when they are safe."""

    __slots__ = ("clock", "context", "hops", "memory", "paging", "persists_ids", "scheduled", "store")

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        memory: Memory,
        paging: Paging,
        scheduled: ScheduledDeliveries,
        *,
        persist_id_cache: bool,
    ) -> None:
        """``persist_id_cache``: whether duplicate ids of messages that are not in the log go there too."""
        self.store = store
        self.context = store.context
        self.clock = clock
        self.memory = memory
        self.paging = paging
        self.scheduled = scheduled
        self.persists_ids = persist_id_cache
        self.hops: MessageHops | None = None
        """Set where core bridges take messages of this node, which may lead in a circle."""

    def accept(
        self,
        address: Address,
        message: Message,
        queues: tuple[Queue, ...],
        scheduled_ms: int,
        order: ResponseOrder,
        done: Done | None,
        transaction: RoutingTransaction | None,
        duplicate_id: bytes | None,
    ) -> None:
        """Append a message that has its id, and make it visible in these queues when that is safe. Raises DiskFull."""
        store = self.store
        message, deliveries = self._arrived(message, queues)
        size_bytes = len(message.encoded)
        message_id = message.message_id
        location = None
        transaction_id = 0
        if message.durable:
            if len(queues) == 1:
                durable_ids: tuple[int, ...] = (queues[0].queue_id,) if queues[0].durable else ()
            else:
                durable_ids = tuple([queue.queue_id for queue in queues if queue.durable])
            if durable_ids:
                if transaction is not None:
                    transaction_id = transaction.log_id()
                location = store.store_message(
                    message,
                    address.address_id,
                    durable_ids,
                    tx_id=transaction_id,
                    duplicate_id=duplicate_id or b"",
                    scheduled_ms=scheduled_ms,
                    large=message.is_large,
                )
        if duplicate_id is not None:
            self.remember(address, (duplicate_id,), transaction, logged=location is not None)
        references = references_of(store, message, queues, location, scheduled_ms)
        if deliveries:
            self._delivered_before(queues, references, deliveries, logged=transaction is None)
        self.charge(queues, message_id, 1, size_bytes)
        if transaction is not None:
            transaction.lanes.add(address.lane)
            transaction.staged(queues, references)
            self.answer(order, done)
            return
        context = self.context
        lane = order.lane or context
        if location is not None:
            if lane is not context or address.lane is not None:
                lane = order.enter(context, address.lane)
            order.sequence = sequence = store.last_sequence
        elif order.sequence > lane.durable:
            # After everything else that the session waits for; the end of the log keeps the order whole.
            order.sequence = sequence = context.appended
        else:
            self.enqueue(queues, references, done)
            return
        lane.when_durable(sequence, self.enqueue, queues, references, done)

    @staticmethod
    def _arrived(message: Message, queues: tuple[Queue, ...]) -> tuple[Message, int]:
        """The message as these queues get it, and how often it was delivered before it came here."""
        if not message.properties.may_be_reserved:
            return message, 0
        # a store-and-forward queue
        passes_on = all(queue.internal for queue in queues)
        return arrived(message, keeps_deliveries=passes_on), 0 if passes_on else deliveries_of(message)

    def _delivered_before(
        self, queues: tuple[Queue, ...], references: list[MessageReference], deliveries: int, *, logged: bool
    ) -> None:
        """The message was delivered so often before it came here. The log says so, unless its transaction is open, too:
        then the next failed delivery does.
        """
        for queue, reference in zip(queues, references, strict=True):
            if queue.internal:
                continue
            reference.delivery_count = deliveries
            if logged and reference.durable:
                self.store.store_delivery_count(queue.queue_id, reference.message_id, deliveries)

    def accept_acknowledged(
        self,
        address: Address,
        message: Message,
        queues: tuple[Queue, ...],
        order: ResponseOrder,
        done: Done | None,
        transaction: SessionTransaction,
    ) -> None:
        """Hold a message that its transaction, of a node that is scaled down, has taken out of these queues. The log
        and the queues get it when the transaction is prepared (``keep_acknowledged``); that node keeps it until then.
        """
        message, deliveries = self._arrived(message, queues)
        references = references_of(self.store, message, queues, None, 0)
        self._delivered_before(queues, references, deliveries, logged=False)
        self.charge(queues, message.message_id, 1, len(message.encoded))
        transaction.held(address, message, queues, references)
        self.answer(order, done)

    def log_acknowledged(
        self, address: Address, message: Message, queues: tuple[Queue, ...], references: list[MessageReference]
    ) -> None:
        """Append such a message to the log, outside its transaction. Raises DiskFull: nothing has happened."""
        durable_ids = tuple([queue.queue_id for queue in queues if queue.durable]) if message.durable else ()
        if not durable_ids:
            return
        location = self.store.store_message(message, address.address_id, durable_ids, large=message.is_large)
        for queue, reference in zip(queues, references, strict=True):
            if queue.durable:
                reference.durable, reference.location = True, location
                if reference.delivery_count:
                    self.store.store_delivery_count(queue.queue_id, reference.message_id, reference.delivery_count)

    def keep_acknowledged(self, queues: tuple[Queue, ...], references: list[MessageReference]) -> list[Delivered]:
        """Put such a message into its queues as one that was delivered. Returns the deliveries, without those of queues
        that are gone.
        """
        kept: list[Delivered] = []
        for queue, reference in zip(queues, references, strict=True):
            if queue.deleted:
                queue.incoming -= 1
                queue.forget(References((reference,)), counted=False)
                continue
            queue.add(reference)
            queue.pending.remove_last(reference)
            queue.delivering_count += 1
            kept.append((queue, reference))
        return kept

    def charge(self, queues: tuple[Queue, ...], first_id: int, count: int, size_bytes: int) -> None:
        """Count new messages, with their bodies in memory, for their queues, their addresses and the node.

        Args:
            queues: Each of them gets each message.
            first_id: Id of the first message; the ids are consecutive.
            count: Messages.
            size_bytes: Bytes of the messages together.
        """
        memory = self.memory
        memory.held_bytes += size_bytes
        memory.held_count += count
        if len(queues) == 1:
            queue = queues[0]
            queue.incoming += count
            queue.address.charge(first_id, count, size_bytes, 1)
            return
        queue_counts: dict[AddressMemory, int] = {}
        for queue in queues:
            queue.incoming += count
            queue_counts[queue.address] = queue_counts.get(queue.address, 0) + 1
        # With wildcard addresses several hold it: each counts it for its own limit.
        memory.held_bytes += size_bytes * (len(queue_counts) - 1)
        memory.held_count += count * (len(queue_counts) - 1)
        for address, queue_count in queue_counts.items():
            address.charge(first_id, count, size_bytes, queue_count)

    def enqueue(self, queues: tuple[Queue, ...], references: list[MessageReference], done: Done | None) -> None:
        """Released: visible to consumers, and its producer may know."""
        reference = references[0]
        address = queues[0].address
        if self.memory.exceeded(address) or (
            self.memory.held_bytes > self.paging.bodies_max_bytes
            and all(each.location is not None for each in references)
        ):
            self.paging.page_out(queues, references)
        if reference.scheduled_ms and reference.scheduled_ms > self.clock.wall_ms():
            for queue, scheduled in zip(queues, references, strict=True):
                queue.incoming -= 1
                if queue.deleted:
                    queue.forget(References((scheduled,)), counted=False)
                else:
                    queue.schedule(scheduled)
                    self.scheduled.add(queue, scheduled, scheduled.scheduled_ms)
        elif len(queues) == 1:
            queues[0].add(reference)
        else:
            for queue, each in zip(queues, references, strict=True):
                queue.add(each)
        if done is not None:
            done(None)

    @staticmethod
    def discard(queues: tuple[Queue, ...], parts: Iterable[Part]) -> None:
        """Messages of a transaction that was rolled back leave the counts; no queue saw them.

        Args:
            queues: Would have got them.
            parts: The messages, for each queue.
        """
        for queue, part in zip(queues, parts, strict=True):
            queue.incoming -= len(part)
            queue.forget(part, counted=False)

    def answer(
        self, order: ResponseOrder, done: Done | None, sequence: int = 0, error: BrokerError | None = None
    ) -> None:
        """Answer a request in its session's order, when ``sequence`` is durable by the strictest contract too."""
        if done is None:
            return
        context = self.context
        if sequence > context.durable:
            order.lane = None
        lane = order.lane or context
        if max(sequence, order.sequence) > lane.durable:
            order.sequence = context.appended
            lane.when_durable(order.sequence, done, error)
        else:
            done(error)

    def remember(
        self, address: Address, ids: Sequence[bytes], transaction: RoutingTransaction | None, *, logged: bool
    ) -> None:
        """Duplicate ids count as seen from now on.

        Args:
            address: The messages were sent to it.
            ids: New ones, all different.
            transaction: They are seen once it commits; None: now.
            logged: Whether the records of the messages carry them, and are the last ones of the log.
        """
        store = self.store
        if not logged and self.persists_ids:
            store.store_duplicate_ids(address.address_id, ids, transaction.log_id() if transaction is not None else 0)
        if transaction is not None:
            for duplicate_id in ids:
                transaction.staged_duplicate_id(address, duplicate_id)
        elif logged or self.persists_ids:
            address.duplicate_ids.take(ids, store.last_sequence - len(ids) + 1)
        else:
            for duplicate_id in ids:
                address.duplicate_ids.add(duplicate_id, store.last_sequence)

    def forward(
        self, message: Message, target: Address, order: ResponseOrder, transaction: RoutingTransaction | None
    ) -> bool:
        """Route a message that has its id to another address, on behalf of its producer; ``order`` waits for it.
        Returns whether a queue took it.
        """
        message, queues = target.destinations(message, None)
        if not queues:
            target.messages_unrouted += 1
            return False
        self.accept(target, message, queues, 0, order, None, transaction, None)
        target.messages_routed += 1
        return True

    def move(
        self,
        copy: Message,
        target: Address,
        queues: tuple[Queue, ...],
        queue: Queue,
        reference: MessageReference,
    ) -> None:
        """Put a copy in queues of an address and end the original, both or neither; without a queue it ends only."""
        store = self.store
        if not queues:
            target.messages_unrouted += 1
            queue.log_acknowledges(References((reference,)))
            return
        copy, deliveries = self._arrived(copy, queues)
        durable_ids: tuple[int, ...] = ()
        if copy.durable or reference.durable:
            durable_ids = tuple([each.queue_id for each in queues if each.durable])
        location = None
        if durable_ids:
            transaction_id = store.next_id()
            location = store.store_message(
                copy, target.address_id, durable_ids, tx_id=transaction_id, large=copy.is_large
            )
            queue.log_acknowledges(References((reference,)), transaction_id=transaction_id)
            store.store_commit(transaction_id)
        else:
            queue.log_acknowledges(References((reference,)))
        references = references_of(store, copy, queues, location, 0)
        if deliveries:
            self._delivered_before(queues, references, deliveries, logged=True)
        self.charge(queues, copy.message_id, 1, len(copy.encoded))
        target.messages_routed += 1
        logged = location is not None or reference.durable
        self.context.when_durable(store.last_sequence if logged else 0, self.enqueue, queues, references, None)
