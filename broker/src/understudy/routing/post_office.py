"""The post office: which queues of an address get a message, and the turn in which queues are served.

A message is checked (limits, duplicate id) and routed; ``acceptance`` makes it durable and visible. Queues that
have something to deliver are collected in ``dirty`` and served once per turn of the loop by ``turn``.

Not here: addresses and queues as such (``directory``), limits and credits (``memory``), batches (``batch``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import (
    AddressFull,
    AddressNotFound,
    DiskFull,
    DuplicateIdRejected,
    QueueNotFound,
)
from understudy.limits import SELECTOR_STEPS_PER_TURN
from understudy.message import (
    BRIDGE_DUPLICATE_ID,
    DUPLICATE_ID,
    GROUP_ID,
    KEPT_DUPLICATE_ID,
    ROUTING_TYPE,
    SCHEDULED_DELIVERY,
    Message,
)
from understudy.ports import Clock, Entropy, Timers
from understudy.properties import PropertyValue
from understudy.routing.acceptance import Acceptance, refuses_no_queue, scheduled_ms
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.configuration import split_fqqn
from understudy.routing.addresses.directory import Directory
from understudy.routing.addresses.settings import AddressSettingsRepository
from understudy.routing.destinations import (
    NamedQueue,
    Undecided,
    destinations,
    is_of_member,
    kept_for_other,
    undecided,
    without_acknowledgements,
    without_chosen_queues,
)
from understudy.routing.exchanges.exchange_routing import ExchangeRouting
from understudy.routing.lifecycle.auto_deletion import AutoDeletion
from understudy.routing.lifecycle.dead_letters import DeadLetters
from understudy.routing.lifecycle.diverts import Diverts
from understudy.routing.lifecycle.duplicate_ids import duplicate_id_bytes, forwarded_id_bytes
from understudy.routing.lifecycle.periodic_scan import PeriodicScan
from understudy.routing.lifecycle.quarantine import DamagedMessages
from understudy.routing.lifecycle.redelivery import Redelivery
from understudy.routing.lifecycle.scheduled import ScheduledDeliveries
from understudy.routing.memory import Memory
from understudy.routing.paging import Paging
from understudy.routing.queues.delivery import DeliveryPermission, serve
from understudy.routing.queues.queue import EXPIRED_AT_ONCE, Queue
from understudy.routing.response_order import Done, ResponseOrder, RoutingTransaction, SendRequest, SessionTransaction
from understudy.selector.work import WORK
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.pages import Pages
from understudy.terms import RoutingType

__all__ = ["Done", "PostOffice", "ResponseOrder", "RoutingTransaction", "Undecided"]

log = logging.getLogger(__name__)

#: Queues in which a step of the scan for expired messages looks. A step without them has ``EXPIRED_AT_ONCE`` messages.
_SCANNED_AT_ONCE: Final = 512


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """Settings of the routing of a node."""

    addresses: AddressSettingsRepository
    id_cache_size: int = 20_000
    """Duplicate ids remembered per address."""
    persist_id_cache: bool = True
    """Whether ids of messages that are not in the log go there too."""
    global_max_size_bytes: int = -1
    """Bytes of bodies in memory over all addresses; -1: no limit."""
    global_max_messages: int = -1
    """Bodies in memory over all addresses; -1: no limit."""
    wildcard_routing: bool = True
    """Whether queues of wildcard addresses get messages of the addresses that they cover."""
    message_expiry_scan_period_ms: int = 30_000
    """Time between searches for expired messages; those that come to be delivered expire anyway. -1: never."""
    address_queue_scan_period_ms: int = 30_000
    """Time between searches for queues and addresses to delete automatically. -1: never."""


class PostOffice:
    """Routing of all messages of one active node."""

    def __init__(
        self,
        *,
        store: MessageStore,
        settings: RoutingSettings,
        clock: Clock,
        timers: Timers,
        pages: Pages | None = None,
        wake: Callable[[], None] | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """Args:
        store: The log of this node, open.
        settings: Settings of routing, with those of addresses.
        clock: Wall time for expirations and schedules.
        pages: Storage for what leaves memory and is not in the log; None keeps that in memory.
        wake: Called when the first queue becomes dirty since the last ``turn``, so that the shell
            makes one; None if it makes one after everything it does.
        entropy: Used for redelivery-collision-avoidance-factor; None = delays are not varied.
        """
        self.store = store
        self.clock = clock
        self.timers = timers
        self.dirty: list[Queue] = []
        self._wake = wake
        self.steps_end = self.send_steps_end = 1 << 62
        """Limits of the work of selectors (``selector.work``): beyond it, deliveries, and sends, wait for the next
        turn.
        """
        self.now_ms = clock.wall_ms()
        """Wall time of the last turn. Calls between two turns may be much later, so they read the time of an event from
        ``clock``."""
        self.permission = DeliveryPermission(clock, timers)
        self.memory = memory = Memory(store, settings.global_max_size_bytes, settings.global_max_messages)
        self.paging = paging = Paging(memory, store, pages)
        paging.begin(timers.call_later)
        self.scheduled = scheduled = ScheduledDeliveries(clock, timers)
        self.directory = directory = Directory(
            self,
            settings.addresses,
            paging,
            id_cache_size=settings.id_cache_size,
            wildcard_routing=settings.wildcard_routing,
        )
        paging.prefer_cold(directory.addresses)
        self.acceptance = acceptance = Acceptance(
            store, clock, memory, paging, scheduled, persist_id_cache=settings.persist_id_cache
        )
        self.damaged = damaged = DamagedMessages(store, paging, scheduled, clock, timers, directory.queues)
        self.dead_letters = dead_letters = DeadLetters(directory, acceptance)
        self.redelivery = Redelivery(dead_letters, scheduled, damaged, store, clock, entropy)
        self.routing = ExchangeRouting(directory, acceptance, self.redelivery, clock, timers)
        self.diverts = Diverts(directory, acceptance, dead_letters)
        self.auto_deletion = AutoDeletion(directory, clock)
        self._sweeps = [
            PeriodicScan(timers, settings.message_expiry_scan_period_ms, self._expire_overdue),
            PeriodicScan(timers, settings.address_queue_scan_period_ms, self.auto_deletion.sweep),
        ]

    def queues(self) -> list[Queue]:
        """Every queue, for management."""
        return list(self.directory.queues.values())

    def _expire_overdue(self) -> Iterator[None]:
        now_ms = self.clock.wall_ms()
        done = 0
        for queue in self.queues():
            more = not queue.deleted
            while more:
                expired = queue.expire_overdue(now_ms)
                done += 1 + expired * _SCANNED_AT_ONCE // EXPIRED_AT_ONCE
                if done >= _SCANNED_AT_ONCE:
                    done = 0
                    yield
                more = expired >= EXPIRED_AT_ONCE and not queue.deleted

    def close(self) -> None:
        """End deliveries, timers and credits; the owner of the log closes it."""
        for sweep in self._sweeps:
            sweep.close()
        self.scheduled.close()
        self.routing.close()
        self.memory.close()
        self.dirty.clear()
        self.paging.close()
        self.damaged.close()

    # -- the turn -------------------------------------------------------------------------------

    def mark_dirty(self, queue: Queue) -> None:
        """Dispatch the queue in the next turn."""
        queue.dirty = True
        self.dirty.append(queue)
        if self._wake is not None and len(self.dirty) == 1:
            self._wake()

    def turn(self, again: bool = False) -> bool:
        """Deliver waiting messages, give credits for addresses that take messages again, and hand the log its
        batch. The shell calls it once per turn of its loop, before it flushes the sockets.

        Args:
            again: A second time in the same turn, for what a sync has released meanwhile.

        Returns:
            Whether there is more to do in the next turn.
        """
        store = self.store
        if not again:
            self.now_ms = self.clock.wall_ns() // 1_000_000
        elif not self.dirty and not self.memory.starved and store.context.appended == store.context.durable:
            return False
        self.steps_end = WORK.steps + SELECTOR_STEPS_PER_TURN
        try:
            if self.dirty or self.memory.starved:
                self._deliver()
        finally:
            # accepted messages are written even if a delivery fails
            self.send_steps_end = WORK.steps + SELECTOR_STEPS_PER_TURN
            waits = store.flush(gather=True)
        return waits or bool(self.dirty)

    def _deliver(self) -> None:
        if self.dirty:
            dirty, self.dirty = self.dirty, []
            rest = iter(dirty)
            later: list[Queue] = []
            try:
                for queue in rest:
                    if WORK.steps >= self.steps_end and (queue.selective or queue.consumers.searching):
                        # first in the next turn, so that no queue uses up the steps of every turn
                        later.append(queue)
                        continue
                    queue.dirty = False
                    serve(queue)
            finally:
                # calls are left only if one of them raised; they are made in the next turn
                self.dirty[:0] = (*later, *rest)
                if later and self._wake is not None:
                    self._wake()
        if self.memory.starved:
            self.memory.grant()

    # -- settings -------------------------------------------------------------------------------

    def apply_settings(self) -> None:
        """The address settings changed: they apply from now on, and producers that waited may go on."""
        self.directory.apply_settings()
        if self.directory.retroactive is not None:
            self.directory.retroactive.settings_changed()
        if self._wake is not None:
            self._wake()

    # -- messages in ----------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        order: ResponseOrder,
        done: Done | None = None,
        transaction: SessionTransaction | None = None,
        credited: bool = True,
        may_wait: bool = False,
    ) -> Undecided | None:
        """Take one message from a producer.

        Args:
            message: Message with its address; gets its id here.
            done: Called with None when the message is safe: durable, or as safe as it gets.
            transaction: Becomes visible with it; ``done`` then means only that it is taken.
            credited: Whether the producer keeps within its credits.
            may_wait: Whether the caller sends it again after a decision about its group; otherwise it goes to a queue
                in turn if there is none.

        Returns:
            The decision that it waits for; it was not taken. None: it was.

        Raises:
            AddressFull: limits, or the disk is full.
            AddressNotFound: no such address and none may be made, or it does not take this routing type; or the
                message is anycast and its address has no queue and may get none.
            DuplicateIdRejected: a duplicate inside a transaction.
            QueueNotFound: no queue takes it, and its sender wants to know (``message.Transfer``).
            NotAuthorized: the session may not make the address or queue it would need.
            TransactionTooLarge: the transaction holds as much as it may.
        """
        properties = message.properties
        if properties.may_be_reserved and is_of_member(properties):
            self._send_of_member(message, order, done, transaction, credited)
            return None
        if self.acceptance.hops is not None:
            counted = self.acceptance.hops.counted(message, order, transaction)
            if counted is None:
                self.acceptance.answer(order, done, self.store.last_sequence if transaction is None else 0)
                return None
            message, properties = counted, counted.properties
        routing_type = properties.get(ROUTING_TYPE)
        address = self.directory.addresses.get(message.address or "")
        only: NamedQueue | None = None
        if address is None or (routing_type is not None and routing_type not in address.routing_types):
            address, only = self._find(message.address or "", routing_type, order)
        elif not address.bindings and routing_type != RoutingType.MULTICAST and not address.anycast_elsewhere:
            address, only = self._find(address.name, routing_type, order)
        if may_wait and GROUP_ID in properties:
            waits = self._undecided(address, message, only)
            if waits is not None:
                return waits
        if transaction is not None and not address.diverts and not transaction.admits():
            self.acceptance.answer(order, done)
            return None
        duplicate_id: bytes | None = None
        if BRIDGE_DUPLICATE_ID in properties:
            # instead of the id of the producer: a message that comes back to its broker is not a duplicate
            message, duplicate_id = _without_bridge_id(message)
            properties = message.properties
        elif DUPLICATE_ID in properties:
            duplicate_id = duplicate_id_bytes(properties[DUPLICATE_ID])
        if self._is_answered(address, message, duplicate_id, order, done, transaction, credited):
            return None
        if address.alters_messages:
            message = address.altered(message, self.clock.wall_ms())
        message.assign_id(self.store.next_id())
        request = SendRequest(order, done, transaction, duplicate_id)
        try:
            if address.diverts:
                self.diverts.send(address, message, routing_type, only, request)
                return None
            if only is None and address.balancer is None:
                queues = address.route(message, routing_type)
            else:
                message, queues = destinations(address, message, routing_type, only)
            if not queues:
                self._unrouted(address, message, request)
                return None
            address.messages_routed += 1
            not_before_ms = scheduled_ms(message) if SCHEDULED_DELIVERY in properties else 0
            self.acceptance.accept(address, message, queues, not_before_ms, request)
        except DiskFull as error:
            raise AddressFull(f"address {address.name!r}: the disk of the broker is full", hint=error.hint) from error
        return None

    def _undecided(self, address: Address, message: Message, only: NamedQueue | None) -> Undecided | None:
        """The decision about its group that a message waits for. Raises AddressFull: it cannot be written."""
        try:
            return undecided(self.directory, address, message, only)
        except DiskFull as error:
            raise AddressFull(f"address {address.name!r}: the disk of the broker is full", hint=error.hint) from error

    def _is_answered(
        self,
        address: Address,
        message: Message,
        duplicate_id: bytes | None,
        order: ResponseOrder,
        done: Done | None,
        transaction: SessionTransaction | None,
        credited: bool,
    ) -> bool:
        """Whether a message is done with: a duplicate, or dropped because its address is full.

        Raises:
            AddressFull, DuplicateIdRejected: as ``send``.
        """
        known = address.duplicate_ids.sequence_of(duplicate_id) if duplicate_id is not None else None
        if known is not None:
            if transaction is not None:
                shown = message.properties.get(DUPLICATE_ID, duplicate_id)
                raise DuplicateIdRejected(f"address {address.name!r} has seen duplicate id {shown!r}")
            # Confirmed, but only when the original is safe.
            self.acceptance.answer(order, done, known)
            return True
        if (address.limited or self.store.full) and not self.memory.admits(address, credited):
            self.acceptance.answer(order, done)
            return True
        if address.rejecting and (full := address.full_queue) is not None:
            raise AddressFull(f"queue {full.name!r} is full", hint="x-overflow of the queue, an argument of AMQP 0-9-1")
        return False

    def _send_of_member(
        self,
        message: Message,
        order: ResponseOrder,
        done: Done | None,
        transaction: SessionTransaction | None,
        credited: bool,
    ) -> None:
        """Take a message of another node of the cluster, which has chosen its queues. Otherwise as ``send``.

        None is made for it, and the id of its producer does not count, because it may have been here before. An
        exclusive divert takes it before those queues do; other diverts have seen it at the other node (as in Artemis,
        ``BindingsImpl.route``).
        """
        kept = kept_for_other(message, self.directory.queues)
        if kept is None:
            address = self.directory.find_for_member((message.address or "").partition("::")[0])
        else:
            message, address = kept[0], self.directory.address_of(kept[1])
        if address is None:
            log.info("a message of another node has no address any more", extra={"address": message.address})
            self.acceptance.answer(order, done)
            return
        if transaction is not None and not transaction.admits():
            self.acceptance.answer(order, done)
            return
        received = message
        message, duplicate_id = _without_bridge_id(message)
        if kept is not None:
            message = _known_to_third(received)
        if self._is_answered(address, message, duplicate_id, order, done, transaction, credited):
            return
        if address.alters_messages:
            message = address.altered(message, self.clock.wall_ms())
        message.assign_id(self.store.next_id())
        message, acknowledged = without_acknowledgements(message)
        request = SendRequest(order, done, transaction, duplicate_id)
        try:
            if kept is None and not acknowledged and address.is_diverted(message):
                message, routing_type = without_chosen_queues(message), message.properties.get(ROUTING_TYPE)
                self.diverts.send(address, message, routing_type, None, request)
                return
            if kept is None:
                message, queues = destinations(address, message, message.properties.get(ROUTING_TYPE), None)
            else:
                queues = (kept[1],)
            if not queues:
                self._unrouted(address, message, request)
                return
            address.messages_routed += 1
            taken = tuple(queue for queue in queues if queue.queue_id in acknowledged)
            if taken and transaction is not None:
                self.acceptance.accept_acknowledged(address, message, taken, order, done, transaction)
                return
            not_before_ms = scheduled_ms(message)
            self.acceptance.accept(address, message, queues, not_before_ms, request)
        except DiskFull as error:
            raise AddressFull(f"address {address.name!r}: the disk of the broker is full", hint=error.hint) from error

    def learn_duplicate_ids(self, name: str, duplicate_ids: Sequence[bytes], done: Done) -> None:
        """Duplicate ids that an address of another node has seen count as seen here; the address is made if needed.

        Args:
            duplicate_ids: Oldest first.
            done: Called when they are safe.

        Raises:
            LimitExceeded: there are too many addresses, or an id is too long.
        """
        address = self.directory.find_address(name)
        if address is None:
            address = self.directory.create_address(
                name, {self.directory.settings.of(name).default_address_routing_type}
            )
        ids = dict.fromkeys(map(duplicate_id_bytes, duplicate_ids))
        new = [each for each in ids if each not in address.duplicate_ids]
        if new:
            self.acceptance.remember(address, new, None, logged=False)
        self.acceptance.answer(ResponseOrder(), done, self.store.last_sequence if new else 0)

    def _unrouted(
        self,
        address: Address,
        message: Message,
        request: SendRequest,
    ) -> None:
        """Drop a message that no queue takes, or send it to the dead letter address if configured. Raises
        QueueNotFound: its sender wants to know.
        """
        order, done, transaction, duplicate_id, _ = request
        address.messages_unrouted += 1
        if refuses_no_queue(message):
            raise QueueNotFound(f"no queue of address {address.name!r} takes the message")
        if address.settings.send_to_dla_on_no_route:
            self.dead_letters.no_route(address, message, order, transaction)
        if duplicate_id is not None:
            # Logged after the dead letter, so that a crash in between lets the client's retry succeed.
            self.acceptance.remember(address, (duplicate_id,), transaction, logged=False)
        self.acceptance.answer(
            order, done, self.store.last_sequence if duplicate_id is not None and transaction is None else 0
        )

    def _find(self, name: str, routing_type: PropertyValue, order: ResponseOrder) -> tuple[Address, NamedQueue | None]:
        """The slow way to an address: ``address::queue``, or one made on demand."""
        fqqn = split_fqqn(name)
        wanted = RoutingType(routing_type) if isinstance(routing_type, int) and routing_type in (0, 1) else None
        name = name if fqqn is None else fqqn[0]
        address = None if fqqn is None else self.directory.addresses.get(name)
        if address is None or (wanted is not None and not address.has_queues):
            address = self.directory.for_send(name, wanted, order.permit, order.user)
            if address is None:
                raise AddressNotFound(f"no address {name!r} and the settings do not allow to make it")
            if wanted is not None and wanted not in address.routing_types:
                raise AddressNotFound(f"address {name!r} is not {wanted.name.lower()}")
        if fqqn is None:
            return address, None
        # only now: the queue may have been made with the address
        return address, NamedQueue(fqqn[1], address.queue_named(fqqn[1]))


def _known_to_third(message: Message) -> Message:
    """A message that is kept for a third node, with the id by which that one knows it: that of the node which kept it
    first, as the bridge there may have sent it.
    """
    properties = message.properties.copy()
    known = properties.pop(KEPT_DUPLICATE_ID, None)
    if known is None:
        return message
    properties[BRIDGE_DUPLICATE_ID] = known
    return message.with_properties(properties)


def _without_bridge_id(message: Message) -> tuple[Message, bytes | None]:
    """The message without the id by which a bridge sends it, and that as a key of the duplicate ids; None: it has none.

    Raises:
        LimitExceeded: the id is too long.
    """
    if BRIDGE_DUPLICATE_ID not in message.properties:
        return message, None
    properties = message.properties.copy()
    duplicate_id = forwarded_id_bytes(properties.pop(BRIDGE_DUPLICATE_ID))
    properties.pop(KEPT_DUPLICATE_ID, None)
    return message.with_properties(properties), duplicate_id
