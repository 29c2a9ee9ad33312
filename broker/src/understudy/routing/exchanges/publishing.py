"""Messages that are published to exchanges, and dead letters of queues that were declared over AMQP 0-9-1.

A message goes to all its queues in one record. Its priority and its expiration are part of the record, and queues may
ask for different ones (x-max-priority, x-message-ttl): then there is a record for each combination.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from understudy.dataclass import dataclass
from understudy.errors import AddressFull, BrokerError, DiskFull
from understudy.message import Message
from understudy.routing.acceptance import Acceptance
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.directory import Directory
from understudy.routing.exchanges.carrier import Death, Reason
from understudy.routing.exchanges.errors import PublishRejected
from understudy.routing.exchanges.exchange import Exchange
from understudy.routing.exchanges.exchanges import Exchanges
from understudy.routing.exchanges.expiry import ExpiryTimers
from understudy.routing.memory import AddressMemory, Memory
from understudy.routing.moves import MessageCopy
from understudy.routing.queues.queue import Queue
from understudy.routing.response_order import Done, ResponseOrder, RoutingTransaction, SendRequest
from understudy.store.messages.reference import MessageReference, parts_of

#: Priority of messages in a queue that ignores priorities.
ONE_PRIORITY = 4
_OWN_PRIORITY = -1


@dataclass(frozen=True, slots=True)
class Published:
    """A message with all that routing needs to know of it."""

    message: Message
    """The message, with the priority and expiration of its publisher."""
    exchange: Exchange
    keys: tuple[str, ...]
    """Routing keys, the first one and those of the headers CC and BCC."""
    headers: Mapping[str, object]
    priority: int
    """Priority in queues with x-max-priority: that of its publisher, and 0 for a message without one."""
    number: bytes | None = None
    """Number of the publish of a client session (``store.session_numbers``); the last record of the message has it."""


class KeyRoute(NamedTuple):
    """The way of every message with one routing key, if it needs nothing but a place in queues."""

    exchange: Exchange
    queues: tuple[Queue, ...]
    """At least one."""
    address: Address
    """The address whose durability contract holds for them."""
    priority: int
    """Priority of the messages in these queues; -1: that of their publisher."""


class Publishing:
    """Routes messages through exchanges."""

    def __init__(
        self, exchanges: Exchanges, directory: Directory, acceptance: Acceptance, expiry: ExpiryTimers, memory: Memory
    ) -> None:
        self._exchanges = exchanges
        self._directory = directory
        self._acceptance = acceptance
        self._expiry = expiry
        self._memory = memory

    def publish(
        self, published: Published, order: ResponseOrder, done: Done | None, transaction: RoutingTransaction | None
    ) -> tuple[Queue, ...]:
        """Take a message. Returns its queues; without one nothing happens, and ``done`` is not called.

        A queue that is full does not keep the message from the other ones, unless a transaction has it: what is
        raised then says that not all queues have got it, as in RabbitMQ.

        Args:
            published: The message.
            order: Order of the session that sent it.
            done: Called when the message is safe; in a transaction when it was taken.
            transaction: The message becomes visible with it; None: now.

        Raises:
            PublishRejected: a queue is full and rejects further messages.
            AddressFull: an address, the node or the disk is full.
            TransactionTooLarge: the transaction holds as much as it may.
        """
        exchange, message = published.exchange, published.message
        exchange.messages_in += 1
        queues = self._exchanges.route(exchange, published.keys, published.headers, message)
        if not queues:
            exchange.messages_unrouted += 1
            return ()
        queues, refused = self._admitting(queues)
        if refused is not None:
            if transaction is not None or not queues:
                raise refused
            done = None
        if transaction is not None and not transaction.admits():
            self._acceptance.answer(order, done)
            return queues
        variants = list(self._variants(message, published.priority, queues).items())
        try:
            for number, ((priority, expiration), group) in enumerate(variants, 1):
                last = number == len(variants)
                number_id = published.number if last else None
                request = SendRequest(order, done if last else None, transaction, number=number_id)
                self._accept(message, priority, expiration, tuple(group), request)
        except DiskFull as error:
            raise AddressFull("the disk of the broker is full", hint=error.hint) from error
        if refused is not None:
            raise refused
        return queues

    def route_of_key(self, exchange: Exchange, key: str) -> KeyRoute | None:
        """The way of messages with a routing key, which ``BatchSends.take_routed`` goes; None: each of them has to be
        looked at, or no queue gets them.
        """
        queues = self._exchanges.route_of_key(exchange, key)
        if not queues or not all(map(_takes_alike, queues)):
            return None
        priority = _OWN_PRIORITY if queues[0].configuration.arguments is None else ONE_PRIORITY
        if len(queues) > 1:
            known = {queue.configuration.arguments is None for queue in queues}
            addresses = {queue.address for queue in queues}
            if len(known) > 1 or (len(addresses) > 1 and any(each.limited for each in addresses)):
                return None
        return KeyRoute(exchange, queues, self._address(queues), priority)

    def _admitting(self, queues: tuple[Queue, ...]) -> tuple[tuple[Queue, ...], BrokerError | None]:
        """The queues that can take a message, and why another one cannot; None: all of them can."""
        refused: BrokerError | None = None
        taking: list[Queue] = []
        full: dict[AddressMemory, BrokerError | None] = {}
        for queue in queues:
            arguments, address = queue.configuration.arguments, queue.address
            error: BrokerError | None = None
            if arguments is not None and queue.refuses:
                error = PublishRejected(f"queue {queue.name!r} is full (x-overflow {arguments.overflow})")
            elif address in full:
                error = full[address]
            else:
                error = full[address] = self._why_full(address)
            if error is None:
                taking.append(queue)
            elif refused is None:
                refused = error
        return tuple(taking), refused

    def _why_full(self, address: AddressMemory) -> AddressFull | None:
        """Why an address takes no message; None: it takes one."""
        memory = self._memory
        try:
            if (address.limited or self._acceptance.store.full) and not memory.admits(address, credited=True):
                return AddressFull(f"address {address.name!r} is full and drops messages")
        except AddressFull as error:
            return error
        return None

    def _accept(
        self,
        message: Message,
        priority: int,
        expiration: int,
        queues: tuple[Queue, ...],
        request: SendRequest,
    ) -> None:
        acceptance = self._acceptance
        variant = message
        if (priority, expiration) != (message.priority, message.expiration):
            variant = message.replace(priority=priority, expiration=expiration)
        elif message.message_id:
            variant = message.replace()
        variant.assign_id(acceptance.store.next_id())
        address = self._address(queues)
        for each in {queue.address for queue in queues}:
            each.messages_routed += 1
        acceptance.accept(address, variant, queues, 0, request)
        if expiration:
            for queue in queues:
                if queue.configuration.arguments is not None:
                    self._expiry.arrived(queue, expiration)

    def _address(self, queues: tuple[Queue, ...]) -> Address:
        """The address whose durability contract is the strictest one of the addresses of these queues."""
        first = self._directory.address_of(queues[0])
        for queue in queues[1:]:
            lane = first.lane
            other = queue.address.lane
            if lane is not None and (other is None or other.contract.strength > lane.contract.strength):
                first = self._directory.address_of(queue)
        return first

    def _variants(self, message: Message, ranked: int, queues: tuple[Queue, ...]) -> dict[tuple[int, int], list[Queue]]:
        """Priority and expiration to the queues that want them.

        Args:
            message: Message with the priority and expiration of its publisher.
            ranked: Priority in queues with x-max-priority.
            queues: Get the message.
        """
        now_ms = self._acceptance.clock.wall_ms()
        found: dict[tuple[int, int], list[Queue]] = {}
        for queue in queues:
            priority, expiration = message.priority, message.expiration
            arguments = queue.configuration.arguments
            if arguments is not None:
                priority = ONE_PRIORITY if arguments.max_priority is None else min(ranked, arguments.max_priority)
                if arguments.message_ttl_ms is not None:
                    latest = now_ms + arguments.message_ttl_ms
                    expiration = min(expiration or latest, latest)
            found.setdefault((priority, expiration), []).append(queue)
        return found

    # -- dead letters ---------------------------------------------------------------------------

    def bury(self, queue: Queue, reference: MessageReference, reason: Reason) -> None:
        """A message leaves a queue that was declared over AMQP 0-9-1, for its dead letter exchange if it has one.

        Args:
            queue: The queue; its arguments say where the message goes.
            reference: Reference in no place any more.
            reason: Why it leaves.

        Raises:
            BrokerError: nothing has happened.
        """
        acceptance, arguments = self._acceptance, queue.configuration.arguments
        copies: list[MessageCopy] = []
        expiring: list[tuple[Queue, int]] = []
        target = None
        if arguments is not None and arguments.dead_letter_exchange is not None:
            target = self._exchanges.find(arguments.host + arguments.dead_letter_exchange)
        if target is not None and arguments is not None:
            death = Death(
                queue.name.removeprefix(arguments.host),
                reason,
                acceptance.clock.wall_ms(),
                arguments.dead_letter_routing_key,
                arguments.dead_letter_exchange or "",
            )
            letter = self._exchanges.carrier.dead_letter(queue.read(reference), death)
            target.messages_in += 1
            queues = self._exchanges.route(target, letter.keys, letter.headers, letter.message)
            if reason is not Reason.REJECTED:
                # a message that dies in a circle without being rejected ends
                queues = tuple(each for each in queues if each.name.removeprefix(arguments.host) not in letter.passed)
            if not queues:
                target.messages_unrouted += 1
            for (priority, expiration), group in self._variants(letter.message, letter.priority, queues).items():
                copy = letter.message.replace(
                    priority=priority, expiration=expiration, message_id=acceptance.store.next_id()
                )
                copies.append(MessageCopy(copy, self._address(tuple(group)), tuple(group), reference))
                expiring += [(each, expiration) for each in group if expiration]
        acceptance.move(queue, parts_of((reference,)), copies)
        for each, expiration in expiring:
            if each.configuration.arguments is not None:
                self._expiry.arrived(each, expiration)

    def when_room(self, queues: tuple[Queue, ...], waiter: object, go_on: Callable[[], None]) -> AddressMemory | None:
        """The address of these queues that is full and blocks its producers, if there is one; ``go_on`` is called when
        it takes messages again.
        """
        for queue in queues:
            if self._memory.blocks_producers(queue.address) is not None:
                self._memory.when_room(queue.address, waiter, go_on)
                return queue.address
        return None


def _takes_alike(queue: Queue) -> bool:
    """Whether a queue takes all messages of its publishers alike, as long as its address has space."""
    arguments = queue.configuration.arguments
    if queue.kind is not None or queue.address.lane is not None:
        return False
    return arguments is None or (
        arguments.max_priority is None
        and arguments.message_ttl_ms is None
        and arguments.max_length is None
        and arguments.max_length_bytes is None
    )
