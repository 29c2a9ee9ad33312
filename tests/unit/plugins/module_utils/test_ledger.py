"""Goal: a ledger that is still being written is counted exactly, and gaps are measured where the outage was."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.ledger import (
    Gap,
    LedgerTail,
    confirmed_at_ms,
    longest_gap,
    read_moments,
)
from hypothesis import given
from hypothesis import strategies as st


def line(kind: str, at_ms: int) -> bytes:
    return json.dumps({"kind": kind, "producer": "p", "number": 0, "address": "a", "at_ms": at_ms}).encode() + b"\n"


@given(kinds=st.lists(st.sampled_from(["SENT", "CONFIRMED"]), max_size=20), cuts=st.lists(st.integers(0, 2000)))
def test_any_growth_gives_the_same_counts(
    kinds: list[str], cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = b"".join(line(kind, number) for number, kind in enumerate(kinds))
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    tail = LedgerTail(path)
    tail.poll()
    for cut in [*sorted(cuts), len(whole)]:
        path.write_bytes(whole[:cut])
        counts = tail.poll()
        assert sum(counts.values()) == whole[:cut].count(b"\n")
    assert counts == {kind: kinds.count(kind) for kind in set(kinds)}


@pytest.mark.parametrize("bad", [b"{}\n", b"nonsense\n", b'{"kind": "SENT", "at_ms": "x"}\n', b"[]\n"])
def test_a_damaged_line_is_named(bad: bytes) -> None:
    with pytest.raises(ValueError, match="line 2 is no ledger row"):
        list(read_moments([line("SENT", 1), bad]))


def test_a_half_written_last_line_is_left_out() -> None:
    assert confirmed_at_ms([line("CONFIRMED", 2), line("SENT", 1), line("CONFIRMED", 1), b'{"kind": "CONF']) == [1, 2]


def test_the_outage_counts_from_the_last_confirmation_before_the_kill() -> None:
    moments = [0, 10, 20, 30, 5030, 5040, 5050]
    assert longest_gap(moments, 35, 5045) == Gap(30, 5030)
    assert longest_gap(moments, 5035, 5050) == Gap(5030, 5040)


def test_an_outage_outside_the_window_is_somebody_elses() -> None:
    moments = [0, 10, 9000, 9010, 9020]
    gap = longest_gap(moments, 9012, 9020)
    assert gap is not None
    assert gap.duration_ms == 10


@pytest.mark.parametrize("moments", [[], [5], [0, 10], [100, 200]])
def test_no_load_around_the_window_is_no_gap(moments: list[int]) -> None:
    assert longest_gap(moments, 50, 60) is None


@given(st.lists(st.integers(0, 10_000), min_size=2).map(sorted), st.integers(0, 10_000), st.integers(0, 1000))
def test_the_gap_is_real_touches_the_window_and_none_is_longer(moments: list[int], start: int, length: int) -> None:
    end = start + length
    gap = longest_gap(moments, start, end)
    neighbours = [(a, b) for a, b in pairwise(moments) if b >= start and a <= end]
    if gap is None:
        assert not neighbours
    else:
        assert (gap.start_ms, gap.end_ms) in neighbours
        assert gap.duration_ms == max(b - a for a, b in neighbours)
