"""Syncs of several files of a simulated disk, one after the other in their order."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.errors import StoreError
from understudy.ports import File


def sync_each(files: Sequence[File]) -> Sequence[StoreError | None]:
    """Sync files; the outcome of each as ``ports.Disk.sync_files`` reports it."""
    errors: list[StoreError | None] = []
    for file in files:
        error: StoreError | None = None
        try:
            file.sync()
        except StoreError as failure:
            error = failure
        errors.append(error)
    return errors
