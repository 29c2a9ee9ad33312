"""Reading messages back from the log while it is being written.

Not here: which messages (``routing``), how neighbours are read together (``read_ahead``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DescriptorsExhausted, DiskFailed, JournalCorrupt, RemoteProtocolError, SegmentMissing
from understudy.kernel.log import crc32
from understudy.message import Encoding, LargeMessage, Message, large_body_of
from understudy.ports import Disk, File
from understudy.store.log.journal import Journal
from understudy.store.log.records import ENCODING_SHIFT, MESSAGE_HEADER, MESSAGE_HEADER_BYTES, MESSAGE_LARGE, RecordType
from understudy.store.log.segment import seed_of, segment_name
from understudy.store.messages.read_ahead import RUN_BYTES, RunReader
from understudy.store.messages.reference import Location, unpack_location
from understudy.store.messages.stored_runs import StoredRuns
from understudy.store.snapshots.relocation import Relocations

log = logging.getLogger(__name__)

#: Segments kept open for reading messages back.
_OPEN_FILES_MAX: Final = 64
#: Decoders of messages and of large messages, by encoding.
DECODERS: Final[dict[int, tuple[Callable[[bytes], Message], Callable[[bytes], Message]]]] = {
    Encoding.CORE: (partial(Message.decode, trusted=True), partial(LargeMessage.decode, trusted=True)),
}
_MESSAGES: Final = (int(RecordType.MESSAGE_ADD), int(RecordType.MESSAGE_MOVE))


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a record at this moment, and a function that any thread may call for its bytes."""

    disk: Disk
    path: str
    number: int
    epoch: int
    offset: int
    length: int

    def read(self) -> bytes:
        """Read the bytes of the record without checking them; raises DiskFailed, or FileNotFoundError if the segment
        was removed, also meanwhile.
        """
        file = self.disk.open(self.path, read_only=True)
        try:
            data = file.read(self.offset, self.length)
        finally:
            file.close()
        if not self.disk.exists(self.path):
            # a later segment may be made of the file already
            raise FileNotFoundError(self.path)
        return data


class ReadBack:
    """Messages of one log, read by their location."""

    def __init__(
        self, disk: Disk, directory: str, journal: Journal, epochs: dict[int, int], relocations: Relocations
    ) -> None:
        """Args:
        disk: Where the segments are.
        directory: Absolute path of the store.
        journal: Holds records that are not written yet.
        epochs: Segment number to epoch, kept up to date by the owner.
        relocations: Knows where messages lie whose segment is gone.
        """
        self._disk = disk
        self._directory = directory
        self._journal = journal
        self._epochs = epochs
        self._relocations = relocations
        self._files: dict[int, File] = {}

    def read(self, location: Location) -> Message:
        """The message of a record, from memory while it is not written yet, else from its segment.

        Raises:
            JournalCorrupt: the bytes there are not that record any more.
            DiskFailed: they cannot be read.
            SegmentMissing: their segment was removed, and the node has to end.
        """
        location = self.resolve(location)
        try:
            return self._decode(location, self._fetch(*unpack_location(location)))
        except (SegmentMissing, DescriptorsExhausted):
            raise
        except (JournalCorrupt, DiskFailed):
            return self._read_again(location)

    def _read_again(self, location: Location) -> Message:
        """The message of a record that read wrong: once more, past the cache of this machine. Raises as ``read``."""
        number, offset, length = unpack_location(location)
        file = self._file(number)
        file.forget_cached(offset, length)
        message = self._decode(location, file.read(offset, length))
        log.warning(
            "bytes of the log read wrong, and right at the second time",
            extra={"file": self._path(number, self._epochs[number]), "offset": offset, "bytes": length},
        )
        return message

    def place_of(self, location: Location) -> Place | None:
        """Present location of a record; None when its segment is not part of the log."""
        try:
            number, offset, length = unpack_location(self.resolve(location))
        except JournalCorrupt:
            return None
        epoch = self._epochs[number]
        return Place(self._disk, self._path(number, epoch), number, epoch, offset, length)

    def resolve(self, location: Location) -> Location:
        """Present location of a record in an existing segment, for a location of any earlier time.

        Raises:
            JournalCorrupt: the segment was dropped and nothing in it was live.
        """
        if location >> 64 in self._epochs:
            return location
        try:
            return self._relocations.resolve(location, self._epochs)
        except KeyError:
            number, offset, _ = unpack_location(location)
            raise JournalCorrupt(f"segment {number} was dropped", file=self._directory, offset=offset) from None

    def reader(self, run_bytes: int = RUN_BYTES, messages_max: int = -1) -> RunReader:
        """A reader of many; see ``RunReader``."""
        return RunReader(self._fetch, self._decode, run_bytes, messages_max, self.resolve, self._read_again)

    def stored_runs(self) -> StoredRuns:
        """Reader of messages that are delivered together; see ``StoredRuns``."""
        return StoredRuns(self._fetch, self.resolve, lambda number: seed_of(number, self._epochs[number]))

    def _fetch(self, number: int, offset: int, length: int) -> bytes:
        raw = self._journal.pending(number, offset, length)
        return self._file(number).read(offset, length) if raw is None else raw

    def _decode(self, location: Location, raw: bytes | memoryview) -> Message:
        number, offset, length = unpack_location(location)
        epoch = self._epochs[number]
        if len(raw) != length or length < MESSAGE_HEADER_BYTES:
            raise JournalCorrupt(f"record of {length} bytes cut off", file=self._path(number, epoch), offset=offset)
        crc, found, _, _, kind, _, _, _, _, _, _, _, _, flags, duplicate_bytes, count = MESSAGE_HEADER.unpack_from(raw)
        if crc32(raw[4:], seed_of(number, epoch)) != crc or found != length:
            raise JournalCorrupt("message is damaged", file=self._path(number, epoch), offset=offset)
        if kind not in _MESSAGES:
            raise JournalCorrupt(
                f"record of type {kind} where a message was", file=self._path(number, epoch), offset=offset
            )
        try:
            encoded = bytes(raw[MESSAGE_HEADER_BYTES + 8 * count + duplicate_bytes :])
            plain, large = DECODERS[flags >> ENCODING_SHIFT]
            if not flags & MESSAGE_LARGE:
                return plain(encoded)
            large_body_of(encoded)
            return large(encoded)
        except (KeyError, ValueError, RemoteProtocolError) as error:
            raise JournalCorrupt(
                f"message cannot be decoded: {error}", file=self._path(number, epoch), offset=offset
            ) from error

    def _path(self, number: int, epoch: int) -> str:
        return f"{self._directory}/{segment_name(number, epoch)}"

    def _file(self, number: int) -> File:
        file = self._files.pop(number, None)
        if file is None:
            path = self._path(number, self._epochs[number])
            try:
                file = self._disk.open(path, read_only=True)
            except FileNotFoundError as error:
                raise SegmentMissing(f"segment {path} was removed, perhaps by another node") from error
            if len(self._files) >= _OPEN_FILES_MAX:
                self._files.pop(next(iter(self._files))).close()
        # last in the dict is the most recently used
        self._files[number] = file
        return file

    def forget(self, number: int) -> None:
        """Called when the segment is being removed."""
        file = self._files.pop(number, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
