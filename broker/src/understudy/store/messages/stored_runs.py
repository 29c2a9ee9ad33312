"""Runs of messages that are read from the log for their delivery: one read for all queues of an address.

Queues of an address that are served in the same turns want the same messages. What one of them reads is kept for the
others, a few runs for each address and a bounded number altogether; those of the address that wanted one longest ago
leave first.
Every record is checked when it is read (``kernel.log.read_run``). A message that cannot be delivered like that is left
to ``read_ahead``, which gives the reason.

Not here: which messages (``routing``), reading a single one (``read_back``).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from understudy.errors import StoreError
from understudy.kernel.log import Run, read_run
from understudy.store.messages.columns import Columns
from understudy.store.messages.read_ahead import GAP_BYTES
from understudy.store.messages.reference import Location, unpack_location

#: Runs that are kept of one address, and of all.
RUNS_OF_ADDRESS: Final = 8
RUNS: Final = 64


class StoredRuns:
    """Runs that were read from the log of one node."""

    __slots__ = ("_count", "_fetch", "_resolve", "_runs", "_seed", "reads")

    def __init__(
        self,
        fetch: Callable[[int, int, int], bytes],
        resolve: Callable[[Location], Location],
        seed: Callable[[int], int],
    ) -> None:
        """
        Args:
            fetch: Reads bytes of a segment: its number, an offset and a length; fewer bytes at the end.
            resolve: Gives the location now for one that was given out before.
            seed: Seed of the crc of every record of a segment, given its number.
        """
        self._fetch = fetch
        self._resolve = resolve
        self._seed = seed
        self._runs: dict[object, list[Run]] = {}
        """Owner to its runs, the one that was read last at the end; the owner who wanted one last is last."""
        self._count = 0
        self.reads = 0
        """Number of reads of the disk."""

    def find(
        self, owner: object, columns: Columns, row: int, end: int, run_bytes: int, count: int
    ) -> tuple[Run, int, int] | None:
        """A run with the first of these messages, and the bounds of its rows that are these messages.

        Args:
            owner: Callers that give the same owner share the runs.
            columns: Has the messages as rows ``row`` to ``end``, the last one excluded, all of one segment.
            run_bytes: Most bytes of one read, unless the first record is longer.
            count: Most messages of one read.

        Returns:
            None: the first message has to be read alone.
        """
        message_id = columns.ids[row]
        own = self._runs.pop(owner, [])
        self._runs[owner] = own
        for run in reversed(own):
            first = run.row_of(message_id)
            if first >= 0:
                return run, first, first + _common(run, first, columns, row, end)
        found = self._read(columns, row, end, run_bytes, count)
        if found is None:
            return None
        own.append(found)
        self._count += 1
        if len(own) > RUNS_OF_ADDRESS:
            del own[0]
            self._count -= 1
        elif self._count > RUNS:
            self.forget(next(iter(self._runs)))
        return found, 0, found.count

    def forget(self, owner: object) -> None:
        """Drop the runs of an owner."""
        self._count -= len(self._runs.pop(owner, ()))

    def close(self) -> None:
        """Drop everything that was read."""
        self._runs.clear()
        self._count = 0

    def _read(self, columns: Columns, row: int, end: int, run_bytes: int, count: int) -> Run | None:
        try:
            location = columns.location(row)
            assert location is not None
            number, offset, length = unpack_location(self._resolve(location))
            offsets, lengths = array("I", (offset,)), array("I", (length,))
            position, last = offset + length, offset + run_bytes
            for each in range(row + 1, min(end, row + count)):
                location = columns.location(each)
                assert location is not None
                segment, offset, length = unpack_location(self._resolve(location))
                if segment != number or not 0 <= offset - position <= GAP_BYTES or offset + length > last:
                    break
                offsets.append(offset)
                lengths.append(length)
                position = offset + length
            data = self._fetch(number, offsets[0], position - offsets[0])
            seed = self._seed(number)
        except StoreError:
            # the read of that message alone meets the error, too, and it is handled there
            return None
        self.reads += 1
        ids = columns.ids[row : row + len(offsets)]
        place = number, offsets[0], seed
        return read_run(data, place, ids.tobytes(), offsets.tobytes(), lengths.tobytes())


def _common(run: Run, first: int, columns: Columns, row: int, end: int) -> int:
    """Number of rows of a run from ``first`` on that are the messages of the rows from ``row`` to ``end``, the last one
    excluded.
    """
    count = min(run.count - first, end - row)
    wanted = columns.ids[row : row + count]
    found = array("Q", run.ids(first, first + count))
    if found == wanted:
        return count
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(found, wanted, strict=True)))
