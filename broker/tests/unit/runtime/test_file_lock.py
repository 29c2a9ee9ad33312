"""Descriptors and requests of real locks; the behaviour shared with simulated ones is in ``conformance``."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from understudy.runtime.locks.file_lock import RealFileLock


def test_reading_the_file_elsewhere_does_not_drop_it(tmp_path: Path) -> None:
    # POSIX locks of a process end when any descriptor of the file is closed
    path = tmp_path / "lock"
    first, second = RealFileLock(str(path)), RealFileLock(str(path))
    assert first.try_acquire()
    path.read_bytes()
    assert not second.try_acquire()
    first.release()


def test_a_replaced_or_removed_file_is_noticed(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = RealFileLock(path)
    assert lock.try_acquire()
    os.rename(path, path + ".old")
    assert not lock.verify()
    Path(path).touch()
    assert not lock.verify()
    other = RealFileLock(path)
    assert other.try_acquire()
    other.release()
    lock.release()


def test_a_held_lock_is_requested_with_one_descriptor_and_a_replaced_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    held, waiting = RealFileLock(str(path)), RealFileLock(str(path))
    assert held.try_acquire()
    opened = []
    monkeypatch.setattr(RealFileLock, "_open", lambda self: opened.append(self) or os.open(self.path, os.O_RDWR))
    for _ in range(100):
        assert not waiting.try_acquire()
    assert len(opened) == 1
    path.rename(path.with_suffix(".old"))
    path.touch()
    assert any(waiting.try_acquire() for _ in range(31))
    assert len(opened) == 2
    assert waiting.verify()
    assert not held.verify()
    held.release()
    waiting.release()


def test_a_free_lock_is_requested_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A take-over waits for each request."""
    asked: list[int] = []
    asking = fcntl.fcntl

    def count(descriptor: int, command: int, argument: bytes) -> object:
        asked.append(command)
        return asking(descriptor, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", count)
    lock = RealFileLock(str(tmp_path / "lock"))
    assert lock.try_acquire()
    assert len(asked) == 1
    assert lock.verify()
    assert len(asked) == 2
    lock.release()


def test_the_lock_is_had_by_the_first_try_after_it_is_free(tmp_path: Path) -> None:
    first, second = (RealFileLock(str(tmp_path / "lock")) for _ in range(2))
    assert first.try_acquire()
    for _ in range(3):
        assert not second.try_acquire()
    first.release()
    assert second.try_acquire()
    second.release()
    assert first.try_acquire()
    first.release()
