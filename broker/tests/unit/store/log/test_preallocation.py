"""Goal: zeros ahead of the log are written after small batches only, a piece at a time, never over a record; file
work that no batch waits for delays no batch and has ended when the store is closed.
"""

from __future__ import annotations

import random

import pytest
from tests.support.store import DIRECTORY, StoreHarness

from understudy.errors import DiskFailed, DiskFull
from understudy.ids import NodeId
from understudy.message import Message
from understudy.store.log.applier import Applier
from understudy.store.log.format_version import FORMAT_VERSION_FIRST
from understudy.store.log.operations import Append, WriteZeros
from understudy.store.log.preallocation import ZEROS_BYTES, Preallocation, Readiness
from understudy.store.log.reading.follower import recover
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader
from understudy.tools.step_writer import StepWriter

SEGMENT_BYTES = 4 * ZEROS_BYTES


class Spares:
    """Spare segments on a simulated disk, whose writer works step by step."""

    def __init__(self, ahead: int = 1) -> None:
        self.rig = StoreHarness(random.Random(1))
        self.writer = StepWriter(Applier(self.rig.disk("a"), DIRECTORY))
        self.failures: list[BaseException] = []
        self.spares = Preallocation(
            writer=self.writer,
            clock=self.rig.time,
            first=SegmentHeader(
                node_id=NodeId("11111111-2222-4333-8444-555555555555"),
                epoch=1,
                number=1,
                created_ms=0,
                allocated_bytes=SEGMENT_BYTES,
                first_of_epoch=False,
                format_version=FORMAT_VERSION_FIRST,
            ),
            ahead=ahead,
            on_prepared=lambda: None,
            on_failure=self.failures.append,
            on_space=lambda: None,
        )
        self.writer.drain()
        self.written: list[str] = []
        self.rig.volume.before_operation = self.written.append

    def zero(self) -> list[str]:
        """Zero one piece; returns the operations of the disk."""
        self.written.clear()
        self.spares.zero()
        self.writer.drain()
        return list(self.written)


def test_a_segment_is_zeroed_piece_by_piece_to_its_end_and_no_further() -> None:
    made = Spares()
    pieces = 0
    while made.zero() == ["write", "sync"]:
        pieces += 1
    assert pieces == 4
    assert made.zero() == []
    (path,) = made.rig.segments()
    assert len(made.rig.volume.content(path)) == SEGMENT_BYTES
    made.spares.take(0)
    made.writer.drain()
    assert made.zero() == ["write", "sync"], "the next one has its turn when the first is taken"


def test_one_piece_is_under_way_at_a_time() -> None:
    made = Spares()
    made.spares.zero()
    made.spares.zero()
    made.writer.drain()
    assert made.written == ["write", "sync"]


def test_a_record_written_during_zeroing_is_not_overwritten() -> None:
    made = Spares()
    made.spares.zero()
    segment = made.spares.take(0)
    made.writer.submit([Append(segment.name, HEADER_BLOCK_BYTES, [b"record"], 6, 1), segment.sync], lambda error: None)
    made.writer.drain()
    (path, _) = made.rig.segments()
    assert made.rig.volume.content(path)[HEADER_BLOCK_BYTES:].startswith(b"record\0")
    made.writer.submit([WriteZeros(segment.name, HEADER_BLOCK_BYTES, 10)], lambda error: None)
    with pytest.raises(AssertionError, match="written up to"):
        made.writer.drain()


def test_a_disk_without_space_to_overwrite_keeps_the_segment_unchanged() -> None:
    made = Spares()

    def full(operation: str) -> None:
        raise DiskFull(operation)

    made.rig.volume.before_operation = full
    made.spares.zero()
    made.writer.drain()
    assert made.failures == []
    assert made.zero() == []
    assert made.spares.take(0).readiness is Readiness.READY


def test_a_failed_sync_of_zeros_is_final() -> None:
    made = Spares()

    def broken(operation: str) -> None:
        raise DiskFailed(operation)

    made.rig.volume.before_operation = broken
    made.spares.zero()
    made.writer.drain()
    assert [str(failure) for failure in made.failures] == ["write"]


def test_a_segment_whose_zeros_failed_is_not_grown() -> None:
    made = Spares()

    def broken(operation: str) -> None:
        made.written.append(operation)
        if operation == "sync":
            raise DiskFailed(operation)

    made.rig.volume.before_operation = broken
    made.spares.zero()
    # a record larger than a segment: more space and another sync are requested after the zeros
    segment = made.spares.take(2 * SEGMENT_BYTES)
    made.writer.drain()
    assert made.written == ["write", "sync"]
    assert segment.readiness is Readiness.PREPARING
    assert {str(failure) for failure in made.failures} == {"sync"}


def test_a_batch_after_failed_zeroing_is_written_but_not_confirmed() -> None:
    rig = StoreHarness(random.Random(1), segment_bytes=8 * ZEROS_BYTES)
    store = rig.activate("a")
    rig.queue()
    rig.settle()
    while not rig.idle:
        rig.time.advance(10)
    durable = store.context.durable
    asked: list[str] = []
    released: list[int] = []

    def fail_once(operation: str) -> None:
        asked.append(operation)
        if asked == ["write", "sync"]:
            raise DiskFailed("the next segment")

    rig.volume.before_operation = fail_once
    store._journal.spares.zero()
    rig.send()
    store.context.when_durable(store.last_sequence, released.append, 1)
    store.flush()
    for _ in range(100):
        rig.time.advance(10)
        store.flush()
    assert asked == ["write", "sync"] * 2, "the batch was on its way; another file, and its own sync"
    assert [str(failure) for failure in rig.failures] == ["the next segment"]
    assert released == []
    assert store.context.durable == durable
    with pytest.raises(DiskFailed):
        rig.send()
    # not confirmed, so the next activation may keep or drop it: here it was kept
    rig.die(power_loss=True)
    assert recover(rig.disk("judge"), DIRECTORY).state.sequence > durable


def test_nothing_is_zeroed_once_it_stops() -> None:
    made = Spares()
    made.spares.stop()
    assert made.zero() == []


@pytest.mark.parametrize(("size", "zeroes"), [(1_000, True), (200_000, False)])
def test_only_small_batches_have_zeros_written_ahead(size: int, zeroes: bool) -> None:
    rig = StoreHarness(random.Random(1), segment_bytes=16 * 1024 * 1024)
    store = rig.activate("a")
    rig.queue()
    rig.settle()
    for _ in range(100):
        # nothing is left from the small batches that made the queue
        store._journal.spares.zero()
        rig.time.advance(100)
    store._journal.begin_segment()
    rig.settle()
    writes = [0]

    def count(operation: str) -> None:
        writes[0] += operation == "write"

    rig.volume.before_operation = count
    for _ in range(10):
        message = Message(bytes(size), address="x")
        message.assign_id(store.next_id())
        store.store_message(message, rig.address_ids[0], (rig.queue_ids[0],))
        rig.settle()
    assert writes[0] == (20 if zeroes else 10)


def test_a_batch_waits_one_turn_when_the_one_before_was_larger() -> None:
    rig = StoreHarness(random.Random(1))
    store = rig.activate("a")
    rig.queue()
    rig.settle()

    def collect(count: int) -> None:
        for number in range(count):
            store.store_acknowledges(rig.queue_ids[0], (number,))

    collect(5)
    store.flush()
    rig.settle()
    collect(2)
    assert store.flush(gather=True), "three of the clients that wait may still send"
    assert store._journal.parts
    collect(1)
    assert not store.flush(gather=True), "but it waits one turn only"
    assert not store._journal.parts
    rig.settle()
    collect(3)
    assert not store.flush(gather=True), "as many as before"
    rig.settle()
    assert not store.flush(gather=True), "there is nothing to write"
    assert store.context.durable == store.last_sequence


def test_no_batch_waits_for_a_client_that_works_alone() -> None:
    """The preparation of a branch comes with its message, its commit by itself: no other client is likely to write."""
    rig = StoreHarness(random.Random(1))
    store = rig.activate("a")
    rig.queue()
    rig.settle()
    for clients, waits in ((1, False), (2, True)):
        for count in (3, 1):
            for number in range(count):
                store.store_acknowledges(rig.queue_ids[0], (number,))
            for _ in range(clients):
                store.context.when_durable(store.last_sequence, lambda: None)
            assert store.flush(gather=True) is (waits and count == 1), (clients, count)
            store.flush()
            rig.settle()


def test_the_store_is_closed_only_after_pending_removals() -> None:
    rig = StoreHarness(random.Random(1))
    store = rig.activate("a")
    rig.queue()
    rig.settle()
    ended: list[str] = []
    path = f"{DIRECTORY}/snapshot-x"
    rig.disk("a").open(path, create=True).close()
    assert rig.housekeeper is not None
    # queued after so much other file work that the log is closed before
    for _ in range(50):
        rig.housekeeper.run(lambda: None, lambda error: None)
    store._journal.remove_files(["snapshot-x"], lambda error: ended.append("removed"))
    store.close(lambda: ended.append("closed"))
    for _ in range(500):
        rig.time.advance(10)
    assert ended == ["removed", "closed"]
    assert not rig.disk("judge").exists(path)
    assert recover(rig.disk("judge"), DIRECTORY).state.sequence == store.last_sequence
