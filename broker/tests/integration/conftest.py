"""Real processes for the integration tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.nodes import Nodes
from support.processes import Pair
from support.replicated import ReplicatedPair
from support.targets import Target


@pytest.fixture
def pair(nodes: Nodes) -> Pair:
    """A pair that is configured and not started."""
    return nodes.pair()


@pytest.fixture
def make_pair(nodes: Nodes) -> Callable[..., ReplicatedPair]:
    """Makes a replicated pair that is configured and not started."""
    return nodes.replicated


@pytest.fixture(scope="module")
def broker(nodes_of_module: Nodes) -> Target:
    """A running broker for all tests of a module, which use queues of their own."""
    return nodes_of_module.target()
