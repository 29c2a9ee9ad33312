"""Runs of messages of the native kernel and of its Python twin: their log records, deliveries and confirmations.

Goal: the records are those that ``MessageStore`` writes, the frames are those of the codec, and the twins differ in
nothing. Method: the batches of ``test_kernel_twins_sends``.
"""

import random
from array import array
from collections.abc import Callable
from itertools import pairwise
from struct import pack
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.kernel_sends import (
    KERNELS,
    LIMIT_BYTES,
    Kernel,
    alike_batches,
    batches,
    corpus,
    due_ms,
    duplicate_id_of,
    group_of,
    integers,
)
from support.kernel_views import view_of_run
from support.kernels import NATIVE, both, needs_native
from support.store import StoreHarness
from understudy.kernel.core import frames
from understudy.kernel.log import LogPosition, runs
from understudy.message import Message
from understudy.store.log.records import HEADER, HEADER_BYTES, AddressRecord, DuplicateIdRecord, QueueRecord, decode
from understudy.store.messages.message_store import MessageStore
from understudy.wire.core.codec import encode_null_response

# --- records ----------------------------------------------------------------------------------------------------------

ids = st.integers(1, 2**62)
positions = st.builds(
    LogPosition,
    segment=st.integers(1, 2**31),
    offset=st.integers(0, 2**20),
    room=st.just(2**31) | st.integers(-10, 3_000),
    sequence=st.integers(0, 2**63),
    batch=st.integers(0, 2**32 - 1),
    seed=st.integers(0, 2**32 - 1),
)


@needs_native
@given(
    batches | alike_batches, st.integers(0, 5), st.integers(0, 50), ids, ids, st.lists(ids, max_size=5).map(tuple),
    st.just(0) | ids, positions, st.lists(st.integers(0, 30), max_size=4), st.booleans(), st.booleans(),
)  # fmt: skip
def test_runs_are_the_same(
    data: bytes,
    row: int,
    count: int,
    first_id: int,
    address_id: int,
    queue_ids: tuple[int, ...],
    transaction_id: int,
    position: LogPosition,
    cuts: list[int],
    reverse: bool,
    beyond: bool,
) -> None:
    assert NATIVE is not None
    sends, native = frames.split_sends(data, 0, LIMIT_BYTES, 256), NATIVE.split_sends(data, 0, LIMIT_BYTES, 256)
    assert sends is not None
    row %= sends.count
    count = sends.alike(row, 1 << 30, 1, 1 << 62, count)[0]
    position = position._replace(room=position.offset + position.room)
    # parts of several reads, in the order of their rows or not, some with fewer messages than they name
    cuts = sorted(min(cut, count) for cut in cuts)
    bounds = list(pairwise((0, *cuts, count)))
    extents = [(row + begin, end - begin) for begin, end in (bounds[::-1] if reverse else bounds)]
    if beyond:
        extents.append((sends.count - 1 if count else row, 5 if count == sends.count - row else 0))
    extents = [each for each in extents if each[1]] or [(row, 0)]
    native_parts, parts = ([(each, *extent) for extent in extents] for each in (native, sends))
    assert view_of_run(NATIVE.keep_sends(native_parts, first_id)) == view_of_run(runs.keep_sends(parts, first_id))
    arguments = (first_id, address_id, queue_ids, transaction_id, position)
    found = NATIVE.append_sends(native_parts, *arguments)
    assert view_of_run(found) == view_of_run(runs.append_sends(parts, *arguments))
    assert type(found.grouped) is bool
    whole = [(native, row, count)]
    if not (reverse or beyond):
        assert view_of_run(found) == view_of_run(NATIVE.append_sends(whole, *arguments))


@needs_native
@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(batches, st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=4),
    st.sampled_from((0, 0, 3)),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_the_same_joined_run_from_either_kernel(
    parts: list[tuple[bytes, int, int]], segment: int, gaps: list[int]
) -> None:
    """Rows of several runs are one run, whose messages, places and ids are theirs."""
    both: list[list[tuple[Any, int, int]]] = [[], []]
    next_id = offset = 100
    for (data, begin, count), gap in zip(parts, gaps, strict=False):
        next_id += gap
        run = None
        for each, split, append, keep in (
            (both[0], frames.split_sends, runs.append_sends, runs.keep_sends),
            (both[1], NATIVE.split_sends, NATIVE.append_sends, NATIVE.keep_sends),
        ):
            sends = split(data, 0, LIMIT_BYTES, 256)
            taken = sends.alike(0, 1 << 30, 1, 1 << 62, 256)[0] if sends is not None else 0
            if not taken:
                continue
            if segment:
                run = append([(sends, 0, taken)], next_id, 5, (7,), 0, LogPosition(segment, offset, 1 << 40, 0, 0, 0))
            else:
                run = keep([(sends, 0, taken)], next_id)
            end = min(run.count, begin + count)
            if begin < end:
                each.append((run, begin, end))
        if run is not None:
            next_id, offset = next_id + run.count, offset + len(run.data)
    if not both[0]:
        return
    found, expected = NATIVE.join_runs(both[1]), runs.join_runs(both[0])
    assert view_of_run(found) == view_of_run(expected)
    rows = [(run, row) for run, begin, end in both[0] for row in range(begin, end)]
    assert [expected.encoded(row) for row in range(expected.count)] == [run.encoded(row) for run, row in rows]
    assert expected.ids(0, expected.count) == [run.first_id + row for run, row in rows]
    if segment:
        assert [expected.place(row) for row in range(expected.count)] == [run.place(row) for run, row in rows]
    # and of joined runs again
    last = expected.count
    twice = runs.join_runs([(expected, 0, 1), *([(expected, 1, last)] if last > 1 else [])])
    assert view_of_run(twice) == view_of_run(expected)
    again = NATIVE.join_runs([(found, 0, 1), *([(found, 1, last)] if last > 1 else [])])
    assert view_of_run(again) == view_of_run(found)


@pytest.mark.parametrize("kernel", KERNELS)
def test_runs_that_cannot_be_joined(kernel: Kernel) -> None:
    sends = kernel[0].split_sends(corpus()[0], 0, LIMIT_BYTES, 256)
    run = kernel[1].keep_sends([(sends, 1, 50)], 9)
    logged = kernel[1].append_sends([(sends, 1, 2)], 11, 1, (1,), 0, LogPosition(1, 0, 1 << 40, 0, 0, 0))
    for parts in ([], [(run, 0, 3)], [(run, 1, 1)], [(run, 0, 2), (run, 0, 2)], [(run, 0, 2), (logged, 0, 1)]):
        with pytest.raises(ValueError, match=r"row|rising"):
            kernel[1].join_runs(parts)


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_that_a_run_has_not(kernel: Kernel) -> None:
    sends = kernel[0].split_sends(corpus()[0], 0, LIMIT_BYTES, 256)
    run = kernel[1].keep_sends([(sends, 1, 50)], 9)
    assert run.count == 2
    for read in (run.encoded, run.size, run.place):
        with pytest.raises(IndexError):
            read(2)
    with pytest.raises(IndexError):
        kernel[0].run_receives(run, 0, 3, 1, 1)
    with pytest.raises(IndexError):
        run.bytes_between(0, 3)
    receives = kernel[0].run_receives
    assert receives(run, 2, 2, 1, 1) == receives(run, 5, 2, 1, 1) == b""
    assert kernel[1].keep_sends([(sends, 3, 50)], 9).count == 0
    with pytest.raises(IndexError):
        kernel[1].append_sends([(sends, 3, 1)], 9, 1, (1,), 0, LogPosition(1, 0, 5_000, 1, 0, 0))


@needs_native
@given(
    st.lists(st.binary(max_size=40), max_size=12), st.integers(0, 2**64 - 1), st.integers(0, 5_000),
    st.integers(-1, 6_000), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_the_same_records_of_duplicate_ids_from_either_kernel(
    ids: list[bytes], address_id: int, offset: int, room: int, seed: int
) -> None:
    position = LogPosition(3, offset, room, 41, 96, seed)
    records, offsets = both(runs.append_duplicate_ids, ids, address_id, position)
    at, taken = 0, 0
    for place in array("I", offsets):
        assert place == offset + at
        crc, length, sequence, batch, kind, *_ = HEADER.unpack_from(records, at)
        record = records[at : at + length]
        assert (crc, sequence, batch) == (crc32(record[4:], seed), 42 + taken, 96)
        assert decode(kind, 0, record[HEADER_BYTES:]) == DuplicateIdRecord(address_id, 0, ids[taken])
        at, taken = at + length, taken + 1
        assert offset + at <= room - 4 * (taken - 1)
    assert at == len(records)
    if taken < len(ids):
        assert offset + at + HEADER_BYTES + 16 + len(ids[taken]) > room - 4 * taken


class Log:
    """A store whose records are looked at before they are written."""

    def __init__(self) -> None:
        self.rig = StoreHarness(random.Random(1), segment_bytes=1 << 20)
        self.store: MessageStore = self.rig.activate("a")
        self.address_id, self.queue_id = self.store.next_id(), self.store.next_id()
        self.store.store_address(AddressRecord(self.address_id, "a", (1,)))
        self.other_id = self.store.next_id()
        self.store.store_queue(QueueRecord(self.queue_id, self.address_id, "q", 1))
        self.store.store_queue(QueueRecord(self.other_id, self.address_id, "other", 1))

    def position(self, size_bytes: int) -> LogPosition:
        """The end of the log, with at least ``size_bytes`` left in the segment."""
        self.store.flush()
        self.rig.settle()
        journal = self.store._journal
        if journal.offset + size_bytes > journal.room:
            journal.make_room(size_bytes)
        return LogPosition(journal.number, journal.offset, journal.room, journal.sequence, journal.batch, journal.seed)

    def written_by(self, work: Callable[[], object]) -> bytes:
        """The records that ``work`` appends."""
        parts = self.store._journal.parts
        before = len(parts)
        work()
        assert self.store._journal.parts is parts
        return b"".join(parts[before:])


@pytest.mark.parametrize("kernel", KERNELS)
def test_records_are_those_of_the_store(kernel: Kernel) -> None:
    told = Log()

    @settings(max_examples=60)
    @given(batches | alike_batches, st.sampled_from((0, 0, 77)), st.booleans())
    def check(data: bytes, transaction_id: int, both: bool) -> None:
        sends = kernel[0].split_sends(data, 0, LIMIT_BYTES, 256)
        queue_ids = (told.queue_id, told.other_id) if both else (told.queue_id,)
        count = sends.alike(0, 1 << 30, 1, 1 << 62, 256)[0]
        if not count or not sends.durable(0):
            return
        position = told.position(4 * len(data) + 200 * count)
        first_id = told.store.last_id + 1
        told.store.last_id += count
        run = kernel[1].append_sends(
            [(sends, 0, count)], first_id, told.address_id, queue_ids, transaction_id, position
        )
        assert run.count == count

        def store() -> None:
            for row in range(count):
                message = Message.decode(sends.encoded(row))
                message.assign_id(first_id + row)
                duplicate_id = duplicate_id_of(message)
                place = told.store.store_message(
                    message,
                    told.address_id,
                    queue_ids,
                    tx_id=transaction_id,
                    duplicate_id=duplicate_id,
                    scheduled_ms=due_ms(message),
                )
                assert place == run.segment << 64 | run.place(row)[0] << 32 | run.place(row)[1]
                assert run.encoded(row) == message.encoded
                assert run.expiration(row) == message.expiration
                assert run.scheduled(row) == due_ms(message)
                assert list(run.groups(row, row + 1)) == [group for group in (group_of(message),) if group is not None]

        assert told.written_by(store) == run.data

    check()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [list, tuple, range])
def test_acknowledgements_are_those_of_the_store(kernel: Kernel, kind: Any) -> None:
    told = Log()

    @settings(max_examples=30)
    @given(st.integers(1, 300), st.integers(1, 2**40), st.sampled_from((0, 77)))
    def check(count: int, first_id: int, tx_id: int) -> None:
        message_ids = range(first_id, first_id + count) if kind is range else kind(range(first_id, first_id + count))
        position = told.position(8 * count + 100)
        record = kernel[1].acknowledge_record(
            told.queue_id, tx_id, message_ids, position.sequence + 1, position.batch, position.seed
        )
        assert record == told.written_by(lambda: told.store.store_acknowledges(told.queue_id, message_ids, tx_id))

    check()


@needs_native
@given(
    ids, ids, st.lists(ids, max_size=20) | st.builds(range, st.integers(0, 90), ids.map(lambda n: n % 200)), ids,
    st.integers(0, 2**32 - 1),
)  # fmt: skip
@example(1, 0, range(9, 0, -2), 5, 6)
@example(1, 0, range(5, 0), 5, 6)
def test_acknowledgements_are_the_same(
    queue_id: int, transaction_id: int, message_ids: Any, sequence: int, seed: int
) -> None:
    assert NATIVE is not None
    arguments = (queue_id, transaction_id, message_ids, sequence, seed // 2, seed)
    assert NATIVE.acknowledge_record(*arguments) == runs.acknowledge_record(*arguments)


@needs_native
@pytest.mark.parametrize("message_ids", [range(1 << 60), 5, None, ["1"]])
def test_acknowledgements_of_no_ids_are_refused(message_ids: Any) -> None:
    assert NATIVE is not None
    with pytest.raises((TypeError, OverflowError)):
        NATIVE.acknowledge_record(1, 0, message_ids, 1, 1, 1)


@pytest.mark.parametrize("kernel", KERNELS)
@given(st.lists(st.tuples(st.binary(max_size=40), integers(32)), max_size=8), integers(64), integers(64))
def test_frames_of_single_messages(
    kernel: Kernel, messages: list[tuple[bytes, int]], channel_id: int, consumer_id: int
) -> None:
    found = kernel[0].receives(
        [each for each, _ in messages], [count for _, count in messages], channel_id, consumer_id
    )
    expected = [
        pack(">ibq", len(each) + 21, 75, channel_id) + each + pack(">qi", consumer_id, count)
        for each, count in messages
    ]
    assert found == b"".join(expected)
    with pytest.raises(ValueError, match="counts"):
        kernel[0].receives([b"x"], [], channel_id, consumer_id)


@pytest.mark.parametrize("kernel", KERNELS)
@given(integers(64), st.lists(integers(64), max_size=20) | st.builds(range, st.integers(0, 20)))
def test_confirmations_are_those_of_the_codec(kernel: Kernel, channel_id: int, correlation_ids: Any) -> None:
    one_by_one = b"".join(encode_null_response(channel_id, each) for each in correlation_ids)
    assert kernel[0].confirms(channel_id, correlation_ids) == one_by_one
