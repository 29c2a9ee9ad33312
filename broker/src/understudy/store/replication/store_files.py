"""The files that belong to a store, by their names.

In the directory of the log these are segments, snapshots and entries of the quarantine, unfinished ones included, and
the reserve; in the directory of large messages the bodies, unfinished ones included. Everything else there belongs to
one node and is neither copied nor touched: lock files, ``server.activation.sequence``, ``replica.state``, earlier data
(``oldreplica.N``), paging and retained files.

Not here: the content of the files (``inventory``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from understudy.dataclass import dataclass
from understudy.ports import Disk, DiskReader
from understudy.store.log.applier import UNFINISHED
from understudy.store.log.segment import NEW_SUFFIX, parse_name
from understudy.store.quarantine import DIRECTORY_NAME, quarantine_path
from understudy.store.replication.copy_messages import Directory
from understudy.store.snapshots.reserve import RESERVE_NAME
from understudy.store.snapshots.snapshot import parse_snapshot_name

_ENTRY: Final = re.compile(r"[0-9a-z-]{1,80}\.entry(\.new)?", re.ASCII)
_BODY: Final = re.compile(r"[0-9]{1,20}\.large(\.tmp)?", re.ASCII)
_QUARANTINE: Final = DIRECTORY_NAME + "/"


@dataclass(frozen=True, slots=True)
class StoreDirectories:
    """Directories of a store."""

    disk: Disk
    log: str
    """Absolute path of journal-directory."""
    bodies: str
    """Absolute path of large-messages-directory."""

    def path(self, directory: Directory, name: str = "") -> str:
        """Path of a file, or of the directory."""
        base = self.log if directory is Directory.LOG else self.bodies
        return f"{base}/{name}" if name else base


def belongs(directory: Directory, name: str) -> bool:
    """Whether a file of this name is part of a store. ``name`` is relative to the directory."""
    if directory is Directory.BODIES:
        return _BODY.fullmatch(name) is not None
    if name.startswith(_QUARANTINE):
        return _ENTRY.fullmatch(name[len(_QUARANTINE) :]) is not None
    return name == RESERVE_NAME or parse_name(name) is not None or parse_snapshot_name(name) is not None


def list_store(disk: DiskReader, directories: StoreDirectories) -> list[tuple[Directory, str]]:
    """The files of a store, sorted; nothing for directories that do not exist."""
    found = [(Directory.LOG, name) for name in disk.list(directories.log)]
    found += [(Directory.LOG, f"{_QUARANTINE}{name}") for name in disk.list(quarantine_path(directories.log))]
    found += [(Directory.BODIES, name) for name in disk.list(directories.bodies)]
    return sorted(key for key in found if belongs(*key))


def is_segment(directory: Directory, name: str) -> bool:
    """Whether a file is a segment under its final name."""
    parsed = parse_name(name) if directory is Directory.LOG else None
    return parsed is not None and parsed[2]


def is_unfinished(directory: Directory, name: str) -> bool:
    """Whether a file of this name is being made and gets another name when it is complete."""
    return name.endswith(UNFINISHED if directory is Directory.BODIES else NEW_SUFFIX)


def is_entry(directory: Directory, name: str) -> bool:
    """Whether a file is an entry of the quarantine, which another one of the same name may replace."""
    return directory is Directory.LOG and name.startswith(_QUARANTINE)


def newest_segment(lengths: Mapping[tuple[Directory, str], int], header_bytes: int) -> str | None:
    """Name of the newest segment with records; None if there is none.

    Args:
        lengths: Bytes of data of each file.
        header_bytes: A segment of this length has no records.
    """
    found = []
    for (directory, name), length in lengths.items():
        parsed = parse_name(name) if is_segment(directory, name) else None
        if parsed is not None and length > header_bytes:
            found.append((parsed[1], parsed[0], name))
    return max(found)[2] if found else None
