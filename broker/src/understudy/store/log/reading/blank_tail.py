"""Check whether a file holds only zeros from an offset on: nearly always true after the end of the log.

Segments are allocated whole, so the bytes after the end of the log are mostly blocks that were never written. Where
the file system reports unwritten extents, they are not read; other extents are read in pieces and compared with zeros.

Not here: the consequences of other bytes than zeros (``end``, ``damage``).
"""

from __future__ import annotations

from typing import Final

from understudy.ports import DiskReader

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

    def is_blank(self, path: str, offset: int) -> bool:
        """Whether the file holds nothing but zeros from the offset on.

        Raises:
            FileNotFoundError: there is no such file.
            DiskFailed: it cannot be read.
        """
        key = (path, offset)
        if key not in self._known:
            self._known[key] = self._look(path, offset)
        return self._known[key]

    def _look(self, path: str, offset: int) -> bool:
        file = self._disk.open(path, read_only=True)
        try:
            # all ranges are asked for before any read: a file system may report cached blocks as written
            for begin, end in file.data_ranges(offset):
                for at in range(begin, end, _PIECE_BYTES):
                    data = file.read(at, min(_PIECE_BYTES, end - at))
                    if data != (_ZEROS if len(data) == _PIECE_BYTES else bytes(len(data))):
                        return False
            return True
        finally:
            file.close()
