"""Goal: a client finds the backup soon after it begins to serve, although the host of the primary has
vanished and answers nothing: dials to it hang until their connect timeout. Time is virtual.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from understudy.client import aio
from understudy.client.core.connection.failover import DIAL_STAGGER_MS
from understudy.client.host import Surroundings
from understudy.testing.runs.cluster import SimCluster
from understudy.testing.runs.cluster_configuration import PAIR, PORT, PairOptions, cluster_configurations
from understudy.testing.sim.environment import WALL_START_MS, Skew
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.network import Conditions, SimNetwork
from understudy.testing.sim.storage import SharedStorage, StorageConditions
from understudy.testing.simulate import quiet_logging

RETRY_MS = 500
CONNECT_TIMEOUT_MS = 10_000
#: Virtual seconds from the loss of the primary to the start of its backup.
BACKUP_AFTER_S = 16.3


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


def recover(first: str, second: str, seed: int) -> tuple[float, float]:
    """When the backup began to serve, and when the client was connected to it. Virtual seconds."""
    loop = SimLoop(seed)
    network, storage = SimNetwork(loop, Conditions()), SharedStorage(loop, StorageConditions())
    configurations = cluster_configurations(PAIR, PairOptions())
    cluster = SimCluster(loop, network, [storage] * 2, configurations, (Skew(), Skew()))
    cluster.supervised = False
    url = (
        f"(tcp://{first}:{PORT},tcp://{second}:{PORT})?ha=true&initialConnectAttempts=-1&reconnectAttempts=-1"
        f"&retryInterval={RETRY_MS}&connectionTTL=2000&clientFailureCheckPeriod=500"
    )
    moments: list[float] = []

    async def work() -> None:
        factory = aio.ConnectionFactory(url)
        factory.surroundings = Surroundings(
            wall_ms=lambda: WALL_START_MS + int(loop.time() * 1000), entropy=random.Random(seed).randbytes
        )
        connection = await factory.connect()
        moments.append(loop.time())
        while not connection.failovers:
            await asyncio.sleep(0.01)
        moments.append(loop.time())
        await connection.close()

    async def story() -> None:
        cluster.start("a")
        network.add_host("client")
        client = loop.new_process("client")
        task = client.create_task(work())
        while not moments:
            await asyncio.sleep(0.1)
        cluster.power_off("a")
        await asyncio.sleep(BACKUP_AFTER_S)
        cluster.start("b")
        await task

    try:
        task = loop.create_task(story())
        loop.run_until(task.done, deadline=120.0)
        task.result()
        return cluster.epochs.activations[-1].at_s, moments[-1]
    finally:
        loop.close()


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_recovery_is_bounded_by_the_retry_interval_and_the_stagger(order):
    for seed in range(5):
        served_at_s, connected_at_s = recover(*order, seed)
        bound_s = (RETRY_MS + DIAL_STAGGER_MS) / 1000 + 0.5
        assert bound_s < CONNECT_TIMEOUT_MS / 4000
        assert connected_at_s - served_at_s <= bound_s
