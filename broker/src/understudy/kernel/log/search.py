"""Search for records of one segment among other bytes: those of a batch that is not whole, damage, and what the file
of the segment held in an earlier use (docs/build/journal-format.md s. 2.3).

Native twin: ``broker/kernel/src/log/search.rs``.
"""

from __future__ import annotations

import re
import struct
from typing import Final
from zlib import crc32

from understudy.kernel.log.crc import crc32_combine

__all__ = ["find_record"]

#: Crc, length, sequence, batch, type, flags, zero.
_HEADER: Final = struct.Struct("<IIQIBBH")
_HEADER_BYTES: Final = _HEADER.size
#: Records begin after the header block of a segment.
_HEADER_BLOCK_BYTES: Final = 4096
#: A record's header with the crc, length, sequence and batch free: type, flags, zero.
_CANDIDATE: Final = re.compile(rb"(?=.{20}[\x01-\x0f\x28-\x2a][\x00-\x07]\x00\x00)", re.DOTALL)
#: From this length on the crc of a record is computed from those of the beginnings of the data, whose ends have this
#: distance.
_LONG_BYTES: Final = 64 * 1024


class _Beginnings:
    """Crcs of the beginnings of data, with which the crc of any part of it takes a bounded time.

    Among message ids there is a possible header every eight bytes, with any length.
    """

    def __init__(self, data: bytes) -> None:
        self._view = memoryview(data)
        self._crcs: list[int] = []

    def _upto(self, end: int) -> int:
        index = end // _LONG_BYTES
        return crc32(self._view[index * _LONG_BYTES : end], self._crcs[index])

    def part(self, seed: int, begin: int, end: int) -> int:
        """Crc of a part that follows data with the crc ``seed``."""
        if end - begin < _LONG_BYTES:
            return crc32(self._view[begin:end], seed)
        if not self._crcs:
            self._crcs.append(0)
            for at in range(0, len(self._view) - _LONG_BYTES + 1, _LONG_BYTES):
                self._crcs.append(crc32(self._view[at : at + _LONG_BYTES], self._crcs[-1]))
        return crc32_combine(seed ^ self._upto(begin), self._upto(end), end - begin)


def find_record(data: bytes, at: int, origin: int, seed: int, above: int, after: int, /) -> int:
    """Index of the first valid record of a segment in ``data``, from the index ``at`` on; -1: there is none.

    Args:
        data: Bytes of the segment.
        at: Index at which the search begins.
        origin: Where ``data`` lies in the file.
        seed: Crc seed of the segment.
        above: Sequence it must be higher than.
        after: Offset after which its batch must lie (docs/build/journal-format.md s. 2.2); -1 for any.

    Raises:
        IndexError: ``at`` lies after the data.
    """
    if at > len(data):
        raise IndexError(f"index {at} in {len(data)} bytes")
    beginnings = _Beginnings(data)
    for match in _CANDIDATE.finditer(data, at):
        place = match.start()
        crc, length, sequence, batch, _, _, _ = _HEADER.unpack_from(data, place)
        if sequence <= above or not _HEADER_BLOCK_BYTES <= batch <= origin + place or batch <= after:
            continue
        if _HEADER_BYTES <= length <= len(data) - place and beginnings.part(seed, place + 4, place + length) == crc:
            return place
    return -1
