"""Disks: real ones on the file systems of the machine, and the simulated one.

What a power loss leaves cannot be tested on a real disk; ``unit/testing/test_sim_disk.py`` shows that the simulation
loses everything that the contract allows. Here: what a node sees of its own and of other nodes' operations, what
remains of a process that is killed, and which error each failure is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from understudy.errors import DiskFailed, DiskFull
from understudy.ports import Disk
from understudy.runtime.base.disk import RealDisk
from understudy.testing.sim.disk import SimVolume
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.storage import CrashPoint, ProcessDisk

#: Bytes of the small file system.
SMALL_BYTES: Final = 1024 * 1024


@dataclass
class Mount:
    """A directory on a file system, as two nodes see it."""

    disk: Disk
    other: Disk
    """Disk of another node on the same file system."""
    directory: str
    kill: Callable[[Callable[[Disk, str], None]], None]
    """Carry out operations in a process that is killed at their end."""


def _killed_process(work: Callable[[Disk, str], None], directory: str) -> None:
    child = os.fork()
    if not child:
        try:
            work(RealDisk(), directory)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


def _real(directory: str) -> Mount:
    return Mount(RealDisk(), RealDisk(), directory, lambda work: _killed_process(work, directory))


def _simulated() -> Mount:
    volume = SimVolume()
    volume.disk("setup").make_directory("/d")

    def kill(work: Callable[[Disk, str], None]) -> None:
        work(volume.disk("victim"), "/d")
        volume.crash_process("victim")

    return Mount(volume.disk("one"), volume.disk("other"), "/d", kill)


def _of_processes() -> Mount:
    """The disk that the nodes of a simulated cluster have."""
    loop = SimLoop(1)
    volume = SimVolume()
    volume.disk("setup").make_directory("/d")

    def disk(name: str) -> Disk:
        return ProcessDisk(volume.disk(name), loop.new_process(name), loop, CrashPoint(loop.random("crash")))

    def kill(work: Callable[[Disk, str], None]) -> None:
        work(disk("victim"), "/d")
        for process in loop.processes_on("victim"):
            process.kill()
        volume.crash_process("victim")

    mount = Mount(disk("one"), disk("other"), "/d", kill)
    loop.close()
    return mount


@pytest.fixture(params=["real", "real in memory", "simulated", "simulated process", "real within", "simulated within"])
def mount(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mount]:
    kind = request.param
    if kind.endswith("within"):
        made = _real(str(tmp_path)) if kind == "real within" else _simulated()
        with made.disk.within(made.directory) as here:
            yield Mount(here, made.other, made.directory, made.kill)
    elif kind == "real in memory":
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            yield _real(directory)
    else:
        yield _real(str(tmp_path)) if kind == "real" else _simulated() if kind == "simulated" else _of_processes()


def write(disk: Disk, path: str, data: bytes, *, create: bool = True) -> None:
    """Write and sync a file."""
    file = disk.open(path, create=create)
    file.write(0, (data,))
    file.sync()
    file.close()


def read(disk: Disk, path: str) -> bytes:
    """All of a file."""
    file = disk.open(path, read_only=True)
    try:
        return file.read(0, 1 << 20)
    finally:
        file.close()


# --- contents ------------------------------------------------------------------------------------


def test_a_gap_reads_as_zeros_and_reads_end_at_the_end(mount: Mount) -> None:
    file = mount.disk.open(f"{mount.directory}/f", create=True)
    file.write(10, (b"ab", b"", b"cd"))
    assert file.size() == 14
    assert file.read(0, 100) == bytes(10) + b"abcd"
    assert file.read(12, 1) == b"c"
    assert file.read(14, 10) == file.read(1000, 10) == b""
    file.truncate(12)
    file.truncate(14)
    assert file.read(8, 100) == bytes(2) + b"ab" + bytes(2)
    file.close()


def test_bytes_whose_cache_is_dropped_are_read_again(mount: Mount) -> None:
    path = f"{mount.directory}/file"
    file = mount.disk.open(path, create=True)
    file.write(0, (b"synced" * 2000,))
    file.sync()
    file.write(12_000, (b"not synced",))
    reader = mount.disk.open(path, read_only=True)
    for offset, length in ((0, 6), (5, 9_000), (0, 1 << 20)):
        reader.forget_cached(offset, length)
        assert reader.read(0, 1 << 20) == b"synced" * 2000 + b"not synced"
    reader.close()
    file.close()


def test_a_range_that_the_medium_begins_to_write_stays_as_it_is(mount: Mount) -> None:
    file = mount.disk.open(f"{mount.directory}/file", create=True)
    file.write(0, (b"bytes" * 20_000,))
    for offset, length in ((0, 100_000), (4_000, 10), (200_000, 5), (0, 0)):
        file.begin_sync(offset, length)
        file.write(3, (b"B",))
    file.sync()
    assert file.read(0, 200_000) == b"bytBs" + b"bytes" * 19_999
    assert file.size() == 100_000
    file.close()


def test_allocated_space_is_zeros_and_never_shrinks_a_file(mount: Mount) -> None:
    file = mount.disk.open(f"{mount.directory}/f", create=True)
    file.write(0, (b"abc",))
    file.allocate(10_000)
    assert file.size() == 10_000
    assert file.read(0, 5) == b"abc\0\0"
    file.allocate(100)
    assert file.size() == 10_000
    file.close()


def test_written_parts_of_a_file_are_known(mount: Mount) -> None:
    """No written byte lies outside of the ranges; how much else lies inside is the choice of the file system."""
    file = mount.disk.open(f"{mount.directory}/f", create=True)
    file.allocate(10_000)
    file.write(5, (b"ab", b"", b"cd"))
    file.write(20_000, (b"end",))
    for offset, written in ((0, (5, 8, 20_000)), (8, (8, 20_000)), (9, (20_000,)), (20_001, (20_002,))):
        ranges = file.data_ranges(offset)
        assert all(offset <= begin < end <= 20_480 for begin, end in ranges)
        assert all(before[1] < after[0] for before, after in pairwise(ranges))
        assert all(any(begin <= each < end for begin, end in ranges) for each in written)
    assert file.data_ranges(20_003) == file.data_ranges(30_000) == []
    file.close()


def test_nodes_see_each_others_writes_at_once(mount: Mount) -> None:
    mine = mount.disk.open(f"{mount.directory}/f", create=True)
    theirs = mount.other.open(f"{mount.directory}/f")
    mine.write(0, (b"from one",))
    assert theirs.read(0, 100) == b"from one"
    theirs.write(5, (b"the other",))
    assert mine.read(0, 100) == b"from the other"
    assert mine.size() == theirs.size()
    mine.close()
    theirs.close()


# --- names ---------------------------------------------------------------------------------------


def test_a_rename_replaces_its_target_at_once(mount: Mount) -> None:
    """Another node finds the old file or the new one, whole; never none, and never a mixture."""
    directory = mount.directory
    write(mount.disk, f"{directory}/f", b"old")
    reader = mount.other.open(f"{directory}/f", read_only=True)
    write(mount.disk, f"{directory}/f.new", b"new and longer")
    assert read(mount.other, f"{directory}/f") == b"old"
    mount.disk.rename(f"{directory}/f.new", f"{directory}/f")
    assert read(mount.other, f"{directory}/f") == b"new and longer"
    assert mount.other.list(directory) == ["f"]
    assert reader.read(0, 100) == b"old", "an open file stays the file that it was"
    reader.close()


def test_a_file_that_is_open_can_be_renamed_and_removed(mount: Mount) -> None:
    directory = mount.directory
    file = mount.disk.open(f"{directory}/f.new", create=True)
    mount.disk.rename(f"{directory}/f.new", f"{directory}/f")
    file.write(0, (b"x",))
    assert read(mount.other, f"{directory}/f") == b"x"
    mount.other.remove(f"{directory}/f")
    file.write(1, (b"y",))
    file.sync()
    assert file.read(0, 10) == b"xy"
    assert not mount.disk.exists(f"{directory}/f")
    file.close()


def test_one_of_two_creates_a_file(mount: Mount) -> None:
    path = f"{mount.directory}/f"
    mount.disk.open(path, create=True).close()
    with pytest.raises(FileExistsError):
        mount.other.open(path, create=True)
    write(mount.disk, path, b"x", create=False)
    with pytest.raises(FileExistsError):
        mount.disk.open(path, create=True)
    assert read(mount.other, path) == b"x"


def test_directories_are_made_with_their_parents_and_listed(mount: Mount) -> None:
    directory = mount.directory
    mount.disk.make_directory(f"{directory}/a/b")
    mount.disk.make_directory(f"{directory}/a/b")
    write(mount.disk, f"{directory}/a/b/f", b"")
    assert mount.other.list(directory) == ["a"]
    assert mount.other.list(f"{directory}/a/b") == ["f"]
    assert mount.other.list(f"{directory}/none") == []
    assert mount.other.exists(f"{directory}/a")
    mount.disk.sync_directory(f"{directory}/a/b")
    mount.disk.rename(f"{directory}/a/b/f", f"{directory}/g")
    assert mount.other.list(f"{directory}/a/b") == []
    assert mount.other.list(directory) == ["a", "g"]


def test_a_missing_file_is_an_error_of_its_own(mount: Mount) -> None:
    disk, directory = mount.disk, mount.directory
    write(disk, f"{directory}/f", b"x")
    for action in (
        lambda: disk.open(f"{directory}/none"),
        lambda: disk.open(f"{directory}/none", read_only=True),
        lambda: disk.open(f"{directory}/none/f", create=True),
        lambda: disk.rename(f"{directory}/none", f"{directory}/g"),
        lambda: disk.rename(f"{directory}/f", f"{directory}/none/f"),
        lambda: disk.remove(f"{directory}/none"),
        lambda: disk.sync_directory(f"{directory}/none"),
        lambda: disk.modified_ns(f"{directory}/none"),
        lambda: disk.touch(f"{directory}/none"),
        lambda: disk.space(f"{directory}/none"),
    ):
        with pytest.raises(FileNotFoundError):
            action()  # type: ignore[no-untyped-call]
    assert not disk.exists(f"{directory}/none")
    assert disk.list(directory) == ["f"], "nothing was renamed"


def test_a_directory_is_no_file_and_a_file_no_directory(mount: Mount) -> None:
    disk, directory = mount.disk, mount.directory
    disk.make_directory(f"{directory}/d")
    write(disk, f"{directory}/f", b"x")
    for action in (
        lambda: disk.open(f"{directory}/d"),
        lambda: disk.open(f"{directory}/d", read_only=True),
        lambda: disk.remove(f"{directory}/d"),
        lambda: disk.list(f"{directory}/f"),
        lambda: disk.rename(f"{directory}/f", f"{directory}/d"),
        lambda: disk.make_directory(f"{directory}/f"),
    ):
        with pytest.raises(DiskFailed, match=directory):
            action()  # type: ignore[no-untyped-call]
    assert read(disk, f"{directory}/f") == b"x"


def test_an_empty_directory_is_removed(mount: Mount) -> None:
    disk, directory = mount.disk, mount.directory
    disk.make_directory(f"{directory}/d")
    write(disk, f"{directory}/d/f", b"x")
    with pytest.raises(DiskFailed, match="not empty"):
        disk.remove_directory(f"{directory}/d")
    disk.remove(f"{directory}/d/f")
    disk.remove_directory(f"{directory}/d")
    disk.remove_directory(f"{directory}/d")
    assert mount.other.list(directory) == []


# --- times ---------------------------------------------------------------------------------------


def test_the_time_of_a_file_follows_its_writes_and_touches(mount: Mount) -> None:
    """A node that has touched a file sees the time that the file server gave it, and never an earlier one again."""
    path = f"{mount.directory}/f"
    write(mount.disk, path, b"x")
    times = [mount.other.modified_ns(path)]
    for _ in range(3):
        write(mount.disk, path, b"y", create=False)
        times.append(mount.other.modified_ns(path))
        mount.disk.touch(path)
        times.append(mount.other.modified_ns(path))
        assert mount.disk.modified_ns(path) == times[-1]
    assert times == sorted(times)
    mount.disk.rename(path, f"{path}2")
    read(mount.disk, f"{path}2")
    assert mount.other.modified_ns(f"{path}2") == times[-1], "neither a rename nor a read is a change"


# --- a process that is killed --------------------------------------------------------------------


def test_what_a_killed_process_wrote_is_found(mount: Mount) -> None:
    """Synced or not: the kernel keeps written data; only a power loss can lose data that was not synced."""

    def work(disk: Disk, directory: str) -> None:
        write(disk, f"{directory}/synced", b"s")
        file = disk.open(f"{directory}/written.new", create=True)
        file.allocate(100)
        file.write(0, (b"w",))
        disk.rename(f"{directory}/written.new", f"{directory}/written")

    mount.kill(work)
    assert mount.other.list(mount.directory) == ["synced", "written"]
    assert read(mount.other, f"{mount.directory}/synced") == b"s"
    assert read(mount.other, f"{mount.directory}/written") == b"w" + bytes(99)


# --- errors --------------------------------------------------------------------------------------


def test_a_file_opened_for_reading_cannot_be_changed(mount: Mount) -> None:
    path = f"{mount.directory}/f"
    write(mount.disk, path, b"x")
    file = mount.disk.open(path, read_only=True)
    for action in (lambda: file.write(0, (b"y",)), lambda: file.allocate(10), lambda: file.truncate(0)):
        with pytest.raises(DiskFailed, match=path):
            action()  # type: ignore[no-untyped-call]
    # a reader syncs data written by others before it relies on the data
    file.sync()  # type: ignore[attr-defined]
    assert file.read(0, 10) == b"x"
    file.close()


@pytest.fixture(params=["real", "simulated"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    """A file system of ``SMALL_BYTES``."""
    if request.param == "simulated":
        volume = SimVolume(SMALL_BYTES)
        volume.disk("one").make_directory("/d")
        yield volume.disk("one"), "/d"
        return
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "none", str(tmp_path)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield RealDisk(), str(tmp_path)
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_full_disk_keeps_allocated_space(small: tuple[Disk, str]) -> None:
    """A journal relies on this: writes within an allocated range succeed on a full disk, others say ``DiskFull``,
    leave existing data unchanged, and succeed once there is space again.
    """
    disk, directory = small
    allocated = disk.open(f"{directory}/allocated", create=True)
    allocated.allocate(64 * 1024)
    filler = disk.open(f"{directory}/filler", create=True)
    free_bytes = disk.space(directory).free_bytes
    assert 0 < free_bytes <= SMALL_BYTES - 64 * 1024
    with pytest.raises(DiskFull, match="filler"):
        filler.allocate(2 * SMALL_BYTES)
    filler.allocate(disk.space(directory).free_bytes)
    assert disk.space(directory).free_bytes == 0
    grown = disk.open(f"{directory}/grown", create=True)
    with pytest.raises(DiskFull, match="grown"):
        grown.write(0, (b"x" * 5000,))
    with pytest.raises(DiskFull, match="grown"):
        grown.allocate(5000)
    allocated.write(60_000, (b"y" * 4000,))
    allocated.sync()
    assert allocated.read(60_000, 4000) == b"y" * 4000
    filler.close()
    disk.remove(f"{directory}/filler")
    assert disk.space(directory).free_bytes > 5000
    grown.write(0, (b"x" * 5000,))
    assert grown.read(0, 6000) == b"x" * 5000
    for file in (allocated, grown):
        file.close()


def test_a_size_limit_of_the_process_is_a_failure_and_no_full_disk(tmp_path: Path) -> None:
    """EFBIG: waiting for space would not help. Only a real process has such a limit."""
    code = (
        "import resource, signal, sys; from understudy.runtime.base.disk import RealDisk\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "file = RealDisk().open(sys.argv[1], create=True)\n"
        "for action in (lambda: file.write(0, [b'x' * 5000]), lambda: file.allocate(5000)):\n"
        "    try: action()\n"
        "    except Exception as error: print(type(error).__name__)\n"
        "print(file.size())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, f"{tmp_path}/f"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["DiskFailed", "DiskFailed", "4096"]
