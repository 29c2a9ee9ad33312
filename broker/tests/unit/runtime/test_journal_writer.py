"""Goal: jobs run in order outside of the loop's thread, and every ``done`` is called on the loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support.operations import FileApplier, Written, batch
from understudy.errors import DiskFailed, LockLost
from understudy.ports import Fence
from understudy.runtime.base import journal_writer
from understudy.runtime.base.disk import RealDisk, RealFile
from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.journal_writer import AT_ONCE_BYTES_MAX, AT_ONCE_NS_MAX, ThreadLogWriter
from understudy.runtime.base.turn import Turn
from understudy.store.log.operations import Append


def make_writer(
    loop: asyncio.AbstractEventLoop, file: Written | None = None, fence: Fence | None = None
) -> ThreadLogWriter:
    return ThreadLogWriter(loop, Turn(loop, LoopTimers(loop)), FileApplier(file), fence=fence)


def test_order_and_threads(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        file = RealDisk().open(str(tmp_path / "f"), create=True)
        writer = make_writer(loop, file)
        ended: asyncio.Future[None] = loop.create_future()
        events: list[object] = []

        def done(name: str, error: BaseException | None) -> None:
            assert threading.current_thread() is threading.main_thread()
            events.append((name, error))

        def work() -> None:
            assert threading.current_thread() is not threading.main_thread()
            events.append(file.read(0, 10))

        writer.submit(batch(b"abc", b"def"), lambda error: done("submit", error))
        writer.run(work, lambda error: done("run", error))
        writer.run(lambda: None, lambda error: ended.set_result(None))
        writer.close()
        await ended
        assert events.index(b"abcdef") < events.index(("run", None))
        assert events.index(("submit", None)) < events.index(("run", None))

    asyncio.run(main())


def test_an_error_is_given_to_done() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        writer = make_writer(loop)
        told: asyncio.Future[BaseException | None] = loop.create_future()

        def work() -> None:
            raise DiskFailed("broken")

        writer.run(work, told.set_result)
        assert isinstance(await told, DiskFailed)
        again: asyncio.Future[BaseException | None] = loop.create_future()
        writer.run(lambda: None, again.set_result)
        assert await again is None
        writer.close()

    asyncio.run(main())


def test_the_thread_ends_with_close() -> None:
    async def main() -> None:
        # threads of other tests may still be ending: only ours counts
        before = set(threading.enumerate())
        writer = make_writer(asyncio.get_running_loop())
        (thread,) = (each for each in threading.enumerate() if each not in before)
        assert thread.name == "journal-writer"
        assert thread.daemon
        writer.close()
        thread.join(10)
        assert not thread.is_alive()

    asyncio.run(main())


class SlowFile(RealFile):
    """Every sync takes what ``took_ns`` says, on the clock the writer reads."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(str(path), os.open(path, os.O_RDWR | os.O_CREAT))
        self.now_ns = 0
        self.took_ns = 100_000
        self.synced_by: list[str] = []
        self.fails = False
        monkeypatch.setattr(journal_writer.time, "monotonic_ns", lambda: self.now_ns)

    def sync(self) -> None:
        self.synced_by.append("loop" if threading.current_thread() is threading.main_thread() else "thread")
        self.now_ns += self.took_ns
        if self.fails:
            raise DiskFailed("no sync")
        super().sync()


def test_small_batches_are_written_at_once_while_the_disk_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        file = SlowFile(tmp_path / "f", monkeypatch)
        writer = make_writer(loop, file)

        async def write(size: int = 10, hurries: bool = True) -> BaseException | None:
            told: asyncio.Future[BaseException | None] = loop.create_future()
            append, sync = batch(b"x" * size)
            assert isinstance(append, Append)
            writer.submit([append._replace(hurries=hurries), sync], told.set_result)
            assert not told.done(), "never told from within submit"
            return await told

        async def who(size: int = 10, hurries: bool = True) -> str:
            assert await write(size, hurries) is None
            return file.synced_by[-1]

        assert await who() == "thread", "nothing is known of the disk yet"
        for _ in range(10):
            await who()
        assert await who() == "loop"
        assert await who(AT_ONCE_BYTES_MAX + 1) == "thread"
        assert await who(hurries=False) == "thread"
        file.took_ns = 10 * AT_ONCE_NS_MAX
        assert await who() == "loop"
        assert await who() == "thread", "one slow sync is enough"
        file.took_ns = 100_000
        assert await who() == "thread", "one quick one is not"
        for _ in range(30):
            await who()
        assert await who() == "loop"
        behind: asyncio.Future[BaseException | None] = loop.create_future()
        writer.run(lambda: None, behind.set_result)
        assert await who() == "thread", "never past a job of the thread"
        await behind
        file.fails = True
        assert isinstance(await write(), DiskFailed)
        assert file.synced_by[-1] == "loop"
        writer.close()

    asyncio.run(main())


class Lease:
    """A ``Fence`` whose answers the test gives."""

    proved_until_ms = 0
    asked = 0
    objection: BaseException | None = None

    def why_not_confirm(self) -> BaseException | None:
        self.asked += 1
        return self.objection


def test_a_written_batch_counts_only_with_permission_and_other_jobs_need_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        lost = LockLost("another node has it")
        fence = Lease()
        fence.proved_until_ms = 1 << 60
        file = SlowFile(tmp_path / "f", monkeypatch)
        writer = make_writer(loop, file, fence)

        async def end_of(start: Callable[[Callable[[BaseException | None], None]], None]) -> BaseException | None:
            told: asyncio.Future[BaseException | None] = loop.create_future()
            start(told.set_result)
            return await told

        assert await end_of(lambda done: writer.submit(batch(b"x"), done)) is None
        assert fence.asked == 0, "it was proved for longer"
        fence.proved_until_ms = 0
        assert await end_of(lambda done: writer.submit(batch(b"x"), done)) is None
        assert await end_of(lambda done: writer.run(lambda: None, done)) is None
        assert fence.asked == 1
        fence.objection = lost
        for _ in range(30):
            assert await end_of(lambda done: writer.submit(batch(b"x"), done)) is lost
        assert {"loop", "thread"} == set(file.synced_by), "wherever it was written"
        file.fails = True
        assert isinstance(await end_of(lambda done: writer.submit(batch(b"x"), done)), DiskFailed)
        assert fence.asked == 31, "a batch that failed has nothing to confirm"
        writer.close()

    asyncio.run(main())
