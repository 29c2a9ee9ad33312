"""The end of a claim of the activation sequence in each of its states."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pytest

from support.local_files import StepWorker, local_sequence
from understudy.errors import BrokerError
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.locks.sequence_claim import SequenceClaim, State
from understudy.ha.locks.sequence_verdict import Verdict, compare
from understudy.testing.manual_time import ManualTime
from understudy.testing.memory_locks import MemoryLockManager, MemoryService


@dataclass
class Made:
    """A claim in a state."""

    service: MemoryService
    local: LocalSequence
    claim: SequenceClaim
    worker: StepWorker
    answers: list[BrokerError | None] = field(default_factory=list)
    """Answers to ``begin`` and ``commit`` since the state was reached."""
    ended: list[str] = field(default_factory=list)
    """Texts that a withdrawal adds at its end."""

    def carry_out_all(self) -> None:
        """The local file and the lock manager do everything that they were asked for."""
        while self.worker.jobs:
            self.worker.step()
        for pending in list(self.service.pending):
            pending.carry_out()
            pending.deliver()


def claim_in(state: State) -> Made:
    time = ManualTime()
    service = MemoryService()
    service.numbers["n"] = 3
    manager = MemoryLockManager(service, time, time, immediate=False)
    local, _ = local_sequence(3)
    local.load()
    local._worker = worker = StepWorker()
    manager.lock("n").fence.begin(10**6)
    claim = SequenceClaim("n", manager, local, 3)
    made = Made(service, local, claim, worker)
    for _ in range(20):
        if claim.state is state:
            break
        if claim.state is State.IDLE:
            claim.begin(made.answers.append)
        elif claim.state is State.CLAIMED and state is State.TAKING_BACK:
            claim.take_back(partial(made.ended.append, "ended"))
        elif claim.state is State.CLAIMED:
            claim.commit(made.answers.append)
        elif claim.state is State.COMMITTED:
            claim.cancel()
        elif service.pending:
            if state is State.READING:
                service.numbers["n"] = 9
            service.pending[0].carry_out()
            service.pending[0].deliver()
        elif worker.jobs:
            worker.step()
    assert claim.state is state
    made.answers.clear()
    return made


@pytest.mark.parametrize("state", list(State))
def test_a_cancelled_claim_gives_no_answer(state: State) -> None:
    made = claim_in(state)
    made.claim.cancel()
    made.carry_out_all()
    assert made.answers == []
    assert made.ended == (["ended"] if state is State.TAKING_BACK else []), "its caller waits"
    assert made.claim.state is State.ENDED


@pytest.mark.parametrize("state", [State.CLAIMING, State.WRITING, State.COMMITTING, State.READING])
def test_a_node_that_is_stopped_while_it_claims_waits_for_no_answer(state: State) -> None:
    """The node has lost its replica. As after a kill, both nodes may activate then, or this one alone."""
    made = claim_in(state)
    made.claim.take_back(partial(made.ended.append, "ended"))
    assert (made.ended, made.claim.state) == (["ended"], State.ENDED)
    made.carry_out_all()
    assert made.answers == []
    if state is not State.READING:
        assert compare(made.service.numbers["n"], made.local.load() or 0) in (Verdict.IN_SYNC, Verdict.NOT_SERVED)


def test_a_commit_with_which_nothing_was_served_becomes_a_claim_again() -> None:
    """The node has failed during its commit: both nodes may activate, as if it had been killed before."""
    made = claim_in(State.COMMITTED)
    assert (made.service.numbers["n"], made.local.load()) == (4, 4)
    made.claim.take_back(partial(made.ended.append, "ended"))
    assert (made.ended, made.claim.state) == ([], State.TAKING_BACK)
    made.carry_out_all()
    assert (made.ended, made.claim.state) == (["ended"], State.ENDED)
    for local in (3, 4):
        assert compare(made.service.numbers["n"], local) in (Verdict.IN_SYNC, Verdict.NOT_SERVED)


def test_a_commit_is_left_alone_without_the_lock() -> None:
    made = claim_in(State.COMMITTED)
    made.claim._fence.lose("taken")
    made.claim.take_back(partial(made.ended.append, "ended"))
    assert (made.ended, made.service.numbers["n"]) == (["ended"], 4)
