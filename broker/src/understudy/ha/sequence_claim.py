"""The next activation sequence for a node that begins to serve without a replica (artemis-ha s. 4.2).

The node holds the lock. It claims the next number in the lock manager (negative), writes it to its own file, and
commits it (positive). From then on only this data is in sync, so no other node activates with older data. It runs at
every activation and every time the active node loses its replica: until it has ended, no write that the replica has not
got is confirmed. Every failure ends the node, which finds out at its next start how far the claim got.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from functools import partial

from understudy.errors import ActivationRefused, BrokerError, LockLost
from understudy.ha.activation_sequence import not_written
from understudy.ha.distributed_lock import LockManager, Request
from understudy.ha.local_sequence import LocalSequence
from understudy.ha.sequence_verdict import SEQUENCE_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table

log = logging.getLogger(__name__)


class State(Enum):
    """States of a claim."""

    IDLE = auto()
    CLAIMING = auto()
    WRITING = auto()
    """The number is written to the file of this node."""
    COMMITTING = auto()
    READING = auto()
    """Another node has changed the number; it is read for the error."""
    ENDED = auto()


class Event(Enum):
    """Events of a claim."""

    BEGIN = auto()
    CLAIMED = auto()
    WRITTEN = auto()
    COMMITTED = auto()
    CHANGED = auto()
    """The number was not the expected one."""
    FAILED = auto()
    """Payload: the error."""
    CANCEL = auto()


_S, _E = State, Event


class SequenceClaim(Machine[State, Event]):
    """One claim. Implements ``ha.distributed_lock.Request``: after ``cancel`` there is no answer, and the claim may be
    made or not.
    """

    STATES = State
    EVENTS = Event
    INITIAL = State.IDLE

    def __init__(
        self,
        node_id: str,
        manager: LockManager,
        local: LocalSequence,
        answer: Callable[[int | BrokerError], None],
    ) -> None:
        """Nothing is claimed before ``begin``.

        Args:
            node_id: Id of the lock, which is held, and of the number.
            manager: It is available.
            local: Its number is not None.
            answer: Gets the new number, which is durable on both sides, or the error that ends the node.
        """
        super().__init__()
        assert local.value is not None, "data without an activation sequence never activates"
        self._node_id = node_id
        self._manager = manager
        self._fence = manager.lock(node_id).fence
        self._number = manager.number(node_id)
        self._local = local
        self._answer = answer
        self._request: Request | None = None
        self._before = local.value
        self._next = local.value + 1

    def begin(self) -> None:
        """Claim the next number."""
        self.fire(Event.BEGIN)

    def cancel(self) -> None:
        """End it without an answer."""
        self.fire(Event.CANCEL)

    def _claim(self) -> None:
        why = self._why_not()
        if why is not None:
            self.fire(Event.FAILED, why)
            return
        self._request = self._number.compare_and_set(self._before, -self._next, partial(self._changed, Event.CLAIMED))

    def _changed(self, event: Event, result: bool | BrokerError) -> None:
        self._request = None
        if isinstance(result, BrokerError):
            self.fire(Event.FAILED, result)
        else:
            self.fire(event if result else Event.CHANGED)

    def _write(self) -> None:
        self._local.write(self._next, self._written)

    def _written(self, error: BaseException | None) -> None:
        if error is None:
            self.fire(Event.WRITTEN)
        else:
            self.fire(Event.FAILED, not_written(self._local, self._next, error))

    def _commit(self) -> None:
        self._request = self._number.compare_and_set(-self._next, self._next, partial(self._changed, Event.COMMITTED))

    def _end_committed(self) -> None:
        why = self._why_not()
        if why is not None:
            self._answer(why)
            return
        log.info("activation sequence", extra={"node": self._node_id, "sequence": self._next})
        self._answer(self._next)

    def _read(self) -> None:
        self._request = self._number.get(self._read_changed)

    def _read_changed(self, number: int | BrokerError) -> None:
        self._request = None
        found = f"cannot be read: {number}" if isinstance(number, BrokerError) else f"is {number}"
        text = f"node {self._node_id}: another node has changed the activation sequence of {self._manager.name}, which"
        error = ActivationRefused(f"{text} {found}; this node went from {self._before} to {self._next}")
        self.fire(Event.FAILED, error)

    def _fail(self, error: BrokerError) -> None:
        self._drop()
        self._answer(error)

    def _drop(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None

    def _why_not(self) -> BrokerError | None:
        """The reason why the next number may not be claimed or used."""
        if self._next > SEQUENCE_MAX:
            return ActivationRefused(f"node {self._node_id}: the activation sequence has reached its end")
        why = self._fence.why_not_confirm()
        return why if why is None or isinstance(why, BrokerError) else LockLost(str(why))

    TABLE = table(
        State,
        Event,
        {
            (_S.IDLE, _E.BEGIN): To(_S.CLAIMING, _claim),
            (_S.IDLE, _E.CANCEL): To(_S.ENDED),
            (_S.CLAIMING, _E.CLAIMED): To(_S.WRITING, _write),
            (_S.CLAIMING, _E.CHANGED): To(_S.READING, _read),
            (_S.CLAIMING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.CLAIMING, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.WRITING, _E.WRITTEN): To(_S.COMMITTING, _commit),
            (_S.WRITING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.WRITING, _E.CANCEL): To(_S.ENDED),
            (_S.COMMITTING, _E.COMMITTED): To(_S.ENDED, _end_committed),
            (_S.COMMITTING, _E.CHANGED): To(_S.READING, _read),
            (_S.COMMITTING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.COMMITTING, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.READING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.READING, _E.CANCEL): To(_S.ENDED, _drop),
            # cancelled while the file was being written
            (_S.ENDED, _E.WRITTEN): IGNORED,
            (_S.ENDED, _E.FAILED): IGNORED,
            (_S.ENDED, _E.CANCEL): IGNORED,
        },
        otherwise=dict.fromkeys(Event, ILLEGAL),
    )
