"""Costs and clocks of the shared-store policy (artemis-ha s. 2.2 to 2.6): how often it asks, the age of a proof.

Its decisions are in ``broker/tests/transcripts/ha``.
"""

from __future__ import annotations

import pytest

from understudy.errors import BrokerError, DescriptorsExhausted, DiskFailed, LockLost
from understudy.ha.life.node import NodeLife
from understudy.ha.life.policy import Compose, Decisions, Done, Role
from understudy.ha.shared.lock_proof import LOCK_ANSWER_MS, LOCK_PROOF_ATTEMPTS, LOCK_PROOF_MS, UNPROVED_MS, LockProof
from understudy.ha.shared.policy import LOCK_CHECK_MS, SharedStoreOptions, SharedStorePolicy
from understudy.ha.shared.store_claims import FAILBACK_GRACE_MS, LOCK_POLL_MS
from understudy.testing.manual_time import ManualTime


class Store:
    """The lock files of one store, shared by the nodes of a test."""

    def __init__(self) -> None:
        self.state = "0"
        self.released = False
        self.primary: Node | None = None
        self.backup: Node | None = None


class Node:
    """One node with its policy; implements both ports and records the requests."""

    def __init__(self, store: Store, time: ManualTime, role: Role) -> None:
        self.store = store
        self.serving = False
        self.following = False
        self.announced = False
        self.ended: list[BrokerError | None] = []
        self.lost_reason: str | None = None
        self.peers: list[Node] = []
        self._time = time
        self.options = SharedStoreOptions(role)
        self.life = NodeLife(self._policy, self, self)

    def _policy(self, life: Decisions) -> SharedStorePolicy:
        self.policy = SharedStorePolicy(
            self.options, life, self, self, LockProof(self, self._time), self._time, self._time
        )
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
        self.serving = True
        done(None)

    def deactivate(self, done: Done) -> None:
        self.serving = False
        self._time.call_later(5, lambda: done(None))

    def stopped(self, error: BrokerError | None) -> None:
        self.ended.append(error)

    # StoreLock
    def read_state(self) -> str:
        return self.store.state

    def write_state(self, state: str) -> None:
        self.read_state()
        self.store.state = state

    def touch(self) -> None:
        self.store.released = False

    def was_released(self) -> bool:
        return self.store.released or self.store.state in "0N"

    def note_release(self) -> None:
        self.store.released = True

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


def pair(time: ManualTime) -> tuple[Store, Node, Node]:
    store = Store()
    one, two = Node(store, time, Role.PRIMARY), Node(store, time, Role.BACKUP)
    one.peers, two.peers = [two], [one]
    one.life.start()
    two.life.start()
    time.advance(1_000)
    assert one.serving
    assert not two.serving
    return store, one, two


def taken_after_ms(time: ManualTime, node: Node) -> int:
    """Time until a node serves."""
    began_ms = time.monotonic_ms()
    while not node.serving:
        time.advance(1)
        assert time.monotonic_ms() - began_ms < 5_000
    return time.monotonic_ms() - began_ms


def test_a_lock_whose_owner_died_is_used_once_no_proof_of_it_is_valid(time: ManualTime) -> None:
    """The owner may have been killed, or it may have lost its lock and still run."""
    _, one, two = pair(time)
    one.crash()
    assert UNPROVED_MS > LOCK_PROOF_MS * 1.02
    assert UNPROVED_MS <= taken_after_ms(time, two) <= LOCK_POLL_MS + UNPROVED_MS + 5
    # a primary that starts after the death of the only other node waits, too
    two.crash()
    again = restarted(one, time)
    assert UNPROVED_MS <= taken_after_ms(time, again) <= UNPROVED_MS + 5


def test_a_lock_that_was_released_is_used_at_once(time: ManualTime) -> None:
    _, one, two = pair(time)
    one.life.stop(fail_over=True)
    time.advance(5)
    assert not one.serving
    assert taken_after_ms(time, two) <= LOCK_POLL_MS + 5
    again = restarted(one, time)
    time.advance(5_000)
    assert again.serving, "the failback"
    two.life.stop()
    again.life.stop()
    time.advance(100)
    assert taken_after_ms(time, restarted(again, time)) <= 5


def test_a_lock_that_is_lost_during_the_wait_is_given_up(time: ManualTime) -> None:
    _, one, two = pair(time)
    one.crash()
    time.advance(LOCK_POLL_MS)
    assert two.store.primary is two
    two.lost_reason = "the file was replaced"
    time.advance(UNPROVED_MS)
    assert not two.serving
    two.lost_reason = None
    assert taken_after_ms(time, two) <= 4 * LOCK_POLL_MS + UNPROVED_MS + 5


def test_a_primary_that_fails_to_activate_keeps_no_backup_waiting(time: ManualTime) -> None:
    """The primary has written F, by which a backup waits for it. It writes L when it fails, and a primary that cannot
    write does not begin the time of the backup anew with each attempt.
    """
    store, one, two = pair(time)
    one.life.stop()
    time.advance(100)
    broken = restarted(one, time)
    assert store.state == "F"
    broken.life.fail(DiskFailed("Input/output error"))
    time.advance(50)
    assert (store.state, store.primary) == ("L", None)
    assert taken_after_ms(time, two) <= 1_000 + LOCK_POLL_MS + UNPROVED_MS + 5


def test_a_primary_that_takes_the_store_again_and_again_keeps_no_backup_waiting(time: ManualTime) -> None:
    store, one, two = pair(time)
    one.crash()
    store.state = "F"
    began_ms = time.monotonic_ms()
    while not two.serving and time.monotonic_ms() - began_ms < 20_000:
        if store.primary is None:
            store.primary = one
            time.advance(450)
            one.release_primary()
        time.advance(1_000)
    assert two.serving
    assert time.monotonic_ms() - began_ms < 2 * FAILBACK_GRACE_MS


def restarted(node: Node, time: ManualTime) -> Node:
    again = Node(node.store, time, node.options.role)
    again.peers = node.peers
    for peer in node.peers:
        peer.peers = [again]
    again.life.start()
    return again


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
    assert UNPROVED_MS <= time.monotonic_ms() - began_ms <= 120 + UNPROVED_MS


def stopped_pair(time: ManualTime) -> tuple[Store, Node, Node]:
    """A pair whose primary was stopped cleanly."""
    store, one, two = pair(time)
    one.life.stop()
    time.advance(10_000)
    assert (store.state, store.primary, two.serving) == ("P", None, False)
    return store, one, two


def test_a_backup_takes_a_store_that_was_stopped_cleanly_on_request_only(time: ManualTime) -> None:
    _, one, two = stopped_pair(time)
    assert two.policy.stays_passive is not None
    assert two.life.take_stopped() is None
    time.advance(1_000)
    assert two.serving
    assert two.policy.stays_passive is None
    again = restarted(one, time)
    time.advance(LOCK_CHECK_MS + 1_000)
    assert again.serving, "the backup yields to it as after any take-over"
    again.life.stop()
    time.advance(10_000)
    assert not two.serving, "a request holds once"


def test_a_primary_that_returns_before_the_request_is_served_stays_active(time: ManualTime) -> None:
    store, one, two = stopped_pair(time)
    store.primary = Node(store, time, Role.PRIMARY)
    assert two.life.take_stopped() is None
    time.advance(5_000)
    assert not two.serving
    store.primary = None
    time.advance(5_000)
    assert not two.serving, "the request ended when the lock was taken"
    assert two.life.take_stopped() is None
    time.advance(1_000)
    assert two.serving
    assert one.ended == [None]


def test_a_node_that_cannot_or_need_not_be_activated_on_request_says_why(time: ManualTime) -> None:
    store, one, two = pair(time)
    assert one.life.take_stopped() == "the node is active"
    assert "activates by itself" in str(two.life.take_stopped())
    third = Node(store, time, Role.BACKUP)
    third.life.start()
    assert third.life.take_stopped() == "the node is passive, in line"
    other = Node(store, time, Role.PRIMARY)
    other.life.start()
    assert "not a backup" in str(other.life.take_stopped())


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


@pytest.mark.parametrize("slow_answers", [1, LOCK_PROOF_ATTEMPTS])
def test_a_proof_is_as_old_as_the_question(time: ManualTime, slow_answers: int) -> None:
    """A store that hangs while it is asked proves nothing about now: it is asked again, and not without limit."""
    _, one, _ = pair(time)
    one.policy._polling.cancel()  # only checks for a confirmation count here
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


def test_a_slow_check_is_no_proof_for_later_writes(time: ManualTime) -> None:
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
