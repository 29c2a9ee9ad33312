"""Goal: a run of messages leaves the same bytes, positions and state as its messages one by one."""

from __future__ import annotations

import random

import pytest
from tests.support.sends import sends_of
from tests.support.store import DIRECTORY, StoreHarness

from understudy.errors import StoreError
from understudy.message import DUPLICATE_ID, Message
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import Location, RunSlice


def filled(
    sizes: list[int], *, at_once: bool, ids: bool = False, queues: int = 1, transacted: bool = False
) -> tuple[StoreHarness, MessageStore, list[Location | None]]:
    rig = StoreHarness(random.Random(3), segment_bytes=64 * 1024)
    store = rig.activate("a")
    address_id = store.next_id()
    queue_ids = tuple(store.next_id() for _ in range(queues))
    store.store_address(AddressRecord(address_id, "a", (1,)))
    for queue_id in queue_ids:
        store.store_queue(QueueRecord(queue_id, address_id, f"q{queue_id}", 1))
    transaction_id = store.next_id() if transacted else 0
    rig.settle()
    messages = [
        Message(
            bytes([number % 256]) * size,
            address="a",
            expiration=number % 3 * 1_900_000_000_000,
            properties={DUPLICATE_ID: f"id{number:05}"} if ids else None,
        )
        for number, size in enumerate(sizes)
    ]
    first_id = store.last_id + 1
    store.last_id += len(sizes)
    if at_once:
        runs = store.store_run(
            [(sends_of(messages), 0, len(messages))],
            len(messages),
            first_id,
            address_id,
            queue_ids,
            transaction_id,
            duplicate_ids=[f"id{number:05}".encode() for number in range(len(messages))] if ids else [],
        )
        locations = [each.location for run in runs for each in RunSlice(run, 0, run.count, 4, -1)]
    else:
        for number, message in enumerate(messages):
            message.assign_id(first_id + number)
        locations = [
            store.store_message(
                message,
                address_id,
                queue_ids,
                tx_id=transaction_id,
                duplicate_id=f"id{number:05}".encode() if ids else b"",
            )
            for number, message in enumerate(messages)
        ]
    store.flush()
    rig.settle()
    return rig, store, locations


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize(("queues", "transacted"), [(1, False), (3, False), (1, True), (2, True)])
@pytest.mark.parametrize("seed", range(3))
def test_the_log_is_the_same_byte_for_byte(seed: int, queues: int, transacted: bool, ids: bool) -> None:
    stream = random.Random(seed)
    # enough for several segments, so that a run meets their ends
    sizes = [stream.randrange(0, 9000) for _ in range(60)]
    rig, store, locations = filled(sizes, at_once=True, ids=ids, queues=queues, transacted=transacted)
    other_rig, other, other_locations = filled(sizes, at_once=False, ids=ids, queues=queues, transacted=transacted)
    assert locations == other_locations
    assert store.last_sequence == other.last_sequence == store.context.durable
    assert store.state.live.queues == other.state.live.queues
    assert store.state.segments == other.state.segments
    assert store.state.duplicate_ids == other.state.duplicate_ids
    ours, theirs = (
        [
            (each.tx_id, each.first_segment, each.added_ids, each.duplicate_ids)
            for each in each_store.state.transactions.values()
        ]
        for each_store in (store, other)
    )
    assert ours == theirs
    assert bool(store.state.transactions) == transacted
    assert len(store.state.segments) > 2
    assert [bytes(store.read_message(place).body) for place in locations] == [
        bytes([number % 256]) * size for number, size in enumerate(sizes)
    ]
    for name in rig.disk("x").list(DIRECTORY):
        if name.endswith(".seg"):
            sizes_of = [each.disk("x").open(f"{DIRECTORY}/{name}", read_only=True) for each in (rig, other_rig)]
            data = [file.read(0, file.size()) for file in sizes_of]
            assert data[0] == data[1], name


@pytest.mark.parametrize("at_once", [True, False])
def test_duplicate_ids_are_recorded_alone_as_one_by_one(at_once: bool) -> None:
    """More than fit into a segment; the log is the same byte for byte."""
    found = []
    for together in (at_once, False):
        rig = StoreHarness(random.Random(3), segment_bytes=64 * 1024, id_cache_size=5_000)
        store = rig.activate("a")
        address_id = store.next_id()
        store.store_address(AddressRecord(address_id, "a", (1,)))
        ids = [number.to_bytes(2 + number % 40, "big") for number in range(3_000)]
        if together:
            store.store_duplicate_ids(address_id, ids[:10])
            store.store_duplicate_ids(address_id, ids[10:])
        else:
            for duplicate_id in ids:
                store.store_duplicate_ids(address_id, [duplicate_id])
        store.flush()
        rig.settle()
        assert store.last_sequence == store.context.durable
        files = [
            rig.disk("x").open(f"{DIRECTORY}/{name}", read_only=True)
            for name in rig.disk("x").list(DIRECTORY)
            if name.endswith(".seg")
        ]
        found.append((list(store.state.duplicate_ids[address_id]), [file.read(0, file.size()) for file in files]))
        assert found[-1][0] == ids
        assert len(store.state.segments) > 1
    assert found[0] == found[1]


def test_a_failed_journal_takes_no_run() -> None:
    rig, store, _ = filled([10], at_once=True)
    rig.volume.before_operation = lambda operation: (_ for _ in ()).throw(OSError("gone"))
    store.store_delivery_count(1, 1, 1)
    store.flush()
    rig.time.advance(10)
    assert store.context.failed
    with pytest.raises(StoreError):
        store.store_run([(sends_of([Message(b"late", address="a")]), 0, 1)], 1, store.next_id(), 1, (2,))
