"""Results of outside suites: how they are read, and how they compare with the list of skipped tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interop.suites091.definitions import suites
from interop.suites091.results import Outcome, Skip, go_outcomes, judge, junit_outcomes, skip_list

HERE = Path(__file__).parents[1] / "interop" / "suites091"


def test_the_list_of_skipped_tests_names_suites_that_exist() -> None:
    known = suites(HERE / "suites.toml")
    assert set(skip_list(HERE / "skipped.txt", known)) == set(known)


@pytest.mark.parametrize("line", ["pika", "pika | test", "pika | test |", "unknown | test | reason"])
def test_a_line_of_the_list_that_is_none(line: str, tmp_path: Path) -> None:
    path = tmp_path / "skipped.txt"
    path.write_text(f"# comment\n\n{line}\n")
    with pytest.raises(ValueError, match=r"skipped\.txt, line 3"):
        skip_list(path, ["pika"])


def test_outcomes_are_compared_with_the_list() -> None:
    outcomes = {"a": Outcome.PASSED, "b": Outcome.LEFT_OUT, "c[1]": Outcome.FAILED, "d": Outcome.FAILED}
    verdict = judge("pika", outcomes, [Skip("pika", "c*", "why"), Skip("pika", "a", "why")])
    assert (verdict.passed, verdict.left_out, verdict.listed) == (["a"], ["b"], ["c[1]"])
    assert (verdict.failed, verdict.needless) == (["d"], ["a"])


def test_a_suite_without_a_test_that_passes_has_failed() -> None:
    assert judge("pika", {}, []).failed == ["no test passed"]


def test_reports_in_the_format_of_junit(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(
        '<testsuites><testsuite><testcase classname="k" name="a"/>'
        '<testcase classname="k" name="b"><failure/></testcase>'
        '<testcase classname="k" name="c"><skipped/></testcase><testcase classname="k" name="d"><error/></testcase>'
        '<testcase classname="k" name="d"/></testsuite></testsuites>'
    )
    assert junit_outcomes([path]) == {
        "k.a": Outcome.PASSED, "k.b": Outcome.FAILED, "k.c": Outcome.LEFT_OUT, "k.d": Outcome.FAILED,
    }  # fmt: skip


def test_events_of_go() -> None:
    events = [("run", "A"), ("pass", "A"), ("run", "B"), ("run", "C"), ("skip", "C"), ("run", "D"), ("fail", "D")]
    lines = [json.dumps({"Action": action, "Test": test}) for action, test in events]
    lines.append(json.dumps({"Action": "fail", "Package": "p"}))
    assert go_outcomes(lines) == {
        "A": Outcome.PASSED, "B": Outcome.FAILED, "C": Outcome.LEFT_OUT, "D": Outcome.FAILED,
    }  # fmt: skip
