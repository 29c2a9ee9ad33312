"""A store whose segments are made of the files of removed ones, against a model.

Goal: whatever the node dies in the middle of, whatever the disk then forgets, exactly a prefix of the operations with
all confirmed ones is there, and old records after the end are neither read nor taken for damage. Method: messages are
sent and acknowledged until segments are used again; then the node dies at each disk operation in turn, or at random
ones, and the store is read and activated again. A follower reads it meanwhile.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.store import DIRECTORY, Crashed, StoreHarness
from tests.support.store_model import contents_of, order_of

from understudy.errors import JournalCorrupt
from understudy.message import Message
from understudy.store.log.reading import replay
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.records import RecordType
from understudy.store.log.segment import frame, parse_name, seed_of
from understudy.store.log.segment_pool import parse_pool_name
from understudy.tools.inspect import verify

SEEDS = st.integers(0, 2**32 - 1)
RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "database": None}
BODY_BYTES = 6000


def exchange(rig: StoreHarness, count: int, follower: Follower | None = None) -> None:
    """Messages are sent, and most of them acknowledged, with flushes and passing time."""
    stream = rig.stream
    assert rig.store is not None
    for _ in range(count):
        if not rig.queue_ids:
            rig.queue()
        message = Message(stream.randbytes(stream.choice((10, BODY_BYTES))), address="x")
        message.assign_id(rig.store.next_id())
        rig._send(message, 0, 0)
        if len(rig.live) > 3:
            rig.acknowledge()
        draw = stream.random()
        if draw < 0.4:
            rig.store.flush()
        if draw < 0.3:
            rig.time.advance(stream.randrange(1, 12))
        if follower is not None and draw > 0.8:
            follower.poll(stream.choice((100, 5000, 1 << 20)))


def old_bytes(rig: StoreHarness) -> int:
    """Number of segments that have records of another segment after their own."""
    found = 0
    for path in rig.segments():
        parsed = parse_name(path.rpartition("/")[2])
        content = rig.volume.content(path)
        headers = content.count(b"\x09\x00\x00\x00", 4096)
        assert parsed is not None
        own = len(list(_own(content, seed_of(*parsed[:2]))))
        found += headers > own + 1
    return found


def _own(content: bytes, seed: int) -> list[int]:
    at, found = 4096, []
    while (record := replay.read_frame(content, at, at, seed)) is not None:
        found.append(at)
        at += record.length
    return found


def rig_with_old_files(seed: int) -> StoreHarness:
    """An active store, all confirmed, that uses files again."""
    rig = StoreHarness(random.Random(seed), compact_segments_min=1, compact_percent=50)
    rig.activate("a")
    for _ in range(120):
        exchange(rig, 25)
        rig.settle()
        if old_bytes(rig) and any(map(parse_pool_name, rig.disk("judge").list(DIRECTORY))):
            return rig
    raise AssertionError("no file was used again")


def check_after(rig: StoreHarness, confirmed: int, appended: int, *, power_loss: bool, owner: str) -> None:
    """The node is dead: read the store, activate it, use it."""
    rig.die(power_loss=power_loss)
    cold = recover(rig.volume.copy().disk("judge"), DIRECTORY)
    assert confirmed <= cold.state.sequence <= appended, "confirmed records were lost, or records came from nowhere"
    assert verify(rig.volume.copy().disk("judge"), DIRECTORY).problems == ()
    rig.model.crash(cold.state.sequence)
    store = rig.activate(owner)
    expected = rig.model.contents()
    found = contents_of(store.state)
    assert found == expected
    assert order_of(found) == order_of(expected)
    rig.resume_from(expected)
    exchange(rig, 10)
    rig.settle()
    assert not rig.failures


def crash(rig: StoreHarness, operations: int, count: int, follower: Follower | None = None) -> tuple[int, int]:
    """Work until the node dies at an operation of its disk; the sequences confirmed and appended. It is killed later
    if there are not so many operations.
    """
    store = rig.store
    assert store is not None
    rig.crash_at(operations)
    try:
        exchange(rig, count, follower)
        rig.settle()
    except Crashed:
        pass
    rig.volume.before_operation = lambda operation: None
    return store.context.durable, store.last_sequence


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("operations", range(1, 61))
def test_a_crash_at_each_operation_loses_nothing(operations: int, power_loss: bool) -> None:
    """Each operation of the disk while segments are sealed, removed and made of old files."""
    rig = rig_with_old_files(operations % 4)
    confirmed, appended = crash(rig, operations, 60)
    check_after(rig, confirmed, appended, power_loss=power_loss, owner="b")


@settings(max_examples=examples(120), **RELAXED)
@given(SEEDS)
def test_crashes_in_a_row_lose_nothing_and_a_follower_agrees(seed: int) -> None:
    stream = random.Random(seed)
    rig = rig_with_old_files(seed)
    for life in range(3):
        follower = rig.follower("watcher") if stream.random() < 0.7 else None
        confirmed, appended = crash(rig, stream.randrange(1, 150), stream.choice((20, 80)), follower)
        rig.die(power_loss=stream.random() < 0.6)
        cold = Follower(rig.volume.copy().disk("judge"), DIRECTORY, id_cache_size=rig.model.id_cache_size)
        cold.finish()
        assert confirmed <= cold.state.sequence <= appended
        if follower is not None:
            follower.finish()
            assert follower.state.sequence == cold.state.sequence
            assert contents_of(follower.state) == contents_of(cold.state)
        rig.model.crash(cold.state.sequence)
        store = rig.activate("ab"[life % 2], follower)
        expected = rig.model.contents()
        assert contents_of(store.state) == expected
        rig.resume_from(expected)
        exchange(rig, 60)
        rig.settle()
        assert not rig.failures


@settings(max_examples=examples(60), **RELAXED)
@given(SEEDS)
def test_damage_in_the_middle_is_no_torn_tail(seed: int) -> None:
    """A bit of a confirmed record is flipped that later batches follow: with old records after the tail too."""
    stream = random.Random(seed)
    rig = rig_with_old_files(seed)
    exchange(rig, stream.randrange(5, 30))
    rig.settle()
    rig.die(power_loss=False)
    whole = recover(rig.volume.copy().disk("judge"), DIRECTORY)
    read = whole.last_read()
    assert read is not None
    assert whole.torn is None, "nothing was written after the end"
    path = read.path
    offset = stream.randrange(4096, read.offset)
    volume = rig.volume.copy()
    volume.flip_bit(path, offset, stream.randrange(8))
    after: Follower | JournalCorrupt
    try:
        after = recover(volume.disk("judge"), DIRECTORY)
    except JournalCorrupt as error:
        after = error
    if isinstance(after, JournalCorrupt):
        assert after.file != path or after.offset <= offset
        return
    if after.state.sequence == whole.state.sequence:
        assert whole.base is not None, "a snapshot stands for the segment"
        return
    # only the last batch may be taken for one that was never synced
    assert offset >= read.batch
    assert after.torn is not None


def test_a_record_of_an_earlier_use_at_the_end_is_not_taken() -> None:
    """A record with the next sequence, whole, at the very place where the next one goes: only its seed differs."""
    rig = rig_with_old_files(1)
    rig.die(power_loss=False)
    volume = rig.volume.copy()
    whole = recover(volume.disk("judge"), DIRECTORY)
    read = whole.last_read()
    assert read is not None
    seed = seed_of(read.number - 1, read.epoch)
    nothing = bytes(24)
    raw = b"".join(
        b"".join(frame(RecordType.ACKNOWLEDGE, 0, whole.state.sequence + 1 + place, read.offset, seed, nothing))
        for place in range(3)
    )
    volume.disk("x").open(read.path).write(read.offset, (raw,))
    after = recover(volume.disk("judge"), DIRECTORY)
    assert after.state.sequence == whole.state.sequence
    assert contents_of(after.state) == contents_of(whole.state)
