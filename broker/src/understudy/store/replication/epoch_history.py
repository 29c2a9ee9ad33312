"""The activations that the log of a node of a replicated pair went through: ``epochs.json`` beside the segments.

EPOCH records say the same, and leave the log when its beginning is trimmed. With the history of both nodes a saved copy
can be compared with a log that has no segment of it any more: up to the newest activation that is in both histories
the logs are the same, and the next activation shows where its epoch ended (``divergence``). A node adds a line when it
activates, and takes over the history of the active node when a copy ends.

Format: one JSON object, ``format`` 1 (docs/build/journal-format.md s. 9). A missing or damaged file proves nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import StoreError
from understudy.limits import EPOCH_HISTORY_BYTES_MAX, EPOCH_HISTORY_MAX
from understudy.ports import Disk, DiskReader
from understudy.store.log.chain import EpochStart
from understudy.store.replication.notes import read_file, replace_file

log = logging.getLogger(__name__)

HISTORY_NAME: Final = "epochs.json"
_FORMAT: Final = 1


def read_history(disk: DiskReader, directory: str) -> tuple[EpochStart, ...]:
    """The history of a log, the oldest activation first; empty if there is none, or it is damaged.

    Args:
        disk: Where it is.
        directory: Directory of the log, or of a saved copy of it.

    Raises:
        DiskFailed: it cannot be read.
    """
    raw = read_file(disk, f"{directory}/{HISTORY_NAME}", EPOCH_HISTORY_BYTES_MAX)
    try:
        found = json.loads(raw or b"{}")
        if found["format"] != _FORMAT:
            return ()
        return tuple(EpochStart(*map(int, each)) for each in found["epochs"])
    except (ValueError, KeyError, TypeError):
        return ()


def write_history(disk: Disk, directory: str, starts: Sequence[EpochStart]) -> None:
    """Replace the history; an empty one is removed.

    Raises:
        DiskFull, DiskFailed: the disk refused; the history is the one before.
    """
    if not starts:
        with suppress(FileNotFoundError):
            disk.remove(f"{directory}/{HISTORY_NAME}")
        return
    values = {"format": _FORMAT, "epochs": [astuple(each) for each in starts[-EPOCH_HISTORY_MAX:]]}
    replace_file(disk, directory, HISTORY_NAME, json.dumps(values).encode() + b"\n")


def add_start(disk: Disk, directory: str, start: EpochStart) -> None:
    """Add an activation, once it is the newest one of the log. A history without it proves less, and keeps no node from
    serving: an error of the disk is a warning.
    """
    try:
        earlier = [each for each in read_history(disk, directory) if each.epoch < start.epoch]
        write_history(disk, directory, [*earlier, start])
    except StoreError as error:
        log.warning("the activation is not in the history of the log", extra={"error": str(error)})


@dataclass(frozen=True, slots=True)
class CommonHistory:
    """The part of a log that another one has had, as both histories show it."""

    epoch: int
    """Newest epoch that both logs have."""
    begin: int
    """Sequence at which it begins."""
    end: int | None
    """Sequence at which the other log went on in a later epoch; None while this is its present epoch."""

    def has(self, epoch: int, sequence: int) -> bool:
        """Whether the other log has had a record of the first one."""
        if epoch < self.epoch:
            return sequence < self.begin
        return epoch == self.epoch and (self.end is None or sequence < self.end)


def common_history(ours: Sequence[EpochStart], theirs: Sequence[EpochStart]) -> CommonHistory | None:
    """The part of our log that another one has had; None if nothing shows one.

    Args:
        ours: History of our log.
        theirs: History of the other log, with its present epoch at the end.
    """
    known = set(ours)
    common = next((each for each in reversed(theirs) if each in known), None)
    if common is None:
        return None
    if common == theirs[-1]:
        return CommonHistory(common.epoch, common.sequence, None)
    following = next((each.sequence for each in theirs if each.previous == common.epoch), None)
    # an activation without a line, by an older version: only older epochs are certain
    return CommonHistory(common.epoch, common.sequence, common.sequence if following is None else following)
