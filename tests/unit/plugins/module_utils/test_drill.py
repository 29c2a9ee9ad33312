"""Goal: a drill passes only if every round shows everything, and nothing was lost, doubled or out of order."""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.drill import INVARIANTS, percentile, report
from hypothesis import given
from hypothesis import strategies as st


def gap(duration_ms: int) -> dict[str, int]:
    return {"start_ms": 0, "end_ms": duration_ms, "duration_ms": duration_ms}


def record(number: int = 1, **changes: object) -> dict[str, object]:
    return {
        "number": number,
        "confirmed": 300,
        "check": {"counts": dict.fromkeys(INVARIANTS, 0)},
        "check_status": 0,
        "gaps": [{"kill": gap(1000 * number), "failback": gap(500)}],
        "times": {"takeover_ms": 900, "failback_ms": 4000},
        "load_lasted": True,
        **changes,
    }


def counts(**changes: int) -> dict[str, object]:
    return {"counts": {**dict.fromkeys(INVARIANTS, 0), **changes}}


def test_a_good_drill() -> None:
    result = report([record(1), record(2), record(3)], 300)
    assert result["passed"] is True
    assert result["problems"] == []
    assert result["summary"]["kill_outage_ms"] == {"p50": 2000, "p95": 2900}  # type: ignore[index]
    table = result["table"]
    assert isinstance(table, list)
    assert len(table) == 2 + 3 + 2
    assert table[2].split() == ["1", "300", "0", "0", "0", "1.00", "s", "0.50", "s"]
    assert table[-2].split() == ["p50", "2.00", "s", "0.50", "s"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"check": counts(lost=2), "check_status": 1}, "round 1: 2 lost"),
        ({"check": counts(duplicated=1), "check_status": 1}, "round 1: 1 duplicated"),
        ({"check": counts(reordered=1), "check_status": 1}, "round 1: 1 reordered"),
        ({"check": counts(unexplained=1), "check_status": 1}, "round 1: 1 unexplained"),
        ({"check": counts(corrupted=1), "check_status": 1}, "round 1: 1 corrupted"),
        ({"check": counts(unresolved=4), "check_status": 3}, "round 1: 4 unresolved"),
        ({"check_status": 1}, "round 1: understudy ledger check ended with 1"),
        ({"confirmed": 299}, "round 1: 299 of at least 300 messages confirmed"),
        ({"load_lasted": False}, "round 1: the load ended before"),
        ({"gaps": [{"kill": None, "failback": gap(1)}]}, "round 1: the load ended before"),
        ({"gaps": [{"kill": gap(1)}, {"kill": None}]}, "round 1: the load ended before"),
    ],
)
def test_each_broken_promise_fails_the_drill(changes: dict[str, object], problem: str) -> None:
    result = report([record(**changes)], 300)
    assert result["passed"] is False
    assert any(str(found).startswith(problem) for found in result["problems"])  # type: ignore[union-attr]


def test_the_longest_outage_of_all_producers_counts() -> None:
    result = report([record(gaps=[{"kill": gap(200)}, {"kill": gap(700)}], times={})], 300)
    (only,) = result["rounds"]  # type: ignore[misc]
    assert only["kill_outage_ms"] == 700
    assert result["summary"] == {"kill_outage_ms": {"p50": 700, "p95": 700}}


@pytest.mark.parametrize("changes", [{"gaps": []}, {"gaps": [{}]}, {"gaps": {"kill": gap(1)}}, {"times": None}])
def test_a_record_of_another_form_is_an_error(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is no"):
        report([record(**changes)], 300)


def test_no_round_is_no_pass() -> None:
    assert report([], 300)["passed"] is False


@pytest.mark.parametrize("missing", sorted(record()))
def test_a_missing_piece_is_an_error_and_never_a_pass(missing: str) -> None:
    incomplete = {key: value for key, value in record().items() if key != missing}
    with pytest.raises(KeyError):
        report([incomplete], 300)


@pytest.mark.parametrize("check", [None, {}, {"counts": {}}, {"counts": {"lost": 0}}])
def test_a_check_that_says_nothing_is_an_error(check: object) -> None:
    with pytest.raises((KeyError, ValueError)):
        report([record(check=check)], 300)


@given(st.lists(st.integers(0, 10_000), min_size=1), st.floats(0, 1))
def test_percentiles_lie_between_the_ends_and_grow(values: list[int], share: float) -> None:
    found = percentile(values, share)
    assert min(values) <= found <= max(values)
    assert percentile(values, share / 2) <= found
    assert percentile(values, 1) == max(values)


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 0.5)
