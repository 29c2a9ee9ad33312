"""Dropping the dead beginning of the log.

A segment is dead when no queue holds a message of it and no open transaction needs it. Segments may
go only from the beginning (docs/build/journal-format.md s. 4.3), and only after a CHECKPOINT has stated
again what lives on in them besides messages: bindings and duplicate ids. That is worth its bytes
when enough segments go with it.

Where there are snapshots (``consolidator``), the beginning is trimmed only past the newest one, which
goes with it: the log alone is whole again then.

Not here: segments that are dead, or nearly, after one that is alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.store.log.checkpoint import encode_checkpoint
from understudy.store.log.journal import Journal
from understudy.store.log.records import RecordType, encode_trim
from understudy.store.log.segment import segment_name
from understudy.store.named_readers import NamedReaders
from understudy.store.state import StoreState

#: Dead segments at the beginning of the log before a checkpoint is written to drop them ...
TRIM_SEGMENTS_MIN: Final = 4
#: ... and how many times larger than the checkpoint they must be.
_TRIM_FACTOR: Final = 16
#: Estimated bytes of an address, queue or setting in a checkpoint, and of a duplicate id.
_BINDING_BYTES: Final = 512
_DUPLICATE_ID_BYTES: Final = 64


class FileRemover:
    """Removes segments and snapshots that the log has given up."""

    def __init__(self, journal: Journal, state: StoreState, forget: Callable[[int], int | None]) -> None:
        """
        Args:
            journal: Removes files.
            state: Remembers segments that may still have to be removed.
            forget: The store lets go of a segment; returns the epoch it was of.
        """
        self._journal = journal
        self._state = state
        self._forget = forget
        self._names: dict[str, int] = {}
        """To be removed, in order, and the segment number, or 0."""
        self._removing = False

    def remove_left(self) -> None:
        """Remove what the node before had given up and not removed."""
        self._names |= {segment_name(number, epoch): number for number, epoch in self._state.removable.items()}
        self.remove([], [])

    def remove(self, numbers: list[int], files: list[str]) -> None:
        """Remove segments that a durable record replaces, then the other files."""
        for number in numbers:
            epoch = self._forget(number)
            if epoch is not None:
                self._names[segment_name(number, epoch)] = number
        self._names |= dict.fromkeys(files, 0)
        if self._removing or not self._names:
            return
        self._removing = True
        names = list(self._names)

        def removed(error: BaseException | None) -> None:
            # a failed removal is repeated with the next one: it only costs space
            self._removing = False
            if error is None:
                for name in names:
                    self._state.removable.pop(self._names.pop(name), None)

        self._journal.remove_files(names, removed)


class LogTruncation:
    """Removes the dead beginning of one log. ``trim`` is called when the journal has begun another segment."""

    def __init__(
        self, journal: Journal, state: StoreState, readers: NamedReaders, segment_bytes: int, remover: FileRemover
    ) -> None:
        """
        Args:
            journal: Where checkpoints go.
            state: State of the running store: live messages.
            readers: Nothing from the first segment on that one of them needs is dropped.
            segment_bytes: Size of an ordinary segment.
            remover: Removes trimmed segments.
        """
        self._journal = journal
        self._state = state
        self._readers = readers
        self._segment_bytes = segment_bytes
        self._remover = remover

    def checkpoint_worth_bytes(self) -> int:
        """Bytes of log for which it is worth stating bindings, settings and duplicate ids again."""
        state = self._state
        bindings = len(state.addresses) + len(state.queues) + len(state.settings)
        duplicate_ids = sum(map(len, state.duplicate_ids.values()))
        return _TRIM_FACTOR * (_BINDING_BYTES * bindings + _DUPLICATE_ID_BYTES * duplicate_ids)

    def trim(self, through: int, snapshots: list[str], *, urgent: bool = False) -> bool:
        """Drop the dead beginning if it is worth a checkpoint. Whether it was dropped.

        Args:
            through: Nothing is dropped unless this segment is dropped, too: the newest snapshot depends on it.
            snapshots: Files that are removed with it.
            urgent: The disk is full: any segment is worth it.
        """
        state, journal = self._state, self._journal
        dead = state.dead_prefix(min(self._readers.needed_from or journal.number, journal.number))
        enough = 1 if urgent else TRIM_SEGMENTS_MIN
        if len(dead) < enough or dead[-1] < through or journal.failure is not None:
            return False
        covered = [number for number in dead if number < (state.checkpoint_segment or 0)]
        if len(covered) >= enough and covered[-1] >= through:
            dead = covered
        else:
            if len(dead) * self._segment_bytes < self.checkpoint_worth_bytes():
                return False
            # dead segments lie before its first part, regardless of where the last part ends
            state.checkpoint_segment = journal.number
            for flags, payload in encode_checkpoint(state.checkpoint_items()):
                journal.append(RecordType.CHECKPOINT, payload, flags=flags)
        kept = next(number for number in state.segments if number > dead[-1])
        first_sequence = state.segments[kept].first_sequence
        sequence = journal.append(RecordType.TRIM, encode_trim(kept, first_sequence))
        state.forget_segments(dead)
        journal.context.when_durable(sequence, self._remover.remove, dead, snapshots)
        return True
