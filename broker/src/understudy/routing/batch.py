"""Plain messages that sessions send, a batch of them at a time.

Most messages need nothing of what ``PostOffice.send`` looks after: they go to the same ordinary queues as every other
message of their address, now or with their transaction. Those that come in one read of a socket are taken together,
and durable ones for one queue are gathered over all connections that are read before the next turn (ADR 0038). What
must be known at once is decided for each part when it comes: limits, duplicate ids, counts, its place in the log. Ids,
records and the entry of the operation context are made once for the batch. Queues, log, answers and their order are
those of the same messages sent one by one. An address with limits takes them like that until it holds its maximum.

Not here: everything that is not plain (``post_office``), what an open transaction holds (``staging``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from understudy.errors import BrokerError
from understudy.kernel import DUPLICATE_SHIFT, DURABLE, PRIORITY_SHIFT, Sends, pick_sends, split_forwarded
from understudy.kernel.log import QUEUE_ID_BYTES, RECORD_HEAD_BYTES, Run, SendsPart, keep_sends
from understudy.limits import GATHERED_BYTES_MAX
from understudy.message import Message
from understudy.routing.acceptance import holders_of, tell_owners
from understudy.routing.addresses.address import Address
from understudy.routing.destinations import queues_of_ids
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Share, queue_ids
from understudy.routing.response_order import Answer, ResponseOrder, SessionTransaction
from understudy.store.messages.reference import Arrival, RunSlice

Answered = Callable[[Sequence[int]], None]
"""Answers requests, given by their correlation ids, whose messages are safe."""


class Taking(NamedTuple):
    """Messages of one read that a session gives to ``BatchSends``, with the session, its transaction and the answer."""

    sends: Sends
    """The messages, in the order in which they came."""
    order: ResponseOrder
    """Order of the session that sent them."""
    answered: Answered | None
    """Called when they are durable, or taken by the transaction, with their correlation ids; None if no answer is
    wanted."""
    transaction: SessionTransaction | None = None
    """Transaction with which they become visible."""
    of_cluster: bool = False
    """Whether they come from a member of the cluster, which may have chosen their queues."""

    def others(self, sends: Sends) -> Taking:
        """Other messages, which were made of these, for the same purpose."""
        return self._replace(sends=sends)


#: ``Taking(...)`` without the Python-level call.
taking_of: Callable[[tuple[Sends, ResponseOrder, Answered | None, SessionTransaction | None, bool]], Taking] = partial(
    tuple.__new__, Taking
)
_UNLIMITED: Final = 1 << 62
#: A record takes so much of its segment beside itself, for its offset in the seal.
_SEAL_BYTES: Final = 4


def _are_apart(shares: Sequence[Share]) -> bool:
    """Whether no queue gets messages of two destinations."""
    if len(shares) == 1:
        return True
    queues = [queue for share in shares for queue in share.queues]
    return len(set(queues)) == len(queues)


class BatchSends:
    """Takes plain messages, of all sessions of a node. Implements ``GatheredRecords``.

    Invariants while it is ``OperationContext.gathered``: the log holds space for the messages of the batch, and they
    are its next records, so that their sequences are known. Whatever appends a record, gives an id or has a call wait
    in the context closes the batch first. A batch ends with its turn at the latest: the flush of the log closes it.
    """

    __slots__ = ("_address", "_answers", "_bytes", "_count", "_duplicate_ids", "_durable_ids", "_head_bytes",
                 "_held_bytes", "_kind", "_longest_bytes", "_marked", "_office", "_parts", "_queues",
                 "_room_bytes")  # fmt: skip

    def __init__(self, office: PostOffice) -> None:
        self._office = office
        self._longest_bytes = office.store.settings.run_message_bytes_max
        """Bytes of the longest message that is taken."""
        self._address: Address
        """Address of the batch, like everything from here on."""
        self._queues: tuple[Queue, ...] = ()
        """Get each of its messages."""
        self._kind = 0
        """Kind of its messages (``Sends.alike``): durability, priority, bytes of the duplicate id."""
        self._durable_ids: tuple[int, ...] = ()
        """Ids of the queues that need them in the log."""
        self._marked = False
        """Whether the gathered messages have duplicate ids."""
        self._head_bytes = 0
        """Bytes of a record in its segment beside the message."""
        self._held_bytes = 0
        """Space that the log holds for it; 0: it does not wait for further messages."""
        self._room_bytes = 0
        """The rest of that space."""
        self._parts: list[SendsPart] = []
        self._answers: list[Answer] = []
        self._duplicate_ids: list[bytes] = []
        self._count = 0
        self._bytes = 0

    def take(self, taking: Taking, row: int) -> tuple[int, int]:
        """Take the plain messages from ``row`` on, which are all for one address.

        Returns:
            How many were taken and their bytes; the next one, if any, is for ``PostOffice.send``.

        Raises:
            StoreError: the journal has failed.
        """
        office, sends = self._office, taking.sends
        address = office.directory.addresses.get(sends.address(row) or "")
        if address is None or office.store.full:
            return 0, 0
        queues = address.plain_queues
        taken = self._take_part(taking, row, address, queues) if queues else self._take_in_turn(taking, row, address)
        if taken[0]:
            return taken
        forwarded = split_forwarded(sends, row)
        if forwarded is None:
            return 0, 0
        arrived, ids = forwarded
        if ids:
            queues = queues_of_ids(address, queue_ids(ids)) if taking.of_cluster else ()
        if queues:
            count, _ = self._take_part(taking.others(arrived), 0, address, queues)
        elif ids or office.acceptance.hops is not None:
            return 0, 0
        else:
            count, _ = self._take_in_turn(taking.others(arrived), 0, address)
        return count, sends.bytes_of(row, count)

    def take_routed(self, taking: Taking, row: int, address: Address, queues: tuple[Queue, ...]) -> tuple[int, int]:
        """Take the messages from ``row`` on that are alike, all for queues that were chosen before (exchanges).

        Args:
            taking: The messages, without duplicate ids.
            row: The first one.
            address: The address of the queues whose durability contract holds.
            queues: The queues, each of which gets each message.

        Returns:
            As ``take``.

        Raises:
            StoreError: the journal has failed.
        """
        if self._office.store.full:
            return 0, 0
        taken = self._take_part(taking, row, address, queues)
        if len(queues) > 1 and taken[0]:
            for each in {queue.address for queue in queues} - {address}:
                each.messages_routed += taken[0]
        return taken

    def _room(
        self, address: Address, queues: tuple[Queue, ...], transaction: SessionTransaction | None
    ) -> tuple[int, int]:
        """How many bytes and messages the address and the transaction may still hold."""
        room_bytes = room_count = _UNLIMITED
        if address.limited:
            room_bytes, room_count = self._office.memory.room(address, holders_of(queues))
        if transaction is not None:
            room_count = min(room_count, transaction.room(len(queues)))
        return room_bytes, room_count

    def _take_in_turn(self, taking: Taking, row: int, address: Address) -> tuple[int, int]:
        """Take those from ``row`` on that are alike, of an address whose queues, here and at other members, get them in
        turn: each of them those that it would get alone. Returns and raises as ``take``.
        """
        sends, transaction = taking.sends, taking.transaction
        office, balancer = self._office, address.balancer
        if balancer is None or not address.routes_in_turn:
            return 0, 0
        turns = balancer.turns(address.routing_types)
        if turns is None:
            return 0, 0
        shares = balancer.share(turns, sends.count - row)
        most = shares[0].queues if len(turns.cycles) == 1 else balancer.all_queues()
        room_bytes, room_count = self._room(address, most, transaction)
        count, _, kind = sends.alike(row, self._longest_bytes, turns.routing_type, room_bytes, room_count)
        if count and sends.duplicate_id(row):
            count = address.duplicate_ids.unseen(sends.duplicate_ids(row, count))
        if not count:
            return 0, 0
        # Destinations follow each other, unless they have a queue in common, which needs the order of the producer.
        picked_rows = (
            [(share, 0, -(-(count - share.first) // share.step)) for share in shares[:count]]
            if _are_apart(shares)
            else [(shares[number % len(shares)], number // len(shares), 1) for number in range(count)]
        )
        parts: list[tuple[tuple[Queue, ...], Sends, int, int]] = []
        for (first, step, queues, entries, entry_count), passed, rows in picked_rows:
            if step == 1 and not entry_count:
                parts.append((queues, sends, row, count))
            else:
                begin = row + first + passed * step
                parts.append((queues, pick_sends(sends, begin, step, rows, entries, entry_count), 0, rows))
        lasts = sends.durable(row) and all(_are_logged(queues, transaction) for queues, *_ in parts)
        if not lasts:
            added_bytes = sum(picked.bytes_of(begin, rows) for _, picked, begin, rows in parts)
            holding = {queue.address for queues, *_ in parts for queue in queues}
            if not all(office.acceptance.keeps(each, holders_of(most), count, added_bytes) for each in holding):
                return 0, 0
        balancer.shared(turns, count)
        # all sends have one answer, after the last of them
        correlation_ids = sends.correlation_ids[row : row + count]
        for number, (queues, picked, begin, rows) in enumerate(parts, start=1):
            alike = rows, picked.bytes_of(begin, rows), kind
            part = taking._replace(sends=picked, answered=taking.answered if number == len(parts) else None)
            taken, _ = self._take_part(part, begin, address, queues, alike, correlation_ids)
            assert taken == rows, f"{taken} of {rows} taken"
        return count, sends.bytes_of(row, count)

    def _take_part(
        self,
        taking: Taking,
        row: int,
        address: Address,
        queues: tuple[Queue, ...],
        alike: tuple[int, int, int] | None = None,
        correlation_ids: Sequence[int] | None = None,
    ) -> tuple[int, int]:
        """Take messages that are alike, all for the same queues. Returns and raises as ``take``.

        Args:
            row: The first one.
            address: They were sent to it.
            queues: Get each of them.
            alike: How many, their bytes and their kind (``Sends.alike``); None: all that
                are alike and fit under the limits.
            correlation_ids: Correlation ids of the requests that are answered; None: those of the messages.
        """
        sends, order, answered, transaction = taking.sends, taking.order, taking.answered, taking.transaction
        if alike is None:
            room_bytes = room_count = _UNLIMITED
            if address.limited or transaction is not None:
                room_bytes, room_count = self._room(address, queues, transaction)
            alike = sends.alike(row, self._longest_bytes, queues[0].routing_type, room_bytes, room_count)
            if not alike[0]:
                return 0, 0
        count, size_bytes, kind = alike
        office = self._office
        context = office.store.context
        joins = (
            context.gathered is self
            and address is self._address
            and queues == self._queues
            and kind == self._kind
            and size_bytes + count * self._head_bytes <= self._room_bytes
            and transaction is None
        )
        if not joins and not self._begin(taking, row, address, queues, alike):
            return 0, 0
        waits = self._held_bytes > 0
        if self._marked:
            ids, seen = sends.duplicate_ids(row, count), address.duplicate_ids
            new = seen.take(ids, context.appended + 1) if waits else seen.unseen(ids)
            if new < count:
                if not new:
                    return 0, 0
                count, size_bytes = new, sends.bytes_of(row, new)
                ids = ids[:new]
            self._duplicate_ids += ids
        self._parts.append((sends, row, count))
        self._count += count
        self._bytes += size_bytes
        if answered is not None:
            if correlation_ids is None:
                correlation_ids = sends.correlation_ids
                if count != sends.count:
                    correlation_ids = correlation_ids[row : row + count]
            self._answers.append((answered, correlation_ids))
        address.messages_routed += count
        if len(queues) == 1:
            queue = queues[0]
            # a queue of a wildcard address is counted there
            holder = queue.address
            holder.size_bytes += size_bytes
            holder.memory_bytes += size_bytes
            holder.message_count += count
            memory = office.memory
            memory.held_bytes += size_bytes
            memory.held_count += count
            queue.incoming += count
        if waits:
            self._room_bytes -= size_bytes + count * self._head_bytes
            context.appended += count
            order.sequence, order.lane = context.appended, None
            if self._bytes >= GATHERED_BYTES_MAX:
                self.close()
        else:
            self._append(order, transaction)
        return count, size_bytes

    def _begin(
        self, taking: Taking, row: int, address: Address, queues: tuple[Queue, ...], alike: tuple[int, int, int]
    ) -> bool:
        """Close the batch that is open, and begin one with these messages. It waits for further ones if they are
        durable, for one queue, in no transaction, and all fit in the rest of the segment. False: these would meet
        the limit of memory one after the other, and the log does not have them for each queue, which is for
        ``PostOffice.send``.
        """
        office, sends, transaction = self._office, taking.sends, taking.transaction
        count, size_bytes, kind = alike
        context = office.store.context
        if context.gathered is not None:
            context.gathered.close()
        self._parts, self._answers, self._duplicate_ids = [], [], []
        self._count = self._bytes = self._held_bytes = 0
        self._address, self._kind = address, kind
        self._queues = queues
        duplicate_bytes, durable = kind >> DUPLICATE_SHIFT, kind & DURABLE
        self._marked = duplicate_bytes > 0
        if not durable:
            self._durable_ids = ()
        elif len(queues) == 1:
            self._durable_ids = (queues[0].queue_id,) if queues[0].durable else ()
        else:
            self._durable_ids = tuple([queue.queue_id for queue in queues if queue.durable])
        # as ``_are_logged``, from the ids that are known already
        logged = self._durable_ids if transaction is None else len(self._durable_ids) == len(queues)
        if not durable or not logged:
            return office.acceptance.keeps(queues[0].address, holders_of(queues), count, size_bytes)
        if transaction is not None:
            return True
        if len(queues) == 1:
            own_bytes = RECORD_HEAD_BYTES + QUEUE_ID_BYTES + duplicate_bytes
            self._head_bytes = own_bytes + _SEAL_BYTES
            room_bytes = office.store.hold_room(own_bytes + (size_bytes if count == 1 else sends.size(row)))
            if size_bytes + count * self._head_bytes <= room_bytes:
                self._held_bytes = self._room_bytes = room_bytes
                context.gathered = self
        return True

    def close(self) -> None:
        """Append gathered records; see ``GatheredRecords``."""
        context = self._office.store.context
        context.gathered = None
        if not self._count:
            return
        answers = self._answers
        try:
            self._append(None, None)
        except BrokerError:
            raise
        except Exception as bug:
            # no session of the batch may continue as if its messages were safe
            context.appended = self._office.store.last_sequence
            tell_owners(bug, answers)

    def _append(self, order: ResponseOrder | None, transaction: SessionTransaction | None) -> None:
        """Give the messages of the batch their ids and the log their records, and have them wait until they are safe.

        Args:
            order: Order of the session whose messages these are; None if they are those of several.
            transaction: They become visible with it.
        """
        office, queues, durable_ids = self._office, self._queues, self._durable_ids
        store, context = office.store, office.store.context
        parts, answers, count = self._parts, self._answers, self._count
        address, held_bytes, promised = self._address, self._held_bytes, context.appended
        ids = self._duplicate_ids
        # the columns keep no bytes that were read from the socket
        self._parts, self._answers, self._duplicate_ids, self._count = [], [], [], 0
        transaction_id = transaction.log_id() if transaction is not None and durable_ids else 0
        first_id = store.last_id + 1
        store.last_id += count
        if durable_ids:
            runs = store.store_run(
                parts, count, first_id, address.address_id, durable_ids, transaction_id, held_bytes, ids
            )
            assert not held_bytes or context.appended == promised, f"{context.appended} appended, {promised} promised"
        else:
            runs = [keep_sends(parts, first_id)]
        if ids and not held_bytes:
            office.acceptance.remember(address, ids, transaction, logged=bool(durable_ids))
        priority = self._kind >> PRIORITY_SHIFT & 15
        arrivals: list[Arrival] = []
        for run in runs:
            if len(queues) == 1:
                arrivals.append((RunSlice(run, 0, run.count, priority, -1),))
            else:
                arrivals.append(_shared_slices(run, queues, priority))
        if len(queues) > 1:
            for arrived in arrivals:
                office.acceptance.charge(queues, arrived[0])
        if order is None:
            # the order of each session has got its place already
            context.when_durable(context.appended, office.acceptance.enqueue, queues, arrivals, answers)
            return
        # plain messages wait for the strictest contract (``Address.plain_queues``)
        office.acceptance.release(queues, arrivals, answers, order, transaction, None, logged=bool(durable_ids))


def _are_logged(queues: tuple[Queue, ...], transaction: SessionTransaction | None) -> bool:
    """Whether durable messages for these queues may come while memory is full: the log has them, for each queue if
    they wait in a transaction.
    """
    if transaction is not None:
        return all(queue.durable for queue in queues)
    return any(queue.durable for queue in queues)


def _shared_slices(run: Run, queues: tuple[Queue, ...], priority: int) -> Arrival:
    shared: dict[int, Message] = {}
    return tuple([RunSlice(run, 0, run.count, priority, -1, durable=queue.durable, shared=shared) for queue in queues])
