"""docs/operate/security.md names tests as proofs: each of them exists, and each class of attack has one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operate" / "security.md").read_text()
#: Path below broker/tests, and the name of a test function.
PROOFS = sorted(set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE)))


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "broker" / "tests" / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("path", "name"), PROOFS)
def test_a_named_test_exists(path: str, name: str) -> None:
    assert name in functions(path)


def test_every_row_names_its_proof_or_says_why_there_is_none() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| \d+[a-z]? ", line)]
    assert {int(number) for number in re.findall(r"^\| (\d+)", "\n".join(rows), re.M)} == set(range(1, 17))
    for row in rows:
        assert "::test_" in row or "not served" in row or "role tests" in row, row


def test_there_are_no_other_forms_of_naming_a_test() -> None:
    named = re.findall(r"[\w/]+\.py::\w+", PAGE)
    assert len(named) == len(re.findall(r"`[\w/]+\.py::test_\w+`", PAGE))
