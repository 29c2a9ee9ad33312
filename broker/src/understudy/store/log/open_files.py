"""The files that an applier has open, as values: another applier continues with them (``Applier.resume``)."""

from __future__ import annotations

from understudy.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A segment that is being written."""

    name: str
    position: int
    """End of the written bytes."""
    digest: int
    """Digest of the bytes written to the segment so far."""
    last: int
    """Offset of the last write; a write that met a full disk is repeated at this offset."""
    before: int
    """Digest of the bytes before the last write."""
    seed: int
    """Start value of the crc of its records."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that ``CreateFile`` has opened."""

    name: str


@dataclass(frozen=True, slots=True)
class OpenBody:
    """An unfinished body of a large message."""

    name: str
    """Name of the finished file."""
    written_bytes: int
    crc: int
    """Checksum of the bytes written to the body so far."""


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """All open files of one applier."""

    segments: tuple[OpenSegment, ...] = ()
    files: tuple[OpenFile, ...] = ()
    bodies: tuple[OpenBody, ...] = ()
