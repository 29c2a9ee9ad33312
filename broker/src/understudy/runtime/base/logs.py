"""Logs: one line of text or one JSON object for each event, on stderr or in a file.

Each event has an id: the code of Artemis where it has one, else one that is made from its text, so that the same event
has the same id on every node. docs/operate/log-events.md lists all of them (ADR 0154).

A line names the node that logged it. The name is a context variable, which tasks, callbacks and timers inherit from
the task of their node; a thread inherits it if its target is wrapped in ``inheriting``.
"""

from __future__ import annotations

import contextvars
import json
import logging
import os
import sys
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Final

from understudy.errors import ConfigError
from understudy.texts import printable_lines

NODE: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("node")
"""Name of the node whose code is running, from its configuration; not set outside of nodes."""

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


MANAGEMENT: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("management")
"""URL of the management of the node whose code is running; not set without management."""


def event_id(text: str) -> str:
    """The id of an event by its text, without the values in it."""
    return f"UND{zlib.crc32(text.encode()) % 1_000_000:06}"


def id_of(record: logging.LogRecord) -> str:
    """The id of the event of a record."""
    given = vars(record).get("id")
    return given if isinstance(given, str) and given.startswith("AMQ") else event_id(str(record.msg))


class TextFormatter(logging.Formatter):
    """Formats a record as a line for people: time, level, node, id, event, and the fields of ``extra``."""

    def __init__(self, *, dated: bool = True) -> None:
        """``dated``: whether a line has its date and time; the journal of systemd adds its own."""
        super().__init__()
        self._dated = dated

    def format(self, record: logging.LogRecord) -> str:
        """One line, and one for each line of an exception."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{record.msecs:03.0f}"
        node = NODE.get(None)
        head = [f"{moment}Z"] if self._dated else []
        head += [f"{record.levelname:7}", *([f"[{node}]"] if node is not None else []), id_of(record)]
        fields = [
            f"{key}={value if isinstance(value, int | float | None) else json.dumps(str(value), ensure_ascii=False)}"
            for key, value in vars(record).items()
            if key not in _STANDARD and not (key == "id" and value == id_of(record))
        ]
        text = f"{' '.join(head)} {record.getMessage()}"
        if fields:
            text += f" ({', '.join(fields)})"
        text = printable_lines(text)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """Formats a record as ``ts level logger event``, ``node`` if it is known, and the fields of ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object on one line."""
        return json.dumps(self.values(record), default=str)

    def values(self, record: logging.LogRecord) -> dict[str, object]:
        """The object of a record."""
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            "id": id_of(record),
        }
        node = NODE.get(None)
        if node is not None:
            line["node"] = node
        line.update((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return line


def inheriting(target: Callable[[], None]) -> Callable[[], None]:
    """The target of a new thread, which then runs in a copy of the present context, its node included."""
    context = contextvars.copy_context()
    return lambda: context.run(target)


def formatter_of(kind: str, file: str | None, environment: Mapping[str, str]) -> logging.Formatter:
    """The formatter of ``--log-format``.

    Args:
        kind: ``text``, ``json`` or ``auto``: text on a terminal and in the journal of systemd, else JSON.
        file: The log file; None: stderr.
        environment: Environment of the process; systemd names its journal there.
    """
    journal = file is None and _is_journal(environment.get("JOURNAL_STREAM", ""))
    if kind == "text" or (kind == "auto" and file is None and (journal or sys.stderr.isatty())):
        return TextFormatter(dated=not journal)
    return JsonFormatter()


def journal_unit(cgroup: Path, environment: Mapping[str, str]) -> str | None:
    """The unit of systemd whose journal has the log of this process; None: it is elsewhere.

    Args:
        cgroup: File of the kernel that names the control groups of the process.
        environment: Variables, of which systemd sets ``JOURNAL_STREAM``.
    """
    if not _is_journal(environment.get("JOURNAL_STREAM", "")):
        return None
    try:
        names = cgroup.read_text().split("/")
    except OSError:
        return None
    return next((name.strip() for name in reversed(names) if name.strip().endswith(".service")), None)


def _is_journal(stream: str) -> bool:
    """Whether stderr is the stream of the journal, given as device and inode."""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return stream == f"{found.st_dev}:{found.st_ino}"


def configure_logs(level: str, file: str | None, kind: str = "auto", loggers: Mapping[str, str] | None = None) -> None:
    """Configure logging.

    Args:
        level: Level of all loggers without a level of their own.
        file: Appended, mode 0640; None: stderr. It is opened again when it was renamed or removed, so a rotation needs
            no signal.
        kind: See ``formatter_of``.
        loggers: Levels of loggers by name.

    Raises:
        ConfigError: the file cannot be written.
    """
    if file:
        try:
            os.close(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640))
        except OSError as error:
            raise ConfigError(f"the log file cannot be written: {error.strerror}", file=file) from error
    handler: logging.Handler = WatchedFileHandler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter_of(kind, file, os.environ))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    for name, given in (loggers or {}).items():
        logging.getLogger(name).setLevel(given.upper())
