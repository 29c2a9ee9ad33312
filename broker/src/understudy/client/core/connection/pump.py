"""Sessions in the middle of a large message, and the socket they share: a little of each per flush.

Not here: pieces, credits and order (``sends``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

#: Number of bytes of one large message that the transport gets at a time.
PUMP_BYTES: Final = 256 * 1024


class Pumped(Protocol):
    """A source of pieces of large messages."""

    def pump(self, budget_bytes: int) -> bool:
        """Send about that many bytes. Returns whether more wait only for the socket."""
        ...


class Pump:
    """Shares the socket between sessions that send large messages, some pieces of each per flush."""

    def __init__(self, want_flush: Callable[[], None]) -> None:
        """``want_flush`` asks the shell to come for bytes, which calls ``run``."""
        self._want_flush = want_flush
        self._waiting: dict[Pumped, None] = {}
        self._writable = True

    def add(self, sender: Pumped) -> None:
        """Note that a sender has pieces to send."""
        self._waiting[sender] = None
        self._want_flush()

    def socket(self, *, writable: bool) -> None:
        """Called when the socket takes bytes, or has enough for now."""
        self._writable = writable
        if writable and self._waiting:
            self._want_flush()

    def run(self) -> bool:
        """Let every session send a little; whether to come again in the next turn."""
        if self._waiting and self._writable:
            waiting, self._waiting = self._waiting, {}
            for sender in waiting:
                if sender.pump(PUMP_BYTES):
                    self._waiting[sender] = None
            return bool(self._waiting)
        return False

    def clear(self) -> None:
        """Called when the transport is gone."""
        self._waiting.clear()
