"""``understudy reader``: the named readers of an active node's log (ADR 0079)."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from understudy.cli.managing import places
from understudy.cli.managing.places import active_node_options
from understudy.cli.node.status import Place
from understudy.cli.tables import Column, Kind, Table, View, figure_column, json_option, view_options
from understudy.cli.terminal import Commands, echo
from understudy.limits import READER_HELD_BYTES
from understudy.management.model.node import Reader
from understudy.units import parse_bytes


@click.group(cls=Commands)
def reader() -> None:
    """List, register, commit and drop the named readers, for which an active node keeps its log."""


def invoke(place: Place, operation: str, *parameters: object) -> dict[str, Any]:
    """The result of an operation of the broker, which is a JSON object."""
    found: dict[str, Any] = json.loads(places.invoke(place, "broker", operation, *parameters))
    return found


def _show(found: dict[str, Any], text: str, as_json: bool) -> None:
    echo(json.dumps(found) if as_json else text)


READERS: Final = Table(
    "readers",
    (
        figure_column(Reader, "name", "reader"),
        figure_column(Reader, "epoch"),
        figure_column(Reader, "sequence"),
        Column("lag", Kind.NUMBER, "Records between its position and the confirmed end."),
        figure_column(Reader, "held_bytes", "holds"),
        figure_column(Reader, "max_bytes", "limit"),
        Column(
            "state",
            Kind.TEXT,
            "holding, or why it was dropped.",
            value=lambda row: "holding" if row["dropped"] is None else f"dropped: {row['dropped']}",
        ),
    ),
)


@reader.command("list")
@active_node_options
@view_options(READERS, watch=True)
def list_readers(place: Place, view: View) -> None:
    """Show the readers with their positions, and the bytes that each one holds.

    \b
    Example: understudy reader list --filter 'lag>10000'

    Exit codes: 0 done, 1 a reader was dropped because it held too much, 3 not reachable.
    """

    def show() -> bool:
        found = invoke(place, "listReadersAsJSON")
        confirmed = found["confirmed"]
        rows = [{**each, "lag": max(0, confirmed["sequence"] - each["sequence"])} for each in found["readers"]]
        title = f"confirmed end: epoch {confirmed['epoch']}, sequence {confirmed['sequence']}"
        view.rows(READERS, rows, shape=lambda readers: {**found, "readers": readers}, title=title)
        return any(each["dropped"] is not None for each in rows)

    if view.repeat(show):
        raise SystemExit(1)


@reader.command()
@click.argument("name")
@click.option("--position", default="latest", show_default=True, help="earliest, latest or EPOCH:SEQUENCE.")
@click.option(
    "--max-bytes", default=str(READER_HELD_BYTES), help="Limit of the log that it holds, such as 10GiB; default 1GiB."
)
@active_node_options
@json_option
def register(
    name: str,
    position: str,
    max_bytes: str,
    place: Place,
    as_json: bool,
) -> None:
    """Hold the log for the reader NAME from a position on. A reader that exists keeps its position.

    \b
    Example: understudy reader register archive
    """
    try:
        limit_bytes = parse_bytes(max_bytes)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--max-bytes") from error
    found = invoke(place, "registerReader", name, _position(place, position), limit_bytes)
    _show(found, f"{name} holds the log from sequence {found['sequence'] + 1} on", as_json)


@reader.command()
@click.argument("name")
@click.argument("position")
@active_node_options
@json_option
def commit(
    name: str,
    position: str,
    place: Place,
    as_json: bool,
) -> None:
    """Move the reader NAME to POSITION (EPOCH:SEQUENCE, or latest): it has processed everything up to there.

    \b
    Example: understudy reader commit archive latest
    """
    if position == "latest":
        confirmed = invoke(place, "listReadersAsJSON")["confirmed"]
        position = f"{confirmed['epoch']}:{confirmed['sequence']}"
    found = invoke(place, "commitReader", name, _position(place, position))
    _show(found, f"{name} is at epoch {found['epoch']}, sequence {found['sequence']}", as_json)


@reader.command()
@click.argument("name")
@active_node_options
@json_option
def drop(name: str, place: Place, as_json: bool) -> None:
    """Forget the reader NAME. The segments that it holds may be removed from then on.

    \b
    Example: understudy reader drop archive
    """
    found = invoke(place, "dropReader", name)
    _show(found, f"{name} dropped at sequence {found['sequence']}", as_json)


def _position(place: Place, text: str) -> str:
    """``earliest``, ``latest``, or a position as JSON with the node id of the node."""
    if text in ("earliest", "latest"):
        return text
    epoch, colon, sequence = text.partition(":")
    if not colon or not all(part.isascii() and part.isdecimal() for part in (epoch, sequence)):
        raise click.BadParameter(f"{text!r} is none of earliest, latest, EPOCH:SEQUENCE")
    node_id = invoke(place, "listReadersAsJSON")["node_id"]
    return json.dumps({"node_id": node_id, "epoch": int(epoch), "sequence": int(sequence)})
