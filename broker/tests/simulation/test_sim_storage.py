"""Storage as processes see it: the dead have no effect, a crash can fall on any operation."""

from __future__ import annotations

import random

import pytest

from support.operations import FileApplier, batch
from understudy.errors import DiskFull
from understudy.runtime.base.turn import Turn
from understudy.testing.sim.environment import WALL_START_MS, SimClock, SimTimers, Skew
from understudy.testing.sim.loop import Death, ProcessKilled, SimLoop, SimProcess
from understudy.testing.sim.storage import CrashPoint, SharedStorage, StorageConditions


class Site:
    """A storage server and one process on each of two hosts."""

    def __init__(self, seed: int = 0) -> None:
        self.loop = SimLoop(seed)
        self.storage = SharedStorage(self.loop, StorageConditions())
        self.crash_point = CrashPoint(random.Random(seed))
        self.heard: list[float] = []
        self.a, self.b = self.process("a"), self.process("b")

    def process(self, host: str) -> SimProcess:
        process = self.loop.new_process(host)
        process.on_death(lambda death: self.storage.process_died(process, death))
        return process

    def environment(self, process: SimProcess):
        crash_point = self.crash_point if process is self.a else CrashPoint(random.Random(1))
        return self.storage.environment(process, Skew(), crash_point, self.heard.append)


@pytest.fixture
def site():
    site = Site()
    yield site
    assert site.loop.failures == []
    site.loop.close()


def make_file(disk, path="/store/x"):
    disk.make_directory("/store")
    return disk.open(path, create=True)


def test_a_process_sees_what_the_other_host_wrote(site):
    file = make_file(site.environment(site.a).disk)
    file.write(0, [b"he", b"llo"])
    disk = site.environment(site.b).disk
    assert disk.open("/store/x", read_only=True).read(0, 9) == b"hello"
    assert (disk.list("/store"), disk.exists("/store/x"), disk.modified_ns("/store/x") > 0) == (["x"], True, True)


def test_a_dead_process_has_no_effect(site):
    environment = site.environment(site.a)
    file = make_file(environment.disk)
    lock = environment.file_lock("/store/lock")
    assert lock.try_acquire()
    site.a.kill()
    for operation in (
        lambda: file.write(0, [b"late"]),
        file.sync,
        file.size,
        lambda: file.read(0, 1),
        lambda: environment.disk.remove("/store/x"),
        lambda: environment.disk.list("/store"),
        lock.try_acquire,
        lock.release,
    ):
        with pytest.raises(ProcessKilled):
            operation()
    file.close()  # a kernel closes the files of its dead
    assert site.storage.volume.content("/store/x") == b""
    assert site.environment(site.b).file_lock("/store/lock").try_acquire(), "the kernel dropped the lock"


def test_synced_data_survives_the_loss_of_power(site):
    file = make_file(site.environment(site.a).disk)
    file.write(0, [b"kept"])
    file.sync()
    site.environment(site.a).disk.sync_directory("/store")
    file.write(4, [b"open" * 1000])
    site.a.kill(Death.POWER_LOST)
    assert site.storage.volume.content("/store/x")[:4] == b"kept"


@pytest.mark.parametrize("operations", range(1, 6))
def test_a_crash_falls_on_the_operation_asked_for(operations):
    contents = set()
    for seed in range(20):
        site = Site(seed)
        file = make_file(site.environment(site.a).disk)
        site.crash_point.arm(operations, site.a.kill)
        for number in range(operations - 1):
            file.write(number, [b"x"])
        with pytest.raises(ProcessKilled):
            file.write(operations - 1, [b"x"])
        assert not site.a.alive
        contents.add(site.storage.volume.content("/store/x"))
        site.loop.close()
    assert contents == {b"x" * (operations - 1), b"x" * operations}, "before or after it took effect"


def test_a_disarmed_crash_point_does_nothing(site):
    site.crash_point.arm(1, site.a.kill)
    site.crash_point.disarm()
    make_file(site.environment(site.a).disk)
    assert site.a.alive


class Certain:
    """A ``Fence`` that never objects."""

    proved_until_ms = 0

    def why_not_confirm(self) -> BaseException | None:
        return None


def test_a_log_writer_tells_the_node_then_the_observer(site):
    environment = site.environment(site.a)
    file = make_file(environment.disk)
    done: list[object] = []
    turn = Turn(site.loop, environment.timers)
    writer = site.a.call(environment.log_writer, turn, FileApplier(file), Certain())
    site.a.call(writer.submit, batch(b"one"), lambda error: done.append((error, list(site.heard))))
    site.a.call(writer.run, lambda: done.append("ran"), done.append)
    site.loop.run_until(deadline=1.0)
    assert done == [(None, []), "ran", None]
    assert len(site.heard) == 1
    writer.close()


def test_an_expired_lease_is_granted_again(site):
    site.environment(site.a).disk.make_directory("/store")
    mine = site.environment(site.a).file_lock("/store/lock")
    theirs = site.environment(site.b).file_lock("/store/lock")
    assert mine.try_acquire()
    assert not theirs.try_acquire()
    site.storage.expire_leases("a")
    assert theirs.try_acquire()
    assert (mine.verify(), theirs.verify()) == (False, True)


def test_a_full_disk_refuses_growth_until_it_is_freed(site):
    file = make_file(site.environment(site.a).disk)
    site.storage.fill()
    with pytest.raises(DiskFull):
        file.write(0, [bytes(10_000)])
    site.storage.free()
    file.write(0, [bytes(10_000)])


def test_clocks_and_timers_follow_their_hosts_skew():
    loop = SimLoop(0)
    skew = Skew(wall_ms=-5000, boot_ms=700, rate=2.0)
    clock, timers = SimClock(loop, skew), SimTimers(loop, skew)
    rung: list[tuple[float, int, int]] = []
    timers.call_later(1000, lambda: rung.append((loop.time(), clock.wall_ms(), clock.monotonic_ms())))
    loop.run_until(deadline=10)
    assert rung == [(0.5, WALL_START_MS - 5000 + 1000, 700 + 1000)]
    loop.close()
