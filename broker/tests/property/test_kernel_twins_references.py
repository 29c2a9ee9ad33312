"""The functions of the kernel on references of a snapshot: the native ones and their Python twins give the same
results, and these say what the rows say.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.kernels import both, needs_native
from understudy.kernel.log import references

#: Lengths and sizes of which some say that a record is in one queue only.
LENGTHS = st.sampled_from([80, 87, 90, 2**32 - 1])
SIZES = st.sampled_from([0, 7, 10, 2**32 - 1])
QUEUES = st.sampled_from([7, 8, 2**64 - 1])
IDS = st.sampled_from([*range(1, 13), 63, 64, 65, 2**64 - 1])
TIMES = st.sampled_from([0, 0, 0, 5, -1, 2**62])
REFERENCE = struct.Struct("<QQqqQIIIIB3xQ")
REFERENCES = st.lists(
    st.tuples(
        QUEUES, IDS, TIMES, TIMES, st.sampled_from([1, 2]), st.integers(0, 2**32 - 1), LENGTHS, SIZES,
        st.sampled_from([0, 0, 0, 1]), st.sampled_from([0, 4, 4, 9, 10]), st.sampled_from([0, 0, 0, 5]),
    ),
    max_size=20,
)  # fmt: skip


@needs_native
@given(REFERENCES, st.binary(max_size=70), st.integers(0, 20))
def test_the_references_of_a_snapshot_are_the_same(rows: list[tuple[int, ...]], more: bytes, first: int) -> None:
    payload = b"".join(REFERENCE.pack(*row) for row in rows) + more
    at = min(first, len(rows)) * REFERENCE.size
    end, runs = both(references.plain_references, payload, at)
    assert sum(len(run[3]) // 8 for run in runs) * REFERENCE.size == end - at
    with pytest.raises(IndexError):
        both(references.plain_references, payload, len(payload) + 1)


@given(REFERENCES)
def test_runs_of_references_say_what_their_rows_say(rows: list[tuple[int, ...]]) -> None:
    payload, at, found = b"".join(REFERENCE.pack(*row) for row in rows), 0, []
    while at < len(payload):
        at, runs = references.plain_references(payload, at)
        for queue_id, priority, segment, *columns in runs:
            kinds = "QIIIqq"
            ids, offsets, lengths, sizes, expirations, scheduled = map(array, kinds, columns)
            assert list(ids) == sorted(set(ids))
            nothing = [0] * len(ids)
            found += zip(
                [queue_id] * len(ids), ids, expirations or nothing, scheduled or nothing, [segment] * len(ids),
                offsets, lengths, sizes, nothing, [priority] * len(ids), nothing, strict=True,
            )  # fmt: skip
        if at < len(payload):
            odd = REFERENCE.unpack_from(payload, at)
            assert odd[8] or odd[10] or odd[9] > 9
            found.append(odd)
            at += REFERENCE.size
    assert found == rows


def payload_of(rows: list[tuple[int, ...]]) -> bytes:
    return b"".join(REFERENCE.pack(*row) for row in rows)


@needs_native
@given(REFERENCES, st.binary(max_size=70))
def test_the_blocks_of_references_are_the_same(rows: list[tuple[int, ...]], more: bytes) -> None:
    payload = payload_of(rows)
    pairs = array("Q", both(references.reference_blocks, payload))
    found = list(zip(pairs[::2], pairs[1::2], strict=True))
    assert set(found) == {(row[0], row[1] >> 6) for row in rows}
    assert all(one != other for one, other in pairwise(found))
    if len(more) % REFERENCE.size:
        with pytest.raises(ValueError, match="whole"):
            both(references.reference_blocks, payload + more)


@needs_native
@given(REFERENCES, st.data())
def test_live_references_are_those_in_the_masks(rows: list[tuple[int, ...]], data: st.DataObject) -> None:
    payload = payload_of(rows)
    pairs = array("Q", references.reference_blocks(payload))
    blocks = list(zip(pairs[::2], pairs[1::2], strict=True))
    live = data.draw(st.dictionaries(st.sampled_from(blocks), st.integers(0, 2**64 - 1))) if blocks else {}
    masks = array("Q", [live.get(block, 0) for block in blocks]).tobytes()
    kept, sums, others = both(references.live_references, payload, masks)
    expected = [row for row in rows if live.get((row[0], row[1] >> 6), 0) >> (row[1] & 63) & 1]
    assert kept == payload_of(expected)
    alone = [row for row in expected if row[6] == row[7] + 80]
    assert sum(length for _, length in sums) == sum(row[6] for row in alone)
    columns = [(segment, array("I", offsets), array("I", lengths)) for segment, offsets, lengths in others]
    found = [(segment, *row) for segment, *pair in columns for row in zip(*pair, strict=True)]
    assert found == [(row[4], row[5], row[6]) for row in expected if row not in alone]
    with pytest.raises(ValueError, match="mask"):
        both(references.live_references, payload, masks + bytes(8))
    with pytest.raises(ValueError, match="mask"):
        both(references.live_references, payload, masks + b"x")


@needs_native
@given(st.lists(st.lists(st.tuples(st.integers(0, 400), st.integers(65, 500)), max_size=8), max_size=6))
@example([[(67_108_863, 2**32 - 1)], [(0, 1)]])
def test_a_record_counts_once(calls: list[list[tuple[int, int]]]) -> None:
    seen, total, counted = b"", 0, {}
    for rows in calls:
        offsets = array("I", [64 * unit for unit, _ in rows]).tobytes()
        fresh, seen = both(references.unseen_bytes, seen, offsets, array("I", [each for _, each in rows]).tobytes())
        for unit, length in rows:
            counted.setdefault(unit, length)
        total += fresh
        assert total == sum(counted.values())
    for wrong in ((b"", bytes(4), b""), (b"", bytes(3), bytes(3))):
        with pytest.raises(ValueError, match="columns"):
            both(references.unseen_bytes, *wrong)


@needs_native
@given(REFERENCES)
def test_packed_references_are_the_rows(rows: list[tuple[int, ...]]) -> None:
    payload, at = payload_of([(*row[:8], 0, min(row[9], 9), 0) for row in rows]), 0
    packed = b""
    while at < len(payload):
        at, runs = references.plain_references(payload, at)
        packed += b"".join(both(references.pack_references, *run) for run in runs)
    assert packed == payload


@needs_native
@pytest.mark.parametrize("column", range(6))
def test_columns_of_different_lengths_are_refused_alike(column: int) -> None:
    columns = [bytes(16), bytes(8), bytes(8), bytes(8), bytes(16), b""]
    assert len(both(references.pack_references, 1, 4, 2, *columns)) == 2 * REFERENCE.size
    columns[column] = bytes(4)
    with pytest.raises(ValueError, match="columns"):
        both(references.pack_references, 1, 4, 2, *columns)
