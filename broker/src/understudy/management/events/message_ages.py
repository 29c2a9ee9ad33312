"""Ages of messages, known from their ids: no record and no reference of a message has a time.

Ids rise in the order in which messages come. Twice a second (``runtime.management.heartbeat``) the highest id given so
far is noted with the time. A message with a higher id has come since then. The age of a message that came before the
first note, which follows the activation, is counted from that note.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

#: Noted ids. When there are more, those that an age does not need to be right to ``PRECISION`` are forgotten: of a year
#: about 700 are left.
SAMPLES_MAX: Final = 1_024
#: Largest error of an age, as a part of it.
PRECISION: Final = 0.025


class MessageAges:
    """Times at which ids had been given."""

    __slots__ = ("_ids", "_times_ms")

    def __init__(self) -> None:
        """Nothing was noted yet."""
        self._ids: list[int] = []
        self._times_ms: list[int] = []

    @property
    def samples(self) -> int:
        """Number of noted ids."""
        return len(self._ids)

    def note(self, last_id: int, now_ms: int) -> None:
        """Note the highest id given so far, and the monotonic time."""
        if self._ids and last_id == self._ids[-1]:
            self._times_ms[-1] = now_ms
            return
        self._ids.append(last_id)
        self._times_ms.append(now_ms)
        if len(self._ids) > SAMPLES_MAX:
            self._thin_out(now_ms)

    def _thin_out(self, now_ms: int) -> None:
        ids, times_ms = self._ids[:1], self._times_ms[:1]
        for index in range(1, len(self._ids) - 1):
            if self._times_ms[index + 1] - times_ms[-1] > PRECISION * (now_ms - times_ms[-1]):
                ids.append(self._ids[index])
                times_ms.append(self._times_ms[index])
        self._ids, self._times_ms = [*ids, self._ids[-1]], [*times_ms, self._times_ms[-1]]

    def age_ms(self, message_id: int, now_ms: int) -> int:
        """The highest possible age of a message; of one that came before the first note, the time since that."""
        index = max(bisect_left(self._ids, message_id) - 1, 0)
        return now_ms - self._times_ms[index] if self._ids else 0
