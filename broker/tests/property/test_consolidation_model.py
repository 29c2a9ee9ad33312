"""The log consolidator against the model: snapshots, drops and moves change nothing but the bytes kept.

Goal: wherever a node dies while the log is consolidated, whatever the disk then forgets, a start
finds what the model says, a follower the same, and damage in a snapshot is said and never served.
Method: the model of ``test_store_model`` with loads that keep a little alive everywhere, tiny
segments and a snapshot for each of them.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_store_model import RELAXED, live_of
from tests.support.examples import examples
from tests.support.store import DIRECTORY, Crashed, StoreHarness
from tests.support.store_model import contents_of, order_of

from understudy.errors import JournalCorrupt
from understudy.message import Message
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.log.segment import SEGMENT_BYTES_MIN, segment_name
from understudy.store.messages.large_messages import REMOVE_AFTER_MS
from understudy.store.messages.reference import unpack_location
from understudy.store.snapshots.snapshot import snapshot_names
from understudy.testing.sim.disk import SimVolume
from understudy.tools.inspect import verify

SEEDS = st.integers(0, 2**32 - 1)


def churn(rig: StoreHarness, count: int, *, follower: Follower | None = None, current: bool = False) -> None:
    """Every operation of a store. Most messages are acknowledged soon; a few stay."""
    store, stream = rig.store, rig.stream
    assert store is not None
    while len(rig.queue_ids) < 3:
        rig.queue()
    for _ in range(count):
        draw = stream.random()
        if draw < 0.1:
            rig.operate()
        else:
            added = rig.send()
            if stream.random() > 0.03:
                for queue_id, message_id in added:
                    store.store_acknowledges(queue_id, (message_id,))
                    rig.model.add(store.last_sequence, "acknowledge", 0, queue_id, (message_id,))
                rig.live = [entry for entry in rig.live if entry not in added]
                rig.files.release(added)
        if draw < 0.5:
            store.flush()
            for _ in range(stream.randrange(12)):
                rig.time.advance(1)
                if follower is not None and current:
                    follower.poll(1 << 20)
        if follower is not None and draw > 0.9 and not current:
            follower.poll(stream.choice((200, 20_000, 1 << 20)))


def consolidating_rig(stream: random.Random) -> StoreHarness:
    return StoreHarness(
        stream,
        compact_segments_min=stream.choice((1, 1, 2)),
        compact_percent=stream.choice((50, 100)),
        with_large=True,
    )


def snapshot_paths(volume: SimVolume) -> list[str]:
    names = [path.rsplit("/", 1)[1] for path in volume.paths()]
    return [f"{DIRECTORY}/{name}" for name in snapshot_names(names)]


def recover_on(rig: StoreHarness, volume: SimVolume) -> Follower:
    follower = Follower(volume.disk("judge"), DIRECTORY, id_cache_size=rig.model.id_cache_size)
    follower.finish()
    return follower


def check_recovered(rig: StoreHarness, owner: str, follower: Follower | None) -> None:
    """Activate, by way of a follower or cold: exactly the model."""
    cold = recover(rig.volume.copy().disk("judge"), DIRECTORY)
    rig.model.crash(cold.state.sequence)
    store = rig.activate(owner, follower)
    found, expected = contents_of(store.state), rig.model.contents()
    assert found == expected
    assert order_of(found) == order_of(expected)
    for queue in store.state.references.values():
        for reference in queue.values():
            assert reference.location is not None
            assert store.read_message(reference.location).encoded == rig.bodies[reference.message_id]
    for transaction in store.state.transactions.values():
        for _, reference in transaction.adds:
            assert reference.location is not None
            assert store.read_message(reference.location).encoded == rig.bodies[reference.message_id]
    needed = rig.files.needed(expected)
    assert Counter(store.state.large_files()) == needed
    assert set(needed) <= set(rig.files.present()), "a file that a message needs is gone"


def check_files(rig: StoreHarness) -> None:
    """Once everything has passed that may delay it: the files that are needed, and no others."""
    assert rig.store is not None
    rig.settle()
    rig.time.advance(REMOVE_AFTER_MS + 1)
    rig.settle()
    # open transactions hold theirs too
    assert rig.files.present() == sorted(set(rig.files.held.values()))
    assert set(rig.files.needed(rig.model.contents())) <= set(rig.files.present())


@settings(max_examples=examples(250), **RELAXED)
@given(SEEDS)
def test_a_crash_anywhere_in_a_consolidation_loses_nothing(seed: int) -> None:
    stream = random.Random(seed)
    rig = consolidating_rig(stream)
    follower: Follower | None = None
    confirmed = 0
    for life in range(2):
        found = recover(rig.volume.copy().disk("judge"), DIRECTORY).state.sequence
        assert confirmed <= found, "confirmed records were lost"
        check_recovered(rig, "ab"[life], follower)
        assert rig.store is not None
        rig.resume_from(rig.model.contents())
        watcher = rig.follower("ba"[life])
        store = rig.store
        try:
            churn(rig, stream.choice((0, 60, 120)), follower=watcher)
            rig.crash_at(stream.randrange(1, 250))
            churn(rig, 120, follower=watcher)
        except Crashed:
            pass
        confirmed = store.context.durable
        rig.die(power_loss=stream.random() < 0.7)
        follower = watcher if stream.random() < 0.6 else None
    check_recovered(rig, "a", follower)
    rig.resume_from(rig.model.contents())
    churn(rig, 30)
    check_files(rig)


def scripted(seed: int) -> StoreHarness:
    """A store in which the consolidator has something to do all the time, and a load that always is the same."""
    rig = StoreHarness(random.Random(seed), compact_segments_min=1, compact_percent=75, with_large=True)
    rig.activate("a")
    churn(rig, 60)
    rig.settle()
    return rig


def going_on(rig: StoreHarness) -> None:
    churn(rig, 45)
    rig.settle()


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_at_every_single_operation(power_loss: bool) -> None:
    counted = scripted(3)
    before = counted.volume.operations
    going_on(counted)
    operations = counted.volume.operations - before
    seen = snapshot_paths(counted.volume)
    assert seen
    assert operations > 80
    for operation in range(1, operations + 1):
        rig = scripted(3)
        rig.crash_at(operation)
        with pytest.raises(Crashed):
            going_on(rig)
        assert rig.store is not None
        confirmed = rig.store.context.durable
        rig.die(power_loss=power_loss)
        assert recover(rig.volume.copy().disk("judge"), DIRECTORY).state.sequence >= confirmed
        check_recovered(rig, "b", None)
        rig.resume_from(rig.model.contents())
        check_files(rig)


@settings(max_examples=examples(120), **RELAXED)
@given(SEEDS)
def test_damage_in_a_consolidated_segment_is_located_and_never_served(seed: int) -> None:
    stream = random.Random(seed)
    rig = consolidating_rig(stream)
    rig.activate("a")
    churn(rig, stream.choice((100, 200)))
    rig.settle()
    rig.die(power_loss=False)
    rig.model.crash(recover(rig.volume.copy().disk("judge"), DIRECTORY).state.sequence)
    whole = recover(rig.volume.copy().disk("judge"), DIRECTORY)
    if whole.base is None:
        return
    older = [end for end in whole.ends() if end.number <= whole.base.number]
    hit = stream.choice(older)
    path = f"{DIRECTORY}/{segment_name(hit.number, hit.epoch)}"
    offset = stream.randrange(hit.end)
    cut = stream.random() < 0.5
    if cut:
        rig.volume.cut_file(path, offset)
    else:
        rig.volume.flip_bit(path, offset, stream.randrange(8))
    problems = {problem.file: problem.offset for problem in verify(rig.volume.disk("judge"), DIRECTORY).problems}
    assert problems[path] <= offset
    # a start needs nothing of it but messages; each of them is right, or an error with its place
    try:
        store = rig.activate("b")
    except JournalCorrupt as error:
        # the header of the first segment of the epoch is looked at
        assert error.file == path  # noqa: PT017  # either outcome is right
        assert error.offset <= offset  # noqa: PT017
        return
    assert contents_of(store.state) == rig.model.contents()
    failed: set[int] = set()
    for reference in store.state.needed():
        assert reference.location is not None
        number, at, length = unpack_location(reference.location)
        try:
            assert store.read_message(reference.location).encoded == rig.bodies[reference.message_id]
        except JournalCorrupt as error:
            failed.add(reference.message_id)
            assert (error.file, error.offset, number) == (path, at, hit.number)  # noqa: PT017
            assert at + length > offset
    # the node goes on: nothing is copied out of it that is not whole
    rig.resume_from(rig.model.contents())
    churn(rig, 100)
    rig.settle()
    assert rig.failures == []
    left = rig.model.contents()["messages"].values()
    if any(failed & messages.keys() for messages in left):
        assert path in rig.volume.paths(), "damaged segments stay for inspection"


@settings(max_examples=examples(60), **RELAXED)
@given(SEEDS)
def test_a_follower_stays_current_through_consolidation(seed: int) -> None:
    stream = random.Random(seed)
    rig = consolidating_rig(stream)
    rig.activate("a")
    follower = rig.follower("b")
    for _ in range(6):
        churn(rig, 40, follower=follower, current=True)
        while follower.poll(1 << 20) or not follower.caught_up:
            continue
        fresh = Follower(rig.volume.copy().disk("c"), DIRECTORY, id_cache_size=rig.model.id_cache_size)
        while fresh.poll(1 << 20) or not fresh.caught_up:
            continue
        assert follower.restarts == 0
        assert fresh.state.sequence == follower.state.sequence
        assert contents_of(fresh.state) == contents_of(follower.state)
        assert order_of(contents_of(fresh.state)) == order_of(contents_of(follower.state))
        assert live_of(fresh) == live_of(follower)
        assert locations_of(fresh) == locations_of(follower)
    rig.settle(lambda: follower.poll(1 << 20))
    rig.die(power_loss=False)
    while follower.poll(1 << 20):
        continue
    before = follower.position
    check_recovered(rig, "b", follower)
    assert follower.restarts == 0
    # nothing was left to read but what every activation reads again
    assert follower.position == before


def locations_of(follower: Follower) -> dict[tuple[int, int], Any]:
    return {
        (queue_id, message_id): reference.location
        for queue_id, references in follower.state.references.items()
        for message_id, reference in references.items()
    }


@settings(max_examples=examples(100), **RELAXED)
@given(SEEDS)
def test_a_damaged_snapshot_is_said_and_never_served(seed: int) -> None:
    stream = random.Random(seed)
    rig = consolidating_rig(stream)
    rig.activate("a")
    churn(rig, stream.choice((60, 150)))
    rig.settle()
    rig.die(power_loss=False)
    snapshots = snapshot_paths(rig.volume)
    if not snapshots:
        return
    whole = contents_of(recover_on(rig, rig.volume.copy()).state)
    volume = rig.volume.copy()
    hit: dict[str, int] = {}
    for path in snapshots[: stream.choice((1, 1, 2))]:
        length = len(volume.content(path))
        hit[path] = stream.randrange(length)
        if stream.random() < 0.5:
            volume.flip_bit(path, hit[path], stream.randrange(8))
        else:
            volume.cut_file(path, hit[path])
    problems = {problem.file: problem.offset for problem in verify(volume.disk("judge"), DIRECTORY).problems}
    for path, offset in hit.items():
        assert problems[path] <= offset
    try:
        follower = recover_on(rig, volume)
    except JournalCorrupt as error:
        # only when nothing is left to begin with
        assert len(hit) == len(snapshots)
        assert error.file in hit  # noqa: PT017  # either outcome is right
        return
    assert contents_of(follower.state) == whole
    assert f"{DIRECTORY}/{follower.base.name}" not in hit if follower.base is not None else len(snapshots) <= len(hit)
    # the node goes on, and makes new ones from the undamaged segments
    rig.volume = volume
    check_recovered(rig, "b", None)
    rig.resume_from(rig.model.contents())
    churn(rig, 120)
    rig.settle()
    rig.die(power_loss=False)
    assert not verify(rig.volume.disk("judge"), DIRECTORY).problems
    check_recovered(rig, "b", None)


def load(rig: StoreHarness, stream: random.Random, kind: str, count: int) -> None:
    """A workload that leaves something alive."""
    store = rig.store
    assert store is not None
    address = AddressRecord(store.next_id(), "a", (1,))
    store.store_address(address)
    queues = [
        QueueRecord(store.next_id(), address.address_id, f"q{number}", 1)
        for number in range({"pinned": 1, "slow": 2, "many": 40}[kind])
    ]
    for queue in queues:
        store.store_queue(queue)
    waiting: dict[int, list[int]] = {queue.queue_id: [] for queue in queues}
    for number in range(count):
        queue_id = stream.choice(queues).queue_id
        message = Message(stream.randbytes(stream.choice((200, 2000, 6000))), address="a")
        message.assign_id(store.next_id())
        store.store_message(message, address.address_id, (queue_id,))
        waiting[queue_id].append(message.message_id)
        limit = {"pinned": 0, "slow": 30 if queue_id == queues[0].queue_id else 0, "many": 2}[kind]
        mine = waiting[queue_id]
        if kind == "pinned":
            if number % 50:
                store.store_acknowledges(queue_id, (mine.pop(),))
        elif len(mine) > limit:
            store.store_acknowledges(
                queue_id, (mine.pop(0) if kind == "slow" else mine.pop(stream.randrange(len(mine))),)
            )
        if stream.random() < 0.3:
            store.flush()
            rig.time.advance(stream.randrange(20))
    rig.settle()


@settings(max_examples=24, **RELAXED)
@given(SEEDS, st.sampled_from(("pinned", "slow", "many")), st.sampled_from((1, 2, 4)))
def test_the_size_of_the_log_is_bounded_by_its_live_messages(seed: int, kind: str, segments_min: int) -> None:
    stream = random.Random(seed)
    rig = StoreHarness(stream, compact_segments_min=segments_min, compact_percent=50)
    store = rig.activate("a")
    load(rig, stream, kind, 900)
    follower = recover(rig.volume.copy().disk("judge"), DIRECTORY)
    records = {
        reference.location & 0xFFFF_FFFF_FFFF_FFFF_FFFF: reference.location & 0xFFFF_FFFF
        for references in follower.state.references.values()
        for reference in references.values()
        if reference.location is not None
    }
    live_bytes = sum(records.values())
    kept = store.segment_count * SEGMENT_BYTES_MIN
    # a snapshot states the bindings again and is due after 16 KiB of log for each (docs/adr/0036-growth.md)
    bindings = len(store.state.addresses) + len(store.state.queues) + len(store.state.settings)
    interval = max(segments_min, bindings * 16 * 1024 // SEGMENT_BYTES_MIN)
    # the log since the older snapshot, a run in progress with its copies, the open segment
    assert kept <= 2 * live_bytes + (4 * interval + 6) * SEGMENT_BYTES_MIN, (kind, live_bytes, kept, bindings)
    assert store.live_bytes >= live_bytes
