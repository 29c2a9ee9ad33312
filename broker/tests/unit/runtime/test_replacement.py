"""Replacement of files: whatever happens at any step, the old bytes or the new ones are there, with owner and mode."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from understudy.errors import ConfigError
from understudy.runtime.files import replacement
from understudy.runtime.files.replacement import replace, replace_unchanged

#: Steps of a replacement, and whether the new bytes are there when the process ends before the step is done.
STEPS = [("fchmod", 1), ("fsync", 1), ("replace", 1), ("fsync", 2), ("close", 1)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "broker.xml"
    path.write_bytes(b"old")
    path.chmod(0o640)
    return path


def test_mode_stays_and_a_link_leads_to_the_new_bytes(file: Path) -> None:
    link = file.parent / "link.xml"
    link.symlink_to(file)
    replace_unchanged(link, b"old", b"new")
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o7777 == 0o640
    assert sorted(each.name for each in file.parent.iterdir()) == ["broker.xml", "link.xml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="another owner needs root")
def test_owner_stays(file: Path) -> None:
    os.chown(file, 1234, 2345)
    replace(file, b"new")
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 2345)


@pytest.mark.parametrize(("step", "call"), STEPS)
def test_a_process_that_is_killed_at_a_step_leaves_one_whole_file(
    file: Path, step: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = os.fork()
    if child == 0:
        calls = 0
        real = getattr(os, step)

        def killed(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == call:
                os._exit(9)
            return real(*arguments, **options)

        try:
            monkeypatch.setattr(replacement.os, step, killed)
            replace_unchanged(file, b"old", b"new")
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, "the step was reached"
    expected = b"new" if (step, call) in (("fsync", 2), ("close", 1)) else b"old"
    assert file.read_bytes() == expected
    assert file.stat().st_mode & 0o7777 == 0o640
    replace_unchanged(file, expected, b"later")
    assert file.read_bytes() == b"later", "no lock is left"


@pytest.mark.parametrize("step", ["fchmod", "fsync", "replace"])
def test_an_error_leaves_the_file_and_no_other_one(file: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replacement.os, step, failing)
    with pytest.raises(OSError, match="No space left"):
        replace(file, b"new")
    assert [each.read_bytes() for each in file.parent.iterdir()] == [b"old"]


def test_a_file_that_has_changed_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="has changed since it was read"):
        replace_unchanged(file, b"older", b"new")
    assert file.read_bytes() == b"old"


def test_a_file_that_was_replaced_while_it_was_opened_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> None:
        replace(file, b"old")

    monkeypatch.setattr(replacement.fcntl, "flock", locked)
    with pytest.raises(ConfigError, match="has changed since it was read"):
        replace_unchanged(file, b"old", b"new")


def test_two_processes_do_not_replace_it_at_once(file: Path) -> None:
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process is changing it"):
            replace_unchanged(file, b"old", b"new")
    replace_unchanged(file, b"old", b"new")
