"""Goal: the simulated disk forgets exactly what a real one may forget."""

from __future__ import annotations

import random

import pytest

from support.operations import FileApplier, batch
from understudy.errors import DiskFailed, DiskFull
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.disk import SECTOR_BYTES, SimVolume
from understudy.testing.sim.writer import SimLogWriter


@pytest.fixture
def volume() -> SimVolume:
    volume = SimVolume()
    volume.disk("a").make_directory("/d")
    return volume


def test_unsynced_writes_survive_a_crash_but_not_surely_a_power_cut() -> None:
    outcomes = set()
    for seed in range(200):
        volume = SimVolume()
        volume.disk("a").make_directory("/d")
        disk = volume.disk("a")
        file = disk.open("/d/f", create=True)
        file.write(0, (b"1" * 2048,))
        file.sync()
        disk.sync_directory("/d")
        file.write(512, (b"2" * 1024,))
        volume.crash_process("a")
        assert volume.content("/d/f") == b"1" * 512 + b"2" * 1024 + b"1" * 512
        volume.power_loss(random.Random(seed))
        content = volume.content("/d/f")
        assert content[:512] == content[1536:] == b"1" * 512
        outcomes.add(content[512:1536:SECTOR_BYTES])
    # each sector lives or dies by itself
    assert outcomes == {b"11", b"12", b"21", b"22"}


def test_names_need_their_directory_synced() -> None:
    outcomes = set()
    for seed in range(100):
        volume = SimVolume()
        volume.disk("a").make_directory("/d")
        disk = volume.disk("a")
        file = disk.open("/d/f", create=True)
        file.write(0, (b"x",))
        file.sync()
        disk.rename("/d/f", "/d/g")
        volume.power_loss(random.Random(seed))
        outcomes.add(tuple(volume.paths()))
    assert outcomes == {(), ("/d/f",), ("/d/g",)}


def test_a_synced_copy_is_what_a_power_cut_is_sure_to_leave(volume: SimVolume) -> None:
    disk = volume.disk("a")
    file = disk.open("/d/f", create=True)
    file.write(0, (b"kept",))
    file.sync()
    disk.sync_directory("/d")
    file.write(4, (b"lost",))
    disk.open("/d/g", create=True)
    copy = volume.synced_copy()
    assert [(path, copy.content(path)) for path in copy.paths()] == [("/d/f", b"kept")]
    copy.flip_bit("/d/f", 0, 0)
    assert volume.content("/d/f") == b"keptlost"


def test_synced_lasts(volume: SimVolume) -> None:
    disk = volume.disk("a")
    file = disk.open("/d/f", create=True)
    file.write(0, (b"abc", b"def"))
    file.sync()
    disk.rename("/d/f", "/d/g")
    disk.sync_directory("/d")
    for seed in range(20):
        volume.power_loss(random.Random(seed))
        assert volume.content("/d/g") == b"abcdef"


def test_a_sync_covers_only_its_own_machine() -> None:
    lost = 0
    for seed in range(50):
        volume = SimVolume()
        a, b = volume.disk("a"), volume.disk("b")
        a.make_directory("/d")
        mine = a.open("/d/f", create=True)
        a.sync_directory("/d")
        theirs = b.open("/d/f")
        mine.write(0, (b"a" * 512,))
        theirs.write(512, (b"b" * 512,))
        theirs.sync()
        volume.power_loss(random.Random(seed), "a")
        content = volume.content("/d/f")
        assert content[512:] == b"b" * 512
        lost += content[:512] != b"a" * 512
        assert theirs.read(512, 1) == b"b"
    assert 0 < lost < 50


def test_the_dead_are_refused(volume: SimVolume) -> None:
    disk = volume.disk("a")
    file = disk.open("/d/f", create=True)
    lock = volume.lock("/d/l", "a")
    assert lock.try_acquire()
    volume.crash_process("a")
    for action in (lambda: file.write(0, (b"x",)), lambda: disk.list("/d"), lock.try_acquire):
        with pytest.raises(DiskFailed, match="dead"):
            action()
    assert not lock.verify()
    assert volume.lock("/d/l", "b").try_acquire()


def test_full(volume: SimVolume) -> None:
    disk = volume.disk("a")
    volume.capacity_bytes = 1000
    file = disk.open("/d/f", create=True)
    file.allocate(900)
    file.write(100, (b"x" * 800,))
    with pytest.raises(DiskFull):
        file.write(900, (b"x" * 101,))
    with pytest.raises(DiskFull):
        file.allocate(1001)
    assert disk.space("/d").free_bytes == 100
    disk.remove("/d/f")
    assert disk.space("/d").free_bytes == 1000


def test_a_failed_sync_drops_the_unsynced_bytes(volume: SimVolume) -> None:
    disk = volume.disk("a")
    file = disk.open("/d/f", create=True)
    file.write(0, (b"1",))
    file.sync()
    file.write(0, (b"2",))
    volume.fail_next_sync()
    with pytest.raises(DiskFailed):
        file.sync()
    file.sync()
    assert file.read(0, 1) == b"1"


def test_times_rise_with_changes(volume: SimVolume) -> None:
    disk = volume.disk("a")
    file = disk.open("/d/f", create=True)
    first = disk.modified_ns("/d/f")
    file.write(0, (b"x",))
    second = disk.modified_ns("/d/f")
    disk.touch("/d/f")
    assert first < second < disk.modified_ns("/d/f")


def test_write_and_sync_are_two_steps(volume: SimVolume) -> None:
    time = ManualTime()
    operations: list[str] = []
    file = volume.disk("a").open("/d/f", create=True)
    writer = SimLogWriter(time, random.Random(1), FileApplier(file), latency_ms_max=10)
    volume.before_operation = operations.append
    done: list[BaseException | None] = []
    writer.submit(batch(b"a"), done.append)
    writer.run(lambda: operations.append("work"), done.append)
    while len(operations) < 1:
        time.advance(1)
    assert operations == ["write"]
    assert done == []
    time.advance(100)
    assert operations == ["write", "sync", "work"]
    assert done == [None, None]
    assert writer.idle


def test_errors_reach_done_and_the_killed_say_nothing(volume: SimVolume) -> None:
    time = ManualTime()
    file = volume.disk("a").open("/d/f", create=True)
    writer = SimLogWriter(time, random.Random(1), FileApplier(file))
    volume.fail_next_sync()
    done: list[BaseException | None] = []
    writer.submit(batch(b"a"), done.append)
    time.advance(100)
    assert [type(error) for error in done] == [DiskFailed]
    writer.submit(batch(b"a"), done.append)
    writer.kill()
    time.advance(100)
    assert len(done) == 1
