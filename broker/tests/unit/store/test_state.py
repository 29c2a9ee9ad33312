"""Goal: what each record means, and which segments are not needed any more."""

from __future__ import annotations

import pytest

from understudy.message import Message
from understudy.routing.lifecycle.duplicate_ids import forwarded_id_bytes
from understudy.store.log import records
from understudy.store.log.checkpoint import encode_item
from understudy.store.log.records import AddressRecord, QueueRecord, Record, RecordType
from understudy.store.messages.reference import pack_location, unpack_location
from understudy.store.setting_record import SettingKind, SettingRecord, encode_setting
from understudy.store.state import SegmentUse, StoreState

ENCODED = Message(b"x" * 10, address="a").encoded


class Log:
    """Applies records with running sequences, in segment 1 until told otherwise."""

    def __init__(self, id_cache_size: int = 100) -> None:
        self.state = StoreState(id_cache_size)
        self.number = 0
        self.segment(1)

    def segment(self, number: int) -> None:
        self.number = number
        self.state.begin_segment(number, 1, self.state.sequence + 1)

    def apply(self, record: Record) -> None:
        sequence = self.state.sequence + 1
        self.state.apply(record, sequence, self.number, pack_location(self.number, sequence, 50))

    def add(self, message_id: int, *queue_ids: int, tx_id: int = 0, duplicate_id: bytes = b"") -> None:
        self.apply(records.MessageRecord(message_id, tx_id, 1, 5, 6, 7, 0, queue_ids, duplicate_id, ENCODED))

    def ids(self, queue_id: int) -> list[int]:
        return list(self.state.references.get(queue_id, {}))


def test_messages_in_log_order_with_their_fields() -> None:
    log = Log()
    log.add(30, 1, 2)
    log.add(10, 1)
    assert log.ids(1) == [30, 10]
    assert log.ids(2) == [30]
    reference = log.state.references[1][30]
    assert (reference.priority, reference.expiration, reference.scheduled_ms) == (7, 5, 6)
    assert (reference.size_bytes, reference.durable, reference.message) == (len(ENCODED), True, None)
    assert reference.location is not None
    assert unpack_location(reference.location) == (1, 1, 50)
    assert log.state.references[2][30] is not reference


def test_acknowledge_and_delivery_count() -> None:
    log = Log()
    log.add(1, 1, 2)
    log.apply(records.DeliveryCountRecord(1, 1, 3))
    assert log.state.references[1][1].delivery_count == 3
    log.apply(records.AcknowledgeRecord(1, 0, (1, 99)))
    log.apply(records.DeliveryCountRecord(1, 1, 4))
    assert log.ids(1) == []
    assert log.ids(2) == [1]
    assert log.state.live.count() == 1


def test_a_transaction_counts_from_its_commit() -> None:
    log = Log()
    log.apply(AddressRecord(1, "a", (1,)))
    log.add(1, 1)
    log.add(2, 1, tx_id=9, duplicate_id=b"d")
    log.apply(records.AcknowledgeRecord(1, 9, (1,)))
    log.apply(records.DuplicateIdRecord(1, 9, b"e"))
    log.add(3, 1)
    assert log.ids(1) == [1, 3]
    assert not log.state.duplicate_ids
    log.apply(records.CommitRecord(9))
    assert log.ids(1) == [3, 2]
    assert list(log.state.duplicate_ids[1]) == [b"d", b"e"]
    assert not log.state.transactions


def test_a_rolled_back_transaction_never_was() -> None:
    log = Log()
    log.add(1, 1)
    log.add(2, 1, tx_id=9, duplicate_id=b"d")
    log.apply(records.AcknowledgeRecord(1, 9, (1,)))
    log.apply(records.RollbackRecord(9))
    assert log.ids(1) == [1]
    assert not log.state.duplicate_ids
    assert log.state.live.count() == 1


def test_an_epoch_ends_open_transactions_but_not_prepared_ones() -> None:
    log = Log()
    log.add(1, 1, tx_id=8)
    log.add(2, 1, tx_id=9)
    log.apply(records.PrepareRecord(9, b"xid"))
    log.apply(records.EpochRecord(bytes(range(16)), 2, 0, ()))
    assert list(log.state.transactions) == [9]
    assert log.state.transactions[9].prepared
    assert log.state.epoch == 2
    assert log.state.node_id == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    log.apply(records.CommitRecord(9))
    assert log.ids(1) == [2]


def test_queue_removal_takes_messages_also_of_open_transactions() -> None:
    log = Log()
    log.apply(QueueRecord(1, 5, "q", 1))
    log.add(1, 1, 2)
    log.add(2, 1, 2, tx_id=9)
    log.apply(records.QueueRemoveRecord(1))
    log.apply(records.CommitRecord(9))
    assert not log.state.queues
    assert log.ids(1) == []
    assert log.ids(2) == [1, 2]


def test_duplicate_ids_are_bounded_oldest_first() -> None:
    log = Log(id_cache_size=3)
    log.apply(AddressRecord(1, "a", (1,)))
    for value in range(5):
        log.apply(records.DuplicateIdRecord(1, 0, bytes([value])))
    assert list(log.state.duplicate_ids[1]) == [b"\2", b"\3", b"\4"]
    log.apply(records.AddressRemoveRecord(1))
    assert not log.state.duplicate_ids
    assert not log.state.addresses


@pytest.mark.parametrize("packed", [False, True])
def test_ids_of_clients_displace_no_id_of_a_bridge(packed: bool) -> None:
    log = Log(id_cache_size=2)
    log.apply(AddressRecord(1, "a", (1,)))
    forwarded = [forwarded_id_bytes(bytes([number])) for number in range(3)]
    clients = [b"client %02d" % number for number in range(3)]
    mixed = [each for pair in zip(forwarded, clients, strict=True) for each in pair]
    if packed:
        log.state.remember_packed(1, len(mixed[0]), b"".join(mixed))
    else:
        for each in mixed:
            log.apply(records.DuplicateIdRecord(1, 0, each))
    assert list(log.state.duplicate_ids[1]) == [*clients[1:], *forwarded[1:]]
    assert len(log.state.duplicate_ids[1]) == 4


def test_duplicate_ids_of_missing_addresses_are_not_kept() -> None:
    """Temporary ones have no record, and a transaction may end when its address is gone."""
    log = Log()
    log.apply(AddressRecord(1, "a", (1,)))
    log.apply(records.DuplicateIdRecord(1, 9, b"late"))
    log.apply(records.AddressRemoveRecord(1))
    log.apply(records.CommitRecord(9))
    log.apply(records.DuplicateIdRecord(2, 0, b"temporary"))
    assert not log.state.duplicate_ids


def test_a_checkpoint_replaces_bindings_and_drops_those_it_does_not_name() -> None:
    log = Log()
    log.apply(AddressRecord(1, "old", (1,)))
    log.add(1, 7)
    log.add(2, 8)
    kept = QueueRecord(7, 5, "kept", 1)
    log.apply(records.CheckpointRecord(True, False, (AddressRecord(5, "a", (1,)), kept)))
    assert list(log.state.addresses) == [1]
    log.apply(records.CheckpointRecord(False, True, (records.DuplicateIdsItem(5, (b"d",)),)))
    assert list(log.state.addresses) == [5]
    assert log.state.queues == {7: kept}
    assert log.ids(7) == [1]
    assert log.ids(8) == []
    assert list(log.state.duplicate_ids[5]) == [b"d"]
    assert log.state.checkpoint_segment == 1


def test_settings_replace_each_other_and_a_checkpoint_states_them_all() -> None:
    log = Log()
    first = SettingRecord(SettingKind.ADDRESS, "a", {"maxSizeBytes": 1})
    roles = SettingRecord(SettingKind.SECURITY, "a", {"send": ["x"]})
    for record in (first, roles, SettingRecord(SettingKind.ADDRESS, "a", {"maxSizeBytes": 2})):
        log.apply(record)
    assert [each.values for each in log.state.settings.values()] == [{"maxSizeBytes": 2}, {"send": ["x"]}]
    assert encode_item(RecordType.SETTING, encode_setting(roles)) in list(log.state.checkpoint_items())
    log.apply(SettingRecord(SettingKind.ADDRESS, "a", None))
    assert list(log.state.settings.values()) == [roles]
    log.apply(records.CheckpointRecord(True, True, (first,)))
    assert list(log.state.settings.values()) == [first]


def test_an_unfinished_checkpoint_is_forgotten() -> None:
    log = Log()
    log.apply(AddressRecord(1, "a", (1,)))
    log.apply(records.CheckpointRecord(True, False, ()))
    log.apply(records.EpochRecord(bytes(range(16)), 2, 0, ()))
    log.apply(records.CheckpointRecord(False, True, ()))
    assert list(log.state.addresses) == [1]


def test_dead_prefix_stops_at_a_live_message_and_at_an_open_transaction() -> None:
    log = Log()
    for number in range(1, 6):
        if number > 1:
            log.segment(number)
        log.add(number * 1000, 1)
    assert log.state.dead_prefix(6) == []
    log.apply(records.AcknowledgeRecord(1, 0, (1000, 2000, 4000)))
    assert log.state.dead_prefix(6) == [1, 2]
    log.apply(records.AcknowledgeRecord(1, 77, (3000,)))
    assert log.state.dead_prefix(6) == [1, 2]
    log.apply(records.CommitRecord(77))
    assert log.state.dead_prefix(6) == [1, 2, 3, 4]
    assert log.state.dead_prefix(3) == [1, 2]
    log.apply(records.TrimRecord(3, 3))
    assert list(log.state.segments) == [3, 4, 5]
    assert log.state.trimmed_to == 3


def test_segment_use_keeps_the_range_in_any_order() -> None:
    use = SegmentUse(1, 1)
    for message_id in (50, 40, 60, 45):
        use.note(message_id)
    assert (use.message_id_min, use.message_id_max) == (40, 60)
