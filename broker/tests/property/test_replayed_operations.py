"""Goal: the operations of a store, executed again on an empty directory, give the same files (ADR 0048).

Method: random workloads over several activations, with large bodies, snapshots and a quarantined record, on a
simulated disk whose applier records the executed operations. The recorded operations are executed by another applier on
an empty volume; then all files are compared. Prefixes of the stream, and a crash with loss of unsynced data within it,
must leave a log that opens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import cache

import pytest

from support.store import DIRECTORY, Crashed, StoreHarness
from understudy.errors import BrokerError, DiskFull
from understudy.message import LargeBody
from understudy.ports import Disk, Operation
from understudy.store.log.applier import Applier
from understudy.store.log.operations import Append, CreateSegment, FinishBodies, RenameFile, SealSegment
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import QueueRecord
from understudy.store.log.segment_pool import PoolSettings, SegmentPool, parse_pool_name
from understudy.store.messages.message_store import MessageStore
from understudy.store.quarantine import QuarantineEntry
from understudy.store.retention import RetentionSettings
from understudy.testing.sim.disk import SimVolume
from understudy.testing.sim.valid_bytes import valid_bytes

SEEDS = range(3)


@cache
def recorded(seed: int, *, full_disk: bool = False) -> tuple[list[Operation], dict[str, bytes]]:
    """The operations of three activations of one store, and the files that they left."""
    stream: list[Operation] = []

    class Recorder(Applier):
        def apply(self, operations: Sequence[Operation], disk: Disk | None = None) -> None:
            for operation in operations:
                super().apply((operation,), disk)
                stream.append(operation)

    rig = StoreHarness(random.Random(seed), compact_segments_min=2, with_settings=True)
    rig.applier_class = Recorder
    choice = random.Random(seed)
    for number in range(3):
        store = rig.activate(f"node {number}")
        rig.resume_from(rig.model.contents())
        entry = QuarantineEntry(f"entry-{number}", "message", "a test", 1, message_id=7, length=3)
        store.quarantine.keep(entry, lambda: b"raw", lambda error: None)
        capacity_bytes, filler = rig.volume.capacity_bytes, store.next_id()
        for turn in range(120):
            if turn % 20 == 0:
                write_body(store, 300_000 * (turn % 40), ends=choice.choice(["kept", "released", "discarded"]))
            if full_disk and turn == 60:
                rig.volume.capacity_bytes = rig.volume.used_bytes()
            if turn == 80:
                rig.volume.capacity_bytes = capacity_bytes
            try:
                rig.operate()
                store.store_queue(QueueRecord(filler, 1, "q" * 6000, 1))
            except DiskFull:
                assert full_disk
            store.flush()
            store.check_disk()
            rig.time.advance(10)
        settle(rig)
        if number == 1:
            rig.die(power_loss=False)
            rig.model.crash(store.last_sequence)
        else:
            close(rig)
    return stream, files(rig.volume)


def write_body(store: MessageStore, size_bytes: int, *, ends: str) -> None:
    """The body of a large message, in several pieces; it is kept, released or discarded."""
    body = store.large.create(store.next_id(), durable=True, failed=lambda error: None)
    for _ in range(2):
        body.append(bytes(size_bytes))
    if ends == "discarded":
        body.discard()
        return

    def stored(large: LargeBody | None, error: BrokerError | None) -> None:
        if large is not None and ends == "kept":
            store.large.hold(large.file_id)

    body.finish(stored)


def settle(rig: StoreHarness) -> None:
    assert rig.store is not None
    for _ in range(5000):
        rig.store.flush()
        rig.time.advance(10)
        if rig.idle and rig.store.context.durable == rig.store.last_sequence and not rig.store.consolidating:
            return
    raise AssertionError("the store does not come to rest")


def close(rig: StoreHarness) -> None:
    assert rig.store is not None
    closed: list[bool] = []
    rig.store.close(lambda: closed.append(True))
    for _ in range(5000):
        if closed:
            break
        rig.time.advance(10)
    assert closed
    rig.model.crash(rig.store.last_sequence)
    rig.store = None


def files(volume: SimVolume) -> dict[str, bytes]:
    """Valid bytes by path, without the files that each node keeps for later segments."""
    paths = [path for path in volume.paths() if path.startswith(DIRECTORY)]
    kept = {path for path in paths if parse_pool_name(path.rpartition("/")[2])}
    return {path: valid_bytes(path, volume.content(path)) for path in paths if path not in kept}


def plain(value: object) -> bool:
    """Whether a value can be encoded without knowing more than its fields."""
    if isinstance(value, str | int | bytes | None):
        return True
    if is_dataclass(value):
        return all(plain(getattr(value, field.name)) for field in fields(value))
    return isinstance(value, tuple | list) and all(plain(each) for each in value)


@pytest.mark.parametrize("full_disk", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_recorded_operations_give_the_same_files(seed: int, full_disk: bool) -> None:
    """One replica retains removed segments, the other one keeps their files for later ones."""
    stream, left = recorded(seed, full_disk=full_disk)
    retaining, keeping = SimVolume(), SimVolume()
    Applier(retaining.disk("replica"), DIRECTORY, RetentionSettings("/kept")).apply(stream)
    pool = SegmentPool(keeping.disk("replica"), DIRECTORY, PoolSettings())
    Applier(keeping.disk("replica"), DIRECTORY, pool=pool).apply(stream)
    for replica in (retaining, keeping):
        found = files(replica)
        assert found.keys() == left.keys()
        assert [path for path in left if found[path] != left[path]] == []
    assert all(plain(operation) for operation in stream)


def test_the_recorded_operations_are_of_every_part_of_the_store() -> None:
    stream = [operation for seed in SEEDS for operation in recorded(seed)[0]]
    assert {Append, CreateSegment, SealSegment, FinishBodies} <= {type(operation) for operation in stream}
    renamed = {operation.target.split("-")[0] for operation in stream if isinstance(operation, RenameFile)}
    assert renamed == {"snapshot", "quarantine/entry"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_opens_after_any_prefix_of_the_operations(seed: int) -> None:
    stream, _ = recorded(seed)
    replica = SimVolume()
    applier = Applier(replica.disk("replica"), DIRECTORY)
    last = 0
    choice = random.Random(seed)
    for operation in stream:
        applier.apply((operation,))
        if choice.random() < 0.02:
            sequence = recover(replica.disk("reader"), DIRECTORY).state.sequence
            assert sequence >= last
            last = sequence


@pytest.mark.parametrize("seed", range(12))
def test_a_log_opens_after_a_crash_within_the_operations(seed: int) -> None:
    choice = random.Random(seed)
    stream, _ = recorded(seed % len(SEEDS))
    replica = SimVolume()
    left = [choice.randrange(1, 3 * len(stream))]

    def crash(operation: str) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise Crashed(operation)

    replica.before_operation = crash
    try:
        Applier(replica.disk("replica"), DIRECTORY).apply(stream)
    except Crashed:
        pass
    replica.before_operation = lambda operation: None
    replica.crash_process("replica")
    replica.lose_unsynced(choice)
    recover(replica.disk("reader"), DIRECTORY)
