"""Messages read back from their segments: the record is checked again before anything is believed.

Not here: records that are not written yet (``journal.pending``), which segments there are.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from understudy.errors import JournalCorrupt, RemoteProtocolError
from understudy.message import LargeMessage, Message
from understudy.ports import Disk, File
from understudy.store.records import HEADER, HEADER_BYTES, MESSAGE_LARGE, MessageRecord, decode
from understudy.store.segment import seed_of, segment_name

#: Segments kept open for reading messages back.
OPEN_FILES_MAX: Final = 64


class SegmentReaders:
    """Segments of one store, open for reading; the least recently used are closed."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._files: dict[int, File] = {}

    def read_message(self, number: int, epoch: int, offset: int, length: int, pending: bytes | None) -> Message:
        """The message of a record.

        Args:
            number: Of its segment.
            epoch: Of the segment.
            offset: In the segment.
            length: Bytes of the record.
            pending: Its bytes if they are not on the disk yet.

        Raises:
            JournalCorrupt: the bytes there are not that record any more.
            DiskFailed: they cannot be read.
        """
        raw = pending if pending is not None else self._file(number, epoch).read(offset, length)
        path = f"{self._directory}/{segment_name(number, epoch)}"
        if len(raw) != length or length < HEADER_BYTES:
            raise JournalCorrupt(f"record of {length} bytes cut off", file=path, offset=offset)
        crc, found, _, _, kind, flags, _ = HEADER.unpack_from(raw)
        if crc32(raw[4:], seed_of(number, epoch)) != crc or found != length:
            raise JournalCorrupt("message is damaged", file=path, offset=offset)
        try:
            record = decode(kind, flags, raw[HEADER_BYTES:])
            if not isinstance(record, MessageRecord):
                raise JournalCorrupt(f"record of type {kind} where a message was", file=path, offset=offset)
            kind_of_message = LargeMessage if record.flags & MESSAGE_LARGE else Message
            return kind_of_message.decode(record.encoded)
        except (ValueError, RemoteProtocolError) as error:
            raise JournalCorrupt(f"message cannot be decoded: {error}", file=path, offset=offset) from error

    def _file(self, number: int, epoch: int) -> File:
        file = self._files.pop(number, None)
        if file is None:
            file = self._disk.open(f"{self._directory}/{segment_name(number, epoch)}", read_only=True)
            if len(self._files) >= OPEN_FILES_MAX:
                self._files.pop(next(iter(self._files))).close()
        # last in the dict is the most recently used
        self._files[number] = file
        return file

    def forget(self, number: int) -> None:
        """The segment is being removed."""
        file = self._files.pop(number, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all."""
        for file in self._files.values():
            file.close()
        self._files.clear()
