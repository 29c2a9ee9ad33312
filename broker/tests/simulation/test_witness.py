"""Nodes and a witness on a simulated network with cuts, crashes, pauses and skewed clocks: one holder at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from planted.planting import Patch
from understudy.errors import BrokerError
from understudy.ha.locks.distributed_lock import LockManager
from understudy.ha.witness.group import WitnessGroup
from understudy.ha.witness.options import GroupConfiguration, WitnessClientOptions
from understudy.ha.witness.service import Witness
from understudy.runtime.base.turn import Turn
from understudy.runtime.locks import witness_groups
from understudy.runtime.locks.witness_groups import replace
from understudy.testing.sim.environment import SimClock, SimEntropy, SimTimers, Skew
from understudy.testing.sim.loop import Death, SimLoop, SimProcess
from understudy.testing.sim.network import SimNetwork
from understudy.testing.sim.witness import SimWitness
from understudy.testing.sim.witnessed_storage import operator

FAULTS_S = 120
#: After the faults one node must hold the lock within this time: the wait of the witness after a start, a lease, and
#: some attempts to connect.
HEALED_S = 40


class HolderNode:
    """A node that wants the lock, and counts in the number while it holds it."""

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.name = name
        stream = run.stream
        self.skew = Skew(boot_ms=stream.randrange(10**9), rate=1 + stream.uniform(-0.004, 0.004))
        self.process: SimProcess | None = None
        self.manager: LockManager | None = None
        self.attempting = False
        """A request for the lock has no answer."""

    def start(self) -> None:
        """Start the process."""
        process = self.process = self.run.loop.new_process(self.name)
        process.call(self._begin, process)

    def _begin(self, process: SimProcess) -> None:
        loop = self.run.loop
        clock, self.timers = SimClock(loop, self.skew), SimTimers(loop, self.skew)
        turn = Turn(loop, self.timers, lambda: clock.monotonic_ms() * 1_000_000)
        entropy = SimEntropy(loop.random(f"entropy {process.label}"))
        group = GroupConfiguration() if len(self.run.witnesses) > 1 else None
        members = [
            each.lock_manager(self.name, turn, clock, self.timers, entropy, group) for each in self.run.witnesses
        ]
        self.manager = members[0] if group is None else WitnessGroup(members, clock, self.timers, entropy)
        self.attempting = False
        self.manager.start(self)

    def available(self) -> None:
        """Ask for the lock."""
        self._try()

    def unavailable(self, error: BrokerError) -> None:
        """Start over."""
        assert self.manager is not None
        self.timers.call_later(500, lambda: self.manager.start(self) if self.manager else None)

    def _try(self) -> None:
        assert self.manager is not None
        lock = self.manager.lock("n")
        if not self.attempting and not lock.fence.held:
            self.attempting = True
            lock.try_acquire(self._tried)

    def _tried(self, result: bool | BrokerError) -> None:
        assert self.manager is not None
        self.attempting = False
        if result is True:
            self.manager.lock("n").lost = lambda error: self._again()
            self._count()
        else:
            self._again()

    def _again(self) -> None:
        manager = self.manager
        self.timers.call_later(250, lambda: self._try() if manager is self.manager else None)

    def _count(self) -> None:
        assert self.manager is not None
        # an answer that reaches a paused process late is as old as its request
        asked = self.run.highest
        self.manager.number("n").get(lambda value: self._read(asked, value))

    def _read(self, asked: int, value: int | BrokerError) -> None:
        assert self.manager is not None
        if isinstance(value, BrokerError):
            self.timers.call_later(100, self._count_if_held)
            return
        self.run.seen(value, asked)
        self.manager.number("n").compare_and_set(value, value + 1, lambda result: self._counted(value + 1, result))

    def _counted(self, value: int, result: bool | BrokerError) -> None:
        if result is True:
            self.run.counted += 1
            self.run.seen(value, 0)
        self.timers.call_later(100, self._count_if_held)

    def _count_if_held(self) -> None:
        if self.permits():
            self._count()

    def permits(self) -> bool:
        """Whether it may confirm now. A paused process confirms nothing."""
        if self.manager is None or self.process is None or not self.process.alive or self.process.paused:
            return False
        return self.manager.lock("n").fence.why_not_confirm() is None


class Run:
    """One run of a seed."""

    def __init__(self, seed: int, members: int = 1) -> None:
        self.loop = SimLoop(seed)
        self.stream = self.loop.random("faults")
        self.network = SimNetwork(self.loop)
        names = ["one", "two", "three"][: self.stream.randint(2, 3)]
        hosts = ["witness"] if members == 1 else [f"witness{number}" for number in range(members)]
        for host in (*names, *hosts, "operator"):
            self.network.add_host(host)
        self.witnesses = [self._make_witness(host, bytes(range(16)) if members > 1 else b"") for host in hosts]
        self.replacing: SimWitness | None = None
        """A member that has lost its state and has not joined again."""
        self.replaced = 0
        self.nodes = [HolderNode(self, name) for name in names]
        self.violations: list[str] = []
        self.counted = 0
        self.highest = 0
        self.holders = 0
        self._last_holder = ""

    def _make_witness(self, host: str, group: bytes) -> SimWitness:
        skew = Skew(boot_ms=5_000, rate=1 + self.stream.uniform(-0.004, 0.004))
        return SimWitness(self.loop, host, skew=skew, group=group)

    @property
    def witness(self) -> SimWitness:
        """The one that a fault strikes."""
        return self.witnesses[0] if len(self.witnesses) == 1 else self.stream.choice(self.witnesses)

    def seen(self, value: int, asked: int) -> None:
        """A number was read or changed: it does not go back to before the highest one at the time of the request."""
        if value < asked:
            self.violations.append(f"the number went from {asked} to {value}")
        self.highest = max(self.highest, value)

    def look(self) -> None:
        """At most one node may confirm at this moment."""
        holders = [node.name for node in self.nodes if node.permits()]
        if len(holders) > 1:
            self.violations.append(f"{self.loop.time():.3f}: {holders} hold the lock")
        elif holders and holders[0] != self._last_holder:
            self.holders += 1
            self._last_holder = holders[0]

    def fault(self) -> None:
        """One fault, or the end of one."""
        stream, node = self.stream, self.stream.choice(self.nodes)
        kind, witness = stream.randrange(9 if len(self.witnesses) == 1 else 11), self.witness
        if kind == 0:
            self.network.part(node.name, witness.host, both_ways=stream.random() < 0.5)
        elif kind in (1, 2):
            self.network.heal()
        elif kind == 3:
            witness.kill(stream.choice((Death.KILLED, Death.POWER_LOST)))
            self.loop.call_later(stream.uniform(0.1, 8), self._start_witness, witness)
        elif kind == 4 and node.process is not None:
            node.process.kill()
            self.loop.call_later(stream.uniform(0.1, 8), self._start_node, node)
        elif kind in (5, 6) and node.process is not None:
            process = node.process
            process.pause()
            self.loop.call_later(stream.uniform(0.1, 12), process.resume)
        elif kind == 7 and witness.process is not None:
            process = witness.process
            process.pause()
            self.loop.call_later(stream.uniform(0.1, 12), process.resume)
        elif kind == 8:
            death = stream.choice((Death.KILLED, Death.POWER_LOST))
            witness.crash_point.arm(stream.randint(1, 6), lambda: witness.kill(death))
            self.loop.call_later(stream.uniform(1, 8), self._start_witness, witness)
        elif kind > 8 and self.replacing is None:
            self.replacing = witness
            witness.kill()
            witness.lose_state()
            self.loop.call_later(stream.uniform(0.1, 2), self._start_witness, witness)
            self.loop.call_later(stream.uniform(0.5, 8), self._replace)

    def _start_witness(self, witness: SimWitness) -> None:
        witness.crash_point.disarm()
        witness.start()

    def _replace(self) -> None:
        """Let the member without state join again, repeated until it has."""
        (process, requests), joining = operator(self.loop), self.replacing
        assert joining is not None

        async def work() -> None:
            try:
                await replace(requests.ask, [each.place for each in self.witnesses], joining.place)
            except BrokerError:
                self.loop.call_later(1.0, self._replace)
            else:
                self.replacing = None
                self.replaced += 1

        process.create_task(work())

    def _start_node(self, node: HolderNode) -> None:
        if node.process is None or not node.process.alive:
            node.start()

    def go(self) -> None:
        """Run the faults, then heal everything and wait for a holder."""
        for witness in self.witnesses:
            witness.start()
        for node in self.nodes:
            node.start()
        at_s = 12.0
        while at_s < FAULTS_S:
            self.loop.call_later(at_s, self.fault)
            at_s += self.stream.expovariate(1 / 4)
        self.loop.run_until(self._step, deadline=FAULTS_S)
        self.network.heal()
        for process in [each.process for each in (*self.witnesses, *self.nodes)]:
            if process is not None:
                process.resume()
        for witness in self.witnesses:
            self._start_witness(witness)
        for node in self.nodes:
            self._start_node(node)
        held = self.loop.run_until(lambda: self._step() or self._served(), deadline=FAULTS_S + HEALED_S)
        if not held:
            self.violations.append("no node holds the lock after the faults")
        self.violations += [str(failure) for failure in self.loop.failures]
        self.loop.close()

    def _served(self) -> bool:
        return self.loop.time() > FAULTS_S + 12 and any(node.permits() for node in self.nodes)

    def _step(self) -> bool:
        self.look()
        return bool(self.violations)


def violations(seed: int, members: int = 1) -> list[str]:
    """Violations in the run of one seed."""
    run = Run(seed, members)
    run.go()
    return run.violations


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 40))])
@pytest.mark.parametrize("members", [1, 3])
def test_one_node_holds_the_lock_and_one_does_again_once_healed(members: int, seed: int) -> None:
    assert violations(seed, members) == []


@pytest.mark.parametrize("members", [1, 3])
def test_the_runs_see_failovers(members: int) -> None:
    """The runs are not trivial: the lock goes from node to node, numbers are changed, members replaced."""
    holders = counted = replaced = 0
    for seed in (4, 7, 8):
        run = Run(seed, members)
        run.go()
        holders, counted, replaced = holders + run.holders, counted + run.counted, replaced + run.replaced
    assert replaced > 0 or members == 1
    assert holders > 5
    assert counted > 300


def _lease_from_the_answer(patch: Patch) -> None:
    """The client counts a lease that is longer than the one of the witness."""
    patch.replace(WitnessClientOptions, "proof_ms", property(lambda self: self.lease_ms * 3 // 2))


def _no_wait_after_a_start(patch: Patch) -> None:
    """The witness grants at once after a start, and forgets its holders."""
    old: Any = patch.replace(Witness, "__init__", None)

    def begin(self: Any, state: Any, *arguments: Any) -> None:
        state.holders.clear()
        old(self, state, *arguments)
        self._grants_from_ms = 0

    Witness.__init__ = begin  # type: ignore[method-assign]  # restored by the patch


def _answer_before_the_write(patch: Patch) -> None:
    """Answers do not wait for the disk."""

    def handle(self: Any, request: Any, client: str, answer: Any) -> None:
        result = self._carry_out(request, client)
        self._begin_save()
        answer(result)

    old: Any = patch.replace(Witness, "handle", None)

    def either(self: Any, request: Any, client: str, answer: Any) -> None:
        (handle if request.id else old)(self, request, client, answer)

    Witness.handle = either  # type: ignore[method-assign]  # restored by the patch


@pytest.mark.parametrize(
    ("plant", "first"), [(_lease_from_the_answer, 4), (_no_wait_after_a_start, 1), (_answer_before_the_write, 0)]
)
def test_planted_bugs_are_found(plant: Callable[[Patch], None], first: int) -> None:
    patch = Patch()
    plant(patch)
    try:
        assert any(violations(seed) for seed in range(first, first + 6))
    finally:
        patch.restore()


def test_a_run_depends_on_its_seed_only() -> None:
    assert random.Random("5/faults").random() == SimLoop(5).random("faults").random()
    one, two = Run(5), Run(5)
    one.go()
    two.go()
    assert one.loop.trace.digest() == two.loop.trace.digest()


def _no_wait_after_joining(patch: Patch) -> None:
    """A new member of a group grants locks as soon as it has joined, although leases of the one before still count."""

    def form(self: Any, request: Any, client: str) -> Any:
        answer = old(self, request, client)
        self._grants_from_ms = 0
        return answer

    old: Any = patch.replace(Witness, "_form", form)
    no_wait: Any = patch.replace(Witness, "__init__", None)

    def begin(self: Any, state: Any, *arguments: Any) -> None:
        no_wait(self, state, *arguments)
        if not state.configuration:
            self._grants_from_ms = 0

    Witness.__init__ = begin  # type: ignore[method-assign]  # restored by the patch


def _any_lease_is_enough(patch: Patch) -> None:
    """One lease of a group counts as a majority."""
    patch.replace(WitnessGroup, "__init__", _with_majority_of_one(WitnessGroup.__init__))


def _with_majority_of_one(old: Any) -> Any:
    def begin(self: Any, *arguments: Any) -> None:
        old(self, *arguments)
        self.majority = 1

    return begin


def _forgetting_joins(patch: Patch) -> None:
    """A new member of a group joins without the numbers of the others, which lose theirs in turn."""
    patch.replace(witness_groups, "_export", _export_nothing)


async def _export_nothing(ask: Any, place: Any) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (_no_wait_after_joining, 0),
        (_any_lease_is_enough, 0),
        pytest.param(_forgetting_joins, 5, marks=pytest.mark.long),
    ],
)
def test_planted_bugs_of_a_group_are_found(plant: Callable[[Patch], None], seed: int) -> None:
    patch = Patch()
    plant(patch)
    try:
        assert violations(seed, 3)
    finally:
        patch.restore()
