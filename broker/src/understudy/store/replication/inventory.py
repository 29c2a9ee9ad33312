"""The files of a store with their lengths and hashes.

All calls block and are made in small steps: each item of the generators is a number of bytes that were read, or a
result, so a caller can interleave other work and stop at any item.

Not here: which files belong to a store (``store_files``), what follows from a difference (``copy_source``).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from hashlib import blake2b

from understudy.errors import JournalCorrupt, LimitExceeded, StoreVersionUnsupported
from understudy.limits import COPY_FILES_MAX, COPY_PIECE_BYTES_MAX
from understudy.ports import Disk, File, FileReader
from understudy.store.log.reading.replay import read_frames
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, read_header, read_seal, seed_of
from understudy.store.replication.copy_messages import HASH_BYTES, InventoryFile
from understudy.store.replication.store_files import StoreDirectories, is_segment, list_store
from understudy.store.snapshots.reserve import RESERVE_NAME


def has_seal(file: FileReader, name: str) -> bool:
    """Whether the segment ends with a valid seal: its bytes do not change any more."""
    number, epoch, _ = parse_name(name) or (0, 0, False)
    try:
        return read_seal(file, read_header(file, number, epoch)) is not None
    except (JournalCorrupt, StoreVersionUnsupported):
        return False


def data_length(file: File, name: str) -> Generator[int, None, int]:
    """Bytes of a segment that its records fill: all if it is sealed, else up to the last valid record."""
    number, epoch, _ = parse_name(name) or (0, 0, False)
    try:
        header = read_header(file, number, epoch)
    except (JournalCorrupt, StoreVersionUnsupported):
        return 0
    if read_seal(file, header) is not None:
        return file.size()
    end, reported = HEADER_BLOCK_BYTES, HEADER_BLOCK_BYTES
    for _, raw in read_frames(file, seed_of(number, epoch)):
        end += len(raw)
        if end - reported >= COPY_PIECE_BYTES_MAX:
            yield end - reported
            reported = end
    return end


def hash_of(file: FileReader, length: int) -> Generator[int, None, bytes | None]:
    """The hash of the first bytes of a file; None if it is shorter."""
    digest = blake2b(digest_size=HASH_BYTES)
    offset = 0
    while offset < length:
        data = file.read(offset, min(COPY_PIECE_BYTES_MAX, length - offset))
        if not data:
            return None
        digest.update(data)
        offset += len(data)
        yield len(data)
    return digest.digest()


def take_inventory(disk: Disk, directories: StoreDirectories) -> Generator[int | InventoryFile, None, None]:
    """The files of a store that nothing writes to, the reserve without content.

    Raises:
        DiskFailed: a file cannot be read.
        LimitExceeded: there are more than ``COPY_FILES_MAX`` files.
    """
    names = list_store(disk, directories)
    if len(names) > COPY_FILES_MAX:
        raise LimitExceeded(f"{len(names)} files in {directories.log} and {directories.bodies}")
    for directory, name in names:
        with suppress(FileNotFoundError):
            file = disk.open(directories.path(directory, name), read_only=True)
            try:
                if is_segment(directory, name):
                    length = yield from data_length(file, name)
                else:
                    length = 0 if name == RESERVE_NAME else file.size()
                digest = yield from hash_of(file, length)
            finally:
                file.close()
            if digest is not None:
                yield InventoryFile(directory, name, length, digest)
