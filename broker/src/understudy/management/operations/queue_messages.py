"""Operations on the messages of one queue: list, remove, move and copy them.

Operations read messages in slices (``routing.queues.waiting_messages``); the queue continues to work in between.
Messages being delivered are left alone, and scheduled messages are only listed, released and removed.

A message that is moved to another queue is moved in one transaction of the log: the copy and the removal of
the original are durable together or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from understudy.errors import BrokerError, DuplicateIdRejected, LimitExceeded, MessageUnreadable
from understudy.ids import uuid_text
from understudy.message import (
    ACTUAL_EXPIRY,
    DELIVERIES,
    DUPLICATE_ID,
    ORIGINAL_ADDRESS,
    ORIGINAL_MESSAGE_ID,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_TYPE,
    ROUTING_TYPE,
    SCHEDULED_DELIVERY,
    LargeMessage,
    Message,
    MessageType,
)
from understudy.properties import BYTE, LONG, PropertyValue, decode_simple_string
from understudy.routing.acceptance import scheduled_ms
from understudy.routing.addresses.address import Address
from understudy.routing.filter import parse_filter
from understudy.routing.lifecycle.duplicate_ids import duplicate_id_bytes
from understudy.routing.post_office import PostOffice, ResponseOrder
from understudy.routing.queues.queue import Queue
from understudy.routing.queues.waiting_messages import START, Act, Wanted, act_on, look, one_by_one, requeue
from understudy.session.transaction import Transaction
from understudy.store.messages.reference import LargeReference, MessageReference, References

#: Property that counts the retries of a dead letter that an operator has asked for with a delay.
RETRIES: Final = "_UNDERSTUDY_RETRIES"
#: Maximum number of different values in the result of ``countMessages``.
GROUPS_MAX: Final = 10_000

T = TypeVar("T")
Shown = dict[str, object]
Permit = Callable[[str, str | None], None]
"""Called with the target address, and its queue if given, before a message is sent there; raises NotAuthorized."""


def wanted_by(queue: Queue, selector_text: str | None) -> Wanted:
    """A predicate: whether a selector selects a message of the queue. Raises InvalidSelector."""
    selector = parse_filter(selector_text)
    if selector is None:
        return lambda reference: True

    def wanted(reference: MessageReference) -> bool:
        message = queue.read_waiting(reference)
        return message is not None and selector.matches(message)

    return wanted


def of_id(message_id: int) -> Wanted:
    """A predicate: whether a message has an id."""
    return lambda reference: reference.message_id == message_id


# -- reading ------------------------------------------------------------------------------------------


def count(queue: Queue, wanted: Wanted) -> Generator[None, None, int]:
    """Number of waiting messages that are wanted."""
    total = 0

    def seen(references: list[MessageReference]) -> bool:
        nonlocal total
        total += len(references)
        return True

    yield from look(queue, wanted, seen)
    return total


def stored_bytes(queue: Queue, reference: MessageReference) -> int:
    """Bytes of a message in the store; of a large one with its file (compressed, if received so)."""
    if not isinstance(reference, LargeReference):
        return reference.size_bytes
    message = queue.read_waiting(reference)
    return reference.size_bytes + (message.large.size_bytes if isinstance(message, LargeMessage) else 0)


def total(queue: Queue, value: Callable[[MessageReference], int]) -> Generator[None, None, int]:
    """Sum of a value over the waiting messages."""
    found = 0

    def seen(references: list[MessageReference]) -> bool:
        nonlocal found
        found += sum(map(value, references))
        return True

    yield from look(queue, lambda reference: True, seen)
    return found


def count_by(queue: Queue, wanted: Wanted, property_name: str) -> Generator[None, None, dict[str, int]]:
    """Number of waiting messages for each value of a property; ``null`` for those without it.

    Raises:
        LimitExceeded: too many different values.
    """
    counts: Counter[str] = Counter()

    def seen(references: list[MessageReference]) -> bool:
        for reference in references:
            message = queue.read_waiting(reference)
            if message is None:
                continue
            value = message.properties.get(property_name)
            counts["null" if value is None else str(value)] += 1
        if len(counts) > GROUPS_MAX:
            raise LimitExceeded(f"more than {GROUPS_MAX} values of {property_name!r}")
        return True

    yield from look(queue, wanted, seen)
    return dict(counts)


def first(queue: Queue) -> MessageReference | None:
    """The message that would be delivered next. Damaged messages before it are quarantined."""
    return next((reference for _, reference in queue.browse(START) if queue.read_waiting(reference) is not None), None)


def show(queue: Queue, reference: MessageReference) -> Shown:
    """A message as JSON: its properties and its header, which takes precedence (artemis-core s. 10.1). Of a message
    that cannot be read only the id; it is quarantined if it was waiting.
    """
    message = queue.read_waiting(reference)
    if message is None:
        return {"messageID": reference.message_id, "unreadable": True}
    limit = queue.address.settings.management_message_attribute_size_limit
    shown: dict[str, object] = {name: shown_value(value, limit) for name, value in message.properties.items()}
    if message.user_id is not None:
        shown["userID"] = f"ID:{uuid_text(message.user_id)}"
    return (
        shown
        | {
            "messageID": reference.message_id,
            "address": message.address or "",
            "type": message.type,
            "durable": message.durable,
            "expiration": message.expiration,
            "timestamp": message.timestamp,
            "priority": message.priority,
        }
        | ({"largeMessage": True} if message.is_large else {})
    )


def page(
    queue: Queue, wanted: Wanted, skip: int, limit: int, shown_as: Callable[[Queue, MessageReference], T]
) -> Generator[None, None, list[T]]:
    """At most ``limit`` waiting messages, each in a form, after skipping ``skip``."""
    shown: list[T] = []
    passed = 0

    def seen(references: list[MessageReference]) -> bool:
        nonlocal passed
        for reference in references:
            passed += 1
            if passed > skip and len(shown) < limit and queue.read_waiting(reference) is not None:
                shown.append(shown_as(queue, reference))
        return len(shown) < limit

    if limit > 0:
        yield from look(queue, wanted, seen)
    return shown


def show_with_body(queue: Queue, reference: MessageReference) -> Shown:
    """Like ``show``, with the text of a text message, truncated like every other value."""
    shown = show(queue, reference)
    message = queue.read_waiting(reference)
    text = None if message is None else text_of(queue, message)
    return shown if text is None else shown | {"text": text}


def text_of(queue: Queue, message: Message) -> str | None:
    """The text of a text message, truncated like every other value; None if the message has none."""
    body = message.body
    if message.type != MessageType.TEXT or message.is_large or body[:1] != b"\x01":
        return None
    try:
        text, _ = decode_simple_string(body, 1, len(body))
    except BrokerError:
        # the body is not a valid text: the message is shown without it
        return None
    return str(shown_value(text, queue.address.settings.management_message_attribute_size_limit))


def shown_value(value: PropertyValue, limit: int) -> object:
    """A value of a property as JSON: bytes as numbers, long texts and bytes truncated to a limit."""
    if isinstance(value, bytes):
        cut = value if limit < 0 else value[:limit]
        return [byte - 256 if byte > 127 else byte for byte in cut]
    if isinstance(value, str) and 0 <= limit < len(value):
        return f"{value[:limit]}, + {len(value) - limit} more"
    return value


# -- removing -----------------------------------------------------------------------------------------


def remove(office: PostOffice, queue: Queue, wanted: Wanted, limit: int = -1) -> Generator[None, None, int]:
    """Remove the wanted messages, scheduled ones included. Returns their number."""

    def end(references: list[MessageReference]) -> int:
        part = References(references)
        queue.log_acknowledges(part)
        queue.messages_killed += len(part)
        queue.forget(part)
        return len(references)

    done = yield from act_on(queue, wanted, end, limit)
    room = limit - done if limit >= 0 else queue.scheduled_count
    taken = office.scheduled.take(queue, wanted, room)
    queue.scheduled_count -= len(taken)
    return done + end(taken)


def expire(office: PostOffice, queue: Queue) -> Act:
    """Expire messages regardless of their expiration time."""
    return lambda references: one_by_one(
        queue, references, lambda reference: office.dead_letters.expire(queue, reference)
    )


def kill(office: PostOffice, queue: Queue) -> Act:
    """Send messages to the dead-letter address."""
    return lambda references: one_by_one(
        queue, references, lambda reference: office.dead_letters.kill(queue, reference)
    )


# -- to other queues ----------------------------------------------------------------------------------


def move(office: PostOffice, queue: Queue, target: Queue, permit: Permit, *, reject_duplicates: bool = False) -> Act:
    """Move messages to another queue, as far as ``permit`` allows it."""
    permit(target.address.name, target.name)

    def one(reference: MessageReference) -> bool:
        copy = _from_here(office, queue, queue.read(reference), target)
        if reject_duplicates and _seen(copy, office.directory.address_of(target)):
            raise DuplicateIdRejected(f"address {target.address.name!r} has received message {reference.message_id}")
        transfer(
            office, queue, reference, copy, office.directory.address_of(target), (target,), remember=reject_duplicates
        )
        return True

    return lambda references: one_by_one(queue, references, one)


def retry(office: PostOffice, queue: Queue, permit: Permit, delay_ms: int | None = None) -> Act:
    """Return messages to their original queue or address, if ``permit`` allows it; a message without one stays. The
    first message that is not permitted raises, and stays with those after it.

    Args:
        delay_ms: Time until they are delivered; the retry is counted in ``RETRIES``. None: at once and not counted, as
            in Artemis.
    """
    permitted: set[tuple[str, str | None]] = set()

    def one(reference: MessageReference) -> bool:
        message = queue.read(reference)
        address = office.directory.addresses.get(str(message.properties.get(ORIGINAL_ADDRESS)))
        if address is None:
            requeue(queue, (reference,))
            return False
        properties = message.properties.copy()
        origin = office.directory.queues.get(str(properties.pop(ORIGINAL_QUEUE, None)))
        routing_type = properties.pop(ORIGINAL_ROUTING_TYPE, None)
        for name in (ORIGINAL_ADDRESS, ORIGINAL_MESSAGE_ID, ACTUAL_EXPIRY):
            properties.pop(name, None)
        if isinstance(routing_type, int):
            properties.set_typed(ROUTING_TYPE, BYTE, routing_type)
        if delay_ms is not None:
            before = properties.get(RETRIES)
            properties[RETRIES] = 1 + (before if isinstance(before, int) else 0)
            if delay_ms:
                properties.set_typed(SCHEDULED_DELIVERY, LONG, office.clock.wall_ms() + delay_ms)
        copy = message.replace(
            address=address.name, properties=properties, expiration=0, message_id=office.store.next_id()
        )
        back = origin if origin is not None and origin.address is address else None
        target = (address.name, None if back is None else back.name)
        if target not in permitted:
            permit(*target)
            permitted.add(target)
        copy, queues = address.destinations(copy, None) if back is None else (copy, (back,))
        if not queues:
            requeue(queue, (reference,))
            return False
        transfer(office, queue, reference, copy, address, queues)
        return True

    return lambda references: one_by_one(queue, references, one)


def change_priority(office: PostOffice, queue: Queue, priority: int) -> Act:
    """Move messages to the end of the same queue, with another priority and a new id."""

    def one(reference: MessageReference) -> bool:
        copy = queue.read(reference).replace(priority=priority, message_id=office.store.next_id())
        transfer(office, queue, reference, copy, office.directory.address_of(queue), (queue,))
        return True

    return lambda references: one_by_one(queue, references, one)


def transfer(
    office: PostOffice,
    queue: Queue,
    reference: MessageReference,
    copy: Message,
    address: Address,
    queues: tuple[Queue, ...],
    *,
    remember: bool = False,
) -> None:
    """Replace the original by a copy in other queues, atomically.

    Args:
        remember: Whether the duplicate id of the copy is added to the cache of the new address.

    Raises:
        BrokerError: nothing was changed, and the reference is still in no queue.
    """
    duplicate = copy.properties.get(DUPLICATE_ID) if remember else None
    duplicate_id = duplicate_id_bytes(duplicate) if duplicate is not None else None
    transaction, order = Transaction(office), ResponseOrder()
    if address is not queue.address:
        copy = address.with_expiration(copy, office.clock.wall_ms())
    queue.delivering_count += 1
    try:
        office.acceptance.accept(
            address,
            copy,
            queues,
            max(reference.scheduled_ms, scheduled_ms(copy)),
            order,
            None,
            transaction,
            duplicate_id,
        )
        transaction.acknowledge(queue, [References((reference,))])
        transaction.commit(order, None)
    except BrokerError:
        transaction.roll_back()
        queue.delivering_count -= 1
        raise
    address.messages_routed += 1


def copy_one(office: PostOffice, queue: Queue, message_id: int, target: Queue) -> Generator[None, None, bool]:
    """Copy the message with an id to another queue. Returns whether it waits here.

    Raises:
        DiskFull: the disk is full.
        MessageUnreadable: it is damaged, and was quarantined.
    """
    copied = False

    def seen(references: list[MessageReference]) -> bool:
        nonlocal copied
        copy_to(office, queue, references[0], target)
        copied = True
        return False

    yield from look(queue, of_id(message_id), seen)
    return copied


def copy_to(office: PostOffice, queue: Queue, reference: MessageReference, target: Queue) -> None:
    """Copy a message to another queue.

    Raises:
        DiskFull: the disk is full.
        MessageUnreadable: it is damaged, and was quarantined.
    """
    message = queue.read_waiting(reference)
    if message is None:
        raise MessageUnreadable(f"message {reference.message_id} of queue {queue.name!r} cannot be read")
    properties = message.properties.copy()
    properties.pop(ROUTING_TYPE, None)
    address = office.directory.address_of(target)
    copy = message.replace(address=address.name, properties=properties, message_id=office.store.next_id())
    copy = address.with_expiration(copy, office.clock.wall_ms())
    office.acceptance.accept(address, copy, (target,), 0, ResponseOrder(), None, None, None)
    target.address.messages_routed += 1


def _from_here(office: PostOffice, queue: Queue, message: Message, target: Queue) -> Message:
    """The copy, with its original address and queue in properties, as in dead letters (artemis-core s. 5.1)."""
    properties = message.properties.copy()
    properties.pop(DELIVERIES, None)
    routing_type = properties.pop(ROUTING_TYPE, None)
    if isinstance(routing_type, int):
        properties.set_typed(ORIGINAL_ROUTING_TYPE, BYTE, routing_type)
    properties[ORIGINAL_ADDRESS] = queue.address.name
    properties[ORIGINAL_QUEUE] = queue.name
    properties[ORIGINAL_MESSAGE_ID] = message.message_id
    return message.replace(address=target.address.name, properties=properties, message_id=office.store.next_id())


def _seen(message: Message, address: Address) -> bool:
    duplicate = message.properties.get(DUPLICATE_ID)
    return duplicate is not None and duplicate_id_bytes(duplicate) in address.duplicate_ids
