"""Goal: after a copy and operations that follow, a replica has the files of the active store byte by byte, whatever
was in its directories before, and wherever the copy was cut off before it succeeded.

Method: a real store under random load on a simulated volume (messages, transactions, bodies, consolidation, small
segments), copied in steps that are mixed with the load at random to a replica on another volume. All messages and
operations are encoded and decoded. Whenever nothing is written, the files of both volumes are compared, and the
replica is read by a follower.
"""

from __future__ import annotations

import random

import pytest

from support.replication import BODIES, Copying, Replica, ReplicatedHarness, differences, store_files
from support.store import DIRECTORY, Crashed
from support.store_model import contents_of
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import QueueRecord
from understudy.store.replication import copy_source
from understudy.store.replication.replica_state import ReplicaStatus, read_replica_state
from understudy.testing.sim.disk import SimVolume

KINDS = ["empty", "prefix", "diverged", "torn", "trimmed"]


@pytest.fixture(autouse=True)
def several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_source, "LITTLE_BYTES", 20_000)


def begun(seed: int) -> ReplicatedHarness:
    rig = ReplicatedHarness(random.Random(seed))
    rig.activate("node 0")
    rig.act(60)
    return rig


def earlier_data(kind: str, rig: ReplicatedHarness) -> SimVolume | None:
    """A volume with data of a kind, while the store goes on."""
    if kind == "empty":
        return None
    rig.rest()
    volume = rig.volume.copy()
    if kind == "diverged":
        other = ReplicatedHarness(random.Random(1), volume)
        store = other.activate("another node")
        store.store_queue(QueueRecord(3, 1, "q", 1))
        other.rest()
        other.die(power_loss=False)
    if kind == "torn":
        path = max(path for path in volume.paths() if "/segment-" in path and recover_end(volume)[0] in path)
        file = volume.disk("damage").open(path)
        file.write(recover_end(volume)[1], (b"\x99" * 100,))
        file.sync()
    rig.act(20)
    if kind == "trimmed":
        for _ in range(4):
            rig.fill()
            rig.act(10)
            rig.rest()
    return volume


def recover_end(volume: SimVolume) -> tuple[str, int]:
    """Name of the last segment with records, and where they end."""
    ends = recover(volume.disk("reader"), DIRECTORY).ends()
    return f"segment-{ends[-1].number:012d}", ends[-1].end


def settle(rig: ReplicatedHarness) -> None:
    """Until nothing is written on either side."""
    rig.rest()
    assert rig.link.replica is not None
    for _ in range(1000):
        if rig.link.replica.progress.durable == rig.link.index:
            return
        rig.time.advance(5)
    raise AssertionError("the replica does not follow")


def check_equal(rig: ReplicatedHarness, replica: Replica) -> None:
    settle(rig)
    assert not replica.failures
    assert differences(rig.volume, replica.volume) == []
    unsynced = differences(replica.volume, replica.volume.synced_copy())
    assert [path for path in unsynced if not path.endswith(".tmp")] == []
    active = contents_of(recover(rig.disk("reader"), DIRECTORY).state)
    assert contents_of(recover(replica.disk(), DIRECTORY).state) == active
    assert rig.link.replica is not None
    assert rig.store is not None
    assert rig.link.replica.progress.sequence == rig.store.last_sequence
    assert read_replica_state(replica.disk(), DIRECTORY).status is ReplicaStatus.IN_SYNC


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_replica_has_the_same_files(seed: int, kind: str) -> None:
    rig = begun(seed)
    before = earlier_data(kind, rig)
    kept = store_files(before) if before is not None else {}
    replica = Replica(random.Random(seed), before)
    copying = Copying(rig, replica)
    copying.run(turns_between=6)
    check_equal(rig, replica)
    assert copying.source.passes >= 2
    for _ in range(3):
        rig.act(40)
        check_equal(rig, replica)
    paths = [path for path in replica.volume.paths() if "/oldreplica.1/" in path]
    saved = {path.replace("/oldreplica.1", ""): replica.volume.content(path) for path in paths}
    if kind in ("diverged", "trimmed"):
        assert {path: saved.get(path) for path in kept} == kept
    else:
        assert not saved
    if kind in ("prefix", "torn"):
        assert copying.source.sent_bytes < sum(map(len, store_files(rig.volume).values()))


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_succeeds_after_the_replica_was_killed_anywhere(seed: int) -> None:
    choice = random.Random(seed)
    rig = begun(seed)
    replica = Replica(random.Random(seed), earlier_data(choice.choice(KINDS), rig))
    for _ in range(8):
        left = [choice.randrange(1, 120)]

        def crash(operation: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] <= 0:
                raise Crashed(operation)

        replica.volume.before_operation = crash
        copying = Copying(rig, replica)
        try:
            copying.run(turns_between=3)
        except Crashed:
            pass
        copying.kill_replica()
        replica.kill(power_loss=choice.random() < 0.5)
        state = read_replica_state(replica.disk(), DIRECTORY)
        if state.status is ReplicaStatus.IN_SYNC:
            recover(replica.disk(), DIRECTORY)
    Copying(rig, replica).run(turns_between=3)
    rig.act(30)
    check_equal(rig, replica)


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_from_the_next_activation_succeeds_after_the_active_node_was_killed(seed: int) -> None:
    choice = random.Random(seed)
    rig = begun(seed)
    replica = Replica(random.Random(seed))
    for number in range(1, 4):
        copying = Copying(rig, replica)
        for _ in range(choice.randrange(60)):
            if not copying.over:
                copying.step()
            rig.act(1)
        copying.give_up()
        rig.die(power_loss=choice.random() < 0.5)
        rig.activate(f"node {number}")
        contents = contents_of(recover(rig.disk("reader"), DIRECTORY).state)
        rig.resume_from(contents)
        rig.act(10)
    Copying(rig, replica).run(turns_between=3)
    rig.act(30)
    check_equal(rig, replica)


def test_a_full_disk_ends_the_copy_with_an_error_and_the_next_one_succeeds() -> None:
    rig = begun(1)
    replica = Replica(random.Random(1), SimVolume(100_000))
    copying = Copying(rig, replica)
    copying.run()
    assert copying.source.failure is not None
    assert copying.source.failure.code == "disk-full"
    assert "No space left" in copying.source.failure.reason
    assert read_replica_state(replica.disk(), DIRECTORY).status is ReplicaStatus.INCOMPLETE
    copying.give_up()
    replica.volume.capacity_bytes = 1 << 40
    Copying(rig, replica).run()
    check_equal(rig, replica)


def test_a_failed_sync_ends_the_copy() -> None:
    rig = begun(2)
    replica = Replica(random.Random(1))
    replica.volume.fail_next_sync()
    copying = Copying(rig, replica)
    copying.run()
    assert copying.source.failure is not None
    assert copying.source.failure.code == "disk-failed"
    assert read_replica_state(replica.disk(), DIRECTORY).status is not ReplicaStatus.IN_SYNC


@pytest.mark.parametrize(("saved_max", "expected"), [(0, []), (1, [5]), (2, [4, 5]), (-1, [1, 2, 3, 4, 5])])
def test_as_many_earlier_copies_are_kept_as_configured(saved_max: int, expected: list[int]) -> None:
    rig = begun(3)
    volume = earlier_data("diverged", rig)
    assert volume is not None
    lock = volume.disk("setup").open(f"{DIRECTORY}/server.lock", create=True)
    lock.sync()
    volume.disk("setup").sync_directory(DIRECTORY)
    volume.disk("setup").open(f"{BODIES}/7.large", create=True).close()
    original = volume.copy()
    replica = Replica(random.Random(1), volume, saved_max)
    for number in range(5):
        if number:
            # the data of another node again, beside the earlier copies
            for path, content in store_files(original).items():
                if replica.volume.disk("setup").exists(path):
                    replica.volume.disk("setup").remove(path)
                file = replica.volume.disk("setup").open(path, create=True)
                file.write(0, (content,))
                file.sync()
        copying = Copying(rig, replica)
        copying.run()
        check_equal(rig, replica)
        rig.link.replica = None
    for base in (DIRECTORY, BODIES):
        names = replica.disk().list(base)
        assert [name for name in names if name.startswith("oldreplica.")] == [f"oldreplica.{n}" for n in expected]
    assert replica.disk().exists(f"{DIRECTORY}/server.lock")
