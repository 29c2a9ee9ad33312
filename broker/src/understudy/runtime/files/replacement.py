"""Replacement of a file as a whole: a reader finds the old file or the new one, whatever ends the process meanwhile.

The new file has owner and mode of the old one. A file that starts with the name of the other and a point in front may
remain after a crash; nothing reads it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from understudy.errors import ConfigError


def replace(path: Path, data: bytes) -> None:
    """Put new bytes in the place of those of a file. Raises OSError: it is as it was."""
    path = path.resolve()
    status = path.stat()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, status.st_mode & 0o7777)
            if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(descriptor, status.st_uid, status.st_gid)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


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
