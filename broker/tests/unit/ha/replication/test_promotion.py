"""Promotions: by the lock manager, and their record."""

from __future__ import annotations

import pytest

from support.local_files import given_promise, local_sequence
from understudy.errors import ActivationRefused, BrokerError, JournalCorrupt, LockManagerUnavailable
from understudy.ha.locks.sequence_verdict import Verdict, compare
from understudy.ha.replication.lock_authority import LockAuthority, NodeData
from understudy.ha.replication.lock_promotion import LockPromotion
from understudy.ha.replication.ports import Cause
from understudy.ha.replication.promotion import RECORDS_MAX, Promotion, decode, encode
from understudy.testing.manual_time import ManualTime
from understudy.testing.memory_locks import MemoryLockManager, MemoryService


def started(service: MemoryService, time: ManualTime) -> MemoryLockManager:
    """A lock manager that is available."""
    manager = MemoryLockManager(service, time, time)
    manager.start(Ready())
    time.advance(0)
    return manager


def promote(service: MemoryService, before: int | None) -> tuple[Promotion | BrokerError, int | None]:
    """The answer, and the sequence of the data afterwards."""
    time = ManualTime()
    manager = started(service, time)
    local, _ = local_sequence(before)
    local.load()
    answers: list[Promotion | BrokerError] = []
    LockPromotion("n", manager, local, answers.append).begin()
    time.advance(100)
    return answers[0], local.value


class Ready:
    """Implements ``ManagerListener``."""

    def available(self) -> None: ...

    def unavailable(self, error: BrokerError) -> None:
        raise error


@pytest.mark.parametrize("shared", [7, -7, 0])
@pytest.mark.parametrize("before", [None, 3, 9])
def test_promoted_data_is_the_newest_and_all_other_data_is_not(shared: int, before: int | None) -> None:
    service = MemoryService()
    service.numbers["n"] = shared
    outcome, local = promote(service, before)
    assert isinstance(outcome, Promotion)
    assert (outcome.before, outcome.newest_known, outcome.sequence) == (before, abs(shared), local)
    assert local is not None
    assert compare(service.numbers["n"], local) is Verdict.IN_SYNC
    for other in (abs(shared), before or 0):
        assert compare(service.numbers["n"], other) is Verdict.STALE


def test_a_node_is_not_promoted_while_another_one_holds_the_lock() -> None:
    service = MemoryService()
    time = ManualTime()
    started(service, time).lock("n").try_acquire(lambda held: None)
    time.advance(100)
    outcome, local = promote(service, 3)
    assert isinstance(outcome, ActivationRefused)
    assert local == 3


def test_a_promotion_ends_when_the_lock_manager_is_lost() -> None:
    service, time = MemoryService(), ManualTime()
    local, _ = local_sequence(3)
    authority = LockAuthority(
        MemoryLockManager(service, time, time),
        local,
        NodeData(lambda: "n", lambda: True, lambda: True),
        time,
        time,
        given_promise(time),
    )
    answers: list[Promotion | BrokerError] = []
    authority.promote(answers.append)
    assert isinstance(answers.pop(), LockManagerUnavailable), "it was never available"
    authority.request(Cause.START, lambda error: None)
    authority.cancel()
    time.advance(0)
    authority.promote(answers.append)
    authority.unavailable(LockManagerUnavailable("gone"))
    time.advance(100)
    assert [str(each) for each in answers] == ["gone"]


def test_the_record_of_promotions_keeps_the_newest() -> None:
    records = [Promotion("n", number, None, number + 1, 5) for number in range(RECORDS_MAX + 5)]
    assert decode(encode(records), "f") == records[5:]
    assert decode(encode([Promotion("n", None, 3, 4)]), "f") == [Promotion("n", None, 3, 4)]


@pytest.mark.parametrize("data", [b"", b"{}x", b"[1]", b'[{"node": 1}]'])
def test_a_damaged_record_of_promotions_is_an_error(data: bytes) -> None:
    with pytest.raises(JournalCorrupt):
        decode(data, "f")
