"""One run of a replicated pair: a disk for each node, and the judges at its end.

Not here: what decides which node is active (``witnessed_run``, ``quorum_run``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

from understudy.errors import ActivationRefused, LockLost, ReplicaFailed
from understudy.testing.checkers import Violation
from understudy.testing.cluster import SimNode
from understudy.testing.cluster_configuration import PAIR, QUEUE
from understudy.testing.copy_judge import differences
from understudy.testing.own_storage import OwnStorage
from understudy.testing.plan import Plan
from understudy.testing.replicated_strikes import ReplicatedStrikes
from understudy.testing.scenario_run import ScenarioRun
from understudy.testing.sim_loop import SimLoop, SimProcess
from understudy.testing.sim_storage import SharedStorage
from understudy.testing.strikes import Strikes
from understudy.testing.workload import ProducerJob

#: Virtual seconds after healing within which the replica of the primary is in sync, after a failback as well.
_SYNC_S: Final = 60.0
#: Virtual seconds within which the stores are equal while no client does anything.
_EQUAL_S: Final = 5.0
#: Virtual seconds within which the replica serves after its active node was killed: a lease or some votes, and the
#: activation.
_TAKE_OVER_S: Final = 20.0
#: The producer of the messages that exist when the active node is killed at the end of a run.
_LAST: Final = "last"


class ReplicatedRun(ScenarioRun):
    """One run of a replicated pair."""

    storage_class: ClassVar[type[SharedStorage]] = OwnStorage
    strikes_class: ClassVar[type[Strikes]] = ReplicatedStrikes

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(plan, loop)
        # an active node ends without its permission or its replica; the supervisor starts it again
        self.strikes.expected |= {LockLost, ActivationRefused, ReplicaFailed}

    def make_storages(self) -> list[SharedStorage]:
        """A storage for each node."""
        storages: list[SharedStorage] = []
        for _ in self.plan.nodes:
            storage = self.storage_class(self.loop, replace(self.plan.storage))
            assert isinstance(storage, OwnStorage)
            storage.older = self.plan.pair.older
            storages.append(storage)
        return storages

    async def run(self) -> None:
        """See ``ScenarioRun``."""
        assert isinstance(self.strikes, ReplicatedStrikes)
        with self.strikes.steps.watching(self._process_of_the_pair):
            await super().run()

    def _process_of_the_pair(self) -> SimProcess | None:
        """The process that runs at this moment, if it is a node of the judged pair."""
        process = SimLoop.current_process()
        return process if process is not None and process.host in self.cluster.nodes else None

    # --- the end of a run: the stores are equal, and the replica takes over --------------------------

    async def _finish_clients(self) -> None:
        """See ``ScenarioRun``; before that, the active node is killed and stays down."""
        self.phase = "taking over"
        consumers = [self._clients[name] for name in self._consumers]
        active = await self._synced_primary()
        if active is not None:
            # so that messages wait in the store
            for process in consumers:
                process.pause()
            await self._send_last()
            await self._compare_stores(active)
            await self._take_over(active)
            for process in consumers:
                process.resume()
        await super()._finish_clients()

    async def _synced_primary(self) -> SimNode | None:
        """The primary, once it is active and its replica is in sync; None after ``_SYNC_S``."""
        primary = self.cluster.nodes[PAIR[0].name]
        if await self._wait(lambda: self._in_sync(primary), self.loop.time() + _SYNC_S):
            return primary
        states = {name: node.state for name, node in self.cluster.nodes.items()}
        self.violations.append(Violation("not-in-sync", f"no replica {_SYNC_S} s after healing; nodes: {states}"))
        return None

    @staticmethod
    def _in_sync(node: SimNode) -> bool:
        replication = node.server.replication if node.server is not None else None
        return node.state == "active" and replication is not None and replication.link.in_sync

    async def _send_last(self) -> None:
        self._producers[_LAST] = ProducerJob(_LAST, QUEUE, count=30, size_bytes=500, pause_s=0.01)
        self._working.add(_LAST)
        self._start_client(_LAST)
        deadline = self.loop.time() + self.restored_s_max
        if not await self._wait(lambda: _LAST not in self._working, deadline):
            self.violations.append(Violation("no-service", f"{_LAST}: not confirmed with a replica in sync"))

    async def _compare_stores(self, active: SimNode) -> None:
        """Add a violation unless the stores of both nodes are equal while no client does anything."""
        clients = [process for process in self._clients.values() if process.alive and not process.paused]
        for process in clients:
            process.pause()
        (replica,) = (node for node in self.cluster.nodes.values() if node is not active)

        def equal() -> bool:
            return not differences(active.storage.volume, replica.storage.volume)

        if not await self._wait(equal, self.loop.time() + _EQUAL_S):
            found = differences(active.storage.volume, replica.storage.volume)
            sync = "in sync" if self._in_sync(active) else "lost"
            self.violations.append(Violation("copy", f"{len(found)} files, replica {sync}: " + "; ".join(found[:3])))
        for process in clients:
            process.resume()

    async def _take_over(self, active: SimNode) -> None:
        """Kill the active node for good; the replica must serve in its place."""
        in_sync = self._in_sync(active)
        active.wanted = False
        if self.loop.random("end of the active node").random() < 0.5:
            self.cluster.power_off(active.name)
        else:
            self.cluster.kill(active.name)
        if in_sync and not await self._wait(lambda: self.cluster.active() is not None, self.loop.time() + _TAKE_OVER_S):
            states = {name: node.state for name, node in self.cluster.nodes.items()}
            text = f"the replica in sync did not serve {_TAKE_OVER_S} s after the end of its active node: {states}"
            self.violations.append(Violation("take-over", text))

    def _judge_store(self) -> None:
        """The store of the node that was active last has everything."""
        if self.cluster.epochs.activations:
            name = self.cluster.epochs.activations[-1].node.partition(".")[0]
            self.storage = self.cluster.nodes[name].storage
        super()._judge_store()
