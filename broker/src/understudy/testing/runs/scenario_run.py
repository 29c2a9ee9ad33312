"""One run of a scenario: its nodes, its clients, and the faults of its plan.

A run has four phases: the nodes start and clients work; faults strike by the plan while they go
on; everything is healed and the clients must finish in bounded time; the nodes are stopped cleanly
and checked, by the ledger of the clients and by the final state of the store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from understudy.errors import BrokerError, StoreError
from understudy.ledger import check_epochs
from understudy.testing.runs.checkers import Violation, judge_failures, judge_ledger
from understudy.testing.runs.cluster import SimCluster, SimNode
from understudy.testing.runs.cluster_configuration import QUEUE, NodeRole, cluster_configurations
from understudy.testing.runs.damage import browse_damage, judge_quarantine, quarantined
from understudy.testing.runs.fault_plan import FaultKind
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.strikes import JOURNAL, Strikes
from understudy.testing.runs.workload import ClientPlan, ConsumerJob, LedgerBook, ProducerJob, consume, observe, produce
from understudy.testing.runs.xa_workload import (
    BranchConsumerJob,
    BranchProducerJob,
    consume_in_branches,
    produce_in_branches,
)
from understudy.testing.sim.environment import WALL_START_MS
from understudy.testing.sim.loop import SimLoop, SimProcess
from understudy.testing.sim.network import SimNetwork
from understudy.testing.sim.storage import SharedStorage

#: Virtual seconds the clients have to finish once everything is healed.
LIVENESS_S: Final = 240.0
#: Virtual seconds after healing within which a new client is connected and a message of it is confirmed.
RESTORED_S: Final = 20.0
#: The client that tries that.
_PROBE: Final = "probe"
#: The client that looks at the queue in the end, and the one that looks at it all the time if there is damage.
_OBSERVER: Final = "observer"
_LOOKER: Final = "looker"
#: Virtual seconds a node has to stop cleanly at the end.
STOP_S: Final = 60.0


class ScenarioRun:
    """One run of the scenario. Tests subclass it to plant a bug."""

    storage_class: ClassVar[type[SharedStorage]] = SharedStorage
    strikes_class: ClassVar[type[Strikes]] = Strikes
    liveness_s: ClassVar[float] = LIVENESS_S
    """Virtual seconds the clients have to finish; less where a planted bug shows before."""
    members: ClassVar[bool] = False
    """Whether several nodes have the queue (``judge_ledger``)."""
    restored_s_max: ClassVar[float] = RESTORED_S
    """Virtual seconds after healing within which a message of a new client is confirmed."""

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.network = SimNetwork(loop, replace(plan.network))
        storages = self.make_storages()
        self.storage = storages[0]
        # of the judged nodes first
        self.configurations = cluster_configurations((*plan.nodes, *self.further_nodes()), plan.pair)
        judged = self.configurations[: len(plan.nodes)]
        self.cluster = SimCluster(loop, self.network, storages, judged, plan.skews)
        self.book = LedgerBook(lambda: WALL_START_MS + int(loop.time() * 1000))
        self.violations: list[Violation] = []
        self.phase = "starting"
        self._clients: dict[str, SimProcess] = {}
        self._producers = {job.name: replace(job) for job in plan.producers}
        self._consumers = {job.name: replace(job) for job in plan.consumers}
        self._names = [*self._producers, *self._consumers]
        self._working = set(self._names)
        self.restored_s = 0.0
        """Virtual seconds from healing until a message of a new client was confirmed."""
        self.promotions = 0
        """Commands of an operator that the pair needed."""
        self._looker: SimProcess | None = None
        self.strikes = self.strikes_class(
            plan, self.cluster, list(dict.fromkeys(storages)), self._names, self._kill_client
        )
        self.set_aside: set[tuple[str, int]] = set()
        """Producer and number of damaged messages that are in the quarantine at the end."""

    def make_storages(self) -> list[SharedStorage]:
        """The storage of each node: here one that all of them share."""
        storage = self.storage_class(self.loop, replace(self.plan.storage))
        return [storage] * len(self.plan.nodes)

    def further_nodes(self) -> Sequence[NodeRole]:
        """Nodes of the same cluster that are not judged."""
        return ()

    @property
    def branches(self) -> int:
        """XA branches that clients have begun."""
        jobs = (*self._producers.values(), *self._consumers.values())
        return sum(job.log.begun for job in jobs if isinstance(job, BranchProducerJob | BranchConsumerJob))

    # --- the run -------------------------------------------------------------------------------

    async def run(self) -> None:
        """All phases; violations are collected, not raised."""
        for line in self.plan.describe():
            self.loop.record(f"plan {line}")
        for name in self.cluster.nodes:
            self.cluster.start(name)
        for name in self._names:
            self._start_client(name)
        if any(fault.kind is FaultKind.DAMAGE for fault in self.plan.faults):
            self._browse_damage()
        self.phase = "faults"
        for fault in self.plan.faults:
            await asyncio.sleep(max(0.0, fault.at_s - self.loop.time()))
            self.strikes.strike(fault)
        await asyncio.sleep(max(0.0, self.plan.heal_s - self.loop.time()))
        self.phase = "healing"
        self._heal()
        began_s = self.loop.time()
        if await self._wait(lambda: _PROBE not in self._working, began_s + self.restored_s_max):
            self.restored_s = self.loop.time() - began_s
        else:
            self.violations.append(Violation("no-service", f"nothing confirmed {self.restored_s_max} s after healing"))
        self.strikes.repair(*self.strikes.repairs)
        await self._finish_clients()
        self.phase = "stopping"
        await self._stop_nodes()

    def reported(self) -> list[Violation]:
        """Everything that was found to be wrong so far."""
        return [*self.violations, *self.book.violations, *self.cluster.epochs.violations]

    def judge(self) -> tuple[Violation, ...]:
        """Everything that was wrong."""
        found = self.reported()
        found += judge_failures(self.loop.failures)
        found += [Violation("two-confirming", text) for text in check_epochs(self.book.rows).findings]
        found += judge_ledger(
            self.book.rows,
            sessions=self.book.sessions,
            drained=not self._working,
            set_aside=self.set_aside,
            members=self.members,
        )
        ends = [
            f"{node.name} ended with {type(error).__name__}: {error}"
            for node in self.cluster.nodes.values()
            for error in node.ends
            if error is not None and type(error) not in self.strikes.expected
        ]
        found += [Violation("ended", f"{count} times {text}") for text, count in Counter(ends).items()]
        return tuple(found)

    def _heal(self) -> None:
        self.loop.record("everything heals")
        if self._looker is not None:
            self._looker.kill()
        self.strikes.heal()
        self._producers[_PROBE] = ProducerJob(_PROBE, QUEUE, count=1, size_bytes=10, pause_s=0.0)
        self._working.add(_PROBE)
        self._start_client(_PROBE)
        for name in sorted(self._working):
            if not self._clients[name].alive:
                self._start_client(name)

    # --- clients -------------------------------------------------------------------------------

    def _start_client(self, name: str) -> None:
        process = self.loop.new_process(name)
        self.network.add_host(name)
        self._clients[name] = process
        stream = self.loop.random(f"entropy {process.label}")
        plan = ClientPlan(
            self.url_of(name), self.book.now_ms, stream.randbytes, self.book, self.others_of(name), self.nodes_apart()
        )
        process.create_task(self._work(plan, name))

    def url_of(self, client: str) -> str:
        """URL with which a client finds the brokers."""
        return self.plan.url

    def others_of(self, client: str) -> tuple[str, ...]:
        """URLs of other brokers to which a scale-down may move the XA branches of a client."""
        return ()

    def nodes_apart(self) -> tuple[str, ...]:
        """URLs of single nodes, if the nodes of a client's URL may serve different stores."""
        return ()

    async def _work(self, plan: ClientPlan, name: str) -> None:
        job = self._producers.get(name) or self._consumers[name]
        try:
            await self.carry_out(plan, job)
        except BrokerError as error:
            self.violations.append(Violation("client", f"{name} ended with {error!r}"))
            return
        self._working.discard(name)

    async def carry_out(self, plan: ClientPlan, job: ProducerJob | ConsumerJob) -> None:
        """Do the work of a client."""
        if isinstance(job, BranchProducerJob):
            await produce_in_branches(plan, job)
        elif isinstance(job, BranchConsumerJob):
            await consume_in_branches(plan, job)
        elif isinstance(job, ProducerJob):
            await produce(plan, job)
        else:
            await consume(plan, job)

    def _browse_damage(self) -> None:
        """Let another client browse the queue until all faults have healed."""
        process = self.loop.new_process(_LOOKER)
        self.network.add_host(_LOOKER)
        entropy = self.loop.random(f"entropy {process.label}").randbytes
        process.create_task(browse_damage(ClientPlan(self.plan.url, self.book.now_ms, entropy, self.book), QUEUE))
        self._looker = process

    def _kill_client(self, name: str) -> bool:
        process = self._clients[name]
        if not process.alive or name not in self._working:
            return False
        process.kill()
        self.strikes.later(1.0, lambda: self._start_client(name))
        return True

    async def _finish_clients(self) -> None:
        deadline = self.loop.time() + self.liveness_s
        if await self._wait(lambda: not self._working & self._producers.keys(), deadline):
            for job in self._consumers.values():
                job.draining_since_s = self.loop.time()
            await self._wait(lambda: not self._working, deadline)
        if not self._working and not await self._observe_all(deadline):
            text = f"queue not seen completely {self.liveness_s} s after healing"
            self.violations.append(Violation("left-over", text))
        if self._working:
            states = {name: node.state for name, node in self.cluster.nodes.items()}
            waiting = ", ".join(sorted(self._working))
            self.violations.append(
                Violation("stuck", f"{waiting} did not finish in {self.liveness_s} s; nodes: {states}")
            )

    async def _observe_all(self, deadline: float) -> bool:
        """Add the remaining messages of the queue to the ledger when all clients have ended."""
        return await self._observe(self.plan.url, deadline)

    async def _observe(self, url: str, deadline: float) -> bool:
        process = self.loop.new_process(_OBSERVER)
        self.network.add_host(_OBSERVER)
        entropy = self.loop.random(f"entropy {process.label}").randbytes
        task = process.create_task(observe(ClientPlan(url, self.book.now_ms, entropy, self.book), QUEUE, _OBSERVER))
        return await self._wait(task.done, deadline)

    async def _wait(self, condition: Callable[[], bool], deadline: float) -> bool:
        while not condition():
            if self.loop.time() >= deadline:
                return False
            await asyncio.sleep(0.1)
        return True

    # --- the end -------------------------------------------------------------------------------

    async def _stop_nodes(self) -> None:
        cluster = self.cluster
        cluster.supervised = False
        # the passive node is stopped first, so that stopping the active node causes no failover
        for name in sorted(cluster.nodes, key=lambda name: cluster.nodes[name].state == "active"):
            await self._stop_node(cluster.nodes[name])
        self._judge_store()

    def _judge_store(self) -> None:
        self._judge_one(self.storage)

    def _judge_one(self, storage: SharedStorage) -> None:
        """A store at the end: readable, without messages that are left, and damaged ones in its quarantine."""
        try:
            # a message that was consumed before its damage was found is in no quarantine
            state = storage.log_state(JOURNAL, quarantine=bool(self.strikes.damaged))
            entries = quarantined(storage.volume, JOURNAL)
        except StoreError as error:
            self.violations.append(Violation("store", f"unreadable at the end: {error}"))
            return
        self.set_aside, violations = judge_quarantine(entries, self.strikes.damaged)
        self.violations += violations
        if self._working:
            return
        counts = {queue.name: len(state.references.get(queue_id, ())) for queue_id, queue in state.queues.items()}
        left = {name: count for name, count in counts.items() if count}
        if left:
            self.violations.append(Violation("left-over", f"in the store after draining: {left}"))
        prepared = sum(transaction.prepared for transaction in state.transactions.values())
        if prepared:
            self.violations.append(Violation("left-over", f"{prepared} prepared branches in the store"))

    async def _stop_node(self, node: SimNode) -> None:
        self.cluster.stop(node.name, failover=False)
        if not await self._wait(lambda: not node.running, self.loop.time() + STOP_S):
            self.violations.append(Violation("stuck", f"{node.name} did not stop in {STOP_S} s: {node.state}"))
