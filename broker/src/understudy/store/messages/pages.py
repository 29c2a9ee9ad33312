"""Page files: what left memory and is not in the log, for one activation.

Two things go there: blocks of references of deep queues (``reference_block``) and the bodies of
messages that are not durable. A ``PageChain`` per address appends to files of ``page-size-bytes``;
a file goes when nothing in it is needed any more. Nothing is synced and nothing is read at a
start: after a crash the log says what there is, so what an earlier activation left is removed.

A record is a crc32, the encoding of the message (docs/build/journal-format.md, 10; 0 for references), and the bytes.
Its ``Location`` looks like one in the log, with a segment number from ``columns.PAGE_SEGMENT`` on.

A disk that refuses (full, broken) costs no message: ``store`` returns None, the messages that it was to
write stay in memory, and the limits of memory then hold producers back.

Not here: what decides that something leaves memory (``routing``).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from understudy.errors import DiskFailed, DiskFull, JournalCorrupt, RemoteProtocolError, StoreError
from understudy.kernel.log import crc32
from understudy.message import Message
from understudy.ports import Disk, File
from understudy.store.messages.columns import PAGE_SEGMENT
from understudy.store.messages.read_back import DECODERS
from understudy.store.messages.reference import Location, pack_location, unpack_location

log = logging.getLogger(__name__)

#: crc32 of the bytes with the encoding as its seed, and the encoding.
_HEAD: Final = struct.Struct("<IB")
#: Bytes collected before they are written.
_BUFFER_BYTES: Final = 64 * 1024
#: Page files kept open.
_OPEN_FILES_MAX: Final = 64
#: Files of earlier activations removed at a time, and the pause between, so that no client waits.
_REMOVED_AT_ONCE: Final = 4
REMOVE_PAUSE_MS: Final = 20
#: Time in ms after the activation until page files of earlier activations are searched for.
REMOVE_AFTER_MS: Final = 1_000
#: Smallest and largest page file.
_FILE_BYTES_MIN: Final = 64 * 1024
_FILE_BYTES_MAX: Final = 1024**3


class _PageFile:
    """One page file. ``uses`` counts its records that are still needed."""

    __slots__ = ("chain", "path", "size", "uses", "written")

    def __init__(self, path: str, chain: PageChain) -> None:
        self.path = path
        self.chain = chain
        self.size = 0
        self.written = 0
        self.uses = 0


class Pages:
    """All page files of one activation."""

    def __init__(self, disk: Disk, directory: str, epoch: int) -> None:
        """Begin without touching the disk, until bytes have to be stored.

        Args:
            disk: Where ``directory`` is.
            directory: Absolute path (paging-directory); both nodes of a pair may use the same.
            epoch: Epoch of this activation; files of others are not ours.
        """
        self._disk = disk
        self._directory = directory
        self._epoch = epoch
        self._number = 0
        self._files: dict[int, _PageFile] = {}
        self._open: dict[int, File] = {}
        self._chains: dict[int, PageChain] = {}
        """Chains by the number of the file that is being written."""
        self.stuck = False
        """Whether the disk refused the last write."""

    @property
    def file_count(self) -> int:
        """Page files in use."""
        return len(self._files)

    @property
    def size_bytes(self) -> int:
        """Bytes of the page files in use."""
        return sum(file.size for file in self._files.values())

    def chain(self, file_bytes: int) -> PageChain:
        """A new chain with files of about that size."""
        return PageChain(self, _within_limits(file_bytes))

    # --- of earlier activations -------------------------------------------------------------------

    def leftovers(self) -> list[str]:
        """Files of earlier activations."""
        mine = f"page-{self._epoch:010d}-"
        try:
            names = self._disk.list(self._directory)
        except StoreError as error:
            log.warning("page files cannot be listed", extra={"path": self._directory, "reason": str(error)})
            return []
        return [f"{self._directory}/{name}" for name in names if name.startswith("page-") and name < mine]

    def remove_leftovers(self, later: Callable[[int, Callable[[], None]], object]) -> None:
        """Remove left-over files a few at a time, once the first clients are served; ``later`` calls after some
        milliseconds."""

        def begin() -> None:
            paths = self.leftovers()
            if paths:
                log.info("page files of earlier activations are removed", extra={"count": len(paths)})
                self._remove_some(paths, later)

        later(REMOVE_AFTER_MS, begin)

    def _remove_some(self, paths: list[str], later: Callable[[int, Callable[[], None]], object]) -> None:
        for path in paths[:_REMOVED_AT_ONCE]:
            with suppress(StoreError, FileNotFoundError):
                self._disk.remove(path)
        rest = paths[_REMOVED_AT_ONCE:]
        if rest:
            later(REMOVE_PAUSE_MS, lambda: self._remove_some(rest, later))

    # --- records ----------------------------------------------------------------------------------

    def read_raw(self, number: int, offset: int, length: int) -> bytes:
        """Bytes of a page file as they are; raises ``DiskFailed``."""
        file = self._files[number]
        if offset + length > file.written:
            chain = self._chains[number]
            if offset >= file.written:
                start = offset - file.written
                return bytes(chain.buffer[start : start + length])
            length = file.written - offset
        return self._file(number).read(offset, length)

    def check(self, location: Location, raw: bytes | memoryview) -> tuple[int, bytes]:
        """The encoding and the bytes of a record that was read; raises ``JournalCorrupt``."""
        number, offset, length = unpack_location(location)
        data = bytes(raw[_HEAD.size :])
        if len(raw) == length >= _HEAD.size:
            crc, encoding = _HEAD.unpack_from(raw)
            if crc32(data, encoding) == crc:
                return encoding, data
        raise JournalCorrupt("paged bytes are damaged", file=self._path(number), offset=offset)

    def decode(self, location: Location, raw: bytes | memoryview) -> Message:
        """The message of a record that was read, not as a large one: a page does not record that.

        Raises:
            JournalCorrupt: the bytes differ from those stored, or are no message in an encoding that is known.
        """
        encoding, data = self.check(location, raw)
        try:
            return DECODERS[encoding][0](data)
        except (KeyError, ValueError, RemoteProtocolError) as error:
            number, offset, _ = unpack_location(location)
            raise JournalCorrupt(
                f"message of encoding {encoding} cannot be decoded: {error}", file=self._path(number), offset=offset
            ) from error

    def _path(self, number: int) -> str:
        file = self._files.get(number)
        return file.path if file is not None else self._directory

    def read(self, location: Location) -> bytes:
        """Read the bytes stored at a location.

        Raises:
            JournalCorrupt: the bytes differ from those stored.
            DiskFailed: it cannot be read.
        """
        return self.check(location, self.read_raw(*unpack_location(location)))[1]

    def release(self, location: Location) -> None:
        """End one use of a record. The page file is removed with the last use of its last record."""
        number = location >> 64
        file = self._files[number]
        file.uses -= 1
        if not file.uses and number not in self._chains:
            self._remove(number)

    def close(self) -> None:
        """Close the files; the next activation removes them."""
        for file in self._open.values():
            with suppress(StoreError):
                file.close()
        self._open.clear()

    # --- files ------------------------------------------------------------------------------------

    def begin_file(self, chain: PageChain) -> int:
        """A new file for a chain; its number."""
        # at each start: the check costs little, and an operator may have removed the directory
        self._disk.make_directory(self._directory)
        self._number += 1
        number = PAGE_SEGMENT + self._number
        path = f"{self._directory}/page-{self._epoch:010d}-{self._number:012d}.dat"
        self._keep_open(number, self._disk.open(path, create=True))
        self._files[number] = _PageFile(path, chain)
        chain.file_count += 1
        self._chains[number] = chain
        return number

    def end_file(self, number: int) -> None:
        """Nothing is added any more."""
        self._chains.pop(number, None)
        if not self._files[number].uses:
            self._remove(number)

    def page_file(self, number: int) -> _PageFile:
        """The file of that number; raises ``KeyError`` for an unknown number."""
        return self._files[number]

    def write(self, number: int, data: bytes | bytearray) -> None:
        """Append to a file; raises ``DiskFull`` or ``DiskFailed``."""
        file = self._files[number]
        self._file(number).write(file.written, (bytes(data),))
        file.written += len(data)

    def _file(self, number: int) -> File:
        found = self._open.pop(number, None)
        if found is None:
            path = self._files[number].path
            try:
                found = self._disk.open(path)
            except FileNotFoundError as error:
                raise DiskFailed(f"page file {path} is gone") from error
            return self._keep_open(number, found)
        self._open[number] = found
        return found

    def _keep_open(self, number: int, file: File) -> File:
        if len(self._open) >= _OPEN_FILES_MAX:
            # first in the dict is the least recently used
            oldest = next(iter(self._open))
            with suppress(StoreError):
                self._open.pop(oldest).close()
        self._open[number] = file
        return file

    def _remove(self, number: int) -> None:
        file = self._files.pop(number)
        file.chain.file_count -= 1
        opened = self._open.pop(number, None)
        with suppress(StoreError, FileNotFoundError):
            if opened is not None:
                opened.close()
            self._disk.remove(file.path)


def _within_limits(file_bytes: int) -> int:
    return min(max(file_bytes, _FILE_BYTES_MIN), _FILE_BYTES_MAX)


class PageChain:
    """Page files of one address, for bodies and references that leave its memory. Implements
    ``reference_block.BlockPages``."""

    __slots__ = ("_file_bytes", "_number", "_pages", "buffer", "file_count")

    def __init__(self, pages: Pages, file_bytes: int) -> None:
        self._pages = pages
        self._file_bytes = file_bytes
        self._number = 0
        """Number of the file that is being written; 0 for none."""
        self.buffer = bytearray()
        """Stored and not written yet: the end of that file."""
        self.file_count = 0
        """Files of this chain that are still needed."""

    def store(self, data: bytes, uses: int = 1, encoding: int = 0) -> Location | None:
        """Keep bytes until they were released ``uses`` times; None when the disk takes nothing. ``encoding``: of a
        message (``Message.encoding``).
        """
        pages = self._pages
        try:
            if len(self.buffer) >= _BUFFER_BYTES:
                self._write()
            if not self._number:
                self._number = pages.begin_file(self)
        except (DiskFull, DiskFailed) as error:
            if not pages.stuck:
                pages.stuck = True
                log.warning("pages cannot be written, messages stay in memory", extra={"reason": str(error)})
            return None
        pages.stuck = False
        file = pages.page_file(self._number)
        location = pack_location(self._number, file.size, _HEAD.size + len(data))
        self.buffer += _HEAD.pack(crc32(data, encoding), encoding)
        self.buffer += data
        file.size += _HEAD.size + len(data)
        file.uses += uses
        return location

    def resize(self, file_bytes: int) -> None:
        """Bytes of a page file from now on (page-size-bytes)."""
        self._file_bytes = _within_limits(file_bytes)

    def _write(self) -> None:
        pages, number = self._pages, self._number
        pages.write(number, self.buffer)
        self.buffer.clear()
        if pages.page_file(number).size >= self._file_bytes:
            self._number = 0
            pages.end_file(number)

    def read(self, location: Location) -> bytes:
        """Read a body, like ``Pages.read``."""
        return self._pages.read(location)

    def release(self, location: Location) -> None:
        """Release a location, like ``Pages.release``."""
        self._pages.release(location)

    def close(self) -> None:
        """Nothing is stored any more; the last file goes with its last record."""
        number = self._number
        if not number:
            return
        if self._pages.page_file(number).uses:
            with suppress(DiskFull, DiskFailed):
                self._write()
        else:
            self.buffer.clear()
        if self._number and not self.buffer:
            self._number = 0
            self._pages.end_file(number)
