"""The condition of the files of a store, for a copy and for a scrubber: whether they fit their checksums.

All calls block and are made in small steps, as those of ``inventory``.

Not here: the checks (``store.file_checks``), what follows from damage (``store.repair``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import suppress
from hashlib import blake2b

from understudy.errors import DiskFailed
from understudy.message import LargeBody
from understudy.ports import FileReader
from understudy.store.file_checks import BodyChecksums, Condition, ends_with_seal, read_pieces, trailer_of
from understudy.store.log.records import HEADER_BYTES
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name
from understudy.store.repair import Place, Repair, check_of, repair_file
from understudy.store.replication.copy_messages import HASH_BYTES, Directory
from understudy.store.replication.store_files import StoreDirectories, is_entry, is_segment, is_unfinished
from understudy.store.snapshots.snapshot import parse_snapshot_name

Key = tuple[Directory, str]


def is_settled(key: Key, *, complete: bool) -> bool:
    """Whether a file has its checksum and keeps its bytes: a snapshot, a body, a sealed segment.

    Args:
        key: The file.
        complete: Whether the seal of the segment is there.
    """
    if is_unfinished(*key) or is_entry(*key):
        return False
    if key[0] is Directory.BODIES or parse_snapshot_name(key[1]) is not None:
        return True
    return complete and is_segment(*key)


def body_id(key: Key) -> int | None:
    """Id of the file of a body; None for other files."""
    return int(key[1].partition(".")[0]) if key[0] is Directory.BODIES else None


class FileConditions:
    """Looks at files of one store; knows the checksums of bodies from the records of the log."""

    def __init__(
        self, directories: StoreDirectories, completed: Callable[[str], tuple[int, int] | None] = lambda name: None
    ) -> None:
        """
        Args:
            completed: Size and crc of a body of that name that was completed not long ago (``Applier.checksum_of``).
        """
        self._completed = completed
        self._directories = directories
        self._checksums = BodyChecksums()
        self.refuses: Callable[[Key], bool] = lambda key: False
        """Whether a copy ends because of a damaged file."""
        self.learned_in = -1
        """Pass of a copy in which the owner called ``learn`` last."""

    def learn(self, positions: Mapping[str, int], names: Collection[Key]) -> Generator[int, None, None]:
        """Read the checksums of bodies from the segments, as far as they were not read.

        Args:
            positions: Ends of segments that are being written.
            names: Files of the store.
        """
        wanted = {file_id for each in names if (file_id := body_id(each)) is not None}
        for each in names if wanted else ():
            if not is_segment(*each):
                continue
            with suppress(FileNotFoundError):
                file = self._directories.disk.open(self._directories.path(*each), read_only=True)
                try:
                    end = positions.get(each[1])
                    yield from self._checksums.learn(file, each[1], file.size() if end is None else end, wanted)
                except DiskFailed:
                    # a body whose record cannot be read has no known checksum
                    continue
                finally:
                    file.close()

    def look(self, file: FileReader, key: Key, *, past_cache: bool) -> Generator[int, None, tuple[Condition, bytes]]:
        """Compare a settled file with its checksum; its condition, and the hash of its bytes."""
        large, size_bytes = self.large(key), file.size()
        digest = blake2b(digest_size=HASH_BYTES)
        known = large is not None or key[0] is Directory.LOG
        if past_cache:
            file.forget_cached(0, size_bytes)
        check = check_of(self._place(key), size_bytes, trailer_of(file), large) if known else None
        try:
            for data in read_pieces(file, size_bytes, past_cache=past_cache):
                digest.update(data)
                if check is not None:
                    check.feed(data)
                yield len(data)
        except DiskFailed:
            return Condition.DAMAGED, b""
        if check is None:
            return Condition.UNKNOWN, digest.digest()
        return Condition.FITS if check.fits else Condition.DAMAGED, digest.digest()

    def is_sealed(self, file: FileReader, key: Key, names: Collection[Key]) -> bool:
        """Whether a segment has a seal, valid or not, or must have one, because a later one of its epoch has records.

        Args:
            file: The segment, open, which is not being written.
            names: Files of the store.
        """
        if ends_with_seal(trailer_of(file)):
            return True
        number, epoch, _ = parse_name(key[1]) or (0, 0, False)
        for directory, name in names:
            parsed = parse_name(name) if is_segment(directory, name) else None
            if parsed is not None and parsed[1] == epoch and parsed[0] > number and self._has_records(name):
                return True
        return False

    def _has_records(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            file = self._directories.disk.open(self._directories.path(Directory.LOG, name), read_only=True)
            try:
                return bool(file.read(HEADER_BLOCK_BYTES, HEADER_BYTES).strip(b"\0"))
            finally:
                file.close()
        return False

    def repair(self, key: Key) -> Repair:
        """The repair of a settled file."""
        return repair_file(self._directories.disk, self._place(key), self.large(key))

    def _place(self, key: Key) -> Place:
        return Place(*key, self._directories.path(*key))

    def large(self, key: Key) -> LargeBody | None:
        """Size and checksum of a body, if they are known."""
        file_id = body_id(key)
        if file_id is None:
            return None
        completed = self._completed(key[1])
        return LargeBody(file_id, *completed) if completed is not None else self._checksums.of(file_id)
