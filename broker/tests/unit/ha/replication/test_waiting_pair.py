"""Two nodes of a pair that both wait: every history of starts, crashes, take-overs and catch-ups (ADR 0064, 0202).

The histories are searched exhaustively up to a sequence number. The model has the durable notes of each node and the
confirmed writes that its data has. A replica in sync takes over only when the active node is down: a vote that is won
wrongly is the subject of ADR 0059.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

import pytest

from understudy.ha.replication.moved_store import LogEnd, MovedStore
from understudy.ha.replication.standing import (
    Notes,
    Origin,
    Standing,
    Start,
    WaitingCopy,
    has_moved,
    standing,
    start,
    waiting_copy,
    was_last_active,
)

SEQUENCE_MAX = 4
ID = "n"
PLACE = "replica:61616"


class Run(Enum):
    """State of the process of a node."""

    DOWN = auto()
    WAITING = auto()
    SYNCED = auto()
    """Replica in sync of the other node."""
    COPYING = auto()
    CLAIMING = auto()
    """The node has the permission to activate and has not raised its sequence."""
    ACTIVE = auto()
    LOSING = auto()
    """Active, without its replica, and has not raised its sequence: it confirms nothing."""


@dataclass(frozen=True)
class Node:
    notes: Notes
    run: Run = Run.DOWN
    newest: bool = True
    """Whether its data has everything that was confirmed."""
    partner: bool = False
    """Active: the other node is in sync with it."""
    record: MovedStore | None = None
    """The record of another pair that all messages of this node have moved there (ADR 0126)."""
    heard: WaitingCopy | None = None
    """The last statement of the other node since this process began; it may be delivered late."""


Pair = tuple[Node, Node]


def begins(node: Node, *, primary: bool) -> bool:
    """Whether the node activates if it finds no active node."""
    last = node.heard is not None and was_last_active(node.notes, ID, node.heard)
    found = standing(node.notes)
    return start(found, primary=primary, check_for_active=True, last_active=last) is Start.LOOK_FIRST


def steps(pair: Pair) -> Iterator[Pair]:
    """All states that follow."""
    for index in (0, 1):
        for own, other in node_steps(pair[index], pair[1 - index], primary=index == 0):
            yield (own, other) if index == 0 else (other, own)


def node_steps(own: Node, other: Node, *, primary: bool) -> Iterator[Pair]:
    notes, sequence = own.notes, max(0, -1 if own.notes.sequence is None else own.notes.sequence)
    if own.run is Run.DOWN:
        yield replace(own, run=Run.WAITING, heard=None), other
        return
    # a crash, at any moment
    yield replace(own, run=Run.DOWN, partner=False, heard=None), other
    if own.run is Run.WAITING:
        said = waiting_copy(notes, ID, PLACE)
        if said is not None and other.run is Run.WAITING:
            yield own, replace(other, heard=said)
        if other.run is Run.ACTIVE and not other.partner:
            # the active node has noted its replica, which ends before its own first note
            noted = replace(other.notes, shared_at=other.notes.sequence, shared_with=PLACE)
            yield replace(own, run=Run.DOWN, heard=None), replace(other, notes=noted)
            for at in (-1, other.notes.sequence):
                # an active node of an earlier version does not say its sequence
                assert at is not None
                began = replace(notes, origin=Origin.INCOMPLETE, copied_at=at, copy_of=ID)
                yield replace(own, notes=began, run=Run.COPYING, newest=False), other
        if primary and other.record is not None and has_moved(notes, ID, other.record):
            yield replace(own, notes=Notes(sequence=other.record.sequence), newest=True), other
        if other.run not in (Run.ACTIVE, Run.LOSING) and begins(own, primary=primary):
            yield replace(own, run=Run.CLAIMING), other
    elif own.run is Run.CLAIMING and sequence < SEQUENCE_MAX:
        claimed = replace(notes, sequence=sequence + 1, moved_away=False)
        yield replace(own, notes=claimed, run=Run.DOWN, heard=None), other
        yield replace(own, notes=replace(claimed, origin=Origin.OWN), run=Run.ACTIVE, heard=None), other
        if notes.origin is Origin.COPIED and notes.sequence == notes.copied_at:
            # its messages move to another pair, and the pair begins anew at its other node
            moved = replace(claimed, moved_away=True)
            record = MovedStore(ID, sequence + 1, LogEnd(0, 0, 0, b""), notes.copied_at, PLACE)
            ended = replace(own, notes=moved, run=Run.DOWN, newest=False, record=record, heard=None)
            yield ended, replace(other, newest=False)
    elif own.run is Run.COPYING:
        if other.run is not Run.ACTIVE:
            yield replace(own, run=Run.WAITING, heard=None), other
        else:
            # the note of the active node, after which the replica may end; the files and their note; then both are in
            # sync. A crash may come between
            at = other.notes.sequence
            assert at is not None
            done = replace(own, notes=Notes(Origin.COPIED, at, at, notes.shared_at), newest=other.newest)
            shared = replace(other, notes=replace(other.notes, shared_at=at, shared_with=PLACE))
            yield replace(own, run=Run.DOWN, heard=None), replace(shared, run=Run.LOSING)
            yield replace(done, run=Run.WAITING, newest=False), other
            yield replace(done, run=Run.WAITING, newest=False), replace(shared, run=Run.LOSING)
            yield replace(done, run=Run.SYNCED), replace(shared, partner=True)
    elif own.run is Run.SYNCED:
        # an operation failed
        failed = replace(notes, origin=Origin.INCOMPLETE, copy_of=ID)
        yield replace(own, notes=failed, run=Run.WAITING, newest=False, heard=None), other
        if other.run is Run.DOWN:
            yield replace(own, run=Run.CLAIMING), other
        elif not other.partner:
            yield replace(own, run=Run.WAITING, heard=None), other
    elif own.run is Run.ACTIVE and own.partner and other.run is not Run.SYNCED:
        yield replace(own, run=Run.LOSING, partner=False), other
    elif own.run is Run.ACTIVE:
        # it confirms a write: its replica has it, too, or no other node has
        yield own, replace(other, newest=own.partner and other.newest)
    elif own.run is Run.LOSING and sequence < SEQUENCE_MAX:
        yield replace(own, notes=replace(notes, sequence=sequence + 1, moved_away=False), run=Run.ACTIVE), other


def reachable() -> set[Pair]:
    """Every state that a pair without data can get into."""
    first = (Node(Notes()), Node(Notes(), newest=False))
    seen, left = {first}, [first]
    while left:
        for following in steps(left.pop()):
            if following not in seen:
                seen.add(following)
                left.append(following)
    return seen


PAIRS = reachable()


def test_never_are_two_nodes_active_or_about_to_be() -> None:
    acting = (Run.CLAIMING, Run.ACTIVE, Run.LOSING)
    assert [pair for pair in PAIRS if pair[0].run in acting and pair[1].run in acting] == []


def test_no_node_activates_without_everything_that_was_confirmed() -> None:
    assert [pair for pair in PAIRS for node in pair if node.run in (Run.CLAIMING, Run.ACTIVE) and not node.newest] == []


@pytest.mark.parametrize("found", [Standing.REPLICA, Standing.INCOMPLETE, Standing.MOVED])
def test_two_waiting_nodes_of_which_one_copied_from_the_other_start_without_an_operator(found: Standing) -> None:
    ended = [
        (shared, copy)
        for pair in PAIRS
        for shared, copy in (pair, pair[::-1])
        if standing(shared.notes) is Standing.SHARED
        and standing(copy.notes) is found
        and (copy.notes.copied_at >= 0 or found is Standing.MOVED)
        and shared.run is copy.run is Run.WAITING
    ]
    assert ended
    for shared, copy in ended:
        said = waiting_copy(copy.notes, ID, PLACE)
        assert said is not None
        assert shared.notes.sequence is not None
        assert begins(replace(shared, heard=said), primary=False) == (said.copied_at <= shared.notes.sequence)


def test_a_copy_whose_active_node_is_not_known_says_nothing() -> None:
    for notes in (Notes(Origin.INCOMPLETE, 2, -1, copy_of=ID), Notes(Origin.INCOMPLETE, 2, 2)):
        assert waiting_copy(notes, ID, PLACE) is None


def test_a_spare_that_copied_at_the_same_sequence_proves_nothing() -> None:
    notes = Notes(sequence=3, shared_at=3, shared_with=PLACE)
    assert was_last_active(notes, ID, WaitingCopy(ID, 3, PLACE))
    assert was_last_active(notes, ID, WaitingCopy(ID, 2, PLACE)), "it ended before it was in sync again"
    for copy in (WaitingCopy(ID, 3, "spare:61616"), WaitingCopy(ID, 4, PLACE), WaitingCopy("m", 3, PLACE)):
        assert not was_last_active(notes, ID, copy)
    assert not was_last_active(replace(notes, shared_with=None), ID, WaitingCopy(ID, 3, PLACE))
