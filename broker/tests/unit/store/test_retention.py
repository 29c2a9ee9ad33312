"""Goal: with a retention directory, removed segments and the bodies of their large messages are kept whole, are
removed by age and by size, and no error of that directory stops the store.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.support.store import DIRECTORY, StoreHarness

from understudy.errors import DiskFailed
from understudy.store.log.reading.follower import recover
from understudy.store.log.segment import parse_name
from understudy.store.retention import Retention, RetentionSettings
from understudy.store.snapshots.reserve import RESERVE_NAME
from understudy.testing.sim.disk import SimDisk
from understudy.tools.retained import RetainedCounts, retained_messages

KEPT = "/kept/here"


def busy(settings: RetentionSettings | None, seed: int = 4, count: int = 400) -> StoreHarness:
    """A store that has trimmed much: everything sent is acknowledged."""
    rig = StoreHarness(random.Random(seed))
    rig.settings = replace(rig.settings, retention=settings)
    rig.activate("a")
    rig.queue()
    for _ in range(count):
        rig.send()
        rig.acknowledge()
        rig.settle()
    return rig


def kept(rig: StoreHarness) -> list[str]:
    return [name for name in rig.disk("judge").list(KEPT) if parse_name(name)]


def test_what_leaves_the_log_is_kept_whole() -> None:
    rig = busy(RetentionSettings(KEPT))
    names = kept(rig)
    assert len(names) >= 4
    numbers = sorted(parse_name(name)[0] for name in names)  # type: ignore[index]
    assert numbers == list(range(1, len(numbers) + 1))
    in_store = [path.rsplit("/", 1)[1] for path in rig.segments() if path.startswith(DIRECTORY + "/")]
    assert not set(in_store) & set(names)
    counts = RetainedCounts()
    messages = list(retained_messages(rig.disk("judge"), KEPT, counts))
    assert counts.segments == len(names)
    assert counts.messages == len(messages)
    for retained in messages:
        assert retained.record.encoded == rig.bodies[retained.record.message_id]
    ids = [retained.record.message_id for retained in messages]
    assert ids == sorted(rig.bodies)[: len(ids)]
    recover(rig.disk("judge"), DIRECTORY)


def test_the_newest_stay_within_the_limit() -> None:
    without = kept(busy(RetentionSettings(KEPT)))
    rig = busy(RetentionSettings(KEPT, bytes_max=3 * 64 * 1024))
    names = kept(rig)
    assert 1 <= len(names) <= 3
    assert names == without[-len(names) :]
    assert kept(busy(RetentionSettings(KEPT, bytes_max=0))) == []


def test_the_old_go_by_their_seal() -> None:
    rig = busy(RetentionSettings(KEPT, period_ms=10_000))
    assert rig.store is not None
    names = kept(rig)
    assert names
    # nothing is trimmed any more, but time passes
    rig.time.advance(70_000)
    rig.store.check_disk()
    rig.settle()
    assert kept(rig) == []


class OtherFileSystem(SimDisk):
    """Nothing can be renamed into the retention directory."""

    def rename(self, source: str, target: str) -> None:
        if target.startswith(KEPT) and not source.startswith(KEPT):
            raise DiskFailed(f"cannot rename {source}: Invalid cross-device link")
        super().rename(source, target)


def test_another_file_system_gets_a_copy() -> None:
    rig = busy(None, count=60)
    path = rig.segments()[0]
    content = rig.volume.content(path)
    disk = OtherFileSystem(rig.volume, "a")
    Retention(disk, RetentionSettings(KEPT)).retire(path)
    assert disk.exists(path)
    assert rig.volume.content(f"{KEPT}/{path.rsplit('/', 1)[1]}") == content
    assert disk.list(KEPT) == [path.rsplit("/", 1)[1]]


def bodies(rig: StoreHarness) -> list[int]:
    return sorted(int(name.removesuffix(".large")) for name in rig.disk("judge").list(KEPT) if name.endswith(".large"))


def retire_bodies(rig: StoreHarness, *file_ids: int, size_bytes: int = 100) -> None:
    """Retire large bodies as ``LargeMessages`` does once the last reference is gone."""
    disk = rig.disk("a")
    disk.make_directory("/large")
    for file_id in file_ids:
        file = disk.open(f"/large/{file_id}.large", create=True)
        file.write(0, (bytes(size_bytes),))
        file.close()
        Retention(disk, RetentionSettings(KEPT)).retire(f"/large/{file_id}.large")
        assert not disk.exists(f"/large/{file_id}.large")


def ids_of(rig: StoreHarness, name: str) -> list[int]:
    """Ids of the messages that were added in a retained segment."""
    number, epoch, _ = parse_name(name)  # type: ignore[misc]
    return [
        retained.record.message_id
        for retained in retained_messages(rig.disk("judge"), KEPT, RetainedCounts())
        if (retained.header.number, retained.header.epoch) == (number, epoch)
    ]


def test_a_body_is_kept_as_long_as_the_segment_of_its_message() -> None:
    rig = busy(RetentionSettings(KEPT))
    disk = rig.disk("a")
    names = kept(rig)
    first, second = ids_of(rig, names[0]), ids_of(rig, names[1])
    # a message of each of the two oldest segments, and one that the log has still
    retire_bodies(rig, first[0], second[0], rig.store.next_id())  # type: ignore[union-attr]
    everything = bodies(rig)
    total = sum(len(rig.volume.content(f"{KEPT}/{name}")) for name in rig.disk("judge").list(KEPT))
    Retention(disk, RetentionSettings(KEPT, bytes_max=total)).prune(0)
    assert (kept(rig), bodies(rig)) == (names, everything)
    Retention(disk, RetentionSettings(KEPT, bytes_max=total - 1)).prune(0)
    assert (kept(rig), bodies(rig)) == (names[1:], everything[1:])
    # no segment is left: only bodies with ids after all of them are kept
    Retention(disk, RetentionSettings(KEPT, bytes_max=100)).prune(0)
    assert (kept(rig), bodies(rig)) == ([], everything[2:])
    Retention(disk, RetentionSettings(KEPT, bytes_max=99)).prune(0)
    assert bodies(rig) == []


def test_bodies_go_with_segments_that_are_too_old() -> None:
    rig = busy(RetentionSettings(KEPT))
    names = kept(rig)
    retire_bodies(rig, *(ids_of(rig, name)[0] for name in names))
    Retention(rig.disk("a"), RetentionSettings(KEPT, period_ms=1)).prune(rig.time.wall_ms() + 10_000)
    assert (kept(rig), bodies(rig)) == ([], [])


def test_an_epoch_that_ended_a_segment_says_nothing_of_its_messages() -> None:
    """A segment without a seal is read for the ids in it."""
    rig = StoreHarness(random.Random(4))
    rig.activate("a")
    rig.queue()
    rig.send()
    rig.settle()
    (message_id,) = rig.bodies
    path = rig.segments()[0]
    rig.disk("a").make_directory(KEPT)
    Retention(rig.disk("a"), RetentionSettings(KEPT)).retire(path)
    retire_bodies(rig, message_id - 1, message_id)
    Retention(rig.disk("a"), RetentionSettings(KEPT)).prune(0)
    assert bodies(rig) == [message_id]


class NoRoom(SimDisk):
    def make_directory(self, path: str) -> None:
        raise DiskFailed(f"cannot make {path}: Read-only file system")


def test_a_file_that_cannot_be_kept_is_removed() -> None:
    rig = busy(None, count=60)
    path = rig.segments()[0]
    Retention(NoRoom(rig.volume, "a"), RetentionSettings(KEPT)).retire(path)
    Retention(NoRoom(rig.volume, "a"), RetentionSettings("/nowhere")).prune(10**15)
    assert rig.disk("judge").exists(path)


@pytest.mark.parametrize("of_log", [RESERVE_NAME, f"snapshot-{1:020}-{1:010}.snap"])
def test_the_log_of_a_store_is_not_pruned(of_log: str) -> None:
    """A full disk takes the reserve away; then a snapshot tells that this is a log."""
    rig = busy(None, count=60)
    disk = rig.disk("judge")
    disk.remove(f"{DIRECTORY}/{RESERVE_NAME}")
    disk.open(f"{DIRECTORY}/{of_log}", create=True).close()
    before = rig.segments()
    Retention(rig.disk("a"), RetentionSettings(DIRECTORY, period_ms=1, bytes_max=0)).prune(10**15)
    assert rig.segments() == before
