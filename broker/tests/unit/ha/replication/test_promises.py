"""The promise of a replica not to take over: how long it counts at both nodes, and when it is given."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.local_files import StepWorker, given_promise, local_sequence
from understudy.errors import ActivationRefused, BrokerError
from understudy.ha.replication.given_promise import FILE_NAME, REMOVE_AFTER_MS
from understudy.ha.replication.lock_authority import LockAuthority, NodeData
from understudy.ha.replication.ports import Cause
from understudy.ha.replication.promotion import Promotion
from understudy.ha.replication.standing_lock import MARGIN_DIVISOR, PROMISE_MS
from understudy.limits import PROMISE_MS_MAX
from understudy.testing.manual_time import ManualTime
from understudy.testing.memory_locks import MemoryLockManager, MemoryService
from understudy.testing.sim.disk import SimVolume

LEASE_MS = 4_000
#: Time for which a promise counts at the active node.
COUNTS_MS = PROMISE_MS - PROMISE_MS // MARGIN_DIVISOR


class Node:
    """A node with its authority, and a lock that is renewed every second while ``renews`` is set."""

    def __init__(self, service: MemoryService, time: ManualTime, sequence: int) -> None:
        self.time = time
        self.service = service
        self.manager = MemoryLockManager(service, time, time)
        self.local, self.volume = local_sequence(sequence)
        self.local.load()
        self.authority = LockAuthority(
            self.manager,
            self.local,
            NodeData(lambda: "n", lambda: True, lambda: True),
            time,
            time,
            given_promise(time, self.volume),
        )
        self.answers: list[BrokerError | None] = []
        self.lost: list[BrokerError] = []
        self.proved = 0
        self.refusals: list[str | None] = []
        self.renews = True

    def ask(self, cause: Cause = Cause.START) -> None:
        self.authority.request(cause, self.answers.append)

    def activate(self) -> None:
        self.ask()
        self.time.advance(0)
        assert self.answers == [None]
        self.authority.claim(self.answers.append, alone=False)
        self.time.advance(0)
        self.authority.commit(self.answers.append)
        self.time.advance(0)
        assert self.answers == [None, None, None]
        self.authority.watch(self.lost.append, self._proved)
        self._renew()

    def _proved(self) -> None:
        self.proved += 1

    def _renew(self) -> None:
        lock = self.authority.fence_lock
        if self.renews and lock is not None:
            self.manager.lock("n").renew()
        self.time.call_later(1_000, self._renew)

    @property
    def may_confirm(self) -> bool:
        return self.authority.fence.why_not_confirm() is None


class Pair:
    """An active node and its replica in sync, whose link is a call. Implements ``ReplicaPromises``."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.service = MemoryService(lease_ms=LEASE_MS)
        self.service.numbers["n"] = 4
        self.active = Node(self.service, self.time, 4)
        self.active.activate()
        self.replica = Node(self.service, self.time, 5)
        self.linked = True
        self.asked = 0
        self.active.authority.synced(self)

    def ask_promise(self, number: int, sequence: int, duration_ms: int) -> None:
        self.asked += 1
        if self.linked:
            answer = self.active.authority.promised
            self.replica.authority.promise(sequence, duration_ms, lambda refusal: answer(number, refusal))

    def lose_manager(self) -> None:
        self.service.reachable = False

    def lose_link(self) -> None:
        self.linked = False
        self.active.authority.synced(None)


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_nothing_is_promised_while_the_lock_is_renewed_in_time(pair: Pair) -> None:
    pair.time.advance(60_000)
    assert pair.asked == 0
    assert not pair.replica.volume.disk("host").exists(f"/locks/{FILE_NAME}")


def test_the_active_node_goes_on_without_its_lock_manager_while_the_replica_promises(pair: Pair) -> None:
    pair.lose_manager()
    for _ in range(250):
        pair.time.advance(100)
        assert pair.active.may_confirm
    without = pair.active.authority.without_manager
    assert without is not None
    assert 25_000 - LEASE_MS - 1_000 <= without.for_ms <= 25_000
    assert pair.active.lost == []
    pair.service.reachable = True
    pair.time.advance(1_000)
    assert pair.active.authority.fence_lock is not None
    assert pair.active.authority.without_manager is None
    assert pair.active.proved == 1


def test_without_a_replica_the_active_node_ends_with_its_lease(pair: Pair) -> None:
    pair.active.authority.synced(None)
    pair.lose_manager()
    pair.time.advance(LEASE_MS + 1_100)
    assert len(pair.active.lost) == 1
    assert not pair.active.may_confirm


def test_the_promise_ends_at_the_active_node_before_it_ends_at_the_replica(pair: Pair) -> None:
    pair.lose_manager()
    pair.time.advance(20_000)
    pair.lose_link()
    lost_ms = pair.time.monotonic_ms()
    pair.replica.ask(Cause.LOST)
    pair.service.reachable = True
    pair.active.manager.service = MemoryService(reachable=False)
    while pair.replica.answers == []:
        pair.time.advance(10)
        assert not (pair.active.may_confirm and pair.replica.may_confirm)
    assert pair.replica.answers == [None]
    assert pair.time.monotonic_ms() - lost_ms <= PROMISE_MS + 100
    assert len(pair.active.lost) == 1


def test_an_active_node_that_has_stopped_gives_the_promise_back(pair: Pair) -> None:
    pair.lose_manager()
    pair.time.advance(10_000)
    pair.active.authority.close()
    pair.service.reachable = True
    pair.replica.ask(Cause.TOLD)
    pair.time.advance(300)
    assert pair.replica.answers == [None]


@pytest.mark.parametrize(
    ("sequence", "duration_ms", "reason"),
    [(6, 5_000, "the activation sequence here is 5"), (5, 0, "0 ms"), (5, PROMISE_MS_MAX + 1, "ms; 1 to")],
)
def test_a_promise_is_refused(pair: Pair, sequence: int, duration_ms: int, reason: str) -> None:
    refusals: list[str | None] = []
    pair.replica.authority.promise(sequence, duration_ms, refusals.append)
    (refusal,) = refusals
    assert refusal is not None
    assert reason in refusal


def test_a_node_that_requests_the_lock_promises_nothing(pair: Pair) -> None:
    pair.replica.ask(Cause.LOST)
    refusals: list[str | None] = []
    pair.replica.authority.promise(5, 5_000, refusals.append)
    assert refusals == ["this node requests the lock"]


def test_the_claim_of_a_node_that_lost_its_replica_waits_for_the_lock_within_the_promise(pair: Pair) -> None:
    pair.lose_manager()
    pair.time.advance(10_000)
    pair.lose_link()
    claimed: list[BrokerError | None] = []
    pair.active.authority.claim(claimed.append, alone=True)
    pair.time.advance(2_000)
    assert claimed == []
    pair.service.reachable = True
    pair.time.advance(1_000)
    assert claimed == [None]
    assert pair.service.numbers["n"] == 6
    # the promise of the former replica says nothing about the next one
    pair.active.renews = False
    pair.time.advance(LEASE_MS + 1)
    assert not pair.active.may_confirm


def test_a_node_that_is_stopped_while_its_claim_waits_for_the_lock_claims_nothing_later(pair: Pair) -> None:
    pair.lose_manager()
    pair.time.advance(10_000)
    pair.lose_link()
    claimed: list[BrokerError | None] = []
    pair.active.authority.claim(claimed.append, alone=True)
    ended: list[bool] = []
    pair.active.authority.take_back(lambda: ended.append(True), served=True)
    assert ended == [True]
    pair.service.reachable = True
    pair.time.advance(1_000)
    assert (claimed, pair.service.numbers["n"]) == ([], 5)


def test_an_active_node_without_replica_and_lock_ends_with_the_promise(pair: Pair) -> None:
    pair.lose_manager()
    pair.time.advance(10_000)
    pair.lose_link()
    pair.active.authority.claim(lambda error: None, alone=True)
    pair.time.advance(COUNTS_MS + 1)
    assert len(pair.active.lost) == 1


def test_an_active_node_ends_when_the_activation_sequence_has_changed(pair: Pair) -> None:
    pair.lose_manager()
    pair.time.advance(10_000)
    pair.service.numbers["n"] = 9
    pair.service.reachable = True
    pair.time.advance(1_000)
    (error,) = pair.active.lost
    assert isinstance(error, ActivationRefused)
    assert not pair.active.may_confirm


def test_a_process_that_finds_the_note_of_a_promise_waits_as_long(pair: Pair) -> None:
    pair.lose_manager()
    pair.time.advance(10_000)
    again = Node(pair.service, pair.time, 5)
    again.authority = LockAuthority(
        again.manager,
        again.local,
        NodeData(lambda: "n", lambda: True, lambda: True),
        pair.time,
        pair.time,
        given_promise(pair.time, pair.replica.volume),
    )
    pair.service.reachable = True
    pair.service.holders.clear()
    pair.active.renews = False
    pair.active.authority.close()
    again.ask()
    pair.time.advance(PROMISE_MS - 1)
    assert again.answers == []
    outcomes: list[Promotion | BrokerError] = []
    again.authority.promote(outcomes.append)
    assert isinstance(outcomes[0], BrokerError)
    pair.time.advance(200)
    assert again.answers == [None]


def test_the_note_is_on_the_disk_before_the_promise_is_given_and_removed_after_it() -> None:
    time, volume, worker = ManualTime(), SimVolume(), StepWorker()
    promise = given_promise(time, volume, worker)
    given: list[BaseException | None] = []
    steps: list[Callable[[], None]] = [worker.step, worker.step]
    promise.give(5_000, given.append)
    steps[0]()
    assert volume.disk("host").exists(f"/locks/{FILE_NAME}")
    assert given == []
    steps[1]()
    assert given == [None]
    promise.give(5_000, given.append)
    assert (given, worker.jobs) == ([None, None], []), "one note for a series of promises"
    time.advance(5_000 + REMOVE_AFTER_MS)
    promise.give(5_000, given.append)
    assert len(given) == 2, "the note is being removed: another one follows"
    for _ in range(4):
        worker.step()
    assert len(given) == 3
    assert volume.disk("host").exists(f"/locks/{FILE_NAME}")
    time.advance(5_000 + REMOVE_AFTER_MS)
    worker.step()
    assert not volume.disk("host").exists(f"/locks/{FILE_NAME}")


def test_a_damaged_note_counts_as_the_longest_promise() -> None:
    time, volume = ManualTime(), SimVolume()
    disk = volume.disk("host")
    disk.make_directory("/locks")
    disk.open(f"/locks/{FILE_NAME}", create=True).write(0, [b"x"])
    assert given_promise(time, volume).left_ms() == PROMISE_MS_MAX + 1


def test_a_failed_note_gives_no_promise_but_is_kept() -> None:
    time, volume, worker = ManualTime(), SimVolume(), StepWorker()
    promise = given_promise(time, volume, worker)
    given: list[BaseException | None] = []
    promise.give(5_000, given.append)
    work, done, _ = worker.jobs.pop()
    done(OSError("no space"))
    assert isinstance(given[0], OSError)
    assert work is not None
    assert promise.left_ms() > 0
