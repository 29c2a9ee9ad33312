#!/usr/bin/env python3
"""Wrap the prose of Markdown pages at 120 characters. Tables, code and headings keep their lines.

``make format`` runs it. Pages that ``make docs`` writes are left alone: their generators wrap them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import mdformat

ROOT: Final = Path(__file__).resolve().parents[1]
OPTIONS: Final = {"wrap": 120, "number": True, "compact_tables": True}
#: Said at the top of a page that a generator writes.
_GENERATED: Final = re.compile(r"^Generated |\bgenerated from the list\b", re.M)
_DELIMITER: Final = re.compile(r"^\|(?: -+:? \||  ?:?-+:? \||\s*:?-+:?\s*\|)+$", re.M)


def wrapped(text: str) -> str:
    """A page with wrapped prose."""
    text = mdformat.text(text, options=OPTIONS, extensions=("gfm",))
    return _DELIMITER.sub(lambda row: re.sub(r" *(:?)-+(:?) *", r"\1---\2", row[0]), text)


def main() -> None:
    """Wrap every page of the repository that people write."""
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in tracked.stdout.split():
        path = ROOT / name
        before = path.read_text()
        if not _GENERATED.search(before[:700]):
            after = wrapped(before)
            if after != before:
                path.write_text(after)
                print(name)


if __name__ == "__main__":
    main()
