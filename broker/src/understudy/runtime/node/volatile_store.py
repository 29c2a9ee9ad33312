"""The store of a node with ``persistence-enabled`` false: a directory of the process, emptied at each start.

All functions work as with a durable store (paging, large messages, the log that spills deep queues), but nothing is
synced and nothing survives the process. The directories of the configuration are neither read nor written, so a store
in them is unchanged when persistence is enabled again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from dataclasses import replace
from pathlib import Path

from understudy.config.model import Configuration
from understudy.errors import ConfigError


class VolatileStore:
    """The directory, owned by this process from ``claim`` to ``remove``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock_path = directory.with_name(f"{directory.name}.lock")

    def claim(self) -> None:
        """Take the directory and empty it.

        Raises:
            ConfigError: another process uses it, or it cannot be written.
        """
        try:
            self._lock_path.parent.mkdir(parents=True, exist_ok=True)
            # never closed: the lock is freed when the process ends
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory.mkdir(mode=0o700)
        except BlockingIOError:
            raise ConfigError("another process runs this instance", file=str(self._lock_path)) from None
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(error.filename)) from error

    def configure(self, configuration: Configuration) -> Configuration:
        """Change the configuration so that its store is in the directory and is written without syncs."""
        return replace(
            configuration,
            bindings_directory=str(self._directory / "bindings"),
            journal_directory=str(self._directory / "journal"),
            large_messages_directory=str(self._directory / "large-messages"),
            paging_directory=str(self._directory / "paging"),
            node_manager_lock_directory=str(self._directory / "journal"),
            journal_retention_directory=None,
            journal_datasync=False,
            create_bindings_dir=True,
            create_journal_dir=True,
        )

    def remove(self) -> None:
        """Delete the directory, when the node has stopped."""
        shutil.rmtree(self._directory, ignore_errors=True)
