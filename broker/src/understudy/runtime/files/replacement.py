"""Replacement of a file as a whole: a reader finds the old file or the new one, whatever ends the process meanwhile.

The new file has owner and mode of the old one; without an old one it belongs to the owner of the directory, so that a
command of root does not take it away from the user of the broker, and no other user reads it. A file that starts with
the name of the other and a point in front may remain after a crash; nothing reads it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from understudy.errors import ConfigError


def replace(path: Path, data: bytes) -> None:
    """Put new bytes in the place of those of a file, or write a file that was not there. Raises OSError: it is as it
    was.
    """
    path = path.resolve()
    exists = path.exists()
    owner = (path if exists else path.parent).stat()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            if exists:
                os.fchmod(descriptor, owner.st_mode & 0o7777)
            if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Have the names in a directory on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_unchanged(path: Path, before: bytes, after: bytes) -> None:
    """The same for a file that still has the bytes that were read. Two processes never replace it at once.

    Raises:
        ConfigError: another program has changed the file, or is changing it.
        OSError: it cannot be written, and is as it was.
    """
    path = path.resolve()
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError("another process is changing it", file=str(path), hint="repeat the command") from None
        # a file that was replaced between opening and locking is another one
        if not os.path.samestat(os.fstat(file.fileno()), path.stat()) or file.read() != before:
            raise ConfigError("has changed since it was read", file=str(path), hint="repeat the command")
        replace(path, after)
