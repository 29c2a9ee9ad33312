"""Checks of the file modes that a node relies on, made once at start.

A user that can write in a directory of the store can replace the log; one that can write the
configuration can become any user; the token opens the management port. Not here: the contents, which
have checksums against accidents and none against an attacker that computes them anew (docs/operate/security.md).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from understudy.errors import ConfigError, StoreError


def check_directories(directories: Iterable[str]) -> list[str]:
    """Warnings about the modes of directories; missing directories are created with mode 0700.

    Raises:
        StoreError: all users may write in one of them.
    """
    complaints = []
    for directory in directories:
        found = _status(directory)
        if found is None:
            continue
        if found.st_mode & stat.S_IWOTH:
            raise StoreError(f"{directory} can be written by all users", hint=f"chmod o-w {directory}")
        if found.st_mode & stat.S_IWGRP:
            complaints.append(f"{directory} can be written by its group")
        if found.st_uid not in (0, os.geteuid()):
            complaints.append(f"{directory} belongs to user {found.st_uid}, not to us")
    return complaints


def check_files(readable: Iterable[str], secret: Iterable[str]) -> list[str]:
    """Warnings about the modes of files; missing files are ignored.

    Args:
        readable: Files that other users must not write, and should not read.
        secret: Files that other users must not read.

    Raises:
        ConfigError: others can write one of them, or read a secret one.
    """
    complaints = []
    for path, is_secret in (*((path, False) for path in readable), *((path, True) for path in secret)):
        found = _status(path)
        if found is None:
            continue
        if found.st_mode & stat.S_IWOTH:
            raise ConfigError("it can be written by all users", file=path, hint=f"chmod o-w {path}")
        if found.st_mode & stat.S_IROTH:
            if is_secret:
                raise ConfigError("it is a secret and can be read by all users", file=path, hint=f"chmod o-r {path}")
            complaints.append(f"{path} holds or may hold secrets and can be read by all users")
    return complaints


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        # an error is reported when the file is opened
        return None
