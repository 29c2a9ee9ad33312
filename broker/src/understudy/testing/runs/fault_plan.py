"""The faults of one simulated run: a plan drawn from the seed before the run begins.

A plan is plain data, so it can be printed, and a run can be repeated with single faults left out
to see which of them matter (``simulate --without``). It names targets by their state at the time
(``active``, ``passive``) or by name; the cluster carries it out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from understudy.dataclass import dataclass


class FaultKind(Enum):
    """A fault of a cluster."""

    KILL = "kill"
    """SIGKILL a node, whatever it is doing."""
    POWER_LOSS = "power-loss"
    """Cut the power of a node's host."""
    POWER_LOSS_OF_ALL = "power-loss-of-all"
    """Cut the power of both hosts at the same instant."""
    CRASH_IN_DISK = "crash-in-disk"
    """Kill a node, or cut its power, at one of its next disk operations."""
    PAUSE = "pause"
    """SIGSTOP a node, SIGCONT it later; its locks are kept."""
    LEASE_LOST = "lease-lost"
    """Freeze a node for longer than the storage server keeps its locks, then let it go on: the
    zombie test."""
    SHORT_ZOMBIE = "short-zombie"
    """Freeze a node for one to three seconds and give its locks away meanwhile: whatever it confirms afterwards
    needs a fresh proof of its lock."""
    SYNC_FAILS = "sync-fails"
    """The next sync of a file by any process fails, and the unsynced bytes are lost."""
    DISK_FULL = "disk-full"
    """The storage takes no growth for a while."""
    STOP = "stop"
    """Stop a node cleanly, with or without handing over."""
    PART_CLIENTS = "part-clients"
    """Cut clients off a node, both ways or one way."""
    PART_NODES = "part-nodes"
    """Cut the two nodes off each other; both reach the store."""
    SLOW_NETWORK = "slow-network"
    """Long and uneven delays everywhere."""
    KILL_CLIENT = "kill-client"
    """SIGKILL a producer or consumer; another takes its work up."""
    SLOW_STORE = "slow-store"
    """Writes and syncs take long."""
    CRASH_IN_ACTIVATION = "crash-in-activation"
    """Kill the active node, and the one that activates at one of the disk operations of its activation."""
    CRASH_IN_DEACTIVATION = "crash-in-deactivation"
    """Kill the next node that fails back or stops at one of its disk operations while it does; in half of the draws
    the active node is stopped for it."""
    CRASH_IN_SNAPSHOT = "crash-in-snapshot"
    """Kill the active node at one of the next disk operations on a snapshot."""
    RESTART_IN_ORDER = "restart-in-order"
    """Kill or stop all nodes, then start them one by one in any order; often the last one stays down."""
    STORE_CUT_OFF = "store-cut-off"
    """Part a node from the store: its operations fail, and after a while its locks expire."""
    ISOLATE = "isolate"
    """Part a node from every other host, both ways or one way; it reaches the store."""
    FLAP = "flap"
    """Part a node from every other host and join it again, several times a second."""
    RESET_CONNECTIONS = "reset-connections"
    """Reset all connections of a node, as a firewall that lost its state."""
    CLOCK_JUMP = "clock-jump"
    """Set the wall clock of a node forward or back by up to an hour."""
    DAMAGE = "damage"
    """Flip a bit in the stored bodies of one to three waiting messages."""
    WITNESS_DOWN = "witness-down"
    """Kill the witness, or cut its power, possibly at one of its next disk operations; it is started again later."""
    WITNESS_FLAPS = "witness-flaps"
    """Kill and start the witness again and again."""
    WITNESS_PAUSED = "witness-paused"
    """SIGSTOP the witness, SIGCONT it later."""
    PART_WITNESS = "part-witness"
    """Cut a node off the witness, both ways or one way."""
    WITNESS_GONE_THEN = "witness-gone-then"
    """Take the witness away from one node or both until the pair runs on the promise of its replica, then cut the link
    of the pair one way or both, end or pause a node, or let the replica alone reach the witness again."""
    WITNESS_REPLACED = "witness-replaced"
    """Kill one witness of a group, replace its disk by an empty one, and let it take its place again."""
    VOTER_DOWN = "voter-down"
    """Kill one of the nodes that vote, or cut its power; it is started again later."""
    VOTER_PAUSED = "voter-paused"
    """One of the nodes that vote gets SIGSTOP, and SIGCONT later."""
    PART_VOTERS = "part-voters"
    """Cut a node off one or all of the nodes that vote, both ways or one way."""
    CRASH_IN_COPY = "crash-in-copy"
    """Start the passive node again, and kill it or the active one at a disk operation while the store is copied."""
    CRASH_AT_STEP = "crash-at-step"
    """Kill the next node whose machines reach a step that the seed draws (``steps.STEPS``), or cut its power; the nodes
    are made to copy, to fail over or to fail back for it."""
    PART_THEN_KILL = "part-then-kill"
    """Cut the nodes off each other; kill the active one a moment or some seconds later, and let the other one, whose
    data is old by then, reach everything again while it stays down."""
    WRONG_READS = "wrong-reads"
    """Have a node read wrong bits in the files that do not change any more, from its cache or for a while."""
    DAMAGED_FILE = "damaged-file"
    """Flip a bit of a body or segment on the disk of one node; the other node has it right."""
    ACTIVE_ALONE = "active-alone"
    """Cut the active node off its replica and off what decides which node is active, with a reset of the connection to
    the replica; clients reach it."""
    LOCK_TAKEN = "lock-taken"
    """Take the lock away from the node that is active, up to twelve times in a row: while it runs, while it is stopped
    for a moment, or while it is stopped at one of its next disk operations."""
    DISK_FAILS_IN_ACTIVATION = "disk-fails-in-activation"
    """Kill the active node. Its own disk, or that of the node that takes over, fails in each activation, from one of
    its operations on: all of them, or only reads, syncs, writes or new files. Service must return while it is broken.
    """
    COPY_UNUSABLE = "copy-unusable"
    """Kill both nodes of a pair with a store each; the one that starts first finds a damaged record in its log, or that
    the log ends before a position that it has noted. Service must return while its copy is unusable."""
    PORT_IN_USE = "port-in-use"
    """Kill the active node. Another program listens at the port of its acceptor, or at that of the node that takes
    over. Service must return while it does.
    """
    PUT_BACK = "put-back"
    """End both nodes of a pair in sync, put the whole disk of one of them back to a state of some seconds before, store
    and notes alike, and start that one first."""


#: Weights with which the kinds of faults are drawn.
WEIGHTS: Final = {
    FaultKind.KILL: 6,
    FaultKind.POWER_LOSS: 4,
    FaultKind.POWER_LOSS_OF_ALL: 1,
    FaultKind.CRASH_IN_DISK: 6,
    FaultKind.PAUSE: 3,
    FaultKind.LEASE_LOST: 2,
    FaultKind.SYNC_FAILS: 1,
    FaultKind.DISK_FULL: 1,
    FaultKind.STOP: 4,
    FaultKind.PART_CLIENTS: 3,
    FaultKind.PART_NODES: 2,
    FaultKind.SLOW_NETWORK: 2,
    FaultKind.KILL_CLIENT: 2,
    FaultKind.SLOW_STORE: 2,
}

#: Kinds drawn from a stream of their own, so that the rest of a seed's plan does not change, and their frequency.
LATER_KINDS: Final = {
    FaultKind.SHORT_ZOMBIE: 0.15,
    FaultKind.CRASH_IN_ACTIVATION: 0.12,
    FaultKind.CRASH_IN_DEACTIVATION: 0.12,
    FaultKind.CRASH_IN_SNAPSHOT: 0.12,
    FaultKind.RESTART_IN_ORDER: 0.12,
    FaultKind.STORE_CUT_OFF: 0.12,
    FaultKind.ISOLATE: 0.12,
    FaultKind.FLAP: 0.08,
    FaultKind.RESET_CONNECTIONS: 0.12,
    FaultKind.CLOCK_JUMP: 0.12,
    FaultKind.DISK_FAILS_IN_ACTIVATION: 0.12,
    FaultKind.LOCK_TAKEN: 0.15,
}

#: Kinds for nodes with a store each and a witness, and how often each is drawn, relative to the others.
REPLICATION_KINDS: Final = {
    FaultKind.WITNESS_DOWN: 3,
    FaultKind.WITNESS_FLAPS: 1,
    FaultKind.WITNESS_PAUSED: 2,
    FaultKind.PART_WITNESS: 3,
    FaultKind.CRASH_IN_COPY: 4,
}

#: Kinds of faults of runs in which nodes have a store each and a group of witnesses.
GROUP_KINDS: Final = REPLICATION_KINDS | {FaultKind.WITNESS_REPLACED: 3}

#: Kinds of faults of runs in which nodes have a store each and vote.
QUORUM_KINDS: Final = {
    FaultKind.VOTER_DOWN: 2,
    FaultKind.VOTER_PAUSED: 2,
    FaultKind.PART_VOTERS: 4,
    FaultKind.CRASH_IN_COPY: 4,
}

#: Kinds for nodes with a store each drawn from a stream of their own, and the share of the seeds with each.
PAIR_LATER_KINDS: Final = {
    FaultKind.CRASH_AT_STEP: 0.5,
    FaultKind.PART_THEN_KILL: 0.25,
    FaultKind.ACTIVE_ALONE: 0.2,
    FaultKind.COPY_UNUSABLE: 0.12,
}

#: Chances of faults that a stream of their own draws, so that the plans of earlier seeds stay as they are.
PUT_BACK_CHANCES: Final = {FaultKind.PUT_BACK: 0.2}
#: Kinds of faults of runs in which nodes have a store each and a witness, drawn from a stream of their own.
WITNESS_LATER_KINDS: Final = {
    FaultKind.WITNESS_GONE_THEN: 0.35,
}

#: Kinds drawn after everything else, for pairs on one store and with a store each.
LAST_KINDS: Final = {FaultKind.PORT_IN_USE: 0.12}

#: Share of the seeds with ``DAMAGE``.
_DAMAGE_CHANCE: Final = 0.2

_WITHOUT_TARGET: Final = frozenset(
    {
        FaultKind.CRASH_IN_ACTIVATION,
        FaultKind.CRASH_IN_DEACTIVATION,
        FaultKind.RESTART_IN_ORDER,
        FaultKind.DAMAGE,
        FaultKind.POWER_LOSS_OF_ALL,
        FaultKind.PART_NODES,
        FaultKind.SLOW_NETWORK,
        FaultKind.SLOW_STORE,
        FaultKind.SYNC_FAILS,
        FaultKind.DISK_FULL,
        FaultKind.WITNESS_DOWN,
        FaultKind.WITNESS_FLAPS,
        FaultKind.WITNESS_PAUSED,
        FaultKind.WITNESS_REPLACED,
        FaultKind.VOTER_DOWN,
        FaultKind.VOTER_PAUSED,
        FaultKind.CRASH_IN_COPY,
        FaultKind.LOCK_TAKEN,
        FaultKind.WRONG_READS,
        FaultKind.DAMAGED_FILE,
        FaultKind.PUT_BACK,
        *PAIR_LATER_KINDS,
        *WITNESS_LATER_KINDS,
    }
)

#: Targets that are resolved when the fault strikes.
ACTIVE: Final = "active"
PASSIVE: Final = "passive"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a plan."""

    number: int
    at_s: float
    """Virtual seconds after the start of the run."""
    kind: FaultKind
    target: str
    """``active``, ``passive`` or a name; empty when the kind has none."""
    duration_s: float
    """Duration in seconds, or how long the node stays down."""
    choice: float
    """A number in 0..1 that selects a variant: one direction or both, kill or power loss, failover or not."""
    operations: int
    """CRASH_IN_DISK: at which disk operation from then on."""

    def __str__(self) -> str:
        text = f"#{self.number} {self.at_s:.3f}s {self.kind.value} {self.target} for {self.duration_s:.3f}s"
        if self.kind is FaultKind.CRASH_IN_DISK:
            text += f" at disk operation {self.operations}"
        return f"{text} ({self.choice:.2f})"


def draw_faults(
    stream: random.Random,
    *,
    begin_s: float,
    end_s: float,
    count: int,
    weights: Mapping[FaultKind, int] = WEIGHTS,
    clients: Sequence[str] = (),
) -> tuple[Fault, ...]:
    """Faults between two moments; often close together, because the second fault hits recovery.

    Args:
        clients: Names that KILL_CLIENT may hit; without any it is not drawn.
    """
    usable = [kind for kind in weights if kind is not FaultKind.KILL_CLIENT or clients]
    chances = [weights[kind] for kind in usable]
    moments: list[float] = []
    while len(moments) < count:
        if moments and stream.random() < 0.4:
            moments.append(min(end_s, moments[-1] + stream.expovariate(1 / 0.3)))
        else:
            moments.append(stream.uniform(begin_s, end_s))
    return tuple(
        _draw_fault(stream, number, moment, stream.choices(usable, chances)[0], clients)
        for number, moment in enumerate(sorted(moments))
    )


def draw_later_faults(
    stream: random.Random,
    faults: tuple[Fault, ...],
    *,
    begin_s: float,
    end_s: float,
    chances: Mapping[FaultKind, float] = LATER_KINDS,
) -> tuple[Fault, ...]:
    """``faults`` and, now and then, one of each kind in ``chances``; numbers follow the highest of ``faults``."""
    more: list[Fault] = []
    first = 1 + max((fault.number for fault in faults), default=-1)
    for kind, chance in chances.items():
        if stream.random() < chance:
            at_s = stream.uniform(begin_s, end_s)
            more.append(_draw_fault(stream, first + len(more), at_s, kind, ()))
    return tuple(sorted((*faults, *more), key=lambda fault: fault.at_s))


def draw_damage(stream: random.Random, faults: tuple[Fault, ...], *, begin_s: float, end_s: float) -> tuple[Fault, ...]:
    """``faults`` and, in a share of the draws, ``DAMAGE`` up to three times, mostly with the end of the active node
    soon after it; numbers follow those of ``faults``.
    """
    if stream.random() >= _DAMAGE_CHANCE:
        return faults
    more: list[Fault] = []
    for _ in range(stream.randint(1, 3)):
        at_s = stream.uniform(begin_s, end_s)
        more.append(_draw_fault(stream, len(faults) + len(more), at_s, FaultKind.DAMAGE, ()))
        if stream.random() < 0.7:
            kind = stream.choice((FaultKind.KILL, FaultKind.POWER_LOSS, FaultKind.STOP))
            fault = _draw_fault(stream, len(faults) + len(more), at_s + stream.uniform(0.0, 2.0), kind, ())
            more.append(replace(fault, target=ACTIVE))
    return tuple(sorted((*faults, *more), key=lambda fault: fault.at_s))


def _draw_fault(stream: random.Random, number: int, at_s: float, kind: FaultKind, clients: Sequence[str]) -> Fault:
    if kind is FaultKind.KILL_CLIENT:
        target = stream.choice(clients)
    elif kind in _WITHOUT_TARGET:
        target = ""
    else:
        target = stream.choice((ACTIVE, ACTIVE, ACTIVE, PASSIVE))
    return Fault(
        number=number,
        at_s=at_s,
        kind=kind,
        target=target,
        duration_s=stream.choice((stream.uniform(0.0, 0.3), stream.uniform(0.3, 3.0), stream.uniform(3.0, 12.0))),
        choice=stream.random(),
        operations=stream.choice((stream.randint(1, 5), stream.randint(1, 40))),
    )
