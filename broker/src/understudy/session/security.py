"""The question a session asks before it does something for its client."""

from __future__ import annotations

from typing import Protocol

from understudy.config.model import Permission


class SessionSecurity(Protocol):
    """What one authenticated client may do."""

    @property
    def user(self) -> str:
        """Name for logs and management; empty without one."""
        ...

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        """Raises NotAuthorized."""
        ...
