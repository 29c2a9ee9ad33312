"""Classic quorum votes: whether the partner of a backup is gone, and whether a primary may stay active.

Source: artemis-ha s. 3.3. The other active nodes of the cluster answer from their own topology. A backup asks in
several rounds (``ha.votes.round``), a primary in one.

A replication policy uses ``QuorumVoter``. Not here: the connections to the other nodes (``Ballot``), answers to their
votes, and the packets (``wire.core.packets_cluster``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar, Final, Protocol

from understudy.dataclass import dataclass
from understudy.ha.votes.round import Ballot, Decided, Pending, Question, VoteRound
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Timer, Timers

log = logging.getLogger(__name__)

#: Time limit of the vote by which a primary that lost its replica asks whether it may stay active (artemis-ha s. 3.1).
STAY_ACTIVE_WAIT_MS: Final = 5_000


class QuorumVoter(Protocol):
    """Interface of a replication policy to votes. ``done`` may be called before the method returns."""

    def ask_whether_gone(self, node_id: str, done: Decided) -> Pending:
        """A backup asks whether its partner is gone. True: it may activate.

        Args:
            node_id: Shared by the pair.
            done: Called with the decision.
        """
        ...

    def ask_whether_active(self, done: Decided) -> Pending:
        """A primary that lost its replica asks whether it may stay active. False: it has to stop."""
        ...


def votes_needed(size: int) -> int:
    """Positive answers needed in a cluster of ``size`` node ids: 0 for one, 1 for two, else more than half."""
    return size // 2 + 1 if size > 2 else size // 2


@dataclass(frozen=True, slots=True)
class VoteOptions:
    """Settings of the votes of one node (artemis-ha s. 1)."""

    quorum_size: int = -1
    """quorum-size: node ids of the cluster; -1: the highest number seen."""
    retries: int = 12
    """vote-retries: rounds of a backup; without one it never activates."""
    retry_wait_ms: int = 5_000
    """vote-retry-wait: pause between two rounds."""
    wait_s: int = 30
    """quorum-vote-wait: time limit of a round of a backup, in seconds."""


class VoteState(Enum):
    """States of a vote over all its rounds."""

    NEW = auto()
    VOTING = auto()
    PAUSED = auto()
    DECIDED = auto()


class VoteEvent(Enum):
    """Events of a vote over all its rounds."""

    START = auto()
    WON = auto()
    LOST = auto()
    PAUSE_OVER = auto()
    CANCELLED = auto()


class Vote(Machine[VoteState, VoteEvent]):
    """A question asked in rounds until one is positive or the last was negative. Implements ``Pending``."""

    STATES: ClassVar[type[Enum]] = VoteState
    EVENTS: ClassVar[type[Enum]] = VoteEvent
    INITIAL: ClassVar[Enum] = VoteState.NEW

    def __init__(self, new_round: Callable[[Decided], VoteRound], rounds: int, pause_ms: int, timers: Timers) -> None:
        """Args:
        new_round: Makes a round that reports to the given call.
        rounds: How many at most; 0: the decision is negative at once.
        pause_ms: Between two rounds.
        """
        super().__init__()
        self._new_round = new_round
        self._left = rounds
        self._pause_ms = pause_ms
        self._timers = timers
        self._timer: Timer | None = None
        self._round: VoteRound | None = None
        self._done: Decided | None = None

    def start(self, done: Decided) -> None:
        """Ask; called once. ``done`` may be called before the return."""
        self._done = done
        self.fire(VoteEvent.START)

    def cancel(self) -> None:
        """End the vote without a decision."""
        self.fire(VoteEvent.CANCELLED)

    def _vote(self) -> None:
        self._timer = None
        if self._left <= 0:
            self.fire(VoteEvent.LOST)
            return
        self._left -= 1
        self._round = self._new_round(lambda won: self.fire(VoteEvent.WON if won else VoteEvent.LOST))
        self._round.put()

    def _win(self) -> None:
        self._decide(True)

    def _pause(self) -> None:
        if self._left <= 0:
            self._timer = None
            self.fire(VoteEvent.LOST)
            return
        self._timer = self._timers.call_later(self._pause_ms, lambda: self.fire(VoteEvent.PAUSE_OVER))

    def _lose(self) -> None:
        self._decide(False)

    def _decide(self, decision: bool) -> None:
        done, self._done = self._done, None
        log.info("vote decided", extra={"positive": decision})
        if done is not None:
            done(decision)

    def _end(self) -> None:
        self._done = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._round is not None:
            self._round.cancel()
            self._round = None

    # The table comes last: it names the functions above.
    TABLE = table(
        VoteState,
        VoteEvent,
        {
            (VoteState.NEW, VoteEvent.START): To(VoteState.VOTING, _vote),
            (VoteState.NEW, VoteEvent.CANCELLED): To(VoteState.DECIDED),
            (VoteState.VOTING, VoteEvent.WON): To(VoteState.DECIDED, _win),
            (VoteState.VOTING, VoteEvent.LOST): To(VoteState.PAUSED, _pause),
            (VoteState.VOTING, VoteEvent.CANCELLED): To(VoteState.DECIDED, _end),
            (VoteState.PAUSED, VoteEvent.PAUSE_OVER): To(VoteState.VOTING, _vote),
            # no round is left
            (VoteState.PAUSED, VoteEvent.LOST): To(VoteState.DECIDED, _lose),
            (VoteState.PAUSED, VoteEvent.CANCELLED): To(VoteState.DECIDED, _end),
            (VoteState.DECIDED, VoteEvent.CANCELLED): IGNORED,
        },
        otherwise={
            VoteEvent.START: ILLEGAL,
            VoteEvent.WON: ILLEGAL,
            VoteEvent.LOST: ILLEGAL,
            VoteEvent.PAUSE_OVER: ILLEGAL,
            VoteEvent.CANCELLED: IGNORED,
        },
    )


class ClusterVoter:
    """Votes among the nodes of a cluster. Implements ``QuorumVoter``."""

    def __init__(self, options: VoteOptions, ballot: Ballot, timers: Timers) -> None:
        self._options = options
        self._ballot = ballot
        self._timers = timers

    @property
    def size(self) -> int:
        """Node ids of the cluster, from which the needed votes follow."""
        options = self._options
        return self._ballot.nodes_seen if options.quorum_size == -1 else options.quorum_size

    def ask_whether_gone(self, node_id: str, done: Decided) -> Pending:
        """See ``QuorumVoter``. The size of the cluster is that of the first round for all of them."""
        options = self._options
        vote = self._vote(Question(node_id), options.wait_s * 1_000, options.retries, options.retry_wait_ms)
        vote.start(done)
        return vote

    def ask_whether_active(self, done: Decided) -> Pending:
        vote = self._vote(self._ballot.own_connector(), STAY_ACTIVE_WAIT_MS, 1, 0)
        vote.start(done)
        return vote

    def _vote(self, question: Question, wait_ms: int, rounds: int, pause_ms: int) -> Vote:
        needed = votes_needed(self.size)
        log.info("vote", extra={"node_id": question.node_id, "size": self.size, "needed": needed})

        def new_round(decided: Decided) -> VoteRound:
            return VoteRound(question, needed, wait_ms, self._ballot, self._timers, decided)

        return Vote(new_round, rounds, pause_ms, self._timers)
