"""Files of a simulated store in which a wrong bit can be repaired: they do not change any more."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from understudy.errors import JournalCorrupt
from understudy.store.file_checks import TRAILER_BYTES, ends_with_seal
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, segment_name
from understudy.store.snapshots.snapshot import read_snapshot_header, snapshot_names
from understudy.testing.runs.cluster_configuration import STORE
from understudy.testing.runs.strikes import JOURNAL
from understudy.testing.sim.disk import SimVolume

_BODIES: Final = f"{STORE}/large-messages"


def checked_bytes(volume: SimVolume, path: str) -> int:
    """Bytes of a file in which damage is always found: the last ones of a segment show that it has a seal."""
    return len(volume.content(path)) - TRAILER_BYTES * path.endswith(".log")


def settled_files(volume: SimVolume, *, first: bool = False) -> list[str]:
    """Bodies, and sealed segments that no node reads at its start; with ``first`` also the first one of the newest
    epoch, whose begin each start reads.
    """
    disk = volume.disk("auditor")
    found = [f"{_BODIES}/{name}" for name in disk.list(_BODIES) if name.endswith(".large")]
    names = disk.list(JOURNAL)
    begins_at = 0
    for newest in snapshot_names(names)[:1]:
        # a copy of the other node's log may have been interrupted in it
        with suppress(JournalCorrupt):
            begins_at = read_snapshot_header(disk.open(f"{JOURNAL}/{newest}", read_only=True), newest).number
    complete = [parsed for parsed in map(parse_name, names) if parsed is not None and parsed[2]]
    newest_epoch = max((epoch for _, epoch, _ in complete), default=0)
    begin = min((number for number, epoch, _ in complete if epoch == newest_epoch), default=0)
    for number, epoch, _ in complete:
        path = f"{JOURNAL}/{segment_name(number, epoch)}"
        if number >= begins_at or ((number, epoch) == (begin, newest_epoch) and not first):
            continue
        if ends_with_seal(volume.content(path)[-TRAILER_BYTES:]):
            found.append(path)
    return [path for path in found if len(volume.content(path)) > HEADER_BLOCK_BYTES]
