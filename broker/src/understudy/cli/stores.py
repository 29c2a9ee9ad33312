"""Directories of journals as arguments of commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from understudy.errors import DiskFailed
from understudy.runtime.disk import RealDisk
from understudy.runtime.environment import SystemEntropy
from understudy.runtime.file_lock import RealFileLock
from understudy.store.node_lock import NodeLock
from understudy.tools.inspect import is_store

#: An existing directory.
STORE: Final = click.Path(exists=True, file_okay=False, resolve_path=True)


def open_store(*directories: str) -> RealDisk:
    """The disk they are on.

    Raises:
        UsageError: one of them holds no journal.
    """
    disk = RealDisk()
    for directory in directories:
        if not is_store(disk, directory):
            raise click.UsageError(f"{directory} holds no journal: no file is named segment-*.log")
    return disk


@contextmanager
def locked_store(disk: RealDisk, lock_directory: str) -> Iterator[NodeLock]:
    """Hold the lock of a store that no broker uses; its file is made if there is none.

    Args:
        disk: Where the directory is.
        lock_directory: node-manager-lock-directory.

    Raises:
        UsageError: another user owns the file.
        DiskFailed: a broker has the lock, or the directory cannot be used.
    """
    path = f"{lock_directory}/server.lock"
    owner = os.stat(path if os.path.exists(path) else lock_directory).st_uid
    if owner != os.geteuid():
        raise click.UsageError(f"{path} belongs to user {owner}, which cannot open files of another: run as that user")
    lock = NodeLock(disk, lock_directory, RealFileLock, SystemEntropy())
    try:
        if not lock.open() or not lock.try_primary():
            raise DiskFailed(f"{lock_directory}: a broker has the lock of this store", hint="stop it first")
        yield lock
    finally:
        lock.close()
