"""Directories of journals as arguments of commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from understudy.errors import DiskFailed
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.environment import SystemEntropy
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.store.node_lock import NodeLock
from understudy.tools.inspect import is_store

#: Type of an argument that names an existing directory.
STORE: Final = click.Path(exists=True, file_okay=False, resolve_path=True)
_PROCESSES: Final = Path("/proc")


def open_store(*directories: str) -> RealDisk:
    """Open the disk on which the stores are.

    Raises:
        UsageError: one of them holds no journal.
    """
    disk = RealDisk()
    for directory in directories:
        if not is_store(disk, directory):
            inside = (f"{directory}/{each}" for each in ("journal", "data/journal"))
            near = next((f"; it is in {each}" for each in inside if is_store(disk, each)), "")
            raise click.UsageError(f"{directory} holds no journal: no file is named segment-*.log{near}")
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


def refuse_running(directory: str, processes: Path = _PROCESSES) -> None:
    """Refuse a store that another process uses, also without its lock: a node of a pair with a lock manager.

    Read from ``/proc``, which shows the files of the processes of the own user, or of all to root.

    Args:
        directory: Place of the log.
        processes: Where the kernel shows processes.

    Raises:
        DiskFailed: a process has a file of it open for writing, or runs an instance whose broker.xml names it.
    """
    for entry in processes.iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            for target in _written(entry):
                if _is_below(target, directory):
                    raise DiskFailed(
                        f"{directory}: process {entry.name} writes {Path(target).name} of this store",
                        hint="stop the node first, and do not start it before the command has ended",
                    )
                if _runs(target, directory):
                    instance = Path(target).parent.parent
                    raise DiskFailed(
                        f"{directory}: process {entry.name} runs the instance {instance} with this store",
                        hint="stop the node first, and do not start it before the command has ended",
                    )


def _written(process: Path) -> Iterator[str]:
    """Files that a process has open for writing; none if it has ended or belongs to another user."""
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        try:
            information = (process / "fdinfo" / descriptor.name).read_text(encoding="ascii")
            target = str(descriptor.readlink())
        except OSError:
            continue
        flags = next((line.split()[1] for line in information.splitlines() if line.startswith("flags:")), "0")
        if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
            yield target


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory.rstrip('/')}/")


def _runs(target: str, directory: str) -> bool:
    """Whether the file is the lock of an instance (``runtime/process/instance_lock.py``) that is configured with the
    store.
    """
    lock = Path(target)
    if (lock.parent.name, lock.name) != ("run", "lock"):
        return False
    try:
        text = (lock.parent.parent / "etc" / "broker.xml").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return f">{directory}<" in text
