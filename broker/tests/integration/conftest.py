"""Real processes for the integration tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.processes import Pair
from support.replicated import ReplicatedPair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A pair that is configured and not started."""
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def make_pair(tmp_path: Path) -> Iterator[Callable[..., ReplicatedPair]]:
    """Makes a replicated pair that is configured and not started."""
    made: list[ReplicatedPair] = []

    def make(**settings: object) -> ReplicatedPair:
        made.append(ReplicatedPair(tmp_path, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.end()
