"""One run of a replicated pair, or of several: a disk for each node, and the judges at its end.

Not here: what decides which node is active (``witnessed_run``, ``quorum_run``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from understudy.errors import ActivationRefused, LockLost, ReplicaFailed
from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.cluster import SimNode
from understudy.testing.runs.cluster_configuration import QUEUE
from understudy.testing.runs.copy_judge import differences
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.replicated_strikes import ReplicatedStrikes
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.runs.strikes import Strikes
from understudy.testing.runs.workload import ProducerJob
from understudy.testing.sim.loop import SimLoop, SimProcess
from understudy.testing.sim.own_storage import OwnStorage
from understudy.testing.sim.storage import SharedStorage

#: Virtual seconds after healing within which the replica of the primary is in sync, after a failback as well, which has
#: a pause of up to 120 s when three have failed.
_SYNC_S: Final = 180.0
#: Virtual seconds within which the stores are equal while no client does anything.
_EQUAL_S: Final = 5.0
#: Virtual seconds within which the replica serves after its active node was killed: a lease or some votes, and the
#: activation.
_TAKE_OVER_S: Final = 20.0
#: The producer of the messages that exist when the active node is killed at the end of a run.
_LAST: Final = "last"


class ReplicatedRun(ScenarioRun):
    """One run of replicated pairs."""

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
        assert isinstance(self.strikes, ReplicatedStrikes)
        with self.strikes.steps.watching(self._process_of_the_pair):
            await super().run()

    def _process_of_the_pair(self) -> SimProcess | None:
        """The process that runs at this moment, if it is a node of a judged pair."""
        process = SimLoop.current_process()
        return process if process is not None and process.host in self.cluster.nodes else None

    # --- the end of a run: the stores are equal, and the replica takes over --------------------------

    async def _finish_clients(self) -> None:
        """See ``ScenarioRun``; before that, the active node is killed and stays down."""
        self.phase = "taking over"
        consumers = [self._clients[name] for name in self._consumers]
        pairs = self.pairs()
        active = [node for pair in pairs if (node := await self._synced_primary(pair)) is not None]
        if len(active) == len(pairs):
            # messages wait in the store while the consumers pause
            for process in consumers:
                process.pause()
            await self._send_last()
            await self._compare_stores(pairs)
            for pair in pairs:
                await self._take_over(pair)
            for process in consumers:
                process.resume()
        await super()._finish_clients()

    def pairs(self) -> list[list[SimNode]]:
        """The nodes of each pair, its primary first."""
        groups: dict[str, list[SimNode]] = {}
        for node in self.plan.nodes:
            groups.setdefault(node.group, []).append(self.cluster.nodes[node.name])
        return list(groups.values())

    async def _synced_primary(self, pair: Sequence[SimNode]) -> SimNode | None:
        """The primary, once it is active and its replica is in sync; None after ``_SYNC_S``."""
        primary = pair[0]
        if await self._wait(lambda: self._in_sync(primary), self.loop.time() + _SYNC_S):
            return primary
        states = {name: node.state for name, node in self.cluster.nodes.items()}
        text = f"{primary.name}: no replica {_SYNC_S} s after healing; nodes: {states}"
        self.violations.append(Violation("not-in-sync", text))
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

    async def _compare_stores(self, pairs: Sequence[Sequence[SimNode]]) -> None:
        """Add a violation unless the stores of both nodes of each pair are equal while no client does anything."""
        clients = [process for process in self._clients.values() if process.alive and not process.paused]
        for process in clients:
            process.pause()
        for active, replica in pairs:

            def compared(one: SimNode = active, other: SimNode = replica) -> list[str]:
                return differences(one.storage.volume, other.storage.volume)

            if not await self._wait(lambda compared=compared: not compared(), self.loop.time() + _EQUAL_S):  # type: ignore[misc]
                found = compared()
                sync = "in sync" if self._in_sync(active) else "lost"
                text = f"{active.name}: {len(found)} files, replica {sync}: " + "; ".join(found[:3])
                self.violations.append(Violation("copy", text))
        for process in clients:
            process.resume()

    async def _take_over(self, pair: Sequence[SimNode]) -> None:
        """Kill the active node of a pair for good; the replica must serve in its place."""
        active, replica = pair
        # it may have lost its lock and come back while another pair took over
        if await ReplicatedRun._synced_primary(self, pair) is None:
            return
        active.wanted = False
        if self.loop.random("end of the active node").random() < 0.5:
            self.cluster.power_off(active.name)
        else:
            self.cluster.kill(active.name)
        if not await self._wait(lambda: replica.state == "active", self.loop.time() + _TAKE_OVER_S):
            states = {name: node.state for name, node in self.cluster.nodes.items()}
            text = f"the replica in sync did not serve {_TAKE_OVER_S} s after the end of its active node: {states}"
            self.violations.append(Violation("take-over", text))

    def _judge_store(self) -> None:
        """Check that the store of the node that was active last has all messages that must exist."""
        (pair,) = self.pairs()
        self.storage = self._last_active(pair).storage
        super()._judge_store()

    def _last_active(self, pair: Sequence[SimNode]) -> SimNode:
        """The node of a pair that was active last; its primary if none was."""
        by_name = {node.name: node for node in pair}
        names = (each.node.partition(".")[0] for each in reversed(self.cluster.epochs.activations))
        return next((by_name[name] for name in names if name in by_name), pair[0])
