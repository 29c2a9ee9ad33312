"""``understudy bridge``: the core bridges of a node, created, destroyed, started and stopped at run time, and their
connectors.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from understudy.cli.managing.places import active_node_options, invoke
from understudy.cli.node.status import Place
from understudy.cli.tables import Kind, Table, View, figure_column, view_options, with_others
from understudy.cli.terminal import Commands, echo
from understudy.errors import ConfigError
from understudy.management.model.links import Bridge
from understudy.texts import reason_of

#: Largest description of a bridge that is read. Bytes.
_FILE_BYTES_MAX: Final = 64 * 1024

BRIDGES: Final = Table(
    "bridges",
    with_others(
        Bridge,
        figure_column(Bridge, "name", "bridge"),
        figure_column(Bridge, "queue"),
        figure_column(Bridge, "target"),
        figure_column(Bridge, "state"),
        figure_column(Bridge, "waiting"),
        figure_column(Bridge, "unconfirmed"),
        figure_column(Bridge, "acknowledged", optional=True),
        figure_column(Bridge, "error", kind=Kind.TEXT),
    ),
    title="bridges",
)


@click.group(cls=Commands)
def bridge() -> None:
    """Look at core bridges, create and destroy them."""


@bridge.command("list")
@active_node_options
@view_options(BRIDGES, watch=True)
def list_bridges(place: Place, view: View) -> None:
    """Show the bridges of a node, those to other members of its cluster included.

    \b
    Example: understudy bridge list --filter state!=running
    """
    view.repeat(lambda: view.rows(BRIDGES, place.ask("/api/v1/cluster")["bridges"]))


@bridge.command()
@active_node_options
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
def create(place: Place, file: Path) -> None:
    """Create a bridge from the JSON in FILE (- is the standard input), and start it.

    The names are those of Artemis: name, queue-name, forwarding-address,
    static-connectors and so on (docs/operate/bridges.md).
    Exit codes: 0 created; 1 refused, with the reason; 3 not reachable.

    \b
    Example: understudy bridge create orders-to-west.json
    """
    try:
        if str(file) == "-":
            text = sys.stdin.read(_FILE_BYTES_MAX)
        else:
            with file.open(encoding="utf-8") as opened:
                text = opened.read(_FILE_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {reason_of(error)}", file=str(file)) from error
    invoke(place, "broker", "createBridge", text)
    echo("created")


@bridge.command()
@active_node_options
@click.argument("name")
def destroy(place: Place, name: str) -> None:
    """Stop the bridge NAME and forget it; one of broker.xml is there again after the next activation.

    \b
    Example: understudy bridge destroy orders-to-west
    """
    invoke(place, "broker", "destroyBridge", name)
    echo("destroyed")


@bridge.command()
@active_node_options
@click.argument("name")
def start(place: Place, name: str) -> None:
    """Start the bridge NAME.

    \b
    Example: understudy bridge start orders-to-west
    """
    invoke(place, f"bridge.{name}", "start")
    echo("started")


@bridge.command()
@active_node_options
@click.argument("name")
def stop(place: Place, name: str) -> None:
    """Stop the bridge NAME after the messages under way.

    \b
    Example: understudy bridge stop orders-to-west
    """
    invoke(place, f"bridge.{name}", "stop")
    echo("stopping")


@bridge.command("add-connector")
@active_node_options
@click.argument("name")
@click.argument("target")
def add_connector(place: Place, name: str, target: str) -> None:
    """Add the connector NAME to the broker at TARGET, tcp://host:port with parameters, for bridges to be created.

    \b
    Example: understudy bridge add-connector west tcp://west:61616
    """
    invoke(place, "broker", "addConnector", name, target)
    echo("added")


@bridge.command("remove-connector")
@active_node_options
@click.argument("name")
def remove_connector(place: Place, name: str) -> None:
    """Remove the connector NAME that was added; bridges that have it keep it until the next activation.

    \b
    Example: understudy bridge remove-connector west
    """
    invoke(place, "broker", "removeConnector", name)
    echo("removed")
