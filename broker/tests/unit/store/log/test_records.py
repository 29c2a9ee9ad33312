"""Goal: every record type survives encoding, and invalid records raise ValueError."""

import json
import struct

import pytest

from understudy.store.log import records
from understudy.store.log.checkpoint import checkpoint_parts, encode_checkpoint, encode_duplicate_ids, encode_item
from understudy.store.log.records import RecordType
from understudy.store.setting_record import SettingKind, SettingRecord, encode_setting

ADDRESS = records.AddressRecord(3, "a\ud800b", (0, 1), True, {"k": [1, None]})
QUEUE = records.QueueRecord(4, 3, "q", 1, "x > 1", False, {"max_consumers": 5})
SETTING = SettingRecord(SettingKind.ADDRESS, "a.\ud800#", {"maxSizeBytes": 5})
REMOVED = SettingRecord(SettingKind.SECURITY, "a", None)
DUPLICATE = records.DuplicateIdRecord(3, 9, b"\0dup")

CASES = [
    (RecordType.ADDRESS_ADD, 0, records.encode_address(ADDRESS), ADDRESS),
    (RecordType.QUEUE_ADD, 0, records.encode_queue(QUEUE), QUEUE),
    (RecordType.ADDRESS_REMOVE, 0, records.encode_id(7), records.AddressRemoveRecord(7)),
    (RecordType.QUEUE_REMOVE, 0, records.encode_id(7), records.QueueRemoveRecord(7)),
    (RecordType.TX_COMMIT, 0, records.encode_id(7), records.CommitRecord(7)),
    (RecordType.TX_ROLLBACK, 0, records.encode_id(7), records.RollbackRecord(7)),
    (RecordType.TX_PREPARE, 0, records.encode_prepare(7, b"xid"), records.PrepareRecord(7, b"xid")),
    (RecordType.DELIVERY_COUNT, 0, records.encode_delivery_count(1, 2, 3), records.DeliveryCountRecord(1, 2, 3)),
    (RecordType.DUPLICATE_ID, 0, records.encode_duplicate_id(3, b"\0dup", 9), DUPLICATE),
    (RecordType.SETTING, 0, encode_setting(SETTING), SETTING),
    (RecordType.SETTING, 0, encode_setting(REMOVED), REMOVED),
    (RecordType.TRIM, 0, records.encode_trim(5, 99), records.TrimRecord(5, 99)),
    (
        RecordType.EPOCH,
        0,
        records.encode_epoch(bytes(range(16)), 4, 123, [records.SegmentEnd(1, 1, 5000), records.SegmentEnd(3, 2, 7)]),
        records.EpochRecord(bytes(range(16)), 4, 123, (records.SegmentEnd(1, 1, 5000), records.SegmentEnd(3, 2, 7))),
    ),
]


@pytest.mark.parametrize(("kind", "flags", "payload", "record"), CASES, ids=[case[0].name for case in CASES])
def test_round_trip(kind: RecordType, flags: int, payload: bytes, record: records.Record) -> None:
    assert records.decode(kind, flags, payload) == record


@pytest.mark.parametrize(("kind", "flags", "payload", "record"), CASES, ids=[case[0].name for case in CASES])
def test_every_prefix_is_refused_or_something_else(
    kind: RecordType, flags: int, payload: bytes, record: records.Record
) -> None:
    for length in range(len(payload)):
        try:
            assert records.decode(kind, flags, payload[:length]) != record
        except ValueError:
            continue


@pytest.mark.parametrize("kind", [0, 16, 31, 32, 47, 255])
def test_unknown_types_are_refused(kind: int) -> None:
    with pytest.raises(ValueError, match=f"type {kind}"):
        records.decode(kind, 0, bytes(64))


def test_checkpoint_is_split_and_comes_back_in_order() -> None:
    big = [bytes([n]) * 600_000 for n in range(4)]
    items = [
        encode_item(RecordType.ADDRESS_ADD, records.encode_address(ADDRESS)),
        encode_item(RecordType.QUEUE_ADD, records.encode_queue(QUEUE)),
        *encode_duplicate_ids(3, big),
    ]
    parts = [records.decode(RecordType.CHECKPOINT, flags, payload) for flags, payload in encode_checkpoint(items)]
    assert len(parts) > 1
    assert [part.first for part in parts] == [True] + [False] * (len(parts) - 1)
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [item for part in parts for item in part.items] == [
        ADDRESS,
        QUEUE,
        *(records.DuplicateIdsItem(3, (each,)) for each in big),
    ]


def test_duplicate_ids_of_one_length_are_one_item_and_come_back_in_order() -> None:
    ids = [b"one", b"two", b"", b"", b"x" * 40, *(number.to_bytes(2, "big") for number in range(5_000))]
    items = [*encode_duplicate_ids(7, ids), *encode_duplicate_ids(8, [b"abc"])]
    assert len(items) < 10
    parts = [
        records.decode(RecordType.CHECKPOINT, 0, payload) for payload in checkpoint_parts(items, part_bytes=20_000)
    ]
    assert len(parts) > 2
    found = [(item.address_id, each) for part in parts for item in part.items for each in item.duplicate_ids]
    assert found == [*((7, each) for each in ids), (8, b"abc")]


def test_duplicate_ids_are_encoded_as_items_of_their_records() -> None:
    """The format of earlier versions: an item for each id, with the payload of DUPLICATE_ID."""
    ids = [b"one", b"two", b"other"]
    each = b"".join(
        encode_item(RecordType.DUPLICATE_ID, records.encode_duplicate_id(7, duplicate_id)) for duplicate_id in ids
    )
    assert b"".join(encode_duplicate_ids(7, ids)) == each
    with_transaction = encode_item(RecordType.DUPLICATE_ID, records.encode_duplicate_id(7, b"two", 5))
    record = records.decode(RecordType.CHECKPOINT, 0, each + with_transaction)
    assert [item.duplicate_ids for item in record.items] == [(b"one", b"two"), (b"other",), (b"two",)]


@pytest.mark.parametrize("size", [0, 8, 15])
def test_a_duplicate_id_in_a_checkpoint_without_its_ids_is_refused(size: int) -> None:
    good = b"".join(encode_duplicate_ids(7, [b"one", b"two"]))
    with pytest.raises((ValueError, struct.error)):
        records.decode(RecordType.CHECKPOINT, 0, encode_item(RecordType.DUPLICATE_ID, bytes(size)) + good)


def test_an_empty_checkpoint_is_one_record() -> None:
    ((flags, payload),) = encode_checkpoint([])
    assert records.decode(RecordType.CHECKPOINT, flags, payload) == records.CheckpointRecord(True, True, ())


def test_names_are_ascii_json() -> None:
    payload = records.encode_address(ADDRESS)[8:]
    assert payload.isascii()
    assert json.loads(payload)["name"] == "a\ud800b"


def test_bindings_are_the_json_that_they_always_were() -> None:
    """Sorted names without blanks; shared texts of settings make no difference, nor do True and 1."""
    texts = records.SettingsTexts()
    settings: list[dict[str, object]] = [
        {"b": 1, "a": None}, {"b": 1, "a": None}, {"b": True, "a": None}, {}, {"a": [{"x": "\u2028"}], "b": 1.5},
    ]  # fmt: skip
    for number, each in enumerate(settings):
        queue = records.QueueRecord(
            7, 8, f'q"{number}\ud800é', number % 2, "a = 'ü'" if number else None, number > 1, each
        )
        values = {
            "name": queue.name, "routing_type": queue.routing_type, "filter": queue.filter, "durable": queue.durable,
            "settings": each,
        }  # fmt: skip
        expected = json.dumps(values, separators=(",", ":"), sort_keys=True).encode("ascii")
        assert records.encode_queue(queue)[16:] == records.encode_queue(queue, texts)[16:] == expected
        address = records.AddressRecord(9, queue.name, (0, 1)[number % 2 :], number > 1, each)
        values = {
            "name": address.name, "routing_types": list(address.routing_types), "auto_created": address.auto_created,
            "settings": each,
        }  # fmt: skip
        expected = json.dumps(values, separators=(",", ":"), sort_keys=True).encode("ascii")
        assert records.encode_address(address)[8:] == records.encode_address(address, texts)[8:] == expected
