"""Goal: a stuck path is found, distinguished from a paused one, and handled by the policy; with no real waiting."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from support.operations import FileApplier, batch
from understudy.config.model import CriticalAnalyzerPolicy as Policy
from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.journal_writer import ThreadLogWriter
from understudy.runtime.base.turn import Turn
from understudy.runtime.process import critical_analyzer
from understudy.runtime.process.critical_analyzer import EXIT_CODE, CriticalAnalyzer, CriticalPath

TIMEOUT_MS = 10_000
SECOND_NS = 1_000_000_000


class Watched:
    """An analyzer over two paths, and its actions."""

    def __init__(self, policy: Policy, timeout_ms: int = TIMEOUT_MS) -> None:
        self.writer, self.other = CriticalPath("writer"), CriticalPath("other")
        self.reasons: list[str] = []
        self.halted: list[int] = []
        self.analyzer = CriticalAnalyzer(
            [self.writer, self.other],
            policy,
            timeout_ms=timeout_ms,
            shut_down=self.reasons.append,
            halt=self.halted.append,
        )

    def look(self, now_ns: int) -> None:
        found = self.analyzer.stuck(now_ns)
        if found:
            self.analyzer.act(found, now_ns)


def test_only_what_takes_longer_than_the_timeout_is_stuck() -> None:
    watched = Watched(Policy.LOG)
    assert watched.analyzer.stuck(100 * SECOND_NS) == {}, "who does nothing is not busy"
    watched.writer.since_ns = 90 * SECOND_NS
    watched.other.since_ns = 99 * SECOND_NS
    assert watched.analyzer.stuck(100 * SECOND_NS) == {}
    assert watched.analyzer.stuck(100 * SECOND_NS + 1) == {"writer": 90 * SECOND_NS}


def test_a_stuck_path_is_logged_once_with_every_stack(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(Policy.LOG)
    watched.writer.since_ns = SECOND_NS
    for second in (12, 20, 30):
        watched.look(second * SECOND_NS)
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
    assert "stuck: writer for 11 s" in caplog.text
    assert "test_a_stuck_path_is_logged_once_with_every_stack" in caplog.text
    watched.writer.since_ns = 40 * SECOND_NS
    watched.look(60 * SECOND_NS)
    assert len(caplog.records) == 2, "another time is another thing"
    assert watched.halted == watched.reasons == []


def test_halt_ends_the_process_even_if_the_log_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critical_analyzer, "FAREWELL_MS", 1)
    hanging = threading.Event()

    class Hanging(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            hanging.wait(30)

    handler = Hanging()
    critical_analyzer.log.addHandler(handler)
    try:
        watched = Watched(Policy.HALT)
        watched.writer.since_ns = SECOND_NS
        watched.look(12 * SECOND_NS)
        assert watched.halted == [EXIT_CODE]
    finally:
        hanging.set()
        critical_analyzer.log.removeHandler(handler)


def test_shutdown_asks_on_the_loop_and_ends_a_process_that_cannot_stop() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        watched = Watched(Policy.SHUTDOWN, timeout_ms=TIMEOUT_MS)
        watched.analyzer.start(loop)
        try:
            now_ns = time.monotonic_ns()
            watched.writer.since_ns = now_ns - 11 * SECOND_NS
            watched.look(now_ns)
            watched.look(now_ns + 5 * SECOND_NS)
            await asyncio.sleep(0)
            assert watched.reasons == ["stuck: writer"]
            assert watched.halted == []
            watched.look(now_ns + 11 * SECOND_NS)
            assert watched.halted == [EXIT_CODE]
        finally:
            watched.analyzer.stop()

    asyncio.run(main())


class Waiting:
    """Replacement of the event of the thread: time passes in its waits, and the loop may turn meanwhile."""

    def __init__(self, *turns: bool) -> None:
        self.turns = list(turns)
        """Whether the loop turns in each of the next waits."""
        self.now_ns = 60 * SECOND_NS
        self.analyzer: CriticalAnalyzer | None = None

    def wait(self, timeout_s: float) -> bool:
        assert self.analyzer is not None
        self.now_ns += int(timeout_s * SECOND_NS)
        if self.turns and self.turns.pop(0):
            self.analyzer._beat()
        return self.now_ns > 75 * SECOND_NS

    def set(self) -> None: ...


@pytest.mark.parametrize(
    ("turns", "halted"),
    [((True, True, True), False), ((False, False, False), True), ((False, False, True), False)],
    ids=["it turns", "it is stuck", "the whole process was stopped and goes on"],
)
def test_the_loop_itself_is_watched(turns: tuple[bool, ...], halted: bool) -> None:
    async def main() -> None:
        waiting = Waiting(*turns)
        ended: list[int] = []
        analyzer = CriticalAnalyzer(
            [],
            Policy.HALT,
            timeout_ms=TIMEOUT_MS - 1,
            check_period_ms=TIMEOUT_MS // 2,
            shut_down=lambda reason: None,
            halt=ended.append,
            now_ns=lambda: waiting.now_ns,
        )
        waiting.analyzer = analyzer
        analyzer._loop = asyncio.get_running_loop()
        analyzer._beat()
        analyzer._stopped = waiting  # type: ignore[assignment]
        analyzer._watch()
        analyzer.stop()
        assert bool(ended) is halted

    asyncio.run(main())


def test_a_writer_says_since_when_it_writes_in_either_thread() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        path = CriticalPath("writer")
        seen: list[int] = []

        class File:
            def write(self, offset: int, buffers: object) -> None: ...

            def sync(self) -> None:
                seen.append(path.busy_since_ns())

        writer = ThreadLogWriter(loop, Turn(loop, LoopTimers(loop)), FileApplier(File()), path)
        for _ in range(20):  # until the disk counts as quick and a batch is written at once
            ended: asyncio.Future[BaseException | None] = loop.create_future()
            writer.submit(batch(b"x"), ended.set_result)
            assert await ended is None
        ended = loop.create_future()
        writer.run(lambda: seen.append(path.busy_since_ns()), ended.set_result)
        await ended
        writer.close()
        assert all(seen)
        assert len(seen) == 21
        assert path.busy_since_ns() == 0

    asyncio.run(main())
