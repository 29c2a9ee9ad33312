"""The network of one node of a pair is parted while the network check is on: it stops, and starts again later."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from understudy.config.high_availability import NetworkCheckConfiguration
from understudy.config.model import Configuration
from understudy.testing.runs.cluster import SimCluster
from understudy.testing.runs.cluster_configuration import PAIR, PairOptions, cluster_configurations
from understudy.testing.sim.environment import Skew
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.network import Conditions, SimNetwork
from understudy.testing.sim.storage import SharedStorage, StorageConditions
from understudy.testing.simulate import quiet_logging

GATEWAY = "gateway"


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


def checked(configuration: Configuration) -> Configuration:
    check = NetworkCheckConfiguration(network_check_list=GATEWAY, network_check_period_ms=1_000)
    return replace(configuration, ha_policy=replace(configuration.ha_policy, network_check=check))


class Story:
    """A pair whose nodes check that they reach the gateway."""

    def __init__(self, seed: int, *, failover_on_shutdown: bool) -> None:
        self.loop = SimLoop(seed)
        self.network = SimNetwork(self.loop, Conditions())
        storage = SharedStorage(self.loop, StorageConditions())
        options = PairOptions(failover_on_shutdown=failover_on_shutdown)
        pair = [checked(each) for each in cluster_configurations(PAIR, options)]
        self.cluster = SimCluster(self.loop, self.network, [storage] * 2, pair, (Skew(), Skew()))
        self.cluster.supervised = False
        self.network.add_host(GATEWAY)

    def states(self) -> tuple[str, str]:
        return self.cluster.nodes["a"].state, self.cluster.nodes["b"].state

    async def reach(self, *states: str) -> None:
        while self.states() != states:
            await asyncio.sleep(0.1)

    def part(self, host: str) -> None:
        for other in {"a", "b", GATEWAY} - {host}:
            self.network.part(host, other)

    async def begin(self) -> None:
        self.cluster.start("a")
        await self.reach("active", "down")
        self.cluster.start("b")
        await self.reach("active", "passive")

    def run(self, story) -> None:
        try:
            task = self.loop.create_task(story)
            self.loop.run_until(task.done, deadline=300.0)
            assert task.done(), self.states()
            task.result()
            assert all(node.ends == [] for node in self.cluster.nodes.values())
        finally:
            self.loop.close()


@pytest.mark.parametrize("seed", range(3))
def test_an_isolated_primary_stops_and_its_backup_takes_over(seed):
    story = Story(seed, failover_on_shutdown=True)

    async def events() -> None:
        await story.begin()
        story.part("a")
        await story.reach("isolated", "active")
        story.network.heal()
        # the primary returns and the backup fails back
        await story.reach("active", "passive")

    story.run(events())


def test_without_failover_on_shutdown_the_store_waits_for_the_isolated_node():
    """The check stops the node cleanly, like an administrator, as in Artemis."""
    story = Story(1, failover_on_shutdown=False)

    async def events() -> None:
        await story.begin()
        story.part("a")
        await story.reach("isolated", "passive")
        await asyncio.sleep(20)
        assert story.states() == ("isolated", "passive")
        story.network.heal()
        await story.reach("active", "passive")

    story.run(events())


def test_an_isolated_backup_does_not_take_over():
    story = Story(2, failover_on_shutdown=True)

    async def events() -> None:
        await story.begin()
        story.part("b")
        await story.reach("active", "isolated")
        story.cluster.kill("a")
        await asyncio.sleep(20)
        assert story.states() == ("down", "isolated")
        story.network.heal()
        await story.reach("down", "active")

    story.run(events())


def test_a_node_that_an_administrator_stopped_is_not_started_by_the_check():
    story = Story(3, failover_on_shutdown=True)

    async def events() -> None:
        await story.begin()
        story.part("b")
        await story.reach("active", "isolated")
        story.cluster.stop("b", failover=False)
        await story.reach("active", "down")
        story.network.heal()
        await asyncio.sleep(10)
        assert story.states() == ("active", "down")

    try:
        task = story.loop.create_task(events())
        story.loop.run_until(task.done, deadline=300.0)
        task.result()
    finally:
        story.loop.close()
