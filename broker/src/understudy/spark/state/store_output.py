"""A new directory with a store: made beside its place, synced, and published with one rename.

A run that is killed leaves the place as it was, and a directory ``.NAME.new`` beside it, which the next run removes.
Tasks of Spark copy segments and bodies; each works under a name of its own, so a repeated task changes nothing.

Not here: which segments and bodies (``consolidations``).
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError, DiskFailed
from understudy.ids import NodeId
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.environment import SystemEntropy
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.spark.base.synced_files import sync_directory, write_synced
from understudy.store.node_lock import NodeLock

#: Directories of a published store.
JOURNAL: Final = "journal"
LARGE_MESSAGES: Final = "large-messages"
#: Directory beside the output with parts of the snapshot, until the store is published.
_PARTS: Final = "parts"
_COPY_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A file to be copied by a task."""

    source: str
    target: str
    length: int
    """Bytes to be copied."""
    size: int
    """Size of the copy: the rest is allocated and zero."""


class StoreOutput:
    """The directory in the making; made by ``open_output``."""

    def __init__(self, place: Path, stage: Path) -> None:
        self.place = place
        self.journal = stage / JOURNAL
        self.large_messages = stage / LARGE_MESSAGES
        self.parts = stage / _PARTS
        self._stage = stage
        for each in (self.journal, self.large_messages, self.parts):
            each.mkdir(parents=True, mode=0o700)

    def write(self, name: str, data: bytes) -> None:
        """A small file, relative to the directory."""
        write_synced(self._stage / name, data)

    def write_node_id(self, node_id: NodeId) -> None:
        """``server.lock`` with the node of the store, so that a broker does not choose another id.

        Raises:
            DiskFailed: it cannot be written.
        """
        lock = NodeLock(RealDisk(), str(self.journal), RealFileLock, SystemEntropy())
        try:
            lock.open()
            lock.adopt(node_id)
        finally:
            lock.close()

    def publish(self) -> None:
        """Give the directory its name once all its files are on the disk."""
        shutil.rmtree(self.parts)
        if not any(self.large_messages.iterdir()):
            self.large_messages.rmdir()
        for directory, _, _ in os.walk(self._stage):
            sync_directory(Path(directory))
        try:
            os.rename(self._stage, self.place)
        except OSError as error:
            raise ConfigError(f"cannot be made: {error.strerror}", file=str(self.place)) from error
        sync_directory(self.place.parent)


@contextmanager
def open_output(place: Path, inputs: Sequence[str]) -> Iterator[StoreOutput]:
    """Make a directory, which has its name only once ``publish`` was called.

    Args:
        place: Path of the store; nothing is there, or an empty directory.
        inputs: Directories that are only read.

    Raises:
        ConfigError: something is there, it would lie in an input, it cannot be written, or another process makes it.
    """
    check_output(place, inputs)
    beside = place.parent / f".{place.name}.new"
    with _locked(beside, place):
        try:
            for name in os.listdir(beside):
                shutil.rmtree(beside / name)
            # tasks of a killed run may still write: not into this one
            output = StoreOutput(place, beside / secrets.token_hex(8))
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(error.filename)) from error
        try:
            yield output
        finally:
            with suppress(OSError):
                shutil.rmtree(beside)


def check_output(place: Path, inputs: Sequence[str]) -> None:
    """Raises ConfigError if the directory cannot be made there."""
    for each in map(Path, inputs):
        if place == each or each in place.parents or place in each.parents:
            raise ConfigError(f"would lie in {each}, which is only read, or around it", file=str(place))
    try:
        if place.is_symlink() or (place.exists() and (not place.is_dir() or any(place.iterdir()))):
            raise ConfigError("is not empty", file=str(place), hint="name a directory that does not exist")
        if not place.parent.is_dir():
            raise ConfigError("is no directory", file=str(place.parent))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(place)) from error


@contextmanager
def _locked(beside: Path, place: Path) -> Iterator[None]:
    try:
        beside.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(beside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", file=str(beside)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise ConfigError(f"cannot be locked: {error.strerror}", file=str(beside)) from error
            raise ConfigError("another process makes this directory", file=str(place)) from error
        yield
    finally:
        os.close(descriptor)


def copy_file(copy: FileCopy) -> None:
    """Copy the beginning of a file; called by tasks, perhaps more than once.

    Raises:
        DiskFailed: a file cannot be read or written, or the source is shorter.
    """
    temporary = f"{copy.target}.{uuid.uuid4().hex}.new"
    try:
        source = os.open(copy.source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _copy(source, target, copy)
            finally:
                os.close(target)
        finally:
            os.close(source)
        os.replace(temporary, copy.target)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        raise DiskFailed(f"{copy.source} cannot be copied to {copy.target}: {error.strerror or error}") from error


def _copy(source: int, target: int, copy: FileCopy) -> None:
    done = 0
    while done < copy.length:
        data = os.pread(source, min(_COPY_BYTES, copy.length - done), done)
        if not data:
            raise DiskFailed(f"{copy.source} ends at {done} and should go on to {copy.length}")
        view = memoryview(data)
        while view:
            written = os.pwrite(target, view, done)
            done, view = done + written, view[written:]
    if copy.size > copy.length:
        os.posix_fallocate(target, 0, copy.size)
    os.fsync(target)
