"""The directories of a broker's store, and the proof that it is the store it was before.

A store carries a random id in ``store.json``, written when it is first made. Each host notes the id in its own instance
directory the first time it sees it. From then on a store without an id, or with another, is refused: it is a mount
point with nothing mounted on it, or another volume, and a broker started there would begin an empty journal
beside the full one.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.understudy.broker.plugins.module_utils.mounts import (
    MOUNTINFO,
    ROOT,
    Mount,
    depth,
    mount_of,
    read_mounts,
)
from ansible_collections.understudy.broker.plugins.module_utils.process import read_record

STORES = ("bindings", "journal", "large-messages", "paging")
LOCKS = "lock"
IDENTITY = "store.json"
NOTE = "etc/store-seen.json"
SEGMENTS = "segment-*.log"
COPY_NOTE = "replica.state"
"""Names in the directory of the journal (docs/build/journal-format.md)."""
POSITION = "run/store-position.json"
"""Where the broker notes how far it has seen the log; it refuses a store that is behind."""


class StoreError(Exception):
    """The store must not be used; the message says what is wrong and what to look at."""


@dataclass(frozen=True)
class StoreIdentity:
    """Whose store a directory holds."""

    store_id: str
    cluster: str
    pair: str

    @classmethod
    def read(cls, path: Path) -> StoreIdentity | None:
        record = read_record(path)
        values = [record.get(key) for key in ("store_id", "cluster", "pair")]
        return cls(*values) if all(isinstance(value, str) for value in values) else None  # type: ignore[arg-type]


@dataclass(frozen=True)
class Elsewhere:
    """The store's directory on another host of the pair."""

    host: str
    mount: Mount
    store_id: str
    """Empty if there is no store there."""

    @classmethod
    def from_result(cls, host: str, result: Mapping[str, object]) -> Elsewhere:
        """Make the value from the result of the module store_info on that host.

        Raises:
            StoreError: the result is another module's.
        """
        mount, store_id = result.get("mount"), result.get("store_id")
        if not isinstance(mount, Mapping) or not isinstance(store_id, str):
            raise StoreError(f"peers: {host}: give what store_info returned")
        return cls(host, Mount.from_dict(mount), store_id)


def look_at_store(path: Path) -> dict[str, object]:
    """The mount that a directory is on, or would be on, the identity of the store in it, and whether a node has begun
    its log, as the module store_info returns them.

    Raises:
        OSError, ValueError: the directory cannot be read.
    """
    # First what makes an automount happen, then the list of mounts.
    found = StoreIdentity.read(path / IDENTITY)
    mounts = read_mounts(Path(MOUNTINFO).read_text(encoding="utf-8", errors="surrogateescape"))
    mount = mount_of(os.path.realpath(path), mounts)
    return {
        "mount": mount.as_dict(),
        "store_id": found.store_id if found else "",
        "begun": any((path / "journal").glob(SEGMENTS)),
        "copies": (path / "journal" / COPY_NOTE).exists(),
    }


def refuse_unmounted(
    store: Path, here: Mount, found: StoreIdentity | None, required: str, peers: Sequence[Elsewhere]
) -> None:
    """Refuse to make directories where the store's own volume is not mounted.

    Args:
        store: the directory.
        here: the mount it is on.
        found: the store in it.
        required: mount point that the inventory names; empty if it names none.
        peers: the same directory on the other hosts of the pair.

    Raises:
        StoreError: the named mount point has nothing mounted; or there is no store here and another host has the path
            on a mount that this host lacks; or another host has another store.
    """
    if required and here.point != required:
        raise StoreError(
            f"nothing is mounted on {required} (broker_store_mount_point): {store} is on {here}; mount the store"
        )
    for peer in peers:
        if found is not None and peer.store_id and peer.store_id != found.store_id:
            raise StoreError(
                f"{store} holds the store {found.store_id}, but at {peer.host} the store {peer.store_id}; "
                "is the same volume mounted on both?"
            )
        if found is None and depth(peer.mount.point) > depth(here.point):
            raise StoreError(
                f"{store} is on {here} and holds no store, but {peer.host} has {peer.mount} mounted; "
                "mount it here first"
            )


def asserted_mount_point(here: Mount) -> str:
    """The mount point that has to be there before the broker starts; empty for the root file system."""
    return "" if here.point == ROOT else here.point


def subdirectories(store: Path) -> dict[str, Path]:
    """Every directory of a store by the noun that broker.xml uses for it."""
    return {**{name: store / name for name in STORES}, "node-manager-lock": store / LOCKS}


def judge(store: Path, instance: Path, wanted: StoreIdentity) -> StoreIdentity | None:
    """The identity found, or None if the store is new and this host has never seen one here.

    Args:
        wanted: cluster and pair that the inventory gives the store to; its ``store_id`` is not looked at.

    Raises:
        StoreError: the store is another one than before, or belongs to another pair.
    """
    found = StoreIdentity.read(store / IDENTITY)
    noted = StoreIdentity.read(instance / NOTE)
    if found is None and noted is not None:
        raise StoreError(
            f"{store} is empty of the store {noted.store_id} that this host used before; is it mounted? "
            f"If the store was given up on purpose, remove {instance / NOTE} and {instance / POSITION}"
        )
    if found is None:
        foreign = [name for name in STORES if (store / name).is_dir() and any((store / name).iterdir())]
        if foreign:
            raise StoreError(f"{store} has no {IDENTITY} but holds data in {', '.join(foreign)}; whose is it?")
        return None
    if noted is not None and noted.store_id != found.store_id:
        raise StoreError(f"{store} holds the store {found.store_id}, but this host used {noted.store_id} before")
    if (found.cluster, found.pair) != (wanted.cluster, wanted.pair):
        raise StoreError(
            f"{store} belongs to pair {found.pair!r} of cluster {found.cluster!r}, not to pair {wanted.pair!r} of "
            f"cluster {wanted.cluster!r}"
        )
    return found


def claim(store: Path, wanted: StoreIdentity) -> StoreIdentity:
    """Write ``wanted`` into a new store, unless the partner was faster; returns the one that was written.

    A hard link is made in one step on every file system that may carry a store, NFS included, and fails if the name is
    taken.
    """
    descriptor, name = tempfile.mkstemp(dir=store, prefix=".store-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as target:
            json.dump({"store_id": wanted.store_id, "cluster": wanted.cluster, "pair": wanted.pair}, target)
            target.flush()
            os.fsync(target.fileno())
        os.chmod(name, 0o640)
        try:
            os.link(name, store / IDENTITY)
        except FileExistsError:
            pass
    finally:
        os.unlink(name)
    found = StoreIdentity.read(store / IDENTITY)
    if found is None:
        raise StoreError(f"{store / IDENTITY} cannot be read back")
    return found


def note(instance: Path, identity: StoreIdentity, write: Callable[[Path, str], None]) -> bool:
    """Remember on this host which store it uses; True if that was news."""
    if StoreIdentity.read(instance / NOTE) == identity:
        return False
    content = {"store_id": identity.store_id, "cluster": identity.cluster, "pair": identity.pair}
    write(instance / NOTE, json.dumps(content) + "\n")
    return True
