"""Goal: jobs run in order away from the loop, and every end is told on the loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from understudy.errors import DiskFailed
from understudy.runtime.disk import RealDisk
from understudy.runtime.journal_writer import ThreadLogWriter


def test_order_and_threads(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        writer = ThreadLogWriter(loop)
        file = RealDisk().open(str(tmp_path / "f"), create=True)
        ended: asyncio.Future[None] = loop.create_future()
        events: list[object] = []

        def done(name: str, error: BaseException | None) -> None:
            assert threading.current_thread() is threading.main_thread()
            events.append((name, error))

        def work() -> None:
            assert threading.current_thread() is not threading.main_thread()
            events.append(file.read(0, 10))

        writer.submit(file, 0, [b"abc", b"def"], lambda error: done("submit", error))
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
        writer = ThreadLogWriter(loop)
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
        # threads of other tests may still be on their way out: only ours counts
        before = set(threading.enumerate())
        writer = ThreadLogWriter(asyncio.get_running_loop())
        (thread,) = (each for each in threading.enumerate() if each not in before)
        assert thread.name == "journal-writer"
        assert thread.daemon
        writer.close()
        thread.join(10)
        assert not thread.is_alive()

    asyncio.run(main())
