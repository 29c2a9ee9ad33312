"""The lock of an instance directory: one process runs it at a time."""

from __future__ import annotations

import fcntl
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from understudy.errors import ConfigError

LOCK_FILE: Final = "lock"
#: Longest content that is read.
_BYTES_MAX: Final = 1024


class InstanceLock:
    """Held from ``claim`` until the process ends, also by SIGKILL."""

    def __init__(self, directory: Path) -> None:
        """``directory``: of the instance."""
        self._path = directory / "run" / LOCK_FILE
        self._descriptor = -1

    def claim(self) -> None:
        """Take the lock, and note which process has it.

        Raises:
            ConfigError: another process runs the instance; names it, and since when. Nothing is changed.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot be opened: {error.strerror}", file=str(self._path)) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.pread(self._descriptor, _BYTES_MAX, 0))
            raise ConfigError(
                f"the instance runs already{holder}",
                file=str(self._path.parent.parent),
                hint="`understudy status --instance DIRECTORY` shows its state",
            ) from None
        facts = {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(facts).encode(), 0)


def _holder(data: bytes) -> str:
    """The process that has the lock, in words; empty if it has not noted itself yet."""
    try:
        facts = json.loads(data)
        return f": process {int(facts['pid'])}, since {facts['since']}"
    except (ValueError, KeyError, TypeError):
        return ""
