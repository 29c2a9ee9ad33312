"""The trace of one simulated run: every event goes into one hash, and into a text when asked.

Two runs with equal seeds must have equal hashes, in one process or in two; that is what makes a
seed a bug report. So only stable texts may be recorded: no ``id``, no ``repr`` of objects, no
order of a set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

#: Events collected before they are hashed: one update of a long text is cheaper than many short ones.
_BATCH = 2048


class Trace:
    """Collects events; ``digest`` is their SHA-256 so far."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        """
        Args:
            write: takes every line with its time, for people; None hashes only.
        """
        self._write = write
        self._hash = hashlib.sha256()
        self._pending: list[str] = []
        self._now = -1.0
        self.events = 0
        """How many events were recorded."""

    def record(self, now: float, event: str) -> None:
        """Add an event at virtual time ``now``, seconds."""
        if now != self._now:
            self._now = now
            self._pending.append(f"@{now!r}")
        self._pending.append(event)
        self.events += 1
        if self._write is not None:
            self._write(f"{now:14.6f} {event}\n")
        if len(self._pending) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._hash.update("\n".join(self._pending).encode() + b"\n")
        self._pending.clear()

    def digest(self) -> str:
        """Hexadecimal SHA-256 of everything recorded so far."""
        if self._pending:
            self._flush()
        return self._hash.hexdigest()
