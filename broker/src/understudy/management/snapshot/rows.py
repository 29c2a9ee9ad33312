"""Rows of a collection, and pages of them in steps.

A row is read field by field: a page of 50,000 queues that is sorted by one field reads that field of each queue, and
all fields of the queues on the page only. Reading is done in steps: a generator pauses after at most ``STEP_ROWS``
rows, and its caller (a turn of the node, the loop of the management server) lets other work be done.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from understudy.management.model.figure import Item

I = TypeVar("I", bound=Item)  # noqa: E741  # an item of the model

#: Rows that are read between two pauses.
STEP_ROWS: Final = 500
#: Rows of a page that are written between two pauses: all their fields are read.
STEP_ITEMS: Final = 50

FieldReaders = Mapping[str, Callable[[Any], object]]


class Rows(Generic[I]):
    """Rows of one collection at the time of a request.

    Args:
        kind: Kind of the items.
        sources: Objects of the broker, one for each item.
        readers: Reads a field of an item from its source, by the name of the field.
        find: Finds a source by its key without a search; None: there is no such way.
    """

    __slots__ = ("find", "kind", "readers", "sources")

    def __init__(
        self,
        kind: type[I],
        sources: Sequence[Any],
        readers: FieldReaders,
        find: Callable[[str], Any] | None = None,
    ) -> None:
        self.kind = kind
        self.sources = sources
        self.readers = readers
        self.find = find

    @classmethod
    def of_items(cls, kind: type[I], items: Sequence[I]) -> Rows[I]:
        """Rows of items that exist already."""
        return cls(kind, items, {name: attrgetter(name) for name in kind.__struct_fields__})

    def item(self, source: Any) -> I:
        """The item of a source."""
        return self.kind(**{name: read(source) for name, read in self.readers.items()})

    def items(self) -> list[I]:
        """All items at once, for small collections."""
        return [self.item(source) for source in self.sources]


def select(
    sources: Sequence[Any],
    wanted: Callable[[Any], bool] | None,
    key: Callable[[Any], object],
    *,
    descending: bool = False,
    start: int = 0,
    count: int | None = None,
) -> Generator[None, None, tuple[list[Any], int]]:
    """The wanted sources from ``start`` on in the order of a key, and the number of all wanted ones.

    Sources with equal keys keep their order; one whose key changes meanwhile may be out of order. Pauses
    after ``STEP_ROWS`` sources.

    Args:
        sources: All sources.
        wanted: Whether a source is wanted; None: all are.
        key: Value to sort by: a number, a text, a truth value or None.
        descending: Whether the largest comes first.
        start: Number of wanted sources that are left out.
        count: Maximum number of sources; None: all.
    """
    # sorted runs of sources without their keys: the end of 50,000 pairs of a key and a source would hold the loop
    runs: list[list[Any]] = []
    total = 0

    def order(source: Any) -> tuple[int, float, str]:
        return _sort_key(key(source))

    for first in range(0, len(sources), STEP_ROWS):
        if first:
            yield
        part = sources[first : first + STEP_ROWS]
        run = [source for source in part if wanted is None or wanted(source)]
        run.sort(key=order, reverse=descending)
        runs.append(run)
        total += len(run)
    stop = total if count is None else min(start + count, total)
    if len(runs) == 1:
        return runs[0][start:stop], total
    ordered = merge(*runs, key=order, reverse=descending)
    chosen: list[Any] = []
    for first in range(0, stop, STEP_ROWS):
        yield
        part = list(islice(ordered, min(STEP_ROWS, stop - first)))
        chosen += part[max(0, start - first) :]
    return chosen, total


def _sort_key(value: object) -> tuple[int, float, str]:
    """Numbers before texts; an absent value is like an empty text."""
    if isinstance(value, int | float):
        return (1, value, "")
    return (2, 0, "" if value is None else str(value))


def find(rows: Rows[I], key: Sequence[str], name: str) -> Generator[None, None, I | None]:
    """The item of a key, or None. Pauses after ``STEP_ROWS`` rows.

    Args:
        rows: Rows of a collection.
        key: Fields that identify an item together.
        name: Values of these fields, joined with ``:``.
    """
    if rows.find is not None:
        source = rows.find(name)
        return None if source is None else rows.item(source)
    read = [rows.readers[field] for field in key]
    for number, source in enumerate(rows.sources):
        if number and not number % STEP_ROWS:
            yield
        if ":".join(str(each(source)) for each in read) == name:
            return rows.item(source)
    return None
