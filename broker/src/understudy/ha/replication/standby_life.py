"""A node of a replicated pair that is not active: it asks for permission, looks for the active node, is its replica.

One machine within the states QUEUED and PASSIVE of the node (ADR 0046, 0057). Data that may be the newest asks for the
permission first, so that the right node of a pair starts alone; everything else becomes a replica. A replica in sync
that loses its active node asks again: the answer decides whether the active node has failed, or goes on without it.

Source: artemis-ha s. 3.2, 4.3, 4.4. Not here: the permission itself (``Authority``), the connection (``Replica``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import ClassVar, Final

from understudy.dataclass import dataclass
from understudy.errors import ActivationRefused, BrokerError, ManagementError
from understudy.ha.life.policy import Decisions, Standby
from understudy.ha.replication.missing_batch import MissingBatch
from understudy.ha.replication.moved_store import MovedStore
from understudy.ha.replication.ports import Authority, Cause, EmptyStart, Found, Listener, Replica
from understudy.ha.replication.promotion import Promotion
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Timer, Timers

log = logging.getLogger(__name__)

#: Longest wait for the permission before the node looks for an active one (artemis-ha s. 4.2); the lock of a node that
#: is alive is not free.
REQUEST_MS: Final = 3_000
#: Before the permission is requested again after an error.
REQUEST_AGAIN_MS: Final = 1_000
#: Advice to a node that finds no active node.
UNFOUND_HINT: Final = (
    "start the other node of the pair; `understudy run --check` lists the members of the cluster that this node reaches"
)
#: After the first searches without an active node the next one follows these parts of retry-replication-wait later, in
#: percent: a node that yielded to its replica, or lost its connection, has its place again soon after the other node
#: serves. The parts are one retry-replication-wait together. A node without an active one by then listens for its last
#: replica, and logs why it was refused; earlier, clients that look for that replica would be connected to it, and a
#: failback that goes well would advise to accept a loss of data.
FIRST_WAITS_PERCENT: Final = (5, 10, 20, 65)


class StandbyState(Enum):
    """States of a node that is not active."""

    IDLE = auto()
    REQUESTING = auto()
    """The node's data may be the newest: it asks for the permission to activate."""
    SEEKING = auto()
    """The node looks for an active node that takes a replica."""
    PAUSED = auto()
    """The node has neither the permission to activate nor an active node to copy; it tries both again soon."""
    EMPTYING = auto()
    """The last replica has moved all messages to another node: the node sets its data aside and begins empty."""
    PROMOTING = auto()
    """An administrator said that the data of this node is to count as the newest."""
    COPYING = auto()
    """The node gets the files of the active node."""
    IN_SYNC = auto()
    """The node has everything that was confirmed."""
    ENDING_COPY = auto()
    """The node is in sync; the connection was lost, and operations that were received are still executed."""
    TAKING_OVER = auto()
    """The node is in sync, without its active node: it asks for the permission to activate."""
    TAKE_OVER_PAUSED = auto()
    """The request to take over got no answer and is repeated soon."""


class StandbyEvent(Enum):
    """Events of a node that is not active."""

    BEGIN = auto()
    GRANTED = auto()
    REFUSED = auto()
    """The permission to activate is refused. Its argument is the error that says which data is newer."""
    NO_ANSWER = auto()
    """The request for the permission has no answer. Its argument is the error; None: ``REQUEST_MS`` have passed."""
    RETRY = auto()
    PROMOTE = auto()
    PROMOTED = auto()
    MOVED = auto()
    """The data of this node is not needed any more, because its messages have moved. Its argument is the record of
    that; None: an earlier process has found it.
    """
    EMPTIED = auto()
    ACCEPTED = auto()
    NOT_FOUND = auto()
    """No active node was found. Its argument is the reason."""
    SYNCED = auto()
    LOST = auto()
    """The connection to the active node has ended. Its argument is the reason."""
    FAIL_OVER = auto()
    COPY_ENDED = auto()
    STOP = auto()


_S, _E = StandbyState, StandbyEvent
#: The node looks for an active one, or waits.
_UNDECIDED: Final = (StandbyState.REQUESTING, StandbyState.SEEKING, StandbyState.PAUSED)
#: Why a node is not promoted.
_AGAINST_PROMOTION: Final = {
    Found.PLACE_TAKEN: "an active node was found, which has another replica",
    Found.PARTNER_ACTIVATES: "the node that was active last was found and activates: this node becomes its replica",
    Found.PUT_BACK: "the active node was found, which has lost records of this one and stops: repeat it once it has",
}
#: Why a node waits whose active node was proved to have lost records.
_HAS_MORE: Final = (
    "this node has records that the node which was active last has lost (an older state of its disk was put back); the"
    " other one stopped serving (`understudy promote --accept-data-loss` lets this node serve with its own)"
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Objects and facts around a node that is not active."""

    all_heard: Callable[[], bool] = lambda: True
    """Whether the candidates of the search are complete: other nodes that broadcast have had time to be heard."""
    why_not_serve: Callable[[], BrokerError | None] = lambda: None
    """The reason why the data of this node must not be served, whatever the authority says."""
    empty_start: EmptyStart | None = None
    """Sets the data aside; None: that is never done."""
    listener: Listener | None = None
    """Acceptors for the time that the node waits; None: it does not listen."""


NO_SURROUNDINGS: Final = Surroundings()


class StandbyLife(Machine[StandbyState, StandbyEvent]):
    """A node that is not active. Implements ``ha.replication.ports.ReplicaListener``."""

    STATES: ClassVar[type[Enum]] = StandbyState
    EVENTS: ClassVar[type[Enum]] = StandbyEvent
    INITIAL: ClassVar[Enum] = StandbyState.IDLE

    def __init__(
        self,
        life: Decisions,
        standby: Standby,
        authority: Authority,
        timers: Timers,
        make_replica: Callable[[StandbyLife], Replica],
        around: Surroundings = NO_SURROUNDINGS,
        *,
        retry_wait_ms: int,
    ) -> None:
        """Args:
        life: Takes the decisions.
        standby: Follows the log of the copy.
        authority: Gives the permission.
        make_replica: Makes the copy on this node, which calls the life that it is given.
        retry_wait_ms: retry-replication-wait.
        """
        super().__init__()
        self._around = around
        self._life = life
        self._standby = standby
        self.authority = authority
        """Gives the permission to activate."""
        self._timers = timers
        self._retry_wait_ms = retry_wait_ms
        self._timer: Timer | None = None
        self._searches = 0
        """Searches since ``begin`` that found no active node."""
        self._cause = Cause.LOST
        """Reason why the active node is not there any more."""
        self._promotion: Callable[[Promotion | BrokerError], None] | None = None
        """Gets the answer to ``promote``."""
        self._missing_said: Sequence[str] = ()
        """Members without an answer that were logged last."""
        self._said: str | None = None
        """The last reason for waiting."""
        self._unlogged: BrokerError | None = None
        """The reason why the node waits, if it is to be logged once enough searches found no active node."""
        self._unfound: str | None = None
        """Reason why enough searches found no active node; None: they have not ended, or the node asks for the
        permission."""
        self._has_more = False
        """The last active node that was found has lost records which this one has."""
        self.replica = make_replica(self)
        self._missing_batch = MissingBatch(self.replica.others_not_asked)

    # --- called by the policy ----------------------------------------------------------------------

    def begin(self) -> None:
        """The node is QUEUED."""
        self._searches = 0
        self._unfound = None
        # the active node is looked for among all members of the cluster, with a lock manager and with votes
        self._standby.watch_cluster()
        self.fire(StandbyEvent.BEGIN)

    def stop(self) -> None:
        """End the life of the passive node, because the node stops."""
        self.fire(StandbyEvent.STOP)

    def promote(self, answer: Callable[[Promotion | BrokerError], None]) -> None:
        """Let the data of this node count as the newest, once the present search has found no active node and none that
        activates; the node then activates. The answer is called before that; it is an error if the node does not
        activate.
        """
        if self._promotion is not None or self._state not in _UNDECIDED:
            state = "has an active node or asks for one" if self._promotion is None else "is being promoted"
            answer(ManagementError(f"the node {state} ({self._state.name})"))
            return
        self._promotion = answer
        if self._state is StandbyState.PAUSED:
            self._promote_unless_found()

    # --- ReplicaListener -----------------------------------------------------------------------------

    def accepted(self) -> None:
        self.fire(StandbyEvent.ACCEPTED)

    def not_found(self, reason: str) -> None:
        self.fire(StandbyEvent.NOT_FOUND, reason)

    def in_sync(self) -> None:
        self.fire(StandbyEvent.SYNCED)

    def lost(self, reason: str) -> None:
        self.fire(StandbyEvent.LOST, reason)

    def promise_asked(self, sequence: int, duration_ms: int, answer: Callable[[str | None], None]) -> None:
        if self._state is StandbyState.IN_SYNC:
            self.authority.promise(sequence, duration_ms, answer)
        else:
            answer(f"the node is no replica in sync ({self._state.name})")

    def hear_moved(self, moved: MovedStore) -> None:
        if self._around.empty_start is not None:
            self._around.empty_start.hear(moved)

    def fail_over(self) -> None:
        self.fire(StandbyEvent.FAIL_OVER)

    # --- without an active node ------------------------------------------------------------------------

    def _request_or_seek(self) -> None:
        self._forget_timer()
        try:
            if self._around.empty_start is not None and self._around.empty_start.is_pending():
                self.fire(StandbyEvent.MOVED, None)
                return
            why = self._around.why_not_serve()
            if why is not None:
                self.fire(StandbyEvent.REFUSED, why)
                return
            if not self.authority.may_request(looked=self._searches > 0):
                self.fire(StandbyEvent.NO_ANSWER, None)
                return
            self._timer = self._timers.call_later(REQUEST_MS, lambda: self.fire(StandbyEvent.NO_ANSWER, None))
            self.authority.request(Cause.START, self._answered)
        except BrokerError as error:
            self._life.fail(error)

    def _answered(self, error: BrokerError | None) -> None:
        if error is None:
            self.fire(StandbyEvent.GRANTED)
        elif isinstance(error, ActivationRefused):
            self.fire(StandbyEvent.REFUSED, error)
        else:
            self.fire(StandbyEvent.NO_ANSWER, error)

    def _activate_first(self) -> None:
        """Data of this node is the newest, and no other node is active."""
        self._stop_listening()
        self._forget_timer()
        self._answer_promotion(ManagementError("the node activates without a promotion"))
        self._life.take_place()
        self._life.activate()

    def _seek(self, error: BrokerError | None) -> None:
        self._forget_timer()
        self.authority.cancel()
        if not isinstance(error, ActivationRefused):
            self._say(error)
        elif str(error) != self._said:
            self._said, self._unlogged = str(error), error
        self.replica.seek()

    def _pause(self, reason: str) -> None:
        log.debug("no active node", extra={"reason": reason})
        if self.replica.found is Found.PUT_BACK:
            self._has_more = True
        if self._has_more:
            # the reason would advise an operator to start the other node, which has lost records
            self._unlogged = None
        if self.authority.by_votes and not self._around.all_heard():
            # a search among some of the nodes does not show that none is active
            wait_ms = REQUEST_AGAIN_MS
        else:
            wait_ms = self._next_wait_ms()
            self._searches += 1
        if self._searches > self._early_searches:
            if self._unlogged is not None:
                self._log_refusal(self._unlogged)
            self._say_unfound(reason)
            self._listen()
        self._timer = self._timers.call_later(wait_ms, lambda: self.fire(StandbyEvent.RETRY))
        if self._promotion is not None:
            self._promote_unless_found()
        elif self._around.empty_start is not None and self.replica.found is Found.NOTHING:
            self._find_moved(self._around.empty_start.heard)

    def _find_moved(self, heard: MovedStore | None) -> None:
        """The active node of the pair may have moved its messages away, and then there is none. The node that has them
        gets the time of the first searches to say more than a lock manager knows.
        """
        if heard is None and self._searches <= self._early_searches:
            return

        def found(moved: MovedStore) -> None:
            assert self._around.empty_start is not None
            try:
                waits = moved is not heard and self._missing_batch.waits(moved, self._around.empty_start)
            except BrokerError as error:
                self._life.fail(error)
                return
            if not waits:
                self.fire(StandbyEvent.MOVED, moved)

        try:
            self.authority.find_moved(heard, found)
        except BrokerError as error:
            self._life.fail(error)

    def _begin_empty(self, moved: MovedStore | None) -> None:
        self._stop_listening()
        self._forget_timer()
        # the lock manager may have answered while the permission is requested again
        self.authority.cancel()
        assert self._around.empty_start is not None
        if moved is not None:
            log.warning(
                "all messages of this node have moved to another one: its data is set aside, and it begins empty",
                extra={"node_id": moved.node_id, "sequence": moved.sequence},
            )
        self._around.empty_start.begin(moved, self._emptied)

    def _emptied(self, error: BrokerError | None) -> None:
        if error is not None:
            self._life.fail(error)
        else:
            self.fire(StandbyEvent.EMPTIED)

    def _begin_anew(self) -> None:
        self._said = self._unlogged = self._unfound = None
        self._request_or_seek()

    def _log_refusal(self, error: BrokerError) -> None:
        """Log a refusal. A hint that accepts a loss of data comes only when every member that may be the active node
        was asked.
        """
        missing = self.replica.not_asked()
        if not missing:
            self._log(error)
        elif missing != self._missing_said:
            self._missing_said = missing
            hint = "one of the members that gave no answer may be the active node of this pair: let it be reached"
            log.warning("not active", extra={"error": str(error), "not_asked": list(missing), "hint": hint})

    def _say_unfound(self, reason: str) -> None:
        """Log why no active node takes this one, once for each reason."""
        text = f"no active node takes this one as its replica: {reason}"
        before, self._unfound = self._unfound, text
        if text == before or self.replica.found is Found.PLACE_TAKEN:
            return
        if self._said is None:
            log.warning("not a replica", extra={"reason": reason, "hint": UNFOUND_HINT})
        else:
            # the log says already why the data of this node is not used, and what to do
            log.info("no active node takes this one as its replica", extra={"reason": reason})

    @property
    def _early_searches(self) -> int:
        """Searches that take one retry-replication-wait together. A node that votes searches again at once, first."""
        return len(FIRST_WAITS_PERCENT) + self.authority.by_votes

    def _next_wait_ms(self) -> int:
        place = self._searches - self.authority.by_votes
        if place >= len(FIRST_WAITS_PERCENT):
            return self._retry_wait_ms
        return 0 if place < 0 else self._retry_wait_ms * FIRST_WAITS_PERCENT[place] // 100

    def _promote_unless_found(self) -> None:
        """Promote this node, unless a search found the other node active: both would be active then."""
        text = _AGAINST_PROMOTION.get(self.replica.found)
        if text is None:
            self.fire(StandbyEvent.PROMOTE)
        else:
            self._answer_promotion(ManagementError(text))

    def _listen(self) -> None:
        """Listen for the last replica of this node, which may wait, too, and say so."""
        try:
            if self._around.listener is not None and self.authority.listens():
                self._around.listener.open()
        except BrokerError as error:
            self._life.fail(error)

    def _stop_listening(self) -> None:
        if self._around.listener is not None:
            self._around.listener.close()

    def _promote(self) -> None:
        self._forget_timer()
        self.authority.promote(self._promoted)

    def _promoted(self, outcome: Promotion | BrokerError) -> None:
        self._answer_promotion(outcome)
        self.fire(StandbyEvent.PROMOTED)

    def _answer_promotion(self, outcome: Promotion | BrokerError) -> None:
        promotion, self._promotion = self._promotion, None
        if promotion is not None:
            promotion(outcome)

    # --- as a replica ----------------------------------------------------------------------------------

    def _copy(self) -> None:
        self._stop_listening()
        self._said = self._unlogged = self._unfound = None
        self._missing_said = ()
        self._has_more = False
        self._answer_promotion(ManagementError("an active node was found: this node copies its data"))
        self._life.take_place()

    def _synced(self) -> None:
        log.info("replica in sync", extra={"id": "AMQ221024"})
        self._standby.follow()
        if self.authority.by_votes:
            self._standby.announce()
        else:
            # a new replica had no node id when it joined the cluster, and states its places with that of the pair
            self._standby.watch_cluster()

    def _end_copy_lost(self, reason: str) -> None:
        self._end_copy(Cause.LOST, reason)

    def _end_copy_told(self) -> None:
        self._end_copy(Cause.TOLD, "the active node has stopped")

    def _end_copy(self, cause: Cause, reason: str) -> None:
        self._cause = cause
        log.warning("the connection to the active node has ended", extra={"reason": reason})
        self.replica.end(lambda: self.fire(StandbyEvent.COPY_ENDED))

    def _lose_copy(self, reason: str) -> None:
        """Give up a copy that was never in sync; the next copy begins with its files."""
        log.warning("the copy is not complete", extra={"reason": reason})
        self.replica.end(lambda: self._life.queue_again())

    def _take_over(self) -> None:
        self.authority.request(self._cause, self._answered)

    def _ask_again(self, error: BrokerError | None) -> None:
        self._say(error)
        self.authority.cancel()
        self._timer = self._timers.call_later(REQUEST_AGAIN_MS, lambda: self.fire(StandbyEvent.RETRY))

    def _activate(self) -> None:
        self._life.activate()

    def _queue_again(self, error: BrokerError) -> None:
        """Called when the active node goes on without this one, or another node has newer data."""
        self._say(error)
        self._life.queue_again()

    # --- end -------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        self._stop_listening()
        self._forget_timer()
        self._answer_promotion(ManagementError("the node ends"))
        if self._around.empty_start is not None:
            self._around.empty_start.close()
        self.authority.cancel()
        self.replica.end(lambda: None)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _say(self, error: BrokerError | None) -> None:
        """Log why the node does not activate, once."""
        if error is not None and str(error) != self._said:
            self._said = str(error)
            self._log(error)

    def _log(self, error: BrokerError) -> None:
        self._unlogged = None
        log.warning("not active", extra={"error": str(error), "hint": error.hint})

    @property
    def refused(self) -> bool:
        """Whether other data may be newer than that of this node, by the last answer."""
        return self._said is not None

    @property
    def waiting_because(self) -> str | None:
        """Reason why the data of this node is not used while there is no active node; None if that is not known."""
        if self._state not in _UNDECIDED or self.spare:
            return None
        return _HAS_MORE if self._has_more else self._said or self._unfound

    @property
    def spare(self) -> bool:
        """Whether the active node has another replica: this node attaches when the place is free."""
        return self._state in _UNDECIDED and self.replica.found is Found.PLACE_TAKEN

    TABLE = table(
        StandbyState,
        StandbyEvent,
        {
            (_S.IDLE, _E.BEGIN): To(_S.REQUESTING, _request_or_seek),
            (_S.REQUESTING, _E.GRANTED): To(_S.IDLE, _activate_first),
            (_S.REQUESTING, _E.REFUSED): To(_S.SEEKING, _seek),
            (_S.REQUESTING, _E.NO_ANSWER): To(_S.SEEKING, _seek),
            (_S.REQUESTING, _E.STOP): To(_S.IDLE, _stop),
            (_S.SEEKING, _E.ACCEPTED): To(_S.COPYING, _copy),
            (_S.SEEKING, _E.NOT_FOUND): To(_S.PAUSED, _pause),
            (_S.SEEKING, _E.STOP): To(_S.IDLE, _stop),
            (_S.PAUSED, _E.RETRY): To(_S.REQUESTING, _request_or_seek),
            (_S.PAUSED, _E.STOP): To(_S.IDLE, _stop),
            (_S.PAUSED, _E.PROMOTE): To(_S.PROMOTING, _promote),
            (_S.PAUSED, _E.MOVED): To(_S.EMPTYING, _begin_empty),
            (_S.REQUESTING, _E.MOVED): To(_S.EMPTYING, _begin_empty),
            (_S.EMPTYING, _E.EMPTIED): To(_S.REQUESTING, _begin_anew),
            (_S.EMPTYING, _E.STOP): To(_S.IDLE, _stop),
            (_S.PROMOTING, _E.PROMOTED): To(_S.REQUESTING, _request_or_seek),
            (_S.PROMOTING, _E.STOP): To(_S.IDLE, _stop),
            (_S.COPYING, _E.SYNCED): To(_S.IN_SYNC, _synced),
            (_S.COPYING, _E.LOST): To(_S.IDLE, _lose_copy),
            (_S.COPYING, _E.STOP): To(_S.IDLE, _stop),
            (_S.IN_SYNC, _E.LOST): To(_S.ENDING_COPY, _end_copy_lost),
            (_S.IN_SYNC, _E.FAIL_OVER): To(_S.ENDING_COPY, _end_copy_told),
            (_S.IN_SYNC, _E.STOP): To(_S.IDLE, _stop),
            (_S.ENDING_COPY, _E.COPY_ENDED): To(_S.TAKING_OVER, _take_over),
            (_S.ENDING_COPY, _E.STOP): To(_S.IDLE, _stop),
            (_S.TAKING_OVER, _E.GRANTED): To(_S.IDLE, _activate),
            (_S.TAKING_OVER, _E.REFUSED): To(_S.IDLE, _queue_again),
            (_S.TAKING_OVER, _E.NO_ANSWER): To(_S.TAKE_OVER_PAUSED, _ask_again),
            (_S.TAKING_OVER, _E.STOP): To(_S.IDLE, _stop),
            (_S.TAKE_OVER_PAUSED, _E.RETRY): To(_S.TAKING_OVER, _take_over),
            (_S.TAKE_OVER_PAUSED, _E.STOP): To(_S.IDLE, _stop),
        },
        otherwise={
            _E.BEGIN: ILLEGAL,
            # answers to a request that was cancelled do not come; those of a connection that ended may
            _E.GRANTED: ILLEGAL,
            _E.REFUSED: ILLEGAL,
            _E.NO_ANSWER: IGNORED,
            _E.RETRY: ILLEGAL,
            _E.PROMOTE: ILLEGAL,
            # the node ended meanwhile
            _E.PROMOTED: IGNORED,
            # the lock manager answers while the node has gone on
            _E.MOVED: IGNORED,
            _E.EMPTIED: IGNORED,
            _E.ACCEPTED: ILLEGAL,
            _E.NOT_FOUND: IGNORED,
            _E.SYNCED: ILLEGAL,
            _E.LOST: IGNORED,
            _E.FAIL_OVER: IGNORED,
            _E.COPY_ENDED: IGNORED,
            _E.STOP: IGNORED,
        },
    )
