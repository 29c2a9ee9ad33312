"""The messages that a program's sessions and consumers have received so far, without those that are left out.

Not here: asking for it, and coming to rest (``runner``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interop.differential.link import Link
from interop.differential.sending import PAST_MS
from understudy.message import FORCED_DELIVERY, Message
from understudy.wire.core import packets
from understudy.wire.core.packets_session import message_of_header


@dataclass(slots=True)
class Consumer:
    """State of a consumer as its client knows it."""

    browse: bool
    received: list[int] = field(default_factory=list)
    """Ids of the messages that came, in order."""
    outstanding: list[int] = field(default_factory=list)
    """Ids of the received messages that are not settled as far as the client knows."""
    unlimited: bool = False
    """Whether the consumer has unlimited credits."""
    queue: str = ""
    priority: int = 0
    selective: bool = False
    """Whether the consumer has a selector."""
    looked: bool = False
    """A browser that has come to rest."""
    lent: bool = False
    """Whether the queue of the consumer is non-destructive."""
    paged_before_restart: bool = False
    """Whether the queue of the consumer may hold messages that had been delivered and were in a page before a restart.
    """
    last_values: bool = False
    """Whether the queue of the consumer is a last-value queue."""
    partial: bool = False
    """More pieces of a large message are to come."""
    ignoring: bool = False
    """The message of those pieces is left out."""


@dataclass(slots=True)
class Session:
    """One with a connection of its own."""

    link: Link
    consumers: dict[int, Consumer] = field(default_factory=dict)
    correlation_id: int = 1
    branch: str = ""
    """The branch in which the session works, by its own requests."""
    timeout_set: bool = False
    transacted: bool = False
    """Whether sends of the session wait for a commit."""
    duplicate_ids: set[object] = field(default_factory=set)
    """Sent in its transaction so far."""
    sent_to: str = ""
    """The address of the last send."""


def is_left_out(consumer: Consumer | None, packet: packets.Packet, message: Message | None) -> bool:
    """``exclusions.BROWSED_LATER``, ``BROWSED_EXPIRED``; and whether more pieces follow is kept in mind."""
    if consumer is None:
        return False
    if message is not None:
        consumer.ignoring = consumer.browse and (consumer.looked or message.expiration == PAST_MS)
        consumer.partial = isinstance(packet, packets.ReceiveLargeMessage)
    elif isinstance(packet, packets.ReceiveContinuation):
        consumer.partial = packet.continues
    else:
        return False
    return consumer.ignoring


def note(consumer: Consumer, packet: packets.Packet, message: Message) -> None:
    """A delivery came."""
    consumer.received.append(message.message_id)
    if not consumer.browse:
        consumer.outstanding.append(message.message_id)
    if consumer.lent or consumer.paged_before_restart:
        # exclusions.DELIVERIES_OF_LOANS, DELIVERIES_OF_PAGED
        packet.delivery_count = 0  # type: ignore[attr-defined]  # both packets of a delivery have it


def missing(link: Link, wanted: Mapping[int, int]) -> set[int]:
    """Consumers of which no marker came, nor something large that has not come to its end."""
    begun = begun_by(link)
    markers = {
        int(packet.message.properties[FORCED_DELIVERY])  # type: ignore[arg-type]
        for packet in link.unasked
        if isinstance(packet, packets.ReceiveMessage) and FORCED_DELIVERY in packet.message.properties
    }
    return {consumer for sequence, consumer in wanted.items() if sequence not in markers and consumer not in begun}


def begun_by(link: Link) -> set[int]:
    """Consumers to which a large message has begun to go out."""
    begun = set()
    for packet in link.unasked:
        if isinstance(packet, packets.ReceiveLargeMessage):
            begun.add(packet.consumer_id)
        elif isinstance(packet, packets.ReceiveContinuation) and not packet.continues:
            begun.discard(packet.consumer_id)
    return begun


def is_gone(link: Link) -> bool:
    """Whether the broker has closed a consumer."""
    return any(isinstance(packet, packets.DisconnectConsumer) for packet in link.unasked)


def message_of(packet: packets.Packet) -> Message | None:
    """The message of a delivery."""
    if isinstance(packet, packets.ReceiveMessage):
        return packet.message
    return message_of_header(packet.header) if isinstance(packet, packets.ReceiveLargeMessage) else None
