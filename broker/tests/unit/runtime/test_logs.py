"""Goal: code that a node runs on threads, and the callbacks of these threads, log with the name of the node."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Callable

import pytest

from support.operations import FileApplier
from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.journal_writer import ThreadLogWriter
from understudy.runtime.base.logs import NODE, JsonFormatter
from understudy.runtime.base.turn import Turn
from understudy.runtime.base.worker import ThreadWorker

Runner = ThreadLogWriter | ThreadWorker


def log_line(**fields: object) -> dict[str, object]:
    record = logging.makeLogRecord({"name": "understudy", "levelname": "INFO", "msg": "an event", **fields})
    line: dict[str, object] = json.loads(JsonFormatter().format(record))
    return line


def test_a_line_outside_of_nodes_names_none() -> None:
    assert "node" not in log_line()


def test_a_line_of_a_node_names_it() -> None:
    context = contextvars.copy_context()
    context.run(NODE.set, "one")
    assert context.run(log_line, reason="a test") | {"ts": ""} == {
        "ts": "", "level": "info", "logger": "understudy", "event": "an event", "node": "one", "reason": "a test",
    }  # fmt: skip


def log_writer(loop: asyncio.AbstractEventLoop, executor: Turn) -> ThreadLogWriter:
    return ThreadLogWriter(loop, executor, FileApplier())


@pytest.mark.parametrize("make", [log_writer, ThreadWorker], ids=["log writer", "worker"])
def test_work_on_a_thread_and_its_end_belong_to_the_node(make: Callable[..., Runner]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        seen: list[str] = []

        def done(error: BaseException | None) -> None:
            seen.append(NODE.get("none"))
            ended.set_result(None)

        NODE.set("one")
        runner = make(loop, Turn(loop, LoopTimers(loop)))
        runner.run(lambda: seen.append(NODE.get("none")), done)
        await asyncio.wait_for(ended, 60)
        runner.close()
        assert seen == ["one", "one"]

    asyncio.run(main())
