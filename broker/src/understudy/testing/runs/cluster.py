"""A simulated cluster: the real broker nodes of one topology on one loop.

``SimCluster`` starts, kills, pauses, parts and restarts; it decides nothing by itself except what a
supervisor would: a node that ended or died is started again after its delay. The code of the nodes is
the shipped ``runtime.node.node.BrokerNode``; their files are on the simulated storage that the host of each mounts.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Collection, Sequence
from dataclasses import field, replace
from typing import Final

from understudy.config.model import Configuration
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.runtime.node.node import BrokerNode
from understudy.security.authorization import NoSecurity
from understudy.testing.runs.checkers import EpochChecker
from understudy.testing.runs.fault_plan import PASSIVE
from understudy.testing.sim.environment import Skew
from understudy.testing.sim.loop import Death, SimLoop, SimProcess
from understudy.testing.sim.network import SimNetwork
from understudy.testing.sim.old_segments import leave_old_segments
from understudy.testing.sim.probe import SimProber
from understudy.testing.sim.storage import CrashPoint, SharedStorage

#: Proof of a node that has nothing to prove, such as one of a pair that votes.
_ALWAYS_MS: Final = 1 << 62
#: Instance directories of the nodes, one below it for each.
INSTANCES: Final = "/instances"


@dataclass(slots=True)
class SimNode:
    """One server of the cluster, over all processes that it has had."""

    name: str
    configuration: Configuration
    storage: SharedStorage
    skew: Skew
    crash_point: CrashPoint
    process: SimProcess | None = None
    server: BrokerNode | None = None
    wanted: bool = True
    """Whether the supervisor starts the node again when it is down."""
    down_s: float = 1.0
    """How long the supervisor waits before that."""
    ends: list[BrokerError | None] = field(default_factory=list)
    """Reasons for which processes of the node ended by themselves; None for a clean stop."""

    @property
    def running(self) -> bool:
        """Whether the process of the node is alive."""
        return self.process is not None and self.process.alive

    @property
    def state(self) -> str:
        """The state that the node reports; ``down`` when it does not run."""
        if not self.running:
            return "down"
        return self.server.state if self.server is not None else "starting"


class SimCluster:
    """The nodes of one topology in the simulation."""

    def __init__(
        self,
        loop: SimLoop,
        network: SimNetwork,
        storages: Sequence[SharedStorage],
        configurations: Sequence[Configuration],
        skews: Sequence[Skew],
    ) -> None:
        """Args:
        storages: The storage that each node mounts; nodes with one store share it.
        """
        self.loop = loop
        self.network = network
        self.epochs = EpochChecker()
        self.supervised = True
        """Nodes that are down are started again."""
        self.nodes: dict[str, SimNode] = {}
        for configuration, storage, skew in zip(configurations, storages, skews, strict=True):
            name = configuration.name
            crash_point = CrashPoint(loop.random(f"crash {name}"))
            self.nodes[name] = SimNode(name, configuration, storage, replace(skew), crash_point)
            directory = configuration.journal_directory
            if not storage.volume.has(directory):
                leave_old_segments(storage.volume, directory, configuration.journal_file_size_bytes)
            network.add_host(name)

    # --- looking -------------------------------------------------------------------------------

    def active(self) -> SimNode | None:
        """The node that serves, by its own account."""
        return next((node for node in self.nodes.values() if node.state == "active"), None)

    def target(self, name: str, among: Collection[str] | None = None) -> SimNode | None:
        """The running node that ``active``, ``passive`` or a name means right now; None if there is none.

        Args:
            name: Name of a node, or a role.
            among: Names of the nodes one of which may have the role; None for all.
        """
        running = [node for node in self.nodes.values() if node.running and (among is None or node.name in among)]
        if name in self.nodes:
            return self.nodes[name] if self.nodes[name].running else None
        # while no node is active, a node that is starting or stopping comes first
        ranks = {"active": 0, "starting": 1, "stopping": 1, "passive": 2, "isolated": 2, "stopped": 3}
        running.sort(key=lambda node: ranks[node.state], reverse=name == PASSIVE)
        return running[0] if running else None

    # --- doing ---------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a node (and its host) unless it runs."""
        node = self.nodes[name]
        node.wanted = True
        if node.running:
            return
        self.network.power_on(name)
        process = self.loop.new_process(name)
        node.process, node.server = process, None
        node.crash_point.disarm()
        process.on_death(lambda death: self._went_down(node, process, death))
        process.create_task(self._run(node, process))

    def kill(self, name: str) -> None:
        """Kill the process of a node, as SIGKILL does."""
        process = self.nodes[name].process
        if process is not None:
            process.kill()

    def power_off(self, name: str) -> None:
        """Cut the power of its host."""
        self.network.power_off(name)

    def crash_in_disk(
        self, name: str, operations: int, death: Death, counts: Callable[[str], bool] | None = None
    ) -> None:
        """Kill it, or cut its power, at one of its next disk operations; ``counts`` as in ``CrashPoint.arm``."""
        crash = self.power_off if death is Death.POWER_LOST else self.kill
        self.nodes[name].crash_point.arm(operations, lambda: crash(name), counts)

    def stop(self, name: str, *, failover: bool) -> None:
        """Ask it to stop cleanly; it is started again like any node that is down."""
        node = self.nodes[name]
        if node.running and node.server is not None:
            assert node.process is not None
            node.process.create_task(node.server.stop(failover=failover))

    def supervise(self, name: str) -> None:
        """Start the node again once its delay is over, if it is down and wanted by then."""
        node = self.nodes[name]

        def start() -> None:
            if self.supervised and node.wanted and not node.running:
                self.start(name)

        self.loop.call_later(node.down_s, start, context=contextvars.Context())

    # --- what nodes run --------------------------------------------------------------------------

    async def _run(self, node: SimNode, process: SimProcess) -> None:
        environment = node.storage.environment(
            process, node.skew, node.crash_point, lambda durable_at_s: self._heard(node, process, durable_at_s)
        )
        environment = replace(
            environment,
            network_prober=lambda options: SimProber(self.loop, self.network, process, options.timeout_ms),
        )
        node.server = BrokerNode(
            node.configuration,
            environment,
            NoSecurity(),
            on_active=lambda: self._became_active(node, process),
            instance_directory=f"{INSTANCES}/{node.name}",
        )
        try:
            await node.server.start()
            error = await node.server.wait_ended()
        except BrokerError as failure:
            error = failure
        node.ends.append(error)
        process.kill(Death.EXITED)

    def _became_active(self, node: SimNode, process: SimProcess) -> None:
        outcome = None if node.server is None else node.server.serving.scale_down.outcome
        if outcome is not None and outcome.complete:
            # all its messages have moved: it serves nothing, and the node of the same id may have begun anew already
            return
        now_s = self.loop.time()
        serving = [
            other.process.label
            for other in self.nodes.values()
            if other is not node and other.state == "active" and other.process is not None
            if self._may_confirm(other, other.process)
        ]
        self.epochs.activated(now_s, process.label, _epoch(node), serving)

    def _may_confirm(self, node: SimNode, process: SimProcess) -> bool:
        """Whether a node that calls itself active confirms without asking first whether it still may."""
        assert node.server is not None
        proved_until_ms = node.server.policy.fence.proved_until_ms
        if proved_until_ms >= _ALWAYS_MS:
            # a process that is resumed at this moment has not run since another node took over
            return not process.paused and process.resumed_s < self.loop.time()
        environment = node.server.environment
        return (environment.lock_clock or environment.clock).monotonic_ms() <= proved_until_ms

    def _heard(self, node: SimNode, process: SimProcess, durable_at_s: float) -> None:
        broker = node.server.broker if node.server is not None else None
        if broker is not None and not broker.store.context.failed:
            self.epochs.confirmed(self.loop.time(), process.label, broker.store.epoch, durable_at_s)

    def _went_down(self, node: SimNode, process: SimProcess, death: Death) -> None:
        node.storage.process_died(process, death)
        if node.process is process:
            self.supervise(node.name)


def _epoch(node: SimNode) -> int:
    """The epoch a node serves in; 0 before it has one."""
    broker = node.server.broker if node.server is not None else None
    return broker.store.epoch if broker is not None else 0
