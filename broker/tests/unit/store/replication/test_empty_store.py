"""A node that sets its data aside and begins an empty store (ADR 0126)."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.support.store import DIRECTORY, NODE_ID, Crashed, StoreHarness

from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.log.segment import segment_name
from understudy.store.replication import empty_store
from understudy.store.replication.last_batch import apply_last_batch, read_last_batch
from understudy.store.replication.old_replicas import saved_numbers
from understudy.store.replication.replica_state import ReplicaStatus, read_replica_state
from understudy.store.replication.store_files import StoreDirectories, list_store
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.testing.sim.disk import SimVolume

ADDRESS, XID = 7, b"a branch"
NOT_CONFIRMED = b"not confirmed"


class Pair:
    """The log of a node, and the copy that its replica took over with."""

    def __init__(self) -> None:
        self.rig = StoreHarness(random.Random(1))
        store = self.store = self.rig.activate("node")
        store.store_address(AddressRecord(ADDRESS, "orders", (1,)))
        store.store_queue(QueueRecord(8, ADDRESS, "orders", 1))
        store.store_setting(SettingRecord(SettingKind.ADDRESS, "orders", {"max_size_bytes": 1}))
        store.store_setting(SettingRecord(SettingKind.SCALE_DOWN, "another node", {}))
        store.store_duplicate_ids(ADDRESS, [b"confirmed"])
        store.store_prepare(9, XID)
        self.settle()
        self.before = self.rig.volume.copy()
        """The disk of the node, if it was killed before it had the last batch."""
        store.store_duplicate_ids(ADDRESS, [NOT_CONFIRMED])
        store.store_duplicate_ids(ADDRESS, [b"decided"], 10)
        store.store_commit(10)
        self.settle()
        self.common = store.last_sequence
        self.last_batch = read_last_batch(self.rig.volume.disk("replica"), DIRECTORY, self.common)
        store.store_duplicate_ids(ADDRESS, [b"only here"])
        self.settle()
        self.rig.die(power_loss=False)

    def settle(self) -> None:
        self.store.flush()
        self.rig.settle()


def planned_on(volume: SimVolume, pair: Pair, *, common: int | None = None) -> empty_store.EmptyPlan:
    end = (4, 900, pair.common if common is None else common)
    return empty_store.plan(volume.disk("node"), directories(volume), 3, end, pair.last_batch)


def directories(volume: SimVolume) -> StoreDirectories:
    return StoreDirectories(volume.disk("node"), DIRECTORY, "/bodies")


def begin(volume: SimVolume, planned: empty_store.EmptyPlan, *, saved_max: int = 2) -> Follower:
    """All steps; the state of the log after that."""
    found = directories(volume)
    found.disk.make_directory("/bodies")
    empty_store.set_aside(found, planned)
    empty_store.begin_store(found, planned, NODE_ID, 0, id_cache_size=100)
    empty_store.prune(found, saved_max)
    return recover(found.disk, DIRECTORY)


def ids(follower: Follower) -> set[bytes]:
    return set(follower.state.duplicate_ids.get(ADDRESS, ()))


def test_an_empty_store_keeps_what_the_replica_knew_when_it_took_over() -> None:
    pair = Pair()
    follower = begin(pair.rig.volume, planned_on(pair.rig.volume, pair))
    assert ids(follower) == {b"confirmed", NOT_CONFIRMED, b"decided"}, "not one of a message that only this node had"
    state = follower.state
    assert set(state.addresses) == {ADDRESS}
    assert [each.name for each in state.queues.values()] == ["orders"]
    assert {kind for kind, _ in state.settings} == {SettingKind.ADDRESS, SettingKind.MOVED_BRANCH}
    assert (SettingKind.MOVED_BRANCH, XID.hex()) in state.settings, "its manager must not take it for decided"
    assert not state.transactions
    assert saved_numbers(pair.rig.volume.disk("node"), DIRECTORY) == [1]


def test_the_last_batch_completes_a_log_that_ends_before_it() -> None:
    pair = Pair()
    follower = begin(pair.before, planned_on(pair.before, pair))
    assert ids(follower) == {b"confirmed", NOT_CONFIRMED, b"decided"}


def test_a_log_that_lacks_more_than_the_last_batch_says_so(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair()
    planned = planned_on(pair.before, pair, common=pair.common + 50)
    begin(pair.before, empty_store.EmptyPlan(**{**_fields(planned), "last_batch": b""}))
    assert "lacks duplicate ids of the last messages" in caplog.text


def _fields(planned: empty_store.EmptyPlan) -> dict[str, object]:
    return {name: getattr(planned, name) for name in planned.__slots__}


def test_the_log_goes_on_after_the_one_that_has_moved_and_after_failed_activations() -> None:
    pair = Pair()
    volume = pair.rig.volume
    for owner in ("failed", "again", "and again", "at last"):
        pair.rig.activate(owner)
        pair.rig.die(power_loss=False)
    planned = planned_on(volume, pair)
    assert (planned.epoch, planned.log_sequence) == (6, 901), "no identifier comes twice"
    follower = begin(volume, planned)
    assert (follower.state.epoch, follower.state.sequence) == (6, 903)
    store = pair.rig.activate("node", follower)
    assert store.epoch == 7
    assert store.last_sequence == 904


@pytest.mark.parametrize("saved_max", [0, 2])
def test_a_crash_after_any_operation_is_made_good_by_a_repetition(saved_max: int) -> None:
    pair = Pair()
    planned, operations = planned_on(pair.rig.volume, pair), 0
    before = set(list_store(pair.rig.volume.disk("judge"), directories(pair.rig.volume)))
    ended = False
    while not ended:
        operations += 1
        volume = pair.rig.volume.copy()
        left = operations

        def count(operation: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Crashed(operation)

        volume.before_operation = count
        ended = True
        with suppress(Crashed):
            begin(volume, planned, saved_max=saved_max).close()
            ended = left > 0
        if left <= 0:
            ended = False
            found = directories(volume)
            whole = set(list_store(found.disk, found)) >= before
            begun = found.disk.exists(f"{DIRECTORY}/{segment_name(planned.segment, planned.epoch)}")
            incomplete = read_replica_state(found.disk, DIRECTORY).status is ReplicaStatus.INCOMPLETE
            assert whole or begun or incomplete, "a part of the data is never used"
        volume.before_operation = lambda operation: None
        volume.crash_process("node")
        assert ids(begin(volume, planned, saved_max=saved_max)) == {b"confirmed", NOT_CONFIRMED, b"decided"}
        assert len(saved_numbers(volume.disk("node"), DIRECTORY)) == min(1, saved_max)
    assert operations > 10


def test_a_last_batch_says_whether_records_before_it_are_missing() -> None:
    pair = Pair()
    state = recover(pair.before.disk("node"), DIRECTORY).state
    state.sequence -= 1
    assert not apply_last_batch(pair.last_batch, state)
    assert not apply_last_batch(b"", state)
