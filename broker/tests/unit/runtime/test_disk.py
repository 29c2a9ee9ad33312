"""Descriptors, links, modes and errors of the real disk (shared behaviour: ``conformance``)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from understudy.errors import DiskFailed, DiskFull
from understudy.runtime.base.disk import RealDisk
from understudy.store.disk_usage import DiskUsage


def test_within_a_directory_its_path_is_looked_up_once(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    with RealDisk().within(str(directory)) as here:
        directory.rename(tmp_path / "moved")
        directory.mkdir()
        here.open(f"{directory}/f", create=True).close()
        here.rename(f"{directory}/f", f"{directory}/g")
        here.sync_directory(str(directory))
        here.touch(f"{directory}/g")
        assert here.modified_ns(f"{directory}/g")
        assert here.exists(f"{directory}/g")
        assert here.space(str(directory)).total_bytes > 0
        assert here.list(str(directory)) == ["g"]
        # by its path
        assert here.list(str(tmp_path)) == ["d", "moved"]
        here.rename(f"{directory}/g", f"{tmp_path}/out")
        assert here.list(str(directory)) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "moved", "out"]


def test_within_a_directory_no_descriptor_is_left(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(KeyError), RealDisk().within(str(tmp_path)):
        raise KeyError
    assert os.listdir("/proc/self/fd") == before


def test_within_a_missing_directory_paths_are_looked_up(tmp_path: Path) -> None:
    directory = f"{tmp_path}/d"
    with RealDisk().within(directory) as here:
        assert here.list(directory) == []
        here.make_directory(directory)
        here.open(f"{directory}/f", create=True).close()
        assert here.list(directory) == ["f"]
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DiskFailed, match="file"), RealDisk().within(f"{tmp_path}/file"):
        pass


def test_within_a_directory_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "f")
    (tmp_path / "f").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    with RealDisk().within(str(tmp_path)) as here:
        for name in ("link", "pipe"):
            with pytest.raises(DiskFailed, match=name):
                here.open(f"{tmp_path}/{name}")


def test_many_and_large_buffers(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    buffers = [bytes([n % 251]) * (n % 300) for n in range(5000)]
    file.write(3, buffers)
    assert file.read(3, 10_000_000) == b"".join(buffers)
    file.close()
    file.close()


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: pwrite(fd, b"".join(buffers)[:1000], offset))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, bytes(data)[:999], offset))
    buffers = [os.urandom(50_000), os.urandom(50_001)]
    file.write(0, buffers)
    assert file.read(0, 200_000) == b"".join(buffers)


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, DiskFailed)]
)
def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    file = RealDisk().open(str(tmp_path / "f"), create=True)
    for name in ("pwrite", "pwritev", "fdatasync", "posix_fallocate"):
        monkeypatch.setattr(os, name, refuse)
    for action in (lambda: file.write(0, (b"x",)), file.sync, lambda: file.allocate(10)):
        with pytest.raises(kind, match=str(tmp_path)):
            action()


def test_file_systems_that_cannot_allocate_get_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    file.write(0, (b"abc",))
    file.allocate(3_000_000)
    assert file.size() == 3_000_000
    assert file.read(0, 5) == b"abc\0\0"


def test_files_are_private(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.make_directory(str(tmp_path / "d"))
    disk.open(str(tmp_path / "d" / "f"), create=True).close()
    assert (tmp_path / "d" / "f").stat().st_mode & 0o077 == 0
    assert (tmp_path / "d").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, create: bool, read_only: bool) -> None:
    """A user that may write in the store's directory must not make the node write elsewhere."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "segment").symlink_to(precious)
    with pytest.raises((DiskFailed, FileExistsError)):
        RealDisk().open(str(tmp_path / "segment"), create=create, read_only=read_only)
    RealDisk().touch(str(tmp_path / "segment"))
    RealDisk().remove(str(tmp_path / "segment"))
    assert precious.read_bytes() == b"precious"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "segment")
    with pytest.raises(DiskFailed, match="not a regular file"):
        RealDisk().open(str(tmp_path / "segment"), read_only=True)


def test_created_files_and_directories_are_private(tmp_path: Path) -> None:
    RealDisk().make_directory(str(tmp_path / "journal"))
    RealDisk().open(str(tmp_path / "journal" / "segment"), create=True).close()
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "journal" / "segment").stat().st_mode & 0o777 == 0o600


def test_an_error_names_the_file_as_it_is_called_now(tmp_path: Path) -> None:
    """A segment is made under a temporary name and stays open when it gets its own."""
    disk = RealDisk()
    made = disk.open(f"{tmp_path}/a.new", create=True)
    disk.rename(f"{tmp_path}/a.new", f"{tmp_path}/a")
    made.descriptor, writable = os.open(f"{tmp_path}/a", os.O_RDONLY), made.descriptor
    os.close(writable)
    with pytest.raises(DiskFailed) as caught:
        made.write(0, (b"x",))
    assert f"cannot write {tmp_path}/a: " in str(caught.value)
    made.close()


def test_usage_is_counted_as_df_counts_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Disk of 1,000 blocks, of which 100 are reserved for root: 600 used and 300 free blocks are 66.7 %, not 70 %."""
    fields = (4096, 4096, 1000, 400, 300, 0, 0, 0, 0, 255)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))
    space = RealDisk().space(str(tmp_path))
    assert space == (300 * 4096, 900 * 4096)
    usage = DiskUsage(RealDisk(), [str(tmp_path)], 66, -1)
    usage.look()
    assert round(usage.used_percent, 1) == 66.7
    assert "66.7 % of the disk used where max-disk-usage is 66" in usage.problem


def test_a_directory_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, reason in (("/proc/understudy", "No such file"), (f"{tmp_path}/file", "File exists")):
        with pytest.raises(DiskFailed, match=f"cannot make {path}: {reason}"):
            RealDisk().make_directory(path)
