"""The record of a replica that has moved its messages away, at a lock manager and for a pair that votes (ADR 0126)."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import create_autospec

import pytest

from support.local_files import StepWorker, given_promise, local_sequence
from understudy.errors import BrokerError, LockLost
from understudy.ha.life.policy import Decisions, NodeState, Role, ScaleDownOutcome
from understudy.ha.locks.distributed_lock import LockManager
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.locks.sequence_verdict import next_claim
from understudy.ha.replication.lock_authority import LockAuthority, NodeData
from understudy.ha.replication.moved_store import LogEnd, MovedNumbers, MovedStore
from understudy.ha.replication.policy import ReplicationOptions, ReplicationPolicy
from understudy.ha.replication.ports import Answer, Authority, Cause, Replication
from understudy.ha.replication.shared_note import SharedNote
from understudy.ha.replication.standby_life import StandbyLife
from understudy.ha.replication.standing import (
    CopyNote,
    Notes,
    Origin,
    Standing,
    WaitingCopy,
    has_moved,
    standing,
    waiting_copy,
    was_last_active,
)
from understudy.ha.replication.vote_authority import VoteAuthority, VoteAuthorityOptions
from understudy.ha.votes.decisions import QuorumVoter
from understudy.testing.manual_time import ManualTime
from understudy.testing.memory_locks import MemoryLockManager, MemoryService

NODE = "n"
END = LogEnd(5, 700, 600)


class Locks:
    """A lock manager in memory."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.service = MemoryService()
        self.manager: LockManager = MemoryLockManager(self.service, self.time, self.time)

    def write(self, sequence: int) -> None:
        errors: list[BrokerError | None] = []
        MovedNumbers(self.manager, NODE).write(sequence, END, errors.append)
        self.time.advance(0)
        assert errors == [None]

    def read(self, local: int) -> MovedStore | None:
        found: list[MovedStore | None] = []
        MovedNumbers(self.manager, NODE).read(local, found.append)
        self.time.advance(0)
        (only,) = found
        return only


@pytest.mark.parametrize(
    ("committed", "local", "counts"),
    [
        pytest.param(4, 3, True, id="the data that has moved is the newest"),
        pytest.param(next_claim(4).number, 3, True, id="nothing was served with a claim"),
        pytest.param(4, 4, False, id="the data of this node is as new"),
        pytest.param(5, 3, False, id="a node has served since"),
        pytest.param(3, 3, False, id="the sequence was never committed"),
    ],
)
def test_the_record_of_a_lock_manager_counts_while_it_is_about_the_newest_data(
    committed: int, local: int, counts: bool
) -> None:
    locks = Locks()
    locks.service.numbers[NODE] = committed
    assert locks.read(local) is None
    locks.write(4)
    assert locks.read(local) == (MovedStore(NODE, 4, END) if counts else None)


def test_a_lock_manager_without_an_answer_proves_nothing() -> None:
    locks = Locks()
    locks.service.numbers[NODE] = 4
    locks.write(4)
    locks.service.reachable = False
    assert locks.read(3) is None


# --- votes: the notes of both nodes -----------------------------------------------------------------------------------

REPLICA = "replica:61616"
LOST = Notes(sequence=3, shared_at=3, shared_with=REPLICA)
RECORD = MovedStore(NODE, 4, END, 3, REPLICA)


@pytest.mark.parametrize(
    ("notes", "record", "proved"),
    [
        pytest.param(LOST, RECORD, True, id="the replica in sync has moved everything"),
        pytest.param(LOST, MovedStore(NODE, 5, END, 3, REPLICA), True, id="at its second activation"),
        pytest.param(LOST, MovedStore("m", 4, END, 3, REPLICA), False, id="another node"),
        pytest.param(LOST, MovedStore(NODE, 4, END, 2, REPLICA), False, id="an earlier copy"),
        pytest.param(LOST, MovedStore(NODE, 4, END, 3, "spare:61616"), False, id="another replica"),
        pytest.param(LOST, MovedStore(NODE, 4, END, -1, REPLICA), False, id="data that is no copy any more"),
        pytest.param(Notes(sequence=4, shared_at=3, shared_with=REPLICA), RECORD, False, id="it went on alone"),
        pytest.param(Notes(sequence=3, shared_at=3), RECORD, False, id="a note that names no replica"),
        pytest.param(Notes(Origin.COPIED, 3, copied_at=3), RECORD, False, id="the data is a copy"),
    ],
)
def test_a_record_proves_only_that_the_data_which_the_replica_had_is_not_needed(
    notes: Notes, record: MovedStore, proved: bool
) -> None:
    assert has_moved(notes, NODE, record) is proved


def test_data_that_has_moved_is_never_used_and_lets_only_a_later_primary_activate() -> None:
    """The primary began anew above the sequence of the node whose messages had moved, and noted it as its replica."""
    notes = Notes(Origin.COPIED, 4, copied_at=3, moved_away=True)
    assert standing(notes) is Standing.MOVED
    stated = waiting_copy(notes, NODE, REPLICA)
    assert stated == WaitingCopy(NODE, 4, REPLICA)
    assert not was_last_active(LOST, NODE, stated), "the data from which the messages have moved"
    assert was_last_active(Notes(sequence=5, shared_at=5, shared_with=REPLICA), NODE, stated)


def test_a_note_of_moved_messages_says_nothing_of_a_copy_that_was_made_since() -> None:
    """The replica activated twice and noted the second sequence; its primary began anew with the record of the first
    one, reached the same sequence, and was copied. The primary waits for the statement of this copy after an end of
    both.
    """
    notes = Notes(Origin.COPIED, 3, copied_at=3, moved_away=True)
    assert standing(notes) is Standing.REPLICA
    assert waiting_copy(notes, NODE, REPLICA) == WaitingCopy(NODE, 3, REPLICA)


class Voting:
    """One node of a pair that votes, with its notes on a disk in memory."""

    def __init__(self, *, primary: bool) -> None:
        self.local, volume = local_sequence()
        self.shared = SharedNote(volume.disk("host"), "/locks", StepWorker(immediate=True))
        self.copy = CopyNote()
        self.authority = VoteAuthority(
            VoteAuthorityOptions(primary, place=REPLICA),
            self.local,
            self.shared,
            lambda: self.copy,
            lambda: NODE,
            create_autospec(QuorumVoter, instance=True),
            None,
        )


def test_a_replica_notes_that_its_messages_have_moved_and_its_primary_finds_the_record() -> None:
    replica, primary = Voting(primary=False), Voting(primary=True)
    for node in (replica, primary):
        node.local.write(3, lambda error: None)
    primary.shared.write(3, REPLICA, lambda error: None)
    replica.copy = CopyNote(Origin.COPIED, 3)
    replica.authority.commit(lambda error: None)
    record = replica.authority.moved_record(END)
    assert record == RECORD
    answers: list[BrokerError | None] = []
    replica.authority.moved_away(END, answers.append)
    assert (answers, replica.authority.standing()) == ([None], Standing.MOVED)
    replica.authority.request(Cause.START, answers.append)
    assert "all messages of this node have moved" in str(answers[1])
    found: list[MovedStore] = []
    primary.authority.find_moved(None, found.append)
    assert found == []
    primary.authority.find_moved(record, found.append)
    assert found == [RECORD]
    # the empty store has the sequence of the data that has moved, which no replica had
    primary.local.write(4, lambda error: None)
    assert primary.authority.standing() is Standing.NEWEST


def test_a_backup_with_old_data_waits_for_its_primary() -> None:
    backup = Voting(primary=False)
    backup.local.write(3, lambda error: None)
    backup.shared.write(3, REPLICA, lambda error: None)
    found: list[MovedStore] = []
    backup.authority.find_moved(RECORD, found.append)
    assert found == []


# --- a lock manager ---------------------------------------------------------------------------------------------------


class Locked:
    """One node of a pair with a lock manager."""

    def __init__(self, locks: Locks, *, primary: bool, sequence: int) -> None:
        self.locks = locks
        self.local: LocalSequence
        self.local, _ = local_sequence(sequence)
        manager = MemoryLockManager(locks.service, locks.time, locks.time)
        self.authority = LockAuthority(
            manager,
            self.local,
            NodeData(lambda: NODE, lambda: primary, lambda: True),
            locks.time,
            locks.time,
            given_promise(locks.time),
        )

    def call(self, what: Callable[[Answer], None]) -> BrokerError | None:
        answers: list[BrokerError | None] = []
        what(answers.append)
        self.locks.time.advance(300)
        (only,) = answers
        return only

    def found(self, heard: MovedStore | None = None) -> list[MovedStore]:
        found: list[MovedStore] = []
        self.authority.find_moved(heard, found.append)
        self.locks.time.advance(0)
        return found


def test_a_replica_with_the_lock_leaves_the_record_and_never_asks_for_the_lock_with_this_data_again() -> None:
    locks = Locks()
    locks.service.numbers[NODE] = 3
    replica = Locked(locks, primary=False, sequence=3)
    assert isinstance(replica.call(lambda answer: replica.authority.moved_away(END, answer)), LockLost)
    assert replica.call(lambda answer: replica.authority.request(Cause.LOST, answer)) is None
    assert replica.call(lambda answer: replica.authority.claim(answer, alone=False)) is None
    assert replica.call(replica.authority.commit) is None
    assert replica.call(lambda answer: replica.authority.moved_away(END, answer)) is None
    assert not replica.authority.may_request(looked=True)
    replica.authority.release()
    primary = Locked(locks, primary=True, sequence=3)
    assert "another node has served" in str(primary.call(lambda answer: primary.authority.request(Cause.START, answer)))
    assert primary.found() == [MovedStore(NODE, 4, END)]
    heard = MovedStore(NODE, 4, LogEnd(5, 701, 600, b"batch"))
    assert primary.found(heard) == [heard], "the node that has the messages knows more"
    early = MovedStore(NODE, 4, LogEnd(5, 690, 600, b"batch"))
    assert primary.found(early) == [MovedStore(NODE, 4, LogEnd(5, 700, 600, b"batch"))], "the log went on after that"
    assert primary.found(MovedStore(NODE, 3, END)) == [MovedStore(NODE, 4, END)], "an earlier scale-down"
    late: list[MovedStore] = []
    primary.authority.find_moved(None, late.append)
    primary.local.write(4, lambda error: None)
    locks.time.advance(0)
    assert late == [], "the empty store has begun since the question (simulation: scaled-replicas 960228)"
    assert primary.call(lambda answer: primary.authority.request(Cause.START, answer)) is None


# --- the policy -------------------------------------------------------------------------------------------------------


class Backup:
    """The policy of a backup whose activation has ended, with the outcome of its scale-down."""

    def __init__(
        self, outcome: ScaleDownOutcome | None, *, restart_backup: bool, error: BrokerError | None = None
    ) -> None:
        self.time = ManualTime()
        self.life = create_autospec(Decisions, instance=True)
        self.authority = create_autospec(Authority, instance=True)
        self.replication = create_autospec(Replication, instance=True)
        self.authority.hand_over.side_effect = lambda then: then()
        self.authority.moved_away.side_effect = lambda end, answer: answer(error)
        self.policy = ReplicationPolicy(
            ReplicationOptions(Role.BACKUP, restart_backup=restart_backup, moved=lambda: outcome),
            self.life,
            create_autospec(StandbyLife, instance=True),
            self.authority,
            self.replication,
            self.time,
            self.time,
        )

    def decision(self) -> str:
        """Decision after its place was given back."""
        self.life.state = NodeState.YIELDED
        self.life.reset_mock()
        self.policy.give_back()
        (only,) = {name for name, *_ in self.life.method_calls}
        return str(only)


@pytest.mark.parametrize("restart_backup", [True, False])
@pytest.mark.parametrize(
    ("outcome", "error", "ends"),
    [
        pytest.param(ScaleDownOutcome(True, END), None, True, id="everything has moved"),
        pytest.param(ScaleDownOutcome(True, END), LockLost("gone"), False, id="the record was not written"),
        pytest.param(ScaleDownOutcome(False, END), None, False, id="messages are left"),
    ],
)
def test_a_backup_whose_messages_have_moved_serves_nothing_and_tries_again_until_all_have(
    outcome: ScaleDownOutcome, error: BrokerError | None, ends: bool, restart_backup: bool
) -> None:
    backup = Backup(outcome, restart_backup=restart_backup, error=error)
    backup.life.state = NodeState.ACTIVE
    backup.policy.serve()
    backup.time.advance(0)
    backup.life.fail_back.assert_called_once_with()
    backup.replication.watch.assert_not_called()
    assert backup.decision() == ("stop" if ends and not restart_backup else "queue_again")
    assert backup.authority.moved_away.call_count == outcome.complete


def test_a_backup_without_a_target_serves_and_takes_replicas() -> None:
    backup = Backup(None, restart_backup=True)
    backup.life.state = NodeState.ACTIVE
    backup.policy.serve()
    backup.time.advance(0)
    backup.life.fail_back.assert_not_called()
    backup.replication.watch.assert_called_once()


def test_no_replica_is_taken_once_the_messages_have_moved() -> None:
    accepted: list[str] = []
    for outcome in (ScaleDownOutcome(True, END), None):
        backup = Backup(outcome, restart_backup=True)
        backup.replication.steps.return_value = ()
        backup.replication.accept_step.return_value.do = lambda: accepted.append("taken")
        backup.replication.accept_step.return_value.name = "accept replicas"
        backup.policy.activation((), ())[-1].do()
    assert accepted == ["taken"]
