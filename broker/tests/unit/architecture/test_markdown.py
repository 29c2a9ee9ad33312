"""Markdown pages: prose has at most 120 characters in a line (``make format`` wraps it)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.architecture import ROOT, report

WIDTH = 120
_FENCE = re.compile(r"[\s>]*(?:```|~~~)")
#: Rows of tables and headings keep their lines.
_KEPT = re.compile(r"[\s>]*\||#")
_CODE_SPAN = re.compile(r"`[^`]*`")


def long_lines(text: str) -> Iterator[int]:
    """Numbers of lines of prose that are too long: a single word, a link or code between backticks cannot be broken."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            in_code = not in_code
        elif len(line) > WIDTH and not in_code and not _KEPT.match(line):
            words = _CODE_SPAN.sub("code", line).split()
            if len(words) > 3:
                yield number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("word " * 30, [1]),
        ("short\n" + "word " * 30, [2]),
        ("| " + "word " * 30 + " |", []),
        ("# " + "word " * 30, []),
        ("```\n" + "word " * 30 + "\n```\n" + "word " * 30, [4]),
        ("- `" + "word " * 30 + "`.", []),
    ],
)
def test_long_lines_are_found(text: str, expected: list[int]) -> None:
    assert list(long_lines(text)) == expected


def test_prose_wraps_at_120_characters() -> None:
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    report(
        f"{name}:{number}: longer than {WIDTH} characters (make format)"
        for name in tracked.stdout.split()
        for number in long_lines(Path(ROOT, name).read_text())
    )
