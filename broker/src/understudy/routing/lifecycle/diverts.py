"""Diverts: messages of one address copied or moved to others (manual, "Diverting and Splitting
Message Flows").

A message meets the diverts of its address before the queues. If any exclusive one takes it, that is
all; otherwise its queues get it and each other divert a copy. Of diverts with the same routing name
one gets it, in turn. A copy has an id of its own, says where it came from (``_AMQ_ORIG_*``,
artemis-core s. 5.1) and is routed like a message sent to the forwarding address, whose diverts apply in turn; but a
divert takes part only once for each message that was sent, so a circle of diverts ends. Exclusive diverts that lead to
their own address change the message one after the other; it is routed there once.

The message and its copies are one: in a transaction of the producer, or in one of the log, so a
crash leaves all or none of them. A duplicate id counts where the message was sent, once, and is not
asked about again on the way. Bodies of large messages are shared.

Not here: what the configuration says (``config``). Invariant: ``Address.diverts`` is what
``Diverts`` holds for the address, exclusive ones first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import NamedTuple, Protocol

from understudy.errors import (
    AddressNotFound,
    BrokerError,
    DiskFull,
    DivertExists,
    DivertNotFound,
    LimitExceeded,
    QueueNotFound,
)
from understudy.limits import DIVERTS_MAX
from understudy.message import ROUTING_TYPE, Message
from understudy.properties import PropertyValue
from understudy.routing.acceptance import Acceptance, refuses_no_queue, scheduled_ms
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.directory import Directory
from understudy.routing.addresses.divert import Divert
from understudy.routing.destinations import NamedQueue, destinations
from understudy.routing.lifecycle.dead_letters import DeadLetters
from understudy.routing.queues.queue import Queue
from understudy.routing.response_order import Done, Lanes, ResponseOrder, RoutingTransaction, SendRequest, strictest
from understudy.store.messages.reference import Arrival
from understudy.terms import DivertDefinition, DivertRouting, RoutingType
from understudy.wildcards import matches


class DivertListener(Protocol):
    """Called when diverts are added and removed."""

    def divert_added(self, divert: Divert) -> None:
        """A divert exists from now on."""
        ...

    def divert_removed(self, divert: Divert) -> None:
        """Called when a divert was destroyed, or went with its address."""
        ...


class Parcel(NamedTuple):
    """A message at an address, and which of its queues get it."""

    address: Address
    message: Message
    queues: tuple[Queue, ...]


_Pending = tuple[Address, Message, PropertyValue, NamedQueue | None]
"""A message that is being diverted: its address, the message, the requested routing type, and the only queue it may go
to."""


class Diverts:
    """The diverts of a node."""

    __slots__ = ("_acceptance", "_dead_letters", "_directory", "_turns", "by_name", "listeners")

    def __init__(self, directory: Directory, acceptance: Acceptance, dead_letters: DeadLetters) -> None:
        self._directory = directory
        self._acceptance = acceptance
        self._dead_letters = dead_letters
        directory.diverts = self
        self.by_name: dict[str, Divert] = {}
        self.listeners: list[DivertListener] = []
        self._turns: dict[tuple[str, str], int] = {}

    # -- made and destroyed ---------------------------------------------------------------------

    def deploy(self, configured: Iterable[DivertDefinition]) -> None:
        """Make those of the configuration and remove those that have gone from it. One that the log has under the same
        name goes. One that is there is changed and keeps its count, unless its address or ``exclusive`` differs.
        """
        wanted = {configuration.name: configuration for configuration in configured}
        for divert in [each for each in self.by_name.values() if not each.stored and each.name not in wanted]:
            self.destroy(divert.name)
        for name, configuration in wanted.items():
            existing = self.by_name.get(name)
            if existing is None:
                self._add(Divert(configuration))
                continue
            before = existing.configuration
            if before == configuration and not existing.stored:
                continue
            same = (before.address, before.exclusive) == (configuration.address, configuration.exclusive)
            if same and not existing.stored:
                self.change(name, configuration)
            else:
                self.destroy(name)
                self._add(Divert(configuration))

    def create(self, configuration: DivertDefinition) -> Divert:
        """A divert that lasts until it is destroyed, through restarts and takeovers. Its address is
        made if it is missing.

        Raises:
            DivertExists, InvalidQueueConfiguration, InvalidSelector, LimitExceeded, DiskFull
        """
        if configuration.name in self.by_name:
            raise DivertExists(f"divert {configuration.name!r} already exists")
        if len(self.by_name) >= DIVERTS_MAX:
            raise LimitExceeded(f"{len(self.by_name)} diverts, limit {DIVERTS_MAX}")
        divert = Divert(configuration)
        directory = self._directory
        address = directory.addresses.get(configuration.address)
        if address is None:
            settings = directory.settings.of(configuration.address)
            address = directory.create_address(configuration.address, {settings.default_address_routing_type})
        divert.stored = True
        self.by_name[divert.name] = divert
        try:
            directory.store_address(address)
        except DiskFull:
            del self.by_name[divert.name]
            raise
        self._add(divert)
        return divert

    def change(self, name: str, configuration: DivertDefinition) -> None:
        """Let a divert do from now on what ``configuration`` says; its name and its address stay. One of the
        configuration is as that says again after the next activation.

        Raises:
            DivertNotFound, InvalidQueueConfiguration, InvalidSelector, LimitExceeded, DiskFull
        """
        before = self.by_name.get(name)
        if before is None:
            raise DivertNotFound(f"no divert {name!r}")
        divert = Divert(replace(configuration, name=name, address=before.configuration.address))
        divert.stored, divert.messages_diverted = before.stored, before.messages_diverted
        directory = self._directory
        address = directory.addresses.get(divert.configuration.address)
        self.by_name[name] = divert
        try:
            if divert.stored and address is not None:
                directory.store_address(address)
        except DiskFull:
            self.by_name[name] = before
            raise
        self._attach_all()

    def destroy(self, name: str) -> None:
        """Raises DivertNotFound, DiskFull."""
        divert = self.by_name.pop(name, None)
        if divert is None:
            raise DivertNotFound(f"no divert {name!r}")
        self._attach_all()
        directory = self._directory
        address = directory.addresses.get(divert.configuration.address)
        if divert.stored and address is not None:
            directory.store_address(address)
        for listener in self.listeners:
            listener.divert_removed(divert)

    def _add(self, divert: Divert) -> None:
        self.by_name[divert.name] = divert
        self._attach_all()
        for listener in self.listeners:
            listener.divert_added(divert)

    def restore(self, kept: Iterable[Mapping[str, object]]) -> None:
        """Restore the diverts that the record of an address keeps (``kept_for``)."""
        for values in kept:
            fields = {**values, "routing_type": DivertRouting(values["routing_type"])}
            divert = Divert(DivertDefinition(**fields))  # type: ignore[arg-type]  # written by kept_for
            divert.stored = True
            self._add(divert)

    def kept_for(self, address: str) -> list[dict[str, object]]:
        """The diverts in the record of an address: those that are not of the configuration."""
        return [
            {**asdict(divert.configuration), "routing_type": divert.configuration.routing_type.value}
            for divert in self.by_name.values()
            if divert.stored and divert.configuration.address == address
        ]

    def _attach_all(self) -> None:
        for address in self._directory.addresses.values():
            self.attach(address)

    def attach(self, address: Address) -> None:
        """An address came, or diverts did: find those that apply to it."""
        if not self.by_name and not address.diverts:
            return
        directory = self._directory
        found = [
            divert
            for divert in self.by_name.values()
            if divert.configuration.address == address.name
            or (
                directory.wildcard_routing
                and matches(divert.configuration.address, address.name, directory.settings.wildcards)
            )
        ]
        address.divert_by(tuple(sorted(found, key=lambda divert: not divert.configuration.exclusive)))

    def address_deleted(self, name: str) -> None:
        """Called when the record of an address is gone, and with it the diverts that it kept."""
        for divert in [each for each in self.by_name.values() if each.stored and each.configuration.address == name]:
            del self.by_name[divert.name]
            for listener in self.listeners:
                listener.divert_removed(divert)
        self._attach_all()

    # -- messages -------------------------------------------------------------------------------

    def send(
        self,
        address: Address,
        message: Message,
        routing_type: PropertyValue,
        only: NamedQueue | None,
        request: SendRequest,
    ) -> None:
        """Take a message, which has its id, of an address with diverts; see ``PostOffice.send``.

        Raises:
            AddressFull: it or a forwarding address is full and its policy is to fail.
            AddressNotFound: the copy asks for a routing type, and its address is missing and may not be made.
            DiskFull: nothing was taken.
            QueueNotFound: no queue takes it, and its sender wants to know.
        """
        acceptance = self._acceptance
        order, done, transaction, duplicate_id, _ = request
        parcels = self._parcels(address, message, routing_type, only)
        if not parcels and refuses_no_queue(message):
            raise QueueNotFound(
                f"no queue of address {address.name!r}, or to which its diverts lead, takes the message"
            )
        if transaction is not None and not transaction.admits():
            acceptance.answer(order, done)
            return
        together = Together(acceptance) if transaction is None else None
        within: RoutingTransaction | None = transaction or together
        assert within is not None
        try:
            unsaid = duplicate_id
            for parcel in parcels:
                parcel.address.messages_routed += 1
                said = unsaid if parcel.address is address else None
                not_before_ms = scheduled_ms(parcel.message)
                acceptance.accept(
                    parcel.address,
                    parcel.message,
                    parcel.queues,
                    not_before_ms,
                    SendRequest(order, None, within, said),
                )
                unsaid = None if said is not None else unsaid
            if unsaid is not None:
                acceptance.remember(address, (unsaid,), within, logged=False)
            if together is not None:
                together.commit(order)
        except BrokerError:
            if together is not None:
                together.roll_back()
            raise
        if together is not None:
            together.release(order, done)
        else:
            acceptance.answer(order, done)

    def _parcels(
        self, address: Address, message: Message, routing_type: PropertyValue, only: NamedQueue | None
    ) -> list[Parcel]:
        """Address to which a message is routed in the end. Raises AddressFull, AddressNotFound."""
        acceptance = self._acceptance
        used: set[Divert] = set()
        parcels: list[Parcel] = []
        pending: list[_Pending] = [(address, message, routing_type, only)]
        for source, original, asked, named in pending:
            chosen = self._chosen(source, original, used)
            used.update(chosen)
            if not any(divert.configuration.exclusive for divert in chosen):
                parcels += self._routed(source, *destinations(source, original, asked, named))
            changed: Message | None = None
            for divert in chosen:
                divert.messages_diverted += 1
                for name in divert.forwarding_addresses:
                    returns = divert.configuration.exclusive and name == source.name
                    copied = original if changed is None or not returns else changed
                    copy = divert.copy(copied, source.name, name, acceptance.store.next_id())
                    if returns:
                        changed = copy
                        continue
                    self._forward(divert, copy, source, pending)
            if changed is not None:
                pending.append((source, changed, changed.properties.get(ROUTING_TYPE), None))
        return parcels

    def _forward(self, divert: Divert, copy: Message, source: Address, pending: list[_Pending]) -> None:
        """Let a copy go on to its address, unless that cannot take it. Raises AddressFull, AddressNotFound."""
        acceptance, name = self._acceptance, copy.address or ""
        copied_type = copy.properties.get(ROUTING_TYPE)
        target = self._target(name, copied_type)
        if target is None:
            if copied_type is not None:
                # as for a producer of that address: an exclusive divert would lose confirmed messages
                raise AddressNotFound(
                    f"divert {divert.name!r}: no address {name!r} and the settings do not allow to make it"
                )
            source.messages_unrouted += 1
        elif not (target.limited or acceptance.store.full) or acceptance.memory.admits(target, credited=True):
            if target.alters_messages:
                copy = target.altered(copy, acceptance.clock.wall_ms())
            pending.append((target, copy, copied_type, None))

    def _chosen(self, address: Address, message: Message, used: set[Divert]) -> list[Divert]:
        """The exclusive diverts that take it; if there are none, the others, one of each name.
        For them ``address::queue`` is the address.
        """
        taking = [divert for divert in address.diverts if divert not in used and divert.takes(message)]
        exclusive = [divert for divert in taking if divert.configuration.exclusive]
        if exclusive:
            return exclusive
        by_name: dict[str, list[Divert]] = {}
        for divert in taking:
            by_name.setdefault(divert.routing_name, []).append(divert)
        chosen = []
        for name, sharing in by_name.items():
            turn = 0
            if len(sharing) > 1:
                key = (address.name, name)
                turn = self._turns.get(key, 0) % len(sharing)
                self._turns[key] = turn + 1
            chosen.append(sharing[turn])
        return chosen

    def _target(self, name: str, routing_type: PropertyValue) -> Address | None:
        """The forwarding address, made on demand as for a producer; None if it may not be."""
        directory = self._directory
        address = directory.addresses.get(name)
        if address is None or (not address.bindings and routing_type != RoutingType.MULTICAST):
            wanted = RoutingType(routing_type) if isinstance(routing_type, int) and routing_type in (0, 1) else None
            address = directory.for_send(name, wanted)
        return address

    def _routed(self, address: Address, message: Message, queues: tuple[Queue, ...]) -> list[Parcel]:
        if queues:
            return [Parcel(address, message, queues)]
        address.messages_unrouted += 1
        if address.settings.send_to_dla_on_no_route and not refuses_no_queue(message):
            dead = self._dead_letters.unrouted_copy(address, message)
            if dead is not None:
                target, copy = dead
                copy, found = target.destinations(copy, None)
                if found:
                    return [Parcel(target, copy, found)]
                target.messages_unrouted += 1
        return []


class Together:
    """Messages that become visible together: a transaction of the log that begins and ends within one request.

    Implements ``RoutingTransaction``.
    """

    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance
        self._log_id = 0
        self._staged: list[tuple[tuple[Queue, ...], Arrival]] = []
        self._duplicate_ids: list[tuple[Address, bytes]] = []
        self.lanes: Lanes = set()
        """See ``RoutingTransaction``."""

    def log_id(self) -> int:
        if not self._log_id:
            self._log_id = self._acceptance.store.next_id()
        return self._log_id

    def admits(self) -> bool:
        """Return True: a divert has no limits."""
        return True

    def staged(self, queues: tuple[Queue, ...], parts: Arrival, *, leaves: bool = False) -> None:
        # whether bodies leave memory is decided when the messages become visible
        self._staged.append((queues, parts))

    def staged_duplicate_id(self, address: Address, duplicate_id: bytes) -> None:
        self._duplicate_ids.append((address, duplicate_id))

    def commit(self, order: ResponseOrder) -> None:
        """Count the messages once the log has them on the medium. Raises DiskFull."""
        store = self._acceptance.store
        if self._log_id:
            store.store_commit(self._log_id)
            order.enter(self._acceptance.context, strictest(self.lanes))
            order.sequence = store.last_sequence
        for address, duplicate_id in self._duplicate_ids:
            address.duplicate_ids.add(duplicate_id, store.last_sequence)

    def release(self, order: ResponseOrder, done: Done | None) -> None:
        """Make the message visible when the log has it, and then answer."""
        context = self._acceptance.context
        lane = order.lane or context
        if order.sequence > lane.durable:
            order.sequence = context.appended
            lane.when_durable(order.sequence, self._release, done)
        else:
            self._release(done)

    def _release(self, done: Done | None) -> None:
        for queues, parts in self._staged:
            self._acceptance.enqueue(queues, (parts,))
        if done is not None:
            done(None)

    def roll_back(self) -> None:
        """Undo the sends to all targets of the diverts."""
        if self._log_id:
            try:
                self._acceptance.store.store_rollback(self._log_id)
            except DiskFull:
                # A transaction without an outcome is undone at the next activation.
                pass
        for queues, parts in self._staged:
            self._acceptance.discard(queues, parts)
