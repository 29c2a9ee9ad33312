"""Nodes and a witness on a simulated network with cuts, crashes, pauses and skewed clocks: one holder at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from understudy.errors import BrokerError
from understudy.ha.distributed_lock import LockManager
from understudy.ha.witness import Witness
from understudy.ha.witness_client import WitnessClientOptions
from understudy.runtime.turn import Turn
from understudy.testing.planting import Patch
from understudy.testing.sim_environment import SimClock, SimEntropy, SimTimers, Skew
from understudy.testing.sim_loop import Death, SimLoop, SimProcess
from understudy.testing.sim_network import SimNetwork
from understudy.testing.sim_witness import SimWitness

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
        self.manager = self.run.witness.lock_manager(self.name, turn, clock, self.timers, entropy)
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

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(seed)
        self.stream = self.loop.random("faults")
        self.network = SimNetwork(self.loop)
        names = ["one", "two", "three"][: self.stream.randint(2, 3)]
        for host in (*names, "witness"):
            self.network.add_host(host)
        skew = Skew(boot_ms=5_000, rate=1 + self.stream.uniform(-0.004, 0.004))
        self.witness = SimWitness(self.loop, skew=skew)
        self.nodes = [HolderNode(self, name) for name in names]
        self.violations: list[str] = []
        self.counted = 0
        self.highest = 0
        self.holders = 0
        self._last_holder = ""

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
        kind = stream.randrange(9)
        if kind == 0:
            self.network.part(node.name, "witness", both_ways=stream.random() < 0.5)
        elif kind in (1, 2):
            self.network.heal()
        elif kind == 3:
            self.witness.kill(stream.choice((Death.KILLED, Death.POWER_LOST)))
            self.loop.call_later(stream.uniform(0.1, 8), self._start_witness)
        elif kind == 4 and node.process is not None:
            node.process.kill()
            self.loop.call_later(stream.uniform(0.1, 8), self._start_node, node)
        elif kind in (5, 6) and node.process is not None:
            process = node.process
            process.pause()
            self.loop.call_later(stream.uniform(0.1, 12), process.resume)
        elif kind == 7 and self.witness.process is not None:
            process = self.witness.process
            process.pause()
            self.loop.call_later(stream.uniform(0.1, 12), process.resume)
        elif kind == 8:
            death = stream.choice((Death.KILLED, Death.POWER_LOST))
            self.witness.crash_point.arm(stream.randint(1, 6), lambda: self.witness.kill(death))
            self.loop.call_later(stream.uniform(1, 8), self._start_witness)

    def _start_witness(self) -> None:
        self.witness.crash_point.disarm()
        self.witness.start()

    def _start_node(self, node: HolderNode) -> None:
        if node.process is None or not node.process.alive:
            node.start()

    def go(self) -> None:
        """Run the faults, then heal everything and wait for a holder."""
        self.witness.start()
        for node in self.nodes:
            node.start()
        at_s = 12.0
        while at_s < FAULTS_S:
            self.loop.call_later(at_s, self.fault)
            at_s += self.stream.expovariate(1 / 4)
        self.loop.run_until(self._step, deadline=FAULTS_S)
        self.network.heal()
        for process in (self.witness.process, *(node.process for node in self.nodes)):
            if process is not None:
                process.resume()
        self._start_witness()
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


def violations(seed: int) -> list[str]:
    """Of one run."""
    run = Run(seed)
    run.go()
    return run.violations


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 40))])
def test_one_node_holds_the_lock_and_one_does_again_once_healed(seed: int) -> None:
    assert violations(seed) == []


def test_the_runs_see_failovers() -> None:
    """The runs are not trivial: the lock goes from node to node, and numbers are changed."""
    holders = counted = 0
    for seed in (4, 7):
        run = Run(seed)
        run.go()
        holders, counted = holders + run.holders, counted + run.counted
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
