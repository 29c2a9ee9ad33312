"""Scenario ``shared_store_pair``: one pair, its clients, and everything that may happen to them.

A run has four phases: the pair starts and clients work; faults strike by the plan while they go
on; everything is healed and the clients must finish in bounded time; the pair is stopped cleanly
and checked, by the ledger of the clients and by the final state of the store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from understudy.errors import BrokerError, DiskFailed, DiskFull, LockLost, StoreError
from understudy.testing.checkers import Violation, judge_failures, judge_ledger
from understudy.testing.cluster import QUEUE, STORE, SimCluster, SimNode, pair_configuration
from understudy.testing.damage import browse_damage, damage_waiting, judge_quarantine, quarantined
from understudy.testing.fault_plan import Fault, FaultKind
from understudy.testing.pair_plan import Plan, draw_plan
from understudy.testing.sim_environment import WALL_START_MS
from understudy.testing.sim_loop import Death, SimLoop, SimProcess, SimulationStuck
from understudy.testing.sim_network import SimNetwork
from understudy.testing.sim_storage import SharedStorage
from understudy.testing.workload import ClientPlan, LedgerBook, ProducerJob, consume, observe, produce
from understudy.testing.xa_workload import (
    BranchConsumerJob,
    BranchProducerJob,
    consume_in_branches,
    produce_in_branches,
)

NAME: Final = "shared_store_pair"
#: Where the journal is.
JOURNAL: Final = f"{STORE}/journal"

#: Virtual seconds the clients have to finish once everything is healed.
LIVENESS_S: Final = 240.0
#: Virtual seconds the storage server keeps the locks of a host it does not hear of. Short: NFSv4
#: servers take 10 to 90.
LEASE_S: Final = 4.0
#: The client that looks at the queue in the end, and the one that looks at it all the time if there is damage.
_OBSERVER: Final = "observer"
_LOOKER: Final = "looker"
#: Virtual seconds a node has to stop cleanly at the end.
STOP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run."""

    seed: int
    digest: str
    """Of its trace; equal seeds give equal digests."""
    violations: tuple[Violation, ...]
    sent: int
    confirmed: int
    delivered: int
    activations: int
    faults: int
    steps: int
    virtual_s: float
    damaged: int = 0
    """Messages whose records were damaged."""
    quarantined: int = 0
    """Of those, in the quarantine at the end."""
    branches: int = 0
    """XA branches begun."""

    @property
    def ok(self) -> bool:
        """Whether no checker reported a violation."""
        return not self.violations


class PairRun:
    """One run of the scenario. Tests subclass it to plant a bug."""

    storage_class: ClassVar[type[SharedStorage]] = SharedStorage
    liveness_s: ClassVar[float] = LIVENESS_S
    """Virtual seconds the clients have to finish; less where a planted bug shows before."""

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.network = SimNetwork(loop, replace(plan.network))
        self.storage = self.storage_class(loop, replace(plan.storage))
        configurations = [pair_configuration(role, plan.pair) for role in ("primary", "backup")]
        self.cluster = SimCluster(loop, self.network, self.storage, configurations, plan.skews)
        self.book = LedgerBook(lambda: WALL_START_MS + int(loop.time() * 1000))
        self.violations: list[Violation] = []
        self.phase = "starting"
        self._clients: dict[str, SimProcess] = {}
        self._producers = {job.name: replace(job) for job in plan.producers}
        self._consumers = {job.name: replace(job) for job in plan.consumers}
        self._names = [*self._producers, *self._consumers]
        self._working = set(self._names)
        self._looker: SimProcess | None = None
        self._healed = False
        self._expected: set[type[BrokerError]] = set()
        """Errors that may end a node, by the faults that it had."""
        self.damaged: dict[int, tuple[str, int]] = {}
        """Messages whose records were damaged: message id to producer and number."""
        self.set_aside: set[tuple[str, int]] = set()
        """Those of them that are in the quarantine at the end."""

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
        self.cluster.start("a")
        self.cluster.start("b")
        for name in self._names:
            self._start_client(name)
        if any(fault.kind is FaultKind.DAMAGE for fault in self.plan.faults):
            self._browse_damage()
        self.phase = "faults"
        for fault in self.plan.faults:
            await asyncio.sleep(max(0.0, fault.at_s - self.loop.time()))
            self._strike(fault)
        await asyncio.sleep(max(0.0, self.plan.heal_s - self.loop.time()))
        self.phase = "healing"
        self._heal()
        await self._finish_clients()
        self.phase = "stopping"
        await self._stop_pair()

    def judge(self) -> tuple[Violation, ...]:
        """Everything that was wrong."""
        found = [*self.violations, *self.book.violations, *self.cluster.epochs.violations]
        found += judge_failures(self.loop.failures)
        found += judge_ledger(
            self.book.rows,
            sessions=self.book.sessions,
            drained=not self._working,
            set_aside=self.set_aside,
        )
        ends = [
            f"{node.name} ended with {type(error).__name__}: {error}"
            for node in self.cluster.nodes.values()
            for error in node.ends
            if error is not None and type(error) not in self._expected
        ]
        found += [Violation("ended", f"{count} times {text}") for text, count in Counter(ends).items()]
        return tuple(found)

    # --- faults --------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        self.loop.record(f"fault {fault}")
        kind, network = fault.kind, self.network
        if kind is FaultKind.POWER_LOSS_OF_ALL:
            for name in self.cluster.nodes:
                self.cluster.nodes[name].down_s = fault.duration_s
                self.cluster.power_off(name)
        elif kind is FaultKind.SLOW_NETWORK:
            network.conditions.latency_max_s = 0.001 + fault.choice * 0.5
            self._later(fault.duration_s, self._restore_network)
        elif kind is FaultKind.SLOW_STORE:
            self.storage.conditions.step_ms_max = 10 + int(fault.choice * 2000)
            self._later(fault.duration_s, self._restore_storage)
        elif kind is FaultKind.PART_NODES:
            network.part("a", "b", both_ways=fault.choice < 0.5)
            self._later(fault.duration_s, lambda: network.heal("a", "b"))
        elif kind is FaultKind.SYNC_FAILS:
            # a state byte that was written and not kept looks like a touch by another node
            self._expected |= {DiskFailed, LockLost}
            self.storage.volume.fail_next_sync()
        elif kind is FaultKind.DISK_FULL:
            self._expected |= {DiskFull}
            self.storage.fill()
            self._later(fault.duration_s, self.storage.free)
        elif kind is FaultKind.DAMAGE:
            self._damage(fault.number, 1 + int(fault.choice * 3))
        elif kind is FaultKind.KILL_CLIENT:
            self._kill_client(fault.target)
        else:
            self._strike_node(fault)

    def _damage(self, number: int, count: int) -> None:
        """Damage the bodies of so many waiting messages."""
        stream = self.loop.random(f"damage {number}")
        for message in damage_waiting(self.storage.volume, JOURNAL, stream, count):
            self.damaged[message.message_id] = (message.producer, message.number)
            self.loop.record(f"damaged {message}")

    def _strike_node(self, fault: Fault) -> None:
        cluster = self.cluster
        node = cluster.target(fault.target)
        if node is None:
            return
        name, kind = node.name, fault.kind
        if kind is FaultKind.PART_CLIENTS:
            for client in self._names:
                # one direction: from the clients, or from the node
                if fault.choice < 0.8:
                    self.network.part(client, name, both_ways=fault.choice < 0.4)
                else:
                    self.network.part(name, client, both_ways=False)
            self._later(fault.duration_s, lambda: self._rejoin_clients(name))
        elif kind is FaultKind.PAUSE:
            process = node.process
            assert process is not None
            process.pause()
            self._later(fault.duration_s, process.resume)
        elif kind in (FaultKind.LEASE_LOST, FaultKind.SHORT_ZOMBIE):
            self._expected |= {LockLost}
            process = node.process
            assert process is not None
            process.pause()
            lost_s, more_s = LEASE_S, fault.duration_s
            if kind is FaultKind.SHORT_ZOMBIE:
                lost_s, more_s = 0.01, 1.0 + 2.0 * fault.choice
            self._later(lost_s, partial(self._lose_lease, process))
            self._later(lost_s + more_s, process.resume)
        else:
            node.down_s = fault.duration_s
            if kind is FaultKind.KILL:
                cluster.kill(name)
            elif kind is FaultKind.POWER_LOSS:
                cluster.power_off(name)
            elif kind is FaultKind.CRASH_IN_DISK:
                cluster.crash_in_disk(name, fault.operations, Death.POWER_LOST if fault.choice < 0.5 else Death.KILLED)
            else:
                cluster.stop(name, failover=fault.choice < 0.5)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if not self._healed:
                action()

        self.loop.call_later(delay_s, act)

    def _lose_lease(self, process: SimProcess) -> None:
        if process.alive and process.paused:
            self.storage.expire_leases(process.host)

    def _restore_network(self) -> None:
        self.network.conditions = replace(self.plan.network)

    def _restore_storage(self) -> None:
        self.storage.conditions.step_ms_max = self.plan.storage.step_ms_max

    def _rejoin_clients(self, name: str) -> None:
        for client in self._names:
            self.network.heal(client, name)

    def _heal(self) -> None:
        self._healed = True
        self.loop.record("everything heals")
        if self._looker is not None:
            self._looker.kill()
        self._restore_network()
        self._restore_storage()
        self.storage.free()
        self.network.heal()
        for name, node in self.cluster.nodes.items():
            node.crash_point.disarm()
            node.down_s = 1.0
            if node.process is not None:
                node.process.resume()
            self.cluster.start(name)
        for name in sorted(self._working):
            if not self._clients[name].alive:
                self._start_client(name)

    # --- clients -------------------------------------------------------------------------------

    def _start_client(self, name: str) -> None:
        process = self.loop.new_process(name)
        self.network.add_host(name)
        self._clients[name] = process
        stream = self.loop.random(f"entropy {process.label}")
        plan = ClientPlan(self.plan.url, self.book.now_ms, stream.randbytes, self.book)
        process.create_task(self._work(plan, name))

    async def _work(self, plan: ClientPlan, name: str) -> None:
        job = self._producers.get(name) or self._consumers[name]
        try:
            if isinstance(job, BranchProducerJob):
                await produce_in_branches(plan, job)
            elif isinstance(job, BranchConsumerJob):
                await consume_in_branches(plan, job)
            elif isinstance(job, ProducerJob):
                await produce(plan, job)
            else:
                await consume(plan, job)
        except BrokerError as error:
            self.violations.append(Violation("client", f"{name} ended with {error!r}"))
            return
        self._working.discard(name)

    def _browse_damage(self) -> None:
        """Let another client look at the queue until everything heals."""
        process = self.loop.new_process(_LOOKER)
        self.network.add_host(_LOOKER)
        entropy = self.loop.random(f"entropy {process.label}").randbytes
        process.create_task(browse_damage(ClientPlan(self.plan.url, self.book.now_ms, entropy, self.book), QUEUE))
        self._looker = process

    def _kill_client(self, name: str) -> None:
        process = self._clients[name]
        if not process.alive or name not in self._working:
            return
        process.kill()
        self._later(1.0, lambda: self._start_client(name))

    async def _finish_clients(self) -> None:
        deadline = self.loop.time() + self.liveness_s
        if await self._wait(lambda: not self._working & self._producers.keys(), deadline):
            for job in self._consumers.values():
                job.draining_since_s = self.loop.time()
            await self._wait(lambda: not self._working, deadline)
        if not self._working and not await self._observe(deadline):
            text = f"queue not seen completely {self.liveness_s} s after healing"
            self.violations.append(Violation("left-over", text))
        if self._working:
            states = {name: node.state for name, node in self.cluster.nodes.items()}
            waiting = ", ".join(sorted(self._working))
            self.violations.append(
                Violation("stuck", f"{waiting} did not finish in {self.liveness_s} s; nodes: {states}")
            )

    async def _observe(self, deadline: float) -> bool:
        """Add the remaining messages of the queue to the ledger when all clients have ended."""
        process = self.loop.new_process(_OBSERVER)
        self.network.add_host(_OBSERVER)
        entropy = self.loop.random(f"entropy {process.label}").randbytes
        task = process.create_task(
            observe(ClientPlan(self.plan.url, self.book.now_ms, entropy, self.book), QUEUE, _OBSERVER)
        )
        return await self._wait(task.done, deadline)

    async def _wait(self, condition: Callable[[], bool], deadline: float) -> bool:
        while not condition():
            if self.loop.time() >= deadline:
                return False
            await asyncio.sleep(0.1)
        return True

    # --- the end -------------------------------------------------------------------------------

    async def _stop_pair(self) -> None:
        cluster = self.cluster
        cluster.supervised = False
        # the passive one first, so that stopping the active one is no failover
        for name in sorted(cluster.nodes, key=lambda name: cluster.nodes[name].state == "active"):
            await self._stop_node(cluster.nodes[name])
        self._judge_store()

    def _judge_store(self) -> None:
        try:
            # a message that was consumed before its damage was found is in no quarantine
            state = self.storage.log_state(JOURNAL, quarantine=bool(self.damaged))
            entries = quarantined(self.storage.volume, JOURNAL)
        except StoreError as error:
            self.violations.append(Violation("store", f"unreadable at the end: {error}"))
            return
        self.set_aside, violations = judge_quarantine(entries, self.damaged)
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


def run_seed(
    seed: int,
    *,
    without: Collection[int] = (),
    write_trace: Callable[[str], object] | None = None,
    run_class: type[PairRun] = PairRun,
) -> Outcome:
    """Run the plan of a seed and judge it.

    Args:
        without: Numbers of faults of the plan to leave out.
        write_trace: Takes the trace as text lines.
        run_class: A subclass with a planted bug.
    """
    plan = draw_plan(seed)
    plan = replace(plan, faults=tuple(fault for fault in plan.faults if fault.number not in without))
    return run_plan(plan, write_trace=write_trace, run_class=run_class)


def run_plan(
    plan: Plan,
    *,
    write_trace: Callable[[str], object] | None = None,
    run_class: type[PairRun] = PairRun,
) -> Outcome:
    """Run a plan and judge it; arguments as for ``run_seed``."""
    loop = SimLoop(plan.seed, write_trace=write_trace)
    try:
        run = run_class(plan, loop)
        task = loop.create_task(run.run())
        try:
            loop.run_until(task.done, deadline=plan.heal_s + 2 * run_class.liveness_s)
        except SimulationStuck as stuck:
            run.violations.append(Violation("stuck", f"in phase {run.phase}: {stuck}"))
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error
        if not task.done() and not run.violations:
            run.violations.append(Violation("stuck", f"the run did not end; phase {run.phase}"))
        rows = run.book.rows
        return Outcome(
            seed=plan.seed,
            digest=loop.trace.digest(),
            violations=run.judge(),
            sent=sum(row.kind.name == "SENT" for row in rows),
            confirmed=sum(row.kind.name == "CONFIRMED" for row in rows),
            delivered=sum(row.kind.name == "DELIVERED" for row in rows),
            activations=len(run.cluster.epochs.activations),
            faults=len(plan.faults),
            steps=loop.steps,
            virtual_s=loop.time(),
            damaged=len(run.damaged),
            quarantined=len(run.set_aside),
            branches=run.branches,
        )
    finally:
        loop.close()
