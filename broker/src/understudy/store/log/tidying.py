"""Removal of files that earlier activations left in the directory of a log, and that are no part of it.

It runs on a writer's thread while the node serves (``operations.TidyUp``); an activation that finds the disk full
calls parts of it at once.

Not here: when (``epoch``, ``message_store``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from understudy.errors import StoreError
from understudy.ports import Disk
from understudy.store.log.chain import newest_epoch
from understudy.store.log.records import HEADER_BYTES, SegmentEnd
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, segment_name
from understudy.store.snapshots.snapshot import temporary_names

log = logging.getLogger(__name__)

#: So many epochs back the end of an unsealed segment is cut to its size, if an activation was killed before it did.
EPOCHS_CUT: Final = 4


def tidy(
    disk: Disk, directory: str, epoch: int, names: Sequence[str], ends: Sequence[SegmentEnd], *, cut_ends: bool = True
) -> bool:
    """Remove the segments that older epochs prepared and never used and the snapshots that they did not finish; cut the
    space that they allocated and never filled.

    None of it is part of the log, so a failure only costs space. Only once the epoch is durable: until then an unsealed
    segment with less than was allocated for it is damage. Does nothing when another node has begun an epoch.

    Args:
        disk: Where the store is.
        epoch: The epoch that has begun.
        names: Files of the directory before it began.
        ends: Where the older segments end.
        cut_ends: Whether to cut the last segments of older epochs.

    Returns:
        Whether the directory is this node's, and could be changed.
    """
    try:
        if newest_epoch(disk.list(directory)) > epoch:
            return False
        _remove_unused(disk, directory, names, epoch, ends)
        _remove_unfinished(disk, directory, names)
        if cut_ends:
            _cut_ends(disk, directory, ends)
    except StoreError as error:
        log.warning("cannot remove files of earlier activations", extra={"error": str(error)})
        return False
    return True


def _cut_ends(disk: Disk, directory: str, ends: Sequence[SegmentEnd]) -> None:
    """Cut the last segment of each of the last epochs. The others were cut when they were sealed; an epoch before may
    have ended before it came to this.
    """
    last = {end.epoch: end for end in ends}
    for end in list(last.values())[-EPOCHS_CUT:]:
        with suppress(StoreError, FileNotFoundError):
            _cut(disk, f"{directory}/{segment_name(end.number, end.epoch)}", end.end)


def _remove_unused(disk: Disk, directory: str, names: Sequence[str], epoch: int, ends: Sequence[SegmentEnd]) -> None:
    """Remove what older epochs prepared and never used; harmless at any moment."""
    listed = {(end.number, end.epoch) for end in ends}
    for name in names:
        parsed = parse_name(name)
        if parsed is None or parsed[1] >= epoch or parsed[:2] in listed:
            continue
        path = f"{directory}/{name}"
        with suppress(StoreError, FileNotFoundError):
            if not parsed[2] or _is_blank(disk, path):
                disk.remove(path)
                log.info("unused segment removed", extra={"path": path})


def _remove_unfinished(disk: Disk, directory: str, names: Sequence[str]) -> None:
    """Remove snapshots that the node before had begun; they only cost space."""
    for name in temporary_names(names):
        with suppress(StoreError, FileNotFoundError):
            disk.remove(f"{directory}/{name}")
            log.info("unfinished snapshot removed", extra={"path": f"{directory}/{name}"})


def _cut(disk: Disk, path: str, end: int) -> None:
    file = disk.open(path)
    try:
        if file.size() > end:
            file.truncate(end)
    finally:
        file.close()


def _is_blank(disk: Disk, path: str) -> bool:
    file = disk.open(path, read_only=True)
    try:
        return not file.read(HEADER_BLOCK_BYTES, HEADER_BYTES).strip(b"\0")
    finally:
        file.close()
