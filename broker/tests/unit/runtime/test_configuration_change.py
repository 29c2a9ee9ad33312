"""Lines of the management CLI on the files of an instance: writers at once, and crashes while a line begins to wait."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.dmr import FULL_HA, SERVER
from understudy.config.edit.overlay import waiting
from understudy.errors import ConfigError
from understudy.management.dmr.grammar import Operation, parse_line
from understudy.management.dmr.operations import Facts
from understudy.runtime.files import overlay_file
from understudy.runtime.files.configuration_change import Done, carry_out
from understudy.runtime.files.configuration_file import ConfigurationFile
from understudy.runtime.files.overlay_file import read_overlay

#: Lines that each of two writers carries out.
LINES_OF_A_WRITER = 12
WAITING = f"{SERVER}/remote-acceptor=late:add(socket-binding=messaging)"
#: What the line above waits for.
AWAITED = (
    "/interface=public:add(inet-address=127.0.0.1)",
    "/socket-binding-group=sockets:add(default-interface=public)",
    "/socket-binding-group=sockets/socket-binding=messaging:add(port=5445)",
)


@pytest.fixture
def source(tmp_path: Path) -> ConfigurationFile:
    (tmp_path / "etc").mkdir()
    config = tmp_path / "etc" / "broker.xml"
    config.write_text(FULL_HA)
    return ConfigurationFile(config, tmp_path)


def change(source: ConfigurationFile, line: str) -> Done:
    operation = parse_line(line)
    assert isinstance(operation, Operation)
    return carry_out(source, [operation], Facts("1", str(source.directory)), "a user")


def test_two_writers_at_once_lose_nothing_that_was_answered_with_success(source: ConfigurationFile) -> None:
    """A writer whose line is refused, because the other one is at work, gives the line again."""
    writers = [_forked(lambda name=name: _write_all(source, name)) for name in ("first", "second")]  # type: ignore[misc]
    assert [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in writers] == [0, 0]
    found = {each.target.path for each in read_overlay(source.config)}
    wanted = {f"{name}-{number}" for name in ("first", "second") for number in range(LINES_OF_A_WRITER)}
    assert {name for name in wanted if any(f"'{name}'" in path for path in found)} == wanted
    settings = source.load().configuration.address_settings
    assert wanted <= {each.match for each in settings}


def _write_all(source: ConfigurationFile, name: str) -> None:
    for number in range(LINES_OF_A_WRITER):
        line = f"{SERVER}/address-setting={name}-{number}:add(redelivery-delay={number})"
        while (refusal := _refusal(source, line)) is not None:
            assert "another change of the configuration is being made" in refusal


def _refusal(source: ConfigurationFile, line: str) -> str | None:
    """Why a line is refused; None: it was carried out."""
    try:
        return None if change(source, line).written else "nothing was written"
    except ConfigError as error:
        return str(error)


def _forked(run: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            run()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
@pytest.mark.parametrize("step", ["fdopen", "replace", "fsync"])
def test_a_line_that_waits_is_there_as_a_whole_or_not_at_all_after_a_crash(
    source: ConfigurationFile, step: str, after: bool
) -> None:
    before = source.load().configuration
    child = _forked(lambda: _change_and_die(source, step, after=after))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, "the step was not reached"
    held = waiting(read_overlay(source.config))
    assert len(held) == (2 if step == "replace" and after else 0)
    # a start uses what counts, and a reload asks for what is missing
    assert source.load().configuration == before
    if held:
        with pytest.raises(ConfigError, match="there is no socket-binding 'messaging'"):
            source.load_whole()
    else:
        change(source, WAITING)
    for line in AWAITED:
        change(source, line)
    assert waiting(read_overlay(source.config)) == ()
    assert [each.port for each in source.load_whole().configuration.acceptors] == [61616, 5445]


def _change_and_die(source: ConfigurationFile, step: str, *, after: bool) -> None:
    """Carry the line out that waits, and end the process before or after the first call of a step."""
    real: Callable[..., Any] = getattr(os, step)

    def dying(*arguments: Any, **more: Any) -> Any:
        if not after:
            os._exit(9)
        real(*arguments, **more)
        os._exit(9)

    setattr(overlay_file.os, step, dying)
    change(source, WAITING)
