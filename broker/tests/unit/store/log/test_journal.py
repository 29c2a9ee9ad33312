"""Goal: batches, segments and the reserve, below what the broker sees (test_message_store)."""

from __future__ import annotations

import random

import pytest
from tests.support.store import DIRECTORY, StoreHarness

from understudy.errors import DiskFull
from understudy.message import Message
from understudy.store.log.batch import BATCH_BYTES_MAX
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import AcknowledgeRecord, SealRecord
from understudy.store.log.segment import SEGMENT_BYTES_MIN
from understudy.store.messages.message_store import MessageStore
from understudy.store.snapshots.reserve import RESERVE_NAME, give_up_reserve, keep_reserve
from understudy.testing.sim.disk import SimFile, SimVolume
from understudy.tools.inspect import read_log


def store_with(rig: StoreHarness) -> MessageStore:
    store = rig.activate("a")
    rig.queue()
    rig.settle()
    return store


def send(rig: StoreHarness, size: int) -> int:
    assert rig.store is not None
    message = Message(bytes(size), address="x")
    message.assign_id(rig.store.next_id())
    rig.store.store_message(message, rig.address_ids[0], (rig.queue_ids[0],))
    return message.message_id


def send_until_full(rig: StoreHarness) -> None:
    for _ in range(500):
        send(rig, 3000)
        rig.settle()


def test_sequences_are_consecutive_over_segments_and_epochs() -> None:
    rig = StoreHarness(random.Random(1))
    for owner in "ab":
        rig.activate(owner)
        rig.resume_from(rig.model.contents())
        for _ in range(200):
            rig.operate()
        rig.settle()
        last = rig.store.last_sequence
        rig.die(power_loss=False)
        rig.model.crash(last)
    sequences = [logged.frame.sequence for logged in read_log(rig.disk("judge"), DIRECTORY)]
    # the beginning may have been trimmed, the rest has no gap
    assert len(sequences) > 100
    assert sequences == list(range(sequences[0], last + 1))


def test_a_batch_is_bounded() -> None:
    rig = StoreHarness(random.Random(1), segment_bytes=64 * 1024 * 1024)
    store = store_with(rig)
    for _ in range(30):
        send(rig, 1_000_000)
    rig.settle()
    log = [logged.frame for logged in read_log(rig.disk("judge"), DIRECTORY)]
    starts = sorted({frame.batch for frame in log})
    ends = {frame.batch: frame.offset + frame.length for frame in log}
    assert len(starts) >= 4
    assert all(ends[start] - start <= BATCH_BYTES_MAX for start in starts)
    assert store.last_sequence == log[-1].sequence


def test_records_fill_a_segment_and_its_seal_still_fits() -> None:
    rig = StoreHarness(random.Random(1))
    store = store_with(rig)
    send(rig, 1)
    # the smallest records need the largest footer
    for number in range(5000):
        store.store_acknowledges(rig.queue_ids[0], (number,))
    rig.settle()
    sizes = [len(rig.volume.content(path)) for path in rig.segments()]
    assert max(sizes) <= SEGMENT_BYTES_MIN
    log = list(read_log(rig.disk("judge"), DIRECTORY))
    assert sum(isinstance(logged.record, AcknowledgeRecord) for logged in log) == 5000
    seals = [logged.record for logged in log if isinstance(logged.record, SealRecord)]
    assert len(seals) >= 4
    assert all(seal.count > 900 for seal in seals[1:])


def test_records_collect_while_the_next_segment_is_not_ready() -> None:
    rig = StoreHarness(random.Random(1))
    store = store_with(rig)
    released: list[int] = []
    # several segments at once, before the writer has had a moment
    ids = [send(rig, 5000) for _ in range(60)]
    store.context.when_durable(store.last_sequence, released.append, 1)
    assert store.backlog_bytes > 4 * SEGMENT_BYTES_MIN
    rig.settle()
    assert released == [1]
    assert list(recover(rig.disk("judge"), DIRECTORY).state.references[rig.queue_ids[0]]) == ids


def test_the_reserve_is_the_spare_and_records_beyond_it_wait() -> None:
    rig = StoreHarness(random.Random(1))
    store = store_with(rig)
    rig.volume.capacity_bytes = rig.volume.used_bytes()
    with pytest.raises(DiskFull):
        send_until_full(rig)
    # far more acknowledgements than the reserve takes
    for number in range(3000):
        store.store_acknowledges(rig.queue_ids[0], (number,))
    last = store.last_sequence
    for _ in range(20):
        store.flush()
        rig.time.advance(50)
    assert store.context.durable < last
    assert rig.failures == []
    rig.volume.capacity_bytes *= 4
    rig.time.advance(2000)
    rig.settle()
    assert store.context.durable == store.last_sequence
    assert store.context.durable >= last
    assert not store.full


def test_a_full_disk_at_close_keeps_all_durable_records() -> None:
    rig = StoreHarness(random.Random(1))
    store = store_with(rig)
    rig.volume.capacity_bytes = rig.volume.used_bytes()
    for number in range(5000):
        store.store_acknowledges(rig.queue_ids[0], (number,))
    for _ in range(50):
        store.flush()
        rig.time.advance(50)
    durable = store.context.durable
    closed: list[int] = []
    store.close(lambda: closed.append(1))
    rig.time.advance(5000)
    assert closed == [1]
    assert recover(rig.volume.copy().disk("judge"), DIRECTORY).state.sequence == durable


def test_space_is_reserved_for_the_next_activation() -> None:
    rig = StoreHarness(random.Random(1))
    store = store_with(rig)
    message_id = send(rig, 100)
    rig.settle()
    reserve = f"{DIRECTORY}/{RESERVE_NAME}"
    assert len(rig.volume.content(reserve)) == 2 * SEGMENT_BYTES_MIN
    rig.volume.capacity_bytes = rig.volume.used_bytes()
    rig.die(power_loss=False)
    # not even a byte is free, and yet there is a segment for the epoch and a spare after it
    store = rig.activate("b")
    assert reserve not in rig.volume.paths()
    assert not store.full
    store.store_acknowledges(rig.queue_ids[0], (message_id,))
    rig.settle()
    assert store.context.durable == store.last_sequence
    rig.volume.capacity_bytes *= 4
    while store.segment_count < 4:
        send(rig, 10_000)
        rig.settle()
    assert len(rig.volume.content(reserve)) == 2 * SEGMENT_BYTES_MIN


def test_a_reserve_cut_short_by_a_crash_is_completed() -> None:
    volume = SimVolume()
    disk = volume.disk("a")
    disk.make_directory(DIRECTORY)
    disk.open(f"{DIRECTORY}/{RESERVE_NAME}", create=True).close()
    keep_reserve(disk, DIRECTORY, 1000)
    assert len(volume.content(f"{DIRECTORY}/{RESERVE_NAME}")) == 1000
    operations = volume.operations
    keep_reserve(disk, DIRECTORY, 1000)
    assert volume.operations == operations
    assert give_up_reserve(disk, DIRECTORY)
    assert not give_up_reserve(disk, DIRECTORY)
    volume.capacity_bytes = 999
    keep_reserve(disk, DIRECTORY, 1000)
    assert volume.paths() == []


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_disk_that_is_full_within_an_allocated_segment_blocks_until_there_is_space(
    monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Allocated segments can be full on a file system that copies on write: no node ends, nothing is confirmed early,
    nothing is lost.
    """
    rig = StoreHarness(random.Random(1))
    store = store_with(rig)
    full = True
    original = getattr(SimFile, operation)

    def refuse(self: SimFile, *arguments: object) -> None:
        if full and "segment-" in self.path:
            raise DiskFull(f"cannot {operation} {self.path}: No space left on device")
        original(self, *arguments)

    monkeypatch.setattr(SimFile, operation, refuse)
    released: list[int] = []
    sent = [send(rig, 100) for _ in range(3)]
    store.context.when_durable(store.last_sequence, released.append, 1)
    store.flush()
    rig.time.advance(100)
    assert (store.full, released, rig.failures) == (True, [], [])
    with pytest.raises(DiskFull):
        send(rig, 100)
    rig.store.store_acknowledges(rig.queue_ids[0], (sent[0],))
    for _ in range(3):
        rig.time.advance(1_100)
        store.check_disk()
        store.flush()
    assert (released, rig.failures) == ([], [])
    full = False
    rig.time.advance(1_100)
    store.check_disk()
    rig.settle()
    assert (store.full, released) == (False, [1])
    send_until_full(rig)
    rig.die(power_loss=True)
    state = recover(rig.disk("judge"), DIRECTORY).state
    ids = [reference.message_id for reference in state.references[rig.queue_ids[0]].references()]
    assert ids[:2] == sent[1:]


def test_each_buffer_of_a_batch_holds_whole_records() -> None:
    """Goal: the digest of a segment is made of the crcs of its records, buffer by buffer."""
    rig = StoreHarness(random.Random(3))
    rig.activate("a")
    seen = 0
    for _ in range(300):
        rig.operate()
        for buffer in rig.store._journal.parts:
            at = 0
            while at < len(buffer):
                at += int.from_bytes(buffer[at + 4 : at + 8], "little")
            assert at == len(buffer)
            seen += 1
    assert seen > 100
