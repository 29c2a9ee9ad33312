"""Crash of a node at a named step: when one of its machines enters a state, before or after the action of that.

The steps are those of a replicated pair: registration, copy, freeze and synchronisation on both nodes, loss of the
replica, request and claim of the permission, promotion, failback and the end of a node. Steps of snapshots and
consolidation are disk operations: ``crash-in-snapshot``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from understudy.ha.life.node import NodeLife
from understudy.ha.life.policy import NodeState
from understudy.ha.locks import activation_sequence, sequence_claim
from understudy.ha.locks.activation_sequence import ActivationRequest
from understudy.ha.locks.sequence_claim import SequenceClaim
from understudy.ha.replication.standby_life import StandbyLife, StandbyState
from understudy.ha.votes.decisions import Vote, VoteState
from understudy.machine import Machine, To
from understudy.replication.active_link import ActiveLink, LinkState
from understudy.replication.replica_link import ReplicaLink, ReplicaState
from understudy.testing.sim.loop import ProcessKilled, SimProcess

Step = tuple[type[Machine[Any, Any]], Any]

#: Steps of every replicated pair.
_STEPS: Final[tuple[Step, ...]] = (
    *((ActiveLink, state) for state in LinkState if state is not LinkState.CLOSED),
    *((ReplicaLink, state) for state in ReplicaState if state is not ReplicaState.IDLE),
    *(
        (StandbyLife, state)
        for state in StandbyState
        # a node empties its store only after a scale-down
        if state not in (StandbyState.IDLE, StandbyState.PROMOTING, StandbyState.EMPTYING)
    ),
    *(
        (NodeLife, state)
        for state in NodeState
        if state not in (NodeLife.INITIAL, NodeState.ISOLATING, NodeState.ISOLATED)
    ),
)
#: Every step at which a node of a pair with a lock manager can be crashed.
LOCK_STEPS: Final[tuple[Step, ...]] = (
    *_STEPS,
    *(
        (ActivationRequest, state)
        for state in (
            activation_sequence.State.READING,
            activation_sequence.State.ACQUIRING,
            activation_sequence.State.CHECKING,
        )
    ),
    *(
        (SequenceClaim, state)
        for state in (
            sequence_claim.State.CLAIMING,
            sequence_claim.State.CLAIMED,
            sequence_claim.State.WRITING,
            sequence_claim.State.COMMITTING,
        )
    ),
)
#: Every step at which a node of a pair that votes can be crashed.
VOTE_STEPS: Final[tuple[Step, ...]] = (
    # a vote has an answer always
    *(step for step in _STEPS if step[1] is not StandbyState.TAKE_OVER_PAUSED),
    *((Vote, state) for state in (VoteState.VOTING, VoteState.PAUSED, VoteState.DECIDED)),
)


def name_of(step: Step) -> str:
    """The name of a step in a trace: class and state."""
    return f"{step[0].__name__}.{step[1].name}"


class StepCrash:
    """Kills the process in which a step is reached next, once armed."""

    def __init__(self) -> None:
        self._step: Step | None = None
        self._after = False
        self._crash: Callable[[SimProcess], None] | None = None

    def arm(self, step: Step, crash: Callable[[SimProcess], None], *, after: bool) -> None:
        """Call ``crash``, which must kill the process, when any node reaches ``step``.

        Args:
            after: After the action of the transition, else before it.
        """
        self._step, self._after, self._crash = step, after, crash

    def disarm(self) -> None:
        """Cancel the planned crash."""
        self._step = self._crash = None

    @contextmanager
    def watching(self, current: Callable[[], SimProcess | None]) -> Iterator[None]:
        """While open, every machine reports its transitions here.

        Args:
            current: The process that runs at this moment.
        """
        old = Machine.fire

        def fire(machine: Machine[Any, Any], event: Any, *payload: object) -> None:
            step = self._step
            if step is None or type(machine) is not step[0]:
                old(machine, event, *payload)
                return
            entry = machine.TABLE[(machine.state, event)]
            reached = isinstance(entry, To) and entry.target is step[1] and machine.state is not step[1]
            if reached and self._after:
                old(machine, event, *payload)
            if reached:
                self._reached(current())
            if not (reached and self._after):
                old(machine, event, *payload)

        Machine.fire = fire  # type: ignore[method-assign, assignment]  # for the time of a run
        try:
            yield
        finally:
            Machine.fire = old  # type: ignore[method-assign]  # as it was

    def _reached(self, process: SimProcess | None) -> None:
        crash = self._crash
        if process is None or crash is None:
            return
        self.disarm()
        crash(process)
        raise ProcessKilled("at a step")
