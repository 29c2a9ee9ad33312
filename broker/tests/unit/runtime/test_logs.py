"""Goal: code that a node runs on threads, and the callbacks of these threads, log with the name of the node."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from support.operations import FileApplier
from understudy.errors import ConfigError
from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.journal_writer import ThreadLogWriter
from understudy.runtime.base.logs import NODE, JsonFormatter, TextFormatter, configure_logs, event_id, formatter_of
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
        "ts": "", "level": "info", "logger": "understudy", "event": "an event",
        "id": event_id("an event"), "node": "one", "reason": "a test",
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


def text_line(*, dated: bool = True, **fields: object) -> str:
    record = logging.makeLogRecord(
        {"name": "understudy", "levelname": "INFO", "msg": "an event", "created": 0.25, "msecs": 250, **fields}
    )
    return TextFormatter(dated=dated).format(record)


def test_a_line_of_text() -> None:
    own = event_id("an event")
    assert (
        text_line(reason="a test", count=3)
        == f'1970-01-01 00:00:00.250Z INFO    {own} an event (reason="a test", count=3)'
    )
    assert text_line(dated=False) == f"INFO    {own} an event"
    context = contextvars.copy_context()
    context.run(NODE.set, "one")
    assert f"[one] {own}" in context.run(text_line)


def test_an_event_has_the_code_of_artemis_or_one_of_its_text() -> None:
    assert log_line(id="AMQ221031")["id"] == "AMQ221031"
    assert "AMQ221031 an event" in text_line(id="AMQ221031")
    assert text_line(id="AMQ221031").count("AMQ221031") == 1
    assert log_line(msg="took over from %s", args=("a",))["id"] == event_id("took over from %s")
    assert log_line(msg="took over from %s", args=("a",))["event"] == "took over from a"


def test_control_characters_of_a_value_have_no_effect() -> None:
    assert "\x1b" not in text_line(reason="\x1b[2J", msg="a %s", args=("\x1b",))


def test_format_of_terminal_journal_and_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    assert isinstance(formatter_of("auto", None, {}), JsonFormatter)
    assert isinstance(formatter_of("auto", "/var/log/x", {}), JsonFormatter)
    assert isinstance(formatter_of("text", "/var/log/x", {}), TextFormatter)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert isinstance(formatter_of("auto", None, {}), TextFormatter)
    assert isinstance(formatter_of("json", None, {}), JsonFormatter)


def test_a_log_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "log"
    with pytest.raises(ConfigError, match="the log file cannot be written: No such file or directory") as refused:
        configure_logs("info", str(file))
    assert str(file) in str(refused.value)


def test_a_log_file_is_opened_again_after_it_was_renamed(tmp_path: Path) -> None:
    file = tmp_path / "log"
    before = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        configure_logs("info", str(file), "text", {"understudy.loud": "debug"})
        logging.getLogger("understudy.quiet").debug("not shown")
        logging.getLogger("understudy.loud").debug("shown")
        file.rename(tmp_path / "log.1")
        logging.getLogger("understudy.quiet").warning("after")
    finally:
        logging.getLogger("understudy.loud").setLevel(logging.NOTSET)
        logging.basicConfig(level=before[1], handlers=before[0], force=True)
    assert "shown" in (tmp_path / "log.1").read_text()
    assert "not shown" not in (tmp_path / "log.1").read_text()
    assert "after" in file.read_text()
