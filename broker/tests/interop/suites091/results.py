"""Results of a suite, and how they compare with the list of skipped tests."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from fnmatch import fnmatchcase
from pathlib import Path


class Outcome(Enum):
    """Outcome of one test."""

    PASSED = auto()
    FAILED = auto()
    LEFT_OUT = auto()
    """The suite itself leaves the test out."""


@dataclass(frozen=True)
class Skip:
    """A line of the list: tests that are not expected to pass."""

    suite: str
    pattern: str
    """Name of the tests, with ``*``."""
    reason: str


@dataclass
class Verdict:
    """Outcomes of one suite, compared with the list."""

    suite: str
    passed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    """Tests that failed and are in the list."""
    failed: list[str] = field(default_factory=list)
    """Tests that failed and are not in the list."""
    needless: list[str] = field(default_factory=list)
    """Lines of the list for which no test failed."""


def skip_list(path: Path, known: Iterable[str]) -> dict[str, list[Skip]]:
    """The list of skipped tests by suite: ``suite | test | reason`` in each line, and comments after ``#``.

    Raises:
        ValueError: a line that is none, or that names an unknown suite; the message has its number.
    """
    found: dict[str, list[Skip]] = {name: [] for name in known}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|", 2)]
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"{path.name}, line {number}: not `suite | test | reason`")
        if parts[0] not in found:
            raise ValueError(f"{path.name}, line {number}: no suite {parts[0]!r}")
        found[parts[0]].append(Skip(*parts))
    return found


def judge(suite: str, outcomes: Mapping[str, Outcome], skips: list[Skip]) -> Verdict:
    """Compare outcomes with the list; a suite of which no test ran has failed."""
    verdict = Verdict(suite)
    used: set[Skip] = set()
    for name, outcome in outcomes.items():
        if outcome is Outcome.PASSED:
            verdict.passed.append(name)
        elif outcome is Outcome.LEFT_OUT:
            verdict.left_out.append(name)
        else:
            matching = [each for each in skips if fnmatchcase(name, each.pattern)]
            used.update(matching)
            (verdict.listed if matching else verdict.failed).append(name)
    if not verdict.passed:
        verdict.failed.append("no test passed")
    verdict.needless = [each.pattern for each in skips if each not in used]
    return verdict


def junit_outcomes(paths: Iterable[Path]) -> dict[str, Outcome]:
    """Outcomes from reports in the format of JUnit, as pytest and JUnit write them."""
    found: dict[str, Outcome] = {}
    for path in paths:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            outcome = Outcome.PASSED
            if case.find("failure") is not None or case.find("error") is not None:
                outcome = Outcome.FAILED
            elif case.find("skipped") is not None:
                outcome = Outcome.LEFT_OUT
            # a report has a second case for an error at the end of a test
            if found.get(name) is not Outcome.FAILED:
                found[name] = outcome
    return found


_GO = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.LEFT_OUT}


def go_outcomes(lines: Iterable[str]) -> dict[str, Outcome]:
    """Outcomes from the lines of ``go tool test2json``; a test that has begun and not ended has failed."""
    found: dict[str, Outcome] = {}
    for line in lines:
        event = json.loads(line)
        if "Test" not in event:
            continue
        if event["Action"] == "run":
            found[event["Test"]] = Outcome.FAILED
        elif event["Action"] in _GO:
            found[event["Test"]] = _GO[event["Action"]]
    return found
