"""Any interleaving of nodes, requests, crashes and suspensions: one node confirms at a time, with the newest data.

Each node is an ``ActivationRequest`` and a ``SequenceClaim`` over a lock manager in memory, with a file of its own. The
driver decides which request is carried out, answered or lost, which step of a write happens, whether a node can open
its store, and which node crashes, is suspended, loses or gains its replica. A confirmed write must be in the data of
every node that activates later. In the end nodes with a broken disk keep no whole node from serving.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.local_files import StepWorker
from understudy.errors import ActivationRefused, BrokerError
from understudy.ha.locks import activation_sequence, sequence_verdict
from understudy.ha.locks.activation_sequence import ActivationRequest
from understudy.ha.locks.distributed_lock import DistributedLock
from understudy.ha.locks.lease import Lease
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.locks.sequence_claim import SequenceClaim
from understudy.ha.locks.sequence_verdict import Verdict, claim_of, newest
from understudy.testing.manual_time import ManualTime
from understudy.testing.memory_locks import MemoryLockManager, MemoryRequest, MemoryService
from understudy.testing.sim.disk import SimVolume

LEASE_MS = 6_000
#: Actions of ``World.do``; the more often one is listed, the more often it is drawn.
ACTIONS = (0, 0, 1, *[2] * 12, 5, 6, *[7] * 8, 9, 9, 9, 10, 11, 11, 11, *[12] * 4, 13, 13, 13, 13, 14, 15)


class NodeTime(ManualTime):
    """The clock that all share, with the timers of one node: they do not run while it is suspended."""

    def __init__(self, shared: ManualTime) -> None:
        super().__init__()
        self._shared = shared

    def monotonic_ms(self) -> int:
        return self._shared.monotonic_ms()

    def catch_up(self) -> None:
        """Run the timers that are due."""
        self.advance(self._shared.monotonic_ms() - self.now_ms)


@dataclass
class Host:
    """A node and its disk; the disk outlives the process."""

    number: int
    world: World
    volume: SimVolume
    data: set[int] = field(default_factory=set)
    """Writes in its store."""
    alive: bool = False
    suspended: bool = False
    claimed: bool = False
    """Whether the node is active without a replica and its sequence is committed."""
    active: bool = False
    opening: SequenceClaim | None = None
    """Claim of the node while it opens its store, otherwise None."""
    broken: bool = False
    """Whether the node can never open its store."""
    replica: Host | None = None
    """The node in sync with it."""
    waiting: set[int] = field(default_factory=set)
    """Writes that may not be confirmed before the claim."""

    def __post_init__(self) -> None:
        self.volume.disk("host").make_directory("/locks")
        self.time = NodeTime(self.world.time)
        self.refused: BrokerError | None = None

    def start(self) -> None:
        """Start the process, which requests the permission to activate."""
        self.alive, self.suspended, self.active, self.claimed, self.replica = True, False, False, False, None
        self.waiting = set()
        self.opening = None
        self.refused = None
        self.time = NodeTime(self.world.time)
        self.time.now_ms = self.world.time.monotonic_ms()
        self.worker = StepWorker()
        self.local = LocalSequence(self.volume.disk("host"), "/locks", self.worker)
        self.manager = MemoryLockManager(self.world.service, self.time, self.time, immediate=False)
        if self.local.load() is None:
            # a node without data asks for nothing: it needs an active node to copy
            return
        self.request()

    def request(self) -> None:
        """Request the permission."""
        request = ActivationRequest("n", self.manager, self.local, self.time, self.time, self.permitted)
        self.doing: ActivationRequest | SequenceClaim = request
        request.begin()

    def permitted(self, answer: DistributedLock | BrokerError) -> None:
        """The answer to the request."""
        if isinstance(answer, BrokerError):
            self.end(answer)
            return
        answer.lost = self.end
        assert isinstance(self.doing, ActivationRequest)
        claim = SequenceClaim("n", self.manager, self.local, self.doing.found)
        self.doing = claim

        def claimed(error: BrokerError | None) -> None:
            if error is not None:
                self.end(error)
            else:
                self.opening = claim

        claim.begin(claimed)

    def open(self, *, works: bool) -> None:
        """The store is open, or the activation fails."""
        claim, self.opening = self.opening, None
        assert claim is not None
        if works:
            claim.commit(partial(self.has_committed, claim))
        else:
            claim.take_back(self.give_up)

    def give_up(self) -> None:
        """Release the lock as a node that ends does."""
        self.manager.stop()
        self.end()

    def claim(self) -> None:
        """Claim and commit the next sequence, because the replica is lost."""
        assert self.local.value is not None
        claim = SequenceClaim("n", self.manager, self.local, self.local.value)
        self.doing = claim

        def claimed(error: BrokerError | None) -> None:
            if error is not None:
                self.end(error)
            else:
                claim.commit(partial(self.has_committed, claim))

        claim.begin(claimed)

    def has_committed(self, claim: SequenceClaim, error: BrokerError | None) -> None:
        """The answer to the commit: active without a replica."""
        if error is not None:
            self.end(error)
            return
        if not self.active:
            self.world.activated(self, claim.sequence)
        self.active = self.claimed = True
        waiting, self.waiting = self.waiting, set()
        for write in waiting:
            self.confirm(write)

    def confirm(self, write: int) -> None:
        """Confirm a write if the fence permits."""
        if self.manager.lock("n").fence.why_not_confirm() is None:
            self.world.confirmed(self, write)

    def write(self) -> None:
        """A client sends a message."""
        write = self.world.next_write()
        self.data.add(write)
        if self.replica is not None and self.replica.alive:
            self.replica.data.add(write)
            self.confirm(write)
        elif self.claimed:
            self.confirm(write)
        else:
            self.waiting.add(write)

    def replicate_to(self, other: Host) -> None:
        """The other node copies the data, and its sequence, and waits for the loss of this one."""
        assert other.local.value is None or not other.active
        other.data = set(self.data)
        other.local.write(self.local.value or 0, lambda error: None)
        other.worker.step()
        other.worker.step()
        self.replica, self.claimed = other, False

    def lose_replica(self) -> None:
        """The link is cut: the active node claims, the other node requests the permission."""
        replica, self.replica = self.replica, None
        if replica is not None and replica.alive:
            replica.request()
        self.claim()

    def end(self, error: BrokerError | None = None) -> None:
        """The process ends, or crashes: its requests on the way stay on the way."""
        if isinstance(error, ActivationRefused):
            self.refused = error
        self.alive = self.active = False
        self.opening = None
        for request in self.world.service.pending:
            if request.manager is self.manager:
                request.cancel()
                request._undo = None
        self.time._pending.clear()
        self.worker.jobs.clear()
        replica, self.replica = self.replica, None
        if replica is not None and replica.alive:
            replica.request()
        for host in self.world.hosts:
            if host.replica is self and host.alive:
                host.replica = None
                host.claim()


class World:
    """All nodes, the service and the promises."""

    def __init__(self, hosts: int) -> None:
        self.time = ManualTime()
        self.service = MemoryService(lease_ms=LEASE_MS)
        self.hosts = [Host(number, self, SimVolume()) for number in range(hosts)]
        for host in self.hosts:
            seed = LocalSequence(host.volume.disk("host"), "/locks", StepWorker(immediate=True))
            if host.number == 0:
                seed.write(0, lambda error: None)
        self.all_confirmed: set[int] = set()
        self.violations: list[str] = []
        self._writes = 0

    def next_write(self) -> int:
        """The number of a new write."""
        self._writes += 1
        return self._writes

    def activated(self, host: Host, sequence: int) -> None:
        """A node begins to serve."""
        missing = self.all_confirmed - host.data
        if missing:
            self.violations.append(f"node {host.number} activates with sequence {sequence} without {missing}")
        if newest(self.service.numbers.get("n", 0)) > sequence:
            self.violations.append(f"node {host.number} activates with the old sequence {sequence}")
        self.one_active(host)

    def confirmed(self, host: Host, write: int) -> None:
        """A node confirms a write."""
        self.all_confirmed.add(write)
        self.one_active(host)

    def one_active(self, host: Host) -> None:
        """No other node may confirm at this moment."""
        for other in self.hosts:
            if other is not host and other.active and other.alive:
                fence = other.manager.lock("n").fence
                if fence.why_not_confirm() is None:
                    self.violations.append(f"nodes {host.number} and {other.number} are active")

    def do(self, action: int, first: int, second: int) -> None:
        """One step."""
        host = self.hosts[first % len(self.hosts)]
        other = self.hosts[second % len(self.hosts)]
        pending = self.service.pending
        request: MemoryRequest | None = pending[second % len(pending)] if pending else None
        if action == 0 and not host.alive:
            host.start()
        elif action == 1 and host.alive and first % 3 == 0:
            host.end()
        elif action in (2, 5) and request is not None:
            request.carry_out()
            if action != 5 and not self.owner(request).suspended:
                request.deliver()
        elif action == 6 and request is not None and first % 4 == 0:
            request.lose()
        elif action == 7 and host.alive and host.worker.jobs and not host.suspended:
            host.worker.step()
        elif action == 9:
            self.pass_time(100 + 50 * (second % 60))
        elif action == 10 and host.alive:
            host.suspended = not host.suspended
            if not host.suspended:
                host.time.catch_up()
        elif action == 11 and host.active and not host.suspended:
            host.write()
        elif action in (12, 15) and host.opening is not None and not host.suspended:
            host.open(works=action == 12)
        elif action == 13 and host.active and not host.suspended:
            self.pair(host, other)
        elif action == 14 and host.active and host.replica is not None and not host.suspended:
            host.lose_replica()

    def pair(self, host: Host, other: Host) -> None:
        """The other node becomes the replica of this one."""
        if other is host or other.active or host.replica is not None or not host.claimed or host.waiting:
            return
        if other.alive:
            other.end()
        other.start()
        doing = getattr(other, "doing", None)
        if isinstance(doing, ActivationRequest):
            doing.cancel()
        host.replicate_to(other)

    def owner(self, request: MemoryRequest) -> Host:
        """The node that sent a request; the first one for those of ended processes."""
        for host in self.hosts:
            if host.alive and host.manager is request.manager:
                return host
        return self.hosts[0]

    def pass_time(self, duration_ms: int) -> None:
        """Time passes; active nodes renew their leases."""
        self.time.advance(duration_ms)
        for host in self.hosts:
            if host.alive and not host.suspended:
                host.time.catch_up()
                if host.alive and host.manager.lock("n").fence.held:
                    host.manager.lock("n").renew()

    def break_disks(self, stream: random.Random) -> None:
        """Some nodes cannot open their stores any more; one node that may have the newest data, and has it, can."""
        for host in self.hosts:
            if host.alive:
                host.end()
        for request in list(self.service.pending):
            request.carry_out()
            request.deliver()
        shared = self.service.numbers.get("n", 0)
        claim = claim_of(shared)
        base = shared if claim is None else claim.base
        whole = []
        for host in self.hosts:
            local = LocalSequence(host.volume.disk("host"), "/locks", StepWorker(immediate=True))
            found = local.load()
            if found is not None and found >= base and host.data >= self.all_confirmed:
                whole.append(host)
        kept = stream.choice(whole)
        for host in self.hosts:
            host.broken = host is not kept and stream.random() < 0.7

    def heal(self) -> bool:
        """Everything runs except broken disks: whether a node serves in the end."""
        for _ in range(400):
            for host in self.hosts:
                host.suspended = False
                if host.active and host.broken:
                    host.end()
                if not host.alive:
                    host.start()
            for request in list(self.service.pending):
                request.carry_out()
                request.deliver()
            for host in self.hosts:
                while host.alive and host.worker.jobs:
                    host.worker.step()
                if host.alive and host.opening is not None:
                    host.open(works=not host.broken)
            self.pass_time(250)
            if any(host.active and (host.claimed or host.replica is not None) for host in self.hosts):
                return True
        return False


Steps = list[tuple[int, int, int]]


def run(hosts: int, steps: Steps) -> World:
    """One run; the promises are checked at each step."""
    world = World(hosts)
    world.hosts[0].start()
    for step in steps:
        world.do(*step)
        if world.violations:
            break
    return world


@given(
    st.integers(2, 4),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 11), st.integers(0, 59)), max_size=200),
    st.none() | st.integers(0, 1_000),
)
def test_one_node_is_active_with_all_confirmed_writes_and_one_is_again_once_healed(
    hosts: int, steps: Steps, broken: int | None
) -> None:
    world = run(hosts, steps)
    assert world.violations == []
    if broken is not None:
        world.break_disks(random.Random(broken))
    assert world.heal(), "a node activates once everything runs"
    assert world.violations == []


def _random_run(seed: int, length: int = 400) -> World:
    stream = random.Random(seed)
    steps = [(stream.choice(ACTIONS), stream.randint(0, 11), stream.randint(0, 59)) for _ in range(length)]
    return run(stream.randint(2, 4), steps)


def test_long_random_runs_reach_failovers() -> None:
    """The runs are not trivial: sequences go on, writes are confirmed, nodes are refused."""
    reached = refused = 0
    for seed in range(60):
        world = _random_run(seed)
        assert world.violations == []
        assert world.heal()
        assert world.violations == []
        reached = max(reached, newest(world.service.numbers.get("n", 0)))
        refused += any(host.refused is not None for host in world.hosts)
    assert reached >= 4
    assert refused >= 5


_COMPARE = sequence_verdict.compare


def _one_behind_is_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose data is one sequence older may activate, and changes the number without comparing."""
    _change_without_comparing(monkeypatch)

    def wrong(shared: int, local: int) -> Verdict:
        return Verdict.IN_SYNC if shared == local + 1 else _COMPARE(shared, local)

    monkeypatch.setattr(activation_sequence, "compare", wrong)


def _change_without_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    def swap(service: MemoryService, number_id: str, expected: int, value: int) -> bool:
        service.numbers[number_id] = value
        return True

    monkeypatch.setattr(MemoryService, "swap", swap)


def _no_lock_before_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim is made, and its result used, without a lock that is provably held."""
    monkeypatch.setattr(SequenceClaim, "_why_not", lambda self: None)
    monkeypatch.setattr(Lease, "why_not_confirm", lambda self: None)


def _no_claim_after_the_loss_of_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active node goes on alone with the sequence that its replica has too."""

    def claim(self: Host) -> None:
        self.claimed = True
        waiting, self.waiting = self.waiting, set()
        for write in waiting:
            self.confirm(write)

    monkeypatch.setattr(Host, "claim", claim)


@pytest.mark.parametrize(
    "plant",
    [
        _one_behind_is_in_sync,
        _no_lock_before_the_claim,
        _no_claim_after_the_loss_of_the_replica,
    ],
)
def test_the_model_finds_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(_random_run(seed, 1_000).violations for seed in range(300))
