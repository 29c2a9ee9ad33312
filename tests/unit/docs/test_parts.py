"""Parts of the test suite run in the order of their list, several at once, and all of them in any case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "parts.py"


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("at_once", ["1", "2", "5"])
def test_all_parts_run_and_their_outcomes_are_told(at_once: str) -> None:
    parts = ("one=echo first", "two=echo broken; exit 3", "three=echo no disk; exit 77", "four=true")
    code, said = run("--at-once", at_once, *parts)
    assert code == 1
    table = said.partition("What ran\n")[2].split("\n\n")[0].splitlines()
    assert [line.split()[:2] for line in table] == [
        ["one", "passed"],
        ["two", "failed"],
        ["three", "skipped"],
        ["four", "passed"],
    ]
    assert table[2].endswith("no disk")
    assert said.endswith("2 passed, 1 failed, 1 skipped\n")
    assert "first\n=== one: passed" in said


def test_parts_run_at_the_same_time(tmp_path: Path) -> None:
    """Each part waits for a file that the other one makes, so one after the other would not end."""
    wait = "for i in $(seq 200); do [ -e {theirs} ] && exit 0; sleep 0.05; done; exit 1"
    one, two = tmp_path / "one", tmp_path / "two"
    first = f"first=touch {one}; {wait.format(theirs=two)}"
    second = f"second=touch {two}; {wait.format(theirs=one)}"
    assert run("--at-once", "2", first, second)[0] == 0


def test_one_at_a_time_is_in_order_and_shown_as_it_comes(tmp_path: Path) -> None:
    made = tmp_path / "made"
    code, said = run(f"makes=sleep 0.1; touch {made}", f"needs=ls {made}")
    assert code == 0
    assert "2 passed, 0 failed, 0 skipped" in said
