"""Goal: the newest copy is that with the highest epoch and sequence, and copies of different nodes are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.comparison import (
    NotComparable,
    across_hosts,
    common_until,
    copy_of_verification,
    read_json,
)
from hypothesis import given
from hypothesis import strategies as st


def copy(name: str, epoch: int, sequence: int, node: str | None = "n") -> dict[str, Any]:
    return {"name": name, "node_id": node, "epoch": epoch, "last_sequence": sequence, "state": "whole"}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5), st.randoms())
def test_the_newest(places: list[tuple[int, int]], random: Any) -> None:
    copies = [copy(f"h{number}", *place) for number, place in enumerate(places)]
    found = across_hosts(copies)
    newest: Any = found["newest"]
    assert newest
    assert set(newest) == {f"h{number}" for number, place in enumerate(places) if place == max(places)}
    shuffled = list(copies)
    random.shuffle(shuffled)
    assert sorted(across_hosts(shuffled)["newest"]) == sorted(newest)  # type: ignore[call-overload]


def test_copies_of_different_nodes_are_refused_with_their_names() -> None:
    with pytest.raises(NotComparable, match=r"different nodes: node x: a, c; node y: b\. Compare"):
        across_hosts([copy("a", 1, 1, "x"), copy("b", 1, 2, "y"), copy("c", 1, 2, "x"), copy("d", 0, 0, None)])


def test_incomplete_and_repeated_copies_are_refused() -> None:
    with pytest.raises(NotComparable, match="b: without epoch"):
        across_hosts([copy("a", 1, 1), {"name": "b"}])
    with pytest.raises(NotComparable, match="the same name: a, a"):
        across_hosts([copy("a", 1, 1), copy("a", 1, 2)])


def test_what_the_command_refuses_is_the_message() -> None:
    errors = "Usage: understudy data compare [OPTIONS]\nTry 'understudy --help'\n\nError: /b is the journal of node y\n"
    with pytest.raises(NotComparable, match=r"^/b is the journal of node y$"):
        read_json(["understudy"], 2, "", errors)
    with pytest.raises(NotComparable, match="exit code 1, Traceback"):
        read_json(["understudy"], 1, "", "Traceback")
    assert read_json(["understudy"], 1, json.dumps({"a": 1}), "") == {"a": 1}


@pytest.mark.parametrize(
    ("relation", "sequence", "common"), [("identical", 0, 9), ("diverged", 5, 4), ("prefix", 8, 7), ("unknown", 0, 0)]
)
def test_the_common_beginning(relation: str, sequence: int, common: int) -> None:
    pair = {"left": "/a", "right": "/b", "relation": relation, "sequence": sequence}
    assert common_until(pair, [{"directory": "/a", "last_sequence": 9}]) == common


def test_a_verified_copy() -> None:
    report = {"node_id": "n", "epoch": 2, "last_sequence": 7, "live_messages": 3, "problems": [{"file": "x"}]}
    assert copy_of_verification("h", report)["state"] == "damaged"
