"""Earlier data of a backup: moved to ``oldreplica.N`` before a copy begins, in the directory of the log and in that of
large messages alike, N being one more than the highest number there. Files that the active node has too stay, and get a
second name there, so the moved copy is complete and takes no more space.

At most ``max-saved-replicated-journals-size`` of them are kept, the newest; 0 removes the data instead of moving it,
-1 keeps all (Artemis manual, "ha-policy"; its FileMoveManager). Only files of a store are moved (``store_files``).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from understudy.ports import Disk
from understudy.store.quarantine import DIRECTORY_NAME
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.divergence import NOTE_NAME
from understudy.store.replication.epoch_history import HISTORY_NAME, write_history
from understudy.store.replication.store_files import StoreDirectories, belongs, list_store

Key = tuple[Directory, str]

_NAME: Final = re.compile(r"oldreplica\.([0-9]{1,9})", re.ASCII)


def saved_numbers(disk: Disk, path: str) -> list[int]:
    """Numbers of the saved copies in one directory, the oldest first."""
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, disk.list(path)) if match is not None)


def next_number(disk: Disk, directories: StoreDirectories) -> int:
    """The number for the next copy that is saved, in both directories."""
    numbers = [*saved_numbers(disk, directories.log), *saved_numbers(disk, directories.bodies)]
    return max(numbers, default=0) + 1


def move_to(disk: Disk, directories: StoreDirectories, number: int, common: Collection[Key] = ()) -> None:
    """Move the files of the store to ``oldreplica.<number>``, durably, and link the common ones, which do not change.
    May be repeated after a crash, also without the common ones: files that have their link already stay.

    Raises:
        DiskFailed: also if the file system has no links; then everything can be moved by another call.
    """
    # names of an earlier process may not be durable
    _sync(disk, directories)
    found = list_store(disk, directories)
    made: set[str] = set()
    # links first: as long as one is missing, every file is in the store
    for key in sorted(found, key=lambda key: key not in common):
        directory, name = key
        base = directories.path(directory, f"oldreplica.{number}")
        folder = f"{base}/{DIRECTORY_NAME}" if "/" in name else base
        if folder not in made:
            disk.make_directory(folder)
            made.add(folder)
        if disk.exists(f"{base}/{name}"):
            continue
        if key in common:
            disk.link(directories.path(*key), f"{base}/{name}")
        else:
            disk.rename(directories.path(*key), f"{base}/{name}")
    if disk.exists(f"{directories.log}/{HISTORY_NAME}"):
        base = directories.path(Directory.LOG, f"oldreplica.{number}")
        disk.make_directory(base)
        made.add(base)
        disk.rename(f"{directories.log}/{HISTORY_NAME}", f"{base}/{HISTORY_NAME}")
    for folder in sorted(made, reverse=True):
        disk.sync_directory(folder)
    _sync(disk, directories)


def remove_store(disk: Disk, directories: StoreDirectories, common: Collection[Key] = ()) -> None:
    """Remove all files of the store but the common ones, durably."""
    for key in list_store(disk, directories):
        if key not in common:
            disk.remove(directories.path(*key))
    write_history(disk, directories.log, ())
    _sync(disk, directories)


def prune(disk: Disk, directories: StoreDirectories, saved_max: int) -> None:
    """Remove the oldest saved copies, until at most ``saved_max`` are left; -1 for any number."""
    if saved_max < 0:
        return
    numbers = sorted({*saved_numbers(disk, directories.log), *saved_numbers(disk, directories.bodies)})
    for number in numbers[: max(len(numbers) - saved_max, 0)]:
        for directory in Directory:
            _remove(disk, directory, directories.path(directory, f"oldreplica.{number}"))
    _sync(disk, directories)


def _remove(disk: Disk, directory: Directory, base: str) -> None:
    """Remove the files of one saved copy, and the directory if it has no others."""
    for folder in (f"{base}/{DIRECTORY_NAME}", base):
        prefix = f"{DIRECTORY_NAME}/" if folder != base else ""
        for name in disk.list(folder):
            if belongs(directory, prefix + name):
                with suppress(FileNotFoundError):
                    disk.remove(f"{folder}/{name}")
        for name in (NOTE_NAME, HISTORY_NAME):
            if folder == base and disk.exists(f"{base}/{name}"):
                disk.remove(f"{base}/{name}")
        if not disk.list(folder):
            disk.remove_directory(folder)


def _sync(disk: Disk, directories: StoreDirectories) -> None:
    """Make removals and renames durable in the directories that exist."""
    quarantine = f"{directories.log}/{DIRECTORY_NAME}"
    for path in (quarantine, directories.log, directories.bodies):
        if disk.exists(path):
            disk.sync_directory(path)
