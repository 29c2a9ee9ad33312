"""Goal: records after the end of a log are found at any offset, bytes of an earlier use of the file are not taken for
records, and blocks that were never written are not read.
"""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from tests.support.store import StoreHarness

from understudy.runtime.base.disk import RealDisk
from understudy.store.log.reading.blank_tail import BlankTails
from understudy.store.log.records import RecordType
from understudy.store.log.segment import HEADER_BLOCK_BYTES, frame, seed_of, segment_name
from understudy.testing.sim.disk import SimFile

MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file of 3 MiB and a bit: 100 bytes written, the rest reserved."""
    place = str(tmp_path / segment_name(12, 3))
    file = RealDisk().open(place, create=True)
    file.allocate(3 * MIB + 5)
    file.write(0, (b"x" * 100,))
    file.sync()
    file.close()
    return place


def is_blank(path: str, offset: int, above: int = 0) -> bool:
    return BlankTails(RealDisk()).is_blank(path, offset, above)


def record(sequence: int, *, number: int = 12, body: bytes = b"") -> bytes:
    return b"".join(frame(RecordType.MESSAGE_ADD, 0, sequence, HEADER_BLOCK_BYTES, seed_of(number, 3), body))


def test_reserved_bytes_are_blank(path: str) -> None:
    assert is_blank(path, 100)
    assert not is_blank(path, 99)
    assert is_blank(path, 3 * MIB + 5)
    assert is_blank(path, 9 * MIB)


@pytest.mark.parametrize("at", [4196, MIB - 1, MIB, MIB + 100, 2 * MIB + 77, 3 * MIB + 5 - 24])
def test_a_record_anywhere_is_found(path: str, at: int) -> None:
    file = RealDisk().open(path)
    file.write(at, (record(8),))
    file.close()
    assert not is_blank(path, 4100)
    assert not is_blank(path, 4100, 7)
    assert is_blank(path, at + 24)


def test_bytes_of_an_earlier_use_are_blank(path: str) -> None:
    """Records of another segment, whole, cut off and with later sequences, after the zeros of the end."""
    old = b"".join(record(sequence, number=11, body=b"old" * 50) for sequence in range(5, 5_000))
    file = RealDisk().open(path)
    file.write(4100 + 24, (old[10:],))
    file.close()
    assert is_blank(path, 4100, 7)
    assert is_blank(path, 4100)


def test_a_batch_that_was_begun_is_found_before_bytes_of_an_earlier_use(path: str) -> None:
    """The first record of the batch is cut off, or only a later record was written."""
    old = b"".join(record(sequence, number=11, body=b"old" * 50) for sequence in range(5, 1_000))
    file = RealDisk().open(path)
    file.write(4100, (old[10:],))
    file.write(4100, (record(8, body=b"new" * 50)[:100],))
    assert not is_blank(path, 4100, 7)
    file.write(4100, (bytes(24),))
    assert is_blank(path, 4100, 7)
    file.write(9000, (record(9, body=b"new"),))
    file.close()
    assert not is_blank(path, 4100, 7)


def test_written_zeros_are_blank(path: str) -> None:
    file = RealDisk().open(path)
    file.write(200, (bytes(2 * MIB),))
    file.close()
    assert is_blank(path, 100)


def test_a_file_system_that_knows_nothing_is_read(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot_tell(descriptor: int, offset: int, whence: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "lseek", cannot_tell)
    assert is_blank(path, 100)
    assert not is_blank(path, 99)
    assert is_blank(path, 9 * MIB)


def test_a_file_of_many_parts_is_read_to_its_end(tmp_path: Path) -> None:
    place = str(tmp_path / segment_name(12, 3))
    file = RealDisk().open(place, create=True)
    file.allocate(8 * MIB)
    for at in range(0, 8 * MIB, 64 * 1024):
        file.write(at, (bytes(4096),))
    assert is_blank(place, 0)
    file.write(8 * MIB - 24, (record(1),))
    file.close()
    assert not is_blank(place, 0)


def test_reserved_bytes_are_not_read(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is in the cache because the beginning of the block before it was read."""
    sizes: list[int] = []
    reading = os.pread

    def read(descriptor: int, length: int, offset: int) -> bytes:
        data = reading(descriptor, length, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", read)
    assert is_blank(path, 100)
    assert sum(sizes) <= MIB // 4


def test_each_place_is_looked_at_once(path: str) -> None:
    tails = BlankTails(RealDisk())
    assert tails.is_blank(path, 100, 0)
    file = RealDisk().open(path)
    file.write(100, (b"later",))
    file.close()
    assert tails.is_blank(path, 100, 0)
    tails.forget()
    assert not tails.is_blank(path, 100, 0)
    with pytest.raises(FileNotFoundError):
        tails.is_blank(path + ".none", 0, 0)


def test_the_end_of_a_log_is_found_without_reading_unwritten_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A take-over on a network file system must not transfer the empty part of the segments."""
    rig = StoreHarness(random.Random(1), segment_bytes=4 * MIB)
    rig.activate("a")
    rig.queue()
    rig.send()
    rig.settle()
    follower = rig.follower("b")
    while follower.poll(MIB) or not follower.caught_up:
        continue
    rig.die(power_loss=False)
    sizes: list[int] = []
    reading = SimFile.read

    def read(self: SimFile, offset: int, length: int) -> bytes:
        data = reading(self, offset, length)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(SimFile, "read", read)
    follower.finish()
    assert follower.torn is None
    assert sum(sizes) < 128 * 1024
