"""Small files beside the store that one node keeps for itself: read as a whole, and replaced atomically and durably."""

from __future__ import annotations

from contextlib import suppress

from understudy.ports import Disk, DiskReader
from understudy.store.log.segment import NEW_SUFFIX


def read_file(disk: DiskReader, path: str, bytes_max: int) -> bytes | None:
    """The content of a file, at most one byte more than ``bytes_max``; None if there is no file.

    Raises:
        DiskFailed: it cannot be read.
    """
    try:
        file = disk.open(path, read_only=True)
    except FileNotFoundError:
        return None
    try:
        return file.read(0, bytes_max + 1)
    finally:
        file.close()


def replace_file(disk: Disk, directory: str, name: str, content: bytes) -> None:
    """Replace a file atomically and durably.

    Raises:
        DiskFull, DiskFailed: the disk refused; the file is the one before.
    """
    path = f"{directory}/{name}"
    temporary = path + NEW_SUFFIX
    with suppress(FileNotFoundError):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.write(0, (content,))
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(directory)
