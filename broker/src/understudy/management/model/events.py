"""Events of a node, as its log has them, and those that are too frequent for the log."""

from __future__ import annotations

from typing import Annotated, Any

from understudy.management.model.figure import Item, Natural, figure


class Event(Item, frozen=True, kw_only=True):
    """One event of a node."""

    sequence: Annotated[Natural, figure("Number of the event in the process, from 1 on.")]
    ts: Annotated[str, figure("Time of the event, ISO 8601 with milliseconds.")]
    level: Annotated[str, figure("Level of the event: debug, info, warning, error or critical.")]
    id: Annotated[str, figure("Id of the event (docs/operate/log-events.md).")]
    event: Annotated[str, figure("Text of the event.")]
    node: Annotated[str | None, figure("Name of the node; null: an event of the process.")]
    logger: Annotated[str, figure("Logger of the event.")]
    fields: Annotated[dict[str, Any], figure("Values that belong to the event, as in the log.")]


class Events(Item, frozen=True, kw_only=True):
    """The latest events of a node."""

    boot: Annotated[str, figure("Id of the process: its numbers of events begin with 1.")]
    last: Annotated[Natural, figure("Number of the latest event of the process; 0: there is none.")]
    events: Annotated[list[Event], figure("Events after the given one, the earliest first.")]
