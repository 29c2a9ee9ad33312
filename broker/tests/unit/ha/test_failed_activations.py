"""A pair with a lock manager whose activations fail: every history of claims, kills and catch-ups (ADR 0112).

The histories are searched exhaustively up to a sequence and a number of attempts. The model has the number of the lock
manager, the sequence in the file of each node, and whether its data has everything that was confirmed. At most one
request of a killed node is still on its way to the lock manager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

import pytest

from understudy.ha.locks.sequence_verdict import Claim, Verdict, claim_of, compare, next_claim

SEQUENCE_MAX = 5
ATTEMPTS_MAX = 3


class Run(Enum):
    """State of the process of a node."""

    DOWN = auto()
    """The node does not run, or it waits for the lock."""
    CLAIMED = auto()
    """The node has the lock and a claim, and opens its store."""
    WRITTEN = auto()
    """The claimed sequence is in its file."""
    ACTIVE = auto()
    SYNCED = auto()
    """Replica in sync of the other node."""
    LOSING = auto()
    """Active; its replica is lost, and nothing is confirmed."""
    LOSING_CLAIMED = auto()
    LOSING_WRITTEN = auto()


@dataclass(frozen=True)
class Node:
    """One node."""

    local: int | None
    newest: bool = True
    run: Run = Run.DOWN
    found: int = 0
    """The number on which its claim is made."""
    partner: bool = False
    """Active: the other node is in sync with it."""


@dataclass(frozen=True)
class Pair:
    """Both nodes, and the lock manager."""

    number: int
    nodes: tuple[Node, Node]
    late: tuple[int, int] | None = None
    """A compare-and-set of a killed node, which is carried out later or never."""

    def with_node(self, index: int, node: Node, number: int | None = None) -> Pair:
        """The pair with another state of one node, and another number."""
        nodes = (node, self.nodes[1]) if index == 0 else (self.nodes[0], node)
        return replace(self, nodes=nodes, number=self.number if number is None else number)


NextClaim = Callable[[int], Claim]
HOLDERS = (Run.CLAIMED, Run.WRITTEN, Run.ACTIVE, Run.LOSING, Run.LOSING_CLAIMED, Run.LOSING_WRITTEN)


def may_activate(pair: Pair, index: int) -> bool:
    """Whether a node gets the permission once the lock is free."""
    local = pair.nodes[index].local
    return local is not None and compare(pair.number, local) is not Verdict.STALE


def within(claim: Claim) -> bool:
    """Whether the search goes on with a claim."""
    return claim.attempt <= ATTEMPTS_MAX and claim.sequence <= SEQUENCE_MAX


def steps(pair: Pair, claim_after: NextClaim) -> Iterator[Pair]:
    """All states that follow."""
    if pair.late is not None:
        expected, value = pair.late
        yield replace(pair, late=None, number=value if pair.number == expected else pair.number)
    for index in (0, 1):
        yield from node_steps(pair, index, claim_after)


def node_steps(pair: Pair, index: int, claim_after: NextClaim) -> Iterator[Pair]:
    own, other = pair.nodes[index], pair.nodes[1 - index]
    down = replace(own, run=Run.DOWN, partner=False, found=0)
    if own.run is not Run.DOWN:
        yield pair.with_node(index, down)
    if own.run is Run.DOWN:
        claim = claim_after(pair.number)
        if other.run not in HOLDERS and may_activate(pair, index) and within(claim):
            claimed = replace(own, run=Run.CLAIMED, found=pair.number)
            yield pair.with_node(index, claimed, claim.number)
        if other.run is Run.ACTIVE and not other.partner:
            # a copy that does not end, and one that does
            yield pair.with_node(index, replace(down, local=None, newest=False))
            synced = replace(own, local=other.local, newest=other.newest, run=Run.SYNCED)
            yield pair.with_node(index, synced).with_node(1 - index, replace(other, partner=True))
    elif own.run is Run.SYNCED:
        if other.run is not Run.ACTIVE or not other.partner:
            yield pair.with_node(index, down)
    elif own.run is Run.ACTIVE:
        if own.partner:
            yield pair.with_node(index, replace(own, run=Run.LOSING, partner=False))
        else:
            # it confirms a write that the other node has not
            yield pair.with_node(1 - index, replace(other, newest=False))
    elif own.run is Run.LOSING:
        claim = claim_after(pair.number)
        if within(claim):
            claimed = replace(own, run=Run.LOSING_CLAIMED, found=pair.number)
            yield pair.with_node(index, claimed, claim.number)
    else:
        yield from claim_steps(pair, index, claim_after(own.found))


def claim_steps(pair: Pair, index: int, claim: Claim) -> Iterator[Pair]:
    own = pair.nodes[index]
    down = replace(own, run=Run.DOWN, partner=False, found=0)
    active = replace(own, run=Run.ACTIVE, found=0)
    committed = claim.sequence if pair.number == claim.number else None
    if own.run in (Run.CLAIMED, Run.LOSING_CLAIMED):
        written = Run.WRITTEN if own.run is Run.CLAIMED else Run.LOSING_WRITTEN
        yield pair.with_node(index, replace(own, run=written, local=claim.sequence))
        if own.run is Run.CLAIMED and own.found >= 0 and pair.number == claim.number:
            # the activation fails: the claim is taken back
            yield pair.with_node(index, down, own.found)
    else:
        yield replace(pair.with_node(index, down), late=(claim.number, claim.sequence))
        # without a commit the node ends
        yield pair.with_node(index, down if committed is None else active, committed)


def reachable(claim_after: NextClaim = next_claim) -> set[Pair]:
    """Every state that a pair gets into; one node begins with data, the other without."""
    first = Pair(0, (Node(0), Node(None, newest=False)))
    seen, left = {first}, [first]
    while left:
        for following in steps(left.pop(), claim_after):
            if following not in seen:
                seen.add(following)
                left.append(following)
    return seen


@pytest.fixture(scope="module")
def pairs() -> set[Pair]:
    return reachable()


def served_without(pairs: set[Pair]) -> list[Pair]:
    """Pairs of which a node serves without everything that was confirmed."""
    return [pair for pair in pairs for node in pair.nodes if node.run is Run.ACTIVE and not node.newest]


def test_no_node_serves_without_everything_that_was_confirmed(pairs: set[Pair]) -> None:
    assert served_without(pairs) == []
    assert len(pairs) > 1_000


def test_a_claim_that_was_not_committed_keeps_no_node_from_activating(pairs: set[Pair]) -> None:
    """Neither if its node gives up nor if it is killed at any moment: a node that could activate before still can."""
    kept = []
    for pair in pairs:
        for index, own in enumerate(pair.nodes):
            if own.run not in (Run.CLAIMED, Run.WRITTEN) or pair.number != next_claim(own.found).number:
                continue
            for following in claim_steps(pair, index, next_claim(own.found)):
                ended = following.nodes[index].run is Run.DOWN and following.late is None
                before = replace(pair, number=own.found)
                kept += [
                    pair for each in (0, 1) if ended and may_activate(before, each) > may_activate(following, each)
                ]
    assert kept == []


def test_one_node_can_always_activate(pairs: set[Pair]) -> None:
    assert [
        pair
        for pair in pairs
        if all(node.run is Run.DOWN for node in pair.nodes) and pair.late is None
        if not may_activate(pair, 0) and not may_activate(pair, 1)
    ] == []


def test_a_claim_that_does_not_count_the_one_before_is_found() -> None:
    """The node that was killed has written the same sequence as the one that has served since."""

    def claims_the_same(number: int) -> Claim:
        return claim_of(number) or Claim(number, 1)

    assert served_without(reachable(claims_the_same)) != []
