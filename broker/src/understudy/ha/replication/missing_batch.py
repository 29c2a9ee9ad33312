"""Whether a node begins empty by the record of a lock manager, or waits for the node that has its messages (ADR 0126).

That node knows the duplicate ids of the last batch, which a lock manager does not keep: without them, a message that a
client sends again comes twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from understudy.ha.replication.moved_store import MovedStore
from understudy.ha.replication.ports import EmptyStart

log = logging.getLogger(__name__)


class MissingBatch:
    """The last batch that the data of one node lacks."""

    def __init__(self, not_asked: Callable[[], Sequence[str]]) -> None:
        """``not_asked``: see ``Replica.others_not_asked``."""
        self._not_asked = not_asked
        self._record: MovedStore | None = None
        """The record of the lock manager that was found last."""
        self._said: Sequence[str] = ()
        """Members without an answer that were logged last."""

    def waits(self, moved: MovedStore, empty_start: EmptyStart) -> bool:
        """Whether the node waits, after a search in which no other node had the record.

        A search that began before the record was found may have missed the node that has the messages, and one in which
        a member gave no answer does.

        Args:
            moved: The record of the lock manager.
            empty_start: Knows the data of the node.

        Raises:
            StoreError: the data cannot be read.
        """
        if not empty_start.lacks(moved):
            return False
        known, self._record = self._record, moved
        missing = self._not_asked()
        if known != moved:
            log.info("the node that has the messages of this one is asked for duplicate ids that its data lacks")
            return True
        if missing and missing != self._said:
            self._said = missing
            log.warning(
                "the messages of this node have moved, and the node that has them gave no answer: it knows duplicate"
                " ids that the data of this one lacks",
                extra={"not_asked": list(missing), "hint": "let the other members of the cluster be reached"},
            )
        return bool(missing)
