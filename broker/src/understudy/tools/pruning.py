"""Old copies of a store beside its directories and in them: which of them may go, and their removal.

A backup moves its data aside when it copies the store of its primary anew: to ``oldreplica.N`` in the directory, or, in
a broker of the reference documents, to a directory with a number after the name (``journal1``). The copy with the
highest number is the last chance to get old messages back, so it stays, as does the directory in use (reference/001,
30.3.4).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from understudy.dataclass import dataclass
from understudy.store.replication.old_replicas import prune, saved_numbers
from understudy.store.replication.store_files import StoreDirectories

_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class OldCopies:
    """Old copies of one store."""

    inside: tuple[int, ...]
    """Numbers of the copies ``oldreplica.N``, the oldest first."""
    beside: tuple[tuple[str, ...], ...]
    """Directories beside each directory of the store, in the order of their numbers."""

    def superfluous(self, keep: int) -> OldCopies:
        """The copies that are not among the newest ones, of which so many stay of each directory."""

        def old(copies: Sequence[object]) -> int:
            return max(len(copies) - keep, 0)

        return OldCopies(self.inside[: old(self.inside)], tuple(each[: old(each)] for each in self.beside))


def find_copies(store: StoreDirectories, directories: Sequence[str], used: Collection[str]) -> OldCopies:
    """The old copies of a store.

    Args:
        store: The store, with its log and its large messages.
        directories: Absolute paths of all its directories.
        used: Absolute paths of directories in use, by this server or another one of the host, which are never copies.
    """
    disk = store.disk
    numbers = sorted({*saved_numbers(disk, store.log), *saved_numbers(disk, store.bodies)})
    return OldCopies(tuple(numbers), tuple(_beside(store, each, used) for each in directories))


def _beside(store: StoreDirectories, directory: str, used: Collection[str]) -> tuple[str, ...]:
    around, _, name = directory.rpartition("/")
    found = []
    for other in store.disk.list(around):
        number, path = other.removeprefix(name), f"{around}/{other}"
        if not other.startswith(name) or not _NUMBER.fullmatch(number):
            continue
        if any(f"{each}/".startswith(f"{path}/") for each in used):
            continue
        found.append((int(number), path))
    return tuple(path for _, path in sorted(found))


def remove_inside(store: StoreDirectories, keep: int) -> None:
    """Remove the copies ``oldreplica.N`` but the newest ones, durably."""
    prune(store.disk, store, keep)
