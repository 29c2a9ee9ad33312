"""Old copies of replicated journals: which of them may be removed.

Two ways of naming them exist. With that of Artemis a copy is the directory ``oldreplica.N`` in each of the directories
of a store; with that of EAP it is ``journal1``, ``journal2`` and so on beside ``journal``, and likewise for the other
directories. A copy is everything with one number. ``choose`` decides, ``find`` and ``remove`` touch the file system; no
link is followed, because the broker may write in these directories.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ARTEMIS = "artemis"
EAP = "eap"
NAMINGS = (ARTEMIS, EAP)

STATE = "replica.state"
"""Beside the journal; says to which number files are being moved (docs/build/journal-format.md s. 9)."""
STATE_MAGIC = b"USTREPL\n"
STATE_NUMBER = slice(12, 16)

_OLD = re.compile(r"oldreplica\.([0-9]{1,9})", re.ASCII)


class Unsafe(Exception):
    """Nothing may be removed; the message names the directory and the reason."""


@dataclass(frozen=True)
class OldDirectory:
    """One directory of an old copy."""

    parent: str
    name: str
    number: int
    modified_ns: int
    """Time of its newest entry, or its own."""

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.name}"


@dataclass(frozen=True)
class Choice:
    """What goes and what stays."""

    removed: tuple[OldDirectory, ...]
    kept: tuple[OldDirectory, ...]


def number_of(name: str, base: str, naming: str) -> int | None:
    """Number of an old copy by its name; None for another name.

    Args:
        name: Name of a directory.
        base: Name of the current directory.
        naming: One of ``NAMINGS``.
    """
    if naming == ARTEMIS:
        match = _OLD.fullmatch(name)
    else:
        match = re.fullmatch(rf"{re.escape(base)}([1-9][0-9]{{0,8}})", name, re.ASCII)
    return int(match[1]) if match else None


def choose(found: Iterable[OldDirectory], keep: int, protected: Iterable[int] = ()) -> Choice:
    """The copies that go. The copies with the highest numbers stay, and as many of those that were changed last, which
    are usually the same; a copy that was put back by hand may have a low number and be the newest.

    Args:
        found: Directories of old copies.
        keep: Copies that stay; at least one.
        protected: Numbers that stay besides.

    Raises:
        ValueError: ``keep`` is less than one.
    """
    if keep < 1:
        raise ValueError("at least the newest old copy is kept; keep must be 1 or more")
    directories = sorted(found, key=lambda each: (each.number, each.path))
    modified: dict[int, int] = {}
    for each in directories:
        modified[each.number] = max(modified.get(each.number, 0), each.modified_ns)
    highest = sorted(modified)[-keep:]
    newest = sorted(modified, key=lambda number: (modified[number], number))[-keep:]
    stay = {*highest, *newest, *protected}
    return Choice(
        tuple(each for each in directories if each.number not in stay),
        tuple(each for each in directories if each.number in stay),
    )


def find(currents: Iterable[Path], naming: str) -> list[OldDirectory]:
    """Directories of old copies of the current directories; links are none.

    Raises:
        OSError: a directory cannot be read.
    """
    found = []
    for current in currents:
        parent = current if naming == ARTEMIS else current.parent
        if not parent.is_dir():
            continue
        for entry in os.scandir(parent):
            number = number_of(entry.name, current.name, naming)
            if number is not None and entry.is_dir(follow_symlinks=False):
                found.append(OldDirectory(str(parent), entry.name, number, _modified_ns(entry)))
    return found


def _modified_ns(entry: os.DirEntry[str]) -> int:
    times = [each.stat(follow_symlinks=False).st_mtime_ns for each in os.scandir(entry.path)]
    return max(times, default=entry.stat(follow_symlinks=False).st_mtime_ns)


def copy_under_way(state: bytes) -> int | None:
    """Number of the copy that files are being moved to, from ``replica.state``; None: there is none, or the file says
    nothing that is known.
    """
    if not state.startswith(STATE_MAGIC) or len(state) < STATE_NUMBER.stop:
        return None
    return int.from_bytes(state[STATE_NUMBER], "little") or None


def open_in(directories: Sequence[str], open_paths: Mapping[int, Iterable[str]]) -> dict[str, int]:
    """Directories in which a process has a file open or works, with the process.

    Args:
        directories: Real paths.
        open_paths: Files that each process has open, and its working directory, by process id.
    """
    found: dict[str, int] = {}
    for pid, paths in open_paths.items():
        for path in paths:
            for directory in directories:
                if path == directory or path.startswith(f"{directory}/"):
                    found.setdefault(directory, pid)
    return found


def paths_of_processes(proc: Path = Path("/proc")) -> dict[int, list[str]]:
    """Files that processes have open, and their working directories, as far as this user may see them."""
    found: dict[int, list[str]] = {}
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        paths = []
        try:
            links = [process / "cwd", *(process / "fd").iterdir()]
        except OSError:  # it has ended, or belongs to another user
            continue
        for link in links:
            try:
                paths.append(os.readlink(link))
            except OSError:
                continue
        found[int(process.name)] = paths
    return found


def judge(
    directories: Sequence[OldDirectory],
    currents: Iterable[Path],
    processes: Mapping[int, Iterable[str]],
    mount_points: Iterable[str] = (),
) -> None:
    """Refuse a removal that could touch the store of a running broker.

    Args:
        directories: Directories of old copies that shall be removed.
        currents: Directories that are in use by configuration.
        processes: Paths by process id, as ``paths_of_processes`` returns them.
        mount_points: Directories of this host on which a file system is mounted.

    Raises:
        Unsafe
    """
    mounted = list(mount_points)
    real = {os.path.realpath(current) for current in currents}
    by_path = {os.path.realpath(each.path): each for each in directories}
    for path, each in by_path.items():
        if any(current == path or current.startswith(f"{path}/") for current in real):
            raise Unsafe(f"{each.path} is, or has in it, a directory of the current store")
        inside = next((point for point in mounted if point == path or point.startswith(f"{path}/")), None)
        if inside is not None:
            raise Unsafe(f"{each.path} is a mount point, or has one in it ({inside}); unmount it first")
        owner = os.stat(path, follow_symlinks=False).st_uid
        if os.geteuid() not in (0, owner):
            problem = f"{each.path} belongs to user {owner}: only root, or that user, sees whether a process uses it"
            raise Unsafe(f"{problem}; set become: true")
    used = open_in(list(by_path), processes)
    if used:
        path, pid = sorted(used.items())[0]
        raise Unsafe(f"process {pid} has files in {by_path[path].path} open: it is the store of a running broker")


def size_of(directory: OldDirectory) -> int:
    """Bytes that its removal frees: files with a second name elsewhere are not counted."""
    total = 0
    for base, _folders, names in os.walk(directory.path):
        for name in names:
            status = os.lstat(os.path.join(base, name))
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                total += status.st_blocks * 512
    return total


def remove(directory: OldDirectory) -> None:
    """Remove a directory with its contents. Neither its parent nor anything in it is followed as a link.

    Raises:
        OSError
    """
    descriptor = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        shutil.rmtree(directory.name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
