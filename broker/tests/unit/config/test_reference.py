"""docs/operate/configuration.md says what the schema says."""

from __future__ import annotations

from pathlib import Path

from support.config import ROWS
from understudy.config.reference import render

COMMITTED = Path(__file__).parents[4] / "docs" / "operate" / "configuration.md"


def test_the_committed_reference_is_current() -> None:
    assert COMMITTED.read_text() == render(), (
        "run: python -m understudy.config.reference > docs/operate/configuration.md"
    )


def test_every_row_and_attribute_is_in_it() -> None:
    text = render()
    for path, row in ROWS:
        steps = path.split("/")[1:]
        shown = "/".join(steps[1:]) if len(steps) > 1 else steps[0]
        assert f"`{shown}`" in text or f"## {shown}\n" in text, path
        for attribute in row.attributes:
            assert f"`{shown}@{attribute.name}`" in text or f"`@{attribute.name}`" in text


def test_no_cell_breaks_the_table() -> None:
    for line in render().splitlines():
        if line.startswith("| `"):
            assert line.replace("\\|", "").count("|") == 6, line
