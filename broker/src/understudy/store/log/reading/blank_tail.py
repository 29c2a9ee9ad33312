"""Check whether a segment has no record from an offset on: nearly always true after the end of the log.

The bytes there are zeros of blocks that were never written, or those of an earlier use of the file (ADR 0175). Where
the file system reports unwritten extents, they are not read; other extents are read in pieces and compared with zeros.
Only where other bytes are found are records of the segment looked for.

Not here: the consequences of records (``end``, ``damage``).
"""

from __future__ import annotations

from typing import Final

from understudy.ports import DiskReader, FileReader
from understudy.store.log.reading.replay import unfinished_bytes
from understudy.store.log.segment import parse_name, seed_of

#: Bytes read and compared at a time.
_PIECE_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_PIECE_BYTES)


class BlankTails:
    """Looks at each file and offset once, until ``forget``. Only while no other process writes the files."""

    def __init__(self, disk: DiskReader) -> None:
        """Nothing is read yet."""
        self._disk = disk
        self._known: dict[tuple[str, int], bool] = {}

    def forget(self, disk: DiskReader | None = None) -> None:
        """Called when the files may have changed. They are looked at by ``disk`` from now on, if one is given."""
        self._disk = disk or self._disk
        self._known.clear()

    def is_blank(self, path: str, offset: int, above: int) -> bool:
        """Whether a segment has no record, whole or begun, from the offset on.

        Args:
            path: Absolute path of the segment.
            offset: Where the first record may be.
            above: Sequence that all records there exceed; 0 if it is not known.

        Raises:
            FileNotFoundError: there is no such file.
            DiskFailed: it cannot be read.
        """
        key = (path, offset)
        if key not in self._known:
            file = self._disk.open(path, read_only=True)
            try:
                self._known[key] = self._is_zero(file, offset) or self._has_no_record(file, path, offset, above)
            finally:
                file.close()
        return self._known[key]

    @staticmethod
    def _is_zero(file: FileReader, offset: int) -> bool:
        # all ranges are asked for before any read: a file system may report cached blocks as written
        for begin, end in file.data_ranges(offset):
            for at in range(begin, end, _PIECE_BYTES):
                data = file.read(at, min(_PIECE_BYTES, end - at))
                if data != (_ZEROS if len(data) == _PIECE_BYTES else bytes(len(data))):
                    return False
        return True

    @staticmethod
    def _has_no_record(file: FileReader, path: str, offset: int, above: int) -> bool:
        number, epoch, _ = parse_name(path.rpartition("/")[2]) or (0, 0, False)
        data = file.read(offset, max(file.size() - offset, 0))
        return not unfinished_bytes(data, offset, seed_of(number, epoch), above=above)
