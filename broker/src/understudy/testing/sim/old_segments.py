"""Files of removed segments that an earlier activation has kept: simulated nodes begin with some, so that old records
lie after the end of nearly every segment that they write (ADR 0175).

The old records are those of a node whose history was another one: they are whole, and their sequences are higher than
those of the run. A reader that does not check the seed of a record takes them for records of the log, or for proof
that the end of the log is damaged.
"""

from __future__ import annotations

import functools
from typing import Final

from understudy.ids import NodeId
from understudy.store.log.records import RecordType
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, encode_header, frame, seed_of
from understudy.store.log.segment_pool import pool_name
from understudy.testing.sim.disk import SimVolume

#: Number of files that a node begins with.
OLD_SEGMENTS: Final = 12
_NODE_ID: Final = NodeId("00000000-0000-0000-0000-000000000001")
_BODY: Final = b"a record of an earlier life"
_FIRST_SEQUENCE: Final = 1_000_000


def leave_old_segments(volume: SimVolume, directory: str, size_bytes: int) -> None:
    """Put the files into the directory of a log, synced.

    Args:
        volume: Where the log is going to be.
        directory: Absolute path of the log.
        size_bytes: Size of a segment.
    """
    disk = volume.disk("earlier")
    disk.make_directory(directory)
    for number in range(1, OLD_SEGMENTS + 1):
        file = disk.open(f"{directory}/{pool_name(number, 0)}", create=True)
        file.write(0, [_old_segment(number, seed_of(number, 0), size_bytes)])
        file.truncate(size_bytes)
        file.sync()
        file.close()
    disk.sync_directory(directory)


@functools.lru_cache(maxsize=2 * OLD_SEGMENTS)
def _old_segment(number: int, seed: int, size_bytes: int) -> bytes:
    # Every node of every run begins with the same files: a run took a seventh of its time to make them.
    # Epoch 0 is that of no activation, so each segment of the run is later.
    parts = [encode_header(SegmentHeader(_NODE_ID, 0, number, 0, size_bytes, False))]
    at, sequence = HEADER_BLOCK_BYTES, number * _FIRST_SEQUENCE
    while True:
        raw = b"".join(frame(RecordType.DELIVERY_COUNT, 0, sequence, at, seed, _BODY))
        if at + len(raw) > size_bytes:
            return b"".join(parts)
        parts.append(raw)
        at, sequence = at + len(raw), sequence + 1
