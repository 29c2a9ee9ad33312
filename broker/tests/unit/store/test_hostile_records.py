"""Records that somebody wrote on purpose, with right checksums (found by fuzzing): every reader says where."""

from __future__ import annotations

import struct

import pytest

from fuzz.targets_store import parts_of, volume_of
from support.store import DIRECTORY
from understudy.errors import JournalCorrupt
from understudy.store.follower import recover
from understudy.store.records import RecordType
from understudy.store.retained import RetainedCounts, retained_messages
from understudy.store.segment import HEADER_BLOCK_BYTES

HUGE = struct.pack("<QQQqqBBHI", 1, 0, 1, 0, 0, 4, 0, 0, 0xFFFFFFFF)
CASES = {
    "an acknowledgement of nothing": (int(RecordType.ACKNOWLEDGE), 0, b""),
    "an acknowledgement cut short": (int(RecordType.ACKNOWLEDGE), 0, b"12345678901"),
    "a commit of nothing": (int(RecordType.TX_COMMIT), 0, b""),
    "a message for four thousand million queues": (int(RecordType.MESSAGE_ADD), 0, HUGE),
    "a message of nothing": (int(RecordType.MESSAGE_ADD), 0, b""),
    "a type of nobody": (99, 0, b"x"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_log_is_refused_where_it_is_wrong(name: str) -> None:
    disk = volume_of(parts_of([CASES[name]])).disk("reader")
    with pytest.raises(JournalCorrupt) as caught:
        recover(disk, DIRECTORY)
    assert caught.value.offset > HEADER_BLOCK_BYTES


@pytest.mark.parametrize("name", ["a commit of nothing", "a message of nothing"])
def test_so_are_retained_segments(name: str) -> None:
    disk = volume_of(parts_of([CASES[name]])).disk("reader")
    with pytest.raises(JournalCorrupt) as caught:
        list(retained_messages(disk, DIRECTORY, RetainedCounts()))
    assert caught.value.offset > HEADER_BLOCK_BYTES
