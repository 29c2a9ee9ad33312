"""``scan`` of the native kernel and of its Python twin: same data, same result, whatever the data are.

Method: logs of few queues, priorities and ids, so that ids repeat and fall and acknowledgements meet messages of the
same scan; cut, damaged, and read from the middle. What plain records mean is compared with applying them one by one.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.kernels import both, needs_native
from understudy.kernel.log import records
from understudy.store.log.records import RecordType
from understudy.store.log.segment import frame

SEED = 0x1234_5678
ORIGIN = 4096
_MESSAGE = struct.Struct("<QQQqqBBHI")
_ACKNOWLEDGE = struct.Struct("<QQII")

Step = tuple[RecordType, bytes]


def message(
    message_id: int,
    queue_ids: tuple[int, ...] = (7,),
    *,
    body: bytes = b"body",
    tx_id: int = 0,
    expiration: int = 0,
    scheduled_ms: int = 0,
    priority: int = 4,
    flags: int = 0,
    duplicate_id: bytes = b"",
) -> Step:
    """A MESSAGE_ADD."""
    head = _MESSAGE.pack(
        message_id, tx_id, 1, expiration, scheduled_ms, priority, flags, len(duplicate_id), len(queue_ids)
    )
    return RecordType.MESSAGE_ADD, head + struct.pack(f"<{len(queue_ids)}Q", *queue_ids) + duplicate_id + body


def acknowledge(queue_id: int, *message_ids: int, tx_id: int = 0, more: bytes = b"") -> Step:
    """An ACKNOWLEDGE; followed by ``more``, it is not plain."""
    head = _ACKNOWLEDGE.pack(queue_id, tx_id, len(message_ids), 0)
    return RecordType.ACKNOWLEDGE, head + struct.pack(f"<{len(message_ids)}Q", *message_ids) + more


def duplicate(duplicate_id: bytes, address_id: int = 1, *, tx_id: int = 0) -> Step:
    """A DUPLICATE_ID; without an id, or with a transaction, it is not plain."""
    return RecordType.DUPLICATE_ID, struct.pack("<QQ", address_id, tx_id) + duplicate_id


def log(steps: list[Step], first_sequence: int = 11) -> bytes:
    """The records of these steps."""
    return b"".join(
        part
        for number, (kind, payload) in enumerate(steps)
        for part in frame(kind, 0, first_sequence + number, ORIGIN, SEED, payload)
    )


IDS = st.integers(1, 12)
QUEUES = st.sampled_from([7, 8, 2**64 - 1])
TIMES = st.sampled_from([0, 0, 0, 5, -1, 2**62])
PLAIN = st.one_of(
    st.builds(
        message,
        IDS | st.sampled_from([2**32, 2**64 - 1]),
        st.lists(QUEUES, min_size=1, max_size=3, unique=True).map(tuple),
        body=st.binary(max_size=40),
        expiration=TIMES,
        scheduled_ms=TIMES,
        priority=st.sampled_from([0, 4, 9]),
        duplicate_id=st.sampled_from([b"", b"", b"a", b"b", b"cc"]),
    ),
    st.builds(duplicate, st.sampled_from([b"d", b"ee"]), st.sampled_from([1, 2])),
    st.builds(lambda queue_id, ids: acknowledge(queue_id, *ids), QUEUES, st.lists(IDS, max_size=5)),
)
#: Payload of a message whose duplicate id has more bytes than the record if less of it is there.
_SHORT = message(3, duplicate_id=b"0123456789", body=b"")[1]
OTHER = st.one_of(
    st.builds(message, st.just(0)),
    st.builds(message, IDS, st.lists(QUEUES, max_size=3).map(tuple)),
    st.builds(lambda message_id, count: message(message_id, tuple(range(count))), IDS, st.integers(63, 66)),
    st.builds(
        message,
        IDS,
        tx_id=st.integers(0, 1),
        priority=st.sampled_from([9, 10, 255]),
        flags=st.integers(0, 2),
        duplicate_id=st.binary(max_size=2),
    ),
    st.builds(lambda length: (RecordType.MESSAGE_ADD, _SHORT[:length]), st.integers(80 - 24, len(_SHORT))),
    st.builds(duplicate, st.binary(max_size=1), tx_id=st.integers(0, 1)),
    st.builds(acknowledge, QUEUES, IDS, tx_id=st.integers(0, 1), more=st.sampled_from([b"", b"x", bytes(8)])),
    st.tuples(st.sampled_from(RecordType), st.binary(max_size=90)),
)
STEPS = st.lists(PLAIN | PLAIN | OTHER, max_size=25)


@needs_native
@given(STEPS, st.sampled_from([0, 10, 11, 2**64 - 1]), st.booleans(), st.data())
def test_the_scan_of_any_log_is_the_same(steps: list[Step], sequence: int, check: bool, drawn: st.DataObject) -> None:
    data = log(steps)
    at = 0
    while True:
        found = both(records.scan, data, at, ORIGIN, SEED if check else None, sequence)
        if found[0] in (records.ENDED, records.SHORT, records.BLANK, records.BAD):
            break
        at, sequence = found[1], found[2]
        if found[0] == records.OTHER:
            sequence = struct.unpack_from("<Q", data, at + 8)[0]
            at += struct.unpack_from("<I", data, at + 4)[0]
    cut = drawn.draw(st.integers(0, len(data)))
    both(records.scan, data[:cut] + bytes(drawn.draw(st.integers(0, 30))), 0, ORIGIN, SEED if check else None, 10)


@needs_native
@given(STEPS, st.integers(0, 5_000), st.integers(0, 255), st.booleans())
def test_the_scan_of_a_damaged_log_is_the_same(steps: list[Step], place: int, value: int, check: bool) -> None:
    data = bytearray(log(steps))
    if data:
        data[place % len(data)] = value
    both(records.scan, bytes(data), 0, ORIGIN, SEED if check else None, 10)


@needs_native
@given(st.binary(max_size=300), st.booleans(), st.integers(0, 40))
@example(bytes(23), True, 0)
@example(bytes(24), True, 0)
@example(bytes(24) + b"\1", True, 24)
def test_the_scan_of_anything_is_the_same(data: bytes, check: bool, at: int) -> None:
    if at > len(data):
        with pytest.raises(IndexError):
            both(records.scan, data, at, 0, SEED if check else None, 0)
    else:
        both(records.scan, data, at, 0, SEED if check else None, 0)


@needs_native
def test_an_offset_that_is_too_large_is_refused_alike() -> None:
    with pytest.raises(OverflowError):
        both(records.scan, log([message(1)]), 0, 2**32, SEED, 0)


def meaning(steps: list[Step]) -> dict[tuple[int, int], list[int]]:
    """Ids that wait, by queue and priority, when plain steps are applied one by one."""
    waiting: dict[tuple[int, int], list[int]] = {}
    for kind, payload in steps:
        if kind is RecordType.MESSAGE_ADD:
            message_id, *_, priority, _, _, count = _MESSAGE.unpack_from(payload)
            for queue_id in struct.unpack_from(f"<{count}Q", payload, _MESSAGE.size):
                waiting.setdefault((queue_id, priority), []).append(message_id)
        elif kind is RecordType.ACKNOWLEDGE:
            queue_id, _, count, _ = _ACKNOWLEDGE.unpack_from(payload)
            for message_id in struct.unpack_from(f"<{count}Q", payload, _ACKNOWLEDGE.size):
                _take(waiting, queue_id, message_id)
    return {key: ids for key, ids in waiting.items() if ids}


def seen(steps: list[Step]) -> list[tuple[int, bytes]]:
    """Addresses and duplicate ids of plain steps, in order."""
    ids: list[tuple[int, bytes]] = []
    for kind, payload in steps:
        if kind is RecordType.MESSAGE_ADD:
            _, _, address_id, *_, length, count = _MESSAGE.unpack_from(payload)
            begin = _MESSAGE.size + 8 * count
            ids.append((address_id, payload[begin : begin + length]))
        elif kind is RecordType.DUPLICATE_ID:
            ids.append((struct.unpack_from("<Q", payload)[0], payload[16:]))
    return [each for each in ids if each[1]]


def _take(waiting: dict[tuple[int, int], list[int]], queue_id: int, message_id: int) -> None:
    for (queue, _), ids in waiting.items():
        if queue == queue_id and message_id in ids:
            ids.remove(message_id)
            return


@given(st.lists(PLAIN, max_size=30))
def test_columns_say_what_the_records_say_one_by_one(steps: list[Step]) -> None:
    unique: list[Step] = []
    ids_seen: set[bytes] = set()
    for step in steps:
        # the same message is not added twice to a log
        if step[0] is not RecordType.MESSAGE_ADD or step[1][:8] not in ids_seen:
            unique.append(step)
            if step[0] is RecordType.MESSAGE_ADD:
                ids_seen.add(step[1][:8])
    data, at, sequence = log(unique), 0, 0
    waiting: dict[tuple[int, int], list[int]] = {}
    duplicate_ids: list[tuple[int, bytes]] = []
    while True:
        stop, at, sequence, _, _, _, _, groups, acknowledged, duplicates = records.scan(
            data, at, ORIGIN, SEED, sequence
        )
        for queue_id, ids in acknowledged:
            for message_id in array("Q", ids):
                _take(waiting, queue_id, message_id)
        for group in groups:
            _check(group, data)
            waiting.setdefault(group[:2], []).extend(array("Q", group[2]))
        for address_id, length, packed in duplicates:
            duplicate_ids += [(address_id, packed[place : place + length]) for place in range(0, len(packed), length)]
        if stop != records.MORE:
            break
    assert stop == records.ENDED
    assert duplicate_ids == seen(unique)
    assert {key: ids for key, ids in waiting.items() if ids} == meaning(unique)


def _check(group: Any, data: bytes) -> None:
    queue_id, priority, ids, offsets, lengths, sizes, expirations, scheduled = group
    rows = zip(array("Q", ids), array("I", offsets), array("I", lengths), array("I", sizes), strict=True)
    for row, (message_id, offset, length, size) in enumerate(rows):
        at = offset - ORIGIN + 24
        assert struct.unpack_from("<I", data, at - 20)[0] == length
        found = _MESSAGE.unpack_from(data, at)
        assert (found[0], found[5]) == (message_id, priority)
        assert found[3] == (array("q", expirations)[row] if expirations else 0)
        assert found[4] == (array("q", scheduled)[row] if scheduled else 0)
        assert size == length - 72 - 8 * found[8] - found[7]
        assert queue_id in struct.unpack_from(f"<{found[8]}Q", data, at + 48)


LENGTHS = st.lists(st.sampled_from([0, 0, 5, 5, 5, 1_000, 4_072, 4_073, 9_000]), max_size=12)


@needs_native
@given(LENGTHS, st.integers(0, 2**32 - 1), st.integers(0, 20_000))
@example([5] * 5, 0, 0)
@example([9_000] * 3, 1, 30)
def test_a_digest_combined_from_the_crcs_of_records_is_the_crc_of_their_bytes(
    lengths: list[int], digest: int, cut: int
) -> None:
    data = log([(RecordType.DUPLICATE_ID, bytes([number]) * length) for number, length in enumerate(lengths)])
    data = data[: len(data) - cut % (len(data) + 1)]
    assert both(records.digest_records, data, digest, SEED) == crc32(data, digest)
