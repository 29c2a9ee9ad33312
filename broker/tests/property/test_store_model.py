"""The store against a model: whatever is done, wherever it dies, whatever the disk then forgets.

Goal: confirmed operations are there, no others are, in order, and a follower knows the same
as a cold start. Method: random operations over a simulated volume that is cut at a random disk
operation, loses or tears unsynced writes, and is activated again by the same or another node.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.store import DIRECTORY, Crashed, StoreHarness
from tests.support.store_model import contents_of, order_of

from understudy.errors import JournalCorrupt
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.records import HEADER_BYTES
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, segment_name
from understudy.store.messages import backlog
from understudy.store.messages.reference import unpack_location
from understudy.testing.sim.disk import SimVolume
from understudy.testing.sim.valid_bytes import valid_bytes
from understudy.tools.inspect import verify

SEEDS = st.integers(0, 2**32 - 1)
RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "database": None}


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    """A follower's references are packed at once, as in deep queues only."""
    with mock.patch.object(backlog, "BLOCK_REFERENCES", 3), mock.patch.object(backlog, "_OPEN_BLOCKS", 1):
        yield


def work(rig: StoreHarness, count: int, follower: Follower | None = None) -> None:
    """Operations with flushes, passing time and a follower looking on."""
    assert rig.store is not None
    for _ in range(count):
        rig.operate()
        draw = rig.stream.random()
        if draw < 0.3:
            rig.store.flush()
        if draw < 0.2:
            rig.time.advance(rig.stream.randrange(8))
        if follower is not None and draw > 0.8:
            follower.poll(rig.stream.choice((100, 5000, 1 << 20)))


def new_rig(stream: random.Random) -> StoreHarness:
    """Consolidating all the time, now and then, or not."""
    return StoreHarness(
        stream,
        compact_segments_min=stream.choice((0, 1, 1, 1, 2)),
        compact_percent=stream.choice((0, 50, 100)),
        with_settings=True,
    )


def one_life(
    rig: StoreHarness, owner: str, confirmed: int, *, follower: Follower | None, watcher: Follower | None
) -> tuple[int, int]:
    """Activate, work, die; the sequences confirmed and appended at the end."""
    stream = rig.stream
    cold = recover(rig.volume.copy().disk("judge"), DIRECTORY)
    if follower is not None:
        follower.finish()
        cold.state.id_cache_size = rig.model.id_cache_size
        assert follower.state.sequence == cold.state.sequence
    if stream.random() < 0.8:
        rig.crash_at(stream.choice((stream.randrange(1, 16), stream.randrange(16, 60), 60, 200)))
    appended = cold.state.sequence + 1
    # lost operations are forgotten before its sequences are used again
    rig.model.crash(cold.state.sequence)
    try:
        store = rig.activate(owner, follower)
        found = contents_of(store.state)
        assert store.epoch > cold.state.epoch
        expected = rig.model.contents()
        assert found == expected
        assert order_of(found) == order_of(expected)
        check_bodies(rig, stream)
        rig.resume_from(expected)
        try:
            work(rig, stream.choice((5, 40, 150, 500)), watcher)
            if stream.random() < 0.3:
                rig.settle()
        finally:
            confirmed, appended = store.context.durable, store.last_sequence
    except Crashed:
        pass
    return confirmed, appended


def check_bodies(rig: StoreHarness, stream: random.Random) -> None:
    """Messages are read back as they were stored."""
    assert rig.store is not None
    references = [r for queue in rig.store.state.references.values() for r in queue.references()]
    for reference in stream.sample(references, min(len(references), 5)):
        assert reference.location is not None
        assert rig.store.read_message(reference.location).encoded == rig.bodies[reference.message_id]


@settings(max_examples=examples(300), **RELAXED)
@given(SEEDS)
def test_confirmed_survives_and_the_rest_is_a_prefix(seed: int) -> None:
    stream = random.Random(seed)
    rig = new_rig(stream)
    confirmed = appended = 0
    follower: Follower | None = None
    for life in range(stream.randrange(2, 6)):
        owner = "ab"[life % 2]
        found = recover(rig.volume.copy().disk("judge"), DIRECTORY).state.sequence
        assert confirmed <= found <= appended, "confirmed records were lost, or records came from nowhere"
        taking_over = follower if stream.random() < 0.7 else None
        watcher = rig.follower("ab"[(life + 1) % 2])
        confirmed, appended = one_life(rig, owner, confirmed, follower=taking_over, watcher=watcher)
        rig.die(power_loss=stream.random() < 0.6)
        follower = watcher


def live_of(follower: Follower) -> dict[int, dict[int, int]]:
    return {queue_id: masks for queue_id, masks in follower.state.live.queues.items() if masks}


@settings(max_examples=examples(120), **RELAXED)
@given(SEEDS)
def test_follower_equals_cold_recovery_at_every_point(seed: int) -> None:
    stream = random.Random(seed)
    rig = new_rig(stream)
    follower = rig.follower("b")
    for _ in range(stream.randrange(1, 4)):
        rig.activate("a")
        rig.resume_from(contents_of(rig.store.state))
        for _ in range(stream.randrange(1, 6)):
            work(rig, stream.randrange(1, 30), follower if stream.random() < 0.5 else None)
            copy = rig.volume.copy().disk("judge")
            cold = Follower(copy, DIRECTORY, id_cache_size=rig.model.id_cache_size)
            while cold.poll(1 << 20) or not cold.caught_up:
                continue
            while follower.poll(stream.choice((64, 1 << 20))) or not follower.caught_up:
                continue
            assert follower.state.sequence == cold.state.sequence
            assert contents_of(follower.state) == contents_of(cold.state)
            assert order_of(contents_of(follower.state)) == order_of(contents_of(cold.state))
            assert live_of(follower) == live_of(cold)
        rig.die(power_loss=False)


@settings(max_examples=examples(80), **RELAXED)
@given(SEEDS)
def test_writes_of_a_zombie_are_not_part_of_the_log(seed: int) -> None:
    stream = random.Random(seed)
    rig = new_rig(stream)
    rig.activate("a")
    work(rig, 40)
    third = rig.follower("c")
    third.poll(1 << 20)
    zombie = rig.store
    assert zombie is not None
    taken = new_rig(stream)
    taken.volume, taken.time, taken.model, taken.bodies = rig.volume, rig.time, rig.model, rig.bodies
    rig.model.crash(recover(rig.volume.copy().disk("judge"), DIRECTORY).state.sequence)
    store = taken.activate("b")
    assert contents_of(store.state) == taken.model.contents()
    taken.resume_from(contents_of(store.state))
    # the old node has not noticed: it goes on writing, and so does the new one
    rig.model = type(rig.model)(rig.model.id_cache_size)
    for _ in range(20):
        if not rig.failures:
            # else it was making a snapshot, which the new node has removed: it knows, and has ended
            rig.operate()
            zombie.flush()
        taken.operate()
        store.flush()
        rig.time.advance(stream.randrange(6))
        third.poll(1 << 20)
    taken.settle()
    cold = recover(rig.volume.copy().disk("judge"), DIRECTORY)
    third.finish()
    for reader in (cold, third):
        assert reader.state.epoch == store.epoch
        assert reader.state.sequence == store.last_sequence
    assert order_of(contents_of(cold.state)) == order_of(contents_of(third.state))
    taken.model.crash(store.last_sequence)
    taken.die(power_loss=False)
    rig.die(power_loss=False)
    taken.activate("d")
    assert contents_of(taken.store.state) == taken.model.contents()


def written_store(stream: random.Random) -> StoreHarness:
    """A few epochs with several segments, sealed or not, everything durable."""
    rig = new_rig(stream)
    for owner in "ab"[: stream.randrange(1, 3)]:
        rig.activate(owner)
        rig.resume_from(rig.model.contents())
        for _ in range(stream.randrange(20, 120)):
            rig.operate()
            if stream.random() < 0.2:
                rig.settle()
        rig.settle()
        if stream.random() < 0.3:
            closed: list[bool] = []
            rig.store.close(lambda closed=closed: closed.append(True))
            rig.time.advance(1000)
            assert closed
        last = rig.store.context.durable
        rig.die(power_loss=False)
        rig.model.crash(last)
    return rig


def try_recover(volume: SimVolume) -> Follower | JournalCorrupt:
    """The outcome of a cold start."""
    try:
        return recover(volume.disk("judge"), DIRECTORY)
    except JournalCorrupt as error:
        return error


def log_paths(rig: StoreHarness) -> set[str]:
    """Segments with records that are part of the log."""
    follower = recover(rig.volume.copy().disk("judge"), DIRECTORY)
    return {f"{DIRECTORY}/{segment_name(end.number, end.epoch)}" for end in follower.ends()}


def log_segments(rig: StoreHarness) -> list[str]:
    return [path for path in rig.volume.paths() if parse_name(path.rsplit("/", 1)[1])]


def lies_behind(follower: Follower, path: str) -> bool:
    """Whether the snapshot that the follower began with stands for the segment."""
    parsed = parse_name(path.rsplit("/", 1)[1])
    return follower.base is not None and parsed is not None and parsed[0] <= follower.base.number


@settings(max_examples=examples(300), **RELAXED)
@given(SEEDS)
def test_a_flipped_bit_is_found_or_lies_in_the_tail(seed: int) -> None:
    stream = random.Random(seed)
    rig = written_store(stream)
    whole = recover(rig.volume.copy().disk("judge"), DIRECTORY)
    before = contents_of(whole.state)
    read = whole.last_read()
    assert read is not None
    volume = rig.volume.copy()
    path = stream.choice(log_segments(rig))
    used = len(valid_bytes(path, volume.content(path)))
    offset = stream.randrange(min(used + 64, len(volume.content(path))))
    volume.flip_bit(path, offset, stream.randrange(8))
    after = try_recover(volume)
    problems = verify(volume.disk("judge"), DIRECTORY).problems
    if isinstance(after, JournalCorrupt):
        # the error names the record that was hit, or the header
        assert after.file != path or after.offset <= offset
        assert problems
        return
    if lies_behind(whole, path):
        # the segment is needed only for the messages in it: a start does not read it
        assert problems or offset >= used or path not in log_paths(rig)
        assert contents_of(after.state) == before
        return
    assert not problems or path not in log_paths(rig)
    if after.state.sequence == whole.state.sequence:
        assert contents_of(after.state) == before
    else:
        # only the last batch may be taken for a torn tail, and only of a segment without a seal
        assert path == read.path
        assert offset >= read.batch
        assert after.last_read() is not None
        assert after.state.sequence < whole.state.sequence


@settings(max_examples=examples(200), **RELAXED)
@given(SEEDS)
def test_a_cut_file_is_found(seed: int) -> None:
    stream = random.Random(seed)
    rig = written_store(stream)
    whole = recover(rig.volume.copy().disk("judge"), DIRECTORY)
    volume = rig.volume.copy()
    path = stream.choice(log_segments(rig))
    length = len(volume.content(path))
    volume.cut_file(path, stream.choice((0, HEADER_BLOCK_BYTES, length - 1, stream.randrange(length))))
    after = try_recover(volume)
    if isinstance(after, JournalCorrupt):
        assert after.file in log_segments(rig)
        assert verify(volume.disk("judge"), DIRECTORY).problems
        return
    # a prepared segment that was never used holds nothing
    assert after.state.sequence == whole.state.sequence
    assert contents_of(after.state) == contents_of(whole.state)


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_message_is_never_served(seed: int) -> None:
    stream = random.Random(seed)
    rig = written_store(stream)
    rig.activate("c")
    rig.resume_from(rig.model.contents())
    rig.send()
    rig.settle()
    rig.die(power_loss=False)
    store = rig.activate("d")
    references = [r for queue in store.state.references.values() for r in queue.references()]
    reference = stream.choice(references)
    assert reference.location is not None
    number, offset, length = unpack_location(reference.location)
    path = next(path for path in log_segments(rig) if parse_name(path.rsplit("/", 1)[1])[0] == number)
    rig.volume.flip_bit(path, offset + stream.randrange(length), stream.randrange(8))
    with pytest.raises(JournalCorrupt) as caught:
        store.read_message(reference.location)
    assert caught.value.file == path
    assert caught.value.offset == offset
    assert length > HEADER_BYTES
