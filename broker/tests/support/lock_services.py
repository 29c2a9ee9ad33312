"""A lock service of each kind, with nodes that use it, for the tests of conformance."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from support import zookeeper
from support.ports import free_port
from understudy.config.lock_options import ZooKeeperLockOptions
from understudy.errors import BrokerError
from understudy.ha.locks.distributed_lock import LockManager
from understudy.ha.witness.client import WitnessLockManager
from understudy.ha.witness.group import WitnessGroup
from understudy.ha.witness.options import WitnessClientOptions
from understudy.ports import Clock, Disk, Entropy, FileLock, Timers, Worker
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.environment import BootClock, LoopTimers, SystemEntropy
from understudy.runtime.base.turn import Turn
from understudy.runtime.base.worker import ThreadWorker
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.runtime.locks.lock_folder import FolderLockManager
from understudy.runtime.locks.providers import WitnessGroupOptions, make_group
from understudy.runtime.locks.witness_dialer import LoopWitnessDialer
from understudy.runtime.locks.witness_groups import form, text_of
from understudy.runtime.locks.witness_requests import WitnessRequests
from understudy.runtime.locks.witness_server import WitnessPorts, WitnessServer
from understudy.testing.memory_locks import MemoryLockManager, MemoryService
from understudy.testing.sim.disk import SimVolume
from understudy.testing.sim.environment import SimClock, SimEntropy, SimTimers, Skew
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.network import SimNetwork
from understudy.testing.sim.storage import ObservedWorker
from understudy.testing.sim.writer import SimWorker

SERVICES: Final = ("memory", "file", "witness", "witnesses", "simulated", "zookeeper")
#: A case that waits for something for longer has failed; seconds.
WAIT_S: Final = 30
SECRET: Final = b"a secret of this test, long enough"


def available_kinds() -> set[str]:
    """Kinds whose services are installed."""
    return {*SERVICES} - ({"zookeeper"} if not zookeeper.installed() else set())


class Node:
    """A node that uses a lock manager. Implements ``ha.locks.distributed_lock.ManagerListener``."""

    def __init__(self, manager: LockManager) -> None:
        self.manager = manager
        self.lost: list[BrokerError] = []
        self.unavailable_errors: list[BrokerError] = []
        self._started: asyncio.Future[BrokerError | None] | None = None

    def available(self) -> None:
        """The manager is usable."""
        if self._started is not None and not self._started.done():
            self._started.set_result(None)

    def unavailable(self, error: BrokerError) -> None:
        """The manager is not usable."""
        self.unavailable_errors.append(error)
        if self._started is not None and not self._started.done():
            self._started.set_result(error)

    async def start(self) -> None:
        """Start the manager and wait until it is usable."""
        error = await self.try_start()
        assert error is None, error

    async def try_start(self) -> BrokerError | None:
        """Start the manager; the error if it is not usable."""
        self._started = asyncio.get_running_loop().create_future()
        self.manager.start(self)
        return await asyncio.wait_for(self._started, WAIT_S)

    async def _ask(self, begin: Callable[[Callable[[Any], None]], object]) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        inside = True

        def answered(result: object) -> None:
            assert not inside, "answered within the call"
            answer.set_result(result)

        begin(answered)
        inside = False
        return await asyncio.wait_for(answer, WAIT_S)

    async def acquire(self, lock_id: str) -> Any:
        """Try to acquire a lock."""
        lock = self.manager.lock(lock_id)
        result = await self._ask(lock.try_acquire)
        if result is True:
            lock.lost = self.lost.append
        return result

    async def verify(self, lock_id: str) -> Any:
        """Ask whether a lock is held."""
        return await self._ask(self.manager.lock(lock_id).verify)

    async def release(self, lock_id: str) -> Any:
        """Release a lock."""
        return await self._ask(self.manager.lock(lock_id).release)

    def holds(self, lock_id: str) -> bool:
        """Whether the fence of a lock permits confirmations."""
        return self.manager.lock(lock_id).fence.why_not_confirm() is None

    async def get(self, number_id: str) -> Any:
        """Read a number."""
        return await self._ask(self.manager.number(number_id).get)

    async def set(self, number_id: str, value: int) -> Any:
        """Set a number."""
        number = self.manager.number(number_id)
        return await self._ask(lambda answer: number.set(value, answer))

    async def swap(self, number_id: str, expected: int, value: int) -> Any:
        """Compare and set."""
        number = self.manager.number(number_id)
        return await self._ask(lambda answer: number.compare_and_set(expected, value, answer))


class LockService:
    """A service with its nodes; each kind is a subclass."""

    lease_s = 0.6
    place = ""
    """Part of the name of the provider."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.loop = asyncio.get_running_loop()
        self.timers: Timers = LoopTimers(self.loop)
        self.clock: Clock = BootClock()
        self.turn = Turn(self.loop, self.timers)
        self.nodes: list[Node] = []

    async def open(self) -> None:
        """Start the service."""

    async def close(self) -> None:
        """Stop the nodes and the service."""
        for node in self.nodes:
            node.manager.stop()
        await asyncio.sleep(0.05)

    def new_node(self, name: str) -> Node:
        """A node that is not started."""
        node = Node(self.make_manager(name))
        self.nodes.append(node)
        return node

    async def node(self, name: str) -> Node:
        """A node whose manager is usable."""
        node = self.new_node(name)
        await node.start()
        return node

    def make_manager(self, name: str) -> LockManager:
        """A manager of this kind."""
        raise NotImplementedError

    async def victim(self, name: str, lock_id: str) -> Callable[[], Awaitable[None]]:
        """A node that holds a lock; the result ends it without a release."""
        node = await self.node(name)
        assert await node.acquire(lock_id) is True

        async def end() -> None:
            await self.cut(node)

        return end

    async def cut(self, node: Node) -> None:
        """End a node without a release."""
        raise NotImplementedError

    async def go_away(self) -> None:
        """End the service; a lock of a file has none."""
        raise NotImplementedError

    async def restart(self) -> None:
        """End the service and start it again within the lease, where it starts fast enough."""
        raise NotImplementedError

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(WAIT_S):
            while (await condition()) is not True:
                await asyncio.sleep(0.05)


class _Memory(LockService):
    async def open(self) -> None:
        self.service = MemoryService(lease_ms=int(self.lease_s * 1000))
        self.place = "memory"

    def make_manager(self, name: str) -> LockManager:
        return _Renewing(self.service, self.clock, self.timers)

    async def cut(self, node: Node) -> None:
        assert isinstance(node.manager, _Renewing)
        node.manager.ended = True

    async def go_away(self) -> None:
        self.service.reachable = False

    async def restart(self) -> None:
        self.service.reachable = False
        await asyncio.sleep(self.lease_s / 4)
        self.service.reachable = True


class _Renewing(MemoryLockManager):
    """Renews its locks by a timer, as the other kinds do."""

    ended = False

    def start(self, listener: Any) -> None:
        super().start(listener)
        self.timers.call_later(100, self._beat)

    def _beat(self) -> None:
        if self._listener is None or self.ended:
            return
        held = [lock for lock in self._locks.values() if lock.fence.held]
        for lock in held:
            lock.renew()
        if not held and not self.service.reachable:
            self._started()
            return
        self.timers.call_later(100, self._beat)


class _File(LockService):
    async def open(self) -> None:
        self.folder = self.directory / "locks"
        self.folder.mkdir()
        self.place = str(self.folder)

    def make_manager(self, name: str) -> LockManager:
        return FolderLockManager(
            str(self.folder),
            self.loop,
            self.turn,
            disk=RealDisk(),
            file_lock=RealFileLock,
            clock=self.clock,
            timers=self.timers,
        )

    async def cut(self, node: Node) -> None:
        # the system releases the locks of a process that ends; here it is the descriptor
        node.manager.lock("a")._file.release()  # type: ignore[attr-defined]  # of a FolderLock


class _Witness(LockService):
    async def open(self) -> None:
        self.port = free_port()
        self.place = f"127.0.0.1:{self.port}"
        (self.directory / "witness").mkdir(exist_ok=True)
        await self._serve()
        await asyncio.sleep(self.lease_s)

    def _ports(self) -> tuple[str, Disk, Callable[[str], FileLock], Entropy, Worker]:
        directory = str(self.directory / "witness")
        return directory, RealDisk(), RealFileLock, SystemEntropy(), ThreadWorker(self.loop, self.turn, 1)

    async def _serve(self) -> None:
        directory, disk, file_lock, entropy, worker = self._ports()
        self.server = WitnessServer(
            directory,
            SECRET,
            int(self.lease_s * 1000),
            WitnessPorts(disk, file_lock, self.clock, self.timers, entropy, worker),
        )
        await self.server.listen("127.0.0.1", self.port)
        self.running = self.loop.create_task(self.server.run())

    def make_manager(self, name: str) -> LockManager:
        options = WitnessClientOptions([("127.0.0.1", self.port)], SECRET, name, int(self.lease_s * 1000))
        dialer = LoopWitnessDialer(self.loop, self.turn)
        return WitnessLockManager(options, dialer, self.clock, self.timers, SystemEntropy())

    async def cut(self, node: Node) -> None:
        assert isinstance(node.manager, WitnessLockManager)
        node.manager.ask = lambda *arguments, **options: False  # type: ignore[method-assign]  # it sends nothing

    async def go_away(self) -> None:
        self.server.stop()
        await self.running

    async def restart(self) -> None:
        await self.go_away()
        await self._serve()

    async def close(self) -> None:
        await super().close()
        await self.go_away()


class _Witnesses(LockService):
    """A group of three."""

    async def open(self) -> None:
        self.places = [("127.0.0.1", free_port()) for _ in range(3)]
        self.place = text_of(self.places[2])
        await self._serve()
        requests = WitnessRequests(LoopWitnessDialer(self.loop, self.turn), SystemEntropy(), SECRET, "test", 5.0)
        await form(requests.ask, self.places, bytes(range(16)))
        await asyncio.sleep(self.lease_s)

    async def _serve(self) -> None:
        self.running = []
        for host, port in self.places:
            directory = self.directory / f"witness-{port}"
            directory.mkdir(exist_ok=True)
            worker = ThreadWorker(self.loop, self.turn, 1)
            ports = WitnessPorts(RealDisk(), RealFileLock, self.clock, self.timers, SystemEntropy(), worker)
            server = WitnessServer(str(directory), SECRET, int(self.lease_s * 1000), ports)
            await server.listen(host, port)
            self.running.append((server, self.loop.create_task(server.run())))

    def make_manager(self, name: str) -> LockManager:
        dialer, lease_ms = LoopWitnessDialer(self.loop, self.turn), int(self.lease_s * 1000)
        return make_group(WitnessGroupOptions(self.places, SECRET, name, lease_ms), dialer, self.turn)

    async def cut(self, node: Node) -> None:
        assert isinstance(node.manager, WitnessGroup)
        for member in node.manager.members:
            member.ask = lambda *arguments, **options: False  # type: ignore[method-assign]  # it sends nothing

    async def go_away(self) -> None:
        for server, running in self.running:
            server.stop()
            await running

    async def restart(self) -> None:
        await self.go_away()
        await self._serve()

    async def close(self) -> None:
        await super().close()
        await self.go_away()


class _SimWitness(_Witness):
    """The same witness and clients on a simulated network, with a simulated disk. One process plays all parts."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        assert isinstance(self.loop, SimLoop)
        self.timers = SimTimers(self.loop, Skew())
        self.clock = SimClock(self.loop, Skew())
        clock = self.clock
        self.turn = Turn(self.loop, self.timers, lambda: clock.monotonic_ms() * 1_000_000)
        self._volume = SimVolume()
        self._volume.disk("here").make_directory("/witness")

    def _ports(self) -> tuple[str, Disk, Callable[[str], FileLock], Entropy, Worker]:
        assert isinstance(self.loop, SimLoop)
        worker = ObservedWorker(SimWorker(self.timers, self.loop.random("worker")), self.turn)
        entropy = SimEntropy(self.loop.random("entropy"))
        return "/witness", self._volume.disk("here"), lambda path: self._volume.lock(path, "here"), entropy, worker


class _ZooKeeper(LockService):
    lease_s = 2.0

    async def open(self) -> None:
        # only here, so that tests of the other kinds run without the package
        from understudy.runtime.locks.zookeeper import ZooKeeperLockManager

        self._manager = ZooKeeperLockManager
        self.ensemble = zookeeper.Ensemble(self.directory, 1)
        self.place = self.ensemble.connect_string
        await self.loop.run_in_executor(None, self.ensemble.start)

    def make_manager(self, name: str) -> LockManager:
        options = ZooKeeperLockOptions(
            self.ensemble.connect_string, "test", session_ms=int(self.lease_s * 1000), connection_ms=3_000, retries=0
        )
        return self._manager(options, self.loop, self.turn, self.clock, self.timers)

    async def cut(self, node: Node) -> None:
        client: Any = node.manager.client  # type: ignore[attr-defined]  # of a ZooKeeperLockManager
        # the session is not closed: its connection breaks and is not made again
        client._connection.retry_sleeper.stop = lambda: None
        client._stopped.set()
        client._connection._socket.shutdown(socket.SHUT_RDWR)

    async def go_away(self) -> None:
        await self.loop.run_in_executor(None, self.ensemble.kill)

    async def close(self) -> None:
        await super().close()
        await self.go_away()


_KINDS: Final[dict[str, type[LockService]]] = {
    "memory": _Memory,
    "file": _File,
    "witness": _Witness,
    "witnesses": _Witnesses,
    "simulated": _SimWitness,
    "zookeeper": _ZooKeeper,
}


def on_service(kind: str, directory: Path, case: Callable[[LockService], Coroutine[Any, Any, None]]) -> None:
    """Run a case with a service of a kind."""

    async def main() -> None:
        service = _KINDS[kind](directory)
        await service.open()
        try:
            await case(service)
        finally:
            await service.close()

    if kind != "simulated":
        asyncio.run(main())
        return
    for seed in range(3):
        loop = SimLoop(seed)
        SimNetwork(loop).add_host("here")
        process = loop.new_process("here")
        task = process.create_task(main())
        try:
            loop.run_until(task.done, deadline=20 * WAIT_S)
            task.result()
            assert loop.failures == []
        finally:
            loop.close()
