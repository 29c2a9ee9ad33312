"""Any history of a pair without a lock manager: at most one node activates alone, and it has all that was confirmed.

The confirmations of an active node wait for its replica in sync. The votes are right: a replica takes over only if the
active node has ended (a lone pair that is cut in two is left out, see docs/operate/replication.md).
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from support.local_files import StepWorker
from understudy.errors import BrokerError
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.replication.ports import Cause
from understudy.ha.replication.shared_note import SharedNote
from understudy.ha.replication.standing import CopyNote, Origin
from understudy.ha.replication.vote_authority import VoteAuthority, VoteAuthorityOptions
from understudy.testing.sim.disk import SimVolume


class Alone:
    """A voter of a lone pair: no other node is asked. Implements ``QuorumVoter`` in part."""

    def ask_whether_active(self, done: Callable[[bool], None]) -> Alone:
        done(True)
        return self

    def cancel(self) -> None: ...


class Node:
    """One node: its notes on a disk in memory, its confirmed data as a number that rises."""

    def __init__(self, *, primary: bool) -> None:
        self.primary = primary
        self.disk = SimVolume().disk("host")
        self.disk.make_directory("/locks")
        self.origin, self.copied_at = Origin.OWN, -1
        self.data = 0
        self.running = False
        self.restart()

    def restart(self) -> None:
        """A new process reads its notes; it is not active."""
        worker = StepWorker(immediate=True)
        self.local = LocalSequence(self.disk, "/locks", worker)
        shared = SharedNote(self.disk, "/locks", worker)
        options = VoteAuthorityOptions(self.primary)
        self.authority = VoteAuthority(
            options,
            self.local,
            shared,
            lambda: CopyNote(self.origin, self.copied_at, "n"),
            lambda: "n",
            Alone(),  # type: ignore[arg-type]  # a voter in part
            None,
        )
        self.local.load()

    def may_activate(self) -> bool:
        """Whether it would activate alone."""
        answers: list[BrokerError | None] = []
        self.restart()
        self.authority.request(Cause.START, answers.append)
        return answers == [None]

    def activate(self, *, noted: bool = True) -> None:
        self.authority.claim(lambda error: None, alone=False)
        self.authority.commit(lambda error: None)
        if noted:
            self.origin, self.copied_at = Origin.OWN, -1

    def confirm(self, data: int) -> None:
        self.data = data


class Histories(RuleBasedStateMachine):
    """The active node, and its replica if that is in sync."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(primary=True), Node(primary=False)]
        self.active: Node | None = None
        self.replica: Node | None = None
        self.confirmed = 0

    def other(self, node: Node) -> Node:
        return self.nodes[1 - self.nodes.index(node)]

    @precondition(lambda self: self.active is not None)
    @rule()
    def confirm(self) -> None:
        assert self.active is not None
        self.confirmed += 1
        for each in (self.active, self.replica):
            if each is not None:
                each.confirm(self.confirmed)

    @precondition(lambda self: self.active is not None and self.replica is None)
    @rule()
    def copy_begins(self) -> None:
        assert self.active is not None
        target = self.other(self.active)
        target.origin, target.copied_at, target.data = Origin.INCOMPLETE, self.active.authority.sequence, 0

    @precondition(lambda self: self.active is not None and self.replica is None)
    @rule()
    def copy_ends(self) -> None:
        """The note of the active node is written first, then the replica notes that it is in sync."""
        self.copy_ends_unnoted()
        assert self.active is not None
        self.replica = self.other(self.active)
        self.replica.data = self.active.data
        self.replica.origin, self.replica.copied_at = Origin.COPIED, self.active.authority.sequence
        self.replica.local.write(self.active.authority.sequence, lambda error: None)

    @precondition(lambda self: self.active is not None and self.replica is None)
    @rule()
    def copy_ends_unnoted(self) -> None:
        """The replica is lost in the last pass, before it noted anything."""
        assert self.active is not None
        self.copy_begins()
        self.active.authority.share("replica:61616", lambda error: None)

    @precondition(lambda self: self.active is not None)
    @rule()
    def goes_on_alone(self) -> None:
        """The replica is lost."""
        assert self.active is not None
        self.active.authority.claim(lambda error: None, alone=True)
        self.replica = None

    @precondition(lambda self: self.replica is not None)
    @rule()
    def takes_over(self) -> None:
        assert self.replica is not None
        self.replica.activate()
        self.active, self.replica = self.replica, None

    @precondition(lambda self: self.replica is not None)
    @rule()
    def ends_while_it_takes_over(self) -> None:
        assert self.replica is not None
        self.replica.activate(noted=False)
        self.active = self.replica = None

    @precondition(lambda self: self.active is not None)
    @rule()
    def both_end(self) -> None:
        self.active = self.replica = None

    @precondition(lambda self: self.active is None)
    @rule()
    def start_both(self) -> None:
        for node in self.nodes:
            if node.may_activate():
                node.activate()
                self.active = node
                return

    @invariant()
    def at_most_the_newest_activates_alone(self) -> None:
        if self.active is not None:
            return
        may = [node for node in self.nodes if node.may_activate()]
        assert len(may) <= 1
        assert all(node.data == self.confirmed for node in may)


def test_at_most_the_newest_data_activates_alone_after_any_history() -> None:
    run_state_machine_as_test(Histories, settings=settings(max_examples=60, stateful_step_count=25, deadline=None))
