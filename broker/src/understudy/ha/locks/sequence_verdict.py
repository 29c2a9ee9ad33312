"""Comparison of the sequence of this node's data with the number that the lock manager keeps (artemis-ha s. 4.2).

The sequence rises whenever a node begins to serve without a replica. The number is the *committed* sequence (0 or
more), or a *claim* (negative): the holder of the lock has not served yet, or has confirmed nothing without its replica.
A claim names the committed sequence that it is made on and how many claims were made on that one. So a claim is proof,
for the next holder of the lock, that every node with the committed sequence still has everything that was confirmed
(ADR 0112).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ActivationRefused

_SEQUENCE_BITS: Final = 40
#: Highest sequence. A claim has the sequence and the number of its attempt in one signed 64-bit number.
SEQUENCE_MAX: Final = 2**_SEQUENCE_BITS - 1
#: Highest number of claims on one committed sequence.
ATTEMPTS_MAX: Final = 2**22


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the next sequence."""

    base: int
    """The committed sequence after which the claimed one follows."""
    attempt: int
    """1 for the first claim on it. A claim that a killed node has left counts, because that node may have written the
    claimed sequence to its own file."""

    @property
    def sequence(self) -> int:
        """The claimed sequence. No two attempts claim the same one."""
        return self.base + self.attempt

    @property
    def number(self) -> int:
        """The number that the lock manager keeps. That of a first attempt is the negated sequence, as in Artemis."""
        return -((self.attempt - 1 << _SEQUENCE_BITS) + self.base + 1)


def claim_of(shared: int) -> Claim | None:
    """The claim of a number; None if the number is a committed sequence."""
    if shared >= 0:
        return None
    attempt, base = divmod(-shared - 1, 2**_SEQUENCE_BITS)
    return Claim(base, attempt + 1)


def next_claim(shared: int) -> Claim:
    """The claim that follows a number."""
    present = claim_of(shared)
    return Claim(shared, 1) if present is None else Claim(present.base, present.attempt + 1)


def newest(shared: int) -> int:
    """Highest sequence that a node may have written to its own file, by this number."""
    present = claim_of(shared)
    return shared if present is None else present.sequence


class Verdict(Enum):
    """Result of the comparison."""

    IN_SYNC = "in sync"
    """The data is the newest."""
    STALE = "stale"
    """Another node has newer data than this one, or may have."""
    NOT_SERVED = "nothing served"
    """A node has claimed the next sequence. For the holder of the lock the data is the newest: the node with the claim
    had not served when it lost the lock. While that node holds the lock, it may be about to commit."""


def compare(shared: int, local: int) -> Verdict:
    """The verdict about data with the sequence ``local`` (at least 0)."""
    claim = claim_of(shared)
    if claim is None:
        return Verdict.IN_SYNC if shared == local else Verdict.STALE
    # a sequence above the base was written by a node that had claimed it and did not commit it
    return Verdict.NOT_SERVED if claim.base <= local <= claim.sequence else Verdict.STALE


def refusal(node_id: str, manager: str, shared: int, local: int) -> ActivationRefused:
    """The error of a node whose data is stale. Names both numbers and the ways to go on."""
    claim = claim_of(shared)
    if newest(shared) < local:
        state = "has no activation sequence" if shared == 0 else f"has the activation sequence {newest(shared)}"
        return ActivationRefused(
            f"node {node_id}: the data of this node has the activation sequence {local}, but {manager} {state}:"
            " its data was lost, restored from an older copy, or it is another lock manager than before",
            hint=f"connect to the right lock manager, or, if no other node of this id has newer data,"
            f" set its activation sequence to {local}",
        )
    base, claimed = (shared, "") if claim is None else (claim.base, f" ({claim.sequence} is claimed, not committed)")
    return ActivationRefused(
        f"node {node_id}: the data of this node has the activation sequence {local}; the newest is"
        f" {base}{claimed} according to {manager}: another node has served without this one",
        hint=f"start the node whose data has the sequence {base}, and this one copies its data;"
        f" if that data is lost for good, set the activation sequence of the lock manager to {local}:"
        " the messages that only the lost data has are lost then",
    )
