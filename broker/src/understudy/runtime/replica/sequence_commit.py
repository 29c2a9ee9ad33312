"""The commit of the activation sequence, once in an activation (ADR 0112).

It comes directly before the first thing that another node or a client can notice: the first message that moves to
another node, or the first step that serves clients. If the node fails while the commit is under way, nothing follows
it, and the sequence is given up as if the activation had failed before. Not here: the claim
(``ha.locks.sequence_claim``).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.errors import BrokerError
from understudy.ha.replication.ports import Authority


class SequenceCommit:
    """The commit of one node."""

    def __init__(self, authority: Authority, failed: Callable[[], BrokerError | None]) -> None:
        """Args:
        authority: Claims and commits the sequence.
        failed: Returns the error because of which the node ends, or None.
        """
        self._authority = authority
        self._failed = failed
        self._committed = False
        """Whether the sequence is committed, and the caller went on after that."""

    def begin(self) -> None:
        """Begin an activation: its sequence is claimed."""
        self._committed = False

    def commit(self, answer: Callable[[BrokerError | None], None]) -> None:
        """Commit the claimed sequence, or do nothing if that was done; ``answer`` gets None, or the error that ends the
        node, also if that has failed meanwhile."""
        if self._committed:
            answer(None)
            return

        def answered(error: BrokerError | None) -> None:
            error = error or self._failed()
            self._committed = error is None
            answer(error)

        self._authority.commit(answered)

    def take_back(self, taken_back: Callable[[], None]) -> None:
        """End the activation, then call ``taken_back``. If nothing followed a commit, another node may take over."""
        self._authority.take_back(taken_back, served=self._committed)
