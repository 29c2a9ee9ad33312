"""``understudy events``: the latest events of all nodes that the options name, and new ones as they come (ADR 0162)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.managing.log_lines import LEVELS, LogLine, Wanted, of_object
from understudy.cli.node.status import Place, instance_option, server_option, token_file_option, url_option
from understudy.cli.tables import Kind, Table, View, figure_column, view_options
from understudy.cli.terminal import echo
from understudy.errors import Unreachable
from understudy.management.model.events import Event

EVENTS: Final = Table(
    "events",
    (
        figure_column(Event, "ts", "time"),
        figure_column(Event, "node"),
        figure_column(Event, "level"),
        figure_column(Event, "id"),
        figure_column(Event, "event", kind=Kind.TEXT),
        figure_column(Event, "fields", kind=Kind.TEXT, optional=True, value=lambda row: _fields(row["fields"])),
    ),
)
#: Period of the question for new events.
_POLL_S: Final = 0.5


def _fields(fields: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in fields.items() if key != "exception")


class Source:
    """The events of one node, in their order, over restarts of its process."""

    def __init__(self, place: Place) -> None:
        """Nothing is asked yet."""
        self._place = place
        self._boot = ""
        self._last = 0
        self._answers: bool | None = None

    def new(self, limit: int) -> list[dict[str, Any]]:
        """Events since the last call. Raises Unreachable."""
        found = self._place.ask(f"/api/v1/events?after={self._last}&limit={limit}")
        if found["boot"] != self._boot and self._last:
            # another process, whose numbers begin with 1
            found = self._place.ask(f"/api/v1/events?limit={limit}")
        self._boot, self._last = found["boot"], found["last"]
        events: list[dict[str, Any]] = found["events"]
        return events

    def new_or_none(self, limit: int) -> list[dict[str, Any]]:
        """The same; a node that does not answer has none, which is said once."""
        try:
            found = self.new(limit)
        except Unreachable as error:
            if self._answers is not False:
                echo(f"understudy: {error}", err=True)
            self._answers = False
            return []
        if self._answers is False:
            echo(f"understudy: {self._place.url} answers again", err=True)
        self._answers = True
        return found


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@click.option("--follow", is_flag=True, help="Print new events as they come, one per line, until interrupted.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", show_default=True, help="The lowest level.")
@click.option("--event", "ids", multiple=True, metavar="ID", help="Only events with this id; repeatable.")
@click.option(
    "--limit",
    type=click.IntRange(1, 2000),
    default=100,
    show_default=True,
    help="Events of each node at the beginning.",
)
@view_options(EVENTS)
def events(
    instance: Path | None,
    server: str | None,
    url: str | None,
    token_file: Path | None,
    follow: bool,
    level: str,
    ids: tuple[str, ...],
    limit: int,
    view: View,
) -> None:
    """Show the latest events of nodes: take-overs, replicas in sync, queues, slow consumers, and all lines of the log.

    All nodes of the context or of --url are asked, active or not, and their events are in the order of their times.
    With --follow a node that stops is left out until it answers again, so a failover is seen from both sides. A node
    keeps its latest 2,000 events; docs/operate/log-events.md explains their ids.

    \b
    Example: understudy events --follow --level warning --json

    Exit codes: 0 shown, or interrupted; 2 usage; 3 no node is reachable.
    """
    sources = [Source(each) for each in Place.all_of(instance, url, token_file, server)]
    wanted = Wanted(level, None, frozenset(ids))
    first = _first(sources, limit)
    if not follow:
        view.rows(EVENTS, [each for each in first if wanted.takes(of_object(each))])
        return
    try:
        _print(first, wanted, view)
        while True:
            time.sleep(_POLL_S)
            _print(_in_order([each.new_or_none(2000) for each in sources]), wanted, view)
    except KeyboardInterrupt:
        return


def _first(sources: Sequence[Source], limit: int) -> list[dict[str, Any]]:
    """The events at the beginning. Raises Unreachable: no node answers."""
    if len(sources) == 1:
        return sources[0].new(limit)
    found, errors = list[list[dict[str, Any]]](), list[Unreachable]()
    for each in sources:
        try:
            found.append(each.new(limit))
        except Unreachable as error:
            errors.append(error)
    if not found:
        raise Unreachable("; ".join(map(str, errors)))
    for missing in errors:
        echo(f"understudy: {missing}", err=True)
    return _in_order(found)


def _in_order(found: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return sorted((event for events in found for event in events), key=lambda event: event["ts"])


def _print(found: Sequence[dict[str, Any]], wanted: Wanted, view: View) -> None:
    for line in _lines(found, wanted):
        echo(line.json() if view.as_json else line.text())


def _lines(found: Sequence[dict[str, Any]], wanted: Wanted) -> Iterator[LogLine]:
    return filter(wanted.takes, map(of_object, found))
