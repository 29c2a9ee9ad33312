"""A pair without a lock manager: votes and the network check decide, and the notes of a node when no node is active.

The table of ADR 0059: which node was active, in which order they ended, which one is started, and whether it activates.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.local_files import StepWorker
from understudy.errors import ActivationRefused, BrokerError, DiskFailed, LockLost
from understudy.ha.life.network_check import NetworkCheck, NetworkCheckOptions, Reach
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.replication.ports import Cause
from understudy.ha.replication.promotion import Promotion
from understudy.ha.replication.shared_note import SharedNote
from understudy.ha.replication.standing import CopyNote, Notes, Origin, Standing, Start, WaitingCopy, standing, start
from understudy.ha.replication.vote_authority import VoteAuthority, VoteAuthorityOptions
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.disk import SimVolume


class Vote:
    """A vote that the test decides. Implements ``QuorumVoter`` and ``Pending``."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.done: Callable[[bool], None] | None = None
        self.cancelled = False

    def ask_whether_gone(self, node_id: str, done: Callable[[bool], None]) -> Vote:
        self.asked.append(f"gone: {node_id}")
        self.done = done
        return self

    def ask_whether_active(self, done: Callable[[bool], None]) -> Vote:
        self.asked.append("active")
        self.done = done
        return self

    def cancel(self) -> None:
        self.cancelled = True

    def decide(self, decision: bool) -> None:
        assert self.done is not None
        self.done(decision)


class KeepsNothing(random.Random):
    """A loss of power after which nothing is left that was not synced."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def random(self) -> float:
        return 0.99


class Node:
    """One node of a pair: its notes on a disk in memory, and its authority, made anew at each start."""

    def __init__(self, *, primary: bool = True, check: bool = False, vote: bool = False) -> None:
        self.options = VoteAuthorityOptions(primary, check, vote)
        self.volume = SimVolume()
        self.disk = self.volume.disk("host")
        self.disk.make_directory("/locks")
        self.origin, self.copied_at = Origin.OWN, -1
        self.network: NetworkCheck | None = None
        self.start()

    def start(self) -> None:
        """The process starts: everything is read from the disk."""
        worker = StepWorker(immediate=True)
        self.vote = Vote()
        self.local = LocalSequence(self.disk, "/locks", worker)
        self.note = SharedNote(self.disk, "/locks", worker)
        self.authority = VoteAuthority(
            self.options,
            self.local,
            self.note,
            lambda: CopyNote(self.origin, self.copied_at, "n"),
            lambda: "n",
            self.vote,
            self.network,
        )

    def stated(self) -> WaitingCopy:
        """The statement of this node while it waits, as the other node gets it."""
        found = self.authority.waiting_copy()
        assert found is not None
        return replace(found, place="replica:61616")

    def request(self, cause: Cause = Cause.START) -> list[BrokerError | None]:
        answers: list[BrokerError | None] = []
        self.authority.request(cause, answers.append)
        return answers

    # --- the life of a pair --------------------------------------------------------------------------

    def activates_alone(self) -> bool:
        """Start it; no active node is found."""
        self.start()
        if self.authority.may_request(looked=True) and self.request() == [None]:
            self.activate()
            return True
        return False

    def activate(self) -> None:
        assert self.claim(alone=False) == [None]
        assert self.commit() == [None]
        self.origin, self.copied_at = Origin.OWN, -1

    def commit(self) -> list[BrokerError | None]:
        answers: list[BrokerError | None] = []
        self.authority.commit(answers.append)
        return answers

    def claim(self, *, alone: bool) -> list[BrokerError | None]:
        answers: list[BrokerError | None] = []
        self.authority.claim(answers.append, alone=alone)
        return answers

    def share(self, replica: Node) -> None:
        """The replica comes into sync with this active node."""
        self.authority.share("replica:61616", lambda error: None)
        replica.start()
        replica.origin, replica.copied_at = Origin.COPIED, self.authority.sequence
        replica.local.write(self.authority.sequence, lambda error: None)

    def take_over(self) -> None:
        """Activate a node that was in sync, after the loss of the active node."""
        self.request(Cause.LOST)
        self.vote.decide(True)
        self.activate()


def pair() -> tuple[Node, Node]:
    """The primary is active, the backup in sync."""
    primary, backup = Node(), Node(primary=False)
    assert primary.activates_alone()
    primary.share(backup)
    return primary, backup


def both_at_once(primary: Node, backup: Node) -> None:
    """Both end while the replica is in sync."""


def backup_first(primary: Node, backup: Node) -> None:
    """The primary goes on alone, then ends."""
    primary.claim(alone=True)
    primary.vote.decide(True)


def primary_first(primary: Node, backup: Node) -> None:
    """The backup takes over, then ends."""
    backup.take_over()


def failed_back(primary: Node, backup: Node) -> None:
    """The backup takes over, the primary copies and takes over from it, both end."""
    backup.take_over()
    backup.share(primary)
    primary.request(Cause.TOLD)
    primary.activate()


def failed_back_in_sync(primary: Node, backup: Node) -> None:
    """The primary has taken the service back, and the backup is in sync again before both end."""
    failed_back(primary, backup)
    primary.share(backup)


def take_over_ends_early(primary: Node, backup: Node) -> None:
    """The backup ends between the rise of its sequence and the note that the data is its own."""
    backup.request(Cause.TOLD)
    backup.claim(alone=False)
    backup.commit()


def take_over_fails(primary: Node, backup: Node) -> None:
    """The backup cannot open its store."""
    backup.request(Cause.TOLD)
    backup.claim(alone=False)
    backup.authority.take_back(lambda: None, served=False)


def copy_cut_short(primary: Node, backup: Node) -> None:
    """The backup takes over, and ends while the primary copies its data."""
    backup.take_over()
    primary.origin = Origin.INCOMPLETE


@pytest.mark.parametrize(
    ("history", "primary_activates", "backup_activates"),
    [
        (both_at_once, False, False),
        (backup_first, True, False),
        (primary_first, False, True),
        (failed_back, True, False),
        (failed_back_in_sync, False, False),
        (take_over_ends_early, False, True),
        (take_over_fails, False, False),
        (copy_cut_short, False, True),
    ],
)
def test_after_both_nodes_ended_only_the_newest_data_activates_alone(
    history: Callable[[Node, Node], None], primary_activates: bool, backup_activates: bool
) -> None:
    primary, backup = pair()
    history(primary, backup)
    assert (primary.activates_alone(), backup.activates_alone()) == (primary_activates, backup_activates)


def test_a_refused_node_names_the_reason_and_the_command() -> None:
    primary, backup = pair()
    for node, reason in ((primary, "had a replica in sync"), (backup, "is a copy")):
        node.start()
        assert node.authority.may_request(looked=True)
        (error,) = node.request()
        assert isinstance(error, ActivationRefused)
        assert reason in str(error)
        assert error.hint is not None
        assert "understudy promote --accept-data-loss" in error.hint


def test_an_administrator_can_promote_a_refused_node() -> None:
    primary, backup = pair()
    for node in (primary, backup):
        assert not node.activates_alone()
        answers: list[Promotion | BrokerError] = []
        node.authority.promote(answers.append)
        assert answers == [Promotion("n", 1, None, 2)]
        assert node.activates_alone()


@pytest.mark.parametrize("origin", [Origin.INCOMPLETE, Origin.OWN])
def test_data_that_cannot_be_used_is_not_promoted(origin: Origin) -> None:
    node = Node(primary=False)
    node.origin = origin
    answers: list[Promotion | BrokerError] = []
    node.authority.promote(answers.append)
    assert isinstance(answers[0], ActivationRefused)
    assert node.local.load() is None


def test_a_new_primary_activates_at_once_and_looks_first_if_it_is_configured_to() -> None:
    assert Node().authority.may_request(looked=False)
    checking = Node(check=True)
    assert not checking.authority.may_request(looked=False)
    assert checking.activates_alone()
    assert not Node(primary=False).activates_alone()


def test_data_that_was_replicated_is_never_used_without_looking_for_an_active_node() -> None:
    primary, backup = pair()
    backup_first(primary, backup)
    primary.start()
    assert not primary.authority.may_request(looked=False)


@pytest.mark.parametrize("gone", [True, False])
def test_a_replica_that_lost_its_active_node_activates_only_if_the_vote_says_that_it_is_gone(gone: bool) -> None:
    _, backup = pair()
    answers = backup.request(Cause.LOST)
    assert (answers, backup.vote.asked) == ([], ["gone: n"])
    backup.vote.decide(gone)
    assert (answers == [None]) is gone
    assert isinstance(answers[0], ActivationRefused) is not gone


@pytest.mark.parametrize("cause", [Cause.LOST, Cause.TOLD])
def test_a_replica_that_failed_to_execute_an_operation_does_not_take_over(cause: Cause) -> None:
    node = Node(primary=False)
    node.origin, node.copied_at = Origin.INCOMPLETE, 0
    (error,) = node.request(cause)
    assert isinstance(error, ActivationRefused)
    assert "a copy that was not completed" in str(error)
    assert node.vote.asked == []


def test_a_replica_that_was_requested_to_take_over_does_not_ask() -> None:
    _, backup = pair()
    assert (backup.request(Cause.TOLD), backup.vote.asked) == ([None], [])


def test_a_replica_that_was_requested_to_take_over_asks_the_network_check_if_there_is_one() -> None:
    _, backup = pair()
    backup.network = NetworkCheck(NetworkCheckOptions(("192.0.2.1",)), Silent(), ManualTime())
    backup.start()
    backup.network.start(lambda reachable: None)
    answers = backup.request(Cause.TOLD)
    assert isinstance(answers[0], ActivationRefused)
    assert "network check" in str(answers[0])


class Silent:
    """A network in which nothing answers. Implements ``Prober``; the first check passes."""

    def __init__(self) -> None:
        self.checks = 0

    def address(self, host: str, done: Callable[..., None]) -> None:
        self.checks += 1
        done(Reach.SILENT)

    def url(self, url: str, done: Callable[..., None]) -> None: ...


@pytest.mark.parametrize("vote", [False, True])
@pytest.mark.parametrize("active", [False, True])
def test_a_node_that_lost_its_replica_asks_and_stops_after_a_lost_vote_only_if_it_is_configured_to(
    vote: bool, active: bool
) -> None:
    """The vote also keeps the other nodes from letting the former replica take over, whatever is configured."""
    node = Node(vote=vote)
    assert node.activates_alone()
    before = node.authority.sequence
    answers = node.claim(alone=True)
    assert (answers, node.vote.asked, node.authority.sequence) == ([], ["active"], before)
    node.vote.decide(active)
    if active or not vote:
        assert (answers, node.authority.sequence) == ([None], before + 1)
    else:
        assert isinstance(answers[0], LockLost)
        assert node.authority.sequence == before


def test_a_replica_whose_take_over_failed_lets_the_node_that_was_active_last_serve_again() -> None:
    """The copy stays a copy, and says so while it waits; its sequence would have kept the other node waiting."""
    primary, backup = pair()
    take_over_fails(primary, backup)
    primary.start()
    backup.start()
    assert primary.authority.copy_waits(backup.stated())
    assert primary.request() == [None]


def commit_fails(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the sequence is replaced, and the sync of its directory fails."""

    def fail(path: str) -> None:
        raise DiskFailed(f"cannot sync-directory {path}: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(node.disk, "sync_directory", fail)
        assert [type(error) for error in node.commit()] == [DiskFailed]


def test_a_replica_whose_commit_failed_lets_the_node_that_was_active_last_serve_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The failed write has replaced the file already: its sequence is given up, and is not the newest after a restart
    nor after a loss of power.
    """
    primary, backup = pair()
    backup.request(Cause.TOLD)
    assert backup.claim(alone=False) == [None]
    commit_fails(backup, monkeypatch)
    ended: list[bool] = []
    backup.authority.take_back(lambda: ended.append(True), served=False)
    assert ended == [True]
    backup.volume.power_loss(KeepsNothing())
    primary.start()
    backup.start()
    assert not backup.activates_alone()
    assert primary.authority.copy_waits(backup.stated())
    assert primary.request() == [None]


def test_a_sequence_that_was_committed_is_not_given_up_when_the_node_ends() -> None:
    _, backup = pair()
    backup.take_over()
    backup.authority.take_back(lambda: None, served=True)
    assert backup.activates_alone()


def test_a_sequence_with_which_nothing_was_served_is_given_up_after_its_commit() -> None:
    """The disk of the replica fails while the commit is under way: the commit proves nothing."""
    primary, backup = pair()
    backup.request(Cause.TOLD)
    assert backup.claim(alone=False) == [None]
    assert backup.commit() == [None]
    ended: list[bool] = []
    backup.authority.take_back(lambda: ended.append(True), served=False)
    assert ended == [True]
    primary.start()
    backup.start()
    assert not backup.activates_alone()
    assert primary.authority.copy_waits(backup.stated())
    assert primary.request() == [None]


def test_a_node_says_nothing_of_a_sequence_that_a_loss_of_power_would_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The write that gives a sequence up has failed as well, after it had replaced the file: a node that now said that
    it is a copy would be the newest again after a loss of power.
    """
    _, backup = pair()
    backup.request(Cause.TOLD)
    assert backup.claim(alone=False) == [None]
    assert backup.commit() == [None]
    with monkeypatch.context() as patch:

        def fail(path: str) -> None:
            raise DiskFailed(f"cannot sync-directory {path}: Input/output error")

        patch.setattr(backup.disk, "sync_directory", fail)
        backup.local.write(1, lambda error: None)
        backup.start()
        with pytest.raises(DiskFailed):
            backup.authority.standing()
    backup.start()
    said = backup.authority.standing()
    backup.volume.power_loss(KeepsNothing())
    backup.start()
    assert backup.authority.standing() is said is Standing.REPLICA


def test_a_node_that_ends_gives_no_answer() -> None:
    _, backup = pair()
    answers = backup.request(Cause.LOST)
    backup.authority.close()
    backup.vote.decide(True)
    assert (answers, backup.vote.cancelled) == ([], True)


def test_only_data_of_this_node_id_is_brought_up_to_date_at_its_own_pair() -> None:
    primary, backup = pair()
    assert (primary.authority.data_node_id(), backup.authority.data_node_id()) == ("n", "n")
    assert Node(primary=False).authority.data_node_id() is None
    backup.origin = Origin.INCOMPLETE
    assert backup.authority.data_node_id() is None


@pytest.mark.parametrize("origin", list(Origin))
@pytest.mark.parametrize("sequence", [None, 0, 3, 4])
@pytest.mark.parametrize("shared", [None, 3, 4])
def test_no_standing_lets_a_node_activate_whose_replica_may_be_newer(
    origin: Origin, sequence: int | None, shared: int | None
) -> None:
    """Every combination of notes; a copy ended at 3."""
    found = standing(Notes(origin, sequence, 3, shared))
    allowed = start(found, primary=True, check_for_active=False) is not Start.FOLLOW_ONLY
    if origin is Origin.INCOMPLETE:
        assert found is Standing.INCOMPLETE
    if allowed and origin is Origin.COPIED:
        assert sequence == 4, "it took over"
    if allowed and origin is Origin.OWN and sequence is not None:
        assert sequence != shared
