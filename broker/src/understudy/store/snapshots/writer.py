"""Writing a snapshot file, in steps of ``background``.

The file is written under a temporary name, every piece is synced, and it gets its name when it is complete.

Not here: what is in it (``builder``), the bytes (``snapshot``).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

from understudy.errors import StoreError
from understudy.store.log.operations import CreateFile, RemoveFile, RenameFile, SyncDirectory, WriteFile
from understudy.store.log.segment import NEW_SUFFIX
from understudy.store.snapshots.background import Change, Request
from understudy.store.snapshots.snapshot import SnapshotEncoder, SnapshotHeader


class SnapshotWriter:
    """One snapshot file that is being written."""

    def __init__(self, header: SnapshotHeader) -> None:
        """Nothing is written before ``create``."""
        self.encoder = SnapshotEncoder(header)
        """Takes the parts; ``put`` writes its encoded bytes."""
        self.size_bytes = 0
        """Bytes of the snapshot written so far."""
        self._name = header.name

    def create(self) -> Generator[Request, Any, None]:
        """Create the file of the snapshot."""
        yield Change((CreateFile(self._name + NEW_SUFFIX),))

    def put(self, at_least: int = 1) -> Generator[Request, Any, None]:
        """Write and sync the encoded bytes if there are at least so many."""
        if self.encoder.pending_bytes < at_least:
            return
        data, offset = self.encoder.take(), self.size_bytes
        self.size_bytes += len(data)
        yield Change((WriteFile(self._name + NEW_SUFFIX, offset, data),), len(data), fatal=True)

    def remove(self) -> Generator[Request, Any, None]:
        """Remove the file after an error; it is left if that fails, too."""
        with suppress(StoreError):
            yield Change((RemoveFile(self._name + NEW_SUFFIX),))

    def publish(self) -> Generator[Request, Any, None]:
        """Give the complete file its name, durably."""
        yield Change((RenameFile(self._name + NEW_SUFFIX, self._name), SyncDirectory()), fatal=True)
