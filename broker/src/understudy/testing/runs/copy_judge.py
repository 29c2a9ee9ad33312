"""Comparison of the stores of a replicated pair, byte by byte, from outside of both nodes.

Both nodes run, the replica is in sync, and no client changes anything. Files are compared by name. A segment is
compared up to the end of its records: the bytes after them are those of each node's own file.
The reserve is not compared: each node keeps it by its own free space.

Source: ADR 0057 (the replica executes the same operations on the same files).
"""

from __future__ import annotations

from typing import Final

from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.store_files import StoreDirectories, list_store
from understudy.store.snapshots.reserve import RESERVE_NAME
from understudy.testing.runs.cluster_configuration import STORE
from understudy.testing.sim.disk import SimVolume
from understudy.testing.sim.valid_bytes import valid_bytes

#: Name of the process that reads both stores.
_READER: Final = "auditor"


def store_content(volume: SimVolume) -> dict[str, bytes]:
    """The files of the store on a volume by path, each with its valid bytes."""
    directories = StoreDirectories(volume.disk(_READER), f"{STORE}/journal", f"{STORE}/large-messages")
    paths = [
        directories.path(directory, name)
        for directory, name in list_store(directories.disk, directories)
        if (directory, name) != (Directory.LOG, RESERVE_NAME)
    ]
    return {path: valid_bytes(path, volume.content(path)) for path in paths}


def differences(active: SimVolume, replica: SimVolume) -> list[str]:
    """One sentence for each file that differs between the stores of the active node and of its replica."""
    one, other = store_content(active), store_content(replica)
    found = [f"{path} is missing on the replica" for path in sorted(one.keys() - other.keys())]
    found += [f"{path} is on the replica only" for path in sorted(other.keys() - one.keys())]
    for path in sorted(one.keys() & other.keys()):
        left, right = one[path], other[path]
        if left != right:
            shorter = min(len(left), len(right))
            at = next((i for i in range(shorter) if left[i] != right[i]), shorter)
            found.append(f"{path} differs at offset {at}: {len(left)} bytes on the active node, {len(right)} there")
    return found
