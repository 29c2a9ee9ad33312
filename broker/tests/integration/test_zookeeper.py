"""The lock manager over a real ensemble of three ZooKeeper servers, whose servers end, hang and come back.

The package ``zookeeper`` of Debian is needed; without it the tests are skipped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from support.lock_services import Node
from support.zookeeper import Ensemble, installed
from understudy.config.lock_options import ZooKeeperLockOptions
from understudy.runtime.environment import BootClock, LoopTimers
from understudy.runtime.lock_release import LockReleaser
from understudy.runtime.turn import Turn
from understudy.runtime.zookeeper import ZooKeeperLockManager

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not installed(), reason="the package zookeeper is not installed"),
]
SESSION_MS = 4_000
WAIT_S = 60
#: Longest session timeout that a server with a tick of a second grants.
SESSION_MAX_S = 20


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    made = Ensemble(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.kill()


def make(ensemble: Ensemble, session_ms: int = SESSION_MS) -> Node:
    """A node of its own, not started."""
    loop = asyncio.get_running_loop()
    timers = LoopTimers(loop)
    options = ZooKeeperLockOptions(
        ensemble.connect_string, "n/s", session_ms=session_ms, session_percent=50, connection_ms=3_000, retries=2
    )
    return Node(ZooKeeperLockManager(options, loop, Turn(loop, timers), BootClock(), timers))


def with_nodes(count: int, case: Callable[..., Awaitable[None]], ensemble: Ensemble) -> None:
    """Run a case with started nodes."""

    async def main() -> None:
        nodes = [make(ensemble) for _ in range(count)]
        try:
            for node in nodes:
                await node.start()
            await case(*nodes)
        finally:
            for node in nodes:
                node.manager.stop()
            await asyncio.sleep(0.2)

    asyncio.run(main())


async def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.05)


async def acquired(node: Node) -> None:
    """Try until the lock is acquired."""
    async with asyncio.timeout(WAIT_S):
        while await node.acquire("id") is not True:
            await asyncio.sleep(0.1)


def test_one_server_may_end_and_come_back(ensemble: Ensemble) -> None:
    async def case(one: Node, two: Node) -> None:
        assert await one.acquire("id") is True
        assert await one.swap("id", 0, -1) is True
        loop = asyncio.get_running_loop()
        for index in range(3):
            await loop.run_in_executor(None, ensemble.kill, index)
            await asyncio.sleep(SESSION_MS / 1000 * 1.2)
            assert one.holds("id"), f"server {index}"
            await loop.run_in_executor(None, ensemble.start, index)
        assert await two.get("id") == -1
        assert await two.acquire("id") is False
        assert one.lost == []

    with_nodes(2, case, ensemble)


def test_without_a_majority_the_lock_is_lost_and_the_manager_unavailable(ensemble: Ensemble) -> None:
    async def case(one: Node, two: Node) -> None:
        assert await one.acquire("id") is True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, ensemble.kill, 0, 1)
        await until(lambda: one.lost)
        assert not one.holds("id")
        await until(lambda: one.unavailable_errors and two.unavailable_errors)
        assert one.unavailable_errors[0].code == "lock-manager-unavailable"
        await loop.run_in_executor(None, ensemble.start, 0, 1)
        await two.start()
        await acquired(two)

    with_nodes(2, case, ensemble)


def test_servers_that_hang_end_the_proof_before_another_node_gets_the_lock(ensemble: Ensemble) -> None:
    """SIGSTOP of all servers for longer than a session, and back."""

    async def case(one: Node, two: Node) -> None:
        assert await one.acquire("id") is True
        fence = one.manager.lock("id").fence
        ensemble.pause()
        await until(lambda: fence.why_not_confirm() is not None)
        await asyncio.sleep(SESSION_MS / 1000)
        ensemble.resume()
        await until(lambda: one.lost)
        one.manager.stop()
        if two.unavailable_errors:
            await two.start()
        await acquired(two)
        assert two.holds("id")

    with_nodes(2, case, ensemble)


def test_a_connection_that_breaks_again_and_again_keeps_the_lock(ensemble: Ensemble) -> None:
    async def case(one: Node) -> None:
        assert await one.acquire("id") is True
        manager: Any = one.manager
        for _ in range(6):
            manager.client._connection._socket.shutdown(2)
            await asyncio.sleep(0.4)
        await until(lambda: manager.state.name == "CONNECTED")
        await asyncio.sleep(1)
        assert one.holds("id")
        assert await one.verify("id") is True
        assert one.lost == []

    with_nodes(1, case, ensemble)


def test_the_session_timeout_that_the_servers_allow_counts(ensemble: Ensemble) -> None:
    """They allow 2 to 20 times their tick of 200 ms."""

    async def main() -> None:
        node = make(ensemble, session_ms=60_000)
        await node.start()
        manager: Any = node.manager
        assert manager.session_ms == 4_000
        assert await node.acquire("id") is True
        assert manager.lock("id").fence.proved_until_ms <= BootClock().monotonic_ms() + 4_000
        node.manager.stop()
        await asyncio.sleep(0.2)

    asyncio.run(main())


def test_the_nodes_are_those_of_artemis(ensemble: Ensemble) -> None:
    async def case(one: Node) -> None:
        assert await one.acquire("id") is True
        assert await one.set("id", 3) is None
        client: Any = one.manager.client  # type: ignore[attr-defined]  # of a ZooKeeperLockManager
        loop = asyncio.get_running_loop()
        (lease,) = await loop.run_in_executor(None, client.get_children, "/n/s/id/locks/leases")
        assert "-lease-" in lease
        data, status = await loop.run_in_executor(None, client.get, f"/n/s/id/locks/leases/{lease}")
        assert len(data) == 36
        assert status.ephemeralOwner != 0
        data, _ = await loop.run_in_executor(None, client.get, "/n/s/id/activation-sequence")
        assert data == bytes(7) + b"\x03"
        # a lease with a lower number, as another client makes it, is respected
        assert await one.release("id") is None
        foreign = "/n/s/id/locks/leases/_c_other-lease-"
        await loop.run_in_executor(None, lambda: client.create(foreign, b"other", ephemeral=True, sequence=True))
        assert await one.acquire("id") is False

    with_nodes(1, case, ensemble)


def test_the_session_of_a_process_that_has_ended_is_closed(tmp_path: Path) -> None:
    """Its timeout is longer than the wait of this test: the releaser closes it (``runtime.lock_release``)."""
    ensemble = Ensemble(tmp_path, 1, tick_ms=1_000)
    try:
        ensemble.start()
        _close_a_session(ensemble)
    finally:
        ensemble.kill()


def _close_a_session(ensemble: Ensemble) -> None:
    client, other = (KazooClient(ensemble.connect_string, timeout=timeout_s) for timeout_s in (SESSION_MAX_S, 4))
    other.start(WAIT_S)
    client.start(WAIT_S)
    client.create("/ephemeral", ephemeral=True)
    address = ensemble.connect_string.partition(",")[0].rpartition(":")
    releaser = LockReleaser(addresses=[(address[0], int(address[2]))], lease_ms=1_000 * SESSION_MAX_S)
    releaser.session_begun(*client.client_id)
    assert other.exists("/ephemeral")
    releaser.node_ends()
    end_s = time.monotonic() + SESSION_MAX_S / 2
    while other.exists("/ephemeral"):
        assert time.monotonic() < end_s
        time.sleep(0.05)
    client.stop()
    other.stop()
