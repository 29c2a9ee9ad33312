"""The messages of queues on their way to the target.

A message goes once, whatever the number of queues of its address that hold it, with the ids of these queues at the
target. It stays in the log of this node until the target has confirmed it, and leaves all its queues here in one
transaction. After an interruption it is sent again; the target recognises it by the id of this node, its own id and
that of its first queue.

Source: artemis-ha s. 6. Beyond it: the bridge's duplicate id, so that a repeated scale-down brings nothing twice.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from understudy.cluster.bridges.target import TargetSession
from understudy.cluster.scale_down.remote_queues import RemoteQueues
from understudy.cluster.scale_down.work import Pause, Steps
from understudy.errors import AddressFull, BrokerError, MessageUnreadable
from understudy.limits import BRIDGE_UNCONFIRMED_BYTES_MAX, BRIDGE_UNCONFIRMED_MESSAGES_MAX, LARGE_PIECE_BYTES_MAX
from understudy.message import (
    BRIDGE_DUPLICATE_ID,
    KEPT_DUPLICATE_ID,
    ROUTE_TO,
    SCALE_DOWN_TO,
    LargeMessage,
    Message,
)
from understudy.ports import Timers
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.routing.queues.waiting_messages import requeue
from understudy.routing.remote import without_routes
from understudy.session.large_delivery import LargeDelivery
from understudy.store.messages.reference import MessageReference, References
from understudy.terms import RoutingType
from understudy.wildcards import matches

log = logging.getLogger(__name__)

_I64: Final = struct.Struct(">q")
#: Messages that are sent before other work of the node has its turn.
_TURN_MESSAGES: Final = 500

Held = tuple[Queue, MessageReference]
"""A reference of a message with its queue."""


class Companion:
    """Another queue of the same address, searched for messages that it shares with the first queue.

    Most queues of an address have their messages in the same order, so it is read on from where the last one was found.
    A message that is not found in this way stays, and goes when it is the turn of its queue.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._positions: dict[int, int] = {}
        """Position of the next message to look at, by priority."""

    def take(self, wanted: MessageReference) -> MessageReference | None:
        """Take the message out of this queue too; None: it is not found."""
        level = self.queue.pending.by_priority[wanted.priority]
        if level is None:
            return None
        position = self._positions.get(wanted.priority, -1)
        found = level.next_from(position)
        while found is not None and found.message_id < wanted.message_id:
            position = found.position + 1
            found = level.next_from(position)
        self._positions[wanted.priority] = position
        if found is None or found.message_id != wanted.message_id or found.delivery_count != wanted.delivery_count:
            # a message with another delivery count is sent alone, with its own count
            return None
        level.remove(found.position)
        return found


class MovingMessages:
    """The messages that move over one connection."""

    def __init__(self, office: PostOffice, timers: Timers, node_id: str, commit_interval: int) -> None:
        """Args:
        timers: Used for the removal of confirmed messages.
        node_id: Node id of this node, a UUID.
        commit_interval: Messages that are removed in one transaction; -1: as they are confirmed.
        """
        self.moved = 0
        """Messages that the target has confirmed, since the beginning."""
        self.target_written = False
        """Whether the log has the record of the target: before that no message is sent."""
        self.progress = 0
        """Messages and transactions that the target has, since the beginning."""
        self._office = office
        self._timers = timers
        self._node_id = bytes.fromhex(node_id.replace("-", ""))
        self._commit_interval = commit_interval
        self._unconfirmed: dict[int, tuple[tuple[Held, ...], int]] = {}
        """References and size in bytes of each message that was sent and not confirmed, by correlation id."""
        self._unconfirmed_bytes = 0
        self._confirmed: list[tuple[Held, ...]] = []
        """Messages that the target has confirmed and this node has not removed yet."""
        self._apart: list[tuple[Held, ...]] = []
        """Messages that the target has refused on this connection; others pass them."""
        self._refused: set[tuple[int, int]] = set()
        """Ids of the queues and messages that the target has refused and not taken since."""
        self.refusal = ""
        """Reason why the target has refused a message last; empty: it has refused none."""
        self.full_address = ""
        """Address for which the target has refused a message last because it is full; empty: none."""
        self._left_out: set[str] = set()
        """Addresses that stayed full at the target: their messages stay here."""
        self._large_id = 0
        """Correlation id of the large message whose pieces are being sent; 0: none."""
        self._in_doubt: set[tuple[int, int]] = set()
        """Ids of the queues and messages that are here, and perhaps at the target: it has not confirmed them before the
        connection ended."""

    # -- for the connection -----------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether a further message may be sent before one is confirmed."""
        few = len(self._unconfirmed) < BRIDGE_UNCONFIRMED_MESSAGES_MAX
        return few and self._unconfirmed_bytes < BRIDGE_UNCONFIRMED_BYTES_MAX

    @property
    def all_confirmed(self) -> bool:
        """Whether the target has confirmed all sent messages."""
        return not self._unconfirmed

    @property
    def in_doubt(self) -> bool:
        """Whether a message that is here may be at the target too."""
        return bool(self._in_doubt or self._unconfirmed)

    def confirmed(self, correlation_id: int) -> None:
        """Called when the target has a message."""
        entry = self._unconfirmed.pop(correlation_id, None)
        if entry is None:
            return
        held, size_bytes = entry
        self._unconfirmed_bytes -= size_bytes
        if not held:
            return
        ids = _ids_of(held)
        self._in_doubt.difference_update(ids)
        self._refused.difference_update(ids)
        if not self._confirmed:
            # messages confirmed later in this turn are removed by the same call
            self._timers.call_later(0, self.remove_confirmed)
        self._confirmed.append(held)
        self.moved += 1
        self.progress += 1

    @property
    def refused(self) -> int:
        """Messages that the target has refused and that are still here; one in several queues counts for each."""
        return len(self._refused)

    def refuse(self, correlation_id: int, error: BrokerError) -> bool:
        """The target has refused a message: it stays here, and others pass it.

        Returns:
            False: the connection ends, because the address is full for a time, the message belongs to a prepared
            transaction, or pieces of it are under way.
        """
        held, size_bytes = self._unconfirmed.get(correlation_id, ((), 0))
        if not held or correlation_id == self._large_id:
            return False
        queue, reference = held[0]
        if isinstance(error, AddressFull):
            self.full_address = queue.address.name
            return False
        del self._unconfirmed[correlation_id]
        self._unconfirmed_bytes -= size_bytes
        if not self._refused:
            log.error(
                "the target of the scale-down refuses a message; it stays here, and others pass it",
                extra={"queue": queue.name, "message_id": reference.message_id, "error": str(error)},
            )
        self._apart.append(held)
        self._refused.update(_ids_of(held))
        self.refusal = str(error)
        return True

    def leave_out(self, address: str) -> bool:
        """Leave the messages of an address here, which stays full at the target. Returns whether they were not left out
        before.
        """
        if not address or address in self._left_out:
            return False
        self._left_out.add(address)
        log.error(
            "an address of the target of the scale-down stays full; its messages stay here", extra={"address": address}
        )
        return True

    def _is_left_out(self, address: str) -> bool:
        wildcards = self._office.directory.settings.wildcards
        return any(each == address or matches(address, each, wildcards) for each in self._left_out)

    def remove_confirmed(self) -> None:
        """Remove confirmed messages here, those of one transaction together."""
        confirmed, self._confirmed = self._confirmed, []
        step = self._commit_interval if self._commit_interval > 0 else max(len(confirmed), 1)
        for begin in range(0, len(confirmed), step):
            self._remove(confirmed[begin : begin + step])

    def _remove(self, confirmed: Sequence[tuple[Held, ...]]) -> None:
        by_queue: dict[Queue, References] = {}
        for held in confirmed:
            for queue, reference in held:
                by_queue.setdefault(queue, References()).append(reference)
        store = self._office.store
        transaction_id = store.next_id() if len(by_queue) > 1 else 0
        logged = False
        for queue, references in by_queue.items():
            logged |= queue.log_acknowledges(references, transaction_id=transaction_id)
        if transaction_id and logged:
            store.store_commit(transaction_id)
        for queue, references in by_queue.items():
            queue.messages_acknowledged += len(references)
            queue.forget(references)

    def give_back(self) -> None:
        """The connection ended: messages that are not confirmed return to their places, and refused ones."""
        self.remove_confirmed()
        unconfirmed = [held for held, _ in self._unconfirmed.values()]
        apart, self._apart = self._apart, []
        self._unconfirmed.clear()
        self._unconfirmed_bytes = 0
        for held in unconfirmed:
            self._in_doubt.update(_ids_of(held))
        by_queue: dict[Queue, list[MessageReference]] = {}
        for held in (*unconfirmed, *apart):
            for queue, reference in held:
                by_queue.setdefault(queue, []).append(reference)
        for queue, references in by_queue.items():
            requeue(queue, references)

    # -- sending ----------------------------------------------------------------------------------

    def send(
        self, target: TargetSession, message: Message, reference: MessageReference, held: tuple[Held, ...]
    ) -> Steps[None]:
        """Send a message as it is.

        Args:
            target: Ready.
            message: Message with the properties that choose its queues.
            reference: The message in one of its queues.
            held: Where it is removed once the target has it; empty: nowhere.
        """
        if isinstance(message, LargeMessage):
            yield from self._send_large(target, message, reference, held)
            return
        self._sent(target.send(message), held, len(message.encoded))
        if not (target.writable and self.has_room):
            yield Pause.ROOM

    def _sent(self, correlation_id: int, held: tuple[Held, ...], size_bytes: int) -> None:
        self._unconfirmed[correlation_id] = (held, size_bytes)
        self._unconfirmed_bytes += size_bytes

    def _send_large(
        self, target: TargetSession, message: LargeMessage, reference: MessageReference, held: tuple[Held, ...]
    ) -> Steps[None]:
        reader = LargeDelivery(self._office.store.large, reference, message, LARGE_PIECE_BYTES_MAX)
        try:
            self._large_id = target.begin_large(message)
            self._sent(self._large_id, held, len(message.header))
            continues = True
            while continues:
                if not target.writable:
                    yield Pause.ROOM
                piece, continues = reader.next_piece()
                target.send_piece(piece, continues)
        finally:
            self._large_id = 0
            reader.close()

    # -- queues -----------------------------------------------------------------------------------

    def ordinary_queues(self) -> Iterator[list[Queue]]:
        """The queues of each address whose messages move, those with most messages first. Temporary queues and those of
        the broker itself stay, and those of addresses that stayed full at the target.
        """
        for name in sorted(self._office.directory.addresses):
            address = self._office.directory.addresses.get(name)
            if address is None or self._is_left_out(name):
                continue
            bound = (binding.queue for binding in address.bindings.values())
            queues = [each for each in bound if not (each.temporary or each.internal) and each.message_count]
            queues.sort(key=lambda each: (-each.message_count, each.queue_id))
            if queues:
                yield queues

    def move_queues(self, target: TargetSession, remote: RemoteQueues) -> Steps[None]:
        """Move the messages of all ordinary queues; make durable subscriptions at the target, also empty ones.

        A message that expires meanwhile goes to another queue, so the queues are looked at again until none moves.
        """
        for queue in list(self._office.directory.queues.values()):
            if queue.durable and not queue.internal and queue.routing_type is RoutingType.MULTICAST:
                # a subscription: messages that are sent from now on are for it too
                yield from remote.id_of(queue)
        before = -1
        while before != self.moved:
            before = self.moved
            for queues in list(self.ordinary_queues()):
                for number, queue in enumerate(queues, start=1):
                    yield from self._move_queue(target, remote, queue, queues[number:])
            yield Pause.CONFIRMED
            self.remove_confirmed()

    def _move_queue(
        self, target: TargetSession, remote: RemoteQueues, queue: Queue, others: list[Queue]
    ) -> Steps[None]:
        remote_id = yield from remote.id_of(queue)
        if remote_id is None:
            return
        for scheduled in self._office.scheduled.take(queue, lambda each: True, queue.scheduled_count):
            # the target keeps the time of delivery of a scheduled message
            queue.due(scheduled)
        remote_ids = {queue: remote_id}
        for other in others:
            other_id = yield from remote.id_of(other)
            if other_id is not None:
                remote_ids[other] = other_id
        companions = [Companion(each) for each in remote_ids if each is not queue]
        taken = 0
        while (reference := _take_first(queue)) is not None:
            message = self._read(queue, reference)
            if message is None:
                continue
            held = [(queue, reference)]
            for companion in companions:
                found = companion.take(reference)
                if found is not None:
                    held.append((companion.queue, found))
            ids = b"".join(_I64.pack(remote_ids[each]) for each, _ in held)
            yield from self.send(target, self._addressed(message, reference, held, ids), reference, tuple(held))
            taken += 1
            if not taken % _TURN_MESSAGES:
                yield Pause.TURN

    def _read(self, queue: Queue, reference: MessageReference) -> Message | None:
        """The message of one that was taken; None: it cannot be read, and is kept here apart."""
        try:
            return queue.read(reference)
        except MessageUnreadable as error:
            self._office.damaged.quarantine(queue, reference, error)
            return None

    def _addressed(self, message: Message, reference: MessageReference, held: Sequence[Held], ids: bytes) -> Message:
        properties = without_routes(message.properties, reference.delivery_count)
        properties[ROUTE_TO] = ids
        first = min(queue.queue_id for queue, _ in held)
        properties[BRIDGE_DUPLICATE_ID] = self._node_id + _I64.pack(reference.message_id) + _I64.pack(first)
        return message.replace(address=self._address_at_target(message, held[0][0]), properties=properties)

    def _address_at_target(self, message: Message, queue: Queue) -> str:
        """The address that the message was sent to, if the queue gets messages of it; else that of the queue."""
        sent_to, bound_to = message.address or "", queue.address.name
        if sent_to and matches(bound_to, sent_to, self._office.directory.settings.wildcards):
            return sent_to
        return bound_to

    # -- store-and-forward queues -----------------------------------------------------------------

    def move_kept(
        self, target: TargetSession, remote: RemoteQueues, queue: Queue, leads_to_target: bool
    ) -> Steps[None]:
        """Move the messages of a store-and-forward queue: to their queues at the target if it leads there, else to the
        queue of the same name at the target. If the target has none, they stay.
        """
        if not leads_to_target and (yield from remote.find(queue.name)) is None:
            log.error(
                "the target of the scale-down has no connection to the node that messages are kept for; they stay here",
                extra={"queue": queue.name, "messages": queue.message_count},
            )
            return
        staying: list[MessageReference] = []
        while (reference := _take_first(queue)) is not None:
            message = self._read(queue, reference)
            if message is None:
                continue
            kept = message_of_third(message, queue, leads_to_target=leads_to_target)
            if kept is None:
                log.error("a message names no queue", extra={"queue": queue.name, "message_id": reference.message_id})
                staying.append(reference)
                continue
            if self._is_left_out(kept.address or ""):
                staying.append(reference)
                continue
            kept = self._recognisable(kept, reference, leads_to_target=leads_to_target)
            yield from self.send(target, kept, reference, ((queue, reference),))
        requeue(queue, staying)
        yield Pause.CONFIRMED
        self.remove_confirmed()

    def _recognisable(self, kept: Message, reference: MessageReference, *, leads_to_target: bool) -> Message:
        """The message with the duplicate id by which its last node recognises it: that of the bridge which may have
        sent it already, from here or from the node that kept it before.

        A target that keeps it for that node recognises what this node sends by another one: it may have had the message
        before.
        """
        properties = kept.properties
        own = self._node_id + _I64.pack(reference.message_id)
        known = properties.get(BRIDGE_DUPLICATE_ID, own)
        properties[BRIDGE_DUPLICATE_ID] = known if leads_to_target else own
        if not leads_to_target and known != own:
            properties[KEPT_DUPLICATE_ID] = known
        return kept.with_properties(properties)


def _ids_of(held: Sequence[Held]) -> list[tuple[int, int]]:
    return [(queue.queue_id, reference.message_id) for queue, reference in held]


def _take_first(queue: Queue) -> MessageReference | None:
    level = queue.pending.first_level()
    return None if level is None else level.pop()


def message_of_third(message: Message, queue: Queue, *, leads_to_target: bool) -> Message | None:
    """A message of a store-and-forward queue as it is sent to the target; None: it names no queue.

    Args:
        leads_to_target: Whether its messages are for the target itself, not for a third node.
    """
    ids = message.properties.get(ROUTE_TO + queue.name)
    if not isinstance(ids, bytes):
        return None
    properties = without_routes(message.properties)
    properties[ROUTE_TO if leads_to_target else SCALE_DOWN_TO + queue.name] = ids
    return message.with_properties(properties)
