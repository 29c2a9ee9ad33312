"""The requests of a node for a backup: order of candidates, retries, and a host that is lost (artemis-ha s. 5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from understudy.cluster.colocation.requests import BackupRequests, State
from understudy.testing.manual_time import ManualTime
from understudy.wire.core.packets import BackupRequest, BackupVote


class Members:
    """Other members with fixed votes."""

    def __init__(self, *votes: BackupVote | None) -> None:
        self.votes = list(votes)
        self.accepts = True
        self.asked = 0
        self.requests: list[tuple[str, int]] = []
        self.holds = False
        """Whether answers are kept back."""
        self.held: list[Callable[[], None]] = []
        self.cancelled = 0

    def ask_for_hosts(
        self, cast: Callable[[BackupVote | None], None], all_cast: Callable[[], None]
    ) -> Callable[[], None]:
        self.asked += 1
        for each in self.votes:
            cast(each)
        all_cast()
        return self._cancel

    def request_backup(self, host: str, request: BackupRequest, answered: Callable[[bool], None]) -> Callable[[], None]:
        self.requests.append((host, request.backup_size))
        if self.holds:
            self.held.append(lambda: answered(self.accepts))
        else:
            answered(self.accepts)
        return self._cancel

    def _cancel(self) -> None:
        self.cancelled += 1


class Node:
    def __init__(self, members: Members, retries: int = -1) -> None:
        self.time = ManualTime()
        self.backup = False
        self.requests = BackupRequests(
            members, lambda: self.backup, lambda: BackupRequest(0), self.time, retries=retries, interval_ms=1000
        )
        self.requests.start()

    @property
    def state(self) -> State:
        return self.requests.state  # type: ignore[return-value]  # of this machine


def vote(node: str, backups: int, *, available: bool = True) -> BackupVote:
    return BackupVote(backups, node, available=available)


def test_the_available_member_with_the_fewest_backups_is_asked_with_its_count() -> None:
    members = Members(vote("a", 2), None, vote("b", 1), vote("c", 0, available=False), vote("d", 1))
    node = Node(members)
    assert members.requests == [("b", 1)]
    assert (node.state, node.requests.host) == (State.HOSTED, "b")


@pytest.mark.parametrize("refused", [False, True])
def test_it_asks_again_after_the_interval(refused: bool) -> None:
    members = Members(vote("a", 0, available=refused))
    members.accepts = False
    node = Node(members)
    assert node.state is State.WAITING
    node.time.advance(999)
    assert members.asked == 1
    members.votes, members.accepts = [vote("b", 3)], True
    node.time.advance(1)
    assert (node.state, node.requests.host) == (State.HOSTED, "b")


def test_retries_are_limited() -> None:
    members = Members()
    node = Node(members, retries=2)
    node.time.advance(10_000)
    assert (members.asked, node.state) == (3, State.EXHAUSTED)
    node.requests.stop()
    node.requests.start()
    assert members.asked == 4


def test_a_backup_that_is_announced_already_is_enough() -> None:
    members = Members()
    node = Node(members)
    node.backup = True
    node.time.advance(1000)
    assert (members.asked, node.state) == (1, State.HOSTED)


def test_a_backup_that_is_missing_for_an_interval_is_asked_for_again() -> None:
    members = Members(vote("a", 0))
    node = Node(members)
    node.backup = True
    node.time.advance(5000)
    assert members.asked == 1
    node.backup = False
    node.time.advance(1000)
    assert members.asked == 1, "it may be connecting again"
    node.time.advance(1000)
    assert members.asked == 2


def test_after_the_stop_an_answer_has_no_effect() -> None:
    members = Members(vote("a", 0))
    members.holds = True
    node = Node(members)
    assert node.state is State.REQUESTING
    node.requests.stop()
    assert members.cancelled == 1
    node.time.advance(10_000)
    assert (members.asked, node.state) == (1, State.IDLE)
