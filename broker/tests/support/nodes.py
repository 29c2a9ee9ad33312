"""Real processes of one test, or of the tests of one module: made here and ended with it, also after a failure.

The fixtures ``nodes`` and ``nodes_of_module`` (``conftest``) give one object of the class ``Nodes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from support.members import Members
from support.processes import Pair
from support.replicated import ReplicatedPair
from support.targets import Target, start_target


class Endable(Protocol):
    """Processes that can be ended: a node, a pair, members, a witness."""

    def end(self) -> None: ...


E = TypeVar("E", bound=Endable)


class Nodes:
    """Brokers below one directory. They are ended in the reverse order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ends = ExitStack()

    def keep(self, made: E) -> E:
        """End it with the others."""
        self._ends.callback(made.end)
        return made

    def pair(self, name: str = "", **options: Any) -> Pair:
        """A pair of a shared store in the directory ``name``, configured and not started."""
        return self.keep(Pair(self.directory / name, **options))

    def active(self, name: str = "", **options: Any) -> Pair:
        """A pair whose primary is active and whose backup is not started."""
        pair = self.pair(name, **options)
        pair.primary.start().wait_ready("active")
        return pair

    def replicated(self, **options: Any) -> ReplicatedPair:
        """A replicated pair, configured and not started."""
        return self.keep(ReplicatedPair(self.directory, **options))

    def members(self, *counts: int, **options: Any) -> Members:
        """Members of a cluster, configured and not started."""
        return self.keep(Members(self.directory, *counts, **options))

    def target(self) -> Target:
        """A running broker with the defaults of an instance."""
        return self.keep(start_target("understudy", self.directory, None))

    def end(self) -> None:
        """End all of them; an error of one does not keep the others alive."""
        self._ends.close()


@contextmanager
def nodes_in(directory: Path) -> Iterator[Nodes]:
    """The processes of a fixture, which are ended with it."""
    nodes = Nodes(directory)
    try:
        yield nodes
    finally:
        nodes.end()
