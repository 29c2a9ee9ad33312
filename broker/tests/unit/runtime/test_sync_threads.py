"""Syncs of several files at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from understudy.errors import DiskFailed, DiskFull
from understudy.ports import File
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.sync_threads import SYNCS_MAX, sync_together

#: Seconds after which a thread that waits for another one gives up.
GIVE_UP_S = 30


class SyncedFile:
    """A file whose sync is a call."""

    def __init__(self, path: str, sync: Callable[[], object]) -> None:
        self.path = path
        self.sync = sync


def files(*syncs: Callable[[], object]) -> list[File]:
    return [cast("File", SyncedFile(f"/bodies/{number}", sync)) for number, sync in enumerate(syncs)]


def failing(error: BaseException) -> Callable[[], object]:
    def sync() -> None:
        raise error

    return sync


def test_syncs_are_under_way_at_the_same_time() -> None:
    together = threading.Barrier(SYNCS_MAX, timeout=GIVE_UP_S)
    assert sync_together(files(*[together.wait] * SYNCS_MAX)) == [None] * SYNCS_MAX


@pytest.mark.parametrize("count", [0, 1, 2, SYNCS_MAX + 1, 40])
def test_each_file_is_synced_once_and_has_its_own_outcome(count: int) -> None:
    synced: list[int] = []
    full = DiskFull("no space")

    def sync(number: int) -> Callable[[], object]:
        return failing(full) if number % 3 == 1 else lambda: synced.append(number)

    errors = sync_together(files(*map(sync, range(count))))
    assert errors == [full if number % 3 == 1 else None for number in range(count)]
    assert sorted(synced) == [number for number in range(count) if number % 3 != 1]


def test_an_unexpected_error_is_no_sync_and_the_threads_go_on() -> None:
    errors = sync_together(files(*[failing(ValueError("why"))] * 3 * SYNCS_MAX))
    assert {type(error) for error in errors} == {DiskFailed}
    assert "/bodies/0" in str(errors[0])
    test_syncs_are_under_way_at_the_same_time()


def test_a_group_does_not_wait_for_syncs_of_another_one_that_hang() -> None:
    going_on = threading.Event()
    hang = files(*[lambda: going_on.wait(GIVE_UP_S)] * SYNCS_MAX)
    hanging = threading.Thread(target=sync_together, args=(hang,))
    hanging.start()
    assert sync_together(files(*[lambda: None] * 5)) == [None] * 5
    assert not going_on.is_set()
    going_on.set()
    hanging.join()


def test_files_of_a_real_disk_are_synced_together(tmp_path: Path) -> None:
    disk = RealDisk()
    made = [disk.open(str(tmp_path / str(number)), create=True) for number in range(3)]
    for file in made:
        file.write(0, (b"body",))
    made[1].close()
    errors = disk.sync_files(made)
    assert [type(error) for error in errors] == [type(None), DiskFailed, type(None)]
    for file in made:
        file.close()
