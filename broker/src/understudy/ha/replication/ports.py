"""Ports of the replication policy: permission to be active, the copy on another node, the replicas of this node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol

from understudy.errors import BrokerError
from understudy.ha.life.activation import Step
from understudy.ha.life.policy import WithoutManager
from understudy.ha.locks.noted_position import PositionNumbers
from understudy.ha.replication.moved_store import LogEnd, MovedStore
from understudy.ha.replication.promotion import Promotion
from understudy.ha.replication.standing import WaitingCopy
from understudy.ports import Fence

Answer = Callable[[BrokerError | None], None]
"""Called once, with None or the error."""


class Cause(Enum):
    """Reason why a node requests the permission to activate."""

    START = auto()
    """The node's data may be the newest, and it is not the replica of an active node."""
    LOST = auto()
    """The node was a replica in sync and lost its active node."""
    TOLD = auto()
    """The active node has stopped and told it to take over."""


class ReplicaPromises(Protocol):
    """The replica in sync of an active node, as the authority asks it (ADR 0116)."""

    def ask_promise(self, number: int, sequence: int, duration_ms: int) -> None:
        """Ask that it does not take over for so long; ``Authority.promised`` gets the answer, if one comes.

        Args:
            sequence: Activation sequence of the active node.
            duration_ms: Time from the receipt on.
        """
        ...


class Authority(Protocol):
    """Decides which node of a pair may be active: a lock manager, or votes (artemis-ha s. 3.3, 4.2).

    No call waits; one request is under way at a time.
    """

    @property
    def fence(self) -> Fence:
        """Whether this node may confirm its writes."""
        ...

    @property
    def sequence(self) -> int:
        """Activation sequence of the data of this node; -1 if there is none."""
        ...

    @property
    def by_votes(self) -> bool:
        """Whether there is no lock manager: at a start an active node is looked for before the permission is requested,
        and a node that is not active takes part in the cluster.
        """
        ...

    def data_node_id(self) -> str | None:
        """Node id of the only node whose replica this one becomes, because its data is of that node, or because it is
        configured as primary; None: of any (ADR 0119).

        Raises:
            StoreError: the notes about the data cannot be read.
        """
        ...

    def may_request(self, *, looked: bool) -> bool:
        """Whether to request the permission at a start: the data may be the newest.

        Args:
            looked: An active node of the pair was looked for since the start, and none was found.

        Raises:
            StoreError: the notes about the data cannot be read.
        """
        ...

    def request(self, cause: Cause, answer: Answer) -> None:
        """Request the permission to activate; it is kept until ``release``.

        The answer is ``ActivationRefused`` if another node has newer data. Any other error says that there is no answer
        now: it may be requested again.
        """
        ...

    def cancel(self) -> None:
        """End a request without an answer."""
        ...

    def claim(self, answer: Answer, *, alone: bool) -> None:
        """Say, with the permission, that this node is about to serve without a replica. An error ends the node.

        Args:
            answer: Called once.
            alone: The replica of this active node is lost: the claim is committed, too, before the answer, and nothing
                is confirmed without the replica before that. At an activation ``commit`` or ``take_back`` follows.
        """
        ...

    def commit(self, answer: Answer) -> None:
        """Directly before the node serves: make sure that no other data counts as the newest from now on. An error ends
        the node.
        """
        ...

    def take_back(self, taken_back: Callable[[], None], *, served: bool) -> None:
        """Called when the activation has ended, or has failed. If nothing was served or moved with its sequence,
        another node may take over at once.

        Args:
            taken_back: Called once.
            served: Whether the node went on after a commit that has succeeded.
        """
        ...

    def share(self, replica: str, answer: Answer) -> None:
        """Note durably, if the data of this node depends on it at a start, that a replica is about to be in sync.

        Args:
            replica: ``host:port`` of its connector.
            answer: Called once.
        """
        ...

    def listens(self) -> bool:
        """Whether this node, while it waits, is to hear whether its last replica waits, too (ADR 0064).

        Raises:
            StoreError: the notes about the data cannot be read.
        """
        ...

    def waiting_copy(self) -> WaitingCopy | None:
        """The statement of this node while it waits, without its place (``standing.waiting_copy``).

        Raises:
            StoreError: the notes about the data cannot be read.
        """
        ...

    def copy_waits(self, copy: WaitingCopy) -> bool:
        """A node waits and has made a statement: whether that proves that the data of this node is the newest.

        Raises:
            StoreError: the notes about the data cannot be read.
        """
        ...

    def moved_record(self, end: LogEnd) -> MovedStore | None:
        """The record that the node which takes all messages of this active one is to keep; None: it keeps none (ADR
        0126).

        Raises:
            StoreError: the notes about the data cannot be read.
        """
        ...

    def moved_away(self, end: LogEnd, answer: Answer) -> None:
        """Note, with the permission, that the data of this node is of no use, because all messages have moved to
        another node, which has the record of it; let the other node of the pair find that out.

        Args:
            end: End of the log, to which nothing is appended any more.
            answer: Called once. After an error the node may activate with its data again.
        """
        ...

    def find_moved(self, heard: MovedStore | None, found: Callable[[MovedStore], None]) -> None:
        """Look for the record that all messages of the data of this node have moved away.

        Args:
            heard: Record with which another node has answered a registration; None: none has.
            found: Called at most once, with a record that proves it.

        Raises:
            StoreError: the notes about the data cannot be read.
        """
        ...

    def position_numbers(self) -> PositionNumbers | None:
        """The position of the store of this node outside of the pair; None: nothing keeps it, or the permission is not
        held.
        """
        ...

    def watch(self, lost: Callable[[BrokerError], None], proved: Callable[[], None]) -> None:
        """Call ``lost`` when the permission ends without ``release``, and ``proved`` when ``without_manager`` ends."""
        ...

    @property
    def without_manager(self) -> WithoutManager | None:
        """Whether the promise of the replica replaces the lock of this active node."""
        ...

    def synced(self, replica: ReplicaPromises | None) -> None:
        """The node is active: this replica is in sync from now on; None: none is."""
        ...

    def promised(self, number: int, refusal: str | None) -> None:
        """The replica has answered a request for a promise; None: it has promised."""
        ...

    def promise(self, sequence: int, duration_ms: int, answer: Callable[[str | None], None]) -> None:
        """Called when the node is a replica in sync, and its active node asks for a promise not to take over.

        Args:
            sequence: Activation sequence of the active node.
            duration_ms: Time from now on.
            answer: Called once, with None or the reason of a refusal.
        """
        ...

    def release(self) -> None:
        """Give the permission back; another node may get it."""
        ...

    def hand_over(self, handed_over: Callable[[], None]) -> None:
        """Give the permission back, and call when another node is active, or is not within a time."""
        ...

    def promote(self, answer: Callable[[Promotion | BrokerError], None]) -> None:
        """Make the data of this node count as the newest, because an administrator says so; the node is not active.

        The answer names the sequences before and after, or is the error because of which nothing has changed.
        """
        ...

    def close(self) -> None:
        """The node ends: give everything back."""
        ...


class Listener(Protocol):
    """The acceptors of a node that waits, for its last replica only (ADR 0064)."""

    def open(self) -> None:
        """Listen, unless it does already. An error is logged, and the next call tries again."""

    def close(self) -> None:
        """Close the acceptors; their addresses are free when the call returns."""


class Found(Enum):
    """Result of a search for an active node that takes a replica."""

    NOTHING = auto()
    """No active node was found, or the found one accepted this node."""
    PLACE_TAKEN = auto()
    """An active node has another replica: this node is spare."""
    PARTNER_ACTIVATES = auto()
    """The node that was active last waited for this one, and activates (ADR 0064)."""
    PUT_BACK = auto()
    """An active node was found that has lost records which the copy of this node has: it stops serving (ADR 0118)."""


class EmptyStart(Protocol):
    """Sets the data of this node aside and begins an empty store (ADR 0126)."""

    @property
    def heard(self) -> MovedStore | None:
        """The newest record with which another node has answered; None: none has."""
        ...

    def hear(self, moved: MovedStore) -> None:
        """Take the record that another node keeps and has answered with."""
        ...

    def is_pending(self) -> bool:
        """Whether an empty start was begun and has not ended, so that the data is of no use.

        Raises:
            StoreError: the note about it cannot be read.
        """
        ...

    def lacks(self, moved: MovedStore) -> bool:
        """Whether the data ends before the part that it has in common with the data that has moved: the record of the
        node that has the messages says the rest, that of a lock manager does not.

        Raises:
            StoreError: the data cannot be read.
        """
        ...

    def begin(self, moved: MovedStore | None, ended: Answer) -> None:
        """Begin, or go on where an earlier process was.

        Args:
            moved: The record that proves that the data is not needed; None: go on.
            ended: Called once; after an error it may be begun again.
        """
        ...

    def close(self) -> None:
        """Do not call back."""
        ...


class Replica(Protocol):
    """The copy of the active node's store on this node, and the connection by which it is kept up to date."""

    @property
    def active_node(self) -> str | None:
        """Host and port of the node that accepted this one as its replica; None: none has."""
        ...

    @property
    def found(self) -> Found:
        """Result of the newest search that ended."""
        ...

    def not_asked(self) -> Sequence[str]:
        """URLs of members of the cluster that gave no answer in the newest search, and may be active with the data of
        this pair.
        """
        ...

    def others_not_asked(self) -> Sequence[str]:
        """URLs of members with other node ids that gave no answer in the newest search, and may have the messages of
        this node.
        """
        ...

    def seek(self) -> None:
        """Look for an active node, and register there. The listener gets ``accepted`` or ``not_found``."""
        ...

    def end(self, ended: Callable[[], None]) -> None:
        """End the connection, if there is one, and the execution of operations; then call ``ended``: nothing changes
        the files any more.
        """
        ...


class ReplicaListener(Protocol):
    """Called by a ``Replica``."""

    def accepted(self) -> None:
        """An active node sends its files."""

    def not_found(self, reason: str) -> None:
        """Called when no active node was found that takes a replica."""

    def in_sync(self) -> None:
        """Called when the copy is complete, and that is noted durably."""

    def lost(self, reason: str) -> None:
        """Called when the connection has ended."""

    def promise_asked(self, sequence: int, duration_ms: int, answer: Callable[[str | None], None]) -> None:
        """The active node asks for a promise; see ``Authority.promise``."""

    def hear_moved(self, moved: MovedStore) -> None:
        """Called when a node has answered with the record that the messages of the data of this one have moved."""

    def fail_over(self) -> None:
        """The active node has stopped, and wants this one to take over: there is nothing left to come."""


class Replication(Protocol):
    """The replica of this node while it is active."""

    def steps(self) -> Sequence[Step]:
        """The first steps of an activation: ``Authority.claim``, and the beginning of shipping. Their undo comes after
        the store is closed: the replica executes everything, and gets the request to take over; a claim that was not
        committed is taken back.
        """
        ...

    def commit_steps(self) -> Sequence[Step]:
        """The step before the first one that another node or a client can notice: ``Authority.commit``. None in a node
        that moves its messages in place of serving: it commits when it has written its target down (ADR 0112)."""
        ...

    def accept_step(self) -> Step:
        """The last step of an activation: replicas are accepted."""
        ...

    def watch(self, replica_asks: Callable[[], None]) -> None:
        """Call when a replica is in sync that asks to become active."""
        ...

    def has_replica(self) -> bool:
        """Whether a replica is in sync."""
        ...

    def wants_failback(self) -> bool:
        """Whether a replica is in sync that asks to become active."""
        ...

    def leave(self) -> None:
        """Take no other replica; tell the present one; called when the node is about to deactivate."""
        ...

    def close(self, closed: Callable[[], None]) -> None:
        """The node has ended, and nothing changes its files: call ``closed`` when no bytes are read for the other node
        any more.
        """
        ...
