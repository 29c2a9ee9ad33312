"""The files of users and roles of one instance, changed as a whole while nodes may read them (ADR 0161)."""

from __future__ import annotations

from pathlib import Path

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.runtime.files.replacement import replace_unchanged
from understudy.security.authorization import UserTexts
from understudy.security.user_changes import UserChange, listed


@dataclass(frozen=True, slots=True)
class UserFiles:
    """The users file and the roles file of an instance. May be used on any thread, and by several processes."""

    users: Path
    roles: Path

    def read(self) -> UserTexts:
        """The present texts. Raises ConfigError: a file is missing or cannot be read."""
        return UserTexts(_text(self.users), str(self.users), _text(self.roles), str(self.roles))

    def change(self, change: UserChange) -> None:
        """Write the texts that a change makes.

        A new user gets the roles first, and a removed user loses the password first, so that no crash in between
        leaves a user with a password and without the roles that belong to it.

        Raises:
            ConfigError: a file cannot be read or written, or another program changes it.
            ManagementError: see ``change``.
        """
        before = self.read()
        after = change(before)
        files = [(self.users, before.users, after.users), (self.roles, before.roles, after.roles)]
        if len(listed(after)) > len(listed(before)):
            files.reverse()
        for path, old, new in files:
            if old == new:
                continue
            try:
                replace_unchanged(path, old.encode(), new.encode())
            except OSError as error:
                raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from error


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is no UTF-8: {error.reason}", file=str(path)) from error
