"""The policy of a replicated pair: each node has its own copy of the store, and an authority decides which is active.

Implements artemis-ha s. 3 and 4 on the life of every node (``ha.life.node``). A primary and a backup differ in little:
the primary asks to become active when it has caught up with the backup that took over from it (failback), and only a
node with complete data may activate at all. See ADR 0057.

Not here: what a node does while it is not active (``standby_life``), who may be active (``Authority``), how the store
is copied (``replication.active_link``, ``replication.replica_link``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ha.life.activation import Step
from understudy.ha.life.policy import Decisions, Ending, NodeState, Role, ScaleDownOutcome, WithoutManager
from understudy.ha.replication.failback_pause import FailbackPause
from understudy.ha.replication.ports import Authority, Replication
from understudy.ha.replication.standby_life import StandbyLife, StandbyState
from understudy.ports import Clock, Fence, Timers

log = logging.getLogger(__name__)

#: Reason of a node that is ready although it copies nothing.
IN_LINE: Final = "passive in line: the active node has another replica"


@dataclass(frozen=True, slots=True)
class ReplicationOptions:
    """Settings of the policy (artemis-ha s. 1)."""

    role: Role
    allow_failback: bool = True
    """allow-failback: an active backup yields when its primary has caught up and asks for it."""
    restart_backup: bool = True
    """restart-backup: after yielding it goes on as a backup, and otherwise it ends. A colocated backup of another node
    always ends, which frees its place. Artemis does not look at the element with replication (artemis-ha s. 1)."""
    retry_wait_ms: int = 2_000
    """Element retry-replication-wait, in ms."""
    peer: bool = False
    """Whether a coordination-id is configured, so that the nodes are equal and no failback is requested."""
    moved: Callable[[], ScaleDownOutcome | None] = lambda: None
    """Outcome of the present activation of a backup with scale-down; None: no other node took the messages, and it
    serves them (ADR 0126)."""

    @property
    def wants_failback(self) -> bool:
        """Whether the node asks to become active when it is in sync."""
        return self.role is Role.PRIMARY and not self.peer


class ReplicationPolicy:
    """Decides the life of one node of a replicated pair. Implements ``ha.life.policy.Policy``."""

    name = "replication"

    def __init__(
        self,
        options: ReplicationOptions,
        life: Decisions,
        standby_life: StandbyLife,
        authority: Authority,
        replication: Replication,
        timers: Timers,
        clock: Clock,
    ) -> None:
        """Args:
        life: Takes the decisions.
        standby_life: What the node does while it is not active.
        authority: Gives the permission to be active.
        replication: The replica of this node while it is active.
        clock: Boot time.
        """
        self._moved = options.moved
        self.options = options
        self._life = life
        self._timers = timers
        self._pause = FailbackPause(clock)
        self._authority = authority
        self._replication = replication
        self._fail_back_later = False
        """A replica that asked to become active waits for the lock manager."""
        self.standby_life = standby_life

    @property
    def role(self) -> Role:
        """How the server is configured."""
        return self.options.role

    @property
    def fence(self) -> Fence:
        """The fence of the authority."""
        return self._authority.fence

    @property
    def in_line(self) -> str | None:
        """See ``Policy``: an active node has one replica."""
        return IN_LINE if self.standby_life.spare else None

    @property
    def without_manager(self) -> WithoutManager | None:
        return self._authority.without_manager

    @property
    def stays_passive(self) -> str | None:
        """Whether the node stays passive and thus not ready; see ``Policy`` and ``StandbyLife.waiting_because``."""
        return None

    # --- passive -----------------------------------------------------------------------------------

    def queue(self) -> None:
        self.standby_life.begin()

    def stand_by(self) -> None:
        """See ``Policy``. The machine of the passive node goes on."""
        if self.standby_life.state is StandbyState.COPYING:
            self._pause.other_served()

    def activation(self, opening: Sequence[Step], serving: Sequence[Step]) -> Sequence[Step]:
        """The permission becomes a claim first, and the claim is committed when nothing can fail any more that has to
        do with the data of this node (ADR 0112); replicas are accepted until the store is closed, unless the messages
        have moved away.
        """
        replication = self._replication
        accept = replication.accept_step()

        def accept_unless_moved() -> Awaitable[None] | None:
            return accept.do() if self._moved() is None else None

        last = Step(accept.name, accept_unless_moved, accept.undo)
        return (*replication.steps(), *opening, *replication.commit_steps(), *serving, last)

    # --- active ------------------------------------------------------------------------------------

    def serve(self) -> None:
        self._pause.serves()
        self._authority.watch(self._life.fail, self._proved)
        if self._moved() is None:
            self._replication.watch(self._replica_asks)
        else:
            # the data stays a copy, by which the node that was active before recognises it
            self._timers.call_later(0, self._give_up)

    def _give_up(self) -> None:
        """The messages have moved: there is nothing to serve."""
        if self._life.state is NodeState.ACTIVE:
            self._life.fail_back()

    def _replica_asks(self) -> None:
        """A replica that wants to be active again is in sync. Only a backup yields: two primaries would yield to each
        other without end."""
        yields = self.options.role is Role.BACKUP and self.options.allow_failback
        if not yields or self._life.state is not NodeState.ACTIVE:
            return
        without = self._authority.without_manager
        self._fail_back_later = without is not None
        if without is not None:
            # the primary could not get the lock, and the pair would be without service
            log.info("failback waits for the lock manager", extra={"manager": without.manager})
            return
        left_ms = self._pause.left_ms()
        if left_ms > 0:
            self._timers.call_later(left_ms, self._ask_again)
        else:
            log.info("failback: the primary is in sync and asks to become active")
            self._life.fail_back()

    def _ask_again(self) -> None:
        if self._replication.wants_failback():
            self._replica_asks()

    def _proved(self) -> None:
        """Called when the lock is held again."""
        if self._fail_back_later and self._replication.has_replica():
            self._replica_asks()

    def refuse_failback(self) -> str | None:
        """See ``Policy``: a replica in sync takes over."""
        without = self._authority.without_manager
        if without is not None:
            return f"{without.manager} does not answer: the other node could not become active ({without.reason})"
        return None if self._replication.has_replica() else "no replica is in sync: is the other node running?"

    def take_stopped(self) -> str | None:
        """See ``Policy``: a replica in sync activates by itself, and any other one may lack messages."""
        return "it is not the backup of a shared store; `understudy promote` lets a replica activate"

    # --- failing back and stopping -------------------------------------------------------------------

    def leave(self, *, fail_over: bool) -> None:
        """Take no other replica. The present one takes over when this node stops (artemis-ha s. 3.10)."""
        self._replication.leave()

    def give_back(self) -> None:
        """Give the permission to the primary, and go on as a backup, or end, when that is active. A node whose messages
        have moved leaves the record of it first. One that has some left does not wait for another node: it tries again.
        """
        self._pause.gave_back()
        outcome = self._moved()
        if outcome is None:
            self._hand_over(ends=not self.options.restart_backup)
        elif outcome.complete:
            self._authority.moved_away(outcome.end, self._left_record)
        else:
            self._hand_over(ends=False)

    def _left_record(self, error: BrokerError | None) -> None:
        if error is not None:
            hint = "this node activates again, and leaves the record then; the other node of the pair waits for it"
            log.error("the record of a scale-down is not written", extra={"error": str(error), "hint": hint})
        self._hand_over(ends=not self.options.restart_backup and error is None)

    def _hand_over(self, *, ends: bool) -> None:
        if self._life.state is NodeState.YIELDED:
            self._authority.hand_over(lambda: self._gave_back(ends=ends))

    def _gave_back(self, *, ends: bool) -> None:
        if self._life.state is not NodeState.YIELDED:
            return
        if ends:
            self._life.stop()
        else:
            self._life.queue_again()

    def release(self, ending: Ending) -> BrokerError | None:
        """Give up the connection and the permission."""
        self.standby_life.stop()
        self._authority.close()
        return None

    def close(self, closed: Callable[[], None]) -> None:
        """See ``Policy``: operations that the copy has received are executed first."""
        self.standby_life.replica.end(lambda: self._replication.close(closed))

    @property
    def active_node(self) -> str | None:
        return self.standby_life.replica.active_node

    @property
    def unopened(self) -> bool:
        """See ``Policy``: an empty copy is no reason against a takeover."""
        return False
