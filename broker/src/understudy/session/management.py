"""Requests of management that sessions send, as ``understudy.management`` carries them out.

Not here: permissions and replies (``send_requests``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from understudy.message import Message
from understudy.session.callback import SessionSecurity


class Management(Protocol):
    """Executes the requests."""

    address: str
    """The management address."""

    def handle(
        self, request: Message, security: SessionSecurity, remote_address: str, reply: Callable[[Message], None]
    ) -> None:
        """Carry out a request and give its reply, now or later; without an address."""
        ...
