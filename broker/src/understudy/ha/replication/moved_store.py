"""The record of a replica that has taken over and moved all messages of its store to another node (ADR 0126).

The node that was active before has old data then, and no node of its id serves. The record proves to it that nothing
of its data is needed: it sets the data aside and starts empty. A lock manager keeps the record as two numbers beside
the position of the store (ADR 0118). Without a lock manager the node that took the messages keeps it in its store, and
gives it to a node that looks for its active node.

Not here: when it is written (``policy``), and the empty start of a node that has found it (``empty_start``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ha.locks.distributed_lock import DistributedNumber, LockManager
from understudy.ha.locks.noted_position import NotedPosition, PositionNumbers
from understudy.ha.locks.sequence_verdict import claim_of

#: The ids of the numbers are the node id with these ends.
MOVED_SUFFIX: Final = ".moved-sequence"
COMMON_SUFFIX: Final = ".moved-common"


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log from which everything has moved away. A store that begins empty goes on after it, so that no
    identifier of a message comes twice."""

    epoch: int
    sequence: int
    common: int = 0
    """Sequence up to which it is the log of the node that was active before; 0: unknown."""
    last_batch: bytes = b""
    """The batch that ends there (``store.replication.last_batch``); empty: unknown. A lock manager does not keep it."""


@dataclass(frozen=True, slots=True)
class MovedStore:
    """Everything of the data with one activation sequence has moved to other nodes."""

    node_id: str
    """Node id of the data."""
    sequence: int
    """Activation sequence of the data."""
    end: LogEnd
    copied_at: int = -1
    """Activation sequence of the active node of which the data was the copy, when the copy was complete; -1: unknown.
    A lock manager does not keep it, nor the place."""
    place: str = ""
    """``host:port`` of the connector of the replica."""


class MovedNumbers:
    """The record of a lock manager. It counts while its number is that of the newest data."""

    def __init__(self, manager: LockManager, node_id: str) -> None:
        """Args:
        manager: Lock manager, which is available.
        """
        self._node_id = node_id
        self._position = PositionNumbers(manager, node_id)
        self._number = manager.number(node_id)
        self._moved = manager.number(node_id + MOVED_SUFFIX)
        self._common = manager.number(node_id + COMMON_SUFFIX)

    def write(self, sequence: int, end: LogEnd, answer: Callable[[BrokerError | None], None]) -> None:
        """Write the record; this node holds the lock, and nothing is appended to its log any more.

        Args:
            sequence: Activation sequence of the data.
            answer: Called once.
        """
        changes = self._position.changes(None, NotedPosition(end.epoch, end.sequence))
        # last: a record is read only if it is whole
        _set_all([*changes, (self._common, end.common), (self._moved, sequence)], answer)

    def read(self, local: int, found: Callable[[MovedStore | None], None]) -> None:
        """Read the record of the moved store.

        Args:
            local: Activation sequence of the data of this node.
            found: Called once; with None if there is no record that is newer than the data, if it is not about the
                newest data, or if the lock manager does not answer.
        """

        def numbers_read(numbers: list[int] | None) -> None:
            if numbers is None:
                found(None)
                return
            moved, shared, common = numbers
            claim = claim_of(shared)
            # nothing was served with a claim, so the newest data is still that of the committed sequence
            newest = shared if claim is None else claim.base
            if not local < moved == newest:
                found(None)
                return
            self._position.get(
                lambda position: found(
                    None
                    if isinstance(position, BrokerError)
                    else MovedStore(self._node_id, moved, LogEnd(position.epoch, position.sequence, common))
                )
            )

        _get_all([self._moved, self._number, self._common], numbers_read)


def _set_all(changes: list[tuple[DistributedNumber, int]], answer: Callable[[BrokerError | None], None]) -> None:
    if not changes:
        answer(None)
        return
    number, value = changes[0]
    number.set(value, lambda error: answer(error) if error is not None else _set_all(changes[1:], answer))


def _get_all(numbers: list[DistributedNumber], answer: Callable[[list[int] | None], None]) -> None:
    read: list[int] = []

    def one_read(value: int | BrokerError) -> None:
        if isinstance(value, BrokerError):
            answer(None)
            return
        read.append(value)
        if len(read) == len(numbers):
            answer(read)
        else:
            numbers[len(read)].get(one_read)

    numbers[0].get(one_read)
