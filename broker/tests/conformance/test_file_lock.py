"""File locks: one holder among all nodes, freed by the end of a process, and noticed when lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from understudy.errors import DiskFailed
from understudy.ports import Disk, Entropy, FileLock
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.store.node_lock import NodeLock
from understudy.testing.sim.disk import SimVolume


class _Holder(Protocol):
    """A process that holds a lock."""

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        ...


@dataclass
class Locks:
    """Locks of one kind."""

    directory: str
    disk: Disk
    make: Callable[[str], FileLock]
    """A lock object of this node on a file."""
    hold_elsewhere: Callable[[str], _Holder]
    """Another process acquires the lock of a file."""
    other: Callable[[str], FileLock]
    """A lock object of another node."""


class _RealHolder:
    def __init__(self, path: str) -> None:
        code = (
            "import sys; from understudy.runtime.locks.file_lock import RealFileLock; lock = RealFileLock(sys.argv[1]);"
            "print(lock.try_acquire(), flush=True); sys.stdin.read()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "True\n"

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class _SimHolder:
    def __init__(self, volume: SimVolume, path: str) -> None:
        self._volume = volume
        assert volume.lock(path, "victim").try_acquire()

    def kill(self) -> None:
        self._volume.crash_process("victim")


@pytest.fixture(params=["real", "simulated"])
def locks(request: pytest.FixtureRequest, tmp_path: Path) -> Locks:
    if request.param == "real":
        return Locks(str(tmp_path), RealDisk(), RealFileLock, _RealHolder, RealFileLock)
    volume = SimVolume()
    disk = volume.disk("one")
    disk.make_directory("/d")
    return Locks(
        "/d",
        disk,
        lambda path: volume.lock(path, "one"),
        lambda path: _SimHolder(volume, path),
        lambda path: volume.lock(path, "other"),
    )


def test_a_lock_has_one_holder(locks: Locks) -> None:
    path = f"{locks.directory}/lock"
    mine, again, theirs = locks.make(path), locks.make(path), locks.other(path)
    assert not mine.verify()
    assert mine.try_acquire()
    assert mine.try_acquire(), "held already"
    assert mine.verify()
    assert not again.try_acquire(), "another object of the same process"
    assert not theirs.try_acquire()
    assert not theirs.verify()
    again.release()
    theirs.release()
    assert mine.verify(), "released by those that did not hold it"
    mine.release()
    mine.release()
    assert not mine.verify()
    assert theirs.try_acquire()
    assert not mine.try_acquire()
    theirs.release()


def test_locks_of_two_files_are_two(locks: Locks) -> None:
    one, two = locks.make(f"{locks.directory}/one"), locks.other(f"{locks.directory}/two")
    assert one.try_acquire()
    assert two.try_acquire()
    one.release()
    two.release()


def test_the_end_of_a_process_frees_its_locks(locks: Locks) -> None:
    path = f"{locks.directory}/lock"
    holder = locks.hold_elsewhere(path)
    lock = locks.make(path)
    for _ in range(3):
        assert not lock.try_acquire()
    holder.kill()
    assert lock.try_acquire()
    assert lock.verify()
    lock.release()


def test_acquiring_makes_the_file(locks: Locks) -> None:
    path = f"{locks.directory}/lock"
    lock = locks.make(path)
    assert not locks.disk.exists(path)
    assert lock.try_acquire()
    assert locks.disk.exists(path)
    lock.release()
    assert locks.disk.exists(path), "it is never removed"


def test_a_lock_of_a_missing_directory_is_an_error(locks: Locks) -> None:
    with pytest.raises(DiskFailed, match="none"):
        locks.make(f"{locks.directory}/none/lock").try_acquire()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_removed_or_replaced_file_is_noticed(locks: Locks, replaced: bool) -> None:
    """The lock on a removed or replaced file excludes no node that opens the path later."""
    path = f"{locks.directory}/lock"
    lock, other = locks.make(path), locks.other(path)
    assert lock.try_acquire()
    assert not other.try_acquire()
    if replaced:
        locks.disk.open(f"{path}.new", create=True).close()
        locks.disk.rename(f"{path}.new", path)
    else:
        locks.disk.remove(path)
    assert not lock.verify()
    assert any(other.try_acquire() for _ in range(40)), "found after some tries"
    assert other.verify()
    assert not lock.verify()
    lock.release()
    assert other.verify()
    other.release()


class _Counting(Entropy):
    def token(self, length_bytes: int) -> bytes:
        return bytes(range(1, length_bytes + 1))


def test_the_lock_files_of_a_store(locks: Locks) -> None:
    """``NodeLock`` on both: one active node, a touch by another one is noticed, and the state of the store."""
    one = NodeLock(locks.disk, locks.directory, locks.make, _Counting())
    other = NodeLock(locks.disk, locks.directory, locks.other, _Counting())
    assert one.open()
    assert other.open()
    assert one.node_id == other.node_id
    assert one.read_state() == "0"
    assert one.try_primary()
    assert not other.try_primary()
    assert other.try_backup()
    assert not one.try_backup()
    one.write_state("L")
    assert other.read_state() == "L"
    assert one.lost() is None
    other.write_state("F")
    assert one.lost() is None, "a primary that asks for the store has not got it"
    one.release_primary()
    assert one.lost() is not None
    assert other.try_primary()
    other.close()
    one.close()
