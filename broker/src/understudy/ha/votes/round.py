"""One round of a quorum vote: the question, the answers of the other nodes, and a decision that is final.

Source: artemis-ha s. 3.3. A round ends when enough positive answers came, when every node has answered or is
unreachable, or after its time limit. Not here: how many rounds there are (``ha.votes.decisions``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar, Protocol

from understudy.dataclass import dataclass
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Timer, Timers

log = logging.getLogger(__name__)

Decided = Callable[[bool], None]
"""Called once with the decision."""


class Pending(Protocol):
    """A vote or a check under way."""

    def cancel(self) -> None:
        """End the round without a decision; an ended round ignores the call."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """The request of a vote."""

    node_id: str
    """Node id of the node that the vote is about."""
    connector: str | None = None
    """A primary: text of its own connector; the question is whether the node is active there. None: a backup; the
    question is whether no node is active under the id.
    """


@dataclass(frozen=True, slots=True)
class Answer:
    """Vote of one node."""

    agreed: bool
    connector: str | None = None
    """Text of the connector at which the answering node sees the node active; None: it does not see it."""

    def supports(self, question: Question) -> bool:
        """Whether the vote counts. A node that is seen active at another connector is the backup of the asking one."""
        if question.connector is None or not self.agreed:
            return self.agreed
        return self.connector is not None and _comparable(self.connector) == _comparable(question.connector)


def _comparable(connector: str) -> tuple[str, list[str]]:
    """A connector as text, without the order of its parameters, which is that of a hash table in Artemis."""
    name, _, parameters = connector.partition("?")
    return name, sorted(parameters.split("&"))


class Ballot(Protocol):
    """Sends a question to the other nodes of the cluster."""

    @property
    def nodes_seen(self) -> int:
        """Highest number of node ids ever seen at the same time, including that of this node; a pair has one id."""
        ...

    def own_connector(self) -> Question:
        """The question whether this node is active at its connector."""
        ...

    def put(self, question: Question, cast: Callable[[Answer | None], None], all_cast: Callable[[], None]) -> Pending:
        """Ask the active node of every other node id.

        Args:
            question: The same for all.
            cast: Called with each answer; None: the node is unreachable or did not answer.
            all_cast: Called once after the last ``cast``, also if no node was asked. May be called before the return.
        """
        ...


class RoundState(Enum):
    """States of one round of votes."""

    NEW = auto()
    OPEN = auto()
    CLOSED = auto()


class RoundEvent(Enum):
    """Events of one round of votes."""

    PUT = auto()
    CAST = auto()
    """A node has answered. Its argument is the answer; None: there is none."""
    ALL_CAST = auto()
    TIMED_OUT = auto()
    CANCELLED = auto()


class VoteRound(Machine[RoundState, RoundEvent]):
    """One round of votes; its decision is final, later answers are ignored."""

    STATES: ClassVar[type[Enum]] = RoundState
    EVENTS: ClassVar[type[Enum]] = RoundEvent
    INITIAL: ClassVar[Enum] = RoundState.NEW

    def __init__(
        self, question: Question, needed: int, wait_ms: int, ballot: Ballot, timers: Timers, done: Decided
    ) -> None:
        """Args:
        question: Asked in this round.
        needed: Positive answers for a positive decision.
        wait_ms: Time limit.
        ballot: Asks the other nodes.
        done: Called with the decision.
        """
        super().__init__()
        self._question = question
        self._missing = needed
        self._wait_ms = wait_ms
        self._ballot = ballot
        self._timers = timers
        self._done = done
        self._timer: Timer | None = None
        self._asking: Pending | None = None

    def put(self) -> None:
        """Ask the nodes for their votes; called once."""
        self.fire(RoundEvent.PUT)

    def cancel(self) -> None:
        """End the round without a decision."""
        self.fire(RoundEvent.CANCELLED)

    def _ask(self) -> None:
        if self._missing == 0 or self._ballot.nodes_seen <= 1:
            # a result that needs no vote, or that no other node can give, is not awaited
            self.fire(RoundEvent.ALL_CAST)
            return
        self._timer = self._timers.call_later(self._wait_ms, lambda: self.fire(RoundEvent.TIMED_OUT))
        asking = self._ballot.put(
            self._question,
            lambda answer: self.fire(RoundEvent.CAST, answer),
            lambda: self.fire(RoundEvent.ALL_CAST),
        )
        if self._state is RoundState.OPEN:
            self._asking = asking
        else:
            asking.cancel()

    def _count(self, answer: Answer | None) -> None:
        if answer is None:
            return
        if answer.supports(self._question):
            self._missing -= 1
            if self._missing == 0:
                self.fire(RoundEvent.ALL_CAST)
        elif answer.agreed:
            log.warning("a vote was not counted: another node is active", extra={"connector": answer.connector})

    def _decide(self) -> None:
        self._end()
        self._done(self._missing == 0)

    def _decide_late(self) -> None:
        log.warning("votes are missing after the time limit", extra={"wait_ms": self._wait_ms})
        self._decide()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    # The table comes last: it names the functions above.
    TABLE = table(
        RoundState,
        RoundEvent,
        {
            (RoundState.NEW, RoundEvent.PUT): To(RoundState.OPEN, _ask),
            (RoundState.NEW, RoundEvent.CANCELLED): To(RoundState.CLOSED),
            (RoundState.NEW, RoundEvent.CAST): ILLEGAL,
            (RoundState.NEW, RoundEvent.ALL_CAST): ILLEGAL,
            (RoundState.NEW, RoundEvent.TIMED_OUT): ILLEGAL,
            (RoundState.OPEN, RoundEvent.CAST): To(RoundState.OPEN, _count),
            (RoundState.OPEN, RoundEvent.ALL_CAST): To(RoundState.CLOSED, _decide),
            (RoundState.OPEN, RoundEvent.TIMED_OUT): To(RoundState.CLOSED, _decide_late),
            (RoundState.OPEN, RoundEvent.CANCELLED): To(RoundState.CLOSED, _end),
        },
        # answers of nodes that were slower than the decision
        otherwise={
            RoundEvent.PUT: ILLEGAL,
            RoundEvent.CAST: IGNORED,
            RoundEvent.ALL_CAST: IGNORED,
            RoundEvent.TIMED_OUT: IGNORED,
            RoundEvent.CANCELLED: IGNORED,
        },
    )
