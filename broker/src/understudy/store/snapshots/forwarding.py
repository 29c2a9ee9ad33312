"""Where messages lie that were copied out of a segment which is gone.

The holder of a reference keeps the location it was given, in memory, in a page file or with a
consumer. Only when a message is read and its segment is gone is the location looked up here.

A table for each source segment, kept while any message of it is live. Nothing of it outlives the
activation: a recovery gives every reference the location it has by then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container
from dataclasses import dataclass, field

from understudy.store.live_index import LiveIndex
from understudy.store.reference import Location, pack_location, unpack_location


@dataclass(slots=True)
class _Table:
    """Sixteen bytes a message, in the order of offsets, in which a segment is copied."""

    id_min: int
    id_max: int
    sources: array[int] = field(default_factory=lambda: array("I"))
    """Offset in the source ..."""
    segments: array[int] = field(default_factory=lambda: array("Q"))
    """... to the segment ..."""
    offsets: array[int] = field(default_factory=lambda: array("I"))
    """... and the offset where it lies as well, at the same length."""


class Forwarding:
    """New locations of messages that were copied forward, by source segment."""

    def __init__(self) -> None:
        self._tables: dict[int, _Table] = {}

    def __len__(self) -> int:
        return sum(len(table.sources) for table in self._tables.values())

    def add(self, number: int, offset: int, message_id: int, location: Location) -> None:
        """The message of that record lies there as well; offsets of one segment only rise."""
        table = self._tables.get(number)
        if table is None:
            table = self._tables[number] = _Table(message_id, message_id)
        assert not table.sources or table.sources[-1] < offset, "segments are copied from their beginning on"
        table.id_min = min(table.id_min, message_id)
        table.id_max = max(table.id_max, message_id)
        segment, place, _ = unpack_location(location)
        table.sources.append(offset)
        table.segments.append(segment)
        table.offsets.append(place)

    def resolve(self, location: Location, present: Container[int]) -> Location:
        """The location in a segment that is present. Raises KeyError if the message was not live."""
        number, offset, length = unpack_location(location)
        while number not in present:
            table = self._tables[number]
            row = bisect_left(table.sources, offset)
            if row == len(table.sources) or table.sources[row] != offset:
                raise KeyError(location)
            number, offset = table.segments[row], table.offsets[row]
        return pack_location(number, offset, length)

    def sweep(self, live: LiveIndex) -> None:
        """Forget tables of which nothing is live."""
        for number, table in list(self._tables.items()):
            if not live.any_between(table.id_min, table.id_max):
                del self._tables[number]
