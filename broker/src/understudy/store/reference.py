"""Messages as one queue holds them: a reference to one, small and without its body, or a slice of a run.

A slice stands for neighbouring messages of one run (``kernel.log``) without an object for each. It is a sequence of
references: whatever has to look at single messages iterates over it and then owns the references that this makes. The
ordinary way of a message needs only what the slice knows of all of them.

Not here: which queue it is in and what state of delivery (``routing``), or the message itself
(``understudy.message``), which may be dropped from memory and read back by its ``location``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NewType, overload

from understudy.kernel import Run
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
        """In ``routing.level``; -1 before it had a place there."""

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


class RunSlice(Sequence[MessageReference]):
    """Rows ``begin`` to ``end`` of a run, the last one excluded; none of them has been delivered before."""

    __slots__ = ("begin", "deliveries", "durable", "end", "position", "priority", "run", "shared")

    def __init__(
        self,
        run: Run,
        begin: int,
        end: int,
        priority: int,
        position: int,
        deliveries: int = 0,
        *,
        durable: bool = True,
        shared: dict[int, Message] | None = None,
    ) -> None:
        """
        Args:
            run: The messages.
            begin: First row.
            end: The row after the last one.
            priority: Of each message.
            position: Of the first row in its queue (``routing.level``); -1: it has none yet.
            deliveries: How often each was delivered.
            durable: Whether the log has the messages for this queue; without effect if it has them for none.
            shared: Row to message, for those that were looked at in any of the queues that hold the run; None: a single
                queue holds it.
        """
        self.run = run
        self.begin = begin
        self.end = end
        self.priority = priority
        self.position = position
        self.deliveries = deliveries
        self.durable = durable and run.segment > 0
        self.shared = shared

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def ids(self) -> Sequence[int]:
        """Message ids, which rise."""
        run = self.run
        if run.consecutive:
            return range(run.first_id + self.begin, run.first_id + self.end)
        return run.ids(self.begin, self.end)

    @property
    def expiring_count(self) -> int:
        """Messages that have an expiration."""
        return self.run.expiring_between(self.begin, self.end)

    @property
    def size_bytes(self) -> int:
        """Of the messages together."""
        return self.run.bytes_between(self.begin, self.end)

    def part(self, begin: int, end: int) -> RunSlice:
        """The messages number ``begin`` to ``end`` of this slice, counted from 0, the last one excluded."""
        first = self.begin
        position = self.position + begin if self.position >= 0 else -1
        return RunSlice(
            self.run, first + begin, first + end, self.priority, position, self.deliveries,
            durable=self.durable, shared=self.shared,
        )  # fmt: skip

    def reference(self, row: int) -> MessageReference:
        """A message of this slice as an object, by its row in the run."""
        run, shared = self.run, self.shared
        # queues that hold the same run hold the same messages, so that they are in memory once
        message = shared.get(row) if shared is not None else None
        if message is None:
            message = Message.decode(run.encoded(row))
            if shared is not None:
                shared[row] = message
        location = pack_location(run.segment, *run.place(row)) if self.durable else None
        reference = MessageReference(
            message.message_id, self.priority, run.expiration(row), 0, run.size(row), self.durable, location, message,
        )  # fmt: skip
        reference.delivery_count = self.deliveries
        if self.position >= 0:
            reference.position = self.position + row - self.begin
        return reference

    def __iter__(self) -> Iterator[MessageReference]:
        return map(self.reference, range(self.begin, self.end))

    @overload
    def __getitem__(self, index: int) -> MessageReference: ...

    @overload
    def __getitem__(self, index: slice) -> RunSlice: ...

    def __getitem__(self, index: int | slice) -> MessageReference | RunSlice:
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"step {step}: only neighbours can be taken")
            return self.part(begin, max(begin, end))
        return self.reference(range(self.begin, self.end)[index])


def durable_ids(references: Sequence[MessageReference]) -> Sequence[int]:
    """Ids of the messages that are in the log."""
    if isinstance(references, RunSlice):
        return references.ids if references.durable else ()
    return [reference.message_id for reference in references if reference.durable]
