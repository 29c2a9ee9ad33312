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


class RealFileLock:
    """An exclusive lock on one file; the file is created if it is missing and never removed."""

    def __init__(self, path: str, descriptors: Descriptors | None = None) -> None:
        """Nothing is opened or locked yet.

        Args:
            path: The file.
            descriptors: Its reserve is used when the file cannot be opened otherwise.
        """
        self.path = path
        self._descriptors = descriptors
        self._descriptor = -1

    def try_acquire(self) -> bool:
        if self._descriptor >= 0:
            return True
        try:
            descriptor = self._open() if self._descriptors is None else self._descriptors.with_reserve(self._open)
        except OSError as error:
            raise DiskFailed(f"cannot open lock file {self.path}: {error.strerror}") from error
        try:
            fcntl.fcntl(descriptor, _F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise DiskFailed(f"cannot lock {self.path}: {error.strerror}") from error
        self._descriptor = descriptor
        if not self.verify():
            # replaced between open and lock: what we hold is nobody's
            self.release()
            return False
        return True

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:
                raise DiskFailed(f"cannot release lock {self.path}: {error.strerror}") from error

    def verify(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            mine, there = os.fstat(self._descriptor), os.stat(self.path)
            if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino) or mine.st_nlink == 0:
                return False
            # taking it again changes nothing while it is ours and fails when somebody else has it
            fcntl.fcntl(self._descriptor, _F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError:
            return False
        return True
