"""The commit of the activation sequence, once in an activation (ADR 0112).

It comes directly before the first thing that another node or a client can notice: the first message that moves to
another node, or the first step that serves clients. Not here: the claim (``ha.locks.sequence_claim``).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.errors import BrokerError
from understudy.ha.replication.ports import Authority


class SequenceCommit:
    """The commit of one node."""

    def __init__(self, authority: Authority) -> None:
        """Args:
        authority: Claims and commits the sequence.
        """
        self._authority = authority
        self._committed = False

    def begin(self) -> None:
        """Begin an activation: its sequence is claimed."""
        self._committed = False

    def commit(self, answer: Callable[[BrokerError | None], None]) -> None:
        """Commit the claimed sequence, or do nothing if that was done; ``answer`` gets None, or the error that ends the
        node."""
        if self._committed:
            answer(None)
            return

        def answered(error: BrokerError | None) -> None:
            self._committed = error is None
            answer(error)

        self._authority.commit(answered)
