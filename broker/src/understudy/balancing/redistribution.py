"""Messages that wait here while consumers at other nodes want them move there (artemis-ha s. 7.7).

A queue gives messages away when it has no consumer, or for messages that no filter of its consumers matches, once
``redistribution-delay`` is over. A message leaves in one transaction: its copy is in the store-and-forward queue, with
a new id, when the original is gone. Messages of a group stay, because their order would be lost.

While the condition holds the queue is looked at again, sooner when messages came.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from enum import Enum, auto
from typing import Final

from understudy.balancing.remote_bindings import RemoteBindings
from understudy.errors import BrokerError, QueueNotFound
from understudy.limits import REDISTRIBUTED_WAITING_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.message import GROUP_ID, Message
from understudy.ports import Timer, Timers
from understudy.routing.acceptance import Acceptance
from understudy.routing.address import Address
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Balancer, RemoteBinding, addressed_to, without_routes
from understudy.routing.walk import act_on, one_by_one, requeue
from understudy.store.reference import MessageReference, References

log = logging.getLogger(__name__)

#: Wait before a queue is looked at again while it gives messages away: shortest and longest.
_LOOK_AGAIN_MS: Final = 100
_LOOK_AGAIN_MAX_MS: Final = 5_000


class State(Enum):
    """States of the redistribution of one queue."""

    IDLE = auto()
    """Its messages stay."""
    DELAYED = auto()
    """``redistribution-delay`` is not over."""
    MOVING = auto()
    WATCHING = auto()
    """Nothing is left that another node wants; it is looked at again later."""


class Event(Enum):
    """Events of the redistribution of one queue."""

    WANTED = auto()
    """Consumers of another node may take messages, and this node has none for them."""
    UNWANTED = auto()
    """No message of this node is wanted elsewhere any more."""
    GO = auto()
    DONE = auto()
    """All waiting messages were looked at, or enough wait for other nodes."""


_S, _E = State, Event


class QueueRedistribution(Machine[State, Event]):
    """The redistribution of one queue."""

    STATES = State
    EVENTS = Event
    INITIAL = State.IDLE

    def __init__(self, queue: Queue, address: Address, acceptance: Acceptance, timers: Timers) -> None:
        super().__init__()
        self.queue = queue
        self.moved = 0
        """Messages that have left."""
        self._address = address
        self._acceptance = acceptance
        self._timers = timers
        self._timer: Timer | None = None
        self._walk: Generator[None, None, int] | None = None
        self._seen = -1
        """``messages_added`` at the last look."""
        self._wait_ms = _LOOK_AGAIN_MS
        self.next_ms = 0
        """Monotonic time at which the present wait ends."""

    def reconsider(self) -> None:
        """Consumers, settings or queues of other nodes have changed."""
        self.fire(_E.WANTED if self._is_wanted() else _E.UNWANTED)

    def close(self) -> None:
        """Move nothing any more."""
        self.fire(_E.UNWANTED)

    @property
    def _balancer(self) -> Balancer | None:
        return self._address.balancer

    def _is_wanted(self) -> bool:
        queue, balancer = self.queue, self._balancer
        if balancer is None or queue.deleted or queue.internal or self._address.settings.redistribution_delay < 0:
            return False
        if any(consumer.filter is None for consumer in queue.consumers):
            return False
        return balancer.wanted_elsewhere(queue)

    # -- actions ----------------------------------------------------------------------------------

    def _delay(self) -> None:
        self._wait_ms = _LOOK_AGAIN_MS
        self._later(self._address.settings.redistribution_delay)

    def _later(self, delay_ms: int) -> None:
        self.next_ms = self.queue.office.clock.monotonic_ms() + delay_ms
        self._timer = self._timers.call_later(delay_ms, lambda: self.fire(_E.GO))

    def _move(self) -> None:
        self._timer = None
        if self._walk is None:
            self._seen = self.queue.messages_added
            self._walk = act_on(self.queue, self._leaves, self._send_away, self._room())
        before = self.moved
        try:
            next(self._walk)
        except StopIteration:
            self._walk = None
        except (QueueNotFound, BrokerError) as error:
            self._walk = None
            log.warning("redistribution", extra={"queue": self.queue.name, "error": str(error)})
        if self.moved > before:
            self._wait_ms = _LOOK_AGAIN_MS
        if self._walk is None:
            self.fire(_E.DONE)
        else:
            self._later(0)

    def _watch(self) -> None:
        if self.queue.messages_added != self._seen:
            self._wait_ms = _LOOK_AGAIN_MS
        self._later(self._wait_ms)
        self._wait_ms = min(2 * self._wait_ms, _LOOK_AGAIN_MAX_MS)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._walk = None

    # -- messages ---------------------------------------------------------------------------------

    def _room(self) -> int:
        """Messages that may be taken out now: the store-and-forward queues do not become as long as this one is."""
        balancer = self._balancer
        waiting = [] if balancer is None else [each.queue.message_count for each in balancer.remote.values()]
        return max(0, REDISTRIBUTED_WAITING_MAX - max(waiting, default=0))

    def _leaves(self, reference: MessageReference) -> bool:
        message, balancer = self.queue.read_waiting(reference), self._balancer
        if message is None or balancer is None or GROUP_ID in message.properties:
            return False
        if any(each.filter is None or each.filter.matches(message) for each in self.queue.consumers):
            return False
        return balancer.redistribute(message, self.queue) is not None

    def _send_away(self, references: list[MessageReference]) -> int:
        return one_by_one(self.queue, references, self._send_one)

    def _send_one(self, reference: MessageReference) -> bool:
        queue, balancer, acceptance = self.queue, self._balancer, self._acceptance
        message = queue.read(reference)
        binding = None if balancer is None else balancer.redistribute(message, queue)
        if balancer is None or binding is None:
            requeue(queue, (reference,))
            return False
        balancer.served(binding)
        copy = self._copy(message, binding)
        acceptance.move(copy, self._address, (binding.queue,), queue, reference)
        queue.forget(References((reference,)))
        self.moved += 1
        return True

    def _copy(self, message: Message, binding: RemoteBinding) -> Message:
        properties = without_routes(message.properties)
        copy = message.replace(properties=properties, message_id=self._acceptance.store.next_id())
        return addressed_to(copy, (binding,))

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (_S.IDLE, _E.WANTED): To(_S.DELAYED, _delay),
            (_S.DELAYED, _E.GO): To(_S.MOVING, _move),
            (_S.MOVING, _E.GO): To(_S.MOVING, _move),
            (_S.MOVING, _E.DONE): To(_S.WATCHING, _watch),
            (_S.WATCHING, _E.GO): To(_S.MOVING, _move),
            (_S.DELAYED, _E.UNWANTED): To(_S.IDLE, _end),
            (_S.MOVING, _E.UNWANTED): To(_S.IDLE, _end),
            (_S.WATCHING, _E.UNWANTED): To(_S.IDLE, _end),
        },
        otherwise={_E.WANTED: IGNORED, _E.UNWANTED: IGNORED, _E.GO: ILLEGAL, _E.DONE: IGNORED},
    )


class Redistribution:
    """The redistribution of all queues of a node. Implements ``routing.listeners.RoutingListener`` and
    ``remote_bindings.RemoteListener``.
    """

    def __init__(self, office: PostOffice, bindings: RemoteBindings, timers: Timers) -> None:
        self.by_queue: dict[Queue, QueueRedistribution] = {}
        """Queues that share an address with queues of other nodes."""
        self._office = office
        self._bindings = bindings
        self._timers = timers
        office.directory.listeners.append(self)
        bindings.listeners.append(self)

    def close(self) -> None:
        """Move nothing any more."""
        for each in self.by_queue.values():
            each.close()
        self.by_queue.clear()

    def _reconsider(self, queue: Queue) -> None:
        known = self.by_queue.get(queue)
        if known is None:
            address = self._office.directory.addresses.get(queue.address.name)
            if address is None or address.balancer is None or queue.internal:
                return
            known = QueueRedistribution(queue, address, self._office.acceptance, self._timers)
            self.by_queue[queue] = known
        known.reconsider()

    def _reconsider_all(self, binding: RemoteBinding) -> None:
        for queue in self._bindings.queues_of(binding):
            self._reconsider(queue)

    # -- RemoteListener ---------------------------------------------------------------------------

    def remote_binding_added(self, binding: RemoteBinding) -> None:
        """It has no consumers yet."""

    def remote_binding_removed(self, binding: RemoteBinding) -> None:
        """Nothing moves there any more."""
        self._reconsider_all(binding)

    def remote_consumer_added(self, binding: RemoteBinding, selector: str | None) -> None:
        """Messages may be wanted there."""
        self._reconsider_all(binding)

    def remote_consumer_removed(self, binding: RemoteBinding, selector: str | None) -> None:
        """Messages may be wanted there no longer."""
        self._reconsider_all(binding)

    def remote_connected(self, binding: RemoteBinding) -> None:
        """Messages may be wanted there, or no longer."""
        self._reconsider_all(binding)

    # -- RoutingListener --------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """Its messages may be wanted elsewhere."""
        self._reconsider(queue)

    def queue_removed(self, queue: Queue) -> None:
        """It has no messages any more."""
        known = self.by_queue.pop(queue, None)
        if known is not None:
            known.close()

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Its messages may stay."""
        if queue in self.by_queue:
            self.by_queue[queue].reconsider()

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Its messages may be wanted elsewhere."""
        if queue in self.by_queue:
            self.by_queue[queue].reconsider()

    def address_added(self, address: Address) -> None:
        """It has no queues yet."""

    def address_removed(self, address: Address) -> None:
        """It has no queues any more."""

    def queue_updated(self, queue: Queue) -> None:
        """Filters do not matter."""

    def settings_changed(self, address: Address) -> None:
        """The delay may be another one."""
        for binding in address.bindings.values():
            self._reconsider(binding.queue)
