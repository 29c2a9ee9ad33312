"""Goal: a ledger that is still being written is counted exactly, and gaps are measured where the outage was."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.ledger import (
    Gap,
    LedgerTail,
    Load,
    confirmed_at_ms,
    follow_load,
    longest_gap,
    read_moments,
)
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock
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


class Producing:
    """A ledger that grows by one confirmation a second up to a limit, on a clock that only moves in pauses."""

    def __init__(self, directory: Path, stops_at: int) -> None:
        self.ledger = directory / "ledger.jsonl"
        self.job = directory / "j1.1"
        self.job.write_text(json.dumps({"started": True, "finished": False, "ansible_job_id": "j1.1"}))
        self.stops_at = stops_at
        self.ends_with: dict[str, object] | None = None
        self.second_s = 0.0
        self.clock = Clock(now_s=lambda: self.second_s, pause=self.pause, wall_ms=lambda: 0)

    def pause(self, seconds: float) -> None:
        self.second_s += seconds
        confirmed = min(int(self.second_s), self.stops_at)
        self.ledger.write_bytes(b"".join(line("CONFIRMED", number) for number in range(confirmed)))
        if self.ends_with is not None and confirmed == self.stops_at:
            self.job.write_text(json.dumps(self.ends_with))


def test_a_load_that_goes_on_is_waited_for(tmp_path: Path) -> None:
    producing = Producing(tmp_path, stops_at=100)
    followed = follow_load(Load(producing.ledger, producing.job), 50, 300, 5, producing.clock)
    assert (followed.confirmed, followed.problem) == (50, "")


def test_confirmations_that_stop_end_the_wait(tmp_path: Path) -> None:
    producing = Producing(tmp_path, stops_at=20)
    followed = follow_load(Load(producing.ledger, producing.job), 50, 300, 30, producing.clock)
    assert "20 of 50 messages confirmed" in followed.problem
    assert "none in the last 30 s" in followed.problem
    assert producing.second_s < 60


def test_a_load_without_any_confirmation_is_given_up_as_well(tmp_path: Path) -> None:
    producing = Producing(tmp_path, stops_at=0)
    assert "0 of 50" in follow_load(Load(producing.ledger), 50, 300, 30, producing.clock).problem
    assert producing.second_s < 60


def test_a_producer_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    producing = Producing(tmp_path, stops_at=3)
    producing.ends_with = {"rc": 1, "stdout": "", "stderr": "Error: login refused"}
    followed = follow_load(Load(producing.ledger, producing.job), 50, 300, None, producing.clock)
    assert followed.problem.endswith("the producer ended with 1: Error: login refused")
    assert producing.second_s < 10


def test_a_producer_that_ended_with_everything_confirmed_is_a_success(tmp_path: Path) -> None:
    producing = Producing(tmp_path, stops_at=3)
    producing.ends_with = {"rc": 0, "stdout": "{}", "stderr": ""}
    assert follow_load(Load(producing.ledger, producing.job), 3, 300, 1, producing.clock).problem == ""


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


def test_an_outage_outside_the_window_is_left_out() -> None:
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
