"""Goal: a passive node whose store does not change asks the store for little but its lock, and takes over soon
nevertheless. Time is virtual.

Every operation counted here is at least one request on a network file system; docs/build/reliability.md has the figures
of a real mount.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from understudy.ha.shared.policy import LOCK_CHECK_MS
from understudy.ha.shared.store_claims import LOCK_POLL_MS
from understudy.testing.runs.cluster import SimCluster
from understudy.testing.runs.cluster_configuration import PAIR, PairOptions, cluster_configurations
from understudy.testing.sim.environment import Skew
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.network import Conditions, SimNetwork
from understudy.testing.sim.storage import ProcessDisk, ProcessFile, ProcessLock, SharedStorage, StorageConditions
from understudy.testing.simulate import quiet_logging

IDLE_S = 60
LOCK = "try_acquire"
OPERATIONS = {
    ProcessDisk: ("open", "list", "exists", "modified_ns", "space"),
    ProcessFile: ("read", "size"),
    ProcessLock: (LOCK, "verify"),
}


def counted(counts: Counter[tuple[str, str]], name: str, operation: Callable[..., object]) -> Callable[..., object]:
    """The operation, counted for the host that carries it out."""

    def count(*arguments: object, **options: object) -> object:
        process = SimLoop.current_process()
        counts[process.host if process is not None else "", name] += 1
        return operation(*arguments, **options)

    return count


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often each host carried out each operation on the store."""
    counts: Counter[tuple[str, str]] = Counter()
    for of, names in OPERATIONS.items():
        for name in names:
            monkeypatch.setattr(of, name, counted(counts, name, getattr(of, name)))
    return counts


def test_a_passive_node_asks_for_the_lock_and_for_little_else(asked: Counter[tuple[str, str]]) -> None:
    loop = SimLoop(1)
    network, storage = SimNetwork(loop, Conditions()), SharedStorage(loop, StorageConditions())
    configurations = cluster_configurations(PAIR, PairOptions())
    cluster = SimCluster(loop, network, [storage] * 2, configurations, (Skew(), Skew()))
    cluster.supervised = False
    minute: Counter[tuple[str, str]] = Counter()

    async def story() -> float:
        cluster.start("a")
        while cluster.nodes["a"].state != "active":
            await asyncio.sleep(0.1)
        cluster.start("b")
        await asyncio.sleep(30)
        asked.clear()
        await asyncio.sleep(IDLE_S)
        minute.update(asked)
        cluster.kill("a")
        died_s = loop.time()
        while cluster.nodes["b"].state != "active":
            await asyncio.sleep(0.01)
        return loop.time() - died_s

    try:
        with quiet_logging():
            task = loop.create_task(story())
            loop.run_until(task.done, deadline=200.0)
        takeover_s = task.result()
    finally:
        loop.close()
    lock_polls = IDLE_S * 1000 // LOCK_POLL_MS
    assert 0.9 * lock_polls <= minute["b", LOCK] <= lock_polls + 1
    others = {name: count for (host, name), count in minute.items() if host == "b" and name != LOCK}
    assert sum(others.values()) <= 0.25 * lock_polls, others
    proofs = {name: count for (host, name), count in minute.items() if host == "a"}
    assert proofs["verify"] <= IDLE_S * 1000 // LOCK_CHECK_MS + 1, proofs
    assert takeover_s <= 0.3
