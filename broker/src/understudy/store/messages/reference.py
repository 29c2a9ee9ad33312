"""Messages as one queue holds them: a slice of a run, or references, small and without their bodies.

Messages taken from a queue, delivered, acknowledged and returned together are a ``Part``: a ``RunSlice`` or
``References``, of one message or several, which have the same methods.

A slice stands for neighbouring messages of one run (``kernel.log``) without an object for each. It is a sequence of
references: whatever has to look at single messages iterates over it and then owns the references that this makes. The
ordinary way of a message needs only what the slice knows of all of them.

Not here: which queue it is in and what state of delivery (``routing``), or the message itself
(``understudy.message``), which may be dropped from memory and read back by its ``location``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NewType, overload

from understudy.kernel.log import Run, bare_run, join_runs
from understudy.message import LargeMessage, Message

Location = NewType("Location", int)
"""Location of a record in the log, in one small integer: segment number, offset and length of the
record. Made by ``pack_location``; meaningless outside of the store, except that it lasts as
long as the segment does.
"""

#: References of several deliveries that a consumer keeps together.
_KEPT_MAX = 64
#: Fewer delivered messages whose bodies are in the log only are kept as references.
_BARE_MIN = 8
#: Messages that are fewer than one in so many of their run get a buffer of their own (``RunSlice.alone``).
_RUN_SHARE_MIN: Final = 4
_SEGMENT_SHIFT = 64
_OFFSET_SHIFT = 32
_FIELD_MASK = 0xFFFF_FFFF


def pack_location(segment: int, offset: int, length: int) -> Location:
    """The location of a record of ``length`` bytes at ``offset`` in that segment."""
    return Location(segment << _SEGMENT_SHIFT | offset << _OFFSET_SHIFT | length)


def unpack_location(location: Location) -> tuple[int, int, int]:
    """Segment number, offset and length in bytes."""
    return location >> _SEGMENT_SHIFT, location >> _OFFSET_SHIFT & _FIELD_MASK, location & _FIELD_MASK


StoredRun = tuple[Run, int, int]
"""A run that was read from the log, the first of its rows that are meant, and the row after the last one."""


class MessageReference:
    """Reference to one message in one queue."""

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
        """Position in ``routing.queues.level``; -1 before the reference had a place in it."""

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
        file_id: File id of its body; None for an ordinary message.
    """
    kind = MessageReference if file_id is None else LargeReference
    reference = kind(message_id, priority, expiration, scheduled_ms, size_bytes, durable, location, message)
    if isinstance(reference, LargeReference) and file_id is not None:
        reference.file_id = file_id
    return reference


class RunSlice(Sequence[MessageReference]):
    """Rows ``begin`` to ``end`` of a run, the last one excluded; none of them has been delivered before."""

    __slots__ = ("begin", "deliveries", "durable", "end", "paged", "position", "priority", "run", "shared")

    objects: Sequence[MessageReference] = ()
    """None: nothing has to be done for a single message when it leaves its queue."""
    shown: Message | None = None
    large: LargeMessage | None = None

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
            position: Position of the first row in its queue (``routing.queues.level``); -1: it has none yet.
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
        self.paged = False
        """Whether the messages count as not being in memory: the log alone has their bodies (``let_go``), or the run
        was read from it for a delivery."""
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
    def durable_ids(self) -> Sequence[int]:
        """Ids of the messages that are in the log."""
        run = self.run
        if not self.durable:
            return ()
        if run.consecutive:
            return range(run.first_id + self.begin, run.first_id + self.end)
        return run.ids(self.begin, self.end)

    @property
    def expiring_count(self) -> int:
        """Messages that have an expiration."""
        return self.run.expiring_between(self.begin, self.end)

    @property
    def sums(self) -> tuple[int, int, int, int]:
        """Number of messages, their bytes, the number of those whose body is in memory, and the bytes of these
        bodies."""
        count, size_bytes = self.end - self.begin, self.run.bytes_between(self.begin, self.end)
        return (count, size_bytes, 0, 0) if self.paged else (count, size_bytes, count, size_bytes)

    @property
    def bodies_elsewhere(self) -> bool:
        """Whether the log has the body of each."""
        return self.durable

    def fitting(self, room_bytes: int) -> int:
        """How many of the first messages there are as long as ``room_bytes`` bytes are left before each of them."""
        return min(self.run.fitting(self.begin, room_bytes, 0, 0), self.end) - self.begin

    def before(self, size_bytes: int) -> int:
        """The number of the first message after which fewer than ``size_bytes`` bytes of messages follow; the number of
        all if ``size_bytes`` is 0 or less.
        """
        if size_bytes <= 0:
            return len(self)
        run, end = self.run, self.end
        # the bytes after a message fall from message to message
        return bisect_left(
            range(self.begin, end), True, key=lambda row: run.bytes_between(row + 1, end) < size_bytes
        )  # fmt: skip

    def let_go(self) -> None:
        """Drop the bodies of the messages, which the log has."""
        self.become(bare_run(self.run, self.begin, self.end))

    def become(self, bare: Run) -> None:
        """Drop the bodies of the messages, which the log has; ``bare`` is a run of these messages without them."""
        self.run, self.begin, self.end = bare, 0, bare.count
        self.paged, self.shared = True, None

    @property
    def groups(self) -> Sequence[str]:
        """Message groups of the messages in this part."""
        return self.run.groups(self.begin, self.end) if self.run.grouped else ()

    def count_delivery(self, step: int = 1) -> None:
        """Count one more delivery of each message of this part, or with -1 one delivery less."""
        self.deliveries += step

    @property
    def encoded(self) -> Sequence[bytes]:
        """Encoded messages of this part."""
        return self.run.messages(self.begin, self.end)

    def kept(self) -> Part:
        """The part that a consumer keeps of delivered messages: itself, or the same messages without their bodies if
        the log alone has them.
        """
        if not self.paged:
            return self
        if len(self) < _BARE_MIN:
            return References(self).kept()
        kept = self.part(0, len(self))
        kept.let_go()
        return kept

    def alone(self) -> RunSlice:
        """The same messages in a buffer of their own, if they are few of their run and no other queue holds it; itself
        otherwise.
        """
        run, count = self.run, self.end - self.begin
        if self.paged or self.shared is not None or _RUN_SHARE_MIN * count > run.count:
            return self
        own = join_runs([(run, self.begin, self.end)])
        return RunSlice(own, 0, count, self.priority, self.position, self.deliveries, durable=self.durable)

    def join(self, part: Part) -> bool:
        """Append the part delivered next if they are neighbours, as those of a message group given one by one."""
        if (
            not isinstance(part, RunSlice)
            or part.run is not self.run
            or part.begin != self.end
            or part.deliveries != self.deliveries
            or part.paged is not self.paged
        ):
            return False
        self.end = part.end
        return True

    def find(self, message_id: int) -> int:
        """The number of a message in this slice, counted from 0; -1 if it is not in it."""
        number = self.run.row_of(message_id) - self.begin
        return number if 0 <= number < self.end - self.begin else -1

    def take_through(self, message_id: int) -> RunSlice | None:
        """Take the messages up to this one out of the slice; all of them: itself. None: it is not in it."""
        row = self.run.row_of(message_id)
        begin, end = self.begin, row + 1
        if not begin < end <= self.end:
            return None
        if end == self.end:
            return self
        taken = self.part(0, end - begin)
        self.begin = end
        self.position += end - begin
        return taken

    def last_of(self, release: Callable[[int, int], Iterable[tuple[int, int]]]) -> Sequence[Part]:
        """The messages that no other queue holds.

        Args:
            release: Given a first id and a count, the ids that no queue holds any more, as ranges.
        """
        run, ids = self.run, self.ids
        parts: list[Part] = []
        for first, count in ((ids[0], len(ids)),) if run.consecutive else [(each, 1) for each in ids]:
            for begin_id, end_id in release(first, count):
                number = run.row_of(begin_id) - self.begin
                parts.append(self.part(number, number + end_id - begin_id))
        return parts

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages together."""
        return self.run.bytes_between(self.begin, self.end)

    def part(self, begin: int, end: int) -> RunSlice:
        """The messages number ``begin`` to ``end`` of this slice, counted from 0, the last one excluded."""
        first = self.begin
        position = self.position + begin if self.position >= 0 else -1
        part = RunSlice(
            self.run, first + begin, first + end, self.priority, position, self.deliveries,
            durable=self.durable, shared=self.shared,
        )  # fmt: skip
        part.paged = self.paged
        return part

    def reference(self, row: int) -> MessageReference:
        """A message of this slice as an object, by its row in the run."""
        run, shared = self.run, self.shared
        message: Message | None = None
        if not self.paged:
            # queues that hold the same run hold the same messages, so that they are in memory once
            message = shared.get(row) if shared is not None else None
            if message is None:
                message = Message.decode(run.encoded(row), trusted=True)
                if shared is not None:
                    shared[row] = message
        location = pack_location(run.segment, *run.place(row)) if self.durable else None
        message_id = run.first_id + row if run.consecutive else run.ids(row, row + 1)[0]
        reference = MessageReference(
            message_id, self.priority, run.expiration(row), run.scheduled(row), run.size(row), self.durable, location,
            message,
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


class References(list[MessageReference]):
    """Messages as objects, with the methods of a ``RunSlice``."""

    __slots__ = ("_ids", "shown")

    def __init__(self, references: Iterable[MessageReference] = (), shown: Message | None = None) -> None:
        """
        Args:
            references: The messages.
            shown: What a consumer is sent of the only one, in place of the message that the reference has in memory.
        """
        super().__init__(references)
        self.shown = shown
        self._ids: tuple[int, int] | None = None
        """Bounds of the ids of kept messages."""

    @property
    def objects(self) -> Sequence[MessageReference]:
        """The references, as something has to be done for each when it leaves its queue."""
        return self

    @property
    def ids(self) -> Sequence[int]:
        """Message ids of this part."""
        return [reference.message_id for reference in self]

    @property
    def durable_ids(self) -> Sequence[int]:
        """Ids of the messages that are in the log."""
        return [reference.message_id for reference in self if reference.durable]

    @property
    def expiring_count(self) -> int:
        """Messages that have an expiration."""
        return sum([reference.expiration != 0 for reference in self])

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages together."""
        return sum([reference.size_bytes for reference in self])

    @property
    def sums(self) -> tuple[int, int, int, int]:
        """Sums as in ``RunSlice.sums``."""
        sizes = [reference.size_bytes for reference in self if reference.message is not None]
        return len(self), self.size_bytes, len(sizes), sum(sizes)

    @property
    def bodies_elsewhere(self) -> bool:
        """Whether the log or a page file has the body of each."""
        return all(reference.location is not None for reference in self)

    @property
    def priority(self) -> int:
        """Priority of the messages, if it is the same for all."""
        return self[0].priority

    def let_go(self) -> None:
        """Drop the bodies, like ``RunSlice.let_go``."""
        for reference in self:
            reference.message = None

    @property
    def groups(self) -> Sequence[str]:
        """Message groups, of a run only."""
        return ()

    @property
    def large(self) -> LargeMessage | None:
        """The message that a consumer is sent, if that is large and the only one."""
        message = self.shown
        return message if isinstance(message, LargeMessage) else None

    def count_delivery(self, step: int = 1) -> None:
        """Count one more delivery of each message of this part, or with -1 one delivery less."""
        for reference in self:
            reference.delivery_count += step

    @property
    def encoded(self) -> Sequence[bytes]:
        """The messages that a consumer is sent; they are in memory."""
        if self.shown is not None:
            return [self.shown.encoded]
        return [reference.message.encoded for reference in self if reference.message is not None]

    def kept(self) -> References:
        """The references as in ``RunSlice.kept``; without ``shown``."""
        return References(self)._bounded()

    def _bounded(self) -> References:
        ids = self.ids
        self._ids = min(ids), max(ids)
        return self

    def join(self, part: Part) -> bool:
        """Join a part, like ``RunSlice.join``, for a few."""
        if not isinstance(part, References):
            if not part.paged or len(part) >= _BARE_MIN:
                return False
            part = References(part)
        if len(self) + len(part) > _KEPT_MAX:
            return False
        self += part
        bounds = self._ids
        if bounds is None:
            self._bounded()
        else:
            ids = part.ids
            self._ids = min(bounds[0], *ids), max(bounds[1], *ids)
        return True

    def find(self, message_id: int) -> int:
        """The row of a message, like ``RunSlice.find``."""
        if self._ids is not None and not self._ids[0] <= message_id <= self._ids[1]:
            return -1
        ids = self.ids
        return ids.index(message_id) if message_id in ids else -1

    def take_through(self, message_id: int) -> References | None:
        """Take references, like ``RunSlice.take_through``."""
        end = self.find(message_id) + 1
        if not 0 < end < len(self):
            return self if end else None
        taken = References(self[:end])
        del self[:end]
        return taken

    def part(self, begin: int, end: int) -> References:
        """A part, like ``RunSlice.part``."""
        return References(self[begin:end])

    def last_of(self, release: Callable[[int, int], Iterable[tuple[int, int]]]) -> Sequence[Part]:
        """References that no other queue holds, like ``RunSlice.last_of``."""
        return [References([each for each in self if any(release(each.message_id, 1))])]


Part = RunSlice | References
"""Messages of one queue that are taken, delivered, acknowledged or put back together."""


Arrival = tuple[Part, ...]
"""Messages on their way to their queues: a part for each queue, with the same messages, which have one priority."""


def parts_of(references: Iterable[MessageReference]) -> Arrival:
    """Make a part of each reference. The references of one message, one for each of its queues, become its arrival."""
    return tuple([References((reference,)) for reference in references])


def let_go(parts: Arrival) -> None:
    """Drop the bodies of messages on their way to their queues, which the log or a page file has."""
    bare: Run | None = None
    for part in parts:
        if isinstance(part, RunSlice):
            if bare is None:
                bare = bare_run(part.run, part.begin, part.end)
            part.become(bare)
        else:
            part.let_go()
