"""The question a session asks before it does something for its client."""

from __future__ import annotations

from typing import Protocol

from understudy.terms import Permission


class SessionSecurity(Protocol):
    """Permissions of one authenticated client."""

    @property
    def user(self) -> str:
        """Name for logs and management; empty without one."""
        ...

    @property
    def permission_ms(self) -> int:
        """How long an answer of ``check`` need not be asked for again."""
        ...

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        """Raises NotAuthorized, and reports the violation."""
        ...

    def allows(self, permission: Permission, address: str, queue: str | None = None) -> bool:
        """Whether the user has a permission; a missing one is not reported as a violation."""
        ...
