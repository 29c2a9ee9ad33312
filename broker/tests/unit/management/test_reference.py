"""The page that is made from the tables is the committed one."""

from __future__ import annotations

from pathlib import Path

from understudy.management.operations.resources import CONTROLS
from understudy.management.reference import render

COMMITTED = Path(__file__).parents[4] / "docs" / "use" / "management-over-messages.md"


def test_the_committed_page_is_current() -> None:
    how = "run: python -m understudy.management.reference > docs/use/management-over-messages.md"
    assert COMMITTED.read_text() == render(), how


def test_no_two_rows_take_the_same() -> None:
    """The second of two overloads with equal parameter types could never be called."""
    for kind in CONTROLS:
        seen = set()
        for row in kind.operations.rows:
            key = (row.name, tuple(parameter.kind for parameter in row.parameters))
            assert key not in seen, f"{kind.operations.kind}: {row.signature}"
            seen.add(key)
