"""The note in ``oldreplica.N`` about the part of it that the active node does not have.

A copy that is moved away is complete: files that the active node has too are there as links. ``divergence.json`` names
the first record after the last common one, and counts the records from there on. It is written in two steps: which
files were moved, when they are; the rest once the active node has sent its version of the segment in which the logs
split (``complete_note``). A crash in between leaves the first, and the next copy completes it.

Format: one JSON object, ``format`` 1 (docs/build/journal-format.md s. 9).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from itertools import zip_longest
from typing import Final

from understudy.dataclass import dataclass
from understudy.limits import DIVERGENCE_NOTE_BYTES_MAX
from understudy.ports import Disk, DiskReader
from understudy.store.log.chain import EpochStart
from understudy.store.log.reading.replay import Frame, read_frames
from understudy.store.log.records import HEADER_BYTES, EpochRecord, RecordType, decode
from understudy.store.log.segment import parse_name, seed_of, segment_name
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.epoch_history import common_history, read_history
from understudy.store.replication.notes import read_file, replace_file
from understudy.store.replication.store_files import StoreDirectories, is_segment, list_store

NOTE_NAME: Final = "divergence.json"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Divergence:
    """Content of the note."""

    complete: bool = False
    """The fields below are known."""
    epoch: int = 0
    """Epoch of the first record that the active node does not have. The fields below describe that record, too."""
    segment: str = ""
    """Name of the segment's file; empty if no record differs."""
    offset: int = 0
    sequence: int = 0
    records: int = 0
    """Number of records from the first one that differs."""
    messages: int = 0
    """Number of messages in these records, acknowledged or not."""


def saved_directories(directories: StoreDirectories, number: int) -> StoreDirectories:
    """The directories ``oldreplica.<number>`` of a store."""
    name = f"oldreplica.{number}"
    return StoreDirectories(
        directories.disk, directories.path(Directory.LOG, name), directories.path(Directory.BODIES, name)
    )


def read_note(disk: DiskReader, directory: str) -> Divergence | None:
    """The note of a saved copy; None if there is none or it is damaged.

    Args:
        disk: Where it is.
        directory: ``oldreplica.N`` in the directory of the log.

    Raises:
        DiskFailed: it cannot be read.
    """
    raw = read_file(disk, f"{directory}/{NOTE_NAME}", DIVERGENCE_NOTE_BYTES_MAX)
    if raw is None:
        return None
    try:
        found = json.loads(raw)
        values = {each.name: found[each.name] for each in fields(Divergence)}
    except (ValueError, KeyError, TypeError):
        return None
    return Divergence(**values)


def write_note(disk: Disk, directory: str, note: Divergence) -> None:
    """Replace the note atomically and durably.

    Raises:
        DiskFull, DiskFailed: the disk refused; the note is the one before.
    """
    values = {"format": _FORMAT} | {each.name: getattr(note, each.name) for each in fields(Divergence)}
    replace_file(disk, directory, NOTE_NAME, json.dumps(values).encode() + b"\n")


def complete_note(
    disk: Disk, directories: StoreDirectories, number: int, history: Sequence[EpochStart]
) -> Divergence | None:
    """Compare a saved copy with the store, which has at least the segments of the active node that are older than the
    newest one, and write the note. Reads the segments from the split on.

    Args:
        disk: Has both.
        directories: Have the copy from the active node.
        number: Names the saved copy.
        history: Activations of the log of the active node; empty if they are not known.

    Returns:
        The note; None if it was complete, or there is none.

    Raises:
        DiskFull, DiskFailed: the disk refused.
    """
    saved = saved_directories(directories, number)
    note = read_note(disk, saved.log)
    if note is None or note.complete:
        return None
    found = _compare(disk, directories, saved, history)
    write_note(disk, saved.log, found)
    return found


def _compare(
    disk: Disk, directories: StoreDirectories, saved: StoreDirectories, history: Sequence[EpochStart]
) -> Divergence:
    segments = _segments(disk, saved)
    # from the end: everything before the last segment that begins like that of the active node is common, or was
    # trimmed there
    first = 0
    for index in reversed(range(len(segments))):
        if _begins_alike(disk, directories, saved, segments[index]):
            first = index
            break
    ended = _held(disk, directories, saved, segments)
    common = common_history(read_history(disk, saved.log), history)

    def had(name: str, frame: Frame) -> bool:
        return ended(name, frame) or (common is not None and common.has(_order(name)[0], frame.sequence))

    return _count(disk, directories, saved, segments[first:], had)


def _held(
    disk: Disk, directories: StoreDirectories, saved: StoreDirectories, segments: Sequence[str]
) -> Callable[[str, Frame], bool]:
    """Whether the log of the active node has had a record of a segment that it may have trimmed since.

    The first record of an epoch says where the older segments end. The epoch goes on from the saved copy if a record of
    the copy ends where the last of them does, and has the sequence before that first record.
    """
    last, limit = (0, 0), 0
    for name in _segments(disk, directories):
        first, payload = next(_records(disk, directories, name), (None, b""))
        if first is None or first.kind != RecordType.EPOCH:
            continue
        record = decode(first.kind, first.flags, payload[HEADER_BYTES:])
        assert isinstance(record, EpochRecord)
        if not record.ends:
            continue
        older = record.ends[-1]
        old = segment_name(older.number, older.epoch)
        if old in segments and any(
            frame.offset + frame.length == older.end and frame.sequence == first.sequence - 1
            for frame, _ in _records(disk, saved, old)
        ):
            last, limit = (older.epoch, older.number), older.end

    def had(name: str, frame: Frame) -> bool:
        place = _order(name)
        return place < last or (place == last and frame.offset + frame.length <= limit)

    return had


def _segments(disk: Disk, directories: StoreDirectories) -> list[str]:
    """Names of the segments of a store, in the order of the log."""
    names = [name for directory, name in list_store(disk, directories) if is_segment(directory, name)]
    return sorted(names, key=_order)


def _begins_alike(disk: Disk, directories: StoreDirectories, saved: StoreDirectories, name: str) -> bool:
    """Whether a segment begins with the same record in both."""
    mine, theirs = next(_both(disk, directories, saved, name), (None, None))
    return mine is not None and mine == theirs


def _count(
    disk: Disk,
    directories: StoreDirectories,
    saved: StoreDirectories,
    segments: Sequence[str],
    had: Callable[[str, Frame], bool],
) -> Divergence:
    split: tuple[str, Frame] | None = None
    records = messages = 0
    for name in segments:
        for mine, theirs in _both(disk, directories, saved, name):
            if mine is None:
                break
            if split is None:
                if mine == theirs or (theirs is None and had(name, mine[0])):
                    continue
                split = (name, mine[0])
            records += 1
            messages += mine[0].kind == RecordType.MESSAGE_ADD
    if split is None:
        return Divergence(complete=True)
    name, frame = split
    return Divergence(True, _order(name)[0], name, frame.offset, frame.sequence, records, messages)


_Record = tuple[Frame, bytes]


def _both(
    disk: Disk, directories: StoreDirectories, saved: StoreDirectories, name: str
) -> Iterator[tuple[_Record | None, _Record | None]]:
    """The records of a segment of the saved copy, and of that of the same name in the store."""
    yield from zip_longest(_records(disk, saved, name), _records(disk, directories, name))


def _records(disk: Disk, directories: StoreDirectories, name: str) -> Iterator[_Record]:
    epoch, number = _order(name)
    try:
        file = disk.open(directories.path(Directory.LOG, name), read_only=True)
    except FileNotFoundError:
        return
    try:
        yield from read_frames(file, seed_of(number, epoch))
    finally:
        file.close()


def _order(name: str) -> tuple[int, int]:
    """Epoch and number of a segment."""
    parsed = parse_name(name)
    assert parsed is not None
    return parsed[1], parsed[0]
