"""Prints the tests that a page of docs names as `path::test`, one in each line, as arguments of pytest. Tests of the
collection (`tests/...`) are left out: they need its import path, and are in `make unit`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TEST = re.compile(r"`([\w/]+\.py::test_\w+)`")


def tests_of(text: str) -> list[str]:
    """Tests of the text of a page, from the root of the repository, each once."""
    return [f"broker/tests/{name}" for name in dict.fromkeys(_TEST.findall(text)) if not name.startswith("tests/")]


if __name__ == "__main__":
    print("\n".join(tests_of(Path(sys.argv[1]).read_text())))
