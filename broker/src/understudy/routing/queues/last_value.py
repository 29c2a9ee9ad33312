"""Last-value queues: of the messages with the same key only the newest waits (manual, "Last-Value
Queues").

A message replaces the waiting one of its key when it becomes visible, that is when the log has it;
the end of the message that it replaces is written after it. A crash between the two leaves both, and the next
activation finds the newest by reading the keys again (``load``): a value is never lost for one that
is not safe yet.

What a consumer has is not replaced. If it is given back while a newer value waits it is dropped;
otherwise it is the last value again. Messages without the key are ordinary ones.

Not here: queues (``queue``) and their other properties (``kinds``). Invariant: an entry names a
message that waits at that place, or one that was delivered or has expired since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from understudy.message import LAST_VALUE, Message
from understudy.routing.queues.special import SpecialQueue
from understudy.store.messages.reference import MessageReference

#: Number of keys from which on keys of messages that have left are removed.
_KEYS_MIN: Final = 1024


class LastValues:
    """Which message holds the last value of each key."""

    __slots__ = ("_coming", "_keys_max", "_last", "_queue", "key")

    def __init__(self, queue: SpecialQueue, key: str) -> None:
        """``key``: name of the property that holds the key."""
        self.key = key
        self._queue = queue
        self._last: dict[str, tuple[int, int, int]] = {}
        """Key to priority, position and id of the message."""
        self._coming: dict[int, str | None] = {}
        """Keys of messages that lost their body on the way here."""
        self._keys_max = _KEYS_MIN

    def __len__(self) -> int:
        return len(self._last)

    def remember(self, reference: MessageReference) -> None:
        """Note the key of a message whose body is about to leave memory, before ``added`` would look into it."""
        if reference.message is not None:
            self._coming[reference.message_id] = self._key_in(reference.message)

    def added(self, reference: MessageReference) -> None:
        """Remove the pending message with the key of the message that was just added at the end."""
        key = self._key_of(reference)
        if key is None:
            return
        before = self._last.get(key)
        self._last[key] = (reference.priority, reference.position, reference.message_id)
        if before is not None:
            self._drop(before)
        elif len(self._last) > self._keys_max:
            self._forget_gone()

    def returned(self, references: Sequence[MessageReference]) -> None:
        """Deliveries that failed wait again, unless a newer value does."""
        for reference in reversed(references):
            key = self._key_of(reference)
            if key is None:
                continue
            place = (reference.priority, reference.position, reference.message_id)
            last = self._last.get(key)
            if last is None or _newer(place, last):
                self._last[key] = place
                if last is not None:
                    self._drop(last)
            elif _newer(last, place):
                if self._queue.pending.at(*last) is not None:
                    self._drop(place)
                else:
                    self._last[key] = place

    def load(self) -> None:
        """Index waiting messages after a restart or takeover; of one key only the newest stays."""
        stale: list[tuple[int, int, int]] = []
        for _, reference in self._queue.browse((9, -1)):
            key = self._key_of(reference)
            if key is None:
                continue
            place = (reference.priority, reference.position, reference.message_id)
            last = self._last.get(key)
            if last is not None and _newer(last, place):
                stale.append(place)
                continue
            if last is not None:
                stale.append(last)
            self._last[key] = place
        for place in stale:
            self._drop(place)
        self._keys_max = max(_KEYS_MIN, 2 * len(self._last))

    def _drop(self, place: tuple[int, int, int]) -> None:
        queue = self._queue
        reference = queue.pending.at(*place)
        if reference is not None:
            queue.pending.remove(reference)
            queue.replaced(reference)

    def _forget_gone(self) -> None:
        waiting = {reference.message_id for reference in self._queue.pending}
        self._last = {key: place for key, place in self._last.items() if place[2] in waiting}
        self._keys_max = max(_KEYS_MIN, 2 * len(self._last))

    def _key_of(self, reference: MessageReference) -> str | None:
        if reference.message_id in self._coming:
            return self._coming.pop(reference.message_id)
        message = self._queue.read_waiting(reference)
        return self._key_in(message) if message is not None else None

    def _key_in(self, message: Message) -> str | None:
        value = message.properties.get(self.key)
        if value is None:
            # the usual property counts for queues with a key of their own too, where that one is missing
            value = message.properties.get(LAST_VALUE)
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if value is None or isinstance(value, str) else str(value)


def _newer(place: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Whether a message came after another. Of one priority the order in which they became visible counts, which
    after a transaction is not that of their ids; between priorities only the ids say something.
    """
    return place[1] > other[1] if place[0] == other[0] else place[2] > other[2]
