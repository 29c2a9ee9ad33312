"""The addresses and queues of a node: made, found, deleted, by clients, by the configuration or on
demand (manual, "Address Settings": auto-create and auto-delete).

Durable addresses and queues go to the log before a client can rely on them; callers answer their client through
the operation context. Not here: messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from understudy.errors import (
    AddressExists,
    AddressHasBindings,
    AddressNotFound,
    LimitExceeded,
    QueueExists,
    QueueInUse,
    QueueNotFound,
    SharedQueueMismatch,
    UnexpectedRoutingType,
)
from understudy.limits import ADDRESSES_MAX, QUEUES_MAX
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.binding import Binding
from understudy.routing.addresses.configuration import QueueConfiguration, check_name, check_no_direct_replies
from understudy.routing.addresses.listeners import AddressesElsewhere, RoutingListener
from understudy.routing.addresses.records import address_record, queue_record
from understudy.routing.addresses.settings import AddressSettings, AddressSettingsRepository
from understudy.routing.filter import parse_filter
from understudy.routing.lifecycle.duplicate_ids import DuplicateIdCache
from understudy.routing.paging import Paging
from understudy.routing.queues.queue import Queue, QueueOffice
from understudy.routing.response_order import Permit
from understudy.terms import Permission, RoutingType
from understudy.texts import counted
from understudy.wildcards import is_wild, matches


class AddressDiverts(Protocol):
    """The diverts of a node, as far as addresses matter."""

    def attach(self, address: Address) -> None:
        """An address came: find the diverts that apply to it."""
        ...

    def kept_for(self, address: str) -> list[dict[str, object]]:
        """The diverts of an address, as its record keeps them."""
        ...

    def address_deleted(self, name: str) -> None:
        """Called when the record of an address is gone."""
        ...


class RetroactiveResources(Protocol):
    """Resources that are made and deleted together with retroactive addresses."""

    def address_created(self, address: Address) -> None:
        """Make the resources of an address, if it is to have some."""
        ...

    def address_deleted(self, name: str) -> None:
        """Delete the internal resources of an address, which is deleted."""
        ...

    def queue_created(self, queue: Queue) -> None:
        """Fill a new queue."""
        ...

    def settings_changed(self) -> None:
        """Create or delete resources after a change of address settings."""
        ...

    def is_resource(self, name: str) -> bool:
        """Whether a name is that of a resource of a retroactive address."""
        ...

    def divert_of(self, address: str) -> str:
        """Name of the divert that is among the resources of an address."""
        ...

    def keeps_messages(self, address: Address) -> bool:
        """Whether the resources of an address hold messages for queues that are bound later."""
        ...


class Directory:
    """Everything that has a name."""

    def __init__(
        self,
        office: QueueOffice,
        settings: AddressSettingsRepository,
        paging: Paging,
        *,
        id_cache_size: int,
        wildcard_routing: bool,
    ) -> None:
        self._office = office
        self._store = office.store
        self._paging = paging
        self.diverts: AddressDiverts
        """The diverts of the node, set before the first address is made."""
        self.settings = settings
        self._id_cache_size = id_cache_size
        settings.demand_contracts(self._store.context)
        self.wildcard_routing = wildcard_routing
        self.addresses: dict[str, Address] = {}
        self.queues: dict[str, Queue] = {}
        self._wildcards: dict[str, Address] = {}
        self.transient_queues: set[str] = set()
        """Names of queues that are deleted with their last consumer."""
        self.listeners: list[RoutingListener] = []
        self.retroactive: RetroactiveResources | None = None
        """Resources of retroactive addresses, called when addresses and queues are made and deleted; None while the log
        is restored."""
        self.internal_prefix = ""
        """Prefix of names that the broker gives itself (``internal_names``); set once by ``restore.settle``."""
        self.elsewhere: AddressesElsewhere | None = None
        """Addresses of other members; None: the node is in no cluster."""

    # -- addresses ------------------------------------------------------------------------------

    def dead_letter_count(self) -> int:
        """Number of messages of the addresses that any settings name as dead letter address."""
        names = {values.get("dead_letter_address") for _, values, _ in self.settings.entries()}
        found = [self.addresses[name] for name in names if isinstance(name, str) and name in self.addresses]
        return sum(address.message_count for address in found)

    def create_address(
        self,
        name: str,
        routing_types: Collection[RoutingType],
        *,
        auto_created: bool = False,
        internal: bool = False,
        durable: bool = True,
    ) -> Address:
        """Create an address.

        Raises:
            AddressExists, InvalidQueueConfiguration, LimitExceeded, DiskFull
        """
        check_name(name, "address")
        if name in self.addresses:
            raise AddressExists(f"address {name!r} already exists")
        if len(self.addresses) >= ADDRESSES_MAX:
            raise LimitExceeded(f"{len(self.addresses)} addresses, limit {ADDRESSES_MAX}")
        address_id = self._store.next_id()
        if durable:
            self._store.store_address(address_record(address_id, name, routing_types, auto_created, internal))
        address = self.adopt_address(address_id, name, routing_types, auto_created=auto_created, internal=internal)
        address.stored = durable
        if self.retroactive is not None:
            self.retroactive.address_created(address)
        return address

    def adopt_address(
        self,
        address_id: int,
        name: str,
        routing_types: Iterable[RoutingType],
        *,
        auto_created: bool = False,
        internal: bool = False,
        paused: bool = False,
        duplicate_ids: Iterable[bytes] = (),
    ) -> Address:
        """An address that the log has already."""
        settings = self.settings.of(name)
        address = Address(
            address_id,
            name,
            routing_types,
            settings,
            internal=internal,
            lane=self.settings.lane_of(settings, self._store.context),
            duplicate_ids=DuplicateIdCache(self._id_capacity(settings), duplicate_ids),
        )
        address.auto_created = auto_created
        address.paused = address.pause_stored = paused
        address.empty_since_ms = self._office.clock.wall_ms()
        address.pages = self._paging.chain(settings)
        address.counts_messages = address.counts_messages or self._office.memory.counts_messages
        self.addresses[name] = address
        if self.wildcard_routing:
            self._link(address)
        self.diverts.attach(address)
        for listener in self.listeners:
            listener.address_added(address)
        return address

    def apply_settings(self) -> None:
        """Give every address the settings that hold for it now; those of others changed nothing."""
        context = self._store.context
        self.settings.demand_contracts(context)
        for address in self.addresses.values():
            settings = self.settings.of(address.name)
            # the lane depends on the settings of other addresses, too
            lane = self.settings.lane_of(settings, context)
            if settings == address.settings and lane is address.lane:
                continue
            address.apply(settings, lane)
            address.counts_messages = address.counts_messages or self._office.memory.counts_messages
            address.duplicate_ids.resize(self._id_capacity(settings))
            self._paging.apply(address)
            for listener in self.listeners:
                listener.settings_changed(address)

    def _id_capacity(self, settings: AddressSettings) -> int:
        return settings.id_cache_size if settings.id_cache_size is not None else self._id_cache_size

    def _link(self, address: Address) -> None:
        wildcards = self.settings.wildcards
        if self._wildcards:
            address.linked = [
                wildcard
                for name, wildcard in self._wildcards.items()
                if name != address.name and matches(name, address.name, wildcards)
            ]
            address.refresh()
        if is_wild(address.name, wildcards):
            self._wildcards[address.name] = address
            for other in self.addresses.values():
                if other is not address and matches(address.name, other.name, wildcards):
                    other.linked.append(address)
                    other.refresh()

    def _bindings_changed(self, address: Address) -> None:
        if address.name in self._wildcards:
            for other in self.addresses.values():
                if address in other.linked:
                    other.refresh()

    def is_wildcard(self, name: str) -> bool:
        """Whether the address of this name also gets the messages of others."""
        return name in self._wildcards

    def covered_by(self, name: str) -> list[Address]:
        """The addresses that a wildcard address stands for, itself not among them."""
        wildcards = self.settings.wildcards
        if not (self.wildcard_routing and is_wild(name, wildcards)):
            return []
        return [each for each in self.addresses.values() if each.name != name and matches(name, each.name, wildcards)]

    def add_routing_types(self, address: Address, routing_types: Iterable[RoutingType]) -> None:
        """Let an address route in further ways."""
        wanted = address.routing_types | set(routing_types)
        if wanted == address.routing_types:
            return
        address.routing_types = wanted
        if address.stored:
            self.store_address(address)
        address.refresh()

    def store_address(self, address: Address) -> None:
        """Write what an address is; a later record of the same id replaces the earlier one."""
        self._store.store_address(
            address_record(
                address.address_id,
                address.name,
                address.routing_types,
                address.auto_created,
                address.internal,
                self.diverts.kept_for(address.name),
                paused=address.pause_stored,
            )
        )
        address.stored = True

    def delete_address(self, name: str, *, force: bool = False) -> None:
        """Delete an address.

        Args:
            force: Delete its queues too, and forget those that other nodes have of it (as in Artemis).

        Raises:
            AddressNotFound, AddressHasBindings
        """
        address = self.addresses.get(name)
        if address is None:
            raise AddressNotFound(f"no address {name!r}")
        if address.bindings:
            if not force:
                raise AddressHasBindings(f"address {name!r} has {counted(len(address.bindings), 'queue')}")
            for binding in list(address.bindings.values()):
                if binding.queue.address is address:
                    self.delete_queue(binding.name, disconnect=True)
        if address.stored:
            self._store.delete_address(address.address_id)
        del self.addresses[name]
        if self._wildcards.pop(name, None) is not None:
            for other in self.addresses.values():
                if address in other.linked:
                    other.linked.remove(address)
                    other.refresh()
        self.diverts.address_deleted(name)
        self._office.memory.address_deleted(address)
        if address.pages is not None:
            address.pages.close()
        for listener in self.listeners:
            listener.address_removed(address)
        if self.retroactive is not None:
            self.retroactive.address_deleted(name)
        if force and self.elsewhere is not None:
            self.elsewhere.forget(name)

    # -- queues ---------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """The queue of a name, plain or ``address::queue``; raises QueueNotFound."""
        found = self.find_queue(name)
        if found is None:
            raise QueueNotFound(f"no queue {name!r}")
        return found

    def find_queue(self, name: str) -> Queue | None:
        """The queue of a name: plain, ``address::queue``, or ``::queue`` of whatever address; None if there is none."""
        found = self.queues.get(name)
        if found is None and "::" in name:
            address, _, queue = name.partition("::")
            found = self.queues.get(queue)
            if found is not None and address and found.address.name != address:
                return None
        return found

    def create_queue(self, configuration: QueueConfiguration, *, may_create_address: bool | None = None) -> Queue:
        """A new queue, with its address if the settings allow that.

        Args:
            configuration: Open questions are answered by the address settings.
            may_create_address: Overrides ``auto-create-addresses``.

        Raises:
            QueueExists, AddressNotFound, UnexpectedRoutingType, InvalidSelector,
            InvalidQueueConfiguration, LimitExceeded, DiskFull
        """
        if "::" in configuration.name:
            configuration = configuration.with_plain_name()
        if configuration.name in self.queues:
            existing = self.queues[configuration.name]
            raise QueueExists(f"queue {existing.name!r} already exists on address {existing.address.name!r}")
        if len(self.queues) >= QUEUES_MAX:
            raise LimitExceeded(f"{len(self.queues)} queues, limit {QUEUES_MAX}")
        settings = self.settings.of(configuration.address or configuration.name)
        address = self.addresses.get(configuration.address or configuration.name)
        full = configuration.filled(settings)
        full.check_numbers()
        chosen = RoutingType(full.routing_type or 0)
        # A filter that cannot be parsed must fail before anything is made.
        selector = parse_filter(full.filter)
        if address is not None:
            address.check_filter(selector)
        allowed = settings.auto_create_addresses if may_create_address is None else may_create_address
        allowed = allowed or full.temporary
        if address is None:
            if not allowed:
                raise AddressNotFound(f"no address {full.address!r} for queue {full.name!r}")
            address = self.create_address(
                full.address,
                {chosen},
                # It was not asked for: it came with the queue and goes with its last one.
                auto_created=True,
                internal=full.internal,
                durable=not full.temporary,
            )
        elif chosen not in address.routing_types:
            if not allowed:
                raise UnexpectedRoutingType(f"address {address.name!r} is not {chosen.name.lower()}")
            self.add_routing_types(address, {chosen})
        queue_id = self._store.next_id()
        if full.durable:
            if not address.stored:
                self.store_address(address)
            self._store.store_queue(queue_record(queue_id, address.address_id, full))
        queue = self.adopt_queue(queue_id, full, address)
        if self.retroactive is not None:
            self.retroactive.queue_created(queue)
        return queue

    def adopt_queue(self, queue_id: int, full: QueueConfiguration, address: Address) -> Queue:
        """A queue that the log has already (or never will)."""
        queue = Queue(queue_id, full, address, self._office, parse_filter(full.filter, stored=True))
        if address.paused:
            queue.pause()
        self.queues[full.name] = queue
        if full.arguments is not None and full.arguments.auto_delete:
            self.transient_queues.add(full.name)
        address.add_binding(Binding(full.name, address.name, queue.routing_type, queue, queue.filter))
        self._bindings_changed(address)
        for listener in self.listeners:
            listener.queue_added(queue)
        return queue

    def delete_queue(self, name: str, *, disconnect: bool = False) -> None:
        """Delete a queue with its messages.

        Args:
            disconnect: Close its consumers; without it they are a reason to refuse.

        Raises:
            QueueNotFound, QueueInUse, DiskFull
        """
        queue = self.queue(name)
        if queue.consumers.count and not disconnect:
            raise QueueInUse(f"queue {queue.name!r} has {counted(queue.consumers.count, 'consumer')}")
        self.transient_queues.discard(queue.name)
        for consumer in list(queue.consumers):
            consumer.disconnect()
        if queue.durable:
            self._store.delete_queue(queue.queue_id)
        queue.deleted = True
        del self.queues[queue.name]
        # With the queue's record its references go from the log: none of them is acknowledged.
        queue.forget_all()
        address = self.addresses[queue.address.name]
        address.remove_binding(queue.name)
        address.used = True
        address.empty_since_ms = self._office.clock.wall_ms()
        self._bindings_changed(address)
        for listener in self.listeners:
            listener.queue_removed(queue)
        if queue.temporary and not address.stored and not address.bindings:
            # the address was created for the queue only
            self.delete_address(address.name)

    def address_of(self, queue: Queue) -> Address:
        """The address of a queue that exists."""
        return self.addresses[queue.address.name]

    def find_address(self, name: str) -> Address | None:
        """The address of a name; one of which only other nodes of the cluster have queues is made. None: none has it.

        Raises:
            LimitExceeded: there are too many addresses.
        """
        found = self.addresses.get(name)
        if found is None and self.elsewhere is not None:
            return self.elsewhere.make(name)
        return found

    def find_for_member(self, name: str) -> Address | None:
        """The address of a message that another node of the cluster sends; one that only a wildcard address of this
        node covers is made. None: this node does not have it any more.

        Raises:
            LimitExceeded: there are too many addresses.
        """
        found = self.find_address(name)
        if found is not None or not self.wildcard_routing:
            return found
        covering = [each for wild, each in self._wildcards.items() if matches(wild, name, self.settings.wildcards)]
        if not covering:
            return None
        routing_types = {routing_type for each in covering for routing_type in each.routing_types}
        return self.create_address(name, routing_types, auto_created=True, durable=False)

    # -- on demand ------------------------------------------------------------------------------

    def for_send(
        self, name: str, routing_type: RoutingType | None, permit: Permit | None = None, user: str = ""
    ) -> Address | None:
        """The address a producer named, made if it is missing and may be; None if it may not.

        Args:
            routing_type: That the message asks for.
            permit: Asked before anything is made for it, raises NotAuthorized; None = all may be.
            user: The queue that is made for it is accounted to.

        Raises:
            AddressNotFound: an anycast message would be confirmed and lost: it has no queue and the settings
                allow none, or its queue would have to be made, and another address has one of that name; or it
                would answer a direct request of AMQP 0-9-1, which no queue can.
        """
        settings = self.settings.of(name)
        address = self.find_address(name)
        if address is None:
            check_no_direct_replies(name)
        # the reply queue of a client of another node, for instance: none is made here
        elsewhere = address is not None and address.anycast_elsewhere
        chosen = routing_type
        if chosen is None:
            known = address.routing_types if address is not None else {settings.default_address_routing_type}
            chosen = RoutingType.ANYCAST if RoutingType.ANYCAST in known else RoutingType.MULTICAST
        bound = () if address is None else address.bindings.values()
        lacks_queue = (
            chosen is RoutingType.ANYCAST
            and settings.auto_create_queues
            and not elsewhere
            and not any(binding.routing_type is chosen for binding in bound)
        )
        namesake = self.queues.get(name) if lacks_queue else None
        if namesake is not None and namesake.address is not address:
            raise AddressNotFound(
                f"address {name!r} has no queue and gets none: {namesake.address.name!r} has one of that name"
            )
        if address is None:
            if not settings.auto_create_addresses or not name:
                return None
            if permit is not None:
                permit(Permission.CREATE_ADDRESS, name)
            address = self.create_address(name, {chosen}, auto_created=True)
        elif chosen not in address.routing_types and settings.auto_create_addresses:
            if permit is not None:
                permit(Permission.CREATE_ADDRESS, name)
            self.add_routing_types(address, {chosen})
        gets_none = not settings.auto_create_queues and not elsewhere and not address.has_queues_here
        if routing_type is RoutingType.ANYCAST and gets_none:
            raise AddressNotFound(f"address {name!r} has no queue and the settings do not allow to make one")
        if lacks_queue and chosen in address.routing_types and namesake is None:
            if permit is not None:
                permit(Permission.CREATE_DURABLE_QUEUE, name, name)
            self.create_queue(
                QueueConfiguration(
                    name=name, address=name, routing_type=RoutingType.ANYCAST, auto_created=True, user=user
                )
            )
        return address

    def check_shared(self, queue: Queue, configuration: QueueConfiguration) -> None:
        """Whether an existing queue is the shared one asked for (CREATE_SHARED_QUEUE).

        Raises:
            SharedQueueMismatch: same name, but another address or filter (artemis-core s. 4.2).
        """
        wanted_filter = parse_filter(configuration.filter)
        same = (queue.filter.text if queue.filter else None) == (wanted_filter.text if wanted_filter else None)
        if queue.address.name != (configuration.address or configuration.name) or not same:
            raise SharedQueueMismatch(f"queue {queue.name!r} exists with another address or filter")
