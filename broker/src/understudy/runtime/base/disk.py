"""Files on a real machine: positional I/O, allocation, fdatasync, directory syncs.

Implements ``ports.Disk`` and ``ports.File`` on Linux. ENOSPC and EDQUOT become ``DiskFull``, any
other error of a write, sync or lookup ``DiskFailed``; both name the path.

Only regular files are opened, and symbolic links are not followed: a user that can write to a directory of
the store must not make the node write elsewhere, or wait for a pipe. Directories may be links.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, TypeVar

from understudy.errors import DiskFailed, DiskFull, StoreError
from understudy.ports import File, Space
from understudy.runtime.base.created_modes import created_file_mode, make_directories
from understudy.runtime.base.sync_threads import sync_together
from understudy.runtime.process.descriptors import Descriptors

_T = TypeVar("_T")

#: Flag of ``sync_file_range``: begin to write pages that are not being written, and wait for none.
_SYNC_FILE_RANGE_WRITE: Final = 2


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The function of the C library, which Python has no name for; None: there is none (it is one of Linux)."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is None:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]  # its types are set above


_SYNC_FILE_RANGE: Final = _sync_file_range()

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_ZEROS: Final = bytes(1024 * 1024)
#: Unit of the search for written parts of a file. Bytes.
_RANGES_MAX: Final = 64
_IOV_MAX: Final = min(os.sysconf("SC_IOV_MAX"), 1024)
#: Number of buffers above which one joined write costs less than an array of pointers.
_JOIN_BYTES_MAX: Final = 64 * 1024


@contextmanager
def _errors(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise _failure(error, doing, path) from error


def _failure(error: OSError, doing: str, path: str) -> StoreError:
    kind = DiskFull if error.errno in _FULL else DiskFailed
    return kind(f"{doing} {path}: {error.strerror or error}")


class RealFile:
    """An open file of ``RealDisk``. Implements ``ports.File``."""

    __slots__ = ("_descriptors", "_path", "descriptor")

    def __init__(self, path: str, descriptor: int, descriptors: Descriptors | None = None) -> None:
        self._path = path
        self.descriptor = descriptor
        """Descriptor of the open file; -1 if it is closed."""
        self._descriptors = descriptors

    @property
    def path(self) -> str:
        return self._path

    def failure(self, doing: str, number: int) -> StoreError:
        """Error of a call with this ``errno`` on the file, as the methods raise it."""
        return _failure(OSError(number, os.strerror(number)), doing, self._name())

    def _name(self) -> str:
        """Present name of the file: a segment is renamed once it is complete, while it is open."""
        try:
            return os.readlink(f"/proc/self/fd/{self.descriptor}")
        except OSError:
            return self._path

    def size(self) -> int:
        with _errors("cannot stat", self._path):
            return os.fstat(self.descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        with _errors("cannot read", self._path):
            data = os.pread(self.descriptor, length, offset)
            if len(data) == length or not data:
                return data
            parts = [data]
            got = len(data)
            # a short read is not always the end of the file (signals, network file systems)
            while got < length:
                data = os.pread(self.descriptor, length - got, offset + got)
                if not data:
                    break
                parts.append(data)
                got += len(data)
            return b"".join(parts)

    def forget_cached(self, offset: int, length: int) -> None:
        # whole pages only are dropped
        begin = offset // mmap.PAGESIZE * mmap.PAGESIZE
        end = -(-(offset + length) // mmap.PAGESIZE) * mmap.PAGESIZE
        with suppress(OSError):
            os.posix_fadvise(self.descriptor, begin, end - begin, os.POSIX_FADV_DONTNEED)

    def data_ranges(self, offset: int) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        with _errors("cannot seek in", self._path):
            while len(ranges) < _RANGES_MAX:
                # nothing else uses the position of the descriptor
                try:
                    begin = os.lseek(self.descriptor, offset, os.SEEK_DATA)
                    offset = os.lseek(self.descriptor, begin, os.SEEK_HOLE)
                except OSError as error:
                    if error.errno == errno.ENXIO:
                        return ranges
                    if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                        break
                    raise
                ranges.append((begin, offset))
        size = self.size()
        return [*ranges, (offset, size)] if offset < size else ranges

    def write(self, offset: int, buffers: Sequence[bytes]) -> None:
        # no context manager, because this runs once per batch
        try:
            if len(buffers) == 1:
                written = os.pwrite(self.descriptor, buffers[0], offset)
                if written == len(buffers[0]):
                    return
                buffers = (buffers[0][written:],)
                offset += written
            for start in range(0, len(buffers), _IOV_MAX):
                offset += self._write(offset, buffers[start : start + _IOV_MAX])
        except OSError as error:
            raise _failure(error, "cannot write", self._name()) from error

    def _write(self, offset: int, buffers: Sequence[bytes]) -> int:
        total = sum(map(len, buffers))
        if len(buffers) == 1 or total <= _JOIN_BYTES_MAX:
            written = 0
            view = memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        else:
            written = os.pwritev(self.descriptor, buffers, offset)
            if written == total:
                return total
            view = memoryview(b"".join(buffers))
        while written < total:
            count = os.pwrite(self.descriptor, view[written:], offset + written)
            if count == 0:
                raise OSError(errno.EIO, "nothing was written")
            written += count
        return total

    def allocate(self, length: int) -> None:
        with _errors("cannot allocate", self._path):
            try:
                os.posix_fallocate(self.descriptor, 0, length)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
                # the file system cannot reserve blocks: write zeros
                size = os.fstat(self.descriptor).st_size
                while size < length:
                    size += os.pwrite(self.descriptor, memoryview(_ZEROS)[: length - size], size)

    def truncate(self, length: int) -> None:
        with _errors("cannot truncate", self._path):
            os.ftruncate(self.descriptor, length)

    def links(self) -> int:
        with _errors("cannot stat", self._path):
            return os.fstat(self.descriptor).st_nlink

    def begin_sync(self, offset: int, length: int) -> None:
        if _SYNC_FILE_RANGE is not None:
            # an error of the call itself changes nothing, and one of the medium is reported by the sync
            _SYNC_FILE_RANGE(self.descriptor, offset, length, _SYNC_FILE_RANGE_WRITE)

    def sync(self) -> None:
        try:
            os.fdatasync(self.descriptor)
        except OSError as error:
            raise _failure(error, "cannot sync", self._name()) from error

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with _errors("cannot close", self._path):
                os.close(descriptor)
            if self._descriptors is not None and self._descriptors.low:
                self._descriptors.refill()


class RealDisk:
    """The file systems of the machine. Implements ``ports.Disk``.

    Args:
        descriptors: Descriptors whose reserve is used if no other descriptor is free; None: there is no reserve.
    """

    def __init__(self, descriptors: Descriptors | None = None) -> None:
        self._descriptors = descriptors

    def _opening(self, call: Callable[[], _T]) -> _T:
        return call() if self._descriptors is None else self._descriptors.with_reserve(call)

    def _place(self, path: str) -> tuple[str, int | None]:
        """The path to look up, and the descriptor of the directory to which it is relative; None: an absolute path."""
        return path, None

    def within(self, directory: str) -> AbstractContextManager[RealDisk]:
        return self._within(directory)

    @contextmanager
    def _within(self, directory: str) -> Iterator[RealDisk]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        descriptor = -1
        with suppress(FileNotFoundError), _errors("cannot open", directory):
            descriptor = self._opening(lambda: os.open(directory, flags))
        if descriptor < 0:
            yield self
            return
        try:
            yield _DirectoryDisk(directory, descriptor, self._descriptors)
        finally:
            os.close(descriptor)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        name, base = self._place(path)
        mode = created_file_mode(os.path.dirname(path) if base is None else base) if create else 0
        with _errors("cannot open", path):
            descriptor = self._opening(lambda: os.open(name, flags, mode, dir_fd=base))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise DiskFailed(f"cannot open {path}: it is not a regular file")
        return RealFile(path, descriptor, self._descriptors)

    def list(self, directory: str) -> list[str]:
        with _errors("cannot list", directory):
            try:
                return sorted(self._opening(lambda: os.listdir(directory)))
            except FileNotFoundError:
                return []

    def exists(self, path: str) -> bool:
        name, base = self._place(path)
        try:
            os.stat(name, dir_fd=base, follow_symlinks=False)
        except OSError:
            return False
        return True

    def make_directory(self, path: str) -> None:
        try:
            make_directories(path)
        except OSError as error:
            raise _failure(error, "cannot make", path) from error

    def rename(self, source: str, target: str) -> None:
        (old, old_base), (new, new_base) = self._place(source), self._place(target)
        with _errors("cannot rename", source):
            os.rename(old, new, src_dir_fd=old_base, dst_dir_fd=new_base)

    def link(self, source: str, target: str) -> None:
        (old, old_base), (new, new_base) = self._place(source), self._place(target)
        with _errors("cannot link", source):
            os.link(old, new, src_dir_fd=old_base, dst_dir_fd=new_base)

    def remove(self, path: str) -> None:
        name, base = self._place(path)
        with _errors("cannot remove", path):
            os.unlink(name, dir_fd=base)

    def remove_directory(self, path: str) -> None:
        name, base = self._place(path)
        with _errors("cannot remove", path), suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=base)

    def sync_directory(self, path: str) -> None:
        with _errors("cannot sync", path):
            descriptor = self._opening(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def sync_files(self, files: Sequence[File]) -> Sequence[StoreError | None]:
        return sync_together(files)

    def space(self, path: str) -> Space:
        with _errors("cannot ask for the free space of", path):
            return _space(os.statvfs(path))

    def modified_ns(self, path: str) -> int:
        name, base = self._place(path)
        with _errors("cannot stat", path):
            return os.stat(name, dir_fd=base, follow_symlinks=False).st_mtime_ns

    def touch(self, path: str) -> None:
        name, base = self._place(path)
        with _errors("cannot touch", path):
            os.utime(name, dir_fd=base, follow_symlinks=False)


class _DirectoryDisk(RealDisk):
    """``RealDisk.within``: files directly in one directory are looked up in its open descriptor."""

    def __init__(self, directory: str, descriptor: int, descriptors: Descriptors | None) -> None:
        super().__init__(descriptors)
        self._directory = directory
        self._descriptor = descriptor

    def _place(self, path: str) -> tuple[str, int | None]:
        directory, _, name = path.rpartition("/")
        return (name, self._descriptor) if directory == self._directory else (path, None)

    def list(self, directory: str) -> list[str]:
        if directory != self._directory:
            return super().list(directory)
        with _errors("cannot list", directory):
            return sorted(os.listdir(self._descriptor))

    def sync_directory(self, path: str) -> None:
        if path != self._directory:
            super().sync_directory(path)
            return
        with _errors("cannot sync", path):
            os.fsync(self._descriptor)

    def space(self, path: str) -> Space:
        if path != self._directory:
            return super().space(path)
        with _errors("cannot ask for the free space of", path):
            return _space(os.statvfs(self._descriptor))


def _space(found: os.statvfs_result) -> Space:
    # as df counts: blocks reserved for root are neither free for this process nor used
    usable_blocks = found.f_blocks - found.f_bfree + found.f_bavail
    return Space(found.f_bavail * found.f_frsize, usable_blocks * found.f_frsize)
