"""How many examples the longer property tests take."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """``count`` with EXAMPLES=random, as in ``make test-all``; otherwise half of that, because the examples of a change
    are the same each time.
    """
    return count if os.environ.get("EXAMPLES") == "random" else count // 2
