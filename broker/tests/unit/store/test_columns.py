"""References as columns: reading returns the added ones, packed or not, and packed columns are small."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import JournalCorrupt
from understudy.message import Message
from understudy.store.messages.columns import PAGE_SEGMENT, Columns
from understudy.store.messages.reference import MessageReference, pack_location
from understudy.store.messages.reference_block import Block

FIELDS = ("message_id", "priority", "expiration", "scheduled_ms", "size_bytes", "durable", "location", "delivery_count")
U32 = 2**32 - 1

LOCATIONS = st.one_of(
    st.none(),
    st.builds(pack_location, st.integers(1, 2**40), st.integers(0, U32), st.integers(1, U32)),
    st.builds(pack_location, st.integers(PAGE_SEGMENT, PAGE_SEGMENT + 9), st.integers(0, U32), st.integers(1, U32)),
)
ROWS = st.tuples(
    st.integers(1, 2**62), st.sampled_from([0, 0, 2**62, -5]), st.sampled_from([0, 0, 7]), st.integers(0, U32),
    LOCATIONS, st.sampled_from([0, 0, 3]), st.sampled_from([None, None, None, 0, 2**63]),
)  # fmt: skip


def fields(reference: MessageReference) -> list[object]:
    return [getattr(reference, name) for name in FIELDS] + [getattr(reference, "file_id", None)]


@given(st.integers(0, 9), st.lists(ROWS, min_size=1, max_size=40))
def test_packing_changes_nothing(priority: int, rows: list[tuple[int, ...]]) -> None:
    columns = Columns(priority)
    for row in rows:
        columns.append(*row)  # type: ignore[arg-type]
    before = [fields(columns.reference(row)) for row in range(len(columns))]
    assert [row[-1] for row in before] == [row[-1] for row in rows]
    unpacked = Columns.unpack(columns.pack())
    assert [fields(reference) for reference in unpacked.references()] == before
    if not any(row[2] for row in rows):
        made = Columns.of(unpacked.references(), priority)
        assert [fields(reference) for reference in made.references()] == before


@given(
    st.lists(st.sampled_from([1, 1, 1, 2]), min_size=1, max_size=12),
    st.lists(st.sampled_from([0, 0, 0, 5]), min_size=1, max_size=12),
    st.lists(st.sampled_from([180, 180, 180, 90]), min_size=1, max_size=12),
    st.lists(st.sampled_from([80, 80, 80, 81]), min_size=1, max_size=12),
    st.sampled_from([4096, U32 - 400]),
)
def test_packing_leaves_out_uniform_columns_and_nothing_else(
    steps: list[int], gaps: list[int], lengths: list[int], heads: list[int], offset: int
) -> None:
    columns, message_id = Columns(4), 5 << 40
    for step, gap, length, head in zip(steps, gaps, lengths, heads, strict=False):
        # offsets wrap as no log does
        columns.append(message_id, 0, 0, length - head, pack_location(7, offset, length))
        message_id, offset = message_id + step, (offset + length + gap) & U32
    unpacked = Columns.unpack(columns.pack())
    for name in ("ids", "offsets", "lengths", "sizes"):
        assert getattr(unpacked, name) == getattr(columns, name)


def test_neighbours_take_a_few_bytes() -> None:
    columns = Columns(4)
    for number in range(1024):
        columns.append(5 << 40 | number, 0, 0, 100, pack_location(7, 4096 + 180 * number, 180))
    assert len(columns.pack()) < 100
    tracemalloc.start()
    blocks = []
    for _ in range(50):
        block = Block(Columns.unpack(columns.pack()))
        block.pack()
        blocks.append(block)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / (50 * 1024) < 4, "bytes per waiting message"


def test_bodies_in_memory_keep_a_block_open() -> None:
    reference = MessageReference(1, 4, 0, 0, 5, False, None, Message(b"body"))
    block = Block(Columns.of([reference, None], 4), bytearray(b"\0\1"))
    block.pack()
    assert block.in_memory
    (found,) = block.references()
    assert found.message is not None
    assert found.message.body == b"body"
    block.take(0)
    assert (block.count, list(block.references())) == (0, [])


def test_damaged_spilled_references_are_an_error() -> None:
    columns = Columns(4)
    columns.append(1, 0, 0, 1, None)
    block = Block(columns)

    class Pages:
        def store(self, data: bytes) -> int:
            return 1

        def read(self, location: int) -> bytes:
            return b"nothing"

        def release(self, location: int) -> None: ...

    assert block.spill(Pages())  # type: ignore[arg-type]
    with pytest.raises(JournalCorrupt):
        block.open()
    with pytest.raises(zlib.error):
        Columns.unpack(b"nothing")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"short",
        struct.pack("<IHBQIQII", 5, 0, 4, 1, 128, 1, 0, 0),
        struct.pack("<IHBQIQII", 0xFFFFFFFF, 0xFFFF, 4, 1, 128, 1, 9, 1),
        struct.pack("<IHBQIQII", 0, 0, 4, 1, 128, 1, 0, 0),
    ],
)
def test_whatever_was_not_packed_here_is_a_zlib_error(raw: bytes) -> None:
    """Found by fuzzing: it used to be a struct.error, or columns of different lengths."""
    with pytest.raises(zlib.error):
        Columns.unpack(zlib.compress(raw))
    with pytest.raises(zlib.error):
        Columns.unpack(raw)


def test_what_unpacks_to_more_than_any_block_takes_no_such_memory() -> None:
    bomb = zlib.compress(struct.pack("<IHBQIQII", 1000, 0, 4, 1, 128, 1, 0, 0) + bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(zlib.error):
            Columns.unpack(bomb)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
