"""The duplicate ids of one address as a log has them: two circles, one of ids of clients and one of those of bridges.

The routing has the same two (``routing.lifecycle.duplicate_ids``), so that ids of clients displace none of a bridge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, compress, repeat
from operator import not_

from understudy.kernel.changes import FORWARDED_KEY


class KnownIds:
    """The newest ids of each kind; iterating gives those of clients first, each kind oldest first."""

    __slots__ = ("_capacity", "_clients", "_forwarded")

    def __init__(self, capacity: int) -> None:
        """Args:
        capacity: Ids of each kind.
        """
        self._capacity = capacity
        self._clients: deque[bytes] = deque(maxlen=capacity)
        self._forwarded: deque[bytes] | None = None

    def __len__(self) -> int:
        return len(self._clients) + len(self._forwarded or ())

    def __iter__(self) -> Iterator[bytes]:
        return chain(self._clients, self._forwarded or ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownIds) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # it changes

    def extend(self, ids: Sequence[bytes]) -> None:
        """Add ids, oldest first; the oldest ones above the capacity are forgotten."""
        bridged = [*map(bytes.startswith, ids, repeat(FORWARDED_KEY))]
        if True in bridged:
            if self._forwarded is None:
                self._forwarded = deque(maxlen=self._capacity)
            self._forwarded.extend(compress(ids, bridged))
            ids = [*compress(ids, map(not_, bridged))]
        self._clients.extend(ids)


def newest_of(ids: bytes, length: int, capacity: int) -> list[bytes]:
    """Ids of ``length`` bytes each, one after the other, without those that the newest ones displace from a circle."""
    # no more than a circle keeps are taken apart, unless some may be of the other kind
    begin = 0 if FORWARDED_KEY in ids else max(0, len(ids) - capacity * length)
    return [ids[at : at + length] for at in range(begin, len(ids), length)]
