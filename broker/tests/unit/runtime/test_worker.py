"""The threads that compute for the loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.turn import Turn
from understudy.runtime.base.worker import ThreadWorker, worker_threads


def make_worker(loop: asyncio.AbstractEventLoop, threads: int) -> ThreadWorker:
    return ThreadWorker(loop, Turn(loop, LoopTimers(loop)), threads)


def test_work_runs_on_a_thread_and_its_result_is_delivered_on_the_loop() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        worker = make_worker(loop, 2)
        places: list[str] = []
        told: asyncio.Future[BaseException | None] = loop.create_future()
        worker.run(lambda: places.append(threading.current_thread().name), told.set_result)
        assert await told is None
        assert places[0].startswith("worker-")
        failed: asyncio.Future[BaseException | None] = loop.create_future()

        def fail() -> None:
            raise MemoryError("too much")

        worker.run(fail, failed.set_result)
        assert isinstance(await failed, MemoryError)
        worker.close()

    asyncio.run(run())


def test_there_are_no_threads_before_there_is_work() -> None:
    async def run() -> None:
        worker = make_worker(asyncio.get_running_loop(), 3)
        assert not [thread for thread in threading.enumerate() if thread.name == "worker-3"]
        worker.close()

    asyncio.run(run())
    assert 1 <= worker_threads() <= 4


_EXIT = """
import asyncio, sys, time
from pathlib import Path
from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.turn import Turn
from understudy.runtime.base.worker import ThreadWorker

async def run():
    loop = asyncio.get_running_loop()
    begun = loop.create_future()

    def work():
        loop.call_soon_threadsafe(begun.set_result, None)
        time.sleep(0.2)
        Path(sys.argv[1]).touch()

    ThreadWorker(loop, Turn(loop, LoopTimers(loop)), 1).run(work, lambda error: None)
    await begun

asyncio.run(run())
"""


def test_the_exit_of_the_process_waits_for_a_computation_under_way(tmp_path: Path) -> None:
    """A thread that computed the key of the cluster password while the library of hashes took its memory down ended the
    process with a segmentation fault.
    """
    done = tmp_path / "done"
    assert subprocess.run([sys.executable, "-c", _EXIT, str(done)], check=False).returncode == 0
    assert done.exists()
