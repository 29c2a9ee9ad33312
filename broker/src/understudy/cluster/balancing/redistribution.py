"""Messages that wait here while consumers at other nodes want them move there (artemis-ha s. 7.7).

A queue gives messages away when it has no consumer, or for messages that no filter of its consumers matches, once
``redistribution-delay`` is over. A message leaves in one transaction: its copy is in the store-and-forward queue, with
a new id, when the original is gone. Messages of a group stay, because their order would be lost. Neighbours leave
together (``routing.moves``), whatever was decided about each; one that needs more than a run can say leaves alone.

While the condition holds the queue is looked at again, sooner when messages came or others wait for space at the
store-and-forward queues.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum, auto
from itertools import accumulate, cycle, groupby, islice
from typing import Final, NamedTuple

from understudy.cluster.balancing.remote_bindings import RemoteBindings
from understudy.errors import BrokerError, DiskFull, QueueNotFound
from understudy.kernel import Sends, moved_sends
from understudy.limits import REDISTRIBUTED_WAITING_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.message import GROUP_ID, Encoding, Message
from understudy.ports import Timer, Timers
from understudy.routing.addresses.address import Address
from understudy.routing.moves import MessageCopy, RunCopies, alike
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.routing.queues.waiting_messages import (
    SLICE_MESSAGES,
    START,
    Position,
    next_part,
    one_by_one,
    position_after,
    requeue,
)
from understudy.routing.remote import Balancer, RemoteBinding, addressed_to, route_entries, without_routes
from understudy.store.messages.reference import MessageReference, Part, RunSlice, parts_of

log = logging.getLogger(__name__)

#: Wait before a queue is looked at again while it gives messages away: shortest and longest.
_LOOK_AGAIN_MS: Final = 100
_LOOK_AGAIN_MAX_MS: Final = 5_000
#: Time in ms of the first wait for space at the store-and-forward queues.
_NO_SPACE_MS: Final = 5
#: Bytes of messages that leave in one turn; the last part of them may exceed it.
_SLICE_BYTES: Final = 1024 * 1024


class State(Enum):
    """States of the redistribution of one queue."""

    IDLE = auto()
    """The messages of the queue stay."""
    DELAYED = auto()
    """``redistribution-delay`` is not over."""
    MOVING = auto()
    WATCHING = auto()
    """The queue has no message that another node wants; it is examined again later."""


class Event(Enum):
    """Events of the redistribution of one queue."""

    WANTED = auto()
    """Consumers of another node may take messages for which this node has no consumer."""
    UNWANTED = auto()
    """No message of this node is wanted elsewhere any more."""
    GO = auto()
    DONE = auto()
    """All waiting messages were looked at, or enough wait for other nodes."""


_S, _E = State, Event

_Leaving = Sequence[tuple[int, RemoteBinding]]
"""Messages that leave: their numbers in a part, and the queues of other nodes that get them."""


class _Chosen(NamedTuple):
    """Decisions about the first messages of a part."""

    bindings: list[RemoteBinding | None]
    """Queue of another node for each message; None: the message stays."""
    messages: dict[int, Message]
    """The messages that leave, by number; empty if none was looked at, because all leave."""


class QueueRedistribution(Machine[State, Event]):
    """Redistribution of the messages of one queue."""

    STATES = State
    EVENTS = Event
    INITIAL = State.IDLE

    def __init__(self, queue: Queue, address: Address, office: PostOffice, timers: Timers) -> None:
        super().__init__()
        self.queue = queue
        self.moved = 0
        """Messages that have left."""
        self._address = address
        self._office = office
        self._timers = timers
        self._timer: Timer | None = None
        self._position: Position | None = None
        """Position at which the present pass over the queue continues; None: the next one begins at the front."""
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
        if self._position is None:
            self._seen = self.queue.messages_added
            self._position = START
        before = self.moved
        try:
            more = self._move_some()
        except (QueueNotFound, BrokerError) as error:
            self._position, more = None, False
            log.warning("redistribution", extra={"queue": self.queue.name, "error": str(error)})
        if self.moved > before:
            self._wait_ms = _LOOK_AGAIN_MS if self._position is None else _NO_SPACE_MS
        if more:
            self._later(0)
        else:
            self.fire(_E.DONE)

    def _watch(self) -> None:
        if self.queue.messages_added != self._seen:
            self._wait_ms = min(self._wait_ms, _LOOK_AGAIN_MS)
        self._later(self._wait_ms)
        self._wait_ms = min(2 * self._wait_ms, _LOOK_AGAIN_MAX_MS)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._position = None

    # -- messages ---------------------------------------------------------------------------------

    def _move_some(self) -> bool:
        """Look at some messages, and have those leave that are wanted elsewhere. Whether to continue at once; otherwise
        ``_position`` is None if all were looked at.

        Raises:
            BrokerError: they cannot leave now; those that did not are in the queue.
        """
        space = self._balancer is not None and has_space(self._balancer)
        left = SLICE_MESSAGES if space else 0
        left_bytes = _SLICE_BYTES
        while left > 0 and left_bytes > 0 and not self.queue.out_of_steps():
            assert self._position is not None
            found = next_part(self.queue, self._position, left)
            if found is None:
                self._position = None
                return False
            (priority, _), part = found
            part = _within(part, left_bytes)
            chosen = self._choose(part)
            # first: an error in one of them is not met again in this look
            self._position = priority, position_after(part, len(chosen.bindings))
            left -= len(chosen.bindings)
            left_bytes -= part.size_bytes
            self._send_away(part, chosen)
        return space

    def _choose(self, part: Part) -> _Chosen:
        """Decide about these messages, or about the first of them, at least one, if filters are at work too long."""
        queue, balancer = self.queue, self._balancer
        count = len(part)
        if balancer is None:
            return _Chosen([None] * count, {})
        turns = None if queue.consumers.count else balancer.redistribution_turns(queue)
        if turns is not None and not turns:
            return _Chosen([None] * count, {})
        if turns is not None and isinstance(part, RunSlice) and not part.run.grouped:
            balancer.served(turns[(count - 1) % len(turns)])
            return _Chosen([*islice(cycle(turns), count)], {})
        chosen: list[RemoteBinding | None] = []
        messages: dict[int, Message] = {}
        for number in range(count):
            if number and queue.out_of_steps():
                break
            message = queue.read_waiting(part[number])
            binding: RemoteBinding | None = None
            if message is not None and GROUP_ID not in message.properties:
                binding = self._binding_for(message, balancer) if turns is None else turns[len(messages) % len(turns)]
            if binding is not None and message is not None:
                messages[number] = message
                if turns is None:
                    balancer.served(binding)
            chosen.append(binding)
        if turns is not None and messages:
            balancer.served(turns[(len(messages) - 1) % len(turns)])
        return _Chosen(chosen, messages)

    def _binding_for(self, message: Message, balancer: Balancer) -> RemoteBinding | None:
        """The queue of another node that gets a message of no group; None: it stays."""
        if any(each.filter is None or each.filter.matches(message) for each in self.queue.consumers):
            return None
        return balancer.redistribute(message, self.queue)

    def _send_away(self, part: Part, chosen: _Chosen) -> None:
        """Have messages leave, neighbours that are alike in one transaction."""
        bindings, messages = chosen
        leaving = [(number, binding) for number, binding in enumerate(bindings) if binding is not None]
        if not leaving:
            return
        if messages:
            counts = {number: each.delivery_count for number, each in enumerate(part.objects)}
            encoded = [
                messages[number].encoded if _is_plain(messages[number]) and not counts.get(number) else b""
                for number, _ in leaving
            ]
        else:
            encoded = [*part.encoded]
        targets = dict.fromkeys(binding for _, binding in leaving)
        entries = route_entries(targets) if len(targets) == 1 else (b"", 0)
        done = 0
        while done < len(leaving):
            sends = moved_sends(encoded[done:], *entries)
            row = 0
            while row < sends.count:
                count = alike(self._office.store, sends, row, self.queue)
                if count:
                    begin, end = done + row, done + row + count
                    routed = (sends, row) if len(targets) == 1 else None
                    self._send_run(part, leaving[begin:end], encoded[begin:end], routed)
                else:
                    self._send_alone(part, *leaving[done + row])
                row += max(count, 1)
            done += row
            if done < len(leaving):
                # the part is larger than one run can hold
                self._send_alone(part, *leaving[done])
                done += 1

    def _send_run(self, part: Part, leaving: _Leaving, encoded: list[bytes], routed: tuple[Sends, int] | None) -> None:
        """Have messages leave that are alike.

        Args:
            leaving: Numbers in it, and queues of other nodes.
            encoded: The messages.
            routed: The same, from a row on, with the ids of their queues; None: these are not the same for all.

        Raises:
            DiskFull: the disk is full; the messages are in the queue.
            StoreError: the journal has failed.
        """
        queue, store = self.queue, self._office.store
        if store.full:
            raise DiskFull(store.full_reason)
        copies: list[RunCopies] = []
        if routed is not None:
            copies.append(RunCopies(self._address, leaving[0][1].queue, *routed, len(leaving)))
        else:
            for target in dict.fromkeys(binding for _, binding in leaving):
                mine = [each for each, (_, binding) in zip(encoded, leaving, strict=True) if binding is target]
                sends = moved_sends(mine, *route_entries((target,)))
                copies.append(RunCopies(self._address, target.queue, sends, 0, len(mine)))
        gone = [part.part(begin, end) for begin, end in _stretches([number for number, _ in leaving])]
        for each in gone:
            queue.pending.take_part(each)
        try:
            self._office.acceptance.move(queue, gone, copies)
        except BrokerError:
            for each in gone:
                requeue(queue, each)
            raise
        self.moved += len(leaving)

    def _send_alone(self, part: Part, number: int, binding: RemoteBinding) -> None:
        queue, reference = self.queue, part[number]
        queue.pending.remove(reference)
        self.moved += one_by_one(queue, (reference,), lambda each: self._send_one(each, binding))

    def _send_one(self, reference: MessageReference, binding: RemoteBinding) -> None:
        queue, acceptance = self.queue, self._office.acceptance
        copy = queue.read(reference)
        properties = without_routes(copy.properties, reference.delivery_count)
        copy = copy.replace(properties=properties, message_id=acceptance.store.next_id())
        copies = MessageCopy(addressed_to(copy, (binding,)), self._address, (binding.queue,), reference)
        acceptance.move(queue, parts_of((reference,)), (copies,))

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


def has_space(balancer: Balancer) -> bool:
    """Whether messages are taken out now: the store-and-forward queues do not become as long as the queue is, and get
    some hundreds at a time.
    """
    flows = [each.queue for each in balancer.remote.values()]
    waiting = max([each.message_count + each.incoming for each in flows], default=0)
    return waiting + SLICE_MESSAGES <= REDISTRIBUTED_WAITING_MAX


def _is_plain(message: Message) -> bool:
    """Whether the encoded message is all of it."""
    return not message.is_large and message.encoding == Encoding.CORE


def _within(part: Part, bytes_max: int) -> Part:
    """The first messages of a part, at least one, until they have so many bytes."""
    if part.size_bytes <= bytes_max:
        return part
    if isinstance(part, RunSlice):
        count = min(part.run.fitting(part.begin, bytes_max, 0, 0), part.end) - part.begin
    else:
        sizes = accumulate((reference.size_bytes for reference in part), initial=0)
        count = sum(size < bytes_max for size in sizes)
    return part.part(0, max(1, min(count, len(part))))


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers: the first one, and the one after the last."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return [(numbers[0], numbers[-1] + 1)]
    found = [[number for _, number in each] for _, each in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return [(each[0], each[-1] + 1) for each in found]


class Redistribution:
    """The redistribution of all queues of a node. Implements ``routing.addresses.listeners.RoutingListener`` and
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
            known = QueueRedistribution(queue, address, self._office, self._timers)
            self.by_queue[queue] = known
        known.reconsider()

    def _reconsider_all(self, binding: RemoteBinding) -> None:
        for queue in self._bindings.queues_of(binding):
            self._reconsider(queue)

    # -- RemoteListener ---------------------------------------------------------------------------

    def remote_binding_added(self, binding: RemoteBinding) -> None:
        """Do nothing: a new remote queue has no consumers yet."""

    def remote_binding_removed(self, binding: RemoteBinding) -> None:
        """Stop moving messages to a queue of another node that does not exist any more."""
        self._reconsider_all(binding)

    def remote_consumer_added(self, binding: RemoteBinding, selector: str | None) -> None:
        """Called when messages may be wanted there."""
        self._reconsider_all(binding)

    def remote_consumer_removed(self, binding: RemoteBinding, selector: str | None) -> None:
        """Called when messages may be wanted there no longer."""
        self._reconsider_all(binding)

    def remote_connected(self, binding: RemoteBinding) -> None:
        """Called when messages may be wanted there, or no longer."""
        self._reconsider_all(binding)

    # -- RoutingListener --------------------------------------------------------------------------

    def queue_added(self, queue: Queue) -> None:
        """Look whether the messages of the queue are wanted elsewhere."""
        self._reconsider(queue)

    def queue_removed(self, queue: Queue) -> None:
        """Forget the removed queue, which has no messages any more."""
        known = self.by_queue.pop(queue, None)
        if known is not None:
            known.close()

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Look whether the messages of the queue may stay."""
        if queue in self.by_queue:
            self.by_queue[queue].reconsider()

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Look whether the messages of the queue are wanted elsewhere."""
        if queue in self.by_queue:
            self.by_queue[queue].reconsider()

    def address_added(self, address: Address) -> None:
        """Do nothing: a new address has no queues yet."""

    def address_removed(self, address: Address) -> None:
        """Forget the removed address, which has no queues any more."""

    def queue_updated(self, queue: Queue) -> None:
        """Do nothing: consumers are compared with messages, not with the filter of the queue."""

    def settings_changed(self, address: Address) -> None:
        """Take over new address settings, whose redistribution delay may be another one."""
        for binding in address.bindings.values():
            self._reconsider(binding.queue)
