"""The commit of the activation sequence, once in an activation (ADR 0112)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from understudy.errors import BrokerError, LockLost
from understudy.runtime.replica.sequence_commit import SequenceCommit


class Authority:
    """Counts commits, each of which is answered later."""

    def __init__(self) -> None:
        self.commits = 0
        self.answer: Callable[[BrokerError | None], None] = lambda error: None

    def commit(self, answer: Callable[[BrokerError | None], None]) -> None:
        self.commits += 1
        self.answer = answer


def made() -> tuple[Any, SequenceCommit, list[BrokerError | None]]:
    authority: Any = Authority()
    return authority, SequenceCommit(authority), []


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
