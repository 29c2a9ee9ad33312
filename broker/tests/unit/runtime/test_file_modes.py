"""Modes of what a node relies on: refused, told, or fine."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.errors import ConfigError, StoreError
from understudy.runtime.base.file_modes import check_directories, check_files


def test_private_directories_are_fine_and_absent_ones_too(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir(mode=0o700)
    assert check_directories([str(tmp_path / "journal"), str(tmp_path / "absent")]) == []


def test_a_directory_writable_by_the_group_is_logged_and_one_writable_by_all_refused(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    directory.mkdir()
    directory.chmod(0o770)
    assert "group" in check_directories([str(directory)])[0]
    directory.chmod(0o777)
    with pytest.raises(StoreError, match="all users"):
        check_directories([str(directory)])


@pytest.mark.parametrize(
    ("mode", "readable", "secret"),
    [(0o600, "fine", "fine"), (0o640, "fine", "fine"), (0o644, "told", "refused"), (0o666, "refused", "refused")],
)
def test_files(tmp_path: Path, mode: int, readable: str, secret: str) -> None:
    path = tmp_path / "file"
    path.write_text("")
    path.chmod(mode)

    def outcome(*arguments: list[str]) -> str:
        try:
            return "told" if check_files(*arguments) else "fine"
        except ConfigError:
            return "refused"

    assert outcome([str(path)], []) == readable
    assert outcome([], [str(path)]) == secret
    assert outcome([str(path.with_name("absent"))], [str(path.with_name("absent"))]) == "fine"
