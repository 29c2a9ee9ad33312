"""Lists of exceptions only shrink: an unneeded or too high entry is a fault, like a new or risen one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from support import architecture
from support.architecture import known, known_knots, shrinking, write_known

SECTION = "class attributes"
RECORDED = {SECTION: {"a:A": 30, "b:B": 25}, "imported modules": {"c": 16}}


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architecture, "KNOWN", tmp_path / "known.toml")
    monkeypatch.delenv("ARCHITECTURE", raising=False)
    write_known(RECORDED, [["d", "e"]])


def test_a_written_table_reads_back_the_same() -> None:
    assert known() == RECORDED
    assert known_knots() == [frozenset({"d", "e"})]


@pytest.mark.parametrize(
    ("measured", "fault"),
    [
        ({"a:A": 31, "b:B": 25}, "a:A: 31 class attributes, more than the 30"),
        ({"a:A": 29, "b:B": 25}, "a:A: class attributes can be lowered from 30 to 29"),
        ({"a:A": 30, "b:B": 20}, "b:B: 20 class attributes need no exception"),
        ({"a:A": 30}, "b:B: no class attributes need no exception"),
        ({"a:A": 30, "b:B": 25, "n:N": 21}, "n:N: 21 class attributes, at most 20"),
    ],
)
def test_a_difference_is_a_fault(measured: Mapping[str, int], fault: str) -> None:
    (found,) = shrinking(SECTION, measured, 20)
    assert found.startswith(fault)


def test_the_same_again_is_none() -> None:
    assert not shrinking(SECTION, {"a:A": 30, "b:B": 25, "small:S": 20}, 20)


def test_rewriting_lowers_and_removes_and_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARCHITECTURE", "rewrite")
    assert shrinking(SECTION, {"a:A": 28, "b:B": 20}, 20) == []
    assert known() == {SECTION: {"a:A": 28}, "imported modules": {"c": 16}}
    faults = shrinking(SECTION, {"a:A": 29, "n:N": 21}, 20)
    assert len(faults) == 2
    assert known()[SECTION] == {"a:A": 28}
    assert known_knots() == [frozenset({"d", "e"})]
