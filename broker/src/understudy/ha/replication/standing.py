"""Age of the data of a node of a replicated pair, and whether it may become active alone (ADR 0059).

Pure values: the durable notes of the node in, a ``Standing`` out. The notes are the activation sequence, which rises
at each activation and each time an active node goes on without its replica; the sequence at which a replica last came
into sync with this node; and the state of the copy, if the data is one. Not here: the files of the notes.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from understudy.dataclass import dataclass
from understudy.ha.replication.moved_store import MovedStore

_PROMOTE: Final = (
    "run 'understudy promote --accept-data-loss' here: messages that only the other node has are lost then (another"
    " role in ha-policy, or master in the place of slave, changes nothing)"
)


class Origin(Enum):
    """Origin of the data of a node."""

    OWN = auto()
    """The node was active with it, or there is none."""
    INCOMPLETE = auto()
    """A copy that did not end."""
    COPIED = auto()
    """A copy that was complete when the node was last the replica of an active one."""


class CopyNote(NamedTuple):
    """The note of a node about the copy that its data is."""

    origin: Origin = Origin.OWN
    sequence: int = -1
    """Sequence of the active node when the copy ended, or began if it is not complete; -1: unknown."""
    node_id: str | None = None
    """Node id of the active node; None: unknown."""


@dataclass(frozen=True, slots=True)
class Notes:
    """The durable notes of one node."""

    origin: Origin = Origin.OWN
    sequence: int | None = None
    """Activation sequence of the data; None: it never had one."""
    copied_at: int = -1
    """COPIED: sequence of the active node when the copy ended. INCOMPLETE: sequence of the active node from which the
    copy began; -1: unknown."""
    shared_at: int | None = None
    """Sequence of this node, as the active one, when a replica last came into sync with it; None: none has."""
    shared_with: str | None = None
    """``host:port`` of that replica; None: the note is from before ADR 0064."""
    moved_away: bool = False
    """All messages of the data have moved to other nodes since its sequence was written (ADR 0126)."""
    copy_of: str | None = None
    """INCOMPLETE: node id of the active node from which the copy began; None: unknown."""


class Standing(Enum):
    """The age of the data of a node, as far as the node can know by itself."""

    NEW = auto()
    """The node has no data, or data that was never replicated."""
    INCOMPLETE = auto()
    """Part of a copy. It can never be used."""
    REPLICA = auto()
    """The node has a complete copy; its active node may have written more since."""
    SHARED = auto()
    """The node was active and had a replica in sync. That one may have taken over."""
    NEWEST = auto()
    """No other node had a copy of the data when this node last began to serve or went on alone."""
    MOVED = auto()
    """All messages of the data have moved to other nodes. Another node of the pair begins anew, or has begun."""


def standing(notes: Notes) -> Standing:
    """The standing of a node with these notes."""
    if notes.origin is Origin.INCOMPLETE:
        return Standing.INCOMPLETE
    # a take-over raises the sequence first; then the data is that of this node, whether it has served or not
    claimed = notes.sequence is not None and notes.sequence > notes.copied_at
    if notes.origin is Origin.COPIED and not claimed:
        # a note of moved messages is about data before this copy: messages move after a take-over, above its sequence
        return Standing.REPLICA
    if notes.moved_away:
        return Standing.MOVED
    if notes.origin is Origin.COPIED:
        return Standing.NEWEST
    if notes.sequence is None:
        return Standing.NEW
    return Standing.SHARED if notes.shared_at == notes.sequence else Standing.NEWEST


@dataclass(frozen=True, slots=True)
class WaitingCopy:
    """The statement of a node that waits, about its last take-over (ADR 0064, 0202)."""

    node_id: str
    """Node id of the data."""
    copied_at: int
    """The node took over at no sequence above this one: sequence of the active node when its copy ended, or began if it
    is not complete; of a node that was active itself, the sequence at which its replica would have taken over; of one
    whose messages have moved away, its own sequence."""
    place: str
    """``host:port`` of the connector of the node that waits."""


def waiting_copy(notes: Notes, node_id: str, place: str) -> WaitingCopy | None:
    """The statement that a node with these notes may make while it waits; None: it knows too little.

    A node that makes one does not activate before it was in sync with an active node of its id again, or has heard
    such a statement itself, except by a promotion; so the statement stays true after a restart of that node.
    """
    match standing(notes):
        case Standing.REPLICA:
            return WaitingCopy(node_id, notes.copied_at, place)
        case Standing.INCOMPLETE if notes.copied_at >= 0 and notes.copy_of is not None:
            return WaitingCopy(notes.copy_of, notes.copied_at, place)
        case Standing.SHARED if notes.sequence is not None:
            return WaitingCopy(node_id, notes.sequence + 1, place)
        case Standing.MOVED if notes.sequence is not None:
            return WaitingCopy(node_id, notes.sequence, place)
    return None


def was_last_active(notes: Notes, node_id: str, copy: WaitingCopy) -> bool:
    """Whether a waiting copy proves that the data of this node is the newest.

    At one activation sequence at most one replica comes into sync, because the loss of a replica raises the sequence.
    The owner of ``copy`` is that replica, by its place, and it has not taken over. So no node was active after this
    one, which has everything that it confirmed. A spare that was copying at the same sequence proves nothing. A copy
    of an earlier sequence proves as much: the replica ended before it could believe that it was in sync again. So does
    a copy that is not complete, one that was active itself before and of which this node then was the replica, and one
    whose messages had moved away before this node began anew.
    """
    if standing(notes) is not Standing.SHARED or notes.sequence is None or notes.shared_with is None:
        return False
    return (copy.node_id, copy.place) == (node_id, notes.shared_with) and copy.copied_at <= notes.sequence


def has_moved(notes: Notes, node_id: str, moved: MovedStore) -> bool:
    """Whether the record of a replica proves that every message of this node has moved away (ADR 0126).

    At one activation sequence at most one replica comes into sync, because the loss of a replica raises the sequence.
    The record is of that replica, by its place, and of the copy that it made at the present sequence of this node. So
    it had everything that this node has confirmed. A record of an earlier copy says nothing about this data.
    """
    if standing(notes) is not Standing.SHARED or notes.shared_with is None:
        return False
    return (moved.node_id, moved.place, moved.copied_at) == (node_id, notes.shared_with, notes.sequence)


class Start(Enum):
    """Action of a node without a lock manager at its start, and each time it looks for an active node again."""

    ACTIVATE = auto()
    LOOK_FIRST = auto()
    """Look for an active node of the pair; activate if there is none."""
    FOLLOW_ONLY = auto()
    """Look for an active node, and never activate before it was the replica of one."""


def start(found: Standing, *, primary: bool, check_for_active: bool, last_active: bool = False) -> Start:
    """The decision for a node.

    Args:
        primary: Whether it is configured as primary: only that begins with data that was never replicated.
        check_for_active: check-for-active-server. Data that was replicated is never used without looking.
        last_active: A waiting copy has proved ``was_last_active``.
    """
    if found is Standing.NEWEST or (found is Standing.SHARED and last_active):
        return Start.LOOK_FIRST
    if found is Standing.NEW and primary:
        return Start.LOOK_FIRST if check_for_active else Start.ACTIVATE
    return Start.FOLLOW_ONLY


def refusal(found: Standing, node_id: str, sequence: int | None) -> tuple[str, str]:
    """Reason why a node follows only, and what to do: text and hint of an error."""
    number = "no activation sequence" if sequence is None else f"activation sequence {sequence}"
    if found is Standing.INCOMPLETE:
        return (
            f"node {node_id}: the data of this node is a copy that was not completed",
            "start the other node of the pair: this one copies its data",
        )
    if found is Standing.NEW:
        return (
            f"node {node_id}: a backup without data does not activate before it was in sync with an active node",
            "start the primary of the pair",
        )
    if found is Standing.MOVED:
        return (
            f"node {node_id}: all messages of this node have moved to another one",
            "start the primary of the pair: it begins without messages, and this node becomes its replica",
        )
    if found is Standing.REPLICA:
        reason = "is a copy; the node that was active may have newer data"
    else:
        reason = "had a replica in sync when this node ended; that replica may have taken over and have newer data"
    hint = (
        f"start the other node of the pair: this one copies its data; if that data is lost for good, {_PROMOTE}; "
        "changing its role in broker.xml from backup (slave) to primary (master) does not let it activate"
    )
    return f"node {node_id}: the data of this node ({number}) {reason}", hint
