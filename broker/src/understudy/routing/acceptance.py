"""Messages are taken to their queues in the one order of durability (ADR 0003).

A message that is durable is appended to the log. Only when the log has it on the medium does it become visible to
consumers and is its producer answered; the operation context of the store releases it. A message that is not durable
waits only for what its own session sent before, so the order of a producer holds. Messages are counted, made visible,
taken back and moved as arrivals: a part for each of their queues, whether they came alone or in a run. Single messages
become an arrival here.

Not here: which queues get a message (``post_office``, ``address``), batches (``batch``), what a transaction holds
(``staging``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from understudy.errors import BrokerError
from understudy.message import SCHEDULED_DELIVERY, Message, Transfer
from understudy.ports import Clock
from understudy.routing.addresses.address import Address
from understudy.routing.lifecycle.scheduled import ScheduledDeliveries
from understudy.routing.memory import AddressMemory, Memory
from understudy.routing.moves import Copies
from understudy.routing.paging import Paging
from understudy.routing.queues.queue import Queue
from understudy.routing.references import arriving, references_of
from understudy.routing.response_order import (
    Answer,
    Done,
    ResponseOrder,
    RoutingTransaction,
    SendRequest,
    SessionTransaction,
)
from understudy.routing.transit import transfer_of
from understudy.store.log.operation_context import Lane, tell_owner
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import Arrival, Part, References, RunSlice, parts_of
from understudy.store.session_numbers import NO_ADDRESS


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


def holders_of(queues: tuple[Queue, ...]) -> int:
    """Number of different addresses of some queues."""
    return 1 if len(queues) == 1 else len({queue.address for queue in queues})


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
        """Limit of hops of core bridges, which may lead in a circle; None: no bridge takes messages of this node."""

    def accept(
        self,
        address: Address,
        message: Message,
        queues: tuple[Queue, ...],
        scheduled_ms: int,
        request: SendRequest,
    ) -> None:
        """Append a message that has its id, and make it visible in these queues when that is safe. Raises DiskFull."""
        store = self.store
        order, done, transaction, duplicate_id, number = request
        message, deliveries = arriving(message, queues)
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
                    duplicate_id=duplicate_id or number or b"",
                    scheduled_ms=scheduled_ms,
                    large=message.is_large,
                )
        logged = location is not None
        if number is not None and not logged:
            store.store_duplicate_ids(NO_ADDRESS, (number,))
            logged = True
        if duplicate_id is not None:
            self.remember(address, (duplicate_id,), transaction, logged=location is not None)
        parts = references_of(store, message, queues, location, scheduled_ms)
        if deliveries:
            self._delivered_before(queues, parts, deliveries, logged=transaction is None)
        self.charge(queues, parts[0])
        answers = ((done, None),) if done is not None else ()
        self.release(queues, (parts,), answers, order, transaction, address.lane, logged=logged)

    def release(
        self,
        queues: tuple[Queue, ...],
        arrivals: Sequence[Arrival],
        answers: Sequence[Answer],
        order: ResponseOrder,
        transaction: RoutingTransaction | None,
        lane: Lane | None,
        *,
        logged: bool,
    ) -> None:
        """Give messages that are counted to their transaction, or make them visible when they are safe, and answer.

        Args:
            queues: Get each of the messages.
            arrivals: The messages.
            answers: Requests that sent them.
            order: Order of the session that sent these requests.
            transaction: The messages become visible with it; None: now.
            lane: Lane of the address of the messages.
            logged: Whether the log has the messages, as its last records.
        """
        context = self.context
        if transaction is not None:
            transaction.lanes.add(lane)
            for number, parts in enumerate(arrivals, start=1):
                for each, leaves in self._staged(queues, parts, arrivals[number:]):
                    transaction.staged(queues, each, leaves=leaves)
            if not answers:
                return
            arrivals = ()
        if logged and transaction is None:
            waits_in = order.enter(context, lane)
            order.sequence = context.appended
        else:
            # after everything else that the session waits for; the end of the log keeps the order whole
            waits_in = order.lane or context
            if order.sequence > waits_in.durable:
                order.sequence = context.appended
        waits_in.when_durable(order.sequence, self.enqueue, queues, arrivals, answers)

    def _staged(
        self, queues: tuple[Queue, ...], parts: Arrival, later: Sequence[Arrival]
    ) -> Sequence[tuple[Arrival, bool]]:
        """Messages as a transaction takes them, and whether their bodies leave memory once the log has them.

        Args:
            parts: The messages, which are counted.
            later: Messages that are counted too, and are taken after these.
        """
        memory, address, first = self.memory, queues[0].address, parts[0]
        node_bytes = memory.held_bytes - memory.max_bytes - address.node_slack_bytes
        if node_bytes > 0:
            self.paging.make_room(address, node_bytes, of_any_policy=False)
        if isinstance(first, References):
            return ((parts, memory.exceeded(address)),)
        if not all(part.bodies_elsewhere for part in parts):
            # they were taken because they fit into memory
            return ((parts, False),)
        size_bytes, count = memory.excess(address, holders_of(queues))
        for each in later:
            size_bytes, count = size_bytes - each[0].size_bytes, count - len(each[0])
        if size_bytes <= 0 and count <= 0:
            return ((parts, False),)
        total = len(first)
        # a body leaves if the limit was exceeded with it, before any of the transaction has left
        kept = max(0, min(total - max(count, 0), first.before(size_bytes)))
        if not kept:
            return ((parts, True),)
        return (
            (tuple([part.part(0, kept) for part in parts]), False),
            (tuple([part.part(kept, total) for part in parts]), True),
        )

    def _delivered_before(self, queues: tuple[Queue, ...], parts: Arrival, deliveries: int, *, logged: bool) -> None:
        """The message was delivered so often before it came here. The log says so, unless its transaction is open, too:
        then the next failed delivery does.
        """
        for queue, (reference,) in zip(queues, parts, strict=True):
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
        message, deliveries = arriving(message, queues)
        parts = references_of(self.store, message, queues, None, 0)
        self._delivered_before(queues, parts, deliveries, logged=False)
        self.charge(queues, parts[0])
        transaction.held(address, message, queues, parts)
        self.answer(order, done)

    def log_acknowledged(self, address: Address, message: Message, queues: tuple[Queue, ...], parts: Arrival) -> None:
        """Append a message with its acknowledgement to the log, outside its transaction. Raises DiskFull: nothing has
        happened."""
        durable_ids = tuple([queue.queue_id for queue in queues if queue.durable]) if message.durable else ()
        if not durable_ids:
            return
        location = self.store.store_message(message, address.address_id, durable_ids, large=message.is_large)
        for queue, (reference,) in zip(queues, parts, strict=True):
            if queue.durable:
                reference.durable, reference.location = True, location
                if reference.delivery_count:
                    self.store.store_delivery_count(queue.queue_id, reference.message_id, reference.delivery_count)

    def keep_acknowledged(self, queues: tuple[Queue, ...], parts: Arrival) -> list[tuple[Queue, Part]]:
        """Put an acknowledged message into its queues as one that was delivered. Returns the deliveries, without those
        of deleted queues.
        """
        kept: list[tuple[Queue, Part]] = []
        for queue, part in zip(queues, parts, strict=True):
            if queue.deleted:
                self.discard((queue,), (part,))
                continue
            queue.add(part)
            queue.pending.remove_last(part[0])
            queue.delivering_count += 1
            kept.append((queue, part))
        return kept

    def charge(self, queues: tuple[Queue, ...], part: Part) -> None:
        """Count new messages, with their bodies in memory, for their queues, their addresses and the node.

        Args:
            queues: Each of them gets each message.
            part: The messages, as one of the queues gets them; their ids are consecutive.
        """
        if isinstance(part, References) and len(part) == 1:
            # a message that came alone, without the lists of those that are several
            first_id, count, size_bytes = part[0].message_id, 1, part[0].size_bytes
        else:
            first_id, (count, size_bytes, *_) = part.ids[0], part.sums
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

    def keeps(self, holder: AddressMemory, holders: int, count: int, size_bytes: int) -> bool:
        """Whether none of ``count`` further messages has to leave memory at once, after cold bodies have left it
        (``Memory.keeps``).
        """
        memory = self.memory
        if memory.keeps(holder, holders, count, size_bytes):
            return True
        node_bytes = memory.held_bytes + size_bytes * holders - memory.max_bytes
        if node_bytes > 0:
            self.paging.make_room(holder, node_bytes, of_any_policy=False)
        return memory.keeps(holder, holders, count, size_bytes)

    def enqueue(self, queues: tuple[Queue, ...], arrivals: Iterable[Arrival], answers: Sequence[Answer] = ()) -> None:
        """Released: make messages visible to consumers, and answer their producers. A bug in one answer keeps none of
        the others back.
        """
        address, memory = queues[0].address, self.memory
        limit_bytes = min(memory.max_bytes, self.paging.bodies_max_bytes)
        left: Exception | None = None
        try:
            for parts in arrivals:
                first = parts[0]
                if (
                    first.objects
                    or queues[0].kind is not None
                    or (len(queues) > 1 and any(queue.kind is not None for queue in queues))
                ):
                    for references in zip(*parts, strict=True):
                        self._enqueue_one(queues, parts_of(references))
                    continue
                if (
                    memory.held_bytes > limit_bytes
                    or address.memory_bytes > address.memory_max_bytes
                    or (address.counts_messages and memory.holds_too_many(address))
                ) and not self._page_out_run(queues, parts):
                    continue
                self._show(queues, parts)
            for answered, outcome in answers:
                try:
                    answered(outcome)
                except BrokerError:
                    raise
                except Exception as bug:
                    left = left or tell_owner(bug, answered)
        except BrokerError:
            raise
        except Exception as bug:
            tell_owners(bug, answers)
        if left is not None:
            raise left

    def _show(self, queues: tuple[Queue, ...], parts: Arrival) -> None:
        """Make the messages of a run visible in their queues, or let them wait for their time."""
        first = parts[0]
        if not isinstance(first, RunSlice) or not first.run.delayed:
            for queue, part in zip(queues, parts, strict=True):
                queue.add(part)
            return
        for queue, part in zip(queues, parts, strict=True):
            if queue.deleted:
                self.discard((queue,), (part,))
            elif isinstance(part, RunSlice):
                self.scheduled.arrive(queue, part)

    def _page_out_run(self, queues: tuple[Queue, ...], parts: Arrival) -> bool:
        """Have the bodies of the first messages of a run leave memory, as many as have to after cold bodies have left.
        Returns whether the caller adds the messages to their queues; False: they are there.
        """
        first = parts[0]
        bodies, elsewhere = first.sums[2], all(part.bodies_elsewhere for part in parts)
        if not bodies:
            return True
        leaving = self._leaving(queues, elsewhere=elsewhere)
        if not leaving:
            return True
        if not elsewhere:
            for references in zip(*parts, strict=True):
                self._enqueue_one(queues, parts_of(references))
            return False
        assert isinstance(first, RunSlice)
        count = max(first.fitting(leaving[0]), min(leaving[1], bodies))
        if count < bodies:
            paged = tuple([part.part(0, count) for part in parts])
            self.paging.page_out(queues, paged)
            self._show(queues, paged)
            self._show(queues, tuple([part.part(count, bodies) for part in parts]))
            return False
        self.paging.page_out(queues, parts)
        return True

    def _leaving(self, queues: tuple[Queue, ...], *, elsewhere: bool) -> tuple[int, int] | None:
        """Bytes and bodies of arriving messages that have to leave memory, after cold ones have left it; None: none.

        Args:
            queues: Get the messages.
            elsewhere: Whether the log has their bodies for each of the queues.
        """
        address, memory, holders = queues[0].address, self.memory, holders_of(queues)
        soft_bytes = memory.held_bytes - self.paging.bodies_max_bytes if elsewhere else 0
        node_bytes = memory.held_bytes - memory.max_bytes - address.node_slack_bytes
        if max(soft_bytes, node_bytes) > 0:
            self.paging.make_room(address, max(soft_bytes, node_bytes), of_any_policy=soft_bytes > 0)
            soft_bytes = memory.held_bytes - self.paging.bodies_max_bytes if elsewhere else 0
        size_bytes, count = memory.excess(address, holders)
        size_bytes = max(size_bytes, -(-soft_bytes // holders))
        return (size_bytes, count) if size_bytes > 0 or count else None

    def _enqueue_one(self, queues: tuple[Queue, ...], parts: Arrival) -> None:
        """Make a message visible whose body may have to leave memory, or let it wait for its time."""
        memory = self.memory
        if (memory.exceeded(queues[0].address) or memory.held_bytes > self.paging.bodies_max_bytes) and self._leaving(
            queues, elsewhere=all(part.bodies_elsewhere for part in parts)
        ):
            self.paging.page_out(queues, parts)
        scheduled_ms = parts[0][0].scheduled_ms
        waits = scheduled_ms > 0 and scheduled_ms > self.clock.wall_ms()
        for queue, part in zip(queues, parts, strict=True):
            if not waits:
                queue.add(part)
            elif queue.deleted:
                self.discard((queue,), (part,))
            else:
                queue.incoming -= 1
                queue.schedule(part)
                self.scheduled.add(queue, part[0], scheduled_ms)

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

    def answer_settled(self, order: ResponseOrder, done: Done, queue: Queue, *, logged: bool) -> None:
        """Answer the commit of deliveries of a queue that were just acknowledged, in its session's order, when that is
        durable by the contract of their address.

        Args:
            logged: Whether the log has a record of it, the last one.
        """
        context = self.context
        sequence = order.sequence
        lane = order.lane or context
        if logged:
            sequence = self.store.last_sequence
            lane = order.enter(context, queue.address.lane)
        if sequence > lane.durable:
            order.sequence = context.appended
            lane.when_durable(order.sequence, done, None)
        else:
            done(None)

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
        self.accept(target, message, queues, 0, SendRequest(order, transaction=transaction))
        target.messages_routed += 1
        return True

    def move(self, queue: Queue, gone: Sequence[Part], copies: Sequence[Copies]) -> None:
        """Put copies of messages in other queues and end the originals, all or none. Without a queue they end only.

        Args:
            queue: Had the originals; this forgets them.
            gone: The originals, which are in no place of the queue any more.
            copies: A part of them for each of the queues that get some.

        Raises:
            DiskFull: nothing has happened.
            StoreError: the journal has failed.
        """
        store = self.store
        transaction_id = store.next_id() if any(each.durable for each in copies) else 0
        recorded: list[tuple[Copies, Sequence[Arrival]]] = []
        for each in copies:
            if not each.queues:
                each.address.messages_unrouted += 1
                continue
            arrivals = each.record(store, transaction_id)
            for parts in arrivals:
                self.charge(each.queues, parts[0])
                each.address.messages_routed += len(parts[0])
            recorded.append((each, arrivals))
        acknowledged = queue.log_acknowledges(*gone, transaction_id=transaction_id)
        if transaction_id:
            store.store_commit(transaction_id)
        for each, arrivals in recorded:
            if each.deliveries:
                for parts in arrivals:
                    self._delivered_before(each.queues, parts, each.deliveries, logged=True)
        sequence = store.last_sequence if acknowledged or transaction_id else 0
        for each, arrivals in recorded:
            self.context.when_durable(sequence, self.enqueue, each.queues, arrivals)
        for part in gone:
            queue.forget(part)


def tell_owners(bug: Exception, answers: Sequence[Answer]) -> None:
    """Report a bug to the owners of all requests that are not answered because of it; raises it if one has no owner."""
    told = [tell_owner(bug, answered) for answered, _ in answers]
    if not told or any(left is not None for left in told):
        raise bug
