"""The command that runs seeds."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from understudy.testing import simulate
from understudy.testing.checkers import Violation
from understudy.testing.shared_store_pair import Outcome


def invoke(*arguments: str):
    return CliRunner().invoke(simulate.main, arguments)


def test_seeds_that_keep_every_promise_end_with_zero():
    result = invoke("--seeds", "0-2", "--all")
    assert result.exit_code == 0, result.output
    assert "3 of 3 seeds kept every promise" in result.output


def test_a_violation_ends_with_one_and_says_how_to_replay(monkeypatch):
    def run(seed, **options):
        violations = (Violation("lost", "1: p 0 (confirmed, never delivered)"),) if seed == 1 else ()
        return Outcome(seed, "ab" * 32, violations, 9, 8, 7, 2, 1, 1000, 12.5)

    monkeypatch.setitem(simulate.SCENARIOS, "shared_store_pair", run)
    result = invoke("--seeds", "0-2")
    assert result.exit_code == 1
    assert "lost: 1: p 0 (confirmed, never delivered)" in result.output
    assert "python -m understudy.testing.simulate --scenario shared_store_pair --seed 1 --trace" in result.output
    assert "2 of 3 seeds kept every promise" in result.output


def test_one_seed_prints_its_plan_and_can_be_traced(tmp_path):
    file = tmp_path / "trace.txt"
    result = invoke("--seed", "3", "--trace", str(file))
    assert result.exit_code == 0, result.output
    assert "PairOptions(" in result.output
    text = file.read_text()
    assert "a.1 starts on a" in text
    assert "a.1 INFO active" in text


@pytest.mark.parametrize(
    "arguments", [["--seeds", "x"], ["--seeds", "9-3"], ["--without", "1"], ["--scenario", "none"]]
)
def test_wrong_usage_ends_with_two(arguments):
    assert invoke(*arguments).exit_code == 2


def test_a_planted_bug_is_run_on_demand():
    result = invoke("--seeds", "0-0", "--plant", "dropped-on-arrival")
    assert result.exit_code == 1, result.output
    assert "confirmed, never delivered" in result.output
