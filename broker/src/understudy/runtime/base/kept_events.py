"""The latest events of the process in memory, for ``GET /api/v1/events`` (ADR 0162)."""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from typing import Any, Final

from understudy.management.events.node_events import LOGGER
from understudy.runtime.base.logs import JsonFormatter

#: Events that are kept; earlier ones are dropped.
_KEPT_MAX: Final = 2_000
_OWN: Final = ("ts", "level", "logger", "event", "id", "node", "exception")


class KeptEvents(logging.Handler):
    """Handler that keeps the latest records as JSON objects, without the loggers of libraries."""

    def __init__(self) -> None:
        """Begin without events."""
        super().__init__()
        self.boot: Final = f"{os.getpid()}-{time.time_ns()}"
        """Id of the process."""
        self.last = 0
        """Number of the latest event."""
        self._events: deque[dict[str, Any]] = deque(maxlen=_KEPT_MAX)
        self._formatter: Final = JsonFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, if it is of this project."""
        if record.name != "understudy" and not record.name.startswith("understudy."):
            return
        line = self._formatter.values(record)
        self.last += 1
        # as JSON at once: a list of the caller may change later
        fields = {key: json.loads(json.dumps(value, default=str)) for key, value in line.items() if key not in _OWN}
        if "exception" in line:
            fields["exception"] = line["exception"]
        self._events.append(
            {
                "sequence": self.last,
                **{name: line[name] for name in ("ts", "level", "id", "event", "logger")},
                "node": line.get("node"),
                "fields": fields,
            }
        )

    def after(self, sequence: int, node: str, limit: int) -> list[dict[str, Any]]:
        """The latest events of a node and of the process after a number, the earliest first.

        Args:
            limit: Number of events at most.
        """
        self.acquire()
        try:
            found = [each for each in self._events if each["sequence"] > sequence and each["node"] in (None, node)]
        finally:
            self.release()
        return found[-limit:]


KEPT: Final = KeptEvents()
"""The events of this process."""


def keep_events() -> None:
    """Keep events from now on, those of the logger for frequent ones included."""
    logging.getLogger().addHandler(KEPT)
    frequent = logging.getLogger(LOGGER)
    frequent.setLevel(logging.DEBUG)
    frequent.propagate = False
    frequent.addHandler(KEPT)
