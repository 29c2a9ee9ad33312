"""A durable or non-durable message as one queue holds it: small, of fixed size, without its body.

Not here: which queue it is in and what state of delivery (``routing``), or the message itself
(``understudy.message``), which may be dropped from memory and read back by its ``location``.
"""

from __future__ import annotations

from typing import NewType

from understudy.message import Message

Location = NewType("Location", int)
"""Where a record lies in the log, in one small integer: segment number, offset and length of the
record. Made by ``pack_location``; meaningless outside of the store, except that it lasts as
long as the segment does.
"""

_SEGMENT_SHIFT = 64
_OFFSET_SHIFT = 32
_FIELD_MASK = 0xFFFF_FFFF


def pack_location(segment: int, offset: int, length: int) -> Location:
    """The location of a record of ``length`` bytes at ``offset`` in that segment."""
    return Location(segment << _SEGMENT_SHIFT | offset << _OFFSET_SHIFT | length)


def unpack_location(location: Location) -> tuple[int, int, int]:
    """Segment number, offset and length in bytes."""
    return location >> _SEGMENT_SHIFT, location >> _OFFSET_SHIFT & _FIELD_MASK, location & _FIELD_MASK


class MessageReference:
    """One message in one queue."""

    __slots__ = (
        "delivery_count",
        "durable",
        "expiration",
        "location",
        "message",
        "message_id",
        "position",
        "priority",
        "scheduled_ms",
        "size_bytes",
    )

    def __init__(
        self,
        message_id: int,
        priority: int,
        expiration: int,
        scheduled_ms: int,
        size_bytes: int,
        durable: bool,
        location: Location | None,
        message: Message | None = None,
    ) -> None:
        """A reference that was never delivered.

        Args:
            message_id: The broker's id of the message.
            priority: 0 to 9.
            expiration: Epoch milliseconds, 0 for never.
            scheduled_ms: Epoch milliseconds before which it is not delivered, 0 for at once.
            size_bytes: The message's ``encode_size``.
            durable: Whether it is in the log.
            location: Where it is in the log; None when it is not.
            message: The message while it is in memory; None when it must be read back.
        """
        self.message_id = message_id
        self.priority = priority
        self.expiration = expiration
        self.scheduled_ms = scheduled_ms
        self.size_bytes = size_bytes
        self.durable = durable
        self.location = location
        self.message = message
        self.delivery_count = 0
        self.position = -1
        """In ``routing.waiting``; -1 before it had a place there."""

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"<{kind} {self.message_id} of {self.size_bytes} bytes, delivered {self.delivery_count} times>"


class LargeReference(MessageReference):
    """A large message in one queue: one more that needs its file."""

    __slots__ = ("file_id",)

    file_id: int
    """See ``LargeBody``."""


def reference_to(
    file_id: int | None,
    message_id: int,
    priority: int,
    expiration: int,
    scheduled_ms: int,
    size_bytes: int,
    durable: bool,
    location: Location | None,
    message: Message | None = None,
) -> MessageReference:
    """A reference to a message that may be large; see ``MessageReference``.

    Args:
        file_id: Of its body; None for an ordinary message.
    """
    kind = MessageReference if file_id is None else LargeReference
    reference = kind(message_id, priority, expiration, scheduled_ms, size_bytes, durable, location, message)
    if isinstance(reference, LargeReference) and file_id is not None:
        reference.file_id = file_id
    return reference
