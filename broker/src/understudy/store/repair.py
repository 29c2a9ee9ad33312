"""Bytes of a store that do not fit their checksum, replaced by those of the other node of a pair (ADR 0114).

``repair_record`` and ``repair_file`` are generators. They read the files of this node themselves, past the cache of the
machine, so they run on a thread that may block; they yield an ``Ask`` for bytes of the file of the same name at the
other node, to be sent an ``Answer`` or None, and a ``Write`` for bytes of this node that are to be replaced.

Nothing is written that was not proved to be right first: the bytes of a file of the other node are checked as a whole,
and each piece is compared with that check again when it is written. Only pieces that differ are written, in place, so
files that are open stay the same files, and a crash in between leaves a file as damaged as before, or less.

Not here: when, and one after the other (``repairs``); keeping the replaced bytes (``log.replaced_bytes``).
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto
from hashlib import blake2b

from understudy.dataclass import dataclass
from understudy.errors import StoreError
from understudy.message import LargeBody
from understudy.ports import DiskReader
from understudy.store.file_checks import (
    PIECE_BYTES,
    TRAILER_BYTES,
    BodyCheck,
    Check,
    SegmentCheck,
    SnapshotCheck,
    read_pieces,
    record_fits,
    trailer_of,
)
from understudy.store.log.segment import parse_name
from understudy.store.replication.copy_messages import Directory
from understudy.store.snapshots.snapshot import parse_snapshot_name


class Outcome(Enum):
    """End of a repair."""

    READABLE = auto()
    """The bytes of this node fit: they were read wrong once."""
    REPAIRED = auto()
    """The bytes of the other node fit; this node has written them to its own file."""
    DAMAGED_HERE = auto()
    """The other node is absent or did not answer, so the damage on this node remains."""
    DAMAGED_TWICE = auto()
    """The bytes of the other node do not fit either, so the damage remains."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file of a store."""

    directory: Directory
    name: str
    path: str
    """Path at this node."""
    needed: bool = False
    """Whether a missing file is made, because a message needs it. Any other file may have been removed meanwhile."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Request for bytes of a file of the other node."""

    directory: Directory
    name: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes of a file of the other node."""

    size_bytes: int
    """Bytes of the file."""
    data: bytes
    """Fewer than asked for at the end of the file."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that fit are to be written over those of this node."""

    directory: Directory
    name: str
    offset: int
    data: bytes
    cut_at: int = -1
    """Size that the file is to have; negative: as it is."""
    create: bool = False
    """Make the file if it is missing."""


Repair = Generator[Ask | Write, Answer | None, Outcome]


def repair_record(disk: DiskReader, place: Place, offset: int, length: int) -> Repair:
    """Repair one record of a segment, which need not be sealed.

    Args:
        place: The segment.
        length: Bytes of the record.
    """
    number, epoch, _ = parse_name(place.name) or (0, 0, False)
    if record_fits(_read(disk, place.path, offset, length), number, epoch):
        return Outcome.READABLE
    data = b""
    while len(data) < length:
        answer = yield Ask(place.directory, place.name, offset + len(data), min(PIECE_BYTES, length - len(data)))
        if answer is None:
            return Outcome.DAMAGED_HERE
        if not answer.data:
            return Outcome.DAMAGED_TWICE
        data += answer.data
    if not record_fits(data, number, epoch):
        return Outcome.DAMAGED_TWICE
    yield Write(place.directory, place.name, offset, data)
    written = record_fits(_read(disk, place.path, offset, length), number, epoch)
    return Outcome.REPAIRED if written else Outcome.DAMAGED_HERE


def repair_file(disk: DiskReader, place: Place, large: LargeBody | None = None) -> Repair:
    """A sealed segment, a snapshot or a body.

    Args:
        place: The file.
        large: Size and checksum of a body, as the log records them.
    """
    if file_fits(disk, place, large):
        return Outcome.READABLE
    answer = yield Ask(place.directory, place.name, 0, PIECE_BYTES)
    if answer is None:
        return Outcome.DAMAGED_HERE
    size_bytes, trailer = answer.size_bytes, b""
    if large is None:
        end = yield Ask(place.directory, place.name, max(size_bytes - TRAILER_BYTES, 0), TRAILER_BYTES)
        if end is None:
            return Outcome.DAMAGED_HERE
        trailer = end.data
    check, hashes, offset = check_of(place, size_bytes, trailer, large), list[bytes](), 0
    while check is not None and answer.data:
        check.feed(answer.data)
        hashes.append(_hash(answer.data))
        offset += len(answer.data)
        if offset >= size_bytes:
            break
        answer = yield Ask(place.directory, place.name, offset, min(PIECE_BYTES, size_bytes - offset))
        if answer is None:
            return Outcome.DAMAGED_HERE
    if check is None or not check.fits:
        return Outcome.DAMAGED_TWICE
    return (yield from _take(disk, place, size_bytes, hashes, large))


def _take(disk: DiskReader, place: Place, size_bytes: int, hashes: list[bytes], large: LargeBody | None) -> Repair:
    """Replace the pieces that have other hashes than those of the other node, which fit together."""
    for index, wanted in enumerate(hashes):
        offset = index * PIECE_BYTES
        length = min(PIECE_BYTES, size_bytes - offset)
        if _hash(_read(disk, place.path, offset, length)) == wanted:
            continue
        answer = yield Ask(place.directory, place.name, offset, length)
        if answer is None:
            return Outcome.DAMAGED_HERE
        if _hash(answer.data) != wanted:
            return Outcome.DAMAGED_TWICE
        yield Write(place.directory, place.name, offset, answer.data, create=place.needed)
    yield Write(place.directory, place.name, size_bytes, b"", size_bytes)
    return Outcome.REPAIRED if file_fits(disk, place, large) else Outcome.DAMAGED_HERE


def file_fits(disk: DiskReader, place: Place, large: LargeBody | None) -> bool:
    """Whether a file of this node fits its checksum, as its medium has it; False also if it cannot be read."""
    try:
        file = disk.open(place.path, read_only=True)
    except (StoreError, FileNotFoundError):
        return False
    try:
        size_bytes = file.size()
        file.forget_cached(max(size_bytes - TRAILER_BYTES, 0), TRAILER_BYTES)
        check = check_of(place, size_bytes, trailer_of(file), large)
        if check is None:
            return False
        for data in read_pieces(file, size_bytes, past_cache=True):
            check.feed(data)
        return check.fits
    except StoreError:
        return False
    finally:
        file.close()


def check_of(place: Place, size_bytes: int, trailer: bytes, large: LargeBody | None) -> Check | None:
    """The check of a file; None for one that has no checksum."""
    if large is not None:
        return BodyCheck(large)
    if parse_snapshot_name(place.name) is not None:
        return SnapshotCheck(place.name, size_bytes)
    return SegmentCheck(place.name, size_bytes, trailer) if parse_name(place.name) is not None else None


def _read(disk: DiskReader, path: str, offset: int, length: int) -> bytes:
    """Bytes of this node from its medium; nothing if they cannot be read."""
    try:
        file = disk.open(path, read_only=True)
    except (StoreError, FileNotFoundError):
        return b""
    try:
        file.forget_cached(offset, length)
        return file.read(offset, length)
    except StoreError:
        return b""
    finally:
        file.close()


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
