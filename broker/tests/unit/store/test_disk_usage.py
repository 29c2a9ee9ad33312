"""Goal: every directory's own disk is looked at, and the one that is too full is named."""

from __future__ import annotations

from typing import cast

import pytest

from understudy.ports import Disk, Space
from understudy.store.disk_usage import DiskUsage


class Disks:
    """Free and total bytes by directory."""

    def __init__(self, **free_bytes: int) -> None:
        self.free = {f"/{name}": count for name, count in free_bytes.items()}

    def space(self, path: str) -> Space:
        return Space(self.free[path], 1000)


def problem(disks: Disks, percent_max: int = -1, free_bytes_min: int = -1) -> str:
    usage = DiskUsage(cast(Disk, disks), disks.free, percent_max, free_bytes_min)
    usage.look()
    return usage.problem


@pytest.mark.parametrize("which", ["journal", "paging", "large"])
def test_the_full_one_is_named(which: str) -> None:
    disks = Disks(**{"journal": 500, "paging": 500, "large": 500, which: 50})
    counted = "(950 of 1000 bytes, counted as df does, without those reserved for root)"
    assert problem(disks, percent_max=90) == f"/{which}: 95.0 % of the disk used where max-disk-usage is 90 {counted}"
    assert problem(disks, free_bytes_min=100) == (
        f"/{which}: 50 bytes free where min-disk-free is 100 (without bytes reserved for root)"
    )


@pytest.mark.parametrize("percent_max", [-1, 95, 100])
def test_at_the_limit_or_without_one_there_is_none(percent_max: int) -> None:
    assert problem(Disks(journal=50), percent_max, 50) == ""


def test_each_directory_is_asked_once() -> None:
    disks = Disks(journal=500, paging=500, large=500)
    asked: list[str] = []
    space = disks.space
    disks.space = lambda path: asked.append(path) or space(path)  # type: ignore[method-assign,func-returns-value]
    assert problem(disks, 90, 100) == ""
    assert sorted(asked) == ["/journal", "/large", "/paging"]


def test_the_space_of_the_first_directory_is_kept() -> None:
    disks = Disks(journal=500, paging=50)
    usage = DiskUsage(cast(Disk, disks), disks.free, -1, -1)
    assert usage.space is None
    usage.look()
    assert usage.space == Space(500, 1000)
