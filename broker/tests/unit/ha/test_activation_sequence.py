"""Activation sequence: the table of artemis-ha s. 4.2, requests for the permission, claims, and the local file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.local_files import StepWorker, local_sequence
from understudy.errors import ActivationRefused, BrokerError, DiskFailed, JournalCorrupt, LockLost
from understudy.ha.activation_sequence import ActivationRequest, State
from understudy.ha.distributed_lock import TRY_AGAIN_MS, DistributedLock, TimedAcquisition
from understudy.ha.local_sequence import FILE_NAME, LocalSequence
from understudy.ha.sequence_claim import SequenceClaim
from understudy.ha.sequence_verdict import SEQUENCE_MAX, Verdict, compare, refusal
from understudy.ha.sequence_wait import NextSequence
from understudy.testing.manual_time import ManualTime
from understudy.testing.memory_locks import MemoryLockManager, MemoryService
from understudy.testing.sim_disk import SimVolume


@pytest.mark.parametrize(
    ("shared", "local", "verdict"),
    [
        (0, 0, Verdict.IN_SYNC),
        (7, 7, Verdict.IN_SYNC),
        (8, 7, Verdict.STALE),
        (6, 7, Verdict.STALE),
        (0, 7, Verdict.STALE),
        (1, 0, Verdict.STALE),
        (-7, 7, Verdict.SELF_REPAIR),
        (-8, 7, Verdict.MAYBE_IN_SYNC),
        (-1, 0, Verdict.MAYBE_IN_SYNC),
        (-9, 7, Verdict.STALE),
        (-2, 0, Verdict.STALE),
        (-6, 7, Verdict.STALE),
        (-SEQUENCE_MAX, SEQUENCE_MAX, Verdict.SELF_REPAIR),
    ],
)
def test_verdicts(shared: int, local: int, verdict: Verdict) -> None:
    assert compare(shared, local) is verdict


@pytest.mark.parametrize(
    ("shared", "local", "texts"),
    [
        (9, 7, ["sequence 7", "newest is 9 according to", "whose data has the sequence 9"]),
        (-9, 7, ["newest is 9 (claimed, not committed)"]),
        (0, 7, ["has no activation sequence", "its data was lost", "right lock manager", "sequence to 7"]),
        (5, 7, ["has the activation sequence 5", "older copy"]),
        (-5, 7, ["has the activation sequence 5", "older copy"]),
    ],
)
def test_a_refusal_names_both_sequences_and_the_ways_to_go_on(shared: int, local: int, texts: list[str]) -> None:
    error = str(refusal("n1", "witness 10.0.0.3:61619", shared, local))
    for text in ("n1", "witness 10.0.0.3:61619", *texts):
        assert text in error


class Node:
    """One node with its own local number."""

    def __init__(self, service: MemoryService, time: ManualTime, value: int, *, immediate: bool = True) -> None:
        self.time = time
        self.manager = MemoryLockManager(service, time, time, immediate=immediate)
        self.local, self.volume = local_sequence(value)
        self.answers: list[DistributedLock | int | BrokerError] = []

    def request(self) -> ActivationRequest:
        """Begin to request the permission."""
        request = ActivationRequest("n", self.manager, self.local, self.time, self.time, self.answers.append)
        request.begin()
        return request

    def claim(self) -> SequenceClaim:
        """Begin to claim the next number."""
        claim = SequenceClaim("n", self.manager, self.local, self.answers.append)
        claim.begin()
        return claim

    @property
    def answer(self) -> Any:
        """The only answer so far."""
        (found,) = self.answers
        return found

    @property
    def holds(self) -> bool:
        """Whether the lock is provably held."""
        return self.manager.lock("n").fence.why_not_confirm() is None


def make(shared: int, *values: int, immediate: bool = True) -> tuple[MemoryService, ManualTime, list[Node]]:
    """A service with this number, and nodes with these."""
    service, time = MemoryService(numbers={"n": shared}), ManualTime()
    return service, time, [Node(service, time, value, immediate=immediate) for value in values]


@pytest.mark.parametrize(("shared", "local", "after"), [(0, 0, 0), (7, 7, 7), (-7, 7, 7), (-8, 7, 8)])
def test_the_newest_data_gets_the_permission_and_a_claim_left_unfinished_is_completed(
    shared: int, local: int, after: int
) -> None:
    service, time, (node,) = make(shared, local)
    request = node.request()
    time.advance(1)
    assert node.answer is node.manager.lock("n")
    assert request.state is State.ENDED
    assert service.numbers["n"] == node.local.value == node.local.load() == after
    assert node.holds
    node.answers.clear()
    node.claim()
    time.advance(1)
    assert node.answer == service.numbers["n"] == node.local.load() == after + 1


@pytest.mark.parametrize(("shared", "local"), [(8, 7), (6, 7), (0, 7), (-9, 7), (-6, 7)])
def test_stale_data_is_refused_without_the_lock(shared: int, local: int) -> None:
    service, time, (node,) = make(shared, local)
    node.request()
    time.advance(1)
    assert isinstance(node.answer, ActivationRefused)
    assert service.holders == {}
    assert service.numbers["n"] == shared


def test_data_in_sync_waits_for_the_lock_and_is_refused_once_its_holder_has_served_alone() -> None:
    _service, time, (one, two) = make(3, 3, 3)
    one.request()
    time.advance(1)
    two.request()
    time.advance(5_000)
    assert two.answers == [], "it waits as long as the data is in sync"
    one.answers.clear()
    one.claim()
    time.advance(3_000)
    assert one.answer == 4
    assert isinstance(two.answer, ActivationRefused)
    assert "newest is 4" in str(two.answer)


def test_the_number_is_read_again_with_the_lock() -> None:
    """The holder commits and ends between the first reading of another node and its lock."""
    service, _time, (node,) = make(3, 3, immediate=False)
    request = node.request()
    (read,) = service.pending
    read.carry_out()
    read.deliver()
    (acquire,) = service.pending
    service.numbers["n"] = 4
    acquire.carry_out()
    acquire.deliver()
    assert node.holds
    assert request.state is State.CHECKING
    (read,) = service.pending
    read.carry_out()
    read.deliver()
    assert request.state is State.RELEASING
    (release,) = service.pending
    release.carry_out()
    release.deliver()
    assert isinstance(node.answer, ActivationRefused)
    assert not node.holds
    assert service.holders == {}


def test_a_claim_that_is_not_committed_is_looked_at_again_while_the_lock_is_taken() -> None:
    service, time, (one, two) = make(3, 3, 3)
    one.request()
    time.advance(1)
    service.numbers["n"] = -4
    request = two.request()
    time.advance(100)
    assert request.state is State.PAUSED
    service.numbers["n"] = 4
    time.advance(200)
    assert isinstance(two.answer, ActivationRefused)


def test_another_node_that_changes_the_number_during_a_repair_is_noticed() -> None:
    service, _time, (node,) = make(-4, 3, immediate=False)
    request = node.request()
    for _ in range(3):
        (pending,) = service.pending
        pending.carry_out()
        pending.deliver()
    assert request.state is State.COMMITTING
    assert node.local.load() == 4
    service.numbers["n"] = -5
    (commit,) = service.pending
    commit.carry_out()
    commit.deliver()
    (read,) = service.pending
    service.numbers["n"] = 5
    read.carry_out()
    read.deliver()
    assert service.pending != []
    service.pending[0].deliver()
    assert isinstance(node.answer, ActivationRefused)
    assert service.numbers["n"] == 5


@pytest.mark.parametrize("step", range(4))
def test_an_error_of_the_lock_manager_is_the_answer_and_the_lock_is_released(step: int) -> None:
    service, _time, (node,) = make(-4, 3, immediate=False)
    node.request()
    for _ in range(step):
        (pending,) = service.pending
        pending.carry_out()
        pending.deliver()
    (pending,) = service.pending
    pending.lose()
    for pending in list(service.pending):
        pending.carry_out()
        pending.deliver()
    assert node.answer.code == "lock-manager-unavailable"
    assert not node.holds
    assert service.holders == {}


def test_a_lock_that_was_lost_in_a_long_pause_gives_no_permission() -> None:
    service, time, (node,) = make(3, 3, immediate=False)
    node.request()
    for _ in range(2):
        (pending,) = service.pending
        pending.carry_out()
        pending.deliver()
    (read,) = service.pending
    read.carry_out()
    time._now_ms += service.lease_ms + 1  # the node was suspended: no timer ran
    read.deliver()
    (release,) = service.pending
    release.deliver()
    assert isinstance(node.answer, LockLost)


def test_a_number_that_cannot_be_written_ends_the_node_and_its_next_start_repairs() -> None:
    service, time, (node,) = make(-4, 3)
    node.volume.fail_next_sync()
    node.request()
    time.advance(1)
    assert isinstance(node.answer, DiskFailed)
    assert "activation sequence 4" in str(node.answer)
    assert FILE_NAME in str(node.answer)
    assert "start this node before its partner" in str(node.answer)
    assert service.numbers["n"] == -4
    assert service.holders == {}
    node.answers.clear()
    assert node.local.load() in (3, 4)
    node.request()
    time.advance(1)
    assert node.answer is node.manager.lock("n")
    assert service.numbers["n"] == 4


@pytest.mark.parametrize("state", list(State))
def test_a_cancelled_request_gives_no_answer_and_leaves_no_lock(state: State) -> None:
    service, time, (node, holder) = make(-4, 3, 3, immediate=False)
    node.local._worker = worker = StepWorker()
    if state is State.PAUSED:
        service.holders["n"] = (holder, 10**9)
    if state is State.RELEASING:
        service.numbers["n"] = -5
        service.numbers["n"] = -4
    request = ActivationRequest("n", node.manager, node.local, time, time, node.answers.append)
    if state is not State.IDLE:
        request.begin()
    for _ in range(20):
        if request.state is state:
            break
        if service.pending:
            pending = service.pending[0]
            if request.state is State.CHECKING and state is State.RELEASING:
                service.numbers["n"] = 9
            pending.carry_out()
            pending.deliver()
        elif worker.jobs:
            worker.step()
    assert request.state is state
    node.answers.clear()
    request.cancel()
    for _ in range(10):
        for pending in list(service.pending):
            pending.carry_out()
            pending.deliver()
        if worker.jobs:
            worker.step()
        time.advance(100)
    assert node.answers == []
    if state is not State.ENDED:
        assert service.holders.get("n", (holder, 0))[0] is holder
        assert not node.holds


def _claim_fails(make_it_fail: Callable[[MemoryService, Node], object], step: int) -> tuple[MemoryService, Node]:
    service, _time, (node,) = make(3, 3, immediate=False)
    node.request()
    for _ in range(3):
        (pending,) = service.pending
        pending.carry_out()
        pending.deliver()
    node.answers.clear()
    if step == 0:
        make_it_fail(service, node)
    node.claim()
    for number in range(1, 6):
        if not service.pending:
            break
        pending = service.pending[0]
        if number == step:
            make_it_fail(service, node)
        if pending in service.pending:
            pending.carry_out()
            pending.deliver()
    return service, node


@pytest.mark.parametrize("step", [1, 2])
def test_a_claim_fails_when_another_node_has_changed_the_number(step: int) -> None:
    service, node = _claim_fails(lambda service, node: service.numbers.update(n=9), step)
    assert isinstance(node.answer, ActivationRefused)
    assert "is 9" in str(node.answer)
    assert service.numbers["n"] == 9


def test_a_claim_needs_the_lock() -> None:
    service, node = _claim_fails(lambda service, node: node.manager.lock("n").fence.lose("taken"), 0)
    assert isinstance(node.answer, LockLost)
    assert service.numbers["n"] == 3


def test_a_claim_whose_lock_was_lost_before_its_end_fails() -> None:
    """The number is committed; the node ends and may activate at its next start."""
    service, node = _claim_fails(lambda service, node: node.manager.lock("n").fence.lose("taken"), 2)
    assert isinstance(node.answer, LockLost)
    assert service.numbers["n"] == node.local.load() == 4


@pytest.mark.parametrize("step", [1, 2])
def test_a_claim_fails_with_the_error_of_the_lock_manager(step: int) -> None:
    _, node = _claim_fails(lambda service, node: service.pending[0].lose(), step)
    assert node.answer.code == "lock-manager-unavailable"


def test_a_claim_whose_number_cannot_be_written_is_not_committed() -> None:
    service, node = _claim_fails(lambda service, node: node.volume.fail_next_sync(), 1)
    assert isinstance(node.answer, DiskFailed)
    assert service.numbers["n"] == -4


def test_the_last_sequence_is_not_exceeded() -> None:
    _, time, (node,) = make(SEQUENCE_MAX, SEQUENCE_MAX)
    node.request()
    time.advance(1)
    node.answers.clear()
    node.claim()
    assert "has reached its end" in str(node.answer)


@pytest.mark.parametrize(
    ("shared", "seen"), [(3, False), (-4, False), (4, True), (9, True), (-5, True), (0, False), (-3, False)]
)
def test_waiting_for_the_next_sequence(shared: int, seen: bool) -> None:
    service, time, (node,) = make(3, 3)
    answers: list[bool | BrokerError] = []
    NextSequence(node.manager.number("n"), 3, 4_000, time, time, answers.append)
    time.advance(500)
    assert answers == []
    service.numbers["n"] = shared
    time.advance(4_000)
    assert answers == [seen]


def test_a_timed_acquisition_tries_every_250_ms_until_its_limit() -> None:
    service, time, (one, two) = make(0, 0, 0)
    service.holders["n"] = (one, 10**9)
    answers: list[bool | BrokerError] = []
    grants: list[int] = []
    grant = service.grant

    def counted(*arguments: Any) -> bool:
        grants.append(time.monotonic_ms())
        return grant(*arguments)

    service.grant = counted  # type: ignore[method-assign]  # counts the attempts
    TimedAcquisition(two.manager.lock("n"), 1_000, time, time, answers.append)
    time.advance(2_000)
    assert answers == [False]
    assert grants == [0, TRY_AGAIN_MS, 2 * TRY_AGAIN_MS, 3 * TRY_AGAIN_MS, 4 * TRY_AGAIN_MS]
    TimedAcquisition(two.manager.lock("n"), 1_000, time, time, answers.append)
    time.advance(300)
    del service.holders["n"]
    time.advance(300)
    assert answers == [False, True]


class TestLocalFile:
    """The file ``server.activation.sequence``."""

    def test_no_file_is_no_sequence(self) -> None:
        local, _ = local_sequence()
        assert local.load() is None

    def test_the_bytes_are_those_of_artemis(self) -> None:
        local, volume = local_sequence(0x0102030405060708)
        file = volume.disk("host").open(local.path, read_only=True)
        assert file.read(0, 100) == bytes(range(1, 9))
        assert local.path == "/locks/server.activation.sequence"

    @pytest.mark.parametrize(("data", "text"), [(b"", "0 bytes"), (b"\0" * 9, "9 bytes"), (b"\xff" * 8, "is -1")])
    def test_a_damaged_file_is_an_error_that_names_it(self, data: bytes, text: str) -> None:
        local, volume = local_sequence()
        file = volume.disk("host").open(local.path, create=True)
        file.write(0, [data])
        with pytest.raises(JournalCorrupt, match=text) as caught:
            local.load()
        assert caught.value.file == local.path

    def test_a_power_cut_at_any_operation_leaves_the_old_number_or_the_new_one(self) -> None:
        import random

        outcomes = set()
        for cut in range(1, 12):
            for seed in range(5):
                local, volume = local_sequence(3)
                volume.disk("host").sync_directory("/locks")
                left = [cut]

                def count(operation: str, left: list[int] = left) -> None:
                    left[0] -= 1
                    if left[0] <= 0:
                        raise DiskFailed("power cut")

                volume.before_operation = count
                failures: list[BaseException | None] = []
                local.write(4, failures.append)
                volume.before_operation = lambda operation: None
                volume.power_loss(random.Random(seed), "host")
                found = LocalSequence(volume.disk("host"), "/locks", StepWorker(immediate=True)).load()
                assert found == 4 if failures == [None] else found in (3, 4)
                outcomes.add(found)
                again = LocalSequence(volume.disk("host"), "/locks", StepWorker(immediate=True))
                again.write(5, failures.append)
                assert again.load() == 5
        assert outcomes == {3, 4}

    def test_erased_data_has_no_sequence(self) -> None:
        local, _ = local_sequence(3)
        errors: list[BaseException | None] = []
        local.erase(errors.append)
        local.erase(errors.append)
        assert errors == [None, None]
        assert local.value is None
        assert local.load() is None

    def test_changes_are_carried_out_one_after_the_other(self) -> None:
        local, volume = local_sequence()
        local._worker = worker = StepWorker()
        order: list[str] = []
        local.write(1, lambda error: order.append(f"1 {error}"))
        local.write(2, lambda error: order.append(f"2 {error}"))
        assert len(worker.jobs) == 1
        while worker.jobs:
            worker.step()
        assert order == ["1 None", "2 None"]
        assert local.load() == local.value == 2
        assert isinstance(volume, SimVolume)
