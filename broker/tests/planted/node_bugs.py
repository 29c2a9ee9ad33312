"""Planted bugs of nodes: two active ones, writers that lost the store, stores and epochs that are not new enough; and
messages of several connections that a node takes together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planted.planting import Patch, ShortRun, planted, with_faults
from understudy.errors import StoreBehind
from understudy.ha.shared import lock_proof
from understudy.ha.shared.lock_proof import LockProof
from understudy.ports import FileLock
from understudy.routing.batch import BatchSends
from understudy.store.log import epoch, tidying
from understudy.store.node_lock import NodeLock
from understudy.store.seen import SeenPosition
from understudy.testing.runs.cluster_configuration import STORE
from understudy.testing.runs.fault_plan import ACTIVE, Fault, FaultKind
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.sim.loop import SimLoop, SimProcess
from understudy.testing.sim.storage import ProcessDisk, SharedStorage


class _OpenLock:
    """A lock that every node gets."""

    def try_acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def verify(self) -> bool:
        return True


class _LocklessStorage(SharedStorage):
    def make_lock(self, process: SimProcess, path: str, disk: ProcessDisk) -> FileLock:
        return _OpenLock()


class _LocklessRun(ScenarioRun):
    storage_class = _LocklessStorage
    liveness_s = 30.0


@planted("lock-always-granted", promise="at most one node of a pair is active", checks=["two-active"], seeds=range(3))
def _lock_always_granted(patch: Patch) -> type[ScenarioRun]:
    """Every node gets the lock of the store."""
    return _LocklessRun


@planted("lost-lease-not-noticed", promise="only one node writes in an epoch", checks=["zombie"], seeds=range(10))
def _lost_lease_not_noticed(patch: Patch) -> type[ScenarioRun]:
    """A node that was frozen until its lease ran out goes on as if it still had the lock."""
    patch.replace(NodeLock, "lost", lambda self: None)
    patch.replace(LockProof, "why_not_confirm", lambda self: None)
    return with_faults(Fault(0, 3.0, FaultKind.LEASE_LOST, ACTIVE, 2.0, 0.0, 0))


@planted("old-proof-of-the-lock", promise="only one node writes in an epoch", checks=["zombie"], seeds=range(1, 6))
def _old_proof_of_the_lock(patch: Patch) -> type[ScenarioRun]:
    """A proof of the lock is good for three seconds, so a node that was stopped for less confirms on an old one."""
    patch.replace(lock_proof, "LOCK_PROOF_MS", 3_000)
    return with_faults(
        *(Fault(each, 2.0 + 5.0 * each, FaultKind.SHORT_ZOMBIE, ACTIVE, 0.0, each / 2, 0) for each in range(3))
    )


class _RolledBackRun(ScenarioRun):
    """The store is replaced by an older copy of itself while both nodes are down, and later put back."""

    liveness_s = 30.0

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(replace(plan, faults=(), heal_s=14.0), loop)
        self.strikes.expected |= {StoreBehind}
        volume = self.storage.volume
        copies: list[Any] = []

        def exchange(place: int) -> None:
            for name, node in self.cluster.nodes.items():
                node.down_s = 0.5
                self.cluster.kill(name)
            copies.append(volume.copy())
            volume.replace_files(STORE, copies[place])

        loop.call_later(1.5, lambda: copies.append(volume.copy()))
        loop.call_later(2.0, lambda: self.cluster.kill("a"))
        loop.call_later(8.0, lambda: exchange(0))
        loop.call_later(11.0, lambda: exchange(1))


@planted(
    "store-behind-served", promise="a node with stale data does not become active by itself",
    checks=["lost", "epoch", "left-over"], seeds=range(3),
)  # fmt: skip
def _store_behind_served(patch: Patch) -> type[ScenarioRun]:
    """A node does not compare its store with its noted position, and serves an older copy."""
    patch.replace(SeenPosition, "check", lambda self, found: None)
    patch.replace(SeenPosition, "check_epoch", lambda self, names, directory: None)
    return _RolledBackRun


class _ActivationsRun(ScenarioRun):
    """A run in which one node after the other becomes active, without clients."""

    async def run(self) -> None:
        self._working.clear()
        for name in ("a", "b"):
            self.cluster.start(name)
        await asyncio.sleep(3.0)
        self.cluster.supervised = False
        self.cluster.kill("a")
        await asyncio.sleep(5.0)
        self.cluster.kill("b")


@planted("epoch-not-raised", promise="epochs only grow", checks=["epoch"], seeds=range(3))
def _epoch_not_raised(patch: Patch) -> type[ScenarioRun]:
    """A node that becomes active takes the epoch of the one before."""
    old: Callable[[Any], int] = patch.replace(epoch, "newest_epoch", lambda names: max(0, old(names) - 1))
    return _ActivationsRun


@planted(
    "log-tidied-away", promise="no confirmed durable message is lost", checks=["ended", "store"], seeds=range(3),
)  # fmt: skip
def _log_tidied_away(patch: Patch) -> type[ScenarioRun]:
    """A node that has become active takes the segments of the epoch before for prepared ones and removes them."""
    patch.replace(tidying, "_is_blank", lambda disk, path: True)
    old: Callable[..., None] = patch.replace(
        tidying, "_remove_unused", lambda disk, directory, names, epoch, ends: old(disk, directory, names, epoch, [])
    )
    return ShortRun


@planted("gathered-forgotten", promise="no confirmed durable message is lost", checks=["lost"], seeds=range(4, 40))
def _gathered_forgotten(patch: Patch) -> None:
    """Write only the messages of the first connection among those that are gathered over several connections in one
    turn.
    """

    def close(self: BatchSends) -> None:
        if len(self._parts) > 1:
            self._office.store.context.appended -= self._count - self._parts[0][2]
            self._count = self._parts[0][2]
            del self._parts[1:]
        old(self)

    old = patch.replace(BatchSends, "close", close)
