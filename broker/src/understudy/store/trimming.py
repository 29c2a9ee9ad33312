"""Dropping the dead beginning of the log.

A segment is dead when no queue holds a message of it and no open transaction needs it. Segments may
go only from the beginning (docs/journal-format.md s. 4.3), and only after a CHECKPOINT has stated
again what lives on in them besides messages: bindings and duplicate ids. That is worth its bytes
when enough segments go with it.

Not here: rewriting segments in which a little is still alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.store.journal import Journal
from understudy.store.operation_context import OperationContext
from understudy.store.records import RecordType, encode_checkpoint, encode_trim
from understudy.store.segment import segment_name
from understudy.store.state import StoreState

#: Dead segments at the beginning of the log before a checkpoint is written to drop them ...
TRIM_SEGMENTS_MIN: Final = 4
#: ... and how many times larger than the checkpoint they must be.
_TRIM_FACTOR: Final = 16
#: Estimated bytes of one binding or duplicate id in a checkpoint.
_CHECKPOINT_ITEM_BYTES: Final = 128


class LogTrimmer:
    """See the module's text. ``trim`` is called when the journal has begun another segment."""

    def __init__(
        self,
        journal: Journal,
        state: StoreState,
        context: OperationContext,
        directory: str,
        segment_bytes: int,
        forget: Callable[[int], int | None],
    ) -> None:
        """
        Args:
            journal: Where checkpoints go, and what removes files.
            state: What is alive.
            context: Says when a TRIM is durable.
            directory: Of the store.
            segment_bytes: Size of an ordinary segment.
            forget: The store lets go of a segment; returns the epoch it was of.
        """
        self._journal = journal
        self._state = state
        self._context = context
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._forget = forget
        self._removable: list[str] = []
        self._removing = False

    def trim(self) -> None:
        """Drop the dead beginning if it is worth a checkpoint."""
        state, journal = self._state, self._journal
        dead = state.dead_prefix(journal.number)
        if len(dead) < TRIM_SEGMENTS_MIN or journal.failure is not None:
            return
        covered = [number for number in dead if number < (state.checkpoint_segment or 0)]
        if len(covered) >= TRIM_SEGMENTS_MIN:
            dead = covered
        else:
            items = len(state.addresses) + len(state.queues) + sum(len(ids) for ids in state.duplicate_ids.values())
            if len(dead) * self._segment_bytes < _TRIM_FACTOR * items * _CHECKPOINT_ITEM_BYTES:
                return
            # what is dead lies before its first part, wherever the last part ends up
            state.checkpoint_segment = journal.number
            for flags, payload in encode_checkpoint(state.checkpoint_items()):
                journal.append(RecordType.CHECKPOINT, payload, flags=flags)
        kept = next(number for number in state.segments if number > dead[-1])
        first_sequence = state.segments[kept].first_sequence
        sequence = journal.append(RecordType.TRIM, encode_trim(kept, first_sequence))
        for number in dead:
            del state.segments[number]
        self._context.when_durable(sequence, self._remove, dead)

    def _remove(self, numbers: list[int]) -> None:
        for number in numbers:
            epoch = self._forget(number)
            if epoch is not None:
                self._removable.append(f"{self._directory}/{segment_name(number, epoch)}")
        if self._removing:
            return
        self._removing = True
        paths = list(self._removable)

        def removed(error: BaseException | None) -> None:
            # what could not be removed is tried again with the next ones: it is only room
            self._removing = False
            if error is None:
                del self._removable[: len(paths)]

        self._journal.remove_segments(paths, removed)
