"""Goal: an epoch begins completely or not at all, and leaves no rubbish."""

from __future__ import annotations

import random

import pytest
from tests.support.store import DIRECTORY, NODE_ID, Crashed, StoreHarness

from understudy.errors import DiskFailed, DiskFull, LockLost
from understudy.ports import File
from understudy.store.log.applier import Applier
from understudy.store.log.chain import EpochStart
from understudy.store.log.epoch import begin_epoch
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.records import EpochRecord
from understudy.store.log.segment import parse_name, segment_name
from understudy.store.log.tidying import tidy
from understudy.store.settings import StoreSettings
from understudy.testing.sim.disk import SimDisk
from understudy.tools.inspect import read_log


class ReadOnlyDisk(SimDisk):
    """A mount that refuses writes."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if create or not read_only:
            raise DiskFailed(f"cannot open {path}: Read-only file system")
        return super().open(path, read_only=True)


def begin(rig: StoreHarness, disk: SimDisk) -> None:
    begin_epoch(rig.follower(disk.owner), Applier(disk, DIRECTORY), rig.time, NODE_ID, 65536)


def test_every_activation_is_an_epoch_that_states_the_ends() -> None:
    rig = StoreHarness(random.Random(1))
    starts = []
    for epoch in (1, 2, 3):
        store = rig.activate("a")
        assert store.epoch == epoch
        starts.append(store.epoch_start)
        rig.queue()
        rig.settle()
        rig.die(power_loss=False)
    found = [logged for logged in read_log(rig.disk("j"), DIRECTORY) if isinstance(logged.record, EpochRecord)]
    epochs = [logged.record for logged in found if isinstance(logged.record, EpochRecord)]
    assert [record.epoch for record in epochs] == [1, 2, 3]
    assert starts == [
        EpochStart(record.epoch, record.epoch - 1, record.activated_ms, logged.frame.sequence)
        for logged, record in zip(found, epochs, strict=True)
    ]
    assert [(end.epoch) for end in epochs[-1].ends] == [1, 2]


def test_crash_at_every_step_of_an_activation_and_of_its_clean_up() -> None:
    tidied = 0
    for step in range(1, 25):
        for seed in range(6):
            rig = StoreHarness(random.Random(seed))
            rig.activate("a")
            rig.queue()
            rig.settle()
            rig.die(power_loss=False)
            before = recover(rig.volume.copy().disk("j"), DIRECTORY).state
            rig.crash_at(step)
            try:
                rig.activate("b")
                tidied += 1
                rig.settle()
            except Crashed:
                rig.owner = "b"
            rig.die(power_loss=seed > 2)
            after = recover(rig.volume.copy().disk("j"), DIRECTORY).state
            assert after.sequence in (before.sequence, before.sequence + 1)
            assert after.queues == before.queues
            store = rig.activate("c")
            assert store.epoch > after.epoch
            assert store.state.queues == before.queues
            rig.settle()
            assert_tidy(rig)
            rig.die(power_loss=False)
    assert tidied > 40, "most crashes must be while the node tidies up"


def assert_tidy(rig: StoreHarness) -> None:
    """Check that segments of older epochs have nothing but the log in them."""
    store = rig.store
    assert store is not None
    ends = {segment_name(number, use.epoch): use.end for number, use in store.state.segments.items()}
    for path in rig.segments():
        name = path.rsplit("/", 1)[1]
        parsed = parse_name(name)
        assert parsed is not None
        if parsed[1] < store.epoch:
            assert len(rig.volume.content(path)) == ends[name], path


def test_unused_segments_of_older_epochs_are_removed_and_the_rest_is_cut() -> None:
    rig = StoreHarness(random.Random(1))
    rig.activate("a")
    rig.settle()
    assert len(rig.segments()) == 2
    rig.die(power_loss=False)
    rig.volume.disk("a").open(f"{DIRECTORY}/{segment_name(9, 1)}.new", create=True)
    store = rig.activate("b")
    rig.settle()
    names = [path.rsplit("/", 1)[1] for path in rig.segments()]
    assert [parse_name(name) for name in names] == [(1, 1, True), (10, 2, True), (11, 2, True)]
    assert len(rig.volume.content(rig.segments()[0])) == 4096 + 64
    assert store.epoch == 2


def test_a_node_that_was_overtaken_tidies_nothing() -> None:
    """Files of the overtaken node may be part of the log that the other node has begun."""
    rig = StoreHarness(random.Random(1))
    rig.activate("a")
    rig.queue()
    rig.settle()
    rig.die(power_loss=False)
    disk = rig.disk("b")
    late = begin_epoch(rig.follower("b"), Applier(disk, DIRECTORY), rig.time, NODE_ID, 65536)
    begin_epoch(rig.follower("c"), Applier(rig.disk("c"), DIRECTORY), rig.time, NODE_ID, 65536)
    before = {path: rig.volume.content(path) for path in rig.volume.paths()}
    tidy(disk, DIRECTORY, late.state.epoch, late.names, late.ends)
    assert {path: rig.volume.content(path) for path in rig.volume.paths()} == before


def test_a_failed_clean_up_stops_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = StoreHarness(random.Random(1))
    rig.activate("a")
    rig.queue()
    rig.settle()
    rig.die(power_loss=False)
    epoch = begin_epoch(rig.follower("b"), Applier(rig.disk("b"), DIRECTORY), rig.time, NODE_ID, 65536)

    def refused(self: SimDisk, directory: str) -> list[str]:
        raise DiskFailed(f"cannot list {directory}: Input/output error")

    monkeypatch.setattr(SimDisk, "list", refused)
    tidy(rig.disk("b"), DIRECTORY, epoch.state.epoch, epoch.names, epoch.ends)
    assert "Input/output error" in str([record.__dict__.get("error") for record in caplog.records])


@pytest.mark.parametrize("seed", range(10))
def test_space_of_removed_files_is_used_at_once(seed: int) -> None:
    """On a disk with space for one segment, that of the epoch; the prepared one needs the space of the old one."""
    rig = StoreHarness(random.Random(seed))
    rig.activate("a")
    rig.queue()
    rig.settle()
    rig.die(power_loss=False)
    rig.settings = StoreSettings(65536, disk_usage_percent_max=-1)
    rig.volume.capacity_bytes = rig.volume.used_bytes() + 65536 + 5000
    store = rig.activate("b")
    for _ in range(10):
        store.flush()
        rig.time.advance(10)
    assert not store.full, store.full_reason


def test_a_takeover_opens_as_few_files_of_a_long_log_as_of_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a network file system each is half a dozen requests."""
    opened: list[str] = []
    opening = SimDisk.open

    def counted(self: SimDisk, path: str, *, create: bool = False, read_only: bool = False) -> File:
        opened.append(path)
        return opening(self, path, create=create, read_only=read_only)

    counts = []
    for messages in (1, 400):
        rig = StoreHarness(random.Random(1))
        rig.activate("a")
        rig.queue()
        for _ in range(messages):
            rig.send()
            rig.settle()
        follower = rig.follower("b")
        while follower.poll(1 << 20) or not follower.caught_up:
            continue
        rig.die(power_loss=False)
        segments = len(rig.segments())
        with monkeypatch.context() as patch:
            patch.setattr(SimDisk, "open", counted)
            opened.clear()
            rig.activate("b", follower)
        counts.append((segments, len(opened)))
    (few, opened_of_few), (many, opened_of_many) = counts
    assert many > few + 5
    assert opened_of_many <= opened_of_few + 3


def test_a_zombies_records_are_kept_for_the_curious() -> None:
    rig = StoreHarness(random.Random(1))
    rig.activate("a")
    rig.queue()
    rig.settle()
    rig.activate("b")
    # written by the old node into the segment it had prepared: not part of the log
    stray = f"{DIRECTORY}/{segment_name(7, 1)}"
    file = rig.disk("a").open(stray, create=True)
    file.write(0, (b"\1" * 5000,))
    rig.settle()
    rig.die(power_loss=False)
    rig.activate("c")
    assert stray in rig.segments()


def test_a_read_only_store_says_so() -> None:
    rig = StoreHarness(random.Random(1))
    rig.activate("a")
    rig.settle()
    rig.die(power_loss=False)
    with pytest.raises(DiskFailed, match="read-only"):
        begin(rig, ReadOnlyDisk(rig.volume, "b"))


def test_a_full_disk_at_activation_is_reported() -> None:
    rig = StoreHarness(random.Random(1))
    rig.volume.capacity_bytes = 1000
    with pytest.raises(DiskFull, match="epoch 1"):
        rig.activate("a")
    assert rig.volume.paths() == []


def test_two_nodes_that_activate_at_once_do_not_both_get_the_epoch() -> None:
    rig = StoreHarness(random.Random(1))
    other = rig.disk("b")

    def create(operation: str) -> None:
        if operation == "create":
            rig.volume.before_operation = lambda later: None
            other.open(f"{DIRECTORY}/{segment_name(1, 1)}.new", create=True).close()

    rig.volume.before_operation = create
    with pytest.raises(LockLost):
        rig.activate("a")


def test_the_first_segment_has_its_record_when_it_has_its_name() -> None:
    rig = StoreHarness(random.Random(1))
    seen: list[bytes] = []

    def look(operation: str) -> None:
        if operation == "rename":
            seen.append(rig.volume.content(f"{DIRECTORY}/{segment_name(1, 1)}.new"))

    rig.volume.before_operation = look
    rig.activate("a")
    assert seen[0][4096 + 20] == 1


class VanishingDisk(SimDisk):
    """Segments that hold no record yet are removed by another node between being listed and being opened."""

    removals = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if read_only and not create and path in self.spares:
            self.spares.remove(path)
            self.remove(path)
            self.removals += 1
        return super().open(path, create=create, read_only=read_only)

    spares: list[str]


def test_segments_that_a_zombie_removes_meanwhile_do_not_stop_an_activation() -> None:
    rig = StoreHarness(random.Random(5))
    store = rig.activate("a")
    rig.queue()
    rig.settle()
    used = {segment_name(number, 1) for number in store.state.segments}
    spares = [name for name in rig.disk("j").list(DIRECTORY) if parse_name(name) is not None and name not in used]
    assert spares
    disk = VanishingDisk(rig.volume, "b")
    disk.spares = [f"{DIRECTORY}/{name}" for name in spares]
    begin_epoch(Follower(disk, DIRECTORY), Applier(disk, DIRECTORY), rig.time, NODE_ID, 65536)
    assert disk.removals
