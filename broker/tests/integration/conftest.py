"""Real processes for the integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A pair that is configured and not started."""
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        made.end()
