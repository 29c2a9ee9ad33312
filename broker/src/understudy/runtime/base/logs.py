"""Structured logs: one JSON object per line, on stderr or in a file.

A line names the node that logged it. The name is a context variable, which tasks, callbacks and timers inherit from
the task of their node; a thread inherits it if its target is wrapped in ``inheriting``.
"""

from __future__ import annotations

import contextvars
import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

NODE: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("node")
"""Name of the node whose code is running, from its configuration; not set outside of nodes."""

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as ``ts level logger event``, ``node`` if it is known, and the fields of ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object on one line."""
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        node = NODE.get(None)
        if node is not None:
            line["node"] = node
        line.update((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def inheriting(target: Callable[[], None]) -> Callable[[], None]:
    """The target of a new thread, which then runs in a copy of the present context, its node included."""
    context = contextvars.copy_context()
    return lambda: context.run(target)


def configure_logs(level: str, file: str | None) -> None:
    """Configure logging with ``JsonFormatter``, to ``file`` (appended, mode 0640) or stderr."""
    if file:
        os.close(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640))
    handler: logging.Handler = logging.FileHandler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
