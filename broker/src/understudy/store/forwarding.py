"""Where messages lie that were copied out of a segment which is gone.

Whoever holds a reference keeps the location it was given, in memory, in a page file or with a
consumer. Only when a message is read and its segment is gone is the location looked up here.

A table per source segment, kept while any message of it is live. Nothing of it outlives the
activation: a recovery gives every reference the location it has by then.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from understudy.store.live_index import LiveIndex
from understudy.store.reference import Location, unpack_location


@dataclass(slots=True)
class _Table:
    id_min: int
    id_max: int
    locations: dict[int, Location] = field(default_factory=dict)
    """By the offset in the source."""


class Forwarding:
    """See the module's text."""

    def __init__(self) -> None:
        self._tables: dict[int, _Table] = {}

    def __len__(self) -> int:
        return sum(len(table.locations) for table in self._tables.values())

    def add(self, number: int, offset: int, message_id: int, location: Location) -> None:
        """The message of that record lies there as well."""
        table = self._tables.get(number)
        if table is None:
            table = self._tables[number] = _Table(message_id, message_id)
        table.id_min = min(table.id_min, message_id)
        table.id_max = max(table.id_max, message_id)
        table.locations[offset] = location

    def resolve(self, location: Location, present: Container[int]) -> Location:
        """The location in a segment that is present. Raises KeyError if the message was not live."""
        number, offset, _ = unpack_location(location)
        while number not in present:
            location = self._tables[number].locations[offset]
            number, offset, _ = unpack_location(location)
        return location

    def sweep(self, live: LiveIndex) -> None:
        """Forget tables of which nothing is live."""
        for number, table in list(self._tables.items()):
            if not live.any_between(table.id_min, table.id_max):
                del self._tables[number]
