"""docs/build/amqp091-tests.md names tests: each of them exists, and no row of the catalogue is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "build" / "amqp091-tests.md").read_text()
#: Path below broker/tests, and the name of a test function.
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE)))


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "broker" / "tests" / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_exists(path: str, name: str) -> None:
    assert name in functions(path)


def test_every_row_names_a_test_or_says_why_there_is_none() -> None:
    rows = re.findall(r"^\| (\d+)(?:-(\d+))? \| [^|]+ \| ([^|]+) \|$", PAGE, re.M)
    numbers = [number for first, last, _ in rows for number in range(int(first), int(last or first) + 1)]
    assert numbers == list(range(1, 40))
    for first, _, named in rows:
        assert "::test_" in named or "not " in named, first
