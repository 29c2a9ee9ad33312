"""A small file that is replaced as a whole, so that a crash leaves the old contents or the new ones."""

from __future__ import annotations

from understudy.ports import Disk


def replace_file(disk: Disk, directory: str, name: str, data: bytes) -> None:
    """Write a new file, make it durable and put it in the place of ``name``. Blocks.

    Raises:
        DiskFailed: either the old contents or the new ones are in place.
    """
    path, temporary = f"{directory}/{name}", f"{directory}/{name}.tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.write(0, [data])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(directory)


def read_file(disk: Disk, path: str, limit_bytes: int) -> bytes | None:
    """The contents, at most ``limit_bytes``; None if there is no such file. Raises DiskFailed."""
    try:
        file = disk.open(path, read_only=True)
    except FileNotFoundError:
        return None
    try:
        return file.read(0, limit_bytes)
    finally:
        file.close()
