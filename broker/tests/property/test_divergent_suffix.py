"""Goal: after any divergence the replica has the files of the active store byte by byte, its earlier data is complete
in ``oldreplica.1``, and files that both have are neither sent nor stored twice.

Method: a real store under random load; at a random point its volume is copied, and both go on by themselves, each with
an activation of its own or without one; then one gets a copy of the other, interrupted at random or not.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.replication import Copying, Replica, ReplicatedHarness, differences, store_files
from support.store import DIRECTORY, Crashed
from understudy.store.log.reading.follower import recover
from understudy.store.log.reading.replay import read_frames
from understudy.store.log.records import RecordType
from understudy.store.log.segment import parse_name, seed_of
from understudy.store.replication.copy_messages import CommonFiles
from understudy.store.replication.copy_source import KnownMessages
from understudy.store.replication.divergence import Divergence, read_note
from understudy.store.snapshots.reserve import RESERVE_NAME
from understudy.testing.sim.disk import SimVolume
from understudy.tools.compare import Relation, compare

SAVED = f"{DIRECTORY}/oldreplica.1"


def diverged(seed: int, common: int, own: int, other: int, *, same_epoch: bool) -> tuple[ReplicatedHarness, SimVolume]:
    """An active store, and the volume of a node whose log has the same beginning. Counts are rounds of load."""
    rig = ReplicatedHarness(random.Random(seed))
    rig.activate("node 0")
    for _ in range(common):
        rig.act(10)
        rig.fill()
    rig.rest()
    volume = rig.volume.copy()
    left = ReplicatedHarness(random.Random(seed + 1), volume)
    left.activate("another node")
    for _ in range(other):
        left.act(8)
        left.fill()
    left.rest()
    left.die(power_loss=False)
    if same_epoch:
        rig.die(power_loss=False)
        rig.activate("node 1")
    for _ in range(own):
        rig.fill()
        rig.rest()
    rig.rest()
    return rig, volume.copy()


def records(volume: SimVolume, directory: str) -> dict[str, list[bytes]]:
    """The records of each segment."""
    found = {}
    disk = volume.disk("reader")
    for name in disk.list(directory):
        parsed = parse_name(name)
        if parsed is not None and parsed[2]:
            file = disk.open(f"{directory}/{name}", read_only=True)
            found[name] = [raw for _, raw in read_frames(file, seed_of(parsed[0], parsed[1]))]
            file.close()
    return found


def saved_files(volume: SimVolume) -> dict[str, bytes]:
    """The files of the earlier data, without the reserve, by the paths that they had."""
    others = (".json", f"/{RESERVE_NAME}")
    paths = [path for path in volume.paths() if "/oldreplica.1/" in path and not path.endswith(others)]
    return {path.replace("/oldreplica.1", ""): volume.content(path) for path in paths}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    seed=st.integers(0, 1 << 16),
    common=st.integers(0, 6),
    own=st.integers(0, 3),
    other=st.integers(0, 3),
    same_epoch=st.booleans(),
    kills=st.lists(st.integers(1, 60), max_size=3),
)
def test_after_any_divergence_the_replica_is_equal_and_its_earlier_data_complete(
    seed: int, common: int, own: int, other: int, same_epoch: bool, kills: list[int]
) -> None:
    rig, volume = diverged(seed, common, own, other, same_epoch=same_epoch)
    before = store_files(volume)
    before_records = records(volume, DIRECTORY)
    shared = {path for path, content in store_files(rig.volume).items() if before.get(path) == content}
    replica = Replica(random.Random(seed), volume)
    for operations in kills:
        left = [operations]

        def crash(operation: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] <= 0:
                raise Crashed(operation)

        replica.volume.before_operation = crash
        copying = Copying(rig, replica)
        try:
            copying.run(turns_between=0)
        except Crashed:
            pass
        copying.kill_replica()
        replica.kill(power_loss=bool(operations % 2))
    copying = Copying(rig, replica)
    copying.run(turns_between=0)
    rig.rest()
    for _ in range(1000):
        assert rig.link.replica is not None
        if rig.link.replica.progress.durable == rig.link.index:
            break
        rig.time.advance(5)
    assert differences(rig.volume, replica.volume) == []
    disk = replica.disk()
    recover(disk, DIRECTORY)
    saved = saved_files(replica.volume)
    assert {path: saved.get(path) for path in before} == before
    note = read_note(disk, SAVED)
    assert note is not None
    assert note.complete
    check_note(note, before_records, records(rig.volume, DIRECTORY))
    if not kills and any("/segment-" in path for path in shared):
        sealed = {path for path in shared if "/segment-" in path}
        total = sum(map(len, store_files(rig.volume).values()))
        kept = sum(len(before[path]) for path in sealed if path.rsplit("/", 1)[1] < note.segment)
        assert copying.source.sent_bytes <= total - kept


def test_a_backup_of_the_version_before_sets_all_files_aside() -> None:
    """A backup of the previous version does not know which files both nodes have."""
    rig, volume = diverged(2, common=4, own=2, other=2, same_epoch=False)
    before, again = store_files(volume), volume.copy()
    replica = Replica(random.Random(5), volume)
    copying = Copying(rig, replica, knows=KnownMessages(common_files=False))
    copying.run(turns_between=0)
    assert not any(isinstance(message, CommonFiles) for message in copying.sent)
    rig.rest()
    assert differences(rig.volume, replica.volume) == []
    saved = saved_files(replica.volume)
    assert {path: saved.get(path) for path in before} == before
    with_them = Copying(rig, Replica(random.Random(5), again))
    with_them.run(turns_between=0)
    assert any(isinstance(message, CommonFiles) for message in with_them.sent)
    assert with_them.source.sent_bytes < copying.source.sent_bytes


def check_note(note: Divergence, before: dict[str, list[bytes]], active: dict[str, list[bytes]]) -> None:
    """The note names the first record that the active node does not have, and counts those from there on."""
    if not note.segment:
        assert all(active.get(name, [])[: len(found)] == found for name, found in before.items() if name in active)
        return
    names = sorted(before, key=lambda name: (parse_name(name) or (0, 0, False))[1::-1])
    first = names.index(note.segment)
    position = next(
        index for index, raw in enumerate(before[note.segment]) if int.from_bytes(raw[8:16], "little") == note.sequence
    )
    theirs = active.get(note.segment, [])
    assert before[note.segment][:position] == theirs[:position]
    assert before[note.segment][position] != (theirs[position] if position < len(theirs) else None)
    rest = before[note.segment][position:] + [raw for name in names[first + 1 :] for raw in before[name]]
    assert note.records == len(rest)
    assert note.messages == sum(raw[20] == RecordType.MESSAGE_ADD for raw in rest)


def test_the_earlier_data_can_be_compared_with_the_store() -> None:
    # in this history the log of neither node begins after the split: it would not be known then
    rig, volume = diverged(2, 4, 2, 2, same_epoch=True)
    replica = Replica(random.Random(5), volume)
    copying = Copying(rig, replica)
    copying.run(turns_between=0)
    rig.rest()
    note = read_note(replica.disk(), SAVED)
    assert note is not None
    found = compare(replica.disk(), [SAVED, DIRECTORY])
    (pair,) = found.pairs
    assert not found.damaged
    assert pair.relation is Relation.DIVERGED
    assert pair.sequence == note.sequence
    assert pair.left_only.records == note.records
    assert copying.source.sent_bytes < sum(map(len, store_files(rig.volume).values())) / 2


def noted(replica: Replica) -> bool:
    """Whether the note about the earlier data is complete."""
    note = read_note(replica.disk(), SAVED)
    return note is not None and note.complete


def test_a_crash_at_each_step_of_setting_aside_loses_nothing() -> None:
    rig, volume = diverged(7, 3, 1, 2, same_epoch=True)
    before = store_files(volume)
    ended = False
    for operations in range(1, 120):
        replica = Replica(random.Random(operations), volume.copy())
        left = [operations]

        def crash(operation: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] <= 0:
                raise Crashed(operation)

        replica.volume.before_operation = crash
        copying = Copying(rig, replica)
        try:
            while not copying.over and not noted(replica):
                copying.step()
            ended = True
        except Crashed:
            pass
        copying.give_up()
        copying.kill_replica()
        replica.kill(power_loss=operations % 3 == 0)
        found = store_files(replica.volume)
        saved = saved_files(replica.volume)
        assert {path for path, content in before.items() if content not in (found.get(path), saved.get(path))} == set()
        copying = Copying(rig, replica)
        copying.run(turns_between=0)
        assert differences(rig.volume, replica.volume) == []
        assert saved_files(replica.volume) == before
        copying.give_up()
        if ended:
            return
    raise AssertionError("setting aside does not end")
