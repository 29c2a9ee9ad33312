"""The time in which a connection has no broker, and the moments at which the log says so."""

from __future__ import annotations

from typing import Final

#: Time without a broker after which the log says so for the first time; then the pauses double.
FIRST_MS: Final = 5_000
#: The longest pause between two such lines.
_PAUSE_MS_MAX: Final = 600_000


class Outage:
    """One period without a broker."""

    def __init__(self) -> None:
        self._began_ms: int | None = None
        self._due_ms = 0
        self._pause_ms = FIRST_MS

    def begins(self, now_ms: int) -> None:
        """Called when the connection is lost, or is made for the first time."""
        self._began_ms = now_ms
        self._due_ms = now_ms + FIRST_MS

    def lasted_s(self, now_ms: int) -> float:
        """Seconds since the beginning of the outage."""
        return 0.0 if self._began_ms is None else (now_ms - self._began_ms) / 1000

    def is_due(self, now_ms: int) -> bool:
        """Whether the log should say now that there is no broker; the next time is later then."""
        if self._began_ms is None or now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, _PAUSE_MS_MAX)
        return True
