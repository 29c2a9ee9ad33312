"""The rows of docs/build/coverage.md and docs/build/strangers-and-failures.md name tests that exist, and the
counts of the first page are right.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from planted.bugs import BUGS
from support.architecture import ROOT, report

PAGE: Final = ROOT / "docs" / "build" / "coverage.md"
STRANGERS: Final = ROOT / "docs" / "build" / "strangers-and-failures.md"
STATES: Final = ("●", "◐", "≠", "–", "n/a")
#: States whose rows need a test, and states whose rows need a reason.
TESTED: Final = frozenset(STATES[:3])
REASONED: Final = frozenset(STATES[1:])
_REFERENCE: Final = re.compile(r"`([^`]+)`")
_TEST: Final = re.compile(r"(?P<path>[\w/]+\.py)::(?P<name>test_\w+)(?:\[(?P<case>.+)\])?")
_SCENARIO: Final = re.compile(r"molecule/\w+/molecule\.yml")


class Row(NamedTuple):
    """One statement of a document."""

    name: str
    statement: str
    status: str
    difference: str
    tests: tuple[str, ...]


def rows_of(text: str) -> list[Row]:
    """The rows of a page."""
    found = []
    for line in text.splitlines():
        if re.match(r"\| [A-Z]\d+[a-z]? \|", line):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert len(cells) == 5, line
            name, statement, status, difference, tests = cells
            found.append(Row(name, statement, status, difference, tuple(_REFERENCE.findall(tests))))
    return found


@cache
def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def fault_of(reference: str) -> str | None:
    """Why a reference names no test; None: it does."""
    if _SCENARIO.fullmatch(reference):
        return None if (ROOT / reference).exists() else "there is no such scenario"
    match = _TEST.fullmatch(reference)
    if match is None:
        return "is not written as path::test"
    path, name, case = match["path"], match["name"], match["case"]
    text = _text(ROOT / path if path.startswith("tests/") else ROOT / "broker" / "tests" / path)
    if text is None:
        return "there is no such file"
    if not re.search(rf"^ *(?:async )?def {name}\(", text, re.MULTILINE):
        return "there is no such test in the file"
    if case is not None and f'"{case}"' not in text:
        return f"the test has no case {case!r}"
    return None


def faults_of(rows: list[Row]) -> list[str]:
    """Errors of rows, each with the name of its row."""
    faults = []
    for row in rows:
        if row.status not in STATES:
            faults.append(f"{row.name}: {row.status!r} is no status")
        if row.status in TESTED and not row.tests:
            faults.append(f"{row.name}: status {row.status} without a test")
        if row.status in REASONED and not row.difference:
            faults.append(f"{row.name}: status {row.status} without a reason")
        faults += [f"{row.name}: {each}: {fault}" for each in row.tests if (fault := fault_of(each)) is not None]
    return faults + [f"{name}: stands {count} times" for name, count in _times(rows).items() if count > 1]


def _times(rows: list[Row]) -> Counter[str]:
    return Counter(row.name for row in rows)


def test_every_row_names_tests_that_exist() -> None:
    rows = rows_of(PAGE.read_text())
    assert len(rows) > 500
    report(faults_of(rows))


def test_the_counts_are_those_of_the_rows() -> None:
    text = PAGE.read_text()
    counted = Counter((row.name[0], row.status) for row in rows_of(text))
    stated = {
        (letter, status): int(number)
        for letter, numbers in re.findall(r"^\| ([A-Z]) \| [^|]+((?:\| \d+ ){5})\|$", text, re.MULTILINE)
        for status, number in zip(STATES, re.findall(r"\d+", numbers), strict=True)
    }
    assert {key: number for key, number in stated.items() if number} == counted


def test_every_promise_about_strangers_and_failures_names_tests_and_planted_bugs_that_exist() -> None:
    rows = [line.split(" | ") for line in STRANGERS.read_text().splitlines() if re.match(r"\| \d+[a-z]? \|", line)]
    assert {re.sub(r"\D", "", row[0]) for row in rows} == {str(number) for number in range(1, 12)}
    faults = []
    for name, promise, before, tests, bugs in rows:
        assert promise, name
        assert before, name
        named = _REFERENCE.findall(tests)
        assert named, name
        faults += [f"{name}: {each}: {fault}" for each in named if (fault := fault_of(each)) is not None]
        faults += [f"{name}: there is no planted bug {each}" for each in _REFERENCE.findall(bugs) if each not in BUGS]
    report(faults)


def test_a_row_whose_test_is_gone_is_found() -> None:
    here = "unit/architecture/test_coverage.py"
    page = f"""
| X1 | works | ● | | `{here}::test_every_row_names_tests_that_exist` |
| X2 | has no test | ● | | |
| X3 | its test is gone | ≠ | otherwise | `{here}::test_that_is_gone` |
| X4 | its file is gone | ● | | `unit/test_gone.py::test_a` |
| X5 | no reason | – | | |
| X5 | no such case | ● | | `{here}::test_every_row_names_tests_that_exist[{"none " * 2}]` |
| X6 | a folder | ● | | `unit/architecture` |
| X7 | no status | yes | | |
"""
    assert [fault.partition(": ")[0] for fault in faults_of(rows_of(page))] == [
        "X2", "X3", "X4", "X5", "X5", "X6", "X7", "X5",
    ]  # fmt: skip
