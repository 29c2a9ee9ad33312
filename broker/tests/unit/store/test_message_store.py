"""Goal: what the broker sees of the store: order of durability, full disks, failures, reading back."""

from __future__ import annotations

import random
import re

import pytest
from tests.support.store import DIRECTORY, NODE_ID, StoreHarness
from tests.support.store_model import contents_of

from understudy.errors import DiskFailed, DiskFull, JournalCorrupt, LimitExceeded, SegmentMissing, StoreError, WrongNode
from understudy.ids import NodeId, first_id_of_epoch
from understudy.limits import RECORD_BYTES_MAX
from understudy.message import Message
from understudy.ports import Space
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.log.segment import segment_name
from understudy.store.messages.message_store import MessageStore, StoreOwner
from understudy.store.messages.reference import Location
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.store.settings import StoreSettings
from understudy.testing.sim.disk import SimDisk


class Store:
    """An active store with one queue."""

    def __init__(self, segment_bytes: int = 64 * 1024) -> None:
        self.rig = StoreHarness(random.Random(3), segment_bytes=segment_bytes)
        self.store = self.rig.activate("a")
        self.address_id, self.queue_id = self.store.next_id(), self.store.next_id()
        self.store.store_address(AddressRecord(self.address_id, "a", (1,)))
        self.store.store_queue(QueueRecord(self.queue_id, self.address_id, "q", 1))
        self.rig.settle()

    def send(self, size: int = 1000, **options: object) -> tuple[int, Location]:
        message = Message(b"m" * size, address="a")
        message.assign_id(self.store.next_id())
        location = self.store.store_message(message, self.address_id, (self.queue_id,), **options)  # type: ignore[arg-type]
        return message.message_id, location

    def again(self, owner: str = "b") -> MessageStore:
        """Everything that was durable, seen by the next node."""
        self.rig.die(power_loss=False)
        return self.rig.activate(owner)


@pytest.fixture
def made() -> Store:
    return Store()


def test_ids_come_from_the_epoch(made: Store) -> None:
    assert made.address_id == first_id_of_epoch(1)
    assert made.again().next_id() == first_id_of_epoch(2)


def test_read_back_from_memory_and_from_disk(made: Store) -> None:
    message_id, location = made.send(2000)
    _, second = made.send(1)
    assert made.store.read_message(location).message_id == message_id
    made.store.flush()
    assert made.store.read_message(second).body == b"m"
    made.rig.settle()
    assert made.store.read_message(location).body == b"m" * 2000
    assert made.store.read_message(second).body == b"m"


def test_reading_a_record_that_is_no_message_is_damage(made: Store) -> None:
    _, location = made.send()
    made.rig.settle()
    with pytest.raises(JournalCorrupt) as caught:
        made.store.read_message(Location(location + (1 << 32)))
    assert caught.value.file.startswith(DIRECTORY)


def test_reading_from_a_segment_that_was_removed_fails_with_its_name(made: Store) -> None:
    """The next owner of the store may remove a segment while a node that lost its lock still serves a turn."""
    _, location = made.send()
    made.rig.settle()
    removed = f"{DIRECTORY}/{segment_name(location >> 64, 1)}"
    made.rig.volume.disk("b").remove(removed)
    with pytest.raises(SegmentMissing, match=re.escape(removed)):
        made.store.read_message(location)


def test_references_are_handed_over(made: Store) -> None:
    message_id, _ = made.send()
    made.rig.settle()
    store = made.again()
    taken = store.state.take_references(made.queue_id)
    assert list(taken) == [message_id]
    assert store.state.take_references(made.queue_id) == {}
    taken.clear()
    assert store.state.live.is_live(made.queue_id, message_id)


def test_segments_change_and_big_records_get_their_own(made: Store) -> None:
    sizes = [40_000, 40_000, 300_000, 10, 40_000]
    locations = [made.send(size)[1] for size in sizes]
    made.rig.settle()
    for size, location in zip(sizes, locations, strict=True):
        assert len(made.store.read_message(location).body) == size
    assert made.store.segment_count > 3
    assert len(made.again().state.references[made.queue_id]) == 5


def test_dead_segments_are_dropped_and_bindings_stay(made: Store) -> None:
    for _ in range(60):
        ids = [made.send(3000, duplicate_id=random.randbytes(8))[0] for _ in range(10)]
        made.store.store_acknowledges(made.queue_id, ids)
        made.rig.settle()
    kept, _ = made.send()
    made.rig.settle()
    assert made.store.segment_count < 10
    assert len(made.rig.segments()) < 12
    duplicates = list(made.store.state.duplicate_ids[made.address_id])
    state = made.again().state
    assert state.first_sequence > 1
    assert list(state.queues) == [made.queue_id]
    assert list(state.references[made.queue_id]) == [kept]
    assert list(state.duplicate_ids[made.address_id]) == duplicates


def test_settings_outlive_the_segments_they_were_written_in(made: Store) -> None:
    kept = SettingRecord(SettingKind.ADDRESS, "a.#", {"redeliveryDelay": 7})
    made.store.store_setting(SettingRecord(SettingKind.SECURITY, "a", {"send": ["x"]}))
    made.store.store_setting(kept)
    made.store.store_setting(SettingRecord(SettingKind.SECURITY, "a", None))
    for _ in range(60):
        ids = [made.send(3000)[0] for _ in range(10)]
        made.store.store_acknowledges(made.queue_id, ids)
        made.rig.settle()
    state = made.again().state
    assert state.first_sequence > 4
    assert list(state.settings.values()) == [kept]


def test_full_disk_refuses_messages_but_not_acknowledgements(made: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ids = [made.send()[0] for _ in range(20)]
    made.rig.settle()
    made.rig.volume.capacity_bytes = made.rig.volume.used_bytes()
    with pytest.raises(DiskFull):
        send_until_full(made, ids)
    assert made.store.full
    before = made.store.last_sequence
    with pytest.raises(DiskFull):
        made.send()
    assert made.store.last_sequence == before
    for message_id in ids[:5]:
        made.store.store_acknowledges(made.queue_id, (message_id,))
    made.store.store_commit(77)
    made.rig.settle()
    assert made.store.context.durable == made.store.last_sequence
    made.rig.volume.capacity_bytes *= 2
    made.rig.time.advance(2000)
    made.rig.settle()
    assert not made.store.full
    said = [each for each in caplog.records if " disk " in each.getMessage() and "messages are" in each.getMessage()]
    assert [each.getMessage() for each in said] == [
        "the disk is full: messages are refused",
        "the disk has space again: messages are accepted",
    ]
    assert said[0].__dict__["reason"]
    ids.append(made.send()[0])
    made.rig.settle()
    assert list(made.again().state.references[made.queue_id]) == ids[5:]


def send_until_full(made: Store, ids: list[int]) -> None:
    for _ in range(500):
        ids.append(made.send()[0])
        made.rig.settle()


def test_disk_usage_limits(made: Store) -> None:
    volume = made.rig.volume
    volume.capacity_bytes = volume.used_bytes() * 100 // 95
    made.store.check_disk()
    with pytest.raises(DiskFull, match="max-disk-usage"):
        made.send()
    volume.capacity_bytes *= 2
    made.store.check_disk()
    made.send()
    made.rig.settings = StoreSettings(64 * 1024, disk_usage_percent_max=-1, disk_free_bytes_min=1 << 50)
    made.rig.settle()
    assert made.again().full


def test_the_disks_of_other_directories_count_too(made: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = made.rig.disk("a")
    space = type(disk).space

    def with_a_full_one(self: SimDisk, path: str) -> Space:
        return Space(0, 1000) if path == "/pages" else space(self, path)

    monkeypatch.setattr(type(disk), "space", with_a_full_one)
    made.store.check_disk()
    made.send()
    disk.make_directory("/large")
    made.store.watch(("/large", "/pages"))
    made.store.check_disk()
    assert made.store.full
    assert made.store.full_reason.startswith("/pages: 100.0 % of the disk used")
    with pytest.raises(DiskFull, match="/pages"):
        made.send()
    # records that free space are still accepted
    made.store.store_acknowledges(made.queue_id, (1,))


def test_a_quiet_log_ends_in_a_mark_so_that_a_flipped_bit_is_no_torn_tail(made: Store) -> None:
    made.send()
    made.rig.settle()
    last = made.store.last_sequence
    quiet = [made.store.last_sequence]
    for _ in range(3):
        made.store.check_disk()
        made.rig.settle()
        quiet.append(made.store.last_sequence)
    assert quiet == [last, last + 1, last + 1, last + 1], "one, and no more until something happens"
    follower = recover(made.rig.volume.copy().disk("judge"), DIRECTORY)
    assert follower.state.sequence == last + 1
    assert follower.torn is None
    made.send()
    made.rig.settle()
    path, offset, length = where_the_last_record_lies(made)
    volume = made.rig.volume.copy()
    volume.flip_bit(path, offset + length // 2, 3)
    follower = recover(volume.disk("judge"), DIRECTORY)
    assert follower.state.sequence == last + 1
    # no later record proves that it was synced: truncated and reported
    assert follower.torn == (path, offset, length)
    made.store.check_disk()
    made.rig.settle()
    volume = made.rig.volume.copy()
    volume.flip_bit(path, offset + length // 2, 3)
    with pytest.raises(JournalCorrupt) as caught:
        recover(volume.disk("judge"), DIRECTORY)
    assert (caught.value.file, caught.value.offset) == (path, offset)


def where_the_last_record_lies(made: Store) -> tuple[str, int, int]:
    follower = recover(made.rig.volume.copy().disk("judge"), DIRECTORY)
    read = follower.last_read()
    assert read is not None
    return read.path, read.batch, read.offset - read.batch


def test_an_activation_logs_the_truncated_bytes(made: Store, caplog: pytest.LogCaptureFixture) -> None:
    made.send()
    made.rig.settle()
    path, offset, length = where_the_last_record_lies(made)
    made.rig.volume.flip_bit(path, offset + length // 2, 3)
    made.again()
    (record,) = (each for each in caplog.records if "truncated" in each.message)
    assert (record.__dict__["file"], record.__dict__["offset"], record.__dict__["bytes"]) == (path, offset, length)


def test_a_failed_sync_is_final(made: Store) -> None:
    released: list[int] = []
    made.rig.volume.fail_next_sync()
    made.send()
    made.store.context.when_durable(made.store.last_sequence, released.append, 1)
    made.store.flush()
    made.rig.time.advance(100)
    assert [type(error) for error in made.rig.failures] == [DiskFailed]
    with pytest.raises(DiskFailed):
        made.send()
    with pytest.raises(DiskFailed):
        made.store.store_acknowledges(made.queue_id, (1,))
    made.store.flush()
    made.rig.time.advance(100)
    assert released == []
    assert len(made.rig.failures) == 1
    closed: list[int] = []
    made.store.close(lambda: closed.append(1))
    made.rig.time.advance(100)
    assert closed == [1]
    assert recover(made.rig.disk("judge"), DIRECTORY).state.sequence == made.store.context.durable


def test_close_seals_and_removes_the_spare(made: Store) -> None:
    made.send()
    closed: list[int] = []
    made.store.close(lambda: closed.append(1))
    assert closed == []
    made.rig.time.advance(1000)
    assert closed == [1]
    assert made.store.context.durable == made.store.context.appended
    (path,) = made.rig.segments()
    assert made.rig.volume.content(path).endswith(b"USTSEAL\n")
    with pytest.raises(StoreError, match="closed"):
        made.send()
    assert made.rig.failures == []
    assert len(contents_of(made.again().state)["messages"][made.queue_id]) == 1


def test_close_at_once_after_activation() -> None:
    rig = StoreHarness(random.Random(1))
    store = rig.activate("a")
    closed: list[int] = []
    store.close(lambda: closed.append(1))
    rig.time.advance(1000)
    assert closed == [1]
    rig.die(power_loss=True)
    assert rig.activate("b").epoch == 2


def test_limits(made: Store) -> None:
    with pytest.raises(LimitExceeded, match="duplicate id"):
        made.send(duplicate_id=bytes(1025))
    with pytest.raises(LimitExceeded, match="record"):
        made.send(RECORD_BYTES_MAX)
    before = made.store.last_sequence
    made.send(duplicate_id=bytes(1024))
    assert made.store.last_sequence == before + 1


def test_another_nodes_store_is_refused_untouched(made: Store) -> None:
    made.rig.settle()
    made.rig.die(power_loss=False)
    before = {path: made.rig.volume.content(path) for path in made.rig.volume.paths()}
    with pytest.raises(WrongNode):
        MessageStore.activate(
            made.rig.follower("b"),
            files=made.rig.log_files("b"),
            clock=made.rig.time,
            node_id=NodeId("11111111-2222-4333-8444-555555555555"),
            owner=StoreOwner(print),
        )
    assert {path: made.rig.volume.content(path) for path in made.rig.volume.paths()} == before
    assert made.rig.activate("c").node_id == NODE_ID


def test_prepared_transactions_survive_with_their_segment(made: Store) -> None:
    tx_id = made.store.next_id()
    message_id, _ = made.send(tx_id=tx_id)
    made.store.store_prepare(tx_id, b"branch")
    for _ in range(40):
        ids = [made.send(5000)[0] for _ in range(10)]
        made.store.store_acknowledges(made.queue_id, ids)
        made.rig.settle()
    store = made.again()
    transaction = store.state.transactions[tx_id]
    assert transaction.xid == b"branch"
    ((queue_id, reference),) = transaction.adds
    assert (queue_id, reference.message_id) == (made.queue_id, message_id)
    assert reference.location is not None
    assert store.read_message(reference.location).message_id == message_id
    store.store_commit(tx_id)
    made.rig.settle()
    assert list(made.again("c").state.references[made.queue_id]) == [message_id]
