"""``find_record`` of the native kernel and of its Python twin: same bytes, same result, whatever the bytes are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.kernels import both, needs_native
from understudy.kernel.log import find_record, search
from understudy.store.log.records import RecordType
from understudy.store.log.segment import frame

ORIGIN = 8192
SEEDS = (7, 8)

RECORDS = st.builds(
    lambda kind, flags, sequence, batch, seed, body: b"".join(frame(kind, flags, sequence, batch, seed, body)),
    st.sampled_from([RecordType.MESSAGE_ADD, RecordType.SEAL, RecordType.SNAPSHOT]),
    st.sampled_from([0, 1, 8]),
    st.integers(0, 6) | st.just(2**64 - 1),
    st.sampled_from([0, 4096, ORIGIN, ORIGIN + 40, 2**32 - 1]),
    st.sampled_from(SEEDS),
    st.binary(max_size=40),
)
PIECES = st.lists(RECORDS | st.binary(max_size=30) | st.integers(0, 40).map(bytes), max_size=12)


@needs_native
@given(
    PIECES,
    st.integers(0, 80),
    st.sampled_from([0, 3, 5]),
    st.sampled_from([-1, ORIGIN, ORIGIN + 39]),
    st.integers(0, 100),
)
def test_the_record_found_is_the_same(pieces: list[bytes], at: int, above: int, after: int, cut: int) -> None:
    data = b"".join(pieces)
    data = data[: max(len(data) - cut, 0)] if cut < 40 else data
    if at > len(data):
        with pytest.raises(IndexError):
            both(search.find_record, data, at, ORIGIN, SEEDS[0], above, after)
        return
    both(search.find_record, data, at, ORIGIN, SEEDS[0], above, after)


def test_only_a_later_record_of_the_segment_is_found() -> None:
    old = b"".join(b"".join(frame(RecordType.MESSAGE_ADD, 0, each, 4096, 8, b"old")) for each in range(9, 99))
    own = [b"".join(frame(RecordType.MESSAGE_ADD, 0, each, 4096 + each, 7, b"own")) for each in (4, 5)]
    data = old[5:] + own[0] + old + own[1]
    first, second = data.index(own[0]), data.index(own[1])
    assert find_record(data, 0, ORIGIN, 7, 0, -1) == first
    assert find_record(data, first + 1, ORIGIN, 7, 0, -1) == second
    assert find_record(data, 0, ORIGIN, 7, 4, -1) == second
    assert find_record(data, 0, ORIGIN, 7, 0, 4096 + 4) == second
    assert find_record(data, 0, ORIGIN, 7, 5, -1) == -1
    assert find_record(data, second + 1, ORIGIN, 7, 0, -1) == -1


@needs_native
def test_a_long_record_is_found_among_message_ids_that_look_like_headers() -> None:
    """Ids of an ACKNOWLEDGE record of another use: a possible header every eight bytes, with lengths up to the end."""
    ids = b"".join((1 << 56 | 1 << 40 | 5000 + each).to_bytes(8, "little") for each in range(20_000))
    headers = b"".join(
        frame(RecordType.MESSAGE_ADD, 0, 9, ORIGIN, SEEDS[1], ids[:size])[0] for size in range(60_000, 160_000, 1_000)
    )
    long = b"".join(frame(RecordType.MESSAGE_ADD, 0, 9, ORIGIN, SEEDS[0], ids[:150_003]))
    for tail in (b"", long, long + b"x" * 300_000):
        data = headers + ids + tail
        expected = len(headers + ids) if tail else -1
        assert both(search.find_record, data, 0, ORIGIN, SEEDS[0], 3, -1) == expected
    damaged = bytearray(headers + ids + long)
    damaged[-1] ^= 1
    assert both(search.find_record, bytes(damaged), 0, ORIGIN, SEEDS[0], 3, -1) == -1


@needs_native
@pytest.mark.parametrize("filler", [bytes(64), b"x" * 64, b"x\0" * 32, bytes(24) + b"\x0b" + bytes(39)])
def test_a_record_is_found_at_every_place_of_a_group_that_is_looked_at_together(filler: bytes) -> None:
    record = b"".join(frame(RecordType.MESSAGE_ADD, 0, 9, ORIGIN, SEEDS[0], b"body"))
    for before in range(40):
        for behind in range(34):
            data = filler[:before] + record + filler[:behind]
            for at in range(0, before + 1, 7):
                assert both(search.find_record, data, at, ORIGIN, SEEDS[0], 3, -1) == before
            assert both(search.find_record, data, before + 1, ORIGIN, SEEDS[0], 3, -1) == -1
