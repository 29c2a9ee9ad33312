"""Lines of the log of a node, in each form in which they are written: text, JSON, and the journal of systemd."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.units import parse_duration_ms

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_TEXT: Final = re.compile(
    r"(?:(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3})Z )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) +"
    r"(?:\[(?P<node>[^\]]*)\] )?(?P<id>(?:AMQ|UND)\d{6}) (?P<event>.*)",
    re.DOTALL,
)
#: Entries of a line in JSON that are no fields of the event.
_OWN: Final = ("ts", "level", "logger", "event", "id", "node", "sequence", "fields")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One event of a log with the lines of its exception."""

    ts: str
    """Time as ISO 8601; empty: unknown."""
    level: str
    id: str
    event: str
    node: str | None
    values: Mapping[str, Any]
    """Fields of the event; a line of text has them in ``event``."""

    @property
    def at_ms(self) -> int | None:
        """The time in ms since 1970; None: unknown."""
        try:
            return round(datetime.fromisoformat(self.ts).timestamp() * 1000)
        except ValueError:
            return None

    def text(self) -> str:
        """The line for people."""
        fields = ", ".join(
            f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in self.values.items() if key != "exception"
        )
        node = "" if self.node is None else f"[{self.node}] "
        moment = f"{self.ts.replace('T', ' ').replace('+00:00', 'Z')} " if self.ts else ""
        line = f"{moment}{self.level.upper():7} {node}{self.id} {self.event}{f' ({fields})' if fields else ''}"
        return f"{line}\n{self.values['exception']}" if "exception" in self.values else line

    def json(self) -> str:
        """The line as a JSON object."""
        found = {"ts": self.ts, "level": self.level, "event": self.event, "id": self.id, "node": self.node}
        return json.dumps(found | dict(self.values))


def of_object(found: Mapping[str, Any]) -> LogLine:
    """The line of a JSON object of a log, or of an event of ``GET /api/v1/events``."""
    fields = found.get("fields", {key: value for key, value in found.items() if key not in _OWN})
    node = found.get("node")
    return LogLine(
        str(found.get("ts", "")), str(found["level"]), str(found.get("id", "")), str(found["event"]), node, fields
    )


def lines_of(texts: Iterable[str]) -> Iterator[LogLine]:
    """The events of the lines of a file. Lines that begin no event, as of an exception, belong to the one before."""
    current: LogLine | None = None
    for text in texts:
        line = _line(text)
        if line is None:
            if current is not None:
                current = _continued(current, text)
            continue
        if current is not None:
            yield current
        current = line
    if current is not None:
        yield current


def of_journal(texts: Iterable[str]) -> Iterator[LogLine]:
    """The events of ``journalctl --output json``."""
    for text in texts:
        try:
            entry = json.loads(text)
            message, moment_us = entry["MESSAGE"], int(entry["__REALTIME_TIMESTAMP"])
        except (ValueError, KeyError, TypeError):
            continue
        line = _line(message) if isinstance(message, str) else None
        if line is not None:
            moment = datetime.fromtimestamp(moment_us / 1_000_000, UTC).isoformat(timespec="milliseconds")
            yield LogLine(line.ts or moment, line.level, line.id, line.event, line.node, line.values)


def _line(text: str) -> LogLine | None:
    if text.startswith("{"):
        try:
            return of_object(json.loads(text))
        except (ValueError, KeyError, TypeError):
            return None
    match = _TEXT.fullmatch(text.rstrip("\n"))
    if match is None:
        return None
    moment = match["ts"]
    ts = "" if moment is None else f"{moment.replace(' ', 'T')}+00:00"
    return LogLine(ts, match["level"].lower(), match["id"], match["event"], match["node"], {})


def _continued(line: LogLine, text: str) -> LogLine:
    more = text.rstrip("\n")
    earlier = line.values.get("exception")
    whole = more if earlier is None else f"{earlier}\n{more}"
    return LogLine(line.ts, line.level, line.id, line.event, line.node, {**line.values, "exception": whole})


@dataclass(frozen=True, slots=True)
class Wanted:
    """The events that are wanted."""

    level: str = "debug"
    """The lowest level."""
    since_ms: int | None = None
    """Time since 1970; earlier events are left out, and those of an unknown time are not."""
    ids: frozenset[str] = frozenset()
    """Ids; empty: all."""

    def takes(self, line: LogLine) -> bool:
        """Whether an event is wanted."""
        if self.ids and line.id not in self.ids:
            return False
        if LEVELS.index(line.level) < LEVELS.index(self.level):
            return False
        at_ms = line.at_ms
        return self.since_ms is None or at_ms is None or at_ms >= self.since_ms


def since_ms(text: str, now_ms: int) -> int:
    """The time of ``--since``: a duration such as ``10m`` before now, or a date with or without a time, in UTC unless
    it says otherwise.

    Raises:
        ConfigError: it is neither.
    """
    try:
        return now_ms - parse_duration_ms(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--since {text!r} is no duration and no time", hint="10m, 2h, 1d, 2026-11-30 or 2026-11-30T04:30:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
