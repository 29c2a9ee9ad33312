"""Items that the journal hands to its writer, in order: batches of records, and the seal at the end of a segment."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final, NamedTuple

from understudy.dataclass import dataclass
from understudy.store.log.operations import Append, SealSegment
from understudy.store.log.preallocation import Segment
from understudy.store.state import SegmentUse

#: Most bytes in one batch, unless one record is larger: bounds the unsynced bytes at a crash.
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
#: A batch up to this size is small: zeros ahead of the log make its sync quicker.
SMALL_BATCH_BYTES: Final = 64 * 1024
#: Most records of a single request of a client: a message, and the commit or the preparation of its transaction.
LONE_RECORDS_MAX: Final = 4


class Sync(Enum):
    """When a batch is synced before it counts as durable."""

    ALWAYS = auto()
    COMMITS = auto()
    """A batch is synced if it holds a commit, a prepare, or records other than messages and acknowledgements."""
    SELDOM = auto()
    """A batch is synced if it holds records other than messages, acknowledgements and those of transactions; else it is
    only written."""


class Batch(NamedTuple):
    """Records to be written together, and synced unless they may wait for a later sync."""

    segment: Segment
    append: Append
    last_sequence: int
    sync: bool = True


#: ``Batch(...)`` without the Python-level call.
batch_of: Callable[[tuple[Segment, Append, int, bool]], Batch] = partial(tuple.__new__, Batch)


@dataclass(slots=True)
class Seal:
    """The end of a segment."""

    segment: Segment
    following: Segment | None
    """Number of the next segment; None: the journal is being closed."""
    operation: SealSegment
    use: SegmentUse
    last_sequence: int
