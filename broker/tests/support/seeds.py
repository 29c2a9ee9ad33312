"""Seeds of tests that are too slow for many examples: fixed ones, or new ones with EXAMPLES=random (``conftest``)."""

from __future__ import annotations

import os
import random


def seeds(*fixed: int) -> tuple[int, ...]:
    """The seeds, or as many new ones. A test names its seed by its parameter, so that it can be run again."""
    if os.environ.get("EXAMPLES") != "random":
        return fixed
    return tuple(random.SystemRandom().randrange(2**32) for _ in fixed)
