"""``understudy log`` and the lines of logs that it reads."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from understudy.cli.managing import log as module
from understudy.cli.managing.log import log
from understudy.cli.managing.log_lines import Wanted, lines_of, of_journal, since_ms
from understudy.errors import ConfigError
from understudy.runtime.base.logs import NODE, JsonFormatter, TextFormatter, event_id

TOOK_OVER = event_id("took over from %s")


def record(
    level: int, text: str, *arguments: object, at_s: float = 1_800_000_000.5, **fields: object
) -> logging.LogRecord:
    made = logging.LogRecord("understudy.x", level, __file__, 1, text, arguments, None)
    made.created, made.msecs = at_s, (at_s % 1) * 1000
    vars(made).update(fields)
    return made


@pytest.fixture
def records() -> list[logging.LogRecord]:
    failed = record(logging.ERROR, "stuck", at_s=1_800_000_020.0)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        failed.exc_info = sys.exc_info()
    return [
        record(logging.INFO, "managed", user="token", peer="127.0.0.1"),
        record(logging.WARNING, "took over from %s", "a:1", at_s=1_800_000_010.0),
        failed,
    ]


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_both_forms_of_the_log_are_read(formatter: logging.Formatter, records: list[logging.LogRecord]) -> None:
    token = NODE.set("b")
    try:
        texts = [each + "\n" for made in records for each in formatter.format(made).split("\n")]
    finally:
        NODE.reset(token)
    lines = list(lines_of(texts))
    assert [(each.level, each.id, each.node) for each in lines] == [
        ("info", event_id("managed"), "b"),
        ("warning", TOOK_OVER, "b"),
        ("error", event_id("stuck"), "b"),
    ]
    assert lines[1].event == "took over from a:1"
    assert lines[1].at_ms == 1_800_000_010_000
    assert lines[2].text().endswith("ValueError: two\nlines")
    assert json.loads(lines[2].json())["exception"].endswith("two\nlines")
    assert list(lines_of(each + "\n" for each in lines[1].text().split("\n"))) == [lines[1]], "and its own output"


def test_the_journal_is_read_with_its_times(records: list[logging.LogRecord]) -> None:
    message = TextFormatter(dated=False).format(records[1])
    entries = [
        json.dumps({"MESSAGE": message, "__REALTIME_TIMESTAMP": "1800000010000000"}),
        json.dumps({"MESSAGE": "Started understudy.service", "__REALTIME_TIMESTAMP": "1800000010000000"}),
        json.dumps({"MESSAGE": None}),
        "no json",
    ]
    (line,) = of_journal(entries)
    assert (line.ts, line.id) == ("2027-01-15T08:00:10.000+00:00", TOOK_OVER)


def test_level_time_and_id_are_conditions(records: list[logging.LogRecord]) -> None:
    lines = list(lines_of(JsonFormatter().format(each) + "\n" for each in records))

    def wanted(**conditions: object) -> list[str]:
        return [each.event for each in lines if Wanted(**conditions).takes(each)]  # type: ignore[arg-type]  # by name

    assert wanted(level="warning") == ["took over from a:1", "stuck"]
    assert wanted(since_ms=1_800_000_010_000) == ["took over from a:1", "stuck"]
    assert wanted(ids=frozenset({TOOK_OVER})) == ["took over from a:1"]


def test_since_is_a_duration_or_a_time() -> None:
    assert since_ms("10m", 1_000_000) == 400_000
    assert since_ms("1970-01-01", 0) == 0
    assert since_ms("1970-01-01T00:00:01+00:00", 0) == since_ms("1970-01-01T00:00:01Z", 0) == 1000
    with pytest.raises(ConfigError, match="no duration and no time"):
        since_ms("yesterday", 0)


def run(*arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(log, list(arguments))
    if code:
        assert isinstance(found.exception, ConfigError), found.output
        return str(found.exception)
    assert found.exit_code == 0, (found.output, found.exception)
    return found.output


def test_the_node_says_where_its_log_is(tmp_path: Path, records: list[logging.LogRecord]) -> None:
    assert "no node runs here" in run("--instance", str(tmp_path), code=2)
    (tmp_path / "run").mkdir()
    node = tmp_path / "run/node.json"
    node.write_text(json.dumps({"log_file": None, "journal_unit": None}))
    assert "--log-file" in run("--instance", str(tmp_path), code=2)
    node.write_text(json.dumps({"log_file": str(tmp_path / "log"), "journal_unit": None}))
    assert "cannot be read" in run("--instance", str(tmp_path), code=2)
    (tmp_path / "log").write_text("".join(JsonFormatter().format(each) + "\n" for each in records))
    assert len(run("--instance", str(tmp_path), "--level", "warning", "--json").splitlines()) == 2
    shown = run("--file", str(tmp_path / "log"), "--event", TOOK_OVER)
    assert shown == f"2027-01-15 08:00:10.000Z WARNING {TOOK_OVER} took over from a:1\n"
    assert "give one of" in run("--file", "x", "--unit", "y", code=2)


def test_the_journal_is_asked_for_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "journalctl"
    entry = json.dumps(
        {"MESSAGE": f"WARNING {TOOK_OVER} took over from a:1", "__REALTIME_TIMESTAMP": "1800000010000000"}
    )
    program.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\necho '{entry}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "took over from a:1" in run("--unit", "understudy@a.service", "--since", "2027-01-01")
    assert "--unit understudy@a.service" in (tmp_path / "asked").read_text()
    program.write_text("#!/bin/sh\nexit 1\n")
    assert "code 1" in run("--unit", "u", code=2)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "journalctl is not installed" in run("--unit", "u", code=2)


def test_a_followed_file_may_be_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, polls = tmp_path / "log", iter(range(100))
    formatter = JsonFormatter()

    def line(text: str) -> str:
        return formatter.format(record(logging.INFO, text)) + "\n"

    def pause(seconds: float) -> None:
        number = next(polls)
        if number == 0:
            with file.open("a") as opened:
                opened.write(line("second")[:10])
        elif number == 1:
            with file.open("a") as opened:
                opened.write(line("second")[10:])
        elif number == 2:
            file.rename(tmp_path / "log.1")
        elif number == 3:
            file.write_text(line("third"))
        elif number == 4:
            raise KeyboardInterrupt

    file.write_text(line("first"))
    monkeypatch.setattr(module, "time", type("T", (), {"sleep": staticmethod(pause), "time_ns": time.time_ns}))
    shown = run("--file", str(file), "--follow")
    assert [each.split(" ", 4)[-1].strip() for each in shown.splitlines()] == [
        f"{event_id(text)} {text}" for text in ("first", "second", "third")
    ]
