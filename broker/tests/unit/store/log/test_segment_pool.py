"""Goal: the file of a removed segment becomes a later one, only where no reader can take its old records, and never
costs a message its place.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.support.store import DIRECTORY, NODE_ID

from understudy.errors import DiskFull
from understudy.store.log.applier import Applier
from understudy.store.log.operations import (
    Append,
    CreateSegment,
    EmptyPool,
    GrowSegment,
    RemoveFile,
    SealSegment,
    SyncFile,
    TidyUp,
    WriteZeros,
)
from understudy.store.log.reading.replay import read_frames
from understudy.store.log.records import RecordType, SealRecord
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, frame, read_header, seed_of, segment_name
from understudy.store.log.segment_pool import PoolSettings, SegmentPool, parse_pool_name, pool_name
from understudy.store.retention import RetentionSettings
from understudy.testing.sim.disk import SimVolume

EPOCH = 3
SIZE = 64 * 1024
BODY = b"old" * 300


class Rig:
    """One applier with a pool on a simulated volume."""

    def __init__(self, settings: PoolSettings | None = None, *, retention: RetentionSettings | None = None) -> None:
        self.volume = SimVolume()
        self.disk = self.volume.disk("a")
        self.disk.make_directory(DIRECTORY)
        self.settings = settings or PoolSettings()
        self.pool, self.applier = self.start(retention)
        self.sequence = 0

    def start(self, retention: RetentionSettings | None = None) -> tuple[SegmentPool, Applier]:
        """A node begins with the files that are there."""
        self.disk = self.volume.disk("a")
        self.pool = SegmentPool(self.disk, DIRECTORY, self.settings)
        self.applier = Applier(self.disk, DIRECTORY, retention, pool=self.pool)
        return self.pool, self.applier

    def create(self, number: int, *, epoch: int = EPOCH, size: int = SIZE, first: bool = False) -> str:
        self.applier.apply([CreateSegment(SegmentHeader(NODE_ID, epoch, number, 1, size, first))])
        return segment_name(number, epoch)

    def append(self, number: int, count: int, *, at: int = HEADER_BLOCK_BYTES, body: bytes = BODY) -> int:
        """One batch; the offset of its end."""
        name, batch = segment_name(number, EPOCH), at
        for _ in range(count):
            self.sequence += 1
            raw = b"".join(frame(RecordType.MESSAGE_ADD, 0, self.sequence, batch, seed_of(number, EPOCH), body))
            self.applier.apply([Append(name, at, (raw,), len(raw), self.sequence)])
            at += len(raw)
        self.applier.apply([SyncFile(name)])
        return at

    def fill(self, number: int) -> None:
        """A segment is made, filled and sealed."""
        name = self.create(number)
        first = self.sequence + 1
        self.append(number, 60)
        self.sequence += 1
        seal = SealRecord(False, 0, 0, first, self.sequence - 1, 1, 2, 0, 0, ())
        self.applier.apply([SealSegment(name, seal, self.sequence, bytes(4 * 60))])

    def remove(self, number: int, *, retain: bool = True) -> None:
        self.applier.apply([RemoveFile(segment_name(number, EPOCH), retain=retain, sync=True)])

    def names(self) -> list[str]:
        return self.disk.list(DIRECTORY)

    def bodies(self, number: int) -> list[int]:
        """Lengths of the records of a segment."""
        file = self.disk.open(f"{DIRECTORY}/{segment_name(number, EPOCH)}", read_only=True)
        try:
            read_header(file, number, EPOCH)
            return [found.length for found, _ in read_frames(file, seed_of(number, EPOCH))]
        finally:
            file.close()


def test_names() -> None:
    assert parse_pool_name(pool_name(12, 3)) == (12, 3)
    assert parse_pool_name(pool_name(12, 3) + ".new") is None
    assert parse_pool_name(segment_name(12, 3)) is None


def test_a_removed_segment_becomes_a_later_one_and_its_records_are_not_read() -> None:
    rig = Rig()
    rig.fill(1)
    rig.remove(1)
    assert rig.names() == [pool_name(1, EPOCH)]
    operations: list[str] = []
    rig.volume.before_operation = operations.append
    rig.create(2)
    assert "create" not in operations
    assert "remove" not in operations
    assert rig.names() == [segment_name(2, EPOCH)]
    assert rig.volume.content(f"{DIRECTORY}/{segment_name(2, EPOCH)}").count(BODY) > 50, "its blocks were written"
    assert rig.bodies(2) == []
    end = rig.append(2, 2)
    assert rig.bodies(2) == [24 + len(BODY)] * 2
    content = rig.volume.content(f"{DIRECTORY}/{segment_name(2, EPOCH)}")
    assert len(content) == SIZE
    assert content[end : end + 24] == bytes(24), "a reader sees that nothing follows"
    rig.append(2, 1, at=end)
    assert len(rig.bodies(2)) == 3


def test_blocks_that_were_written_are_not_overwritten_with_zeros() -> None:
    rig = Rig()
    rig.fill(1)
    rig.remove(1)
    name = rig.create(2)
    before = rig.volume.operations
    rig.applier.apply([WriteZeros(name, HEADER_BLOCK_BYTES, 16 * 1024)])
    assert rig.volume.operations == before


def test_a_short_file_is_allocated_to_the_size_of_the_segment() -> None:
    rig = Rig()
    rig.fill(1)
    rig.remove(1)
    name = rig.create(2, size=2 * SIZE)
    assert len(rig.volume.content(f"{DIRECTORY}/{name}")) == 2 * SIZE
    rig.applier.apply([GrowSegment(name, 3 * SIZE)])
    assert len(rig.volume.content(f"{DIRECTORY}/{name}")) == 3 * SIZE


@pytest.mark.parametrize(
    ("number", "epoch"), [(1, EPOCH), (5, EPOCH - 1)], ids=["the same segment", "an earlier epoch"]
)
def test_a_file_is_not_used_for_a_segment_that_is_not_later(number: int, epoch: int) -> None:
    """Old records of the file could have the seed of the new ones: two nodes may begin the same epoch, and a store may
    be restored from a copy.
    """
    rig = Rig()
    rig.fill(1)
    rig.remove(1)
    name = rig.create(number, epoch=epoch)
    assert BODY not in rig.volume.content(f"{DIRECTORY}/{name}")
    assert rig.names() == [name], "the file that cannot be used is removed"


def test_the_first_segment_of_an_epoch_is_a_new_file() -> None:
    """The creation of that file decides between two nodes that begin the same epoch."""
    rig = Rig()
    rig.fill(1)
    rig.remove(1)
    name = rig.create(2, epoch=EPOCH + 1, first=True)
    assert rig.names() == [pool_name(1, EPOCH), name]


def test_only_a_segment_that_this_applier_sealed_is_kept() -> None:
    """An earlier process may be frozen, and write to the file when it goes on."""
    rig = Rig()
    rig.fill(1)
    rig.create(2)
    rig.start()
    rig.remove(1)
    rig.remove(2)
    assert rig.names() == []


def test_a_segment_that_was_prepared_and_not_used_is_removed() -> None:
    rig = Rig()
    rig.create(1)
    rig.remove(1, retain=False)
    assert rig.names() == []


def test_with_retention_segments_are_moved_and_none_is_kept() -> None:
    rig = Rig(retention=RetentionSettings("/kept"))
    rig.fill(1)
    rig.remove(1)
    assert rig.names() == []
    assert rig.disk.list("/kept") == [segment_name(1, EPOCH)]


def test_a_file_with_a_second_name_is_not_written_again() -> None:
    rig = Rig()
    rig.fill(1)
    rig.disk.link(f"{DIRECTORY}/{segment_name(1, EPOCH)}", f"{DIRECTORY}/copy")
    content = rig.volume.content(f"{DIRECTORY}/copy")
    rig.remove(1)
    name = rig.create(2)
    rig.append(2, 1)
    assert rig.volume.content(f"{DIRECTORY}/copy") == content
    assert rig.names() == ["copy", name]


@pytest.mark.parametrize("settings", [PoolSettings(files_max=2), PoolSettings(bytes_max=2 * SIZE)])
def test_the_kept_files_are_bounded(settings: PoolSettings) -> None:
    rig = Rig(settings)
    for number in range(1, 6):
        rig.fill(number)
    for number in range(1, 6):
        rig.remove(number)
    assert rig.names() == [pool_name(1, EPOCH), pool_name(2, EPOCH)]


def test_none_is_kept_with_journal_pool_files_0() -> None:
    rig = Rig(PoolSettings(files_max=0))
    rig.fill(1)
    rig.remove(1)
    assert rig.names() == []


def test_a_start_uses_the_files_of_an_earlier_activation_up_to_the_bounds() -> None:
    rig = Rig()
    for number in range(1, 5):
        rig.fill(number)
    for number in range(1, 5):
        rig.remove(number)
    rig.settings = PoolSettings(files_max=2)
    rig.start()
    rig.applier.apply([TidyUp(EPOCH + 1, (), ())])
    assert rig.names() == [pool_name(1, EPOCH), pool_name(2, EPOCH)]
    assert rig.applier.kept == (2, sum(rig.disk.open(f"{DIRECTORY}/{name}").size() for name in rig.names()))
    rig.create(9, epoch=EPOCH + 1)
    assert rig.applier.kept[0] == 1


def test_a_start_that_has_lost_the_store_leaves_the_files_alone() -> None:
    rig = Rig(PoolSettings(files_max=1))
    rig.fill(1)
    rig.remove(1)
    rig.create(2, epoch=EPOCH + 5, first=True)
    rig.settings = PoolSettings(files_max=0)
    rig.start()
    rig.applier.apply([TidyUp(EPOCH + 1, (), ())])
    assert pool_name(1, EPOCH) in rig.names()


def test_a_file_with_another_header_than_its_name_says_is_not_used() -> None:
    """A later use of the file had begun, and the power failed before all names of the file were durable."""
    rig = Rig()
    rig.fill(1)
    rig.remove(1)
    rig.disk.rename(f"{DIRECTORY}/{pool_name(1, EPOCH)}", f"{DIRECTORY}/{pool_name(2, EPOCH)}")
    rig.start()
    rig.pool.adopt()
    name = rig.create(3)
    assert BODY not in rig.volume.content(f"{DIRECTORY}/{name}")
    assert rig.names() == [name]


def test_a_file_that_another_node_has_taken_is_passed_over() -> None:
    rig = Rig()
    for number in (1, 2):
        rig.fill(number)
    for number in (1, 2):
        rig.remove(number)
    rig.disk.remove(f"{DIRECTORY}/{pool_name(1, EPOCH)}")
    name = rig.create(3)
    assert rig.names() == [name]


@pytest.mark.parametrize("grow", [False, True])
def test_a_full_disk_gets_the_kept_files_back(grow: bool) -> None:
    """A larger segment is made, or one that is ready grows."""
    rig = Rig()
    for number in (1, 2, 3):
        rig.fill(number)
    if grow:
        rig.create(4)
    for number in (1, 2, 3):
        rig.remove(number)
    rig.volume.capacity_bytes = rig.volume.used_bytes()
    if grow:
        rig.applier.apply([GrowSegment(segment_name(4, EPOCH), 2 * SIZE)])
    else:
        rig.create(4, size=2 * SIZE)
    assert rig.names() == [segment_name(4, EPOCH)]
    rig.volume.capacity_bytes = rig.volume.used_bytes()
    with pytest.raises(DiskFull):
        rig.create(5)


def test_the_kept_files_are_removed_on_request() -> None:
    rig = Rig()
    rig.fill(1)
    rig.remove(1)
    rig.applier.apply([EmptyPool()])
    assert rig.names() == []
    assert rig.applier.kept[0] == 0


@pytest.mark.parametrize("seed", range(40))
def test_a_power_failure_between_any_two_steps_leaves_nothing_that_is_read(seed: int) -> None:
    """Segments are removed and made again until the power fails in one of the steps. Synced records are
    read back.
    """
    stream = random.Random(seed)
    rig = Rig(PoolSettings(files_max=3))
    left = [stream.randrange(1, 200)]

    def count(operation: str) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise InterruptedError

    synced: dict[int, int] = {}
    first, number = 1, 1
    rig.volume.before_operation = count
    try:
        while True:
            rig.create(number)
            end = HEADER_BLOCK_BYTES
            for _ in range(3):
                end = rig.append(number, 4, at=end)
                synced[number] = synced.get(number, 0) + 4
            start = rig.sequence - 11
            rig.sequence += 1
            seal = SealRecord(False, 0, 0, start, rig.sequence - 1, 1, 2, 0, 0, ())
            rig.applier.apply([SealSegment(segment_name(number, EPOCH), seal, rig.sequence, bytes(4 * 12))])
            number += 1
            if number - first > 2:
                synced.pop(first)
                rig.remove(first)
                first += 1
    except InterruptedError:
        pass
    rig.volume.before_operation = lambda operation: None
    rig.volume.power_loss(stream)
    rig.start()
    for each, records in synced.items():
        found = rig.bodies(each)
        assert len(found) >= records
        assert set(found[:12]) <= {24 + len(BODY)}
        assert len(found) <= 13, "three batches and the seal"
    rig.applier.apply([TidyUp(EPOCH + 1, tuple(rig.names()), ())])
    later = replace(SegmentHeader(NODE_ID, EPOCH + 1, number + 5, 1, SIZE, False))
    for more in range(5):
        rig.applier.apply([CreateSegment(replace(later, number=later.number + more))])
    for each, records in synced.items():
        assert len(rig.bodies(each)) >= records, "no file of the log is used for another segment"
    assert not any(map(parse_pool_name, rig.names())), "every kept file was used"
