"""The contents of an open transaction: messages that become visible at its commit, and deliveries that it acknowledges.

A small transaction keeps the references and slices of runs it was given. Of a larger one the oldest become blocks of
columns (``store.messages.reference_block``): the body of a message leaves memory once the log has it on the medium (a
message that is not durable goes to a page file), a reference takes a few bytes, and blocks of deep transactions go to
page files like those of deep queues. While an address or the node holds its maximum in memory, bodies leave at once.

A block is handed to its queue, or forgotten, as a whole, so the end of a transaction costs little per message whatever
its size. References that need a look of their own (a queue of a special kind, a scheduled delivery, a message in
several queues) are not taken together like that.

Not here: records of the log (``post_office``, ``session.transaction``), limits of a transaction
(``session.transaction``).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from understudy.dataclass import dataclass
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.store.messages.columns import PAGE_SEGMENT, Columns
from understudy.store.messages.reference import Arrival, MessageReference, Part, References, parts_of
from understudy.store.messages.reference_block import BLOCK_REFERENCES, Block

#: Messages, and bytes of them, that are looked at together when they leave memory.
_CHUNK_MESSAGES: Final = BLOCK_REFERENCES
_CHUNK_BYTES: Final = 1024 * 1024
#: Chunks of a transaction that stay in memory: what most transactions are done with.
_CHUNKS_IN_MEMORY: Final = 4
#: Maximum number of acknowledged deliveries of one queue that are kept as objects.
_ACKNOWLEDGED_IN_MEMORY: Final = 4 * BLOCK_REFERENCES
#: Maximum number of parts in which those deliveries are kept; a slice of a few messages keeps the buffer of its whole
#: run.
_ACKNOWLEDGED_PARTS: Final = 256
#: Blocks of one queue and transaction that are kept in memory; further ones go to a page file.
_BLOCKS_IN_MEMORY: Final = 8

Entry = tuple[tuple["Queue", ...], Arrival]
"""A message or a run: its queues, and a part for each."""


@dataclass(slots=True)
class _Held:
    """A block, and what the counts of its queue and address need to know of it."""

    block: Block
    size_bytes: int
    expiring: int
    bodies: int
    bodies_bytes: int
    plain: bool
    """Whether messages can leave the staging as blocks, without a step for each of them."""


def _held(references: list[MessageReference], *, plain: bool) -> _Held:
    columns = Columns.of(references, references[0].priority)
    in_memory = [each.size_bytes for each in references if each.message is not None]
    paged = any(segment >= PAGE_SEGMENT for segment in columns.segments or (columns.segment,))
    return _Held(
        Block(columns),
        sum(columns.sizes),
        len(references) - columns.expirations.count(0) if columns.expirations is not None else 0,
        len(in_memory),
        sum(in_memory),
        plain and not columns.files and not paged,
    )


def _let_go(office: PostOffice, queue: Queue, held: _Held) -> None:
    """Remove the messages of a plain block from the counts of its queue and address."""
    queue.address.discharge_run(held.block.size, held.size_bytes, held.bodies, held.bodies_bytes)
    office.memory.held_bytes -= held.bodies_bytes
    office.memory.held_count -= held.bodies


def _show(queue: Queue, priority: int, held: list[_Held]) -> None:
    """Blocks become visible in an ordinary queue, after everything else of their priority (``Queue.add``)."""
    count = sum([each.block.size for each in held])
    queue.incoming -= count
    queue.pending.level(priority).append_blocks([each.block for each in held])
    queue.message_count += count
    queue.messages_added += count
    queue.expiring_count += sum([each.expiring for each in held])
    if queue.deleted:
        # the message was not written yet when the queue was deleted
        queue.forget_waiting()
    else:
        queue.prompt()


class StagedSends:
    """Messages of one transaction, not visible in their queues before its commit."""

    __slots__ = ("_blocks", "_closed", "_ended", "_kept", "_office", "_open", "_open_bytes", "_open_count")

    def __init__(self, office: PostOffice) -> None:
        self._office = office
        self._open: list[Entry] = []
        """The newest, fewer than a chunk."""
        self._open_bytes = self._open_count = 0
        self._closed: deque[tuple[int, list[Entry]]] = deque()
        """Chunks that were not packed, with the sequence up to which the log must be durable before they are."""
        self._kept: list[Entry] = []
        """Staged messages that were packed, as far as they can be, without their bodies."""
        self._blocks: dict[tuple[Queue, int], list[_Held]] = {}
        """Queue and priority to the oldest messages."""
        self._ended = False

    def __bool__(self) -> bool:
        return bool(self._open or self._closed or self._kept or self._blocks)

    def add(self, queues: tuple[Queue, ...], parts: Arrival, *, leaves: bool = False) -> None:
        """Take messages of these queues, which were charged to their addresses and appended to the log if they are
        durable.

        Args:
            leaves: Whether their bodies leave memory once the log has the messages on the medium.
        """
        office = self._office
        self._open.append((queues, parts))
        self._open_count += len(parts[0])
        self._open_bytes += parts[0].size_bytes
        if self._open_count >= _CHUNK_MESSAGES or self._open_bytes >= _CHUNK_BYTES:
            self._closed.append((office.store.last_sequence, self._open))
            self._open, self._open_bytes, self._open_count = [], 0, 0
            if len(self._closed) > _CHUNKS_IN_MEMORY:
                office.store.context.when_durable(self._closed[0][0], self._pack_oldest)
        if leaves:
            office.store.context.when_durable(office.store.last_sequence, self._page_out, queues, parts)

    def _page_out(self, queues: tuple[Queue, ...], parts: Arrival) -> None:
        if not self._ended:
            self._office.paging.page_out(queues, parts)

    def _pack_oldest(self) -> None:
        if self._ended:
            return
        _, entries = self._closed.popleft()
        page_out = self._office.paging.page_out
        by_queue: dict[tuple[Queue, int], list[MessageReference]] = {}
        shared: set[tuple[Queue, int]] = set()
        for queues, parts in _one_by_one(entries):
            page_out(queues, parts)
            if parts[0][0].scheduled_ms or any(queue.kind is not None for queue in queues):
                self._kept.append((queues, parts))
                continue
            for queue, (reference,) in zip(queues, parts, strict=True):
                key = (queue, reference.priority)
                by_queue.setdefault(key, []).append(reference)
                if len(queues) > 1:
                    shared.add(key)
        for key, references in by_queue.items():
            held = _held(references, plain=key not in shared)
            blocks = self._blocks.setdefault(key, [])
            blocks.append(held)
            pages = key[0].address.pages
            if pages is None or len(blocks) <= _BLOCKS_IN_MEMORY or not held.block.spill(pages):
                held.block.pack()

    def _entries(self) -> Iterator[Entry]:
        """Take the messages that are in no block, the oldest first."""
        self._ended = True
        kept, closed, newest = self._kept, self._closed, self._open
        self._kept, self._closed, self._open = [], deque(), []
        yield from kept
        for _, entries in closed:
            yield from entries
        yield from newest

    def commit(self) -> None:
        """Make the staged messages visible; called when the commit is durable."""
        blocks, self._blocks = self._blocks, {}
        for (queue, priority), held in blocks.items():
            if queue.kind is None:
                _show(queue, priority, held)
                continue
            # the queue became one of a special kind meanwhile
            for each in held:
                for reference in each.block.references():
                    reference.position = -1
                    queue.add(References((reference,)))
                each.block.drop()
        for queues, parts in self._entries():
            self._office.acceptance.enqueue(queues, (parts,))

    def content(self) -> Iterator[tuple[Queue, MessageReference]]:
        """The staged messages, for each queue, by message; they stay staged."""
        for (queue, _), held in self._blocks.items():
            for each in held:
                for reference in each.block.references():
                    yield queue, reference
        newest = (*self._kept, *chain.from_iterable(entries for _, entries in self._closed), *self._open)
        for queues, parts in _one_by_one(newest):
            for queue, (reference,) in zip(queues, parts, strict=True):
                yield queue, reference

    def ids(self, queue: Queue) -> Iterator[int]:
        """Message ids of the staged messages of one queue, which stay staged."""
        for (owner, _), held in self._blocks.items():
            if owner is queue:
                for each in held:
                    yield from (reference.message_id for reference in each.block.references())
        for _, entries in ((0, self._kept), *self._closed, (0, self._open)):
            for queues, parts in entries:
                if queue in queues:
                    yield from parts[queues.index(queue)].ids

    def discard(self) -> None:
        """Discard the staged messages: none of them becomes visible."""
        blocks, self._blocks = self._blocks, {}
        office = self._office
        for (queue, _), held in blocks.items():
            for each in held:
                queue.incoming -= each.block.size
                if each.plain:
                    _let_go(office, queue, each)
                else:
                    queue.forget(References(each.block.references()), counted=False)
                each.block.drop()
        for queues, parts in self._entries():
            office.acceptance.discard(queues, parts)


def _one_by_one(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The messages of these entries, each with its references."""
    for queues, parts in entries:
        for references in zip(*parts, strict=True):
            yield queues, parts_of(references)


class Acknowledgements:
    """Deliveries that are done if one transaction commits, and go back to their queues if it does not."""

    __slots__ = ("_blocks", "_counts", "_office", "_open")

    def __init__(self, office: PostOffice) -> None:
        self._office = office
        self._open: dict[Queue, list[Part]] = {}
        """The newest of each queue, in the parts in which they were delivered."""
        self._counts: dict[Queue, int] = {}
        """Number of the acknowledged messages, by queue."""
        self._blocks: dict[Queue, list[tuple[_Held, array[int]]]] = {}
        """The oldest of each queue, with their positions in it."""

    def __bool__(self) -> bool:
        return bool(self._open or self._blocks)

    def add(self, queue: Queue, parts: Sequence[Part]) -> None:
        """Deliveries of a queue that are no longer outstanding."""
        known = self._open.setdefault(queue, [])
        known += parts
        self._counts[queue] = count = self._counts.get(queue, 0) + sum(map(len, parts))
        if count > _ACKNOWLEDGED_IN_MEMORY and queue.kind is None:
            del self._open[queue], self._counts[queue]
            references = [reference for part in known for reference in part]
            for start in range(0, count, BLOCK_REFERENCES):
                self._pack(queue, references[start : start + BLOCK_REFERENCES])
        elif len(known) > _ACKNOWLEDGED_PARTS:
            self._open[queue] = [References(reference for part in known for reference in part)]

    def _pack(self, queue: Queue, references: list[MessageReference]) -> None:
        by_priority: dict[int, list[MessageReference]] = {}
        for reference in references:
            by_priority.setdefault(reference.priority, []).append(reference)
        shares = queue.address.shares
        for group in by_priority.values():
            if not shares:
                self._forget_bodies(queue, group)
            held = _held(group, plain=not shares)
            held.block.pack()
            positions = array("q", [each.position for each in group])
            self._blocks.setdefault(queue, []).append((held, positions))

    def _forget_bodies(self, queue: Queue, references: list[MessageReference]) -> None:
        """Drop bodies that the log or a file holds too; most of them are not read again."""
        address, memory = queue.address, self._office.memory
        for reference in references:
            if reference.message is not None and reference.location is not None:
                reference.message = None
                memory.let_go(address, reference.size_bytes)

    @staticmethod
    def _references(held: _Held, positions: array[int]) -> References:
        made = References(held.block.references())
        for reference, position in zip(made, positions, strict=True):
            reference.position = position
        return made

    def commit(self) -> None:
        """Remove the acknowledged messages from their queues; called when the commit is durable."""
        blocks, self._blocks = self._blocks, {}
        for queue, packed in blocks.items():
            for held, positions in packed:
                if held.plain and queue.kind is None:
                    _let_go(self._office, queue, held)
                    queue.delivering_count -= held.block.size
                    queue.messages_acknowledged += held.block.size
                    queue.message_count -= held.block.size
                    queue.expiring_count -= held.expiring
                else:
                    queue.acknowledged(self._references(held, positions))
        newest, self._open, self._counts = self._open, {}, {}
        for queue, parts in newest.items():
            for part in parts:
                queue.acknowledged(part)

    def ids(self, queue: Queue) -> Iterator[int]:
        """Message ids of the staged messages of one queue, which stay staged."""
        for held, _ in self._blocks.get(queue, ()):
            yield from (reference.message_id for reference in held.block.references())
        for part in self._open.get(queue, ()):
            yield from part.ids

    def content(self) -> dict[Queue, list[MessageReference]]:
        """The acknowledged messages, in order, by queue; they stay staged."""
        found = self.take()
        for queue, references in found.items():
            self._open[queue] = [References(references)]
            self._counts[queue] = len(references)
        return found

    def take(self) -> dict[Queue, list[MessageReference]]:
        """Remove and return the acknowledged messages, in order, which the caller gives back to their queues."""
        blocks, self._blocks = self._blocks, {}
        newest, self._open, self._counts = self._open, {}, {}
        returned: dict[Queue, list[MessageReference]] = {}
        for queue, packed in blocks.items():
            returned[queue] = [each for held, positions in packed for each in self._references(held, positions)]
        for queue, parts in newest.items():
            returned.setdefault(queue, []).extend(reference for part in parts for reference in part)
        return returned
