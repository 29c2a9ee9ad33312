"""Records at the end of the log that nothing waits for, so that they may be written with later ones."""

from __future__ import annotations

from typing import Final

#: Turns of the loop that such records wait for a later record.
RESTING_TURNS_MAX: Final = 16
#: They do not wait if they are more than this: larger batches are written by another thread while further records come.
RESTING_BYTES_MAX: Final = 32 * 1024


class RestingRecords:
    """The last records of the log, if they belong to transactions that were open when the records came (ADR 0198), or
    are acknowledgements that get no answer (ADR 0211).
    """

    __slots__ = ("_ending", "_turns", "_unanswered_begin", "_unanswered_end", "begin", "end")

    def __init__(self, sequence: int) -> None:
        self.begin = self.end = sequence
        """They are those after ``begin`` through ``end``, both sequences; anything after it is another record."""
        self._unanswered_begin = self._unanswered_end = sequence
        """Range of the last records of requests without an answer."""
        self._turns = 0
        """Turns that they have waited."""
        self._ending = False
        """Whether ``finish`` was asked for."""

    def add(self, before: int, last: int) -> None:
        """Note the records after the sequence ``before`` through ``last``."""
        if self.end != before:
            self.begin, self._turns = before, 0
        self.end = last

    def add_for_a_time(self, before: int, last: int) -> bool:
        """Note records as ``add`` does, which count without a later one. Returns whether the caller has to call
        ``finish`` within a time; if not, an earlier caller will.
        """
        self.add(before, last)
        self.add_unanswered(before, last)
        asked, self._ending = self._ending, True
        return not asked

    def add_unanswered(self, before: int, last: int) -> None:
        """Note that no client waits for the records after the sequence ``before`` through ``last``."""
        if self._unanswered_end != before:
            self._unanswered_begin = before
        self._unanswered_end = last

    def unanswered(self, batched: int, last: int) -> bool:
        """Whether no client waits for any record after the sequence ``batched`` through ``last``."""
        return self._unanswered_end == last and self._unanswered_begin <= batched

    def finish(self) -> None:
        """Have what rests written with the next turn."""
        self._ending = False
        self.end = -1

    def are(self, batched: int, last: int, size_bytes: int) -> bool:
        """Whether all records after the sequence ``batched`` through ``last`` are among them, and are few enough."""
        return self.end == last and self.begin <= batched and size_bytes <= RESTING_BYTES_MAX

    def may_wait_a_turn(self) -> bool:
        """Count a turn in which they are not written. False: they have waited for ``RESTING_TURNS_MAX`` turns."""
        self._turns = (self._turns + 1) % (RESTING_TURNS_MAX + 1)
        return self._turns > 0
