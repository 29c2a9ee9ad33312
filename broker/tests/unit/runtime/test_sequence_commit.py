"""The commit of the activation sequence, once in an activation (ADR 0112)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from understudy.errors import BrokerError, DiskFailed, LockLost
from understudy.runtime.replica.sequence_commit import SequenceCommit


class Authority:
    """Counts commits, each of which is answered later."""

    def __init__(self) -> None:
        self.commits = 0
        self.answer: Callable[[BrokerError | None], None] = lambda error: None
        self.taken_back: list[bool] = []
        """One entry of each activation that has ended: whether it has served."""

    def commit(self, answer: Callable[[BrokerError | None], None]) -> None:
        self.commits += 1
        self.answer = answer

    def take_back(self, taken_back: Callable[[], None], *, served: bool) -> None:
        self.taken_back.append(served)
        taken_back()


def made(*failures: BrokerError) -> tuple[Any, SequenceCommit, list[BrokerError | None]]:
    authority: Any = Authority()
    return authority, SequenceCommit(authority, lambda: next(iter(failures), None)), []


def test_the_second_commit_of_an_activation_does_nothing() -> None:
    authority, sequence, answers = made()
    sequence.begin()
    sequence.commit(answers.append)
    assert answers == []
    authority.answer(None)
    sequence.commit(answers.append)
    assert answers == [None, None]
    assert authority.commits == 1


def test_the_next_activation_commits_again() -> None:
    authority, sequence, answers = made()
    sequence.begin()
    sequence.commit(answers.append)
    authority.answer(None)
    sequence.begin()
    sequence.commit(answers.append)
    assert authority.commits == 2


def test_a_commit_that_failed_is_no_commit() -> None:
    authority, sequence, answers = made()
    sequence.begin()
    sequence.commit(answers.append)
    lost = LockLost("gone")
    authority.answer(lost)
    assert answers == [lost]
    sequence.commit(answers.append)
    assert authority.commits == 2


def test_a_node_that_failed_during_its_commit_serves_nothing_with_the_sequence() -> None:
    failed = DiskFailed("the disk is gone")
    authority, sequence, answers = made(failed)
    sequence.begin()
    sequence.commit(answers.append)
    authority.answer(None)
    assert answers == [failed]
    sequence.take_back(lambda: answers.append(None))
    assert (authority.taken_back, answers) == ([False], [failed, None])


def test_a_committed_sequence_is_kept_when_the_activation_ends() -> None:
    authority, sequence, answers = made()
    sequence.begin()
    sequence.take_back(lambda: None)
    sequence.commit(answers.append)
    authority.answer(None)
    sequence.take_back(lambda: None)
    assert authority.taken_back == [False, True]
