"""Outstanding deliveries of one channel by their tags: ranges of neighbours, without an object for each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from understudy.dataclass import dataclass


@dataclass(slots=True)
class DeliveredRange:
    """Deliveries of one consumer whose tags follow each other."""

    first_tag: int
    consumer_id: int
    ids: Sequence[int]
    """Message ids, in the order of their tags."""

    @property
    def end_tag(self) -> int:
        """The tag after the last one."""
        return self.first_tag + len(self.ids)

    def message_id(self, tag: int) -> int:
        """Id of the message that was delivered with a tag of the range."""
        return self.ids[tag - self.first_tag]

    def split(self, tag: int) -> DeliveredRange:
        """Keep the deliveries before a tag. Returns the others."""
        count = tag - self.first_tag
        rest = DeliveredRange(tag, self.consumer_id, self.ids[count:])
        self.ids = self.ids[:count]
        return rest

    def join(self, first_tag: int, consumer_id: int, ids: Sequence[int]) -> bool:
        """Append deliveries, if they follow these and so do their messages. Returns whether they do."""
        own = self.ids
        if (
            consumer_id != self.consumer_id
            or first_tag != self.end_tag
            or not isinstance(own, range)
            or not isinstance(ids, range)
            or own.stop != ids.start
        ):
            return False
        self.ids = range(own.start, ids.stop)
        return True


#: Ranges in front of the list that are taken and still in it, from which number on they are removed.
_TAKEN_MAX = 1024


class Unacknowledged:
    """Outstanding deliveries of one channel, in the order of their tags."""

    def __init__(self) -> None:
        self._ranges: list[DeliveredRange] = []
        self._begin = 0
        """Index of the first range that is outstanding: taking from the front moves nothing."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[DeliveredRange]:
        for index in range(self._begin, len(self._ranges)):
            yield self._ranges[index]

    @property
    def first_tag(self) -> int | None:
        """Tag of the first delivery; None: there is none."""
        return self._ranges[self._begin].first_tag if self._count else None

    def find(self, tag: int) -> DeliveredRange | None:
        """The range with a delivery; None: it is not outstanding."""
        index = self._index(tag)
        return self._ranges[index] if index >= 0 else None

    def add(self, first_tag: int, consumer_id: int, ids: Sequence[int]) -> None:
        """Add deliveries, whose tags are higher than all others."""
        self._count += len(ids)
        if len(self._ranges) == self._begin or not self._ranges[-1].join(first_tag, consumer_id, ids):
            self._ranges.append(DeliveredRange(first_tag, consumer_id, ids))

    def take(self, tag: int) -> list[DeliveredRange]:
        """Take one delivery; nothing if there is none of this tag."""
        index = self._index(tag)
        return [self._cut(index, tag, tag + 1)] if index >= 0 else []

    def take_each(self, tags: Sequence[int]) -> list[DeliveredRange]:
        """Take deliveries, up to the first one that is not outstanding. Returns them in the order of their tags.

        Args:
            tags: Tags in any order.
        """
        if len(tags) == 1:
            return self.take(tags[0])
        ordered = sorted(set(tags))
        stretches = _stretches(ordered)
        if len(ordered) == len(tags) and all(self._has(first, end) for first, end in stretches):
            return [taken for first, end in stretches for taken in self._take_stretch(first, end)]
        single: list[DeliveredRange] = []
        for tag in tags:
            taken = self.take(tag)
            if not taken:
                break
            single += taken
        return sorted(single, key=_first_tag)

    def _has(self, first: int, end: int) -> bool:
        """Whether all deliveries from a tag to another one, which is excluded, are outstanding."""
        while first < end:
            index = self._index(first)
            if index < 0:
                return False
            first = self._ranges[index].end_tag
        return True

    def _take_stretch(self, first: int, end: int) -> Iterator[DeliveredRange]:
        """Take all deliveries from a tag to another one, which is excluded; all are outstanding."""
        while first < end:
            index = self._index(first)
            taken = self._cut(index, first, min(end, self._ranges[index].end_tag))
            first = taken.end_tag
            yield taken

    def _cut(self, index: int, first: int, end: int) -> DeliveredRange:
        """Take the deliveries from a tag to another one, which is excluded, out of a range that has them."""
        found = self._ranges[index]
        taken = found if found.first_tag == first else found.split(first)
        rest = taken.split(end)
        self._count -= end - first
        if taken is found and rest.ids:
            self._ranges[index] = rest
        elif taken is found and index == self._begin:
            self._begin += 1
            self._compact()
        elif taken is found:
            del self._ranges[index]
        elif rest.ids:
            self._ranges.insert(index + 1, rest)
        return taken

    def take_through(self, tag: int) -> list[DeliveredRange]:
        """Take all deliveries up to one; nothing if there is none of this tag."""
        return self.take_before(tag) if self._index(tag) >= 0 else []

    def take_before(self, tag: int) -> list[DeliveredRange]:
        """Take all deliveries whose tag is not above one, which need not be outstanding."""
        index = bisect_right(self._ranges, tag, lo=self._begin, key=_first_tag) - 1
        if index < self._begin:
            return []
        rest = self._ranges[index].split(tag + 1)
        taken = self._ranges[self._begin : index + 1]
        if rest.ids:
            self._ranges[index] = rest
            self._begin = index
        else:
            self._begin = index + 1
        self._count -= sum(len(each.ids) for each in taken)
        self._compact()
        return taken

    def take_all(self) -> list[DeliveredRange]:
        """Take every delivery."""
        taken = self._ranges[self._begin :]
        self._ranges, self._begin, self._count = [], 0, 0
        return taken

    def restore(self, ranges: list[DeliveredRange]) -> None:
        """Deliveries that were taken are outstanding again."""
        self._ranges = sorted([*self, *ranges], key=_first_tag)
        self._begin = 0
        self._count += sum(len(each.ids) for each in ranges)

    def _index(self, tag: int) -> int:
        """Index of the range with a delivery; -1: it is not outstanding."""
        index = bisect_right(self._ranges, tag, lo=self._begin, key=_first_tag) - 1
        return index if index >= self._begin and tag < self._ranges[index].end_tag else -1

    def _compact(self) -> None:
        if self._begin >= _TAKEN_MAX and 2 * self._begin >= len(self._ranges):
            del self._ranges[: self._begin]
            self._begin = 0


def _stretches(tags: list[int]) -> list[tuple[int, int]]:
    """Tags that follow each other as pairs of the first one and the one after the last.

    Args:
        tags: Different tags in rising order.
    """
    found: list[tuple[int, int]] = []
    first = end = tags[0]
    for tag in tags:
        if tag != end:
            found.append((first, end))
            first = tag
        end = tag + 1
    found.append((first, end))
    return found


def _first_tag(each: DeliveredRange) -> int:
    return each.first_tag
