"""The shared-store policy against a lock and nodes moved by hand (artemis-ha s. 2.2 to 2.6)."""

from __future__ import annotations

import pytest

from understudy.errors import BrokerError, DescriptorsExhausted, DiskFailed, LockLost, LockTimedOut
from understudy.ha.lock_proof import LOCK_ANSWER_MS, LOCK_PROOF_ATTEMPTS, LOCK_PROOF_MS
from understudy.ha.node import NodeLife
from understudy.ha.policy import Compose, Decisions, Done, NodeState, Role
from understudy.ha.shared_store import LOCK_CHECK_MS, SharedStoreOptions, SharedStorePolicy
from understudy.ha.store_claims import FAILBACK_GRACE_MS
from understudy.testing.manual_time import ManualTime


class Store:
    """The lock files of one store, shared by the nodes of a test."""

    def __init__(self) -> None:
        self.state = "0"
        self.primary: Node | None = None
        self.backup: Node | None = None
        self.broken = False


class Node:
    """One node with its policy; implements both ports and records what it was asked."""

    def __init__(self, store: Store, time: ManualTime, role: Role, **options: object) -> None:
        self.store = store
        self.serving = False
        self.following = False
        self.announced = False
        self.ended: list[BrokerError | None] = []
        self.activation_error: BrokerError | None = None
        self.lost_reason: str | None = None
        self.peers: list[Node] = []
        self._time = time
        self.options = SharedStoreOptions(role, **options)  # type: ignore[arg-type]
        self.life = NodeLife(self._policy, self, self)

    def _policy(self, life: Decisions) -> SharedStorePolicy:
        self.policy = SharedStorePolicy(self.options, life, self, self, self._time, self._time)
        return self.policy

    def crash(self) -> None:
        """The process is gone: the operating system drops its locks, nothing else happens."""
        self.policy._polling.cancel()
        self.serving = self.following = self.announced = False
        self.release_primary()
        self.release_backup()

    # NodePort
    def follow(self) -> None:
        self.following = True

    def stop_following(self) -> None:
        self.following = False

    def announce(self) -> None:
        self.announced = True

    def withdraw(self) -> None:
        self.announced = False

    def peer_is_announced(self) -> bool:
        return any(peer.announced for peer in self.peers)

    def activate(self, compose: Compose, done: Done) -> None:
        for step in compose((), ()):
            step.do()
        self._time.call_later(5, lambda: self._activated(done))

    def _activated(self, done: Done) -> None:
        self.following = False
        self.serving = self.activation_error is None
        done(self.activation_error)

    def deactivate(self, done: Done) -> None:
        self.serving = False
        self._time.call_later(5, lambda: done(None))

    def stopped(self, error: BrokerError | None) -> None:
        self.ended.append(error)

    # StoreLock
    def read_state(self) -> str:
        if self.store.broken:
            raise DiskFailed("server.lock: input/output error")
        return self.store.state

    def write_state(self, state: str) -> None:
        self.read_state()
        self.store.state = state

    def touch(self) -> None: ...

    def try_primary(self) -> bool:
        self.read_state()
        self.store.primary = self.store.primary or self
        return self.store.primary is self

    def release_primary(self) -> None:
        if self.store.primary is self:
            self.store.primary = None

    def try_backup(self) -> bool:
        self.store.backup = self.store.backup or self
        return self.store.backup is self

    def release_backup(self) -> None:
        if self.store.backup is self:
            self.store.backup = None

    def lost(self) -> str | None:
        self.read_state()
        return self.lost_reason


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


def pair(time: ManualTime, *, backup: dict[str, object] | None = None, **primary: object) -> tuple[Store, Node, Node]:
    store = Store()
    one = Node(store, time, Role.PRIMARY, **primary)
    two = Node(store, time, Role.BACKUP, **(backup or {}))
    one.peers, two.peers = [two], [one]
    one.life.start()
    two.life.start()
    time.advance(1_000)
    assert one.serving
    assert not two.serving
    return store, one, two


def restarted(node: Node, time: ManualTime) -> Node:
    options = node.options
    again = Node(node.store, time, options.role, failover_on_shutdown=options.failover_on_shutdown)
    again.peers = node.peers
    for peer in node.peers:
        peer.peers = [again]
    again.life.start()
    return again


def test_primary_serves_and_backup_follows_announced(time: ManualTime) -> None:
    store, one, two = pair(time)
    assert store.state == "L"
    assert one.life.state is NodeState.ACTIVE
    assert two.life.state is NodeState.PASSIVE
    assert two.following
    assert two.announced


def test_backup_of_a_store_never_active_waits(time: ManualTime) -> None:
    two = Node(Store(), time, Role.BACKUP)
    two.life.start()
    time.advance(60_000)
    assert two.life.state is NodeState.PASSIVE


def test_crash_hands_over_within_the_poll(time: ManualTime) -> None:
    store, one, two = pair(time)
    one.crash()
    time.advance(150)
    assert two.serving
    assert store.state == "L"
    assert store.backup is None, "the next backup can queue up"


def test_clean_stop_without_failover_keeps_the_backup_passive(time: ManualTime) -> None:
    store, one, two = pair(time)
    one.life.stop()
    time.advance(60_000)
    assert one.ended == [None]
    assert store.state == "P"
    assert not two.serving


@pytest.mark.parametrize("configured", [True, False])
def test_clean_stop_with_failover_hands_over(time: ManualTime, configured: bool) -> None:
    store, one, two = pair(time, failover_on_shutdown=configured)
    one.life.stop(fail_over=not configured)
    time.advance(1_000)
    assert one.ended == [None]
    assert two.serving
    assert store.state == "L"


def test_returning_primary_gets_the_store_back(time: ManualTime) -> None:
    store, one, two = pair(time)
    one.crash()
    time.advance(1_000)
    again = restarted(one, time)
    time.advance(2_000)
    assert again.serving
    assert store.state == "L"
    assert two.life.state is NodeState.PASSIVE
    assert two.following
    assert not two.ended


def test_no_failback_before_the_primary_is_announced(time: ManualTime) -> None:
    _, one, two = pair(time)
    one.crash()
    time.advance(1_000)
    again = restarted(one, time)
    again.announced = False
    time.advance(10_000)
    assert two.serving
    again.announced = True
    time.advance(1_000)
    assert again.serving


def test_failback_not_allowed_waits_for_the_operator(time: ManualTime) -> None:
    store, one, two = pair(time, backup={"allow_failback": False})
    one.crash()
    time.advance(1_000)
    again = restarted(one, time)
    time.advance(60_000)
    assert two.serving
    two.life.stop()
    time.advance(1_000)
    assert again.serving
    assert store.state == "L"


def test_backup_that_may_not_restart_ends_after_failback(time: ManualTime) -> None:
    _, one, two = pair(time, backup={"restart_backup": False})
    one.crash()
    time.advance(1_000)
    restarted(one, time)
    time.advance(2_000)
    assert two.ended == [None]


def test_a_primary_that_requested_the_store_and_died_does_not_leave_the_pair_passive(time: ManualTime) -> None:
    _, one, two = pair(time)
    one.crash()
    time.advance(1_000)
    again = restarted(one, time)
    time.advance(2_000)
    # the primary got it; now it crashes while its next incarnation has just written F and died too
    again.crash()
    again.store.state = "F"
    time.advance(FAILBACK_GRACE_MS - 1_000)
    assert not two.serving
    time.advance(3_000)
    assert two.serving


def test_yielding_backup_takes_over_again_when_the_primary_dies_at_once(time: ManualTime) -> None:
    store, one, two = pair(time)
    one.crash()
    time.advance(1_000)
    again = restarted(one, time)
    while two.life.state is not NodeState.YIELDED:
        time.advance(1)
    again.crash()
    assert store.state == "F"
    time.advance(4 * FAILBACK_GRACE_MS)
    assert two.serving


def test_an_idle_backup_asks_for_the_lock_often_and_does_not_read_the_state(time: ManualTime) -> None:
    _, one, two = pair(time)
    reads, tries = [], []
    read_state, try_primary = two.read_state, two.try_primary
    two.read_state = lambda: reads.append(time.monotonic_ms()) or read_state()  # type: ignore[method-assign,func-returns-value]
    two.try_primary = lambda: tries.append(time.monotonic_ms()) or try_primary()  # type: ignore[method-assign,func-returns-value]
    time.advance(10_000)
    # the fake lock looks at the store's state in every try, too
    assert len(reads) == len(tries)
    assert 95 <= len(tries) <= 101
    one.crash()
    began_ms = time.monotonic_ms()
    while not two.serving:
        time.advance(1)
    assert time.monotonic_ms() - began_ms <= 120


def test_an_active_backup_looks_for_a_returning_primary_only_while_one_stands_by(time: ManualTime) -> None:
    _, one, two = pair(time)
    one.crash()
    time.advance(1_000)
    assert two.serving
    checks = []
    lost = two.lost
    two.lost = lambda: checks.append(time.monotonic_ms()) or lost()  # type: ignore[method-assign,func-returns-value]
    time.advance(10_000)
    assert len(checks) <= 10_000 // LOCK_CHECK_MS
    again = restarted(one, time)
    time.advance(LOCK_CHECK_MS + 1_000)
    assert again.serving
    assert not two.serving


def test_lost_lock_ends_the_node_and_leaves_the_store_owned(time: ManualTime) -> None:
    store, one, _ = pair(time)
    one.lost_reason = "server.lock was replaced"
    time.advance(LOCK_CHECK_MS + 10)
    assert isinstance(one.ended[0], LockLost)
    assert not one.serving
    assert store.state == "L"


def test_nothing_is_confirmed_on_an_old_proof(time: ManualTime) -> None:
    """A process that was stopped for long asks for its lock before it confirms what it wrote."""
    _, one, _ = pair(time)
    assert one.policy.fence.why_not_confirm() is None
    one.lost_reason = "another node activated"
    assert one.policy.fence.why_not_confirm() is None, "the last proof is fresh"
    one.policy._polling.cancel()  # the process is stopped: its timers do not run
    time.advance(LOCK_PROOF_MS + LOCK_CHECK_MS)
    assert isinstance(one.policy.fence.why_not_confirm(), LockLost)


@pytest.mark.parametrize("slow_answers", [1, LOCK_PROOF_ATTEMPTS])
def test_a_proof_is_as_old_as_the_question(time: ManualTime, slow_answers: int) -> None:
    """A store that hangs while it is asked proves nothing about now: it is asked again, and not without limit."""
    _, one, _ = pair(time)
    one.policy._polling.cancel()  # only what is asked for a confirmation counts here
    time.advance(LOCK_PROOF_MS + 1)
    asked = []

    def lost() -> None:
        asked.append(time.monotonic_ms())
        if len(asked) <= slow_answers:
            time.advance(LOCK_ANSWER_MS + 1)

    one.lost = lost  # type: ignore[method-assign]
    found = one.policy.fence.why_not_confirm()
    assert len(asked) == min(slow_answers + 1, LOCK_PROOF_ATTEMPTS)
    assert (found is None) == (slow_answers < LOCK_PROOF_ATTEMPTS)


def test_a_slow_check_is_no_proof_for_what_was_written_meanwhile(time: ManualTime) -> None:
    _, one, _ = pair(time)
    one.policy._polling.cancel()
    began_ms = time.monotonic_ms()
    answers = iter((LOCK_PROOF_MS + 1, 0))

    def lost() -> str | None:
        delay_ms = next(answers)
        time.advance(delay_ms)
        return None if delay_ms else "another node activated"

    one.lost = lost  # type: ignore[method-assign]
    one.policy._check_lock()
    assert time.monotonic_ms() > began_ms + LOCK_PROOF_MS
    assert isinstance(one.policy.fence.why_not_confirm(), LockLost)


@pytest.mark.parametrize("stopped_ms", [LOCK_PROOF_MS + 1, 900, 1_100, 2_900])
def test_a_process_that_was_stopped_between_two_checks_proves_its_lock_again(time: ManualTime, stopped_ms: int) -> None:
    _, one, _ = pair(time)
    assert one.policy.fence.why_not_confirm() is None
    one.policy._polling.cancel()
    time.advance(stopped_ms)
    one.lost_reason = "another node activated"
    assert isinstance(one.policy.fence.why_not_confirm(), LockLost)


def test_no_descriptor_left_is_not_a_lost_lock(time: ManualTime) -> None:
    """Nothing is confirmed without a proof, the node goes on, and the lock is asked about again."""
    _, one, _ = pair(time)

    def exhausted() -> str | None:
        raise DescriptorsExhausted("too many open files")

    one.lost = exhausted  # type: ignore[method-assign]
    time.advance(5 * LOCK_CHECK_MS)
    assert one.serving
    assert isinstance(one.policy.fence.why_not_confirm(), DescriptorsExhausted)
    del one.lost  # type: ignore[attr-defined]
    time.advance(LOCK_CHECK_MS)
    assert one.policy.fence.why_not_confirm() is None
    assert one.serving
    one.lost_reason = "server.lock was replaced"
    time.advance(LOCK_CHECK_MS + 10)
    assert isinstance(one.ended[0], LockLost)


def test_unreadable_store_ends_the_active_node(time: ManualTime) -> None:
    store, one, _ = pair(time)
    store.broken = True
    time.advance(LOCK_CHECK_MS + 10)
    assert isinstance(one.ended[0], DiskFailed)
    assert not one.serving


def test_failed_activation_releases_the_lock_and_says_why(time: ManualTime) -> None:
    store = Store()
    one = Node(store, time, Role.PRIMARY)
    one.activation_error = DiskFailed("no space")
    one.life.start()
    time.advance(100)
    assert one.ended == [one.activation_error]
    assert store.primary is None


def test_stop_while_activating_waits_for_the_activation(time: ManualTime) -> None:
    store = Store()
    one = Node(store, time, Role.PRIMARY_ONLY)
    one.life.start()
    assert one.life.state is NodeState.ACTIVATING
    one.life.stop()
    time.advance(100)
    assert one.ended == [None]
    assert store.state == "P"


def test_lock_timeout(time: ManualTime) -> None:
    store, _, _ = pair(time)
    third = Node(store, time, Role.PRIMARY, lock_timeout_ms=500)
    third.life.start()
    time.advance(1_000)
    assert isinstance(third.ended[0], LockTimedOut)


def test_a_second_backup_waits_for_the_first(time: ManualTime) -> None:
    store, one, two = pair(time)
    third = Node(store, time, Role.BACKUP)
    third.life.start()
    time.advance(1_000)
    assert third.life.state is NodeState.QUEUED
    assert not third.announced
    one.crash()
    time.advance(1_000)
    assert two.serving
    assert third.life.state is NodeState.PASSIVE
