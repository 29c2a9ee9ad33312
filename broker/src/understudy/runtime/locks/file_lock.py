"""Locks of whole files, kept by the operating system or the file server.

Implements ``ports.FileLock`` with Linux *open file description* locks (``F_OFD_SETLK``): they
belong to this descriptor, so another lock object of the same process conflicts like one of another
process, and closing an unrelated descriptor of the file does not drop them. On NFSv4 they become
locks of the server, as POSIX locks do.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from typing import Final

from understudy.errors import DiskFailed
from understudy.runtime.base.created_modes import created_file_mode
from understudy.runtime.process.descriptors import Descriptors

# absent from the fcntl module on Python 3.11; the number of Linux, the same on every architecture
_F_OFD_SETLK: Final = 37
#: ``struct flock`` with 64-bit offsets: type, whence, start, length, pid.
_FLOCK: Final = struct.Struct("hhqqi4x")

assert sys.platform == "linux"


#: Number of attempts on a lock held by another node before the path is compared with the open file.
_TRIES_PER_LOOK: Final = 30


class RealFileLock:
    """An exclusive lock on one file, which is created if missing and never removed. Implements ``ports.FileLock``.

    A lock that is not free is requested again with the descriptor of the last attempt: on a network file system that is
    one request instead of an open, a lock and a close. After every ``_TRIES_PER_LOOK`` attempts the path is looked up,
    to notice a replaced file.
    """

    def __init__(self, path: str, descriptors: Descriptors | None = None) -> None:
        """Opens and locks nothing yet.

        Args:
            path: The file.
            descriptors: Descriptors whose reserve is used if no other descriptor is free.
        """
        self.path = path
        self._descriptors = descriptors
        self._descriptor = -1
        """Descriptor of the held lock; -1 if it is not held."""
        self._waiting = -1
        """Descriptor of the last attempt that failed."""
        self._waiting_file: tuple[int, int] | None = None
        """Device and inode of the open file."""
        self._tries = 0

    def try_acquire(self) -> bool:
        if self._descriptor >= 0:
            return True
        descriptor, self._waiting = self._waiting, -1
        if descriptor >= 0 and self._tries >= _TRIES_PER_LOOK:
            self._tries = 0
            if self._file_at_path() != self._waiting_file:
                os.close(descriptor)
                descriptor = -1
        if descriptor < 0:
            self._tries, self._waiting_file = 0, None
            try:
                descriptor = self._open() if self._descriptors is None else self._descriptors.with_reserve(self._open)
            except OSError as error:
                raise DiskFailed(f"cannot open lock file {self.path}: {error.strerror}") from error
        self._tries += 1
        try:
            if self._waiting_file is None:
                self._waiting_file = _identity(os.fstat(descriptor))
            fcntl.fcntl(descriptor, _F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                self._waiting = descriptor
                return False
            os.close(descriptor)
            raise DiskFailed(f"cannot lock {self.path}: {error.strerror}") from error
        self._descriptor = descriptor
        if not self._is_at_path():
            # replaced between open and lock: the lock is on a file that no node uses
            self.release()
            return False
        return True

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.path, flags)
        except FileNotFoundError:
            # only a new file needs a mode, which costs a request to a network file system
            return os.open(self.path, flags | os.O_CREAT, created_file_mode(os.path.dirname(self.path)))

    def _file_at_path(self) -> tuple[int, int] | None:
        """Device and inode; None if the path cannot be looked up."""
        try:
            return _identity(os.stat(self.path, follow_symlinks=False))
        except OSError:
            return None

    def release(self) -> None:
        descriptors, self._descriptor, self._waiting = (self._descriptor, self._waiting), -1, -1
        for descriptor in descriptors:
            try:
                if descriptor >= 0:
                    os.close(descriptor)
            except OSError as error:
                raise DiskFailed(f"cannot release lock {self.path}: {error.strerror}") from error

    def _is_at_path(self) -> bool:
        """Whether the path leads to the locked file."""
        try:
            mine, there = os.fstat(self._descriptor), os.stat(self.path)
        except OSError:
            return False
        return _identity(mine) == _identity(there) and mine.st_nlink > 0

    def verify(self) -> bool:
        if self._descriptor < 0 or not self._is_at_path():
            return False
        try:
            # acquiring it again has no effect while we hold it, and fails if another process holds it
            fcntl.fcntl(self._descriptor, _F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError:
            return False
        return True


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
