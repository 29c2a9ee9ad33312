"""Files and directories whose changes are on the disk when a call returns."""

from __future__ import annotations

import os
from pathlib import Path


def write_synced(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a file that its owner alone can read.

    Args:
        path: Path of the file; a symbolic link is not followed.
        replace: Whether a file of this name is overwritten; otherwise it is an error.

    Raises:
        OSError: the file exists and is not to be replaced, or the disk refuses.
    """
    new = os.O_TRUNC if replace else os.O_EXCL
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | new | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make creations, renames and removals in a directory durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
