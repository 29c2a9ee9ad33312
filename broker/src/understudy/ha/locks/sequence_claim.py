"""The next activation sequence for a node that begins to serve without a replica (artemis-ha s. 4.2, ADR 0112).

The node holds the lock. It claims the next sequence in the lock manager; the claim says that the node has not served
yet. An activation then opens and checks the store and begins its epoch. ``commit``, directly before the node serves,
writes the sequence to the file of this node and commits it in the lock manager: from then on only this data is in sync.
If the activation fails before, ``take_back`` gives the lock manager the number that it had; if the node fails in the
moment of the commit and serves nothing, it gives it the claim again. If the node is killed, the claim stays, and the
next holder of the lock knows by it that nothing was served.

An active node that has lost its replica claims and commits at once: until it has committed, no write that the replica
has not got is confirmed. If it is stopped meanwhile, the claim stays as it is, as after a kill. Every failure ends the
node, which finds out at its next start how far the claim got.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from functools import partial

from understudy.errors import ActivationRefused, BrokerError, DiskFailed, LockLost
from understudy.ha.locks.distributed_lock import LockManager, Request
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.locks.sequence_verdict import ATTEMPTS_MAX, SEQUENCE_MAX, next_claim
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table

log = logging.getLogger(__name__)

Answer = Callable[[BrokerError | None], None]
"""Gets None, or the error that ends the node."""


class State(Enum):
    """States of a claim."""

    IDLE = auto()
    CLAIMING = auto()
    CLAIMED = auto()
    """The lock manager says that this node has not served yet; the activation goes on."""
    WRITING = auto()
    """The sequence is written to the file of this node."""
    COMMITTING = auto()
    COMMITTED = auto()
    """The data of this node is the newest; it is about to serve with it, or does."""
    TAKING_BACK = auto()
    """The activation has failed; the lock manager gets the number that it had."""
    READING = auto()
    """Another node has changed the number, which is read for the text of the error."""
    ENDED = auto()


class Event(Enum):
    """Events of a claim."""

    BEGIN = auto()
    CLAIMED = auto()
    COMMIT = auto()
    WRITTEN = auto()
    COMMITTED = auto()
    TAKE_BACK = auto()
    """The claim is to be withdrawn. Its argument is called at the end."""
    TAKEN_BACK = auto()
    """The lock manager has answered the withdrawal. Its argument says whether the claim was withdrawn, or is the error.

    """
    CHANGED = auto()
    """The number was not the expected one."""
    FAILED = auto()
    """A request to the lock manager, or the write of the local number, failed. Its argument is the error."""
    CANCEL = auto()


_S, _E = State, Event


class SequenceClaim(Machine[State, Event]):
    """One claim. After ``cancel`` there is no answer, and the claim may be made or not, committed or not."""

    STATES = State
    EVENTS = Event
    INITIAL = State.IDLE

    def __init__(self, node_id: str, manager: LockManager, local: LocalSequence, found: int) -> None:
        """Nothing is claimed before ``begin``.

        Args:
            node_id: Id of the lock, which is held, and of the number.
            manager: Lock manager, which is available.
            local: The number of this node.
            found: The number of the lock manager, as it was read with the lock held.
        """
        super().__init__()
        self._node_id = node_id
        self._manager = manager
        self._fence = manager.lock(node_id).fence
        self._number = manager.number(node_id)
        self._local = local
        self._found = found
        self._claim = next_claim(found)
        self._answer: Answer = lambda error: None
        """Callback of the call under way."""
        self._taken_back: Callable[[], None] | None = None
        self._request: Request | None = None

    @property
    def sequence(self) -> int:
        """The activation sequence that the claim is about."""
        return self._claim.sequence

    @property
    def committed(self) -> bool:
        """Whether the data of this node counts as the newest with the claimed sequence."""
        return self.state is State.COMMITTED

    def begin(self, answer: Answer) -> None:
        """Claim the next sequence; the answer says whether the claim is in progress."""
        self._answer = answer
        self.fire(Event.BEGIN)

    def commit(self, answer: Answer) -> None:
        """Let the claimed sequence be that of the newest data; after the answer None it is durable on both sides."""
        self._answer = answer
        self.fire(Event.COMMIT)

    def take_back(self, taken_back: Callable[[], None]) -> None:
        """End the claim, then call ``taken_back``. The activation has failed and nothing was served, so the number is
        given back, or the claim stands again. A request that is under way ends without an answer.
        """
        self.fire(Event.TAKE_BACK, taken_back)

    def cancel(self) -> None:
        """End the claim without an answer."""
        self.fire(Event.CANCEL)

    def _begin(self) -> None:
        why = self._why_not()
        if why is not None:
            self.fire(Event.FAILED, why)
            return
        changed = partial(self._changed, Event.CLAIMED)
        self._request = self._number.compare_and_set(self._found, self._claim.number, changed)

    def _changed(self, event: Event, result: bool | BrokerError) -> None:
        self._request = None
        if isinstance(result, BrokerError):
            self.fire(Event.FAILED, result)
        else:
            self.fire(event if result else Event.CHANGED)

    def _end_claimed(self) -> None:
        self._answer(None)

    def _write(self) -> None:
        why = self._why_not()
        if why is not None:
            self.fire(Event.FAILED, why)
            return
        self._local.write(self.sequence, self._written)

    def _written(self, error: BaseException | None) -> None:
        if error is None:
            self.fire(Event.WRITTEN)
        else:
            self.fire(Event.FAILED, _not_written(self._local, self.sequence, error))

    def _commit(self) -> None:
        committed = partial(self._changed, Event.COMMITTED)
        self._request = self._number.compare_and_set(self._claim.number, self.sequence, committed)

    def _end_committed(self) -> None:
        why = self._why_not()
        if why is not None:
            self._answer(why)
            return
        log.info("activation sequence", extra={"node": self._node_id, "sequence": self.sequence})
        self._answer(None)

    def _take_back(self, taken_back: Callable[[], None]) -> None:
        self._taken_back = taken_back
        # a claim on a claim needs no other number: both say that nothing was served
        self._set_back(self._claim.number, self._claim.number if self._found < 0 else self._found)

    def _claim_again(self, taken_back: Callable[[], None]) -> None:
        self._taken_back = taken_back
        # the sequence is in the file of this node: the claim says that nothing was served with it
        self._set_back(self.sequence, self._claim.number)

    def _set_back(self, present: int, value: int) -> None:
        if present == value or self._fence.why_not_confirm() is not None:
            self.fire(Event.TAKEN_BACK, present == value)
            return
        self._request = self._number.compare_and_set(present, value, partial(self.fire, Event.TAKEN_BACK))

    def _end_taken_back(self, result: bool | BrokerError) -> None:
        self._request = None
        log.warning(
            "the activation failed before anything was served: its claim of the activation sequence is given up,"
            " and another node of this id may take over",
            extra={"node": self._node_id, "sequence": self.sequence, "restored": result is True},
        )
        self._tell_taken_back()

    def _tell_taken_back(self) -> None:
        taken_back, self._taken_back = self._taken_back, None
        if taken_back is not None:
            taken_back()

    def _nothing_to_take_back(self, taken_back: Callable[[], None]) -> None:
        taken_back()

    def _leave(self, taken_back: Callable[[], None]) -> None:
        self._drop()
        taken_back()

    def _read(self) -> None:
        self._request = self._number.get(self._read_changed)

    def _read_changed(self, number: int | BrokerError) -> None:
        self._request = None
        found = f"cannot be read: {number}" if isinstance(number, BrokerError) else f"is {number}"
        text = f"node {self._node_id}: another node has changed the activation sequence of {self._manager.name}, which"
        error = ActivationRefused(f"{text} {found}; this node went from {self._found} to {self.sequence}")
        self.fire(Event.FAILED, error)

    def _fail(self, error: BrokerError) -> None:
        self._drop()
        self._answer(error)

    def _drop(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None

    def _drop_taking_back(self) -> None:
        self._drop()
        self._tell_taken_back()

    def _why_not(self) -> BrokerError | None:
        """The reason why the next sequence may not be claimed or used."""
        if self.sequence > SEQUENCE_MAX or self._claim.attempt > ATTEMPTS_MAX:
            return ActivationRefused(
                f"node {self._node_id}: the activation sequence has reached its end",
                hint=f"let the data of one node count as the newest: run 'understudy promote' there"
                f" (the number of {self._manager.name} is {self._found})",
            )
        why = self._fence.why_not_confirm()
        return why if why is None or isinstance(why, BrokerError) else LockLost(str(why))

    TABLE = table(
        State,
        Event,
        {
            (_S.IDLE, _E.BEGIN): To(_S.CLAIMING, _begin),
            (_S.IDLE, _E.CANCEL): To(_S.ENDED),
            (_S.CLAIMING, _E.CLAIMED): To(_S.CLAIMED, _end_claimed),
            (_S.CLAIMING, _E.CHANGED): To(_S.READING, _read),
            (_S.CLAIMING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.CLAIMING, _E.CANCEL): To(_S.ENDED, _drop),
            # the node has lost its replica and is stopped: no answer of a lock manager that may be away is waited for
            (_S.CLAIMING, _E.TAKE_BACK): To(_S.ENDED, _leave),
            (_S.CLAIMED, _E.COMMIT): To(_S.WRITING, _write),
            (_S.CLAIMED, _E.TAKE_BACK): To(_S.TAKING_BACK, _take_back),
            (_S.CLAIMED, _E.CANCEL): To(_S.ENDED),
            (_S.WRITING, _E.WRITTEN): To(_S.COMMITTING, _commit),
            (_S.WRITING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.WRITING, _E.CANCEL): To(_S.ENDED),
            (_S.WRITING, _E.TAKE_BACK): To(_S.ENDED, _leave),
            (_S.COMMITTING, _E.COMMITTED): To(_S.COMMITTED, _end_committed),
            (_S.COMMITTING, _E.CHANGED): To(_S.READING, _read),
            (_S.COMMITTING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.COMMITTING, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.COMMITTING, _E.TAKE_BACK): To(_S.ENDED, _leave),
            (_S.COMMITTED, _E.TAKE_BACK): To(_S.TAKING_BACK, _claim_again),
            (_S.COMMITTED, _E.CANCEL): To(_S.ENDED),
            (_S.TAKING_BACK, _E.TAKEN_BACK): To(_S.ENDED, _end_taken_back),
            (_S.TAKING_BACK, _E.CANCEL): To(_S.ENDED, _drop_taking_back),
            (_S.READING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.READING, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.READING, _E.TAKE_BACK): To(_S.ENDED, _leave),
            # the claim has failed: the number is not this node's to change any more
            (_S.ENDED, _E.TAKE_BACK): To(_S.ENDED, _nothing_to_take_back),
            # the claim was cancelled while the file was being written
            (_S.ENDED, _E.WRITTEN): IGNORED,
            (_S.ENDED, _E.FAILED): IGNORED,
            (_S.ENDED, _E.CANCEL): IGNORED,
        },
        otherwise=dict.fromkeys(Event, ILLEGAL),
    )


def _not_written(local: LocalSequence, value: int, error: BaseException) -> DiskFailed:
    return DiskFailed(
        f"{local.path}: cannot write the activation sequence {value}: {error}",
        hint="repair the disk of this node; nothing was served with this sequence, so its partner may take over",
    )
