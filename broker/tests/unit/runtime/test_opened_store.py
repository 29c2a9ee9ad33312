"""Jobs of a node end before the writers and workers that carry them out are closed."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.store import DIRECTORY, NODE_ID, StoreHarness

from understudy.errors import DiskFailed
from understudy.ha.life.activation import Step
from understudy.ports import Space
from understudy.runtime.node.opened_store import OpenedStore
from understudy.runtime.replica.copying import FileExchange
from understudy.runtime.replica.replication import NodeReplication
from understudy.store.log.reading.follower import recover
from understudy.store.replication.copy_messages import AskBytes, Directory, encode_message
from understudy.testing.sim.disk import SimDisk
from understudy.testing.sim.writer import SimLogWriter, SimWorker


class _Writer(SimLogWriter):
    """Counts as held while the clock of the test stands still."""

    def hold(self) -> None:
        """See ``HoldableLogWriter``."""

    def release(self) -> None:
        """See ``HoldableLogWriter``."""


class _Node:
    """The parts of a node that an ``OpenedStore`` uses."""

    def __init__(self) -> None:
        self.rig = StoreHarness(random.Random(1))
        self.time = self.rig.time
        self.errors: list[BaseException] = []
        self.writers: list[_Writer] = []
        self.closed: list[object] = []
        disk = self.rig.disk("a")
        current = SimpleNamespace(
            journal_directory=DIRECTORY, large_messages_directory=f"{DIRECTORY}/large", paging_directory=DIRECTORY
        )
        self.configuration = SimpleNamespace(current=current, store_settings=lambda: self.rig.settings)
        self.environment = SimpleNamespace(
            disk=disk,
            clock=self.time,
            large_messages_max=None,
            times=None,
            log_writer=self._writer,
            worker=lambda turn: SimWorker(self.time, random.Random(2)),
        )
        parts: Any = SimpleNamespace(
            configuration=self.configuration,
            environment=self.environment,
            turn=None,
            lock=SimpleNamespace(node_id=NODE_ID),
            security=SimpleNamespace(asks_directory=False),
            formats=SimpleNamespace(lowest=lambda: 0),
            watch=SimpleNamespace(activated=lambda store, writer: None, closed=self.closed.append),
            loop=SimpleNamespace(create_future=lambda: asyncio.get_running_loop().create_future()),
        )
        standby: Any = SimpleNamespace(take_follower=lambda: self.rig.follower("a"))
        fence: Any = SimpleNamespace(why_not_confirm=lambda: None)
        owner: Any = SimpleNamespace(fail=self.errors.append)
        self.opened = OpenedStore(parts, standby, fence, owner)
        self.steps = self.opened.steps()

    def _writer(self, turn: object, applier: Any, fence: object) -> _Writer:
        writer = _Writer(self.time, random.Random(len(self.writers)), applier)
        self.writers.append(writer)
        return writer

    async def undo(self, step: Step) -> None:
        """Undo a step while the writers work."""
        assert step.undo is not None
        undone = step.undo()
        if undone is None:
            return
        task = asyncio.ensure_future(undone)
        for _ in range(100):
            await asyncio.sleep(0)
            self.time.advance(10)
        assert task.done()
        await task


def test_jobs_of_an_activation_that_fails_end_before_the_writers_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk cannot be asked for its space when the first segments are being prepared already."""
    node = _Node()

    def broken(disk: SimDisk, path: str) -> Space:
        raise DiskFailed(f"{path}: input/output error")

    async def activate() -> None:
        start, begin = node.steps
        start.do()
        with monkeypatch.context() as patch, pytest.raises(DiskFailed):
            patch.setattr(SimDisk, "space", broken)
            begin.do()
        node.opened.release_writers()
        await node.undo(begin)
        assert all(writer.idle for writer in node.writers)
        await node.undo(start)

    asyncio.run(activate())
    node.time.advance(1_000)
    assert node.errors == []
    assert node.opened.store is None
    assert len(node.closed) == 1
    assert recover(node.rig.disk("b"), DIRECTORY).state.epoch == 1


def test_bytes_for_the_other_node_are_awaited_when_the_node_ends() -> None:
    """The worker is closed when nothing is read; further questions are dropped with the node."""
    node = _Node()
    worker = SimWorker(node.time, random.Random(3))
    parts: Any = SimpleNamespace(environment=node.environment, configuration=node.configuration)
    sent: list[bytes] = []
    exchange = FileExchange(parts, worker, sent.append)
    for number in (1, 2):
        exchange.receive(b"".join(encode_message(AskBytes(number, Directory.BODIES, "9.large", 0, 100))))
    replication: Any = SimpleNamespace(used=SimpleNamespace(worker=worker), replica=None, files=exchange)
    closed: list[bool] = []
    NodeReplication.close(replication, lambda: closed.append(worker.idle))
    assert closed == [], "one question is being read"
    node.time.advance(1_000)
    assert closed == [True]
    assert sent == []
