"""Bytes of a file of a store that are replaced because they do not fit their checksum (``operations.ReplaceBytes``).

The replaced bytes are kept in the directory ``replaced`` beside the file, as ``<name>.<offset>``, at most
``REPLACED_FILES_MAX`` of them, the newest. They are no part of the store.

Not here: the proof that the new bytes fit (``store.repair``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from understudy.errors import DiskFailed
from understudy.limits import REPLACED_FILES_MAX
from understudy.ports import Disk, File
from understudy.store.log.operations import ReplaceBytes

DIRECTORY_NAME: Final = "replaced"


def replace(disk: Disk, directory: str, operation: ReplaceBytes) -> None:
    """Replace bytes durably; nothing if the file is gone, or has them already.

    Args:
        disk: Where the store is.
        operation: The name and the bytes.

    Raises:
        DiskFull, DiskFailed: the disk refused.
    """
    path = f"{directory}/{operation.name}"
    with suppress(FileNotFoundError):
        if operation.create and not disk.exists(path):
            disk.open(path, create=True).close()
            disk.sync_directory(directory)
        file = disk.open(path)
        try:
            _keep_old(disk, directory, file, operation)
            if operation.data:
                file.write(operation.offset, (operation.data,))
            if operation.cut_at >= 0 and file.size() != operation.cut_at:
                file.truncate(operation.cut_at)
            file.sync()
        finally:
            file.close()


def _keep_old(disk: Disk, directory: str, file: File, operation: ReplaceBytes) -> None:
    length = len(operation.data)
    if operation.cut_at >= 0:
        length = max(length, file.size() - operation.offset)
    try:
        old = file.read(operation.offset, length) if length else b""
    except DiskFailed:
        # a sector that cannot be read has nothing to keep
        old = b""
    if not old or old == operation.data:
        return
    kept = f"{directory}/{DIRECTORY_NAME}"
    if not disk.exists(kept):
        disk.make_directory(kept)
    name = f"{kept}/{operation.name}.{operation.offset}"
    if disk.exists(name):
        # the first bytes found are those that were damaged
        return
    names = disk.list(kept)
    if len(names) >= REPLACED_FILES_MAX:
        oldest = sorted(names, key=lambda each: disk.modified_ns(f"{kept}/{each}"))
        for each in oldest[: len(names) - REPLACED_FILES_MAX + 1]:
            disk.remove(f"{kept}/{each}")
    copy = disk.open(name, create=True)
    try:
        copy.write(0, (old,))
        copy.sync()
    finally:
        copy.close()
    disk.sync_directory(kept)
