"""Space kept for a full disk: a file that is allocated while the disk has space and removed when it has none.

A node that starts on a full disk needs a segment for its new epoch before it can let consumers
empty the store. The reserve is that space. It is no part of the log (docs/build/journal-format.md s. 1)
and holds nothing; it is removed only with the store's lock held.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from understudy.errors import DiskFull, StoreError
from understudy.ports import Disk

log = logging.getLogger(__name__)

#: Not a segment's name, so that no reader takes it for one.
RESERVE_NAME = "reserve.space"


def keep_reserve(disk: Disk, directory: str, size_bytes: int) -> None:
    """Allocate the reserve unless it is there, or there is no space for it; blocks.

    Raises:
        DiskFailed: an error other than a full disk.
    """
    path = f"{directory}/{RESERVE_NAME}"
    try:
        file = disk.open(path) if disk.exists(path) else disk.open(path, create=True)
    except (FileExistsError, FileNotFoundError):
        # another node creates or removes it at the same time; the next spare asks again
        return
    try:
        if file.size() >= size_bytes:
            file.close()
            return
        # the file is new, or was cut short by a crash
        file.allocate(size_bytes)
        file.sync()
    except DiskFull:
        file.close()
        # a part of a reserve is of no use, and other files need the space
        with suppress(StoreError, FileNotFoundError):
            disk.remove(path)
        return
    file.close()


def give_up_reserve(disk: Disk, directory: str) -> bool:
    """Free the reserve; False when there was none.

    Raises:
        DiskFailed: it cannot be removed.
    """
    path = f"{directory}/{RESERVE_NAME}"
    if not disk.exists(path):
        return False
    disk.remove(path)
    log.warning("disk full: the reserve was given up", extra={"path": path})
    return True
