"""Lock managers: one holder per lock, numbers with compare-and-set, leases, and answers that come once.

The same cases for a directory, a witness over loopback, a witness on the simulated network, ZooKeeper, and the lock
manager in memory of the unit tests.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.lock_services import SERVICES, LockService, available_kinds, on_service
from understudy.errors import BrokerError

#: Kinds that take longer than ``make test`` has: the others show the same cases.
SLOW = ("zookeeper", "memory")


def kinds(*without: str) -> list[object]:
    """Parameters of a fixture: all kinds but these."""
    return [pytest.param(each, marks=[pytest.mark.long] * (each in SLOW)) for each in SERVICES if each not in without]


def installed(found: str) -> str:
    """The kind, or the test is skipped."""
    if found not in available_kinds():
        pytest.skip(f"{found} is not installed")
    return found


@pytest.fixture(params=kinds())
def kind(request: pytest.FixtureRequest) -> str:
    return installed(request.param)


@pytest.fixture(params=kinds("file"))
def remote(request: pytest.FixtureRequest) -> str:
    """A kind with a service that can go away."""
    return installed(request.param)


@pytest.fixture(params=kinds("file", "zookeeper"))
def restarting(request: pytest.FixtureRequest) -> str:
    """A kind with a service that starts again within a lease."""
    return installed(request.param)


def test_a_lock_has_one_holder(kind: str, tmp_path: Path) -> None:
    async def case(service: LockService) -> None:
        one, two = await service.node("one"), await service.node("two")
        assert not one.holds("a")
        assert await one.acquire("a") is True
        assert one.holds("a")
        assert await one.verify("a") is True
        assert await two.acquire("a") is False
        assert not two.holds("a")
        assert await two.verify("a") is False
        assert await two.acquire("b") is True, "locks of two ids are two"
        assert one.holds("a")

    on_service(kind, tmp_path, case)


def test_a_released_lock_is_free_at_once_and_its_fence_permits_nothing(kind: str, tmp_path: Path) -> None:
    async def case(service: LockService) -> None:
        one, two = await service.node("one"), await service.node("two")
        for _ in range(3):
            assert await one.acquire("a") is True
            assert await one.release("a") is None
            assert not one.holds("a")
            assert await two.acquire("a") is True
            assert await two.release("a") is None
        assert await one.release("a") is None, "not held: nothing to release"
        assert one.lost == two.lost == []

    on_service(kind, tmp_path, case)


def test_numbers_are_zero_before_they_are_set_and_seen_by_all(kind: str, tmp_path: Path) -> None:
    async def case(service: LockService) -> None:
        one, two = await service.node("one"), await service.node("two")
        assert await one.get("n") == 0
        assert await one.swap("n", 1, 2) is False
        assert await one.swap("n", 0, -1) is True
        assert await two.get("n") == -1
        assert await two.swap("n", -1, 2**63 - 1) is True
        assert await one.get("n") == 2**63 - 1
        assert await one.set("n", -(2**63)) is None
        assert await two.get("n") == -(2**63)
        assert await two.get("other") == 0

    on_service(kind, tmp_path, case)


def test_one_of_many_comparisons_wins(kind: str, tmp_path: Path) -> None:
    async def case(service: LockService) -> None:
        one, two = await service.node("one"), await service.node("two")
        for value in range(3):
            answers = await asyncio.gather(*(node.swap("n", value, value + 1) for node in (one, two) for _ in range(3)))
            unknown = [answer for answer in answers if isinstance(answer, BrokerError)]
            if kind == "witnesses":
                # rounds that outbid each other may end with an unknown outcome; one of them may have changed the number
                assert answers.count(True) <= 1
                assert True not in answers or await one.get("n") == value + 1
                assert await two.get("n") == await one.get("n") in (value, value + 1)
                assert await one.set("n", value + 1) is None
            else:
                assert answers.count(True) == 1
                assert unknown == []
            assert answers.count(False) >= 5 - len(unknown)

    on_service(kind, tmp_path, case)


def test_a_cancelled_attempt_gives_no_answer_and_keeps_no_lock(kind: str, tmp_path: Path) -> None:
    async def case(service: LockService) -> None:
        one, two = await service.node("one"), await service.node("two")
        answers: list[object] = []
        one.manager.lock("a").try_acquire(answers.append).cancel()
        await service.until(lambda: two.acquire("a"))
        assert answers == []
        assert not one.holds("a")
        assert two.holds("a")

    on_service(kind, tmp_path, case)


def test_a_stopped_manager_releases_its_locks_and_starts_again(kind: str, tmp_path: Path) -> None:
    async def case(service: LockService) -> None:
        one, two = await service.node("one"), await service.node("two")
        assert await one.acquire("a") is True
        fence = one.manager.lock("a").fence
        one.manager.stop()
        assert fence.why_not_confirm() is not None
        await service.until(lambda: two.acquire("a"))
        await one.start()
        assert await one.acquire("a") is False
        assert await two.release("a") is None
        assert await one.acquire("a") is True
        assert one.lost == []

    on_service(kind, tmp_path, case)


def test_a_held_lock_is_kept_for_longer_than_its_lease(kind: str, tmp_path: Path) -> None:
    async def case(service: LockService) -> None:
        one, two = await service.node("one"), await service.node("two")
        assert await one.acquire("a") is True
        for _ in range(6):
            await asyncio.sleep(service.lease_s / 4)
            assert one.holds("a")
        assert await two.acquire("a") is False
        assert one.lost == []

    on_service(kind, tmp_path, case)


def test_the_end_of_a_holder_frees_its_lock_after_the_lease(kind: str, tmp_path: Path) -> None:
    async def case(service: LockService) -> None:
        victim, two = await service.victim("victim", "a"), await service.node("two")
        assert await two.acquire("a") is False
        await victim()
        await service.until(lambda: two.acquire("a"))
        assert two.holds("a")

    on_service(kind, tmp_path, case)


def test_errors_name_the_provider_and_its_address(remote: str, tmp_path: Path) -> None:
    async def case(service: LockService) -> None:
        await service.go_away()
        node = service.new_node("one")
        error = await node.try_start()
        assert error is not None
        assert error.code == "lock-manager-unavailable"
        assert service.place in str(error)

    on_service(remote, tmp_path, case)


def test_a_service_that_goes_away_takes_the_lock_with_the_lease(remote: str, tmp_path: Path) -> None:
    """Nothing is confirmed afterwards, the listener of the lock and that of the manager are called once."""

    async def case(service: LockService) -> None:
        one = await service.node("one")
        assert await one.acquire("a") is True
        await service.go_away()
        await service.until(lambda: _true(one.lost))
        assert not one.holds("a")
        assert len(one.lost) == 1
        assert one.lost[0].code == "lock-lost"
        await service.until(lambda: _true(one.unavailable_errors))
        assert len(one.unavailable_errors) == 1

    on_service(remote, tmp_path, case)


def test_a_service_that_restarts_within_the_lease_keeps_the_lock_with_its_holder(
    restarting: str, tmp_path: Path
) -> None:
    async def case(service: LockService) -> None:
        one, two = await service.node("one"), await service.node("two")
        assert await one.acquire("a") is True
        assert await one.set("n", 7) is None
        await service.restart()
        await asyncio.sleep(service.lease_s)
        assert one.holds("a")
        assert one.lost == []
        assert await two.acquire("a") is False
        assert await two.get("n") == 7

    on_service(restarting, tmp_path, case)


async def _true(found: list[BrokerError]) -> bool:
    return bool(found)
