"""``understudy top``: queues and consumers of the active node with their rates, shown again and again (ADR 0162)."""

from __future__ import annotations

import io
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from rich.live import Live
from rich.text import Text

from understudy.cli.managing.places import items, require_active
from understudy.cli.node.status import (
    Place,
    instance_option,
    readiness_of,
    server_option,
    serving,
    token_file_option,
    url_option,
)
from understudy.cli.tables import Column, Kind, Page, Row, Table, View, console, figure_column, view_options
from understudy.cli.terminal import echo
from understudy.dataclass import dataclass
from understudy.errors import NotActive, Unreachable
from understudy.management.model.clients import Consumer
from understudy.management.model.queues import Queue
from understudy.texts import counted

QUEUES: Final = Table(
    "queues",
    (
        figure_column(Queue, "name", "queue"),
        figure_column(Queue, "message_count", "messages"),
        Column("in_rate", Kind.NUMBER, "Messages routed to the queue per second.", "in/s"),
        Column("out_rate", Kind.NUMBER, "Messages acknowledged per second.", "out/s"),
        figure_column(Queue, "delivering_count", "delivering"),
        figure_column(Queue, "consumer_count", "consumers"),
        figure_column(Queue, "messages_killed", "killed", optional=True),
        figure_column(Queue, "memory_bytes", "memory", optional=True),
    ),
)
CONSUMERS: Final = Table(
    "consumers",
    (
        figure_column(Consumer, "queue"),
        figure_column(Consumer, "remote_address", "from"),
        figure_column(Consumer, "user", optional=True),
        Column("rate", Kind.NUMBER, "Messages acknowledged per second.", "out/s"),
        figure_column(Consumer, "delivering_count", "delivering"),
        figure_column(Consumer, "session", optional=True),
        figure_column(Consumer, "id", optional=True),
    ),
)
#: Time between the two readings of ``--once``.
_ONCE_S: Final = 1.0
#: Lines above and between the tables that are kept free.
_HEADER_LINES: Final = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """Answers of an active node at one time."""

    at_s: float
    """Monotonic time."""
    url: str
    sentence: str
    """The node that takes over, as ``understudy ha`` says it."""
    queues: Sequence[Row]
    consumers: Sequence[Row]


class Nodes:
    """The nodes that may be active, and the one that is asked."""

    def __init__(self, places: Sequence[Place]) -> None:
        """Raises NotActive, Unreachable: none of the nodes serves."""
        self._places = places
        self._place = serving(places)
        require_active(self._place)

    def read(self, now_s: float) -> Reading:
        """Ask the active node, which may have become another one. Raises NotActive, Unreachable."""
        try:
            return _read(self._place, now_s)
        except (NotActive, Unreachable):
            if len(self._places) == 1:
                raise
        self._place = serving(self._places)
        return _read(self._place, now_s)


def _read(place: Place, now_s: float) -> Reading:
    ready = readiness_of(place)
    if ready["state"] != "active":
        raise NotActive(f"{place.url} is {ready['state']}")
    return Reading(now_s, place.url, ready["protection"], items(place, "queues"), items(place, "consumers"))


def with_rates(before: Reading, after: Reading) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of queues and of consumers of the later reading with rates, the busiest first.

    A rate is None if the earlier reading has no such row, or is of another activation, whose counters began again.
    """
    queues = _joined(before.queues, after.queues, ("name",), before, after, {
        "in_rate": "messages_added", "out_rate": "messages_acknowledged",
    })  # fmt: skip
    consumers = _joined(
        before.consumers, after.consumers, ("session", "id"), before, after, {"rate": "messages_acknowledged"}
    )
    queues.sort(key=lambda row: (-((row["in_rate"] or 0) + (row["out_rate"] or 0)), -row["message_count"], row["name"]))
    consumers.sort(key=lambda row: (-(row["rate"] or 0), row["queue"], row["session"], row["id"]))
    return queues, consumers


def _joined(
    earlier: Sequence[Row],
    later: Sequence[Row],
    key: Sequence[str],
    before: Reading,
    after: Reading,
    counters: Mapping[str, str],
) -> list[dict[str, Any]]:
    known = {tuple(row[name] for name in key): row for row in earlier} if before.url == after.url else {}
    passed_s = after.at_s - before.at_s
    found = list[dict[str, Any]]()
    for row in later:
        old = known.get(tuple(row[name] for name in key))
        rates = {
            name: None if old is None or row[counter] < old[counter] else _rate(row[counter] - old[counter], passed_s)
            for name, counter in counters.items()
        }
        found.append({**row, **rates})
    return found


def _rate(count: int, passed_s: float) -> int | float:
    """Events per second; with a decimal if there are few."""
    rate = count / passed_s if passed_s > 0 else 0.0
    return round(rate, 1) if 0 < rate < 10 else round(rate)


def draw(view: View, before: Reading, after: Reading, height: int | None = None) -> None:
    """Print a header and the tables that are wanted.

    Args:
        height: Lines of the terminal; rows that have no space are left out. None: all rows are printed.
    """
    queues, consumers = with_rates(before, after)
    page = view.page
    page.figures(
        {
            "active": after.url,
            "takes over": after.sentence,
            "queues": f"{len(queues):,} with {counted(sum(row['message_count'] for row in queues), 'message')},"
            f" in {_total(queues, 'in_rate')}/s, out {_total(queues, 'out_rate')}/s",
            "consumers": f"{len(consumers):,}",
        }
    )
    page.line()
    left = None if height is None else max(1, height - _HEADER_LINES)
    if view.table != "consumers":
        share = left if left is None or view.table == "queues" else max(1, left - min(len(consumers) + 2, left // 3))
        view.rows(QUEUES, queues, limit=share)
        left = None if left is None else left - min(len(queues), share or 0) - 2
    if view.table is None:
        page.line()
    if view.table != "queues":
        view.rows(CONSUMERS, consumers, limit=None if left is None else max(0, left))


def _total(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    return f"{_rate(round(sum(row[name] or 0 for row in rows) * 10), 10.0):,}"


def _json(before: Reading, after: Reading) -> str:
    queues, consumers = with_rates(before, after)
    return json.dumps({"url": after.url, "protection": after.sentence, "queues": queues, "consumers": consumers})


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@click.option(
    "--interval", "interval_s", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True, help="Seconds."
)
@click.option("--once", is_flag=True, help=f"Print the rates of {_ONCE_S:g} s, and end.")
@view_options(QUEUES, CONSUMERS)
def top(
    instance: Path | None,
    server: str | None,
    url: str | None,
    token_file: Path | None,
    interval_s: float,
    once: bool,
    view: View,
) -> None:
    """Show queues and consumers of the active node with their rates, the busiest first, until interrupted.

    With several nodes, by a context or --url, it goes on with the one that takes over. Without a terminal the tables
    are printed again and again; --json prints one object per line.

    \b
    Example: understudy top --once --table queues --sort -message_count

    Exit codes: 0 shown, or interrupted; 2 usage; 3 not active or not reachable.
    """
    nodes = Nodes(Place.all_of(instance, url, token_file, server))
    before = nodes.read(time.monotonic())
    if once:
        view.pause(_ONCE_S)
        after = nodes.read(time.monotonic())
        if view.as_json:
            echo(_json(before, after))
        else:
            draw(view, before, after)
        return
    try:
        if view.as_json or not view.page.is_terminal:
            _print_readings(nodes, view, before, interval_s)
        else:
            _show_readings(nodes, view, before, interval_s)
    except KeyboardInterrupt:
        return


def _each_reading(
    nodes: Nodes, view: View, before: Reading, interval_s: float, show: Callable[[Reading, Reading], None],
    complain: Callable[[str], None],
) -> None:  # fmt: skip
    """Read until interrupted; while no node serves, that is said."""
    while True:
        view.pause(interval_s)
        try:
            after = nodes.read(time.monotonic())
        except (NotActive, Unreachable) as error:
            complain(f"no active node: {error}")
            continue
        show(before, after)
        before = after


def _print_readings(nodes: Nodes, view: View, before: Reading, interval_s: float) -> None:
    def show(earlier: Reading, later: Reading) -> None:
        if view.as_json:
            echo(_json(earlier, later))
        else:
            draw(view, earlier, later)
            echo()

    _each_reading(nodes, view, before, interval_s, show, lambda text: echo(f"understudy: {text}", err=True))


def _show_readings(nodes: Nodes, view: View, before: Reading, interval_s: float) -> None:
    with Live(Text("..."), console=console(), screen=True, auto_refresh=False) as live:

        def show(earlier: Reading, later: Reading) -> None:
            size = shutil.get_terminal_size()
            live.update(Text.from_ansi(frame(view, earlier, later, size.columns, size.lines)), refresh=True)

        show(before, before)
        _each_reading(
            nodes, view, before, interval_s, show, lambda text: live.update(Text(text, style="bold red"), refresh=True)
        )


def frame(view: View, before: Reading, after: Reading, width: int, height: int) -> str:
    """The text of a terminal of a size, in cells and lines."""
    output = io.StringIO()
    draw(replace(view, output=Page(output, width)), before, after, height)
    return "\n".join(output.getvalue().split("\n")[:height])
