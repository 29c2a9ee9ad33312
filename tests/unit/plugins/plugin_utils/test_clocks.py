"""Goal: clocks of the nodes of a pair that differ are named, and no doubt of the measurement counts as a difference."""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.plugin_utils.clocks import Reading, closest, differences

S = 1_000_000_000
PAIRS = {"orders": ["a1", "a2"]}


def clock(offset_ms: int, uncertain_ms: int = 20) -> dict[str, object]:
    return {"offset_ms": offset_ms, "uncertain_ms": uncertain_ms}


def test_the_question_with_the_shortest_way_counts() -> None:
    slow, quick = Reading(10 * S, 13 * S, 14 * S), Reading(20 * S, 21 * S, 20 * S + S // 10)
    assert closest([slow, quick]) is quick
    assert (quick.offset_ms, quick.uncertain_ms) == (950, 50)


@pytest.mark.parametrize(
    ("one", "other", "faults", "advice"),
    [
        (clock(0), clock(900), 0, 0),
        (clock(60_000), clock(60_200), 0, 0),
        (clock(0), clock(3_000), 0, 1),
        (clock(0, 900), clock(1_500, 900), 0, 0),
        (clock(0), clock(60_000), 1, 0),
        (clock(-3_600_000), clock(0), 1, 0),
    ],
)
def test_differences_of_a_pair(one: dict[str, object], other: dict[str, object], faults: int, advice: int) -> None:
    found = differences({"a1": one, "a2": other}, PAIRS)
    assert (len(found["faults"]), len(found["advice"])) == (faults, advice)


def test_a_sentence_names_both_hosts_and_the_slow_one() -> None:
    (said,) = differences({"a1": clock(0), "a2": clock(61_000), "b": clock(0)}, PAIRS)["faults"]
    assert said.startswith("pair orders: the clock of a1 is 61.0 s behind that of a2")


def test_a_host_that_was_not_asked_is_left_out() -> None:
    assert differences({"a1": clock(0)}, PAIRS) == {"faults": [], "advice": []}
