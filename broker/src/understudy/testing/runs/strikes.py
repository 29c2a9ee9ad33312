"""Injection of the faults of a plan into a running simulation, and the end of all of them.

Each fault that had an effect is counted by its kind; a fault whose target does not run at the time has none.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from understudy.errors import BrokerError, DiskFailed, DiskFull, LockLost, SegmentMissing, Unreachable
from understudy.ha.life.policy import NodeState
from understudy.testing.runs.cluster import SimCluster, SimNode
from understudy.testing.runs.cluster_configuration import PORT, STORE
from understudy.testing.runs.damage import damage_waiting
from understudy.testing.runs.fault_plan import ACTIVE, PASSIVE, Fault, FaultKind
from understudy.testing.runs.plan import Plan
from understudy.testing.sim.loop import Death, SimProcess
from understudy.testing.sim.storage import SharedStorage

#: Directory of the journal.
JOURNAL: Final = f"{STORE}/journal"
#: Virtual seconds the storage server keeps the locks of a host it does not hear of. Short: NFSv4
#: servers take 10 to 90.
LEASE_S: Final = 4.0


def add_repair(repairs: dict[str, Callable[[], None]], name: str, repair: Callable[[], None]) -> None:
    """Add the repair of a node that cannot activate to those of earlier faults of it."""
    before = repairs.get(name, lambda: None)

    def both() -> None:
        before()
        repair()

    repairs[name] = both


class Strikes:
    """Injector of the faults of one run."""

    def __init__(
        self,
        plan: Plan,
        cluster: SimCluster,
        storages: Sequence[SharedStorage],
        clients: Sequence[str],
        kill_client: Callable[[str], bool],
    ) -> None:
        """Args:
        storages: Each storage once.
        clients: Hosts of the clients.
        kill_client: Kills a client and starts it again later; whether it was at work.
        """
        self.plan = plan
        self.loop = cluster.loop
        self.network = cluster.network
        self.cluster = cluster
        self.injected: Counter[FaultKind] = Counter()
        """Faults with an effect."""
        self.expected: set[type[BrokerError]] = set()
        """Errors that may end a node, by the faults that were injected."""
        self.damaged: dict[int, tuple[str, int]] = {}
        """Messages whose records were damaged: message id to producer and number."""
        self._storages = storages
        self._clients = clients
        self._kill_client = kill_client
        self._healed = False
        self.repairs: dict[str, Callable[[], None]] = {}
        """Calls that repair nodes that cannot activate with their disk or their copy, by node."""

    def strike(self, fault: Fault) -> None:
        """Inject a fault."""
        self.loop.record(f"fault {fault}")
        if self.inject(fault):
            self.injected[fault.kind] += 1

    def inject(self, fault: Fault) -> bool:
        """Inject a fault. Returns whether it had an effect."""
        return self._strike_all(fault) if fault.kind in _OF_ALL else self._strike_node(fault)

    def target(self, fault: Fault) -> SimNode | None:
        """The node that a fault of one node strikes; None if it does not run."""
        return self.cluster.target(fault.target)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call a function after so many seconds, unless all faults have healed by then."""

        def act() -> None:
            if not self._healed:
                action()

        self.loop.call_later(delay_s, act)

    def heal(self) -> None:
        """End all faults, and start every node that is down. A node that cannot activate stays so until ``repair``,
        unless it served last: then no other node needs to have everything.
        """
        self._healed = True
        last = self.cluster.epochs.activations[-1].node.partition(".")[0] if self.cluster.epochs.activations else ""
        self.repair(*([last] if last in self.repairs else []))
        self._restore_network()
        self._restore_storage()
        for storage in self._storages:
            storage.free()
            storage.volume.join()
        self.network.heal()
        for name, node in self.cluster.nodes.items():
            node.crash_point.disarm()
            node.down_s = 1.0
            if node.process is not None:
                node.process.resume()
            self.cluster.start(name)

    def repair(self, *names: str) -> None:
        """Mend the disks and copies of these nodes."""
        for name in names:
            self.repairs.pop(name)()

    # --- faults of no one node -----------------------------------------------------------------------

    def _strike_all(self, fault: Fault) -> bool:
        kind, network = fault.kind, self.network
        if kind is FaultKind.POWER_LOSS_OF_ALL:
            for name in self.cluster.nodes:
                self.cluster.nodes[name].down_s = fault.duration_s
                self.cluster.power_off(name)
        elif kind is FaultKind.SLOW_NETWORK:
            network.conditions.latency_max_s = 0.001 + fault.choice * 0.5
            self.later(fault.duration_s, self._restore_network)
        elif kind is FaultKind.SLOW_STORE:
            for storage in self._storages:
                storage.conditions.step_ms_max = 10 + int(fault.choice * 2000)
            self.later(fault.duration_s, self._restore_storage)
        elif kind is FaultKind.PART_NODES:
            one, other = self._two_nodes(fault)
            network.part(one, other, both_ways=fault.choice < 0.5)
            self.later(fault.duration_s, lambda: network.heal(one, other))
        elif kind is FaultKind.SYNC_FAILS:
            # a state byte that was written and not kept looks like a touch by another node
            self.expected |= {DiskFailed, LockLost}
            self._storage_of(fault).volume.fail_next_sync()
        elif kind is FaultKind.DISK_FULL:
            self.expected |= {DiskFull}
            storage = self._storage_of(fault)
            storage.fill()
            self.later(fault.duration_s, storage.free)
        elif kind is FaultKind.CRASH_IN_ACTIVATION:
            return self._crash_in_activation(fault)
        elif kind is FaultKind.CRASH_IN_DEACTIVATION:
            return self._crash_in_deactivation(fault)
        elif kind in (FaultKind.DISK_FAILS_IN_ACTIVATION, FaultKind.PORT_IN_USE):
            return self._fail_activation(fault)
        elif kind is FaultKind.LOCK_TAKEN:
            # the next owner of the store removes files, and an operation on one of them fails
            self.expected |= {LockLost, DiskFailed, SegmentMissing}
            self._take_lock(self.loop.random(f"lock {fault.number}"), 1 + int(fault.choice * 12))
        elif kind is FaultKind.RESTART_IN_ORDER:
            self._restart_in_order(fault)
        elif kind is FaultKind.DAMAGE:
            return self.damage(fault.number, 1 + int(fault.choice * 3))
        else:
            return self._kill_client(fault.target)
        return True

    def _two_nodes(self, fault: Fault) -> tuple[str, str]:
        pairs = list(itertools.combinations(self.cluster.nodes, 2))
        return pairs[fault.number % len(pairs)]

    def _storage_of(self, fault: Fault) -> SharedStorage:
        return self._storages[fault.number % len(self._storages)]

    def damage(self, number: int, count: int) -> bool:
        """Damage the bodies of so many waiting messages; whether there was one."""
        stream = self.loop.random(f"damage {number}")
        before = len(self.damaged)
        for storage in self._storages:
            for message in damage_waiting(storage.volume, JOURNAL, stream, count):
                self.damaged[message.message_id] = (message.producer, message.number)
                self.loop.record(f"damaged {message}")
        return len(self.damaged) > before

    def pair_of(self, fault: Fault) -> tuple[SimNode | None, SimNode | None]:
        """The active node, and the one that takes over when it ends."""
        return self.cluster.active(), self.cluster.target(PASSIVE)

    def _crash_in_activation(self, fault: Fault) -> bool:
        active, heir = self.pair_of(fault)
        if heir is None or active is None or heir is active:
            return False
        self.crash_while(heir, "starting", fault)
        active.down_s = fault.duration_s
        self.cluster.kill(active.name)
        return True

    def _fail_activation(self, fault: Fault) -> bool:
        """The disk or the port of a node fails in each of its activations, until ``repair``."""
        active, heir = self.pair_of(fault)
        if heir is None or active is None or heir is active:
            return False
        hindered = active if fault.target == ACTIVE else heir
        if fault.kind is FaultKind.PORT_IN_USE:
            self.expected |= {Unreachable}
            self.network.take_port(hindered.name, PORT)
            repair: Callable[[], None] = partial(self.network.free_port, hindered.name, PORT)
        else:
            self.expected |= {DiskFailed}

            def activating() -> bool:
                return hindered.server is not None and hindered.server.life.state is NodeState.ACTIVATING

            hindered.crash_point.disk.fail(activating, fault.operations, fault.choice)
            repair = hindered.crash_point.disk.repair
        add_repair(self.repairs, hindered.name, repair)
        active.down_s = fault.duration_s
        self.cluster.kill(active.name)
        return True

    def _take_lock(self, stream: random.Random, times: int) -> None:
        """Take the lock from the active node, whose process is stopped shortly before or after, and again later."""
        node = self.cluster.active()
        process = None if node is None else node.process
        if node is not None and process is not None:
            process_of = partial(self._while_alive, process)
            taken_s, paused_s, more_s = (stream.uniform(0.0, 0.15) for _ in range(3))
            self.later(taken_s, process_of(lambda: node.storage.expire_leases(process.host)))
            if stream.random() < 0.4:
                node.crash_point.pause(stream.randint(1, 6), process_of(process.pause))
            elif stream.random() < 0.7:
                self.later(paused_s, process_of(process.pause))
            self.later(max(taken_s, paused_s) + more_s, process_of(process.resume))
        if times > 1:
            self.later(stream.uniform(0.5, 3.0), lambda: self._take_lock(stream, times - 1))

    @staticmethod
    def _while_alive(process: SimProcess, action: Callable[[], None]) -> Callable[[], None]:
        def act() -> None:
            if process.alive:
                action()

        return act

    def _crash_in_deactivation(self, fault: Fault) -> bool:
        running = [node for node in self.cluster.nodes.values() if node.running]
        for node in running:
            self.crash_while(node, "stopping", fault)
        active = self.cluster.active()
        if active is not None and fault.choice < 0.5:
            self.cluster.stop(active.name, failover=fault.choice < 0.25)
        return bool(running)

    def crash_while(self, node: SimNode, state: str, fault: Fault) -> None:
        """Kill a node, or cut its power, at one of the disk operations that it does in a state."""
        node.down_s = fault.duration_s
        death = Death.POWER_LOST if fault.choice * 4 % 1 < 0.5 else Death.KILLED
        self.cluster.crash_in_disk(node.name, fault.operations, death, lambda event: node.state == state)

    def _restart_in_order(self, fault: Fault) -> None:
        """End all nodes and start them in an order drawn from the seed; in half of the draws one stays down until
        everything heals.
        """
        stream = self.loop.random(f"order {fault.number}")
        names = list(self.cluster.nodes)
        stream.shuffle(names)
        for name in names:
            self.cluster.nodes[name].wanted = False
            if fault.choice < 0.6:
                self.cluster.kill(name)
            else:
                self.cluster.stop(name, failover=fault.choice < 0.8)
        stream.shuffle(names)
        if stream.random() < 0.5:
            names.pop()
        delay_s = 0.2 + fault.duration_s
        for name in names:
            self.later(delay_s, partial(self.cluster.start, name))
            delay_s += stream.choice((0.0, 0.5, 3.0))

    # --- faults of a node ----------------------------------------------------------------------------

    def _strike_node(self, fault: Fault) -> bool:
        node = self.target(fault)
        if node is None or node.process is None:
            return False
        name, kind, process = node.name, fault.kind, node.process
        if kind is FaultKind.PART_CLIENTS:
            for client in self._clients:
                # cut one direction only: from the clients to the node, or the reverse
                if fault.choice < 0.8:
                    self.network.part(client, name, both_ways=fault.choice < 0.4)
                else:
                    self.network.part(name, client, both_ways=False)
            self.later(fault.duration_s, lambda: self._rejoin_clients(name))
        elif kind is FaultKind.ISOLATE:
            self._isolate(name, fault.choice)
            self.later(fault.duration_s, lambda: self.network.heal(name))
        elif kind is FaultKind.FLAP:
            self._flap(name, fault.choice, self.loop.time() + fault.duration_s)
        elif kind is FaultKind.RESET_CONNECTIONS:
            self.network.reset(name)
        elif kind is FaultKind.CLOCK_JUMP:
            node.skew.wall_ms += int((fault.choice - 0.5) * 7_200_000)
        elif kind is FaultKind.STORE_CUT_OFF:
            self._cut_off(node, fault)
        elif kind is FaultKind.PAUSE:
            process.pause()
            self.later(fault.duration_s, process.resume)
        elif kind in (FaultKind.LEASE_LOST, FaultKind.SHORT_ZOMBIE):
            # the next owner of the store removes files, and an operation on one of them fails
            self.expected |= {LockLost, DiskFailed, SegmentMissing}
            process.pause()
            lost_s, more_s = LEASE_S, fault.duration_s
            if kind is FaultKind.SHORT_ZOMBIE:
                lost_s, more_s = 0.01, 1.0 + 2.0 * fault.choice
            self.later(lost_s, partial(self._lose_lease, node, process))
            self.later(lost_s + more_s, process.resume)
        else:
            self._end_node(node, fault)
        return True

    def _isolate(self, name: str, choice: float) -> None:
        for other in (*self._clients, *self.others(), *self.cluster.nodes):
            if other == name:
                continue
            if choice < 0.75:
                self.network.part(other, name, both_ways=choice < 0.5)
            else:
                self.network.part(name, other, both_ways=False)

    def others(self) -> Sequence[str]:
        """Further hosts from which an isolated node is cut off."""
        return ()

    def _flap(self, name: str, choice: float, until_s: float) -> None:
        self._isolate(name, choice)
        self.later(0.3, lambda: self.network.heal(name))
        if self.loop.time() < until_s:
            self.later(0.5, lambda: self._flap(name, choice, until_s))

    def _cut_off(self, node: SimNode, fault: Fault) -> None:
        # an operation that failed may leave the node without its lock as well
        self.expected |= {DiskFailed, LockLost}
        volume, host = node.storage.volume, node.name
        volume.cut_off(host)
        process = node.process

        def expire() -> None:
            if node.process is process and volume.is_cut_off(host):
                node.storage.expire_leases(host)

        self.later(LEASE_S, expire)
        self.later(fault.duration_s, lambda: volume.join(host))

    def _end_node(self, node: SimNode, fault: Fault) -> None:
        cluster, name, kind = self.cluster, node.name, fault.kind
        node.down_s = fault.duration_s
        if kind is FaultKind.KILL:
            cluster.kill(name)
        elif kind is FaultKind.POWER_LOSS:
            cluster.power_off(name)
        elif kind is FaultKind.CRASH_IN_SNAPSHOT:
            death = Death.POWER_LOST if fault.choice < 0.5 else Death.KILLED
            cluster.crash_in_disk(name, fault.operations, death, lambda event: "snapshot" in event)
        elif kind is FaultKind.CRASH_IN_DISK:
            cluster.crash_in_disk(name, fault.operations, Death.POWER_LOST if fault.choice < 0.5 else Death.KILLED)
        else:
            cluster.stop(name, failover=fault.choice < 0.5)

    def _lose_lease(self, node: SimNode, process: SimProcess) -> None:
        if process.alive and process.paused:
            node.storage.expire_leases(process.host)

    def _restore_network(self) -> None:
        self.network.conditions = replace(self.plan.network)

    def _restore_storage(self) -> None:
        for storage in self._storages:
            storage.conditions.step_ms_max = self.plan.storage.step_ms_max

    def _rejoin_clients(self, name: str) -> None:
        for client in self._clients:
            self.network.heal(client, name)


_OF_ALL: Final = frozenset(
    {
        FaultKind.POWER_LOSS_OF_ALL,
        FaultKind.SLOW_NETWORK,
        FaultKind.SLOW_STORE,
        FaultKind.PART_NODES,
        FaultKind.SYNC_FAILS,
        FaultKind.DISK_FULL,
        FaultKind.DAMAGE,
        FaultKind.KILL_CLIENT,
        FaultKind.CRASH_IN_ACTIVATION,
        FaultKind.CRASH_IN_DEACTIVATION,
        FaultKind.RESTART_IN_ORDER,
        FaultKind.DISK_FAILS_IN_ACTIVATION,
        FaultKind.LOCK_TAKEN,
        FaultKind.PORT_IN_USE,
    }
)
