"""``skim_records`` of the native kernel and of its Python twin: same data, same result, which is that
of decoding the records one by one.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_kernel_twins_records import OTHER, PLAIN, Step, log, message

from support.kernels import both, needs_native
from understudy.kernel.log import skim
from understudy.kernel.log.records import ENDED
from understudy.store.log.records import RecordType
from understudy.store.log.segment_skim import Skim

ORIGIN = 4096
WITH_DUPLICATE_ID = st.builds(message, st.integers(1, 12), duplicate_id=st.binary(min_size=1, max_size=3))
WITHOUT_MESSAGE = st.builds(
    lambda address, tx_id, duplicate: (RecordType.DUPLICATE_ID, struct.pack("<QQ", address, tx_id) + duplicate),
    st.integers(1, 2),
    st.sampled_from([0, 0, 0, 5]),
    st.binary(max_size=3),
)
MOVED = st.builds(lambda step: (RecordType.MESSAGE_MOVE, step[1]), WITH_DUPLICATE_ID)
STEPS = st.lists(PLAIN | PLAIN | OTHER | WITH_DUPLICATE_ID | WITHOUT_MESSAGE | MOVED, max_size=25)


@needs_native
@given(STEPS, st.data())
def test_what_any_log_says_is_the_same(steps: list[Step], drawn: st.DataObject) -> None:
    data = log(steps)
    both(skim.skim_records, data, ORIGIN)
    cut = drawn.draw(st.integers(0, len(data)))
    both(skim.skim_records, data[:cut] + bytes(drawn.draw(st.integers(0, 30))), ORIGIN)


@needs_native
@given(STEPS, st.integers(0, 5_000), st.integers(0, 255))
def test_what_a_damaged_log_says_is_the_same(steps: list[Step], place: int, value: int) -> None:
    data = bytearray(log(steps))
    if data:
        data[place % len(data)] = value
    both(skim.skim_records, bytes(data), ORIGIN)


@needs_native
def test_steps_are_bounded_alike() -> None:
    data = log([message(number) for number in range(1, 2_500)])
    _, _, steps = both(skim.skim_records, data, ORIGIN)
    assert [len(groups[0][2]) // 8 for groups, _, _ in steps] == [1_000, 1_000, 499]


@needs_native
def test_duplicate_ids_without_a_message_come_together_in_bounded_steps() -> None:
    steps = [(RecordType.DUPLICATE_ID, struct.pack("<QQI", 3, 0, number)) for number in range(2_500)]
    _, _, found = both(skim.skim_records, log(steps), ORIGIN)
    assert [(address, length, len(ids) // 4) for _, [(address, length, ids)], others in found if not others] == [
        (3, 4, 1_000), (3, 4, 1_000), (3, 4, 500)
    ]  # fmt: skip


@needs_native
def test_an_offset_that_is_too_large_is_refused_alike() -> None:
    with pytest.raises(OverflowError):
        both(skim.skim_records, log([message(1)]), 2**32)


@given(STEPS)
def test_steps_say_what_the_records_say(steps: list[Step]) -> None:
    data = log(steps)
    stop, at, found = skim.skim_records(data, ORIGIN)
    assert (stop, at) == (ENDED, len(data))
    expected_rows: list[Any] = []
    expected_others: list[Any] = []
    duplicates: list[Any] = []
    offset = ORIGIN
    for kind, payload in steps:
        length = 24 + len(payload)
        if kind is RecordType.MESSAGE_ADD and len(payload) >= 48:
            message_id, tx_id, address, until, start, priority, large, duplicate, count = struct.unpack_from(
                "<QQQqqBBHI", payload
            )
            rest = 48 + 8 * count + duplicate
            if rest <= len(payload) and not large and not tx_id and count == 1 and priority <= 9 and message_id:
                (queue_id,) = struct.unpack_from("<Q", payload, 48)
                size = len(payload) - rest
                expected_rows.append((queue_id, priority, message_id, offset, length, size, until, start))
                if duplicate:
                    duplicates.append((address, payload[rest - duplicate : rest]))
                offset += length
                continue
        if kind is RecordType.DUPLICATE_ID and len(payload) > 16 and payload[8:16] == bytes(8):
            (address,) = struct.unpack_from("<Q", payload)
            duplicates.append((address, payload[16:]))
        elif kind is not RecordType.ACKNOWLEDGE or len(payload) < 16 or payload[8:16] != bytes(8):
            expected_others.append((offset, kind, length))
        offset += length
    rows: list[Any] = []
    for groups, _, _ in found:
        for queue_id, priority, *columns in groups:
            ids, *others = (array(kind, each) for kind, each in zip("QIIIqq", columns, strict=True))
            nothing = [0] * len(ids)
            rows += [(queue_id, priority, *row) for row in zip(ids, *(each or nothing for each in others), strict=True)]
            assert list(ids) == sorted(set(ids))
    assert sorted(rows, key=lambda row: row[3]) == expected_rows
    for key in {row[:2] for row in rows}:
        # waiting messages of one queue and priority keep their order
        assert [row[3] for row in rows if row[:2] == key] == [row[3] for row in expected_rows if row[:2] == key]
    assert [
        (address, ids[at : at + length])
        for _, packed, _ in found
        for address, length, ids in packed
        for at in range(0, len(ids), length)
    ] == duplicates
    others_found = [each for *_, others in found for each in others]
    kinds = [(place, RecordType(raw[20]), *struct.unpack_from("<I", raw, 4)) for place, raw in others_found]
    assert kinds == expected_others


def memory_of(value: Any) -> int:
    """Bytes of an object and of the objects that it consists of; numbers and empty bytes are mostly shared."""
    if isinstance(value, (list, tuple)):
        return sys.getsizeof(value) + sum(map(memory_of, value))
    return sys.getsizeof(value) if isinstance(value, bytes) and value else 0


@pytest.mark.parametrize("together", [1, 10, 1_000])
@pytest.mark.parametrize("other", [False, True])
def test_the_memory_of_a_summary_is_estimated_for_records_alone_and_together(together: int, other: bool) -> None:
    """The limit of memory counts estimates. A message that was sent alone takes ten times as much as one of a batch."""
    between = [(RecordType.DUPLICATE_ID, struct.pack("<QQ", 1, 5) + b"id")]
    steps = []
    for first in range(1, 2_000, together):
        steps += [message(each, duplicate_id=bytes(36)) for each in range(first, first + together)]
        steps += between * other
    summary = Skim(ORIGIN)
    summary.take(log(steps))
    summary.finish()
    assert summary.steps is not None
    assert 0.6 < summary.kept_bytes / memory_of(summary.steps) < 1.6
