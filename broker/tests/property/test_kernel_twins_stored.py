"""Runs of messages in the log, read by the native kernel and by its Python twin.

Goal: the messages that are read are those that were written, up to the first record that was changed; the twins differ
in nothing.
Method: the batches of ``test_kernel_twins_sends`` are written as records, with other records between them, and read
again whole, in part and damaged.
"""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.kernel_sends import LIMIT_BYTES, alike_batches, batches
from support.kernel_views import view_of_run
from support.kernels import NATIVE, needs_native
from understudy.kernel.core import frames
from understudy.kernel.log import LogPosition, runs, stored

SEGMENT, SEED, ORIGIN = 3, 12345, 4096


def written(data: bytes, first_id: int, offset: int, queue_ids: tuple[int, ...]) -> Any:
    """A run of the Python twin of the messages that are alike at the beginning of a batch; None: there is none."""
    sends = frames.split_sends(data, 0, LIMIT_BYTES, 256)
    count = sends.alike(0, 1 << 30, 1, 1 << 62, 256)[0] if sends is not None else 0
    if sends is None or not count:
        return None
    position = LogPosition(SEGMENT, offset, 1 << 40, 0, 0, SEED)
    return runs.append_sends([(sends, 0, count)], first_id, 5, queue_ids, 0, position)


def view(run: Any) -> Any:
    return None if run is None else view_of_run(run)


def columns_of(run: Any) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    return stored.run_columns(run, 0, run.count)


@needs_native
@given(
    st.lists(batches | alike_batches, min_size=1, max_size=3),
    st.lists(st.integers(0, 40), min_size=3, max_size=3),
    st.sampled_from([(7,), (7, 8, 9)]),
    st.data(),
)
def test_written_messages_are_read(
    parts: list[bytes], gaps: list[int], queue_ids: tuple[int, ...], drawn: st.DataObject
) -> None:
    assert NATIVE is not None
    data, found = bytearray(), []
    next_id = 100
    for part, gap in zip(parts, gaps, strict=False):
        data += bytes(gap)
        run = written(part, next_id, ORIGIN + len(data), queue_ids)
        if run is not None:
            found.append(run)
            data += run.data
            next_id += run.count + gap
    if not found:
        return
    ids, offsets, lengths = (b"".join(columns_of(run)[number] for run in found) for number in range(3))
    place = (SEGMENT, ORIGIN, SEED)

    def both(changed: bytes) -> Any:
        assert NATIVE is not None
        expected = stored.read_run(changed, place, ids, offsets, lengths)
        assert view(NATIVE.read_run(changed, place, ids, offsets, lengths)) == view(expected)
        return expected

    read = both(bytes(data))
    assert read is not None
    messages = [(run.ids(row, row + 1), run.encoded(row), run.place(row)) for run in found for row in range(run.count)]
    assert [(read.ids(row, row + 1), read.encoded(row), read.place(row)) for row in range(read.count)] == messages
    expirations = [run.expiration(row) for run in found for row in range(run.count)]
    assert [read.expiration(row) for row in range(read.count)] == expirations
    groups = [run.groups(row, row + 1) for run in found for row in range(run.count)]
    assert [read.groups(row, row + 1) for row in range(read.count)] == groups
    # the message whose record was changed, and those after it, are left to the reader of single messages
    at = drawn.draw(st.integers(0, len(data) - 1))
    damaged = bytearray(data)
    damaged[at] ^= drawn.draw(st.integers(1, 255))
    ends = [offset - ORIGIN + length for _, _, (offset, length) in messages]
    left = both(bytes(damaged))
    whole = sum(1 for end in ends if end <= at)
    hit = any(end - messages[number][2][1] <= at < end for number, end in enumerate(ends))
    assert (left.count if left is not None else 0) == (whole if hit else len(messages))
    both(bytes(data[:at]))


@needs_native
@given(batches | alike_batches, st.integers(0, 5), st.integers(1, 10), st.integers(1, 2**62))
def test_bare_runs_and_columns_are_the_same(data: bytes, begin: int, count: int, first_id: int) -> None:
    assert NATIVE is not None
    run = written(data, first_id, ORIGIN, (7,))
    if run is None:
        return
    sends = NATIVE.split_sends(data, 0, LIMIT_BYTES, 256)
    position = LogPosition(SEGMENT, ORIGIN, 1 << 40, 0, 0, SEED)
    native = NATIVE.append_sends([(sends, 0, run.count)], first_id, 5, (7,), 0, position)
    end = begin + count
    if begin >= run.count or end > run.count:
        for function, each in ((stored.bare_run, run), (NATIVE.bare_run, native)):
            with pytest.raises(ValueError, match="rows"):
                function(each, begin, end)
        return
    assert NATIVE.run_columns(native, begin, end) == stored.run_columns(run, begin, end)
    bare, native_bare = stored.bare_run(run, begin, end), NATIVE.bare_run(native, begin, end)
    for one in (bare, native_bare):
        assert (one.count, one.segment, one.data, one.first_id) == (count, SEGMENT, b"", first_id + begin)
        assert not one.grouped
        rows = [(one.size(row), one.place(row), one.expiration(row), *one.ids(row, row + 1)) for row in range(count)]
        assert rows == [
            (run.size(row), run.place(row), run.expiration(row), *run.ids(row, row + 1)) for row in range(begin, end)
        ]
        assert one.bytes_between(0, count) == one.size_bytes == run.bytes_between(begin, end)
        assert one.row_of(first_id + begin) == 0
        with pytest.raises(ValueError, match="without messages"):
            one.encoded(0)
    assert NATIVE.run_columns(native_bare, 0, count) == stored.run_columns(bare, 0, count)
    # of a bare run, too
    assert view_of_places(NATIVE.bare_run(native_bare, 0, 1)) == view_of_places(stored.bare_run(bare, 0, 1))


def view_of_places(run: Any) -> Any:
    return run.count, run.ids(0, run.count), [run.place(row) for row in range(run.count)], run.size_bytes


@needs_native
def test_columns_of_different_lengths_are_refused_alike() -> None:
    assert NATIVE is not None
    one = array("Q", (1,)).tobytes(), array("I", (4096,)).tobytes(), b""
    for function in (stored.read_run, NATIVE.read_run):
        with pytest.raises(ValueError, match=r"shorter|offsets"):
            function(bytes(100), (SEGMENT, ORIGIN, SEED), *one)
        assert function(b"", (SEGMENT, ORIGIN, SEED), b"", b"", b"") is None
