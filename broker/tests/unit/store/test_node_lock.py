"""Goal: the lock file proves which node owns the store."""

from __future__ import annotations

import random

import pytest

from understudy.errors import DiskFailed, StoreError
from understudy.store.node_lock import NodeLock
from understudy.testing.sim.disk import SimVolume

DIRECTORY = "/store"
PATH = "/store/server.lock"


class SeededEntropy:
    def __init__(self, seed: int) -> None:
        self._stream = random.Random(seed)

    def token(self, length_bytes: int) -> bytes:
        return self._stream.randbytes(length_bytes)


@pytest.fixture
def volume() -> SimVolume:
    volume = SimVolume()
    volume.disk("setup").make_directory(DIRECTORY)
    return volume


def unopened(volume: SimVolume, owner: str, seed: int = 1) -> NodeLock:
    return NodeLock(volume.disk(owner), DIRECTORY, lambda path: volume.lock(path, owner), SeededEntropy(seed))


def node(volume: SimVolume, owner: str, seed: int = 1) -> NodeLock:
    lock = unopened(volume, owner, seed)
    assert lock.open()
    return lock


def test_the_first_node_chooses_the_id_and_it_lasts(volume: SimVolume) -> None:
    first = node(volume, "a", 1)
    assert volume.content(PATH)[:3] == b"000"
    assert len(volume.content(PATH)) == 19
    volume.power_loss(random.Random(1))
    assert node(volume, "b", 2).node_id == first.node_id
    assert first.node_id[14] == "1", "the version that tools of Artemis expect"


def test_state_byte(volume: SimVolume) -> None:
    lock = node(volume, "a")
    assert lock.read_state() == "0"
    for state in "NLFP":
        lock.write_state(state)
        assert lock.read_state() == state
        assert volume.content(PATH)[:1] == state.encode()
    assert len(volume.content(PATH)) == 19
    volume.disk("x").open(PATH).write(0, (b"?",))
    with pytest.raises(DiskFailed, match="0x3f"):
        lock.read_state()


def test_a_written_state_survives_a_power_cut(volume: SimVolume) -> None:
    node(volume, "a").write_state("L")
    volume.power_loss(random.Random(3))
    assert node(volume, "b").read_state() == "L"


def test_a_release_that_was_noted_counts_until_the_next_owner_touches_the_file(volume: SimVolume) -> None:
    first = node(volume, "a")
    first.read_state()
    assert first.was_released(), "no node was ever active"
    assert first.try_primary()
    first.write_state("L")
    first.read_state()
    assert not first.was_released(), "a killed owner notes nothing"
    first.note_release()
    volume.power_loss(random.Random(1), "a")
    second = node(volume, "b")
    assert second.try_primary()
    assert second.read_state() == "L"
    assert second.was_released()
    second.write_state("F")
    assert volume.content(PATH)[:3] == b"FR0"
    second.touch()
    assert volume.content(PATH)[:3] == b"F00"
    volume.power_loss(random.Random(1), "b")
    third = node(volume, "c")
    third.read_state()
    assert not third.was_released()
    assert third.node_id == second.node_id


def test_one_primary_one_backup(volume: SimVolume) -> None:
    a, b, c = node(volume, "a"), node(volume, "b"), node(volume, "c")
    assert a.try_primary()
    assert a.try_primary()
    assert not b.try_primary()
    assert b.try_backup()
    assert not c.try_backup()
    volume.crash_process("a")
    assert b.try_primary()
    b.release_backup()
    assert c.try_backup()
    b.close()
    assert c.try_primary()


def test_lost_when_not_held_or_revoked(volume: SimVolume) -> None:
    lock = node(volume, "a")
    assert "not held" in (lock.lost() or "")
    assert lock.try_primary()
    lock.write_state("L")
    assert lock.lost() is None
    volume.revoke_lock("/store/serverlock.1")
    assert "not locked by us" in (lock.lost() or "")


def test_lost_when_another_node_has_activated(volume: SimVolume) -> None:
    old, new = node(volume, "a"), node(volume, "b")
    assert old.try_primary()
    old.write_state("L")
    # the lease ran out without the old node's knowledge, and it even got the file lock back
    new.touch()
    assert "touched by another node" in (old.lost() or "")


def test_a_primary_that_asks_for_the_store_is_no_loss(volume: SimVolume) -> None:
    active, returning = node(volume, "a"), node(volume, "b")
    assert active.try_primary()
    active.write_state("L")
    returning.write_state("F")
    assert active.lost() is None
    active.write_state("L")
    assert active.lost() is None


def test_lost_when_the_file_vanishes(volume: SimVolume) -> None:
    lock = node(volume, "a")
    assert lock.try_primary()
    lock.write_state("L")
    volume.disk("x").remove(PATH)
    assert "vanished" in (lock.lost() or "")


def test_a_short_file_is_completed_and_a_foreign_one_refused(volume: SimVolume) -> None:
    disk = volume.disk("x")
    disk.open(PATH, create=True).close()
    assert node(volume, "a").read_state() == "0"
    disk.open(PATH).write(0, (b"0" * 30,))
    with pytest.raises(StoreError, match="no lock file"):
        node(volume, "b")


def test_only_one_node_chooses_the_id(volume: SimVolume) -> None:
    choosing = volume.lock(PATH, "other")
    assert choosing.try_acquire()
    lock = unopened(volume, "a")
    assert not lock.open()
    assert volume.content(PATH) == b"", "the file that the lock is on has no id yet"
    choosing.release()
    assert lock.open()
    # once there is an id, that lock is not needed
    assert choosing.try_acquire()
    assert node(volume, "b", 2).node_id == lock.node_id
