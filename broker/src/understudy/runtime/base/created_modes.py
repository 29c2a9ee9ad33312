"""Modes of the files and directories that a node makes: private, unless the directory around them is shared.

A directory is shared when it has the set-group-id bit and its group may read it. The kernel gives new entries the group
of the directory; the modes here let that group read them as well, and never write. So an administrator decides with
the mode of the store's directory which group reads the store, such as the user of the data pipeline (ADR 0098).
"""

from __future__ import annotations

import os
import stat
from typing import Final

PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700
SHARED_FILE: Final = 0o640
SHARED_DIRECTORY: Final = 0o750


def is_shared(directory: str | int) -> bool:
    """Whether the group of a directory, a path or a descriptor, may read new files in it; False if there is none."""
    place = directory if isinstance(directory, int) else directory or "."
    try:
        mode = os.stat(place).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISGID and mode & stat.S_IRGRP)


def created_file_mode(directory: str | int) -> int:
    """Mode of a file that is made in ``directory``, a path or a descriptor; the umask may take more away."""
    return SHARED_FILE if is_shared(directory) else PRIVATE_FILE


def make_directories(path: str) -> None:
    """Make a directory and those above it that are missing; one that exists is left as it is.

    Raises:
        OSError: it cannot be made, or a file has its name.
    """
    above = os.path.dirname(path.rstrip("/"))
    if above and not os.path.isdir(above):
        make_directories(above)
    try:
        # the kernel hands the set-group-id bit on
        os.mkdir(path, SHARED_DIRECTORY if is_shared(above) else PRIVATE_DIRECTORY)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
