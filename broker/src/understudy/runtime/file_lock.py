"""Locks of whole files, as the operating system or the file server keeps them.

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
from understudy.runtime.descriptors import Descriptors

# absent from the fcntl module on Python 3.11; the number of Linux, the same on every architecture
_F_OFD_SETLK: Final = 37
#: ``struct flock`` with 64-bit offsets: type, whence, start, length, pid.
_FLOCK: Final = struct.Struct("hhqqi4x")

assert sys.platform == "linux"


#: How often a lock that another holder has is asked for before the path is compared with the open file.
_TRIES_PER_LOOK: Final = 30


class RealFileLock:
    """An exclusive lock on one file; the file is created if it is missing and never removed.

    A lock that is not free is asked for again with the descriptor of the last try: on a network file system that is one
    request instead of an open, a lock and a close. Every ``_TRIES_PER_LOOK`` tries the path is looked up, so that a
    file that was replaced is noticed.
    """

    def __init__(self, path: str, descriptors: Descriptors | None = None) -> None:
        """Nothing is opened or locked yet.

        Args:
            path: The file.
            descriptors: Its reserve is used when the file cannot be opened otherwise.
        """
        self.path = path
        self._descriptors = descriptors
        self._descriptor = -1
        """Of the lock that is held; -1 when none is."""
        self._waiting = -1
        """Of the last try that found the lock taken."""
        self._waiting_file: tuple[int, int] | None = None
        """Its device and inode."""
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
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

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
        """Whether the file that is locked has the path."""
        try:
            mine, there = os.fstat(self._descriptor), os.stat(self.path)
        except OSError:
            return False
        return _identity(mine) == _identity(there) and mine.st_nlink > 0

    def verify(self) -> bool:
        if self._descriptor < 0 or not self._is_at_path():
            return False
        try:
            # taking it again changes nothing while it is ours and fails when another process has it
            fcntl.fcntl(self._descriptor, _F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError:
            return False
        return True


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
