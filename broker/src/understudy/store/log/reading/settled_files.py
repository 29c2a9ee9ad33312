"""The files of a log while no other process changes them: each is listed, opened and read once.

To decide where a log ends (``Follower.finish``), the same few files are asked several questions: is the last batch
still there, which segments form the log, does anything follow, was a segment allocated whole. On a network file system
each file that is opened costs several requests and each read one or two. So files stay open between the questions, and
small pieces that were read are kept.

A file is opened after the lock of the store was had, so a network file system asks the server for changes
since a passive node read it.

Not here: what the looks decide (``follower``, ``end``, ``damage``).
"""

from __future__ import annotations

import posixpath
from collections import deque
from contextlib import suppress
from typing import Final

from understudy.errors import StoreError
from understudy.ports import DiskReader, FileReader

#: Least bytes read at a time: the header of a segment and the beginning of its records lie side by side.
PIECE_BYTES: Final = 8 * 1024
#: Larger pieces are not kept.
_KEPT_BYTES_MAX: Final = 64 * 1024
#: Pieces kept of one file.
_PIECES_MAX: Final = 4
#: Files that stay open although no caller uses them. A take-over needs the first segment of the epoch, the open one and
#: those prepared ahead (``preallocation.AHEAD_MAX``).
_FILES_MAX: Final = 8


class SettledFiles:
    """Implements ``ports.DiskReader``. ``forget`` ends it; a file that is in use then is closed by its last user."""

    def __init__(self, disk: DiskReader) -> None:
        """Nothing is looked up yet.

        Args:
            disk: Where the files are.
        """
        self._disk = disk
        self._names: dict[str, list[str]] = {}
        self._files: dict[str, _SettledFile] = {}
        """Files by path; the one that was opened last is last."""

    def open(self, path: str, *, read_only: bool = True) -> FileReader:
        """The file at a path, from its beginning; closing it keeps it open for the next caller.

        Raises:
            FileNotFoundError: there is none.
            DiskFailed: it cannot be opened.
        """
        assert read_only, f"{path} is not opened for writing here"
        file = self._files.pop(path, None)
        if file is None:
            self._make_room()
            file = _SettledFile(self._disk.open(path, read_only=True))
        self._files[path] = file
        file.users += 1
        return file

    def list(self, directory: str) -> list[str]:
        """Names in a directory, as they were when it was listed first; empty if it does not exist."""
        parent, name = posixpath.split(directory)
        if name not in self._names.get(parent, (name,)):
            return []
        if directory not in self._names:
            self._names[directory] = self._disk.list(directory)
        return self._names[directory]

    def forget(self) -> None:
        """The directory has changed after all: look up everything anew. Files in use stay as they are."""
        self._names.clear()
        files, self._files = self._files, {}
        for file in files.values():
            file.let_go()

    def _make_room(self) -> None:
        unused = [path for path, file in self._files.items() if not file.users]
        for path in unused[: max(len(self._files) - _FILES_MAX + 1, 0)]:
            self._files.pop(path).let_go()


class _SettledFile:
    """An open file and the bytes read from it."""

    __slots__ = ("_file", "_kept", "_pieces", "_size", "path", "users")

    def __init__(self, file: FileReader) -> None:
        self.path = file.path
        self.users = 0
        self._kept = True
        self._file = file
        self._size: int | None = None
        self._pieces: deque[tuple[int, bytes, bool]] = deque(maxlen=_PIECES_MAX)
        """Offset, bytes, and whether the file ends with them."""

    def size(self) -> int:
        if self._size is None:
            self._size = self._file.size()
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        for begin, data, is_end in self._pieces:
            if begin <= offset and (is_end or offset + length <= begin + len(data)):
                return data[offset - begin : offset - begin + length]
        wanted = max(length, PIECE_BYTES)
        data = self._file.read(offset, wanted)
        if len(data) <= _KEPT_BYTES_MAX:
            self._pieces.append((offset, data, len(data) < wanted))
        return data[:length]

    def forget_cached(self, offset: int, length: int) -> None:
        self._pieces.clear()
        self._file.forget_cached(offset, length)

    def data_ranges(self, offset: int) -> list[tuple[int, int]]:
        return self._file.data_ranges(offset)

    def close(self) -> None:
        """Count one caller less; the last one closes the file."""
        self.users -= 1
        self._close_unused()

    def let_go(self) -> None:
        """Keep the file no longer for later callers."""
        self._kept = False
        self._close_unused()

    def _close_unused(self) -> None:
        if not self._kept and self.users <= 0:
            with suppress(StoreError):
                self._file.close()
