"""The duplicate ids an address has seen lately.

Two circles of ``id-cache-size`` ids per address (manual, "Duplicate Message Detection"), one for ids of clients and one
for those of bridges, like in Artemis: a message whose id is in one was already taken and is dropped. Ids of clients
displace none of a bridge, which sends unconfirmed messages again when its node is back, and that may be long after.
With each id goes the log sequence at which the original becomes durable, because the duplicate may be confirmed only
then.

Not here: writing ids to the log (they travel in the message's record), or what happens to a
duplicate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from operator import not_

from understudy.errors import LimitExceeded
from understudy.kernel.changes import FORWARDED_KEY
from understudy.limits import DUPLICATE_ID_BYTES_MAX


class DuplicateIdCache:
    """Ids in the order they came, the newest replacing the oldest of its kind."""

    __slots__ = ("_forwarded", "_order", "_sequences", "capacity")

    def __init__(self, capacity: int, ids: Iterable[bytes] = ()) -> None:
        """Args:
        capacity: Ids remembered of each kind; 0 remembers none.
        ids: Restored ones, oldest first, durable already.
        """
        self.capacity = capacity
        self._sequences: dict[bytes, int] = dict.fromkeys(ids, 0)
        self._order: deque[bytes] | None = None
        """The ids of clients, oldest first. None before the first: an empty deque takes 624 bytes, most addresses see
        none."""
        self._forwarded: deque[bytes] | None = None
        """The ids of bridges, like ``_order``."""
        if self._sequences:
            self._append([*self._sequences])

    def __len__(self) -> int:
        return len(self._sequences)

    def __contains__(self, duplicate_id: bytes) -> bool:
        return duplicate_id in self._sequences

    def __iter__(self) -> Iterator[bytes]:
        """The ids of clients, then those of bridges, each oldest first."""
        return chain(self._order or (), self._forwarded or ())

    def sequence_of(self, duplicate_id: bytes) -> int | None:
        """Log sequence of the original, 0 if long durable; None if the id is new."""
        return self._sequences.get(duplicate_id)

    def unseen(self, ids: Sequence[bytes]) -> int:
        """How many of these ids, from the first on, are new and differ from each other."""
        sequences = self._sequences
        if sequences.keys().isdisjoint(ids) and len(set(ids)) == len(ids):
            return len(ids)
        taken: set[bytes] = set()
        for number, duplicate_id in enumerate(ids):
            if duplicate_id in sequences or duplicate_id in taken:
                return number
            taken.add(duplicate_id)
        return len(ids)

    def take(self, ids: Sequence[bytes], first_sequence: int) -> int:
        """Remember those of these ids, from the first on, that are new and differ from each other.

        Args:
            ids: Ids of neighbouring records of the log.

        Returns:
            How many were new.
        """
        sequences = self._sequences
        taken = len(ids)
        if not sequences.keys().isdisjoint(ids) or len(set(ids)) < taken:
            taken = self.unseen(ids)
            ids = ids[:taken]
        # without a call or a step of the interpreter for each
        sequences.update(zip(ids, range(first_sequence, first_sequence + taken), strict=True))
        self._append(ids)
        return taken

    def _append(self, ids: Sequence[bytes]) -> None:
        """Put ids that have their sequences already into the circles of their kinds."""
        bridged = [*map(bytes.startswith, ids, repeat(FORWARDED_KEY))]
        if True in bridged:
            self._forwarded = self._extended(self._forwarded, compress(ids, bridged))
            ids = [*compress(ids, map(not_, bridged))]
        if ids:
            self._order = self._extended(self._order, ids)

    def _extended(self, order: deque[bytes] | None, ids: Iterable[bytes]) -> deque[bytes]:
        """The remembered ids with new ones, and without the oldest ones above the capacity."""
        if order is None:
            order = deque()
        order.extend(ids)
        oldest = [*map(deque.popleft, repeat(order, max(0, len(order) - max(self.capacity, 0))))]
        deque(map(self._sequences.__delitem__, oldest), maxlen=0)
        return order

    def add(self, duplicate_id: bytes, sequence: int) -> None:
        """Remember an id that is not in here yet."""
        if self.capacity <= 0:
            return
        self._sequences[duplicate_id] = sequence
        self._append((duplicate_id,))

    def resize(self, capacity: int) -> None:
        """Set the number of remembered ids of each kind; the oldest ids above it are removed."""
        self.capacity = capacity
        for order in (self._order, self._forwarded):
            if order:
                self._extended(order, ())

    def clear(self) -> None:
        """Remove every duplicate id."""
        self._sequences.clear()
        self._order = self._forwarded = None


def forwarded_id_bytes(value: object) -> bytes:
    """The key of a ``_AMQ_BRIDGE_DUP`` property, by which an address recognises a message that a bridge sends again.

    Raises:
        LimitExceeded: longer than ``DUPLICATE_ID_BYTES_MAX``.
    """
    return duplicate_id_bytes(FORWARDED_KEY + duplicate_id_bytes(value))


def duplicate_id_bytes(value: object) -> bytes:
    """The key of a ``_AMQ_DUPL_ID`` property, which is a string or bytes (artemis-core s. 5.1).

    Raises:
        LimitExceeded: longer than ``DUPLICATE_ID_BYTES_MAX``.
    """
    key = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    if len(key) > DUPLICATE_ID_BYTES_MAX:
        raise LimitExceeded(f"duplicate id of {len(key)} bytes, limit {DUPLICATE_ID_BYTES_MAX}")
    return key
