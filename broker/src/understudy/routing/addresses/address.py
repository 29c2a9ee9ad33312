"""One address: its bindings, and the choice of the queues for a message.

Anycast takes the matching bindings in turn, those with consumers first; multicast takes every
matching binding (manual, "Address Model"). A message that names no routing type is routed both
ways. Queues of a wildcard address get messages sent to any address that it covers (manual, "Routing
Messages With Wild Cards"), so its anycast queues take turns among themselves.

Its memory use and limit are in ``memory``.
"""

from __future__ import annotations

from collections.abc import Iterable

from understudy.errors import InvalidSelector
from understudy.limits import ADDRESS_FILTER_STEPS_MAX
from understudy.message import INGRESS_TIMESTAMP, Message
from understudy.properties import LONG
from understudy.routing.addresses.binding import Binding
from understudy.routing.addresses.divert import Divert
from understudy.routing.addresses.settings import AddressSettings
from understudy.routing.filter import Filter
from understudy.routing.lifecycle.duplicate_ids import DuplicateIdCache
from understudy.routing.memory import AddressMemory
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Balancer
from understudy.store.log.operation_context import Lane
from understudy.terms import RoutingType


class _Turns:
    """The anycast bindings of one address, which take turns."""

    __slots__ = ("_turn", "bindings")

    def __init__(self, bindings: list[Binding], before: _Turns | None) -> None:
        """``before``: those of the address before a change, whose turn goes on."""
        self.bindings = bindings
        self._turn: int = before._turn if before is not None else 0

    def next(self, message: Message) -> Binding | None:
        """The binding that gets a message, those with consumers first; None: no binding takes it."""
        bindings = self.bindings
        count = len(bindings)
        # as in Artemis, queues that come or go later find the turn where it was, and the first one where none is left
        turn = self._turn if self._turn < count else 0
        second_choice = -1
        for step in range(count):
            index = (turn + step) % count
            binding = bindings[index]
            if not _accepts(binding, message):
                continue
            if binding.has_consumers:
                self._turn = (index + 1) % count
                return binding
            if second_choice < 0:
                second_choice = index
        if second_choice < 0:
            return None
        self._turn = (second_choice + 1) % count
        return bindings[second_choice]


class Address(AddressMemory):
    """One address of this node with its bindings."""

    __slots__ = (
        "_anycast",
        "_multicast",
        "_sole",
        "address_id",
        "auto_created",
        "balancer",
        "bindings",
        "diverts",
        "duplicate_ids",
        "empty_since_ms",
        "filter_steps",
        "internal",
        "linked",
        "message_ttl_ms",
        "pause_stored",
        "paused",
        "plain_queues",
        "rejecting",
        "retroactive_resource",
        "routing_types",
        "stored",
        "used",
    )

    def __init__(
        self,
        address_id: int,
        name: str,
        routing_types: Iterable[RoutingType],
        settings: AddressSettings,
        *,
        internal: bool = False,
        lane: Lane | None = None,
        duplicate_ids: DuplicateIdCache,
    ) -> None:
        super().__init__(name, settings, lane)
        self.address_id = address_id
        self.routing_types = set(routing_types)
        self.auto_created = False
        """Whether a client's use made the address."""
        self.internal = internal
        self.duplicate_ids = duplicate_ids
        self.bindings: dict[str, Binding] = {}
        self.linked: list[Address] = []
        """Wildcard addresses that cover this one: their bindings get its messages too."""
        self.balancer: Balancer | None = None
        """Chooses the queues instead, while other nodes of the cluster have queues of the address, or if messages of
        groups come about which the members decide together."""
        self.message_ttl_ms: int | None = None
        """Longest time that messages may wait in a queue of the address that AMQP 0-9-1 has declared so."""
        self.rejecting: tuple[Queue, ...] = ()
        """Queues of the address that refuse messages when they are full (x-overflow of AMQP 0-9-1)."""
        self.diverts: tuple[Divert, ...] = ()
        """Which take or copy its messages; see ``divert_by``."""
        self.plain_queues: tuple[Queue, ...] = ()
        """The ordinary queues that get every message that may be sent here, as it is, and nothing else does; none if
        that depends, or if its messages have a lane of their own."""
        self._anycast: dict[str, _Turns] = {}
        """Turns of this address and of each wildcard address that covers it, by the name of that."""
        self._multicast: list[Binding] = []
        self.filter_steps = 0
        """Cost of all filters that a message may have to pass, together (``Filter.steps``)."""
        self._sole: tuple[Queue, ...] | None = () if len(self.routing_types) == 1 else None
        """The answer for every message of either type, when it is always the same."""
        self.retroactive_resource = False
        """Whether the address keeps the messages of a retroactive address."""
        self.stored = True
        """Whether the log has it; the addresses of temporary queues are not worth a record."""
        self.paused = False
        """Whether the queues of the address are paused, those that are bound later included."""
        self.pause_stored = False
        """Whether the pause outlasts a restart."""
        self.used = False
        """Whether anything was ever bound and unbound; only then auto-deletion may take it."""
        self.empty_since_ms = 0
        """Wall time since which nothing is bound."""
        self._find_plain_queues()

    def apply(self, settings: AddressSettings, lane: Lane | None) -> None:
        """Take new settings, and the lane of their durability contract."""
        self._limit(settings, lane)
        self._find_plain_queues()

    @property
    def alters_messages(self) -> bool:
        """Whether a message may not be routed as it comes; see ``altered``."""
        settings = self.settings
        return (
            settings.no_expiry
            or settings.enable_ingress_timestamp
            or self.message_ttl_ms is not None
            or (max(settings.expiry_delay, settings.min_expiry_delay, settings.max_expiry_delay) >= 0)
        )

    @property
    def _looks_at_each(self) -> bool:
        """Whether messages are not taken in runs: each may be changed or refused by itself."""
        return bool(self.rejecting) or self.alters_messages

    @property
    def full_queue(self) -> Queue | None:
        """A queue that refuses further messages because it is full; None: there is none."""
        return next((queue for queue in self.rejecting if queue.refuses), None)

    def altered(self, message: Message, now_ms: int) -> Message:
        """The message with the expiration and the time of arrival that its address sets."""
        if self.settings.enable_ingress_timestamp:
            properties = message.properties.copy()
            properties.set_typed(INGRESS_TIMESTAMP, LONG, now_ms)
            message = message.with_properties(properties)
        return self.with_expiration(message, now_ms)

    def with_expiration(self, message: Message, now_ms: int) -> Message:
        """The message with the expiration its address wants (manual, "Message Expiry")."""
        settings = self.settings
        current = message.expiration
        wanted = current
        if settings.no_expiry:
            wanted = 0
        elif settings.expiry_delay >= 0:
            wanted = current or now_ms + settings.expiry_delay
        elif current == 0 and max(settings.max_expiry_delay, settings.min_expiry_delay) >= 0:
            delay_ms = settings.max_expiry_delay if settings.max_expiry_delay >= 0 else settings.min_expiry_delay
            wanted = now_ms + delay_ms
        elif 0 <= settings.max_expiry_delay < current - now_ms:
            wanted = now_ms + settings.max_expiry_delay
        elif settings.min_expiry_delay >= 0 and current - now_ms < settings.min_expiry_delay:
            wanted = now_ms + settings.min_expiry_delay
        if self.message_ttl_ms is not None:
            wanted = min(wanted or now_ms + self.message_ttl_ms, now_ms + self.message_ttl_ms)
        return message if wanted == current else message.replace(expiration=wanted, message_id=message.message_id)

    # -- bindings -------------------------------------------------------------------------------

    @property
    def has_queues(self) -> bool:
        """Whether anything may get its messages: a queue of its own, of a wildcard address that covers it, or of
        another node.
        """
        return self.has_queues_here or (self.balancer is not None and bool(self.balancer.remote))

    @property
    def has_queues_here(self) -> bool:
        """Whether it, or a wildcard address that covers it, has a queue of this node."""
        return bool(self.bindings) or any(wildcard.bindings for wildcard in self.linked)

    @property
    def anycast_elsewhere(self) -> bool:
        """Whether anycast messages of the address may go to a queue of another node."""
        return self.balancer is not None and self.balancer.anycast

    def add_binding(self, binding: Binding) -> None:
        """Bind a queue; a binding of the same name is replaced."""
        self.bindings[binding.name] = binding
        self.refresh()

    def remove_binding(self, name: str) -> None:
        """Unbind a queue from the address."""
        del self.bindings[name]
        self.refresh()

    def divert_by(self, diverts: tuple[Divert, ...]) -> None:
        """Let these diverts take or copy the messages of the address from now on; called by ``diverts.Diverts``."""
        self.diverts = diverts
        self._find_plain_queues()

    def balance_by(self, balancer: Balancer | None) -> None:
        """Let ``balancer`` choose the queues from now on; None: no other node has queues of the address."""
        self.balancer = balancer
        self.refresh()

    def _find_plain_queues(self) -> None:
        sole = self._sole
        special = self.diverts or self.lane is not None or self.balancer is not None or self._looks_at_each
        if not sole or special or any(queue.kind is not None for queue in sole):
            sole = ()
        self.plain_queues = sole

    @property
    def routes_in_turn(self) -> bool:
        """Whether its balancer alone decides about a message that needs nothing else: none is diverted or changed, its
        messages have no lane of their own, and no queue may be made for an anycast one.
        """
        if self.balancer is None or self.diverts or self.lane is not None or self._looks_at_each:
            return False
        return bool(self.bindings) or self.balancer.anycast or RoutingType.ANYCAST not in self.routing_types

    def takes_for_members(self, queues: Iterable[Queue]) -> bool:
        """Whether ordinary messages of another member, which has chosen these queues, need nothing else."""
        special = (
            self.lane is not None or self._looks_at_each or any(each.configuration.exclusive for each in self.diverts)
        )
        return not special and all(queue.kind is None for queue in queues)

    def is_diverted(self, message: Message) -> bool:
        """Whether an exclusive divert takes a message, so that no queue of the address gets it."""
        return any(each.configuration.exclusive and each.takes(message) for each in self.diverts)

    def refresh(self) -> None:
        """Recompute the routes after a change here, of one of the queues, or in a linked wildcard address."""
        declared = [
            (binding.queue, arguments)
            for binding in self.bindings.values()
            if (arguments := binding.queue.configuration.arguments) is not None
        ]
        lifetimes = (arguments.message_ttl_ms for _, arguments in declared)
        self.message_ttl_ms = min((each for each in lifetimes if each is not None), default=None)
        self.rejecting = tuple(queue for queue, arguments in declared if arguments.rejects)
        if self.balancer is not None:
            self.balancer.refresh(each for address in (self, *self.linked) for each in address.bindings.values())
        if not self.linked and len(self.bindings) <= 1:
            self._refresh_simple()
            self._find_plain_queues()
            return
        every = list(self.bindings.values())
        for wildcard in self.linked:
            every.extend(wildcard.bindings.values())
        self.filter_steps = sum(binding.filter.steps for binding in every if binding.filter is not None)
        groups = [(each.name, _anycast_bindings(each)) for each in (self, *self.linked)]
        before = self._anycast
        self._anycast = {name: _Turns(bindings, before.get(name)) for name, bindings in groups if bindings}
        self._multicast = [binding for binding in every if binding.routing_type is RoutingType.MULTICAST]
        self._sole = None
        alone = len(self.routing_types) == 1 and all(len(each.bindings) == 1 for each in self._anycast.values())
        if alone and all(_takes_everything(each) and each.routing_type in self.routing_types for each in every):
            self._sole = tuple(binding.queue for binding in every)
        self._find_plain_queues()

    def _refresh_simple(self) -> None:
        """``refresh`` for an address with at most one binding, as nearly all are: a start makes each of them."""
        self.filter_steps = 0
        before, self._anycast, self._multicast = self._anycast, {}, []
        self._sole = () if len(self.routing_types) == 1 else None
        for binding in self.bindings.values():
            if binding.filter is not None:
                self.filter_steps = binding.filter.steps
            if binding.routing_type is RoutingType.ANYCAST:
                self._anycast[self.name] = _Turns([binding], before.get(self.name))
            else:
                self._multicast.append(binding)
            if self._sole is not None:
                takes = binding.routing_type in self.routing_types and _takes_everything(binding)
                self._sole = (binding.queue,) if takes else None

    def check_filter(self, added: Filter | None) -> None:
        """Raises InvalidSelector: with this filter, a message sent here would cost too much."""
        if added is not None and self.filter_steps + added.steps > ADDRESS_FILTER_STEPS_MAX:
            raise InvalidSelector(
                f"the filters of address {self.name!r} have {self.filter_steps} operands and operators together,"
                f" with this one more than {ADDRESS_FILTER_STEPS_MAX}"
            )

    def destinations(self, message: Message, routing_type: int | None) -> tuple[Message, tuple[Queue, ...]]:
        """The queues that get this message, those that lead to other nodes included, and the message as they get it."""
        if self.balancer is not None:
            return self.balancer.route(message)
        return message, self.route(message, routing_type)

    def route(self, message: Message, routing_type: int | None) -> tuple[Queue, ...]:
        """The queues of this node that get this message."""
        if self._sole is not None:
            return self._sole
        queues: list[Queue] = []
        if routing_type != RoutingType.ANYCAST:
            queues = [binding.queue for binding in self._multicast if _accepts(binding, message)]
        if routing_type != RoutingType.MULTICAST:
            for turns in self._anycast.values():
                chosen = turns.next(message)
                if chosen is not None:
                    queues.append(chosen.queue)
        if len(queues) > 1 and len(set(queues)) != len(queues):
            # Two bindings may lead to one queue: the way to another node, which gets one copy.
            queues = list(dict.fromkeys(queues))
        return tuple(queues)

    def queue_named(self, name: str) -> Queue | None:
        """A queue of the address, or of a wildcard address that covers it; None if neither has one of this name."""
        for address in (self, *self.linked):
            binding = address.bindings.get(name)
            if binding is not None:
                return binding.queue
        return None

    def queue_names(self) -> list[str]:
        """Names of everything bound, for the address query; of queues of other nodes the cluster names, as in Artemis
        (``ActiveMQServerImpl.bindingQuery``). A JMS client that consumes makes the queue here unless its plain name is
        among them.
        """
        names = list(self.bindings)
        if self.balancer is not None:
            names += [each.name for each in self.balancer.remote.values()]
        return names


def _anycast_bindings(address: Address) -> list[Binding]:
    return [binding for binding in address.bindings.values() if binding.routing_type is RoutingType.ANYCAST]


def _takes_everything(binding: Binding) -> bool:
    queue = binding.queue
    return binding.filter is None and queue.enabled and not queue.purge_on_no_consumers


def _accepts(binding: Binding, message: Message) -> bool:
    return binding.queue.takes_messages and (binding.filter is None or binding.filter.matches(message))
