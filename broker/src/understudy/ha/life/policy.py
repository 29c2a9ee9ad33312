"""The port between the life of a node and the policy that decides it.

The life of every node has the same states (``NodeState``), whatever its policy: ``ha.life.node`` declares them as a
machine. A policy decides *when* the node goes from one to the next: it takes locks, asks the cluster or counts votes,
and reports each decision to the life (``Decisions``). The life calls the policy when a state begins (``Policy``), and
the shell when something has to be done (``Standby``, ``NodePort``). No call waits; what takes time is answered later.

A policy that asks for something asynchronously (a lock service, a vote, a replica) keeps its own states, usually as a
declared machine of its own, within one state of the node. ADR 0046 goes through the policies of the manual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ha.life.activation import Step
from understudy.ha.replication.moved_store import LogEnd
from understudy.ports import Fence


class Role(Enum):
    """How the server is configured; its present state is a ``NodeState``."""

    PRIMARY_ONLY = "primary-only"
    PRIMARY = "primary"
    BACKUP = "backup"


class NodeState(Enum):
    """States of a node, under any policy."""

    STOPPED = auto()
    QUEUED = auto()
    """Waits for a place in the pair: the lock of the next backup, or an active node that takes a replica."""
    PASSIVE = auto()
    """Waits to be active; if another node is active, keeps up with its log."""
    ACTIVATING = auto()
    """The steps of the node's activation are being executed (``ha.life.activation``)."""
    ACTIVE = auto()
    """The node serves clients."""
    FAILING_BACK = auto()
    """The node undoes its activation, so that the node from which it took over can activate."""
    YIELDED = auto()
    """Waits until that node is active."""
    STOPPING = auto()
    """The node undoes its activation and ends."""
    ISOLATING = auto()
    """The node undoes its activation, because the network check failed."""
    ISOLATED = auto()
    """Stopped until the network check succeeds; its management answers."""

    @property
    def shown(self) -> str:
        """The name in management, metrics and the command line: one of ``management.model.node.STATES``."""
        return _SHOWN[self]


_SHOWN: Final = {
    NodeState.STOPPED: "stopped",
    NodeState.QUEUED: "passive",
    NodeState.PASSIVE: "passive",
    NodeState.ACTIVATING: "starting",
    NodeState.ACTIVE: "active",
    NodeState.FAILING_BACK: "stopping",
    NodeState.YIELDED: "passive",
    NodeState.STOPPING: "stopping",
    NodeState.ISOLATING: "stopping",
    NodeState.ISOLATED: "isolated",
}

Done = Callable[[BrokerError | None], None]
Compose = Callable[[Sequence[Step], Sequence[Step]], Sequence[Step]]


@dataclass(frozen=True, slots=True)
class Ending:
    """The kind of end of a node."""

    served: bool
    """Whether the node was active, or was activating, and has deactivated."""
    error: BrokerError | None
    """The error that ends the node; None: it was stopped."""
    fail_over: bool
    """The stop asked for another node to take over, whatever is configured."""


@dataclass(frozen=True, slots=True)
class ScaleDownOutcome:
    """The result of the activation of a backup that moves its messages instead of serving them."""

    complete: bool
    """No message is left here."""
    end: LogEnd
    """End of the log."""


class Decisions(Protocol):
    """Decisions of a policy; ``ha.life.node.NodeLife`` carries them out, or refuses those that its state does not
    allow.
    """

    @property
    def state(self) -> NodeState:
        """Present state of the node."""
        ...

    def take_place(self) -> None:
        """Called when the node has its place in the pair: QUEUED becomes PASSIVE."""
        ...

    def activate(self) -> None:
        """No other node is active and none can become so before this one fails: PASSIVE becomes ACTIVATING."""
        ...

    def fail_back(self) -> None:
        """Called when the node from which this one took over asks for its place: ACTIVE becomes FAILING_BACK."""
        ...

    def queue_again(self) -> None:
        """Look for a place anew: YIELDED becomes QUEUED, and PASSIVE, whose place was lost."""
        ...

    def stop(self, *, fail_over: bool = False) -> None:
        """End the node cleanly."""
        ...

    def fail(self, error: BrokerError) -> None:
        """End the node because of an error."""
        ...


@dataclass(frozen=True, slots=True)
class WithoutManager:
    """An active node whose lock is not provably held, and that serves on the promise of its replica."""

    manager: str
    """Provider and address of the lock manager."""
    for_ms: int
    """Time since the lock was lost."""
    reason: str


class Policy(Protocol):
    """Decides the life of one node.

    It is made with the life to which it reports (``ha.life.node.NodeLife``). Each method is called by the life when the
    node has entered the state named. An error that a method raises ends the node.
    """

    @property
    def fence(self) -> Fence:
        """Whether written batches of the node may be confirmed."""
        ...

    @property
    def name(self) -> str:
        """Name as in management: ``primary-only``, ``shared-store`` …"""
        ...

    @property
    def role(self) -> Role:
        """Element of ha-policy that configures the server."""
        ...

    @property
    def in_line(self) -> str | None:
        """Reason why a node that follows no log is ready nevertheless: other nodes have the places, and it takes the
        next one that is free. None if it is not so.
        """
        ...

    @property
    def without_manager(self) -> WithoutManager | None:
        """Set while the node is active on the promise of its replica, without its lock manager (ADR 0116)."""
        ...

    @property
    def stays_passive(self) -> str | None:
        """Reason why a node that is passive and ready does not activate although no other node is active (ADR 0107);
        None if it is not so.
        """
        ...

    @property
    def active_node(self) -> str | None:
        """Host and port of the node that took this one as its replica; None: none has, or the pair has one store."""
        ...

    @property
    def unopened(self) -> bool:
        """Whether this is a backup that follows a store with which no node was ever active."""
        ...

    def queue(self) -> None:
        """QUEUED: look for a place, then ``take_place``."""
        ...

    def stand_by(self) -> None:
        """PASSIVE: keep up with the active node, decide when to ``activate``."""
        ...

    def activation(self, opening: Sequence[Step], serving: Sequence[Step]) -> Sequence[Step]:
        """ACTIVATING: all steps in order.

        Args:
            opening: Steps of the node that open the store, begin an epoch and load the broker. No client and no other
                node notices them.
            serving: Steps of the node that open its acceptors and whatever else needs the broker.

        Returns:
            Those with the policy's own before, between or after them.
        """
        ...

    def serve(self) -> None:
        """ACTIVE: watch whether the node may stay active, and whether it is to ``fail_back``."""
        ...

    def refuse_failback(self) -> str | None:
        """ACTIVE: why the node cannot ``fail_back`` now, when an administrator asks for it; None: it can.

        Whether it does so by itself (allow-failback) does not matter.
        """
        ...

    def take_stopped(self) -> str | None:
        """PASSIVE: activate although the active node was stopped cleanly, as an administrator asks (ADR 0107).

        Returns:
            Why the node cannot; None: it tries until another node is active.
        """
        ...

    def leave(self, *, fail_over: bool) -> None:
        """FAILING_BACK or STOPPING: decide nothing more; the activation is about to be undone.

        Args:
            fail_over: Another node is to take over.
        """
        ...

    def give_back(self) -> None:
        """Let the other node activate, then call ``queue_again`` or ``stop``; called in the state YIELDED."""
        ...

    def release(self, ending: Ending) -> BrokerError | None:
        """STOPPED or ISOLATED: give up locks and links. After ISOLATED, ``queue`` may be called again.

        Returns:
            An error on the way. Everything else is given up nevertheless.
        """
        ...

    def close(self, closed: Callable[[], None]) -> None:
        """Call ``closed`` when nothing that the policy began is at work any more; called when the node has ended."""
        ...


class Standby(Protocol):
    """Interface of the node for a policy, while another node is active."""

    def follow(self) -> None:
        """Follow the log, strictly read-only, so that activation has to read only its unread end."""
        ...

    def stop_following(self) -> None:
        """Stop following the log."""
        ...

    def watch_cluster(self) -> None:
        """Connect to the members of the cluster and learn which nodes are active, until ``withdraw``."""
        ...

    def announce(self) -> None:
        """Tell the active node that this one is its backup, again whenever the connection was lost.

        Source: artemis-ha s. 2.2, 2.3.
        """
        ...

    def withdraw(self) -> None:
        """Stop announcing the node as a backup."""
        ...

    def peer_is_announced(self) -> bool:
        """Whether a backup of this node is announced to it (needed before failing back to that)."""
        ...


class NodePort(Protocol):
    """Interface of the node for its life."""

    def activate(self, compose: Compose, done: Done) -> None:
        """Carry out the steps that ``compose`` makes of those of the node; then ``done``."""
        ...

    def deactivate(self, done: Done) -> None:
        """Undo the steps that were begun, the last first, once none is under way; then ``done``. If that is under way
        already, ``done`` replaces the earlier one.
        """
        ...

    def stopped(self, error: BrokerError | None) -> None:
        """The life has ended: cleanly, or because of ``error``. Nothing is called after it."""
        ...
