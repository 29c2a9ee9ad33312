"""The command that runs seeds."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from planted.__main__ import main as planted_seeds
from understudy.testing import simulate
from understudy.testing.runs.checkers import Violation
from understudy.testing.scenarios.scenario import Outcome
from understudy.testing.scenarios.scenarios import SCENARIOS, SHARED_STORE, SharedStore


def invoke(*arguments: str):
    return CliRunner().invoke(simulate.main, arguments)


def test_seeds_that_keep_every_promise_end_with_zero():
    result = invoke("--seeds", "0-2", "--all", "--scenario", "shared-store")
    assert result.exit_code == 0, result.output
    assert "3 of 3 seeds kept every promise" in result.output


def test_a_violation_ends_with_one_and_says_how_to_replay(monkeypatch):
    """The third fault of the plan is needed for the violation, so shrinking leaves out all others."""
    needed = SHARED_STORE.draw(1).faults[2]

    def run(self, seed, *, without=(), **options):
        violated = seed == 1 and needed.number not in without
        violations = (Violation("lost", "1: p 0 (confirmed, never delivered)"),) if violated else ()
        return Outcome(self.name, seed, "ab" * 32, violations, 9, 8, 7, 2, 1, 1000, 12.5)

    monkeypatch.setattr(SharedStore, "run_seed", run)
    result = invoke("--seeds", "0-2", "--scenario", "shared-store")
    assert result.exit_code == 1
    assert "lost: 1: p 0 (confirmed, never delivered)" in result.output
    assert f"* {needed}" in result.output
    assert result.output.count("  * #") == 1
    assert "understudy sim --scenario shared-store --seed 1 --without" in result.output
    assert "2 of 3 seeds kept every promise" in result.output
    report = json.loads(invoke("--seeds", "0-2", "--scenario", "shared-store", "--json").stdout)
    assert report["violations"] == {"lost": 1}
    assert [each["needed"] for each in report["failing"]] == [[str(needed)]]


def test_without_a_scenario_all_are_run(monkeypatch):
    # all that there are in this test; the runs of every scenario are in test_scenarios
    names = ["shared-store-symmetric", "replication", "amqp091"]
    monkeypatch.setattr(simulate, "SCENARIOS", {name: SCENARIOS[name] for name in names})
    result = invoke("--seeds", "0-0", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert list(report["scenarios"]) == names
    assert [run["scenario"] for run in report["runs"]] == names
    assert sum(report["faults"].values()) > 0


def test_one_seed_prints_its_plan_and_can_be_traced(tmp_path):
    file = tmp_path / "trace.txt"
    result = invoke("--seed", "3", "--scenario", "shared-store", "--trace", str(file))
    assert result.exit_code == 0, result.output
    assert "PairOptions(" in result.output
    text = file.read_text()
    assert "a.1 starts on a" in text
    assert "a.1 INFO active" in text


@pytest.mark.parametrize(
    "arguments",
    [["--seeds", "x"], ["--seeds", "9-3"], ["--without", "1"], ["--scenario", "none"], ["--seed", "1", "--trace", "-"]],
)
def test_wrong_usage_ends_with_two(arguments):
    assert invoke(*arguments).exit_code == 2


def test_a_planted_bug_is_run_on_demand():
    result = CliRunner().invoke(planted_seeds, ["dropped-on-arrival", "--scenario", "shared-store", "--seeds", "0-0"])
    assert result.exit_code == 1, result.output
    assert "confirmed, never delivered" in result.output
    assert "replay: python -m planted dropped-on-arrival --scenario shared-store --seed 0" in result.output
