"""Named readers: positions, limits, refusals, and the log that is kept for them.

Method: a store on a simulated disk whose messages are acknowledged at once, so that without a reader nothing is kept.
"""

from __future__ import annotations

import random

import pytest
from tests.support.store import StoreHarness

from understudy.errors import LimitExceeded, ManagementError, ResourceNotFound, StoreError
from understudy.limits import NAMED_READERS_MAX
from understudy.message import Message
from understudy.store.log.operation_context import OperationContext, Voter
from understudy.store.log.segment import parse_name
from understudy.store.named_readers import LogPosition, NamedReaders
from understudy.store.setting_record import SettingKind, SettingRecord

LIMIT = 1 << 30


def rig_of(*, segments_min: int = 2) -> StoreHarness:
    rig = StoreHarness(random.Random(5), compact_segments_min=segments_min, compact_percent=50)
    rig.activate("a")
    rig.queue()
    return rig


def readers_of(rig: StoreHarness) -> NamedReaders:
    assert rig.store is not None
    return rig.store.readers


def fill(rig: StoreHarness, count: int) -> None:
    """Messages that are acknowledged at once, with time for the disk."""
    store = rig.store
    assert store is not None
    for _ in range(count):
        message = Message(rig.stream.randbytes(6_000), address="x")
        message.assign_id(store.next_id())
        store.store_message(message, rig.address_ids[0], (rig.queue_ids[0],))
        store.store_acknowledges(rig.queue_ids[0], (message.message_id,))
        rig.settle()


def numbers(rig: StoreHarness) -> list[int]:
    names = [parse_name(path.rsplit("/", 1)[1]) for path in rig.segments()]
    return [parsed[0] for parsed in names if parsed is not None and parsed[2]]


def readable_after(rig: StoreHarness, position: LogPosition) -> bool:
    """Whether every record after the position is in the files."""
    rig.settle()
    found = rig.sequences()
    wanted = list(range(position.sequence + 1, found[-1] + 1))
    return found[-len(wanted) :] == wanted if wanted else True


@pytest.mark.parametrize("segments_min", [0, 2, 10])
def test_the_log_after_a_position_stays_until_it_is_committed(segments_min: int) -> None:
    rig = rig_of(segments_min=segments_min)
    fill(rig, 20)
    readers = readers_of(rig)
    reader = readers.register("stream", readers.confirmed, LIMIT)
    fill(rig, 100)
    assert readable_after(rig, reader.position)
    held = readers.held_bytes(reader)
    assert held > 100 * 6_000
    assert len(numbers(rig)) > 8
    readers.commit("stream", readers.confirmed)
    fill(rig, 40)
    assert len(numbers(rig)) < held // 64_000 + 8
    assert readers.held_bytes(readers.get("stream")) < held
    assert readable_after(rig, readers.get("stream").position)


def test_readers_survive_restarts_power_loss_and_snapshots() -> None:
    rig = rig_of()
    fill(rig, 20)
    readers = readers_of(rig)
    kept = readers.register("stream", readers.confirmed, LIMIT)
    other = readers.register("archive", readers.earliest, LIMIT)
    fill(rig, 60)
    for owner, power_loss in (("b", False), ("c", True)):
        rig.die(power_loss=power_loss)
        rig.activate(owner)
        assert list(readers_of(rig)) == [other, kept]
        fill(rig, 60)
        assert readable_after(rig, kept.position)
        assert readable_after(rig, other.position)


def test_a_reader_that_holds_too_much_is_dropped_once_and_says_so() -> None:
    rig = rig_of()
    fill(rig, 20)
    readers = readers_of(rig)
    told: list[str] = []
    readers.listeners.append(lambda reader: told.append(reader.name))
    reader = readers.register("slow", readers.confirmed, 300_000)
    fill(rig, 200)
    assert told == ["slow"]
    assert readers.dropped_count == 1
    dropped = readers.get("slow")
    assert dropped.position == reader.position
    assert dropped.dropped is not None
    assert "its limit is 300000" in dropped.dropped
    assert readers.held_bytes(dropped) == 0
    assert len(numbers(rig)) < 10, "the log is bounded again"
    for call in (
        lambda: readers.commit("slow", readers.confirmed),
        lambda: readers.register("slow", readers.confirmed, 9),
    ):
        with pytest.raises(ManagementError, match=f"dropped at sequence {reader.position.sequence}"):
            call()
    rig.die(power_loss=False)
    rig.activate("b")
    assert readers_of(rig).get("slow") == dropped
    readers_of(rig).remove("slow")
    assert readers_of(rig).register("slow", readers_of(rig).confirmed, LIMIT).dropped is None


def test_a_lower_limit_counts_from_the_next_end_of_a_segment() -> None:
    rig = rig_of()
    fill(rig, 20)
    readers = readers_of(rig)
    readers.register("quick", readers.confirmed, LIMIT)
    readers.register("slow", readers.confirmed, LIMIT)
    fill(rig, 100)
    for name in ("quick", "slow"):
        lowered = readers.register(name, readers.confirmed, 200_000)
        assert lowered.dropped is None
        assert readers.held_bytes(lowered) > 2 * lowered.bytes_max
    readers.commit("quick", readers.confirmed)
    fill(rig, 12)
    assert readers.get("quick").dropped is None, "it has caught up in time"
    assert readers.get("slow").dropped is not None


def test_positions_that_are_not_in_the_log_are_refused() -> None:
    rig = rig_of()
    fill(rig, 100)
    readers = readers_of(rig)
    confirmed, earliest = readers.confirmed, readers.earliest
    assert earliest.sequence > 0, "the beginning was dropped"
    with pytest.raises(ManagementError, match="are not complete in the log any more"):
        readers.register("r", LogPosition(1, earliest.sequence - 1), LIMIT)
    with pytest.raises(ManagementError, match="after the confirmed end"):
        readers.register("r", LogPosition(1, confirmed.sequence + 1), LIMIT)
    with pytest.raises(ManagementError, match="is of epoch 1, not 7"):
        readers.register("r", LogPosition(7, confirmed.sequence), LIMIT)
    readers.register("r", earliest, LIMIT)
    with pytest.raises(ManagementError, match="after the confirmed end"):
        readers.commit("r", LogPosition(1, confirmed.sequence + 99))
    moved = readers.commit("r", confirmed)
    assert readers.commit("r", earliest) == moved, "a retried commit changes nothing"
    assert readers.register("r", earliest, 5_000_000).position == confirmed, "it goes on where it was"


@pytest.mark.parametrize("name", ["", " ", "a/b", "x" * 129, "-a", "\n"])
def test_invalid_names(name: str) -> None:
    readers = readers_of(rig_of())
    with pytest.raises(ManagementError, match="no name of a reader"):
        readers.register(name, readers.confirmed, LIMIT)


def test_limits_and_unknown_readers() -> None:
    readers = readers_of(rig_of())
    with pytest.raises(ManagementError, match="limit of 0 bytes"):
        readers.register("r", readers.confirmed, 0)
    for number in range(NAMED_READERS_MAX):
        readers.register(f"r{number}", readers.confirmed, LIMIT)
    with pytest.raises(LimitExceeded, match="64 readers"):
        readers.register("more", readers.confirmed, LIMIT)
    readers.register("r0", readers.confirmed, LIMIT)
    with pytest.raises(ResourceNotFound):
        readers.commit("more", readers.confirmed)
    with pytest.raises(ResourceNotFound):
        readers.remove("more")


def test_records_that_a_replica_does_not_have_are_not_confirmed() -> None:
    rig = rig_of()
    fill(rig, 5)
    store = rig.store
    assert store is not None
    store.context.attach_replica()
    synced = store.context.durable
    fill(rig, 5)
    assert store.readers.confirmed.sequence == synced
    store.context.advance(store.last_sequence, Voter.REPLICA_MEMORY)
    assert store.readers.confirmed.sequence == synced
    store.context.advance(store.last_sequence - 1, Voter.REPLICA_DISK)
    assert store.readers.confirmed.sequence == store.last_sequence - 1
    store.context.detach_replica()
    assert store.readers.confirmed.sequence == store.last_sequence


def test_the_confirmed_end_does_not_depend_on_the_contracts() -> None:
    context = OperationContext(7)
    context.attach_replica()
    context.advance(9)
    assert context.everywhere == 7


def test_an_invalid_record_of_a_reader_is_an_error() -> None:
    rig = rig_of()
    assert rig.store is not None
    rig.store.store_setting(SettingRecord(SettingKind.READER, "r", {"epoch": 1, "sequence": "x"}))
    rig.settle()
    rig.die(power_loss=False)
    with pytest.raises(StoreError, match="the reader 'r' in the log is invalid: sequence is 'x'"):
        rig.activate("b")


def test_copies_are_not_made_of_segments_that_a_reader_holds() -> None:
    rig = rig_of()
    store = rig.store
    assert store is not None
    readers = readers_of(rig)
    readers.register("r", readers.confirmed, LIMIT)
    for number in range(120):
        fill(rig, 1)
        if number % 20 == 0:
            message = Message(bytes(5_000), address="x")
            message.assign_id(store.next_id())
            store.store_message(message, rig.address_ids[0], (rig.queue_ids[0],))
    assert store._consolidator.copied_messages == 0
    readers.commit("r", readers.confirmed)
    fill(rig, 60)
    assert store._consolidator.copied_messages > 0
