"""Activation sequence: the table of artemis-ha s. 4.2, requests for the permission, claims, and the local file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from support.local_files import StepWorker, local_sequence
from understudy.errors import ActivationRefused, BrokerError, DiskFailed, JournalCorrupt, LockLost
from understudy.ha.locks.activation_sequence import ActivationRequest, State
from understudy.ha.locks.distributed_lock import TRY_AGAIN_MS, DistributedLock, TimedAcquisition
from understudy.ha.locks.local_sequence import FILE_NAME, LocalSequence
from understudy.ha.locks.sequence_claim import SequenceClaim
from understudy.ha.locks.sequence_claim import State as ClaimState
from understudy.ha.locks.sequence_verdict import (
    ATTEMPTS_MAX,
    SEQUENCE_MAX,
    Claim,
    Verdict,
    claim_of,
    compare,
    newest,
    next_claim,
    refusal,
)
from understudy.ha.locks.sequence_wait import NextSequence
from understudy.testing.manual_time import ManualTime
from understudy.testing.memory_locks import MemoryLockManager, MemoryService
from understudy.testing.sim.disk import SimVolume


@pytest.mark.parametrize(
    ("shared", "local", "verdict"),
    [
        (0, 0, Verdict.IN_SYNC),
        (7, 7, Verdict.IN_SYNC),
        (8, 7, Verdict.STALE),
        (6, 7, Verdict.STALE),
        (0, 7, Verdict.STALE),
        (1, 0, Verdict.STALE),
        (-7, 7, Verdict.NOT_SERVED),
        (-8, 7, Verdict.NOT_SERVED),
        (-1, 0, Verdict.NOT_SERVED),
        (-9, 7, Verdict.STALE),
        (-2, 0, Verdict.STALE),
        (-6, 7, Verdict.STALE),
        (-SEQUENCE_MAX, SEQUENCE_MAX, Verdict.NOT_SERVED),
        (Claim(7, 3).number, 6, Verdict.STALE),
        (Claim(7, 3).number, 7, Verdict.NOT_SERVED),
        (Claim(7, 3).number, 8, Verdict.NOT_SERVED),
        (Claim(7, 3).number, 10, Verdict.NOT_SERVED),
        (Claim(7, 3).number, 11, Verdict.STALE),
    ],
)
def test_verdicts(shared: int, local: int, verdict: Verdict) -> None:
    assert compare(shared, local) is verdict


@pytest.mark.parametrize("base", [0, 1, 7, SEQUENCE_MAX])
@pytest.mark.parametrize("attempt", [1, 2, 3, ATTEMPTS_MAX])
def test_the_number_of_a_claim_has_its_base_and_its_attempt(base: int, attempt: int) -> None:
    claim = Claim(base, attempt)
    assert -(2**63) <= claim.number < 0
    assert claim_of(claim.number) == claim
    assert next_claim(claim.number) == Claim(base, attempt + 1)
    assert newest(claim.number) == base + attempt
    assert Claim(base, 1).number == -(base + 1), "as Artemis writes it"
    assert (claim_of(base), next_claim(base), newest(base)) == (None, Claim(base, 1), base)


@pytest.mark.parametrize(
    ("shared", "local", "texts"),
    [
        (9, 7, ["sequence 7", "newest is 9 according to", "whose data has the sequence 9"]),
        (-9, 7, ["newest is 8 (9 is claimed, not committed)", "whose data has the sequence 8"]),
        (0, 7, ["has no activation sequence", "its data was lost", "right lock manager", "sequence to 7"]),
        (5, 7, ["has the activation sequence 5", "older copy"]),
        (-5, 7, ["has the activation sequence 5", "older copy"]),
        (Claim(4, 2).number, 7, ["has the activation sequence 6", "older copy"]),
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
        self.answers: list[DistributedLock | BrokerError] = []
        self.claim_answers: list[BrokerError | None] = []
        """Answers of ``SequenceClaim.begin`` and ``commit``."""

    def request(self) -> ActivationRequest:
        """Begin to request the permission."""
        request = ActivationRequest("n", self.manager, self.local, self.time, self.time, self.answers.append)
        request.begin()
        return request

    def claim(self) -> SequenceClaim:
        """Begin to claim the next sequence, on the number that the service has."""
        claim = SequenceClaim("n", self.manager, self.local, self.manager.service.numbers.get("n", 0))
        claim.begin(self.claim_answers.append)
        return claim

    @property
    def answer(self) -> Any:
        """The only answer so far."""
        (found,) = self.answers
        return found

    @property
    def claim_answer(self) -> Any:
        """The only answer to a claim so far."""
        (found,) = self.claim_answers
        return found

    @property
    def holds(self) -> bool:
        """Whether the lock is provably held."""
        return self.manager.lock("n").fence.why_not_confirm() is None


def make(shared: int, *values: int, immediate: bool = True) -> tuple[MemoryService, ManualTime, list[Node]]:
    """A service with this number, and nodes with these."""
    service, time = MemoryService(numbers={"n": shared}), ManualTime()
    return service, time, [Node(service, time, value, immediate=immediate) for value in values]


@pytest.mark.parametrize(
    ("shared", "local", "after"),
    [
        (0, 0, 1),
        (7, 7, 8),
        (-7, 7, 8),
        (-8, 7, 9),
        (-8, 8, 9),
        (Claim(7, 3).number, 7, 11),
        (Claim(7, 3).number, 9, 11),
    ],
)
def test_the_newest_data_gets_the_permission_and_claims_a_sequence_that_no_node_has_written(
    shared: int, local: int, after: int
) -> None:
    service, time, (node,) = make(shared, local)
    request = node.request()
    time.advance(1)
    assert node.answer is node.manager.lock("n")
    assert request.state is State.ENDED
    assert request.found == service.numbers["n"] == shared
    assert node.local.load() == local, "nothing changes before the claim"
    assert node.holds
    claim = node.claim()
    time.advance(1)
    assert node.claim_answers == [None]
    assert service.numbers["n"] == next_claim(shared).number
    assert node.local.load() == local, "the claim is in progress"
    claim.commit(node.claim_answers.append)
    time.advance(1)
    assert node.claim_answers == [None, None]
    assert claim.sequence == service.numbers["n"] == node.local.load() == after


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
    time.advance(3_000)
    assert two.answers == [], "it waits as long as the data is in sync"
    claim = one.claim()
    time.advance(1_000)
    assert two.answers == [], "nothing was served so far"
    claim.commit(one.claim_answers.append)
    time.advance(1_000)
    assert one.claim_answers == [None, None]
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


@pytest.mark.parametrize("step", range(3))
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
    time.now_ms += service.lease_ms + 1  # the node was suspended: no timer ran
    read.deliver()
    (release,) = service.pending
    release.deliver()
    assert isinstance(node.answer, LockLost)


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
    """A claim that is committed at once, in which something fails before its first, second … answer."""
    service, _time, (node,) = make(3, 3, immediate=False)
    node.request()
    for _ in range(3):
        (pending,) = service.pending
        pending.carry_out()
        pending.deliver()
    if step == 0:
        make_it_fail(service, node)
    claim = node.claim()
    for number in range(1, 6):
        if not service.pending:
            break
        pending = service.pending[0]
        if number == step:
            make_it_fail(service, node)
        if pending in service.pending:
            pending.carry_out()
            pending.deliver()
        if node.claim_answers == [None] and claim.state is ClaimState.CLAIMED:
            node.claim_answers.clear()
            claim.commit(node.claim_answers.append)
    return service, node


@pytest.mark.parametrize("step", [1, 2])
def test_a_claim_fails_when_another_node_has_changed_the_number(step: int) -> None:
    service, node = _claim_fails(lambda service, node: service.numbers.update(n=9), step)
    assert isinstance(node.claim_answer, ActivationRefused)
    assert "is 9" in str(node.claim_answer)
    assert service.numbers["n"] == 9


def test_a_claim_needs_the_lock() -> None:
    service, node = _claim_fails(lambda service, node: node.manager.lock("n").fence.lose("taken"), 0)
    assert isinstance(node.claim_answer, LockLost)
    assert service.numbers["n"] == 3


def test_a_claim_whose_lock_was_lost_during_the_activation_is_not_committed() -> None:
    """The file of the node is not written either: another node may hold the lock."""
    service, node = _claim_fails(lambda service, node: node.manager.lock("n").fence.lose("taken"), 1)
    assert isinstance(node.claim_answer, LockLost)
    assert (service.numbers["n"], node.local.load()) == (-4, 3)


def test_a_claim_whose_lock_was_lost_before_its_end_fails() -> None:
    """The number is committed; the node ends and may activate at its next start."""
    service, node = _claim_fails(lambda service, node: node.manager.lock("n").fence.lose("taken"), 2)
    assert isinstance(node.claim_answer, LockLost)
    assert service.numbers["n"] == node.local.load() == 4


@pytest.mark.parametrize("step", [1, 2])
def test_a_claim_fails_with_the_error_of_the_lock_manager(step: int) -> None:
    _, node = _claim_fails(lambda service, node: service.pending[0].lose(), step)
    assert node.claim_answer.code == "lock-manager-unavailable"


def test_a_claim_whose_number_cannot_be_written_is_not_committed_and_its_next_start_goes_on() -> None:
    service, node = _claim_fails(lambda service, node: node.volume.fail_next_sync(), 1)
    assert isinstance(node.claim_answer, DiskFailed)
    for text in ("activation sequence 4", FILE_NAME, "its partner may take over"):
        assert text in str(node.claim_answer)
    assert service.numbers["n"] == -4
    node.manager.stop()
    assert node.local.load() in (3, 4)
    assert compare(service.numbers["n"], node.local.load() or 0) is Verdict.NOT_SERVED


@pytest.mark.parametrize(("shared", "restored"), [(3, 3), (-4, Claim(3, 2).number)])
def test_a_claim_whose_activation_failed_is_taken_back_and_the_other_node_activates(shared: int, restored: int) -> None:
    """A claim that was made on a claim stays: the node that made the first one may have written its sequence."""
    service, time, (one, two) = make(shared, 3, 3)
    one.request()
    time.advance(1)
    claim = one.claim()
    time.advance(1)
    ended: list[str] = []
    claim.take_back(partial(ended.append, "taken back"))
    assert one.holds, "the lock is held until the claim is taken back"
    time.advance(1)
    assert (ended, service.numbers["n"], one.local.load()) == (["taken back"], restored, 3)
    one.manager.stop()
    two.request()
    time.advance(1)
    assert two.holds
    claim.take_back(partial(ended.append, "again"))
    assert ended == ["taken back", "again"], "an ended claim changes nothing"
    assert service.numbers["n"] == restored


@pytest.mark.parametrize("lost", [True, False])
def test_a_claim_that_cannot_be_taken_back_ends_nevertheless(lost: bool) -> None:
    service, time, (node,) = make(3, 3)
    node.request()
    time.advance(1)
    claim = node.claim()
    time.advance(1)
    if lost:
        node.manager.lock("n").fence.lose("taken")
    service.reachable = False
    ended: list[str] = []
    claim.take_back(partial(ended.append, "ended"))
    time.advance(1)
    assert ended == ["ended"]
    assert service.numbers["n"] == -4
    assert claim.state is ClaimState.ENDED


@pytest.mark.parametrize("shared", [SEQUENCE_MAX, Claim(3, ATTEMPTS_MAX).number])
def test_the_last_sequence_is_not_exceeded(shared: int) -> None:
    _, time, (node,) = make(shared, min(shared, SEQUENCE_MAX) if shared > 0 else 3)
    node.request()
    time.advance(1)
    node.claim()
    assert "has reached its end" in str(node.claim_answer)


@pytest.mark.parametrize(
    ("shared", "seen"),
    [(3, False), (-4, False), (Claim(3, 2).number, False), (4, True), (9, True), (-5, True), (0, False), (-3, False)],
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


def test_waiting_for_the_next_sequence_ends_when_the_activation_of_the_other_node_has_failed() -> None:
    service, time, (node,) = make(3, 3)
    answers: list[bool | BrokerError] = []
    NextSequence(node.manager.number("n"), 3, 30_000, time, time, answers.append)
    time.advance(1_000)
    service.numbers["n"] = -4
    time.advance(1_000)
    assert answers == [], "the other node opens its store"
    service.numbers["n"] = 3
    time.advance(1_000)
    assert answers == [False]


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
        local, volume = local_sequence(0x0405060708)
        file = volume.disk("host").open(local.path, read_only=True)
        assert file.read(0, 100) == bytes((0, 0, 0, 4, 5, 6, 7, 8))
        assert local.path == "/locks/server.activation.sequence"

    @pytest.mark.parametrize(
        ("data", "text"), [(b"", "0 bytes"), (b"\0" * 9, "9 bytes"), (b"\xff" * 8, "is -1"), (b"\x7f" * 8, "is 9")]
    )
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
