"""Goal: a step that takes long is shown while it runs, and a short one is not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.plugin_utils import progress
from ansible_collections.understudy.broker.plugins.plugin_utils.progress import AGAIN_S, QUIET_S, Steps, shown


def test_a_short_step_is_not_shown() -> None:
    steps = Steps("a1", "installing", 100.0)
    assert steps.due(100.0 + QUIET_S - 0.1) == ""


def test_a_long_step_is_shown_again_and_again_with_its_time() -> None:
    steps = Steps("a1", "installing", 100.0)
    lines = [steps.due(100.0 + second) for second in range(25)]
    first, again = int(QUIET_S), int(QUIET_S + AGAIN_S)
    assert [second for second, line in enumerate(lines) if line] == [first, again, again + int(AGAIN_S)]
    assert lines[first] == f"a1: installing ({first} s)"


def test_the_time_of_a_step_begins_with_it() -> None:
    steps = Steps("wheelhouse", "", 0.0)
    assert steps.due(50.0) == ""
    steps.begin("building", 50.0)
    steps.begin("building", 52.0)
    assert steps.due(50.0 + QUIET_S) == "wheelhouse: building (3 s)"
    steps.begin("packing", 60.0)
    assert steps.due(61.0) == ""
    assert steps.due(63.0) == "wheelhouse: packing (3 s)"


def test_the_last_line_of_the_file_is_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    monkeypatch.setattr(progress, "POLL_S", 0.001)
    seen: list[str] = []
    came = threading.Event()

    def show(line: str) -> None:
        seen.append(line)
        came.set()

    with shown(Steps("wheelhouse", "", 0.0), show, tmp_path / "steps"):
        (tmp_path / "steps").write_text("fetching\nbuilding\n")
        assert came.wait(10)
    assert seen[0].startswith("wheelhouse: building (")
