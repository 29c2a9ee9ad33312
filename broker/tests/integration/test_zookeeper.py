"""The lock manager over a real ensemble of three ZooKeeper servers, whose servers end, hang and come back.

The package ``zookeeper`` of Debian is needed; without it the tests are skipped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from support import certificates
from support.lock_services import Node
from support.zookeeper import Ensemble, installed
from understudy.config.lock_options import ZooKeeperLockOptions
from understudy.errors import LockManagerUnavailable
from understudy.runtime.base.environment import BootClock, LoopTimers
from understudy.runtime.base.turn import Turn
from understudy.runtime.locks.release import LockReleaser
from understudy.runtime.locks.zookeeper import ZooKeeperLockManager

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


def make(ensemble: Ensemble, session_ms: int = SESSION_MS, **options: str) -> Node:
    """A node of its own, not started."""
    loop = asyncio.get_running_loop()
    timers = LoopTimers(loop)
    chosen = ZooKeeperLockOptions(
        ensemble.connect_string, "n/s", session_ms=session_ms, session_percent=50, connection_ms=3_000, retries=2,
        **options,
    )  # fmt: skip
    return Node(ZooKeeperLockManager(chosen, loop, Turn(loop, timers), BootClock(), timers))


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


@dataclass(frozen=True)
class Files:
    """Certificates of the servers and of their clients."""

    chain: Path
    authorities: Path
    client: Path

    @classmethod
    def make(cls, directory: Path, *names: str) -> Files:
        """``names``: host names of the servers."""
        authority = certificates.make("CN=authority", authority=True)
        return cls(
            certificates.make("CN=zookeeper", authority, names=names).write(directory / "server.pem"),
            authority.write_certificate(directory / "authorities.pem"),
            certificates.make("CN=node", authority).write(directory / "client.pem"),
        )

    @property
    def options(self) -> dict[str, str]:
        return {"tls_ca": str(self.authorities), "tls_certificate": str(self.client), "tls_key": str(self.client)}


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Callable[..., tuple[Ensemble, Files]]]:
    """Makes and starts one server with TLS, which needs certificates of its clients."""
    made: list[Ensemble] = []

    def make_one(*names: str, tick_ms: int = 200) -> tuple[Ensemble, Files]:
        files = Files.make(tmp_path, *names)
        made.append(Ensemble(tmp_path, 1, tick_ms=tick_ms, tls=(files.chain, files.authorities)))
        made[0].start()
        return made[0], files

    yield make_one
    for each in made:
        each.kill()


def test_a_lock_over_tls(secure: Callable[..., tuple[Ensemble, Files]]) -> None:
    ensemble, files = secure("127.0.0.1")

    async def main() -> None:
        one, other = (make(ensemble, **files.options) for _ in range(2))
        try:
            await one.start()
            await other.start()
            await acquired(one)
            assert await other.acquire("id") is False
            assert await one.release("id") is None
            await acquired(other)
        finally:
            one.manager.stop()
            other.manager.stop()
            await asyncio.sleep(0.2)

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["host name", "authority"])
def test_a_server_that_is_not_the_right_one_gets_no_session(
    secure: Callable[..., tuple[Ensemble, Files]], tmp_path: Path, fault: str
) -> None:
    ensemble, files = secure("127.0.0.1" if fault == "authority" else "zookeeper.example")
    options = files.options
    if fault == "authority":
        other = certificates.make("CN=other", authority=True)
        options["tls_ca"] = str(other.write_certificate(tmp_path / "other.pem"))

    async def main() -> None:
        node = make(ensemble, **options)
        try:
            assert isinstance(await node.try_start(), LockManagerUnavailable)
        finally:
            node.manager.stop()
            await asyncio.sleep(0.2)

    asyncio.run(main())


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_the_session_of_a_process_that_has_ended_is_closed(
    tmp_path: Path, secure: Callable[..., tuple[Ensemble, Files]], *, tls: bool
) -> None:
    """The session lives longer than the wait of this test: the releaser closes it (``runtime.locks.release``)."""
    if tls:
        ensemble, files = secure("127.0.0.1", tick_ms=1_000)
        _close_a_session(ensemble, files)
        return
    ensemble = Ensemble(tmp_path, 1, tick_ms=1_000)
    try:
        ensemble.start()
        _close_a_session(ensemble, None)
    finally:
        ensemble.kill()


def _close_a_session(ensemble: Ensemble, files: Files | None) -> None:
    settings: dict[str, Any] = {}
    if files is not None:
        settings = {
            "use_ssl": True, "ca": str(files.authorities), "certfile": str(files.client), "keyfile": str(files.client),
        }  # fmt: skip
    client, other = (
        KazooClient(ensemble.connect_string, timeout=timeout_s, **settings) for timeout_s in (SESSION_MAX_S, 4)
    )
    other.start(WAIT_S)
    client.start(WAIT_S)
    client.create("/ephemeral", ephemeral=True)
    address = ensemble.connect_string.partition(",")[0].rpartition(":")
    releaser = LockReleaser(
        addresses=[(address[0], int(address[2]))],
        lease_ms=1_000 * SESSION_MAX_S,
        tls=None if files is None else list(files.options.values()),
    )
    releaser.session_begun(*client.client_id)
    assert other.exists("/ephemeral")
    releaser.node_ends()
    end_s = time.monotonic() + SESSION_MAX_S / 2
    while other.exists("/ephemeral"):
        assert time.monotonic() < end_s
        time.sleep(0.05)
    client.stop()
    other.stop()
