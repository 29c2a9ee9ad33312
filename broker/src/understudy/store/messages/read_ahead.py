"""Reading messages back: one read for a run of records that lie next to each other.

A deep queue is drained in the order it was filled, so the next message of the queue is
mostly the next one in the log too. A reader announces the messages it will ask for next; those that
lie near enough are read at once and kept until the next read. One reader serves one queue, so queues
do not take each other's run away; its memory is bounded.

Not here: where bytes come from and how a record is checked (``message_store``, ``pages``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from understudy.errors import DescriptorsExhausted, DiskFailed, JournalCorrupt, SegmentMissing
from understudy.message import Message
from understudy.store.messages.reference import Location, unpack_location

#: Most bytes of one run; beyond it a larger read is not faster.
RUN_BYTES: Final = 256 * 1024
#: Bytes of other records between two messages, above which the messages are read separately.
GAP_BYTES: Final = 8 * 1024

Fetch = Callable[[int, int, int], bytes]
"""Function that reads bytes of a segment: its number, an offset and a length; fewer bytes at the end."""
Decode = Callable[[Location, bytes | memoryview], Message]
"""A record's bytes, checked, to its message."""


class RunReader:
    """Reader of the messages of one queue; messages that are neighbours in the log come by one read."""

    __slots__ = (
        "_again",
        "_data",
        "_decode",
        "_end",
        "_fetch",
        "_messages_max",
        "_number",
        "_resolve",
        "_run_bytes",
        "_start",
        "runs",
    )

    def __init__(
        self,
        fetch: Fetch,
        decode: Decode,
        run_bytes: int = RUN_BYTES,
        messages_max: int = -1,
        resolve: Callable[[Location], Location] = lambda location: location,
        again: Callable[[Location], Message] | None = None,
    ) -> None:
        """Args:
        fetch: Reads bytes.
        decode: Checks and decodes a record.
        run_bytes: Most bytes kept; a larger record is read for itself.
        messages_max: Most records of one run, -1 for any number.
        resolve: Gives the location now for one that was given out before.
        """
        self._fetch = fetch
        self._decode = decode
        self._resolve = resolve
        self._again = again
        self._run_bytes = run_bytes
        self._messages_max = messages_max
        self._number = self._start = self._end = -1
        self._data = memoryview(b"")
        self.runs = 0
        """Number of reads of the disk."""

    def read(self, location: Location, upcoming: Iterable[Location | None] = ()) -> Message:
        """The message of a record.

        Args:
            upcoming: Where those lie that will be asked for next, in order.

        Raises:
            JournalCorrupt: the bytes there are not that record.
            DiskFailed: it cannot be read.
        """
        location = self._resolve(location)
        number, offset, length = unpack_location(location)
        try:
            if number != self._number or offset < self._start or offset + length > self._end:
                self._read_run(number, offset, length, upcoming)
            start = offset - self._start
            return self._decode(location, self._data[start : start + length])
        except (SegmentMissing, DescriptorsExhausted):
            raise
        except (JournalCorrupt, DiskFailed):
            # the neighbours that were read with it may be wrong, too
            self._number = -1
            if self._again is None:
                raise
            return self._again(location)

    def _read_run(self, number: int, offset: int, length: int, upcoming: Iterable[Location | None]) -> None:
        end = offset + length
        last = offset + self._run_bytes
        left = self._messages_max - 1
        for following in upcoming:
            if following is None or not left:
                break
            try:
                next_number, next_offset, next_length = unpack_location(self._resolve(following))
            except JournalCorrupt:
                # the read of that message by itself reports the error
                break
            if next_number != number or not 0 <= next_offset - end <= GAP_BYTES or next_offset + next_length > last:
                break
            end = next_offset + next_length
            left -= 1
        # let go of the old run before the new one is made
        self._data = memoryview(b"")
        try:
            data = self._fetch(number, offset, end - offset)
        except DiskFailed:
            if end == offset + length:
                raise
            # perhaps a neighbour of the message cannot be read
            data = self._fetch(number, offset, length)
        self.runs += 1
        self._data = memoryview(data)
        self._number, self._start, self._end = number, offset, offset + len(data)
