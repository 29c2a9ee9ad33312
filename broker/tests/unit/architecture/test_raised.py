"""A recorded number that is raised, or a new exception, has a row in the table of ADR 0135.

The versions of the tables are read from the history, from the commit on that added ADR 0135. A row names the entry and
the number to which it was raised; it covers lower numbers, too.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from support.architecture import KNOWN, ROOT, TABLES, report, rules

ADR = ROOT / "docs" / "adr" / "0135-sharper-architecture-rules.md"
PROSE = TABLES / "prose.toml"
#: Sections of known.toml whose limit is in rules.toml; an entry that was not recorded before was at most there.
LIMITS: dict[str, int] = rules()["sizes"]  # type: ignore[assignment]  # a table of TOML
_ROW = re.compile(r"^\| `(?P<entry>[^`]+)` \| (?P<section>[^|]+) \| \d+ \| (?P<number>\d+) \| \S.* \|$", re.M)

Numbers = dict[tuple[str, str], int]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def numbers(tables: Mapping[str, object]) -> Numbers:
    """Section and entry to number."""
    return {
        (section, entry): number
        for section, entries in tables.items()
        if isinstance(entries, Mapping)
        for entry, number in entries.items()
    }


def raises(versions: list[Numbers]) -> Iterator[tuple[str, str, int]]:
    """Section, entry and new number of everything that is higher than in the version before it.

    An entry that takes the place of one of the same name in another module has moved, and so has a module that takes
    the place of another one in its section: moves of files raise nothing.
    """
    for before, after in pairwise(versions):
        left = {key: number for key, number in before.items() if key not in after}
        for (section, entry), number in after.items():
            if number > before.get((section, entry), LIMITS.get(section, 0)):
                # the lowest of those that suffice: a higher one may be needed for another entry
                places = [key for key in left if _has_moved(key, section, entry) and left[key] >= number]
                moved = min(places, key=left.__getitem__, default=None)
                if moved is None:
                    yield section, entry, number
                else:
                    del left[moved]


def _has_moved(before: tuple[str, str], section: str, entry: str) -> bool:
    return before[0] == section and before[1].partition(":")[1:] == entry.partition(":")[1:]


def missing(versions: list[Numbers], adr: str) -> list[str]:
    reasons = {(row["section"].strip(), row["entry"]): int(row["number"]) for row in _ROW.finditer(adr)}
    return [
        f"{entry}: {section} raised to {number} without a row in {ADR.name}"
        for section, entry, number in raises(versions)
        if number > reasons.get((section, entry), -1)
    ]


@pytest.mark.parametrize("table", [KNOWN, PROSE], ids=lambda path: path.name)
def test_a_raised_number_has_a_reason(table: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no history of the repository here: the sources were copied without .git")
    path = str(table.relative_to(ROOT))
    added = git("log", "--diff-filter=A", "--format=%H", "--", str(ADR.relative_to(ROOT))).split()
    versions = []
    if added:
        commits = git("log", "--first-parent", "--reverse", "--format=%H", f"{added[-1]}..HEAD", "--", path).split()
        versions = [numbers(tomllib.loads(git("show", f"{commit}:{path}"))) for commit in (added[-1], *commits)]
    versions.append(numbers(tomllib.loads((ROOT / path).read_text())))
    report(missing(versions, ADR.read_text()))


def test_a_raise_needs_a_row() -> None:
    before = {("parameters", "a:b"): 9, ("class methods", "c:D"): 41}
    row = "| `a:b` | parameters | 9 | 10 | a queue has one more setting |\n"
    assert not missing([before, before], "")
    assert not missing([before, {("parameters", "a:b"): 8}], "")
    assert not missing([before, {("parameters", "a:b"): 10}], row)
    assert missing([before, {("parameters", "a:b"): 11}], row)
    (new,) = missing([before, {**before, ("parameters", "x:y"): LIMITS["parameters"] + 1}], row)
    assert new.startswith("x:y: parameters raised to 8")
    # a class that moves to another module keeps its number, and the number does not grow
    assert not missing([before, {("parameters", "x.a:b"): 9, ("class methods", "c:D"): 41}], "")
    assert missing([before, {("parameters", "x.a:b"): 10, ("class methods", "c:D"): 41}], "")
    # modules have no name of a class: each takes the place of the lowest number that suffices
    moved = {("imported modules", "old.a"): 25, ("imported modules", "old.b"): 16}
    assert not missing([moved, {("imported modules", "new.b"): 16, ("imported modules", "new.a"): 25}], "")
    # a number that was lowered in between is raised again
    assert missing([before, {("parameters", "a:b"): 8}, before], "")
