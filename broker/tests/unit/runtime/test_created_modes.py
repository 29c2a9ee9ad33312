"""Goal: the store is private unless its directory says that a group may read it; a group may never write it.

Method: files, directories and locks are made with the real disk in directories of each mode, under a umask of 0.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from understudy.runtime.base.created_modes import make_directories
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.locks.file_lock import RealFileLock

PRIVATE = [0o700, 0o750, 0o755, 0o2700]
SHARED = [0o2750, 0o2755, 0o2740]


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def made_in(directory: Path) -> dict[str, int]:
    """Modes of a directory, of a file in it, and of a lock, all made by a node."""
    disk = RealDisk()
    disk.make_directory(str(directory / "journal" / "quarantine"))
    disk.open(str(directory / "journal" / "segment"), create=True).close()
    with disk.within(str(directory)) as near:
        near.open(str(directory / "near"), create=True).close()
    lock = RealFileLock(str(directory / "lock"))
    assert lock.try_acquire()
    lock.release()
    names = {
        "above": "journal",
        "directory": "journal/quarantine",
        "file": "journal/segment",
        "near": "near",
        "lock": "lock",
    }
    return {name: stat.S_IMODE((directory / path).stat().st_mode) for name, path in names.items()}


@pytest.mark.parametrize("mode", PRIVATE, ids=oct)
def test_others_read_nothing_without_the_set_group_id_bit_and_the_permission_to_read(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    assert all(found & 0o077 == 0 for found in made_in(tmp_path).values())


@pytest.mark.parametrize("mode", SHARED, ids=oct)
def test_the_group_of_a_shared_directory_reads_new_files_and_the_bit_is_handed_on(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    found = made_in(tmp_path)
    assert found["above"] == found["directory"] == 0o2750
    assert found["file"] == found["near"] == found["lock"] == 0o640


def test_a_umask_takes_the_permission_of_the_group_away(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    os.umask(0o077)
    RealDisk().open(str(tmp_path / "segment"), create=True).close()
    assert stat.S_IMODE((tmp_path / "segment").stat().st_mode) == 0o600


def test_a_file_with_the_name_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "journal").touch()
    with pytest.raises(FileExistsError):
        make_directories(str(tmp_path / "journal"))
    make_directories(str(tmp_path))
