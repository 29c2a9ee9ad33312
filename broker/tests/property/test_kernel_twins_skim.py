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
STAGED = st.builds(
    message,
    st.integers(1, 12),
    st.sampled_from([(7,), (7,), (8,), (7, 8), (8, 7)]),
    tx_id=st.sampled_from([5, 5, 5, 6]),
    priority=st.sampled_from([4, 4, 9]),
    duplicate_id=st.sampled_from([b"", b"", b"", b"a"]),
)
STEPS = st.lists(PLAIN | PLAIN | OTHER | WITH_DUPLICATE_ID | WITHOUT_MESSAGE | MOVED | STAGED | STAGED, max_size=25)


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
    assert [len(groups[0][3]) // 8 for groups, _, _ in steps] == [1_000, 1_000, 499]


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


Row = tuple[int, tuple[int, ...], int, int, int, int, int, int, int]
"""Offset, queue ids, transaction id, priority, message id, length, bytes of the message, expiration, scheduled."""


def rows_of(steps: list[Step]) -> tuple[dict[int, Row], dict[int, tuple[int, bytes]]]:
    """Rows of the messages that can be in a group, by offset, and their addresses and duplicate ids."""
    rows: dict[int, Row] = {}
    duplicates: dict[int, tuple[int, bytes]] = {}
    offset = ORIGIN
    for kind, payload in steps:
        length = 24 + len(payload)
        if kind is RecordType.MESSAGE_ADD and len(payload) >= 48:
            message_id, tx_id, address, until, start, priority, large, duplicate, count = struct.unpack_from(
                "<QQQqqBBHI", payload
            )
            rest = 48 + 8 * count + duplicate
            if rest <= len(payload) and not large and 0 < count <= 1024 and priority <= 9 and message_id:
                queue_ids = struct.unpack_from(f"<{count}Q", payload, 48)
                if len(set(queue_ids)) == count and not (tx_id and duplicate):
                    size = len(payload) - rest
                    rows[offset] = (offset, queue_ids, tx_id, priority, message_id, length, size, until, start)
                    if duplicate:
                        duplicates[offset] = address, payload[rest - duplicate : rest]
        offset += length
    return rows, duplicates


@given(STEPS)
def test_steps_say_what_the_records_say(steps: list[Step]) -> None:
    data = log(steps)
    stop, at, found = skim.skim_records(data, ORIGIN)
    assert (stop, at) == (ENDED, len(data))
    expected, of_messages = rows_of(steps)
    rows: list[Row] = []
    for groups, _, _ in found:
        owners = [(group[0], queue_id, group[2]) for group in groups for queue_id in group[1]]
        assert len(set(owners)) == len(owners)
        for tx_id, queue_ids, priority, *columns in groups:
            ids, *others = (array(kind, each) for kind, each in zip("QIIIqq", columns, strict=True))
            nothing = [0] * len(ids)
            for message_id, offset, *rest in zip(ids, *(each or nothing for each in others), strict=True):
                rows.append((offset, queue_ids, tx_id, priority, message_id, *rest))
            assert list(ids) == sorted(set(ids))
    assert len({row[0] for row in rows}) == len(rows)
    assert all(expected[row[0]] == row for row in rows)
    for key in {(tx_id, queue_id, row[3]) for row in rows for tx_id in (row[2],) for queue_id in row[1]}:
        # messages of one transaction, queue and priority keep their order
        order = [row[0] for row in rows if (row[2], row[3]) == (key[0], key[2]) and key[1] in row[1]]
        assert order == sorted(order)
    # of all that could be in a group only lone messages of transactions are not
    starts = sorted(expected)
    alone = sorted(set(expected) - {row[0] for row in rows})
    for offset in alone:
        row = expected[offset]
        assert row[2]
        follower = expected.get(offset + row[5])
        assert follower is None or follower[2] != row[2]
    assert starts == sorted([*alone, *(row[0] for row in rows)])
    duplicates: list[Any] = []
    expected_others: list[Any] = []
    offset = ORIGIN
    for kind, payload in steps:
        if offset in expected and offset not in alone:
            if offset in of_messages:
                duplicates.append(of_messages[offset])
        elif kind is RecordType.DUPLICATE_ID and len(payload) > 16 and payload[8:16] == bytes(8):
            duplicates.append((struct.unpack_from("<Q", payload)[0], payload[16:]))
        elif kind is not RecordType.ACKNOWLEDGE or len(payload) < 16 or payload[8:16] != bytes(8):
            expected_others.append((offset, kind, 24 + len(payload)))
        offset += 24 + len(payload)
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
