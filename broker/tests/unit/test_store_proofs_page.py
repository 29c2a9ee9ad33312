"""docs/build/store-proofs.md names tests as proofs: each of them exists, and each promise has one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "build" / "store-proofs.md").read_text()
#: Path below broker/tests, and the name of a test function.
PROOFS = sorted(set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE)))
SECTIONS = (
    "Bodies in the log, references in memory",
    "Large messages",
    "Transactions",
    "Duplicate-id caches",
    "Journal settings",
    "Operations and voters",
    "Copies of a store",
)


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "broker" / "tests" / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("path", "name"), PROOFS)
def test_a_named_test_exists(path: str, name: str) -> None:
    assert name in functions(path)


def test_every_promise_names_its_proof() -> None:
    assert tuple(re.findall(r"^## (.*)$", PAGE, re.M)) == SECTIONS
    for section in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
        assert len(rows) >= 3, section
        for row in rows:
            assert re.search(r"`[\w/]+\.py::test_\w+`", row), row


def test_there_are_no_other_forms_of_naming_a_test() -> None:
    assert len(re.findall(r"[\w/]+\.py::\w+", PAGE)) == len(re.findall(r"`[\w/]+\.py::test_\w+`", PAGE))
