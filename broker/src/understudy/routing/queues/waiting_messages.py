"""Looking at the waiting messages of a queue in slices, and taking some of them out.

The queue continues to work between two slices, so a message that is added or removed meanwhile may be included or not,
but none is included twice. Messages being delivered, and scheduled ones, are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final

from understudy.errors import BrokerError, MessageUnreadable, QueueNotFound
from understudy.routing.queues.queue import Queue
from understudy.store.messages.reference import MessageReference, Part, RunSlice

#: Number of messages that one slice reads.
SLICE_MESSAGES: Final = 500
#: Position at which ``Queue.browse`` starts.
START: Final = (9, -1)

Position = tuple[int, int]
"""A place in a queue: a priority, and the position of a message in its level."""
Wanted = Callable[[MessageReference], bool]
"""Whether a message is wanted."""
Act = Callable[[list[MessageReference]], int]
"""Called with references that are in no queue any more; returns how many were processed, after it returned the others
to the queue."""


def next_part(queue: Queue, position: Position, count_max: int) -> tuple[Position, Part] | None:
    """Waiting messages at or after a position, neighbours of one priority, which stay, and the position after them;
    None: there are none.
    """
    priority, index = position
    for level in list(queue.pending.levels):
        if level.priority <= priority:
            part = level.part_from(index if level.priority == priority else -1, count_max)
            if part is not None:
                return (level.priority, position_after(part, len(part))), part
    return None


def position_after(part: Part, count: int) -> int:
    """The position after the first ``count`` messages, at least one, of a part that waits."""
    return part.position + count if isinstance(part, RunSlice) else part[count - 1].position + 1


def look(queue: Queue, wanted: Wanted, seen: Callable[[list[MessageReference]], bool]) -> Generator[None, None, None]:
    """Read the waiting messages in slices; ``seen`` gets the wanted ones of each and returns whether to continue."""
    position, more = START, True
    while more:
        chosen: list[MessageReference] = []
        more = False
        for looked_at, (following, reference) in enumerate(queue.browse(position)):
            if looked_at == SLICE_MESSAGES or (looked_at and queue.out_of_steps()):
                more = True
                break
            position = following
            if wanted(reference):
                chosen.append(reference)
        if chosen and not seen(chosen):
            return
        if more:
            yield
            if queue.deleted:
                raise QueueNotFound(f"queue {queue.name!r} was deleted meanwhile")


def act_on(queue: Queue, wanted: Wanted, act: Act, limit: int = -1) -> Generator[None, None, int]:
    """Remove the wanted waiting messages from the queue and apply ``act`` to them.

    Args:
        wanted: Predicate. Messages added after the beginning, also copies made by ``act``, are left alone.
        act: Called with references that are in no queue any more; returns unprocessed ones to the queue.
        limit: Maximum number; -1 = all.

    Returns:
        Number of messages processed.
    """
    done = 0
    newest = queue.store.next_id()

    def seen(references: list[MessageReference]) -> bool:
        nonlocal done
        if limit >= 0:
            references = references[: limit - done]
        for reference in references:
            queue.pending.remove(reference)
        done += act(references)
        return limit < 0 or done < limit

    if limit:
        yield from look(queue, lambda reference: reference.message_id < newest and wanted(reference), seen)
    return done


def one_by_one(queue: Queue, references: Sequence[MessageReference], call: Callable[[MessageReference], object]) -> int:
    """Number of calls that did not return False. If one raises, the remaining messages stay in the queue."""
    done = 0
    for position, reference in enumerate(references):
        try:
            done += call(reference) is not False
        except MessageUnreadable as error:
            queue.office.damaged.quarantine(queue, reference, error)
        except BrokerError:
            requeue(queue, references[position:])
            raise
    return done


def requeue(queue: Queue, references: Iterable[MessageReference]) -> None:
    """Return references that were taken out to their places."""
    returned = list(references)
    queue.delivering_count += len(returned)
    queue.requeue(returned, looked_at=True)
