"""Whether a file system is too full for more messages (max-disk-usage, min-disk-free).

Not here: when it is asked, and what is refused (``message_store``).
"""

from __future__ import annotations

from collections.abc import Iterable

from understudy.ports import Disk


def used_percent(disk: Disk, directory: str) -> float:
    """How much of the file system of a directory is used. Raises DiskFailed."""
    total_bytes = disk.total_bytes(directory)
    return 100 * (total_bytes - disk.free_bytes(directory)) / total_bytes if total_bytes else 0.0


def disk_usage_problem(disk: Disk, directories: Iterable[str], percent_max: int, free_bytes_min: int) -> str:
    """Which directory lies on too full a disk, and how full that is; empty if none does.

    Args:
        disk: Where the directories are, perhaps on several file systems.
        directories: Absolute paths.
        percent_max: Most that may be used, max-disk-usage; below 0 or 100 for no limit.
        free_bytes_min: Least that must be free, min-disk-free; below 0 for no limit.

    Raises:
        DiskFailed: a disk cannot be asked.
    """
    for directory in directories:
        free_bytes = disk.free_bytes(directory)
        percent = used_percent(disk, directory)
        if free_bytes < free_bytes_min:
            return f"{directory}: {free_bytes} bytes free where min-disk-free is {free_bytes_min}"
        if 0 <= percent_max < 100 and percent > percent_max:
            return f"{directory}: {percent:.1f} % of the disk used where max-disk-usage is {percent_max}"
    return ""
