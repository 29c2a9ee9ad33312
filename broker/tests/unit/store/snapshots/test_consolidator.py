"""The log consolidator: kept, dropped and copied records, and its behaviour after errors.

Goal: each promise of ADR 0010 on its own, on a store whose content is known.
"""

from __future__ import annotations

import random
from dataclasses import replace
from unittest import mock

import pytest
from tests.support.store import DIRECTORY, Crashed, StoreHarness
from tests.support.store_model import contents_of

from understudy.errors import DiskFailed, JournalCorrupt
from understudy.message import Message
from understudy.store.live_index import LiveIndex
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.segment import parse_name
from understudy.store.messages.reference import Location, unpack_location
from understudy.store.retention import RetentionSettings
from understudy.store.snapshots.relocation import Relocations
from understudy.store.snapshots.reserve import RESERVE_NAME
from understudy.store.snapshots.snapshot import snapshot_names
from understudy.testing.sim.disk import SimFile
from understudy.tools.contents import live_messages, read_contents
from understudy.tools.inspect import verify
from understudy.tools.log_copy import CopyState, LogCopy
from understudy.tools.retained import RetainedCounts, retained_messages

BODY = 6_000


def rig_of(*, segments_min: int = 2, percent: int = 50, seed: int = 1, id_cache_size: int = 5) -> StoreHarness:
    rig = StoreHarness(
        random.Random(seed),
        compact_segments_min=segments_min,
        compact_percent=percent,
        id_cache_size=id_cache_size,
    )
    rig.activate("a")
    rig.queue()
    rig.queue()
    return rig


def put(rig: StoreHarness, *, queue: int = 0, pinned: bool = False) -> tuple[int, Location]:
    """A message, acknowledged at once unless pinned; its id and where it was put."""
    store = rig.store
    assert store is not None
    message = Message(rig.stream.randbytes(BODY), address="x")
    message.assign_id(store.next_id())
    rig.bodies[message.message_id] = message.encoded
    queue_id = rig.queue_ids[queue]
    location = store.store_message(message, rig.address_ids[0], (queue_id,))
    if not pinned:
        store.store_acknowledges(queue_id, (message.message_id,))
    return message.message_id, location


def fill(rig: StoreHarness, count: int, *, pin_every: int = 0) -> list[tuple[int, Location]]:
    """Store ``count`` messages, with time for the disk after each; ids and locations of those that are pinned."""
    kept = []
    for number in range(count):
        pinned = pin_every > 0 and number % pin_every == 0
        entry = put(rig, pinned=pinned)
        if pinned:
            kept.append(entry)
        rig.settle()
    return kept


def names(rig: StoreHarness) -> list[str]:
    return [path.rsplit("/", 1)[1] for path in rig.volume.paths() if path.startswith(f"{DIRECTORY}/")]


def numbers(rig: StoreHarness) -> list[int]:
    return [parsed[0] for name in names(rig) if (parsed := parse_name(name)) is not None and parsed[2]]


def test_one_old_message_does_not_keep_the_log() -> None:
    rig = rig_of(percent=0)
    old = put(rig, pinned=True)
    fill(rig, 120)
    held = numbers(rig)
    assert unpack_location(old[1])[0] == held[0] == 1
    assert held[1] > 2, "dead segments after it were removed"
    assert len(held) <= 8
    assert len(snapshot_names(names(rig))) == 2
    assert rig.store is not None
    assert rig.store.read_message(old[1]).encoded == rig.bodies[old[0]]


def test_a_copied_message_is_read_from_where_it_was_put() -> None:
    rig = rig_of()
    kept = fill(rig, 160, pin_every=20)
    store = rig.store
    assert store is not None
    present = numbers(rig)
    gone = [entry for entry in kept if unpack_location(entry[1])[0] not in present]
    assert gone, "old segments were dropped although something lived in them"
    reader = store.reader()
    for message_id, location in kept:
        assert store.read_message(location).encoded == rig.bodies[message_id]
        upcoming = [other for _, other in kept]
        assert reader.read(location, upcoming).encoded == rig.bodies[message_id]
    queue_id = rig.queue_ids[0]
    rig.die(power_loss=False)
    after = rig.activate("b")
    references = list(after.state.references[queue_id].references())
    assert [reference.message_id for reference in references] == [message_id for message_id, _ in kept]
    for reference in references:
        assert reference.location is not None
        assert unpack_location(reference.location)[0] in present
        assert after.read_message(reference.location).encoded == rig.bodies[reference.message_id]


def test_reading_a_dropped_dead_message_is_an_error_and_never_another_message() -> None:
    rig = rig_of(percent=0)
    put(rig, pinned=True)
    _, location = put(rig)
    fill(rig, 12)
    _, dead = put(rig)
    fill(rig, 120)
    assert rig.store is not None
    assert unpack_location(dead)[0] not in numbers(rig)
    with pytest.raises(JournalCorrupt, match="was dropped"):
        rig.store.read_message(dead)
    assert unpack_location(location)[0] == 1


def test_never_with_no_files() -> None:
    rig = rig_of(segments_min=0)
    put(rig, pinned=True)
    fill(rig, 100)
    assert snapshot_names(names(rig)) == []
    assert numbers(rig) == list(range(1, len(numbers(rig)) + 1))


def test_a_log_in_which_nothing_old_lives_is_trimmed_and_needs_no_snapshot() -> None:
    rig = rig_of(segments_min=10)
    fill(rig, 200)
    assert snapshot_names(names(rig)) == []
    assert len(numbers(rig)) < 8


def test_with_many_queues_a_dead_log_is_trimmed_before_a_snapshot_is_made() -> None:
    """Both state the bindings again; trimming costs less and leaves less."""
    rig = rig_of()
    for _ in range(60):
        rig.queue()
    fill(rig, 300)
    assert not snapshot_names(names(rig))
    assert numbers(rig)[0] > 10


def test_with_many_duplicate_ids_a_dead_log_is_trimmed_before_a_snapshot_is_made() -> None:
    """Both state the duplicate ids again."""
    rig = rig_of(id_cache_size=500)
    assert rig.store is not None
    rig.store.store_duplicate_ids(rig.address_ids[0], [number.to_bytes(2, "big") for number in range(500)])
    fill(rig, 300)
    assert not snapshot_names(names(rig))
    assert numbers(rig)[0] > 10
    found = recover(rig.volume.copy().disk("judge"), DIRECTORY).state.duplicate_ids[rig.address_ids[0]]
    assert list(found) == [number.to_bytes(2, "big") for number in range(500)]


def test_a_snapshot_keeps_the_newest_duplicate_ids_in_order() -> None:
    rig = rig_of(id_cache_size=15)
    rig.address()
    store = rig.store
    assert store is not None
    put(rig, pinned=True)
    ids = [f"id {number}".encode() for number in range(40)]
    for number, duplicate_id in enumerate(ids):
        store.store_duplicate_ids(rig.address_ids[number % 2], [duplicate_id])
        fill(rig, 10)
    assert snapshot_names(names(rig))
    found = recover(rig.volume.copy().disk("judge"), DIRECTORY).state.duplicate_ids
    assert [list(found[address_id]) for address_id in rig.address_ids] == [ids[::2][-15:], ids[1::2][-15:]]


def test_snapshots_are_removed_when_they_cover_no_live_message() -> None:
    rig = rig_of(segments_min=6, percent=0)
    message_id, _ = put(rig, pinned=True)
    fill(rig, 150)
    assert snapshot_names(names(rig))
    assert rig.store is not None
    rig.store.store_acknowledges(rig.queue_ids[0], (message_id,))
    fill(rig, 60)
    assert snapshot_names(names(rig)) == []
    assert len(numbers(rig)) < 8
    assert recover(rig.volume.copy().disk("judge"), DIRECTORY).state.sequence


def test_named_readers_hold_segments() -> None:
    rig = rig_of(percent=0)
    put(rig, pinned=True)
    fill(rig, 30)
    assert rig.store is not None
    first = max(numbers(rig))
    rig.store.readers.register("stream", rig.store.readers.confirmed, 1 << 30)
    fill(rig, 120)
    assert set(range(first, max(numbers(rig)))) <= set(numbers(rig))
    rig.store.readers.remove("stream")
    fill(rig, 30)
    assert first not in numbers(rig)


def test_a_full_disk_only_delays() -> None:
    rig = rig_of()
    put(rig, pinned=True)
    fill(rig, 20)
    rig.volume.capacity_bytes = rig.volume.used_bytes() + 70_000
    for _ in range(20):
        put_or_refused(rig)
        rig.settle_log()
    rig.volume.capacity_bytes = 1 << 40
    rig.time.advance(5_000)
    assert rig.store is not None
    rig.store.check_disk()
    rig.settle_log()
    fill(rig, 120)
    assert rig.failures == []
    assert not [name for name in names(rig) if name.endswith(".snap.new")]
    assert len(numbers(rig)) < 12


def put_or_refused(rig: StoreHarness) -> None:
    assert rig.store is not None
    if not rig.store.full:
        put(rig)


def test_a_node_that_followed_slowly_passes_over_damage_that_a_snapshot_stands_for() -> None:
    """A node that starts now would not read the damaged segment (simulation: wrong-reads 900048)."""
    rig = rig_of()
    fill(rig, 3, pin_every=1)
    follower = rig.follower("b")
    follower.poll(1)
    fill(rig, 60, pin_every=4)
    assert follower.position is not None
    number, offset = follower.position
    (first,) = (name for name in names(rig) if name.startswith(f"segment-{number:012}"))
    (newest, *_) = snapshot_names(names(rig))
    rig.volume.flip_bit(f"{DIRECTORY}/{first}", offset + 100, 0)
    follower.finish()
    assert follower.base is not None
    assert follower.base.name == newest
    cold = rig.follower("c")
    cold.finish()
    assert follower.position == cold.position


def test_a_damaged_snapshot_gives_way_to_the_one_before(caplog: pytest.LogCaptureFixture) -> None:
    rig = rig_of(percent=0)
    put(rig, pinned=True)
    fill(rig, 100)
    newest, older = snapshot_names(names(rig))
    rig.volume.flip_bit(f"{DIRECTORY}/{newest}", 5000, 3)
    follower = Follower(rig.disk("judge"), DIRECTORY, id_cache_size=5)
    follower.finish()
    assert follower.base is not None
    assert follower.base.name == older
    assert "snapshot cannot be used" in caplog.text
    problems = verify(rig.disk("judge"), DIRECTORY).problems
    assert [problem.file for problem in problems] == [f"{DIRECTORY}/{newest}"]
    assert problems[0].offset <= 5000
    # the running node reads it when it makes the next one, and goes on from the older one
    caplog.clear()
    fill(rig, 100)
    assert "snapshot cannot be used" in caplog.text
    assert newest not in names(rig)
    assert not verify(rig.disk("judge"), DIRECTORY).problems
    rig.volume.cut_file(f"{DIRECTORY}/{snapshot_names(names(rig))[0]}", 4096)
    assert recover(rig.disk("judge"), DIRECTORY).base is not None


@pytest.mark.parametrize("offset", [20, 5000], ids=["header", "record"])
def test_a_snapshot_that_is_read_wrong_from_the_cache_is_read_again(offset: int) -> None:
    rig = rig_of()
    fill(rig, 60, pin_every=12)
    (newest, *_) = snapshot_names(names(rig))
    rig.volume.wrong_reads.add(f"{DIRECTORY}/{newest}", offset, 3, cached=True)
    follower = recover(rig.disk("b"), DIRECTORY)
    assert (follower.rejected, follower.base and follower.base.name) == ({}, newest)


def test_a_damaged_snapshot_goes_with_the_first_that_is_made_anew() -> None:
    rig = rig_of(percent=0)
    put(rig, pinned=True)
    while not snapshot_names(names(rig)):
        fill(rig, 1, pin_every=1)
    (damaged,) = snapshot_names(names(rig))
    rig.volume.cut_file(f"{DIRECTORY}/{damaged}", 100)
    rig.die(power_loss=False)
    rig.activate("b")
    while snapshot_names(names(rig)) == [damaged]:
        fill(rig, 1, pin_every=1)
    assert len(snapshot_names(names(rig))) == 1
    assert damaged not in names(rig)
    assert not verify(rig.disk("judge"), DIRECTORY).problems


def test_without_any_snapshot_the_error_names_it() -> None:
    rig = rig_of(percent=0)
    put(rig, pinned=True)
    fill(rig, 100)
    found = snapshot_names(names(rig))
    for name in found:
        rig.volume.cut_file(f"{DIRECTORY}/{name}", 4100)
    with pytest.raises(JournalCorrupt) as caught:
        recover(rig.disk("judge"), DIRECTORY)
    assert caught.value.file in {f"{DIRECTORY}/{name}" for name in found}


def test_a_damaged_record_is_not_copied_and_stays_to_be_seen(caplog: pytest.LogCaptureFixture) -> None:
    rig = rig_of(segments_min=2)
    message_id, location = put(rig, pinned=True)
    fill(rig, 19)
    # after the first snapshot, so that only copying reads it
    assert snapshot_names(names(rig))
    number, offset, length = unpack_location(location)
    path = next(path for path in rig.segments() if (parse_name(path.rsplit("/", 1)[1]) or (0,))[0] == number)
    rig.volume.flip_bit(path, offset + length // 2, 1)
    fill(rig, 150)
    assert "a damaged segment is not consolidated" in caplog.text
    assert number in numbers(rig)
    assert rig.store is not None
    with pytest.raises(JournalCorrupt) as caught:
        rig.store.read_message(location)
    assert (caught.value.file, caught.value.offset) == (path, offset)
    assert rig.failures == []
    assert message_id


def test_live_bytes_are_those_of_the_snapshot_and_the_log_since() -> None:
    rig = rig_of(percent=0)
    fill(rig, 3, pin_every=1)
    fill(rig, 120)
    assert rig.store is not None
    size_bytes, live_bytes = rig.store.size_bytes(), rig.store.live_bytes
    assert 3 * BODY < live_bytes < size_bytes
    again = rig.store
    rig.die(power_loss=False)
    assert abs(rig.activate("b").live_bytes - again.live_bytes) < 2 * 64 * 1024


def test_tools_read_a_consolidated_log_by_its_snapshot() -> None:
    rig = rig_of()
    kept = fill(rig, 160, pin_every=20)
    copy = LogCopy(rig.volume.copy().disk("judge"), DIRECTORY)
    assert copy.base is not None
    assert copy.state is CopyState.WHOLE
    contents = read_contents(copy)
    assert (
        contents_of(contents.state)["messages"]
        == contents_of(recover(rig.volume.copy().disk("judge"), DIRECTORY).state)["messages"]
    )
    found = list(live_messages(copy, contents))
    assert [message.reference.message_id for message in found] == [message_id for message_id, _ in kept]
    assert [message.record.encoded for message in found] == [rig.bodies[message_id] for message_id, _ in kept]


def test_a_node_that_follows_does_not_remember_segments_that_are_gone() -> None:
    rig = rig_of()
    follower = rig.follower("b")
    for number in range(160):
        put(rig, pinned=number % 20 == 0)
        rig.settle()
        follower.poll(1 << 20)
    assert follower.restarts == 0
    gone = max(numbers(rig)) - len(numbers(rig))
    assert gone > 10
    assert len(follower.state.removable) < gone // 2


def test_relocation_follows_several_moves_and_forgets_dead_messages() -> None:
    relocations = Relocations()
    first, second, third = (Location(number << 64 | 4096 << 32 | 100) for number in (1, 2, 3))
    relocations.add(1, 4096, 7, second)
    relocations.add(2, 4096, 7, third)
    assert relocations.resolve(first, {1}) == first
    assert relocations.resolve(first, {2}) == second
    assert relocations.resolve(first, {3}) == third
    live = LiveIndex()
    live.add(1, 7)
    relocations.sweep(live)
    assert len(relocations) == 2
    live.remove(1, (7,))
    relocations.sweep(live)
    assert len(relocations) == 0
    with pytest.raises(KeyError):
        relocations.resolve(first, {3})


@pytest.mark.parametrize("when", ["write", "sync", "rename", "sync-directory"])
def test_what_the_disk_refuses_for_a_snapshot_ends_the_broker(when: str) -> None:
    rig = rig_of(percent=0)
    put(rig, pinned=True)
    store = rig.store
    assert store is not None

    begun = [""]

    def refuse(operation: str) -> None:
        # only what concerns the snapshot, which is there under its temporary name until its rename
        if any(name.endswith(".snap.new") for name in names(rig)) or begun[0] == "rename":
            begun[0] = operation
            if operation == when:
                raise DiskFailed(f"{operation}: Input/output error")

    rig.volume.before_operation = refuse
    for _ in range(60):
        if rig.failures:
            break
        put(rig)
        rig.settle_log()
    assert isinstance(rig.failures[0], DiskFailed)
    assert len(rig.failures) == 1
    confirmed: list[bool] = []
    with pytest.raises(DiskFailed):
        put(rig)
    store.context.when_durable(store.last_sequence + 1, confirmed.append, True)
    rig.settle_log()
    assert not confirmed
    rig.die(power_loss=False)
    rig.volume.before_operation = lambda operation: None
    rig.activate("b")
    rig.settle()
    assert not [name for name in names(rig) if name.endswith(".snap.new")]


def test_a_snapshot_that_cannot_be_read_does_not_end_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    rig = rig_of(percent=0)
    put(rig, pinned=True)
    fill(rig, 30)
    newest = snapshot_names(names(rig))[0]
    opened = SimFile.read

    def read(self: SimFile, offset: int, length: int) -> bytes:
        if self.path.endswith(newest):
            raise DiskFailed(f"cannot read {self.path}: Input/output error")
        return opened(self, offset, length)

    with mock.patch.object(SimFile, "read", read):
        fill(rig, 40)
    assert "the log was not consolidated" in caplog.text
    assert rig.failures == []
    fill(rig, 40)
    assert newest not in names(rig)


def test_a_full_disk_is_consolidated_from_the_reserve() -> None:
    rig = rig_of(segments_min=4, percent=0)
    store = rig.store
    assert store is not None
    old = put(rig, pinned=True)
    waiting = fill(rig, 90, pin_every=1)
    rig.volume.capacity_bytes = rig.volume.used_bytes()
    while not store.full:
        waiting += [put(rig, pinned=True)]
        rig.settle_log()
    held = len(numbers(rig))
    # the consumers continue; their acknowledgements free space even with one old message left
    for message_id, _ in waiting:
        store.store_acknowledges(rig.queue_ids[0], (message_id,))
        rig.settle_log()
    for _ in range(12):
        rig.time.advance(11_000)
        store.check_disk()
        rig.settle()
    assert not store.full
    assert len(numbers(rig)) <= held - 5
    assert RESERVE_NAME in names(rig), "the reserve is there again"
    assert rig.failures == []
    assert store.read_message(old[1]).encoded == rig.bodies[old[0]]
    fill(rig, 20)
    rig.die(power_loss=False)
    rig.activate("b")
    assert contents_of(rig.store.state)["messages"][rig.queue_ids[0]].keys() == {old[0]}


def test_dropped_segments_are_retained_and_snapshots_are_not() -> None:
    rig = StoreHarness(random.Random(1), compact_segments_min=2, compact_percent=50)
    rig.settings = replace(rig.settings, retention=RetentionSettings("/kept"))
    rig.activate("a")
    rig.queue()
    fill(rig, 160, pin_every=20)
    kept = [path.removeprefix("/kept/") for path in rig.volume.paths() if path.startswith("/kept/")]
    retained = [parsed[0] for name in kept if (parsed := parse_name(name)) is not None]
    assert len(retained) == len(kept) > 10
    # nothing is in both places, nothing is in none
    assert sorted(retained + numbers(rig)) == list(range(1, max(numbers(rig)) + 1))
    # a message that was copied forward is retained once
    counts = RetainedCounts()
    found = list(retained_messages(rig.disk("judge"), "/kept", counts))
    assert len({message.record.message_id for message in found}) == len(found)


def test_what_a_node_had_dropped_and_not_removed_is_retained_by_the_next() -> None:
    rig = StoreHarness(random.Random(1), compact_segments_min=2, compact_percent=0)
    rig.settings = replace(rig.settings, retention=RetentionSettings("/kept"))
    rig.activate("a")
    rig.queue()
    put(rig, pinned=True)

    store = rig.store
    assert store is not None

    def dies(operation: str) -> None:
        if operation == "make-directory" and store.state.removable:
            raise Crashed(operation)

    rig.volume.before_operation = dies
    with pytest.raises(Crashed):
        fill(rig, 100)
    dropped = set(store.state.removable)
    assert dropped <= set(numbers(rig))
    rig.die(power_loss=False)
    successor = rig.activate("b")
    rig.settle()
    assert not dropped & set(numbers(rig))
    assert dropped <= {parsed[0] for path in rig.volume.paths() if (parsed := parse_name(path.rsplit("/", 1)[1]))}
    assert not successor.state.removable


def reads_of_segments(rig: StoreHarness, count: int) -> list[str]:
    """Paths of the segments that are read while so many messages come and go; not of files that become segments, whose
    headers are looked at.
    """
    found: list[str] = []
    read = SimFile.read

    def recorded(file: SimFile, offset: int, length: int) -> bytes:
        if "/segment-" in file.path and not file.path.endswith(".new"):
            found.append(file.path)
        return read(file, offset, length)

    with mock.patch.object(SimFile, "read", recorded):
        fill(rig, count, pin_every=10)
    return found


def assert_recovered(rig: StoreHarness) -> None:
    """A node that reads the store from its newest snapshot finds what the running one has."""
    assert rig.store is not None
    expected = {queue: sorted(each) for queue, each in live_ids(rig.store.state.live).items()}
    state = recover(rig.disk("b"), DIRECTORY).state
    assert state.base is not None
    assert {queue: sorted(waiting) for queue, waiting in state.references.items() if waiting} == expected


def live_ids(live: LiveIndex) -> dict[int, list[int]]:
    return {
        queue: [64 * block + slot for block, mask in masks.items() for slot in range(64) if mask >> slot & 1]
        for queue, masks in live.queues.items()
        if masks
    }


def test_segments_that_this_process_wrote_are_not_read_back() -> None:
    rig = rig_of(percent=0)
    put(rig, pinned=True)
    fill(rig, 60)
    made = snapshot_names(names(rig))
    assert made
    assert not reads_of_segments(rig, 60)
    assert snapshot_names(names(rig))[0] > made[0]
    assert_recovered(rig)


@pytest.mark.parametrize("limit", ["understudy.store.log.segment_skim.SKIMMED_SEGMENT_BYTES_MAX",
                                   "understudy.store.state.SKIMMED_BYTES_MAX"])  # fmt: skip
def test_copies_beyond_the_limit_of_memory_are_read_back(limit: str) -> None:
    rig = rig_of(percent=0)
    with mock.patch(limit, 0):
        put(rig, pinned=True)
        fill(rig, 60)
        assert reads_of_segments(rig, 60)
    assert_recovered(rig)
