"""The progress of an import beside its file: kept while messages are confirmed, and refused before the first one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from understudy.cli.messages.sending import _NOTE_EVERY, _Progress
from understudy.errors import ConfigError


def test_progress_is_kept_for_one_broker_and_one_export(tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl.progress"
    progress = _Progress(file, "export", "node")
    assert list(tmp_path.iterdir()) == [], "nothing is confirmed"
    for number in reversed(range(_NOTE_EVERY)):
        progress.confirm(number)
    assert json.loads(file.read_text())["confirmed"] == _NOTE_EVERY
    assert _Progress(file, "export", "node").confirmed == _NOTE_EVERY
    assert _Progress(file, "export", "another").confirmed == 0
    assert _Progress(file, "another", "node").confirmed == 0
    assert json.loads(file.read_text())["confirmed"] == _NOTE_EVERY


def test_progress_that_cannot_be_written_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "export.jsonl.progress.part").mkdir()
    with pytest.raises(ConfigError, match="the progress cannot be written: Is a directory"):
        _Progress(tmp_path / "export.jsonl.progress", "export", "node")


def test_a_disk_that_fails_later_is_an_error_of_the_command(tmp_path: Path) -> None:
    directory = tmp_path / "mounted"
    directory.mkdir()
    progress = _Progress(directory / "export.jsonl.progress", "export", "node")
    directory.rmdir()
    progress.confirm(0)
    with pytest.raises(ConfigError, match="the progress cannot be written: No such file or directory"):
        progress.note()


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000])
def test_another_file_in_its_place_is_no_progress(tmp_path: Path, text: str) -> None:
    file = tmp_path / "export.jsonl.progress"
    file.write_text(text)
    with pytest.raises(ConfigError, match="is no progress of an import"):
        _Progress(file, "export", "node")
