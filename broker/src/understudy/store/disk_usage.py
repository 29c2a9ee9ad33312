"""Whether a file system is too full for more messages (max-disk-usage, min-disk-free).

Usage is counted as ``df`` does: bytes that are reserved for root are neither free nor used.

Not here: the time of a check, and the refusal of records (``message_store``).
"""

from __future__ import annotations

from collections.abc import Iterable

from understudy.ports import Disk, Space


class DiskUsage:
    """Result of the last check of the disks; empty before the first one."""

    __slots__ = ("_disk", "_free_bytes_min", "_percent_max", "directories", "problem", "space", "used_percent")

    def __init__(self, disk: Disk, directories: Iterable[str], percent_max: int, free_bytes_min: int) -> None:
        """
        Args:
            disk: Where the directories are, perhaps on several file systems.
            directories: Absolute paths, that of the journal first.
            percent_max: Most that may be used, max-disk-usage; below 0 or 100 for no limit.
            free_bytes_min: Least that must be free, min-disk-free; below 0 for no limit.
        """
        self._disk = disk
        self._percent_max = percent_max
        self._free_bytes_min = free_bytes_min
        self.directories = tuple(directories)
        self.used_percent = 0.0
        """Use of the first directory's file system."""
        self.space: Space | None = None
        """Space of the first directory's file system."""
        self.problem = ""
        """Which directory lies on too full a disk, and how full that is; empty if none does."""

    def look(self, disk: Disk | None = None) -> None:
        """Read the usage of the disks, or of another ``disk``. Raises DiskFailed: a disk gave no answer."""
        spaces = [(disk or self._disk).space(directory) for directory in self.directories]
        self.space = spaces[0]
        self.used_percent = _used_percent(*spaces[0])
        problems = (
            self._problem_of(directory, *space) for directory, space in zip(self.directories, spaces, strict=True)
        )
        self.problem = next(filter(None, problems), "")

    def _problem_of(self, directory: str, free_bytes: int, total_bytes: int) -> str:
        if free_bytes < self._free_bytes_min:
            return (
                f"{directory}: {free_bytes} bytes free where min-disk-free is {self._free_bytes_min}"
                " (without bytes reserved for root)"
            )
        percent = _used_percent(free_bytes, total_bytes)
        if 0 <= self._percent_max < 100 and percent > self._percent_max:
            return (
                f"{directory}: {percent:.1f} % of the disk used where max-disk-usage is {self._percent_max}"
                f" ({total_bytes - free_bytes} of {total_bytes} bytes, counted as df does, without those reserved for"
                " root)"
            )
        return ""


def _used_percent(free_bytes: int, total_bytes: int) -> float:
    return 100 * (total_bytes - free_bytes) / total_bytes if total_bytes else 0.0
