"""Compacting offline frees space and changes nothing else, wherever it is interrupted."""

from __future__ import annotations

import random

import pytest
from tests.support.store import DIRECTORY, NODE_ID, Crashed, StoreHarness
from tests.support.store_model import contents_of, order_of

from understudy.errors import DiskFailed, DiskFull, WrongNode
from understudy.ids import NodeId
from understudy.message import Message
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.snapshots.snapshot import snapshot_names
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.disk import SimVolume
from understudy.tools.compaction import Compaction, CompactionReport, plan
from understudy.tools.inspect import verify


def store_of(seed: int = 5, *, segments_min: int = 0, every: int = 9) -> StoreHarness:
    """A log of which a few messages in each segment live, and everything else a log may hold."""
    stream = random.Random(seed)
    rig = StoreHarness(stream, compact_segments_min=segments_min, with_large=True)
    rig.activate("a")
    for _ in range(60):
        rig.operate()
    rig.settle()
    store = rig.store
    assert store is not None
    address = AddressRecord(store.next_id(), "kept", (1,))
    rig.model.add(store.store_address(address), "address", address)
    queue = QueueRecord(store.next_id(), address.address_id, "kept", 1)
    rig.model.add(store.store_queue(queue), "queue", queue)
    for number in range(110):
        message = Message(stream.randbytes(5_000), address="kept")
        message.assign_id(store.next_id())
        store.store_message(message, address.address_id, (queue.queue_id,))
        fields = (message.priority, message.expiration, 0, message.encode_size, 0)
        rig.model.add(
            store.last_sequence, "message", 0, message.message_id, address.address_id, (queue.queue_id,), fields, b""
        )
        rig.bodies[message.message_id] = message.encoded
        if number % every:
            store.store_acknowledges(queue.queue_id, (message.message_id,))
            rig.model.add(store.last_sequence, "acknowledge", 0, queue.queue_id, (message.message_id,))
        rig.settle()
    rig.die(power_loss=False)
    rig.model.crash(recover(rig.volume.copy().disk("judge"), DIRECTORY).state.sequence)
    return rig


def compact(volume: SimVolume, percent: int = 75) -> CompactionReport:
    return Compaction(volume.disk("tool"), DIRECTORY, NODE_ID, ManualTime(), percent).run()


def check(rig: StoreHarness, volume: SimVolume) -> None:
    """Exactly what the model says, with every body."""
    assert not verify(volume.disk("judge"), DIRECTORY).problems
    rig.volume = volume
    store = rig.activate("b")
    found, expected = contents_of(store.state), rig.model.contents()
    assert found == expected
    assert order_of(found) == order_of(expected)
    for reference in store.state.needed():
        assert reference.location is not None
        assert store.read_message(reference.location).encoded == rig.bodies[reference.message_id]
    rig.die(power_loss=False)


def segment_bytes(volume: SimVolume) -> int:
    return sum(len(volume.content(path)) for path in volume.paths() if path.endswith(".log"))


@pytest.mark.parametrize("segments_min", [0, 2])
def test_everything_dead_goes_and_everything_alive_stays(segments_min: int) -> None:
    rig = store_of(segments_min=segments_min)
    volume = rig.volume.copy()
    planned = plan(volume.disk("tool"), DIRECTORY, 75)
    report = compact(volume)
    assert report.trouble is None
    assert report.size_bytes_before == planned.size_bytes
    assert report.size_bytes_after < report.size_bytes_before // 2
    assert segment_bytes(volume) < 2 * report.live_bytes + 64 * 1024
    assert planned.live_bytes - 8_000 <= report.live_bytes <= planned.live_bytes
    assert report.copied_messages > 8
    assert report.segments_after <= report.segments_before + 6 - report.dropped_segments // 2
    check(rig, volume)


def test_again_changes_nothing_that_matters() -> None:
    rig = store_of()
    compact(rig.volume)
    once = segment_bytes(rig.volume)
    again = compact(rig.volume)
    assert again.copied_messages == 0
    assert segment_bytes(rig.volume) <= once + 8 * 1024
    check(rig, rig.volume)


def test_without_copying_only_dead_segments_are_removed() -> None:
    rig = store_of(every=60)
    report = compact(rig.volume, 0)
    assert report.copied_messages == 0
    assert report.dropped_segments > 3
    check(rig, rig.volume)


def test_a_plan_changes_nothing_and_adds_up() -> None:
    rig = store_of()
    before = {path: rig.volume.content(path) for path in rig.volume.paths()}
    operations = rig.volume.operations
    planned = plan(rig.volume.disk("tool"), DIRECTORY, 75)
    assert {path: rig.volume.content(path) for path in rig.volume.paths()} == before
    assert rig.volume.operations == operations
    assert planned.dead_segments + planned.sparse_segments <= planned.segments
    assert 0 < planned.copy_bytes <= planned.live_bytes
    assert plan(rig.volume.disk("tool"), DIRECTORY, 0).sparse_segments == 0
    report = compact(rig.volume)
    freed = report.size_bytes_before - report.size_bytes_after
    assert freed > planned.free_bytes // 2


@pytest.mark.parametrize("part", range(4))
def test_interrupted_anywhere_it_can_be_begun_again(part: int) -> None:
    rig = store_of()
    original = rig.volume
    counted = original.copy()
    compact(counted)
    assert counted.operations > 60
    for operation in range(1 + part, counted.operations + 1, 4):
        volume = original.copy()
        left = [operation]

        def count(name: str, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Crashed(name)

        volume.before_operation = count
        with pytest.raises(Crashed):
            compact(volume)
        volume.before_operation = lambda name: None
        volume.power_loss(random.Random(operation), "tool")
        if operation // 4 % 4 == 0:
            compact(volume)
        check(rig, volume)


def test_a_failed_sync_is_said() -> None:
    rig = store_of()
    volume = rig.volume.copy()
    compaction = Compaction(volume.disk("tool"), DIRECTORY, NODE_ID, ManualTime(), 75)
    volume.fail_next_sync()
    with pytest.raises(DiskFailed):
        compaction.run()
    volume.crash_process("tool")
    check(rig, volume)


def test_a_full_disk_is_said_and_harmless() -> None:
    rig = store_of()
    volume = rig.volume.copy()
    compaction = Compaction(volume.disk("tool"), DIRECTORY, NODE_ID, ManualTime(), 75)
    volume.capacity_bytes = volume.used_bytes()
    with pytest.raises(DiskFull):
        compaction.run()
    volume.crash_process("tool")
    volume.capacity_bytes = 1 << 40
    check(rig, volume)


def test_the_store_of_another_node_is_refused() -> None:
    rig = store_of()
    other = NodeId("11111111-4b5a-4697-8897-a6b5c4d3e2f1")
    with pytest.raises(WrongNode):
        Compaction(rig.volume.disk("tool"), DIRECTORY, other, ManualTime(), 75)
    assert snapshot_names([path.rsplit("/", 1)[1] for path in rig.volume.paths()]) == []


def test_an_empty_store_is_compacted_to_itself() -> None:
    volume = SimVolume()
    volume.disk("setup").make_directory(DIRECTORY)
    report = compact(volume)
    assert (report.dropped_segments, report.copied_messages, report.live_bytes) == (0, 0, 0)
    assert recover(volume.disk("judge"), DIRECTORY).state.sequence == report.sequence
