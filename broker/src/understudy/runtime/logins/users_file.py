"""Replacement of passwords in the users file of an instance: the hash that a login made, or hashes of plain passwords.

A file is replaced as a whole and keeps owner and mode, so a reader finds the old file or the new one.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from understudy.errors import ConfigError
from understudy.runtime.files.replacement import replace_unchanged
from understudy.security.password_hashes import ArtemisHash, PasswordHash
from understudy.security.properties_file import entries, replaced

log = logging.getLogger(__name__)


class UsersFile:
    """Users file of a running node, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        """Begin without reading the file.

        Args:
            path: The file; its directory must be writable for a replacement.
        """
        self._path = path
        self._lock = threading.Lock()

    def rehashed(self, user: str, old: ArtemisHash, new: PasswordHash) -> None:
        """Put a hash in the place of the one that Artemis wrote, unless that was changed meanwhile. On any thread.

        A failure is logged: the user logs in with the old hash again after the next start.
        """
        try:
            with self._lock:
                text = self._path.read_bytes().decode()
                if any(entry.key == user and entry.value == str(old) for entry in entries(text, str(self._path))):
                    after = replaced(text, str(self._path), {user: str(new)})
                    replace_unchanged(self._path, text.encode(), after.encode())
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            log.warning(
                "the hash of a password by Artemis stays in the users file, because the file cannot be replaced",
                extra={"user": user, "file": str(self._path), "error": str(error)},
            )
        else:
            log.info("the hash of a password by Artemis was replaced by a scrypt hash", extra={"user": user})
