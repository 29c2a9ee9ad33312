"""A disk that fails while its node activates, and copies of a store that cannot be used."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from understudy.errors import DiskFailed
from understudy.store.log.segment import HEADER_BLOCK_BYTES
from understudy.store.seen import Position, SeenPosition
from understudy.testing.sim.disk import SimVolume
from understudy.testing.sim.valid_bytes import valid_bytes

#: Operations that fail, by the first word of their text; None: all of them, reading too.
_KINDS: Final[tuple[str | None, ...]] = (None, "read", "sync", "create", "write")


class BrokenDisk:
    """Fails operations of one node while that activates, from one of them on, until it is repaired."""

    def __init__(self) -> None:
        """Make a disk that works."""
        self._activating: Callable[[], bool] | None = None
        self._kind: str | None = None
        self._operations = self._left = 0
        self.failed = 0
        """Operations that have failed."""

    @property
    def broken(self) -> bool:
        """Whether the disk fails in the next activation."""
        return self._activating is not None

    def fail(self, activating: Callable[[], bool], operations: int, choice: float) -> None:
        """Fail from now on.

        Args:
            activating: Whether the node activates at the moment.
            operations: The first operation of each activation that fails; earlier ones work.
            choice: A number from 0 to 1; selects which kind of operations fail.
        """
        self._activating, self._operations, self._left = activating, operations, operations
        self._kind = _KINDS[int(choice * len(_KINDS)) % len(_KINDS)]

    def repair(self) -> None:
        """Work from now on."""
        self._activating = None

    def check(self, event: str) -> None:
        """Called before each operation with its text. Raises DiskFailed."""
        if self._activating is None:
            return
        if not self._activating():
            self._left = self._operations
            return
        kind, _, place = event.partition(" ")
        if self._kind not in (None, kind) and not (self._kind == "sync" and kind == "sync-directory"):
            return
        self._left -= 1
        if self._left <= 0:
            self.failed += 1
            raise DiskFailed(f"cannot {kind} {place}: Input/output error".replace(" :", ":"))


def damage_log(volume: SimVolume, directory: str, stream: random.Random) -> Callable[[], None] | None:
    """Flip a bit in one of the first records of the oldest segment that has many.

    Args:
        volume: The disk of the node.
        stream: Selects the bit.

    Returns:
        A call that flips it back, as a repaired disk; None: no segment has so many bytes.
    """
    for path in volume.paths():
        is_segment = path.startswith(f"{directory}/segment-")
        used = len(valid_bytes(path, volume.content(path))) if is_segment else 0
        if used > HEADER_BLOCK_BYTES + 3_000:
            inode, at = volume.find(path), HEADER_BLOCK_BYTES + stream.randrange(1_000)
            right = inode.visible[at]
            wrong = right ^ 1 << stream.randrange(8)
            whole = bytes(inode.visible[:used])
            damaged = whole[:at] + bytes([wrong]) + whole[at + 1 :]
            _replace(inode, at, whole, wrong)
            return partial(_replace, inode, at, damaged, right)
    return None


def _replace(inode: Any, offset: int, old: bytes, new: int) -> None:
    """Change a byte of a file, whatever its name is now, on the medium and in every cache. A file whose beginning up to
    1,000 bytes after the byte was written since stays as it is.
    """
    end = offset + 1_000
    for content in (inode.visible, inode.stable):
        if bytes(content[:end]) == old[:end]:
            content[offset] = new


def note_later_position(volume: SimVolume, host: str, instance: str) -> Callable[[], None] | None:
    """Let a node believe that its log was longer than it is, as after the loss of its end.

    Args:
        volume: The disk of the node.
        host: The node.

    Returns:
        A call that forgets it, as an administrator who accepts the store; None: it has noted no position.
    """
    seen = SeenPosition(volume.disk(host), instance)
    found = seen.read()
    if found is None:
        return None
    seen.note(Position(found.node_id, found.epoch, found.sequence + 1_000_000), sync=True)
    return lambda: SeenPosition(volume.disk(host), instance).forget()
