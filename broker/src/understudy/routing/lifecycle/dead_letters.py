"""Where messages go that expired or were tried too often (manual, "Message Expiry" and
"Undelivered Messages").

The copy in the target queues and the end of the original are one transaction of the log, so a
crash between them neither loses nor doubles the message. The copy carries where it came from
(``_AMQ_ORIG_*``, artemis-core s. 5.1), no routing type of its own, and the expiration that the settings of its new
address give to a message without one.

Without a target address the message ends here; that is the documented meaning, and it is counted
(``messages_expired``, ``messages_killed``). The log has a warning for each one that was tried too often. What dies on
the target address itself stays there, as a message that was never delivered; one that expired there does not expire
again.
"""

from __future__ import annotations

import logging

from understudy.message import (
    ACTUAL_EXPIRY,
    DELIVERIES,
    HOPS,
    ORIGINAL_ADDRESS,
    ORIGINAL_MESSAGE_ID,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_TYPE,
    ROUTING_TYPE,
    SCHEDULED_DELIVERY,
    TRANSFER,
    Message,
)
from understudy.properties import BYTE
from understudy.routing.acceptance import Acceptance
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.configuration import FQQN_SEPARATOR, QueueConfiguration
from understudy.routing.addresses.directory import Directory
from understudy.routing.moves import MessageCopy
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import without_routes
from understudy.routing.response_order import ResponseOrder, RoutingTransaction
from understudy.store.messages.reference import MessageReference, parts_of
from understudy.terms import RoutingType

log = logging.getLogger(__name__)


class DeadLetters:
    """Moves to the dead letter address and the expiry address."""

    def __init__(self, directory: Directory, acceptance: Acceptance) -> None:
        self._directory = directory
        self._acceptance = acceptance

    def expire(self, queue: Queue, reference: MessageReference) -> None:
        """A reference in no place any more whose time is over. Raises BrokerError: nothing has happened.

        The settings of the message's own address count, as in Artemis (``QueueImpl.expire``): a queue of a wildcard
        address, or one that keeps messages for another member, has messages of several.
        """
        source, settings = queue.address.name, queue.address.settings
        if queue.internal or self._directory.is_wildcard(source):
            source = (queue.read(reference).address or source).partition(FQQN_SEPARATOR)[0]
            settings = self._directory.settings.of(source)
        target = self._target(
            source,
            settings.expiry_address,
            settings.auto_create_expiry_resources,
            settings.expiry_queue_prefix,
            settings.expiry_queue_suffix,
        )
        self._move(queue, reference, target, source, expired=True)
        queue.messages_expired += 1

    def kill(self, queue: Queue, reference: MessageReference) -> None:
        """A reference in no place any more that was delivered too often. Raises BrokerError: nothing has happened."""
        target = self._dead_letter_address(queue.address.name)
        taken = self._move(queue, reference, target, queue.address.name, expired=False)
        queue.messages_killed += 1
        if not taken:
            log.warning(
                "message dropped: it was delivered too often or rejected, and no dead-letter-address takes it",
                extra={"queue": queue.name, "message_id": reference.message_id, "deliveries": reference.delivery_count},
            )

    def no_route(
        self, address: Address, message: Message, order: ResponseOrder, transaction: RoutingTransaction | None
    ) -> bool:
        """A message that no queue gets. Returns whether the dead letter address took it. Raises DiskFull."""
        found = self.unrouted_copy(address, message)
        if found is None:
            return False
        target, copy = found
        return self._acceptance.forward(copy, target, order, transaction)

    def unrouted_copy(self, address: Address, message: Message) -> tuple[Address, Message] | None:
        """Address and routing type for a message that no queue of its address took; None: it is dropped."""
        target = self._dead_letter_address(address.name)
        if target is None or target is address:
            return None
        return target, self._copy(message, address.name, None, target, None)

    def _dead_letter_address(self, source: str) -> Address | None:
        settings = self._directory.settings.of(source)
        return self._target(
            source,
            settings.dead_letter_address,
            settings.auto_create_dead_letter_resources,
            settings.dead_letter_queue_prefix,
            settings.dead_letter_queue_suffix,
        )

    def _target(
        self, source: str, address_name: str | None, may_create: bool, prefix: str, suffix: str
    ) -> Address | None:
        if not address_name:
            return None
        directory = self._directory
        address = directory.addresses.get(address_name)
        if may_create and source != address_name:
            # One queue per source, so that each gets back its own (manual, "Automatically Creating
            # Dead Letter Resources").
            name = f"{prefix}{source}{suffix}"
            if address is None:
                address = directory.create_address(address_name, {RoutingType.MULTICAST})
            if name not in directory.queues:
                source_text = source.replace("'", "''")
                directory.create_queue(
                    QueueConfiguration(
                        name=name,
                        address=address_name,
                        routing_type=RoutingType.MULTICAST,
                        filter=f"{ORIGINAL_ADDRESS} = '{source_text}'",
                        auto_created=True,
                    ),
                    may_create_address=True,
                )
        return address

    def _move(
        self, queue: Queue, reference: MessageReference, target: Address | None, source: str, *, expired: bool
    ) -> bool:
        """Whether a queue has the message now. ``source``: address whose settings name the target."""
        acceptance = self._acceptance
        copies: tuple[MessageCopy, ...] = ()
        if target is queue.address:
            # the queue is on the target address: the message is sent to it again, after the others
            copy = queue.read(reference).replace(expiration=0, message_id=acceptance.store.next_id())
            if not expired:
                copy = target.with_expiration(copy, acceptance.clock.wall_ms())
            copies = (MessageCopy(copy, target, (queue,), reference),)
        elif target is not None:
            message = queue.read(reference)
            # the time at which the message expired, not its expiration: an operator may expire a message without one
            actual_expiry = acceptance.clock.wall_ms() if expired else None
            copy = self._copy(message, source, queue.name, target, actual_expiry)
            copy, queues = target.destinations(copy, None)
            copies = (MessageCopy(copy, target, queues, reference),)
        acceptance.move(queue, parts_of((reference,)), copies)
        return any(each.queues for each in copies)

    def _copy(
        self, message: Message, source: str, queue: str | None, target: Address, actual_expiry: int | None
    ) -> Message:
        # queue ids of a message for another member name queues of that member
        properties = without_routes(message.properties)
        routing_type = properties.pop(ROUTING_TYPE, None)
        for name in (SCHEDULED_DELIVERY, DELIVERIES, HOPS, TRANSFER):
            properties.pop(name, None)
        properties[ORIGINAL_ADDRESS] = source
        if queue is not None:
            properties[ORIGINAL_QUEUE] = queue
        properties[ORIGINAL_MESSAGE_ID] = message.message_id
        if isinstance(routing_type, int):
            properties.set_typed(ORIGINAL_ROUTING_TYPE, BYTE, routing_type)
        if actual_expiry is not None:
            properties[ACTUAL_EXPIRY] = actual_expiry
        copy = message.replace(
            address=target.name, properties=properties, expiration=0, message_id=self._acceptance.store.next_id()
        )
        return target.with_expiration(copy, self._acceptance.clock.wall_ms())
