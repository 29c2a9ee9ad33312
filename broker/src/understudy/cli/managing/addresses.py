"""``understudy address``: look at addresses, create, change, pause, purge and delete them."""

from __future__ import annotations

import json
from typing import Final

import click

from understudy.cli.managing.confirming import confirm, yes_option
from understudy.cli.managing.places import active_node_options, invoke, item, items
from understudy.cli.node.status import Place
from understudy.cli.tables import Page, Table, View, figure_column, figure_texts, json_option, view_options, with_others
from understudy.cli.terminal import Commands, echo
from understudy.management.model.queues import Address
from understudy.texts import counted

ADDRESSES: Final = Table(
    "addresses",
    with_others(
        Address,
        figure_column(Address, "name", "address"),
        figure_column(Address, "routing_types", "types"),
        figure_column(Address, "queue_count", "queues"),
        figure_column(Address, "message_count", "messages"),
        figure_column(Address, "size_bytes", "size"),
        figure_column(Address, "paging"),
        figure_column(Address, "paused", optional=True),
        figure_column(Address, "unrouted_message_count", "unrouted", optional=True),
    ),
)


@click.group(cls=Commands)
def address() -> None:
    """Look at addresses, create, change, pause, purge and delete them."""


@address.command("list")
@active_node_options
@view_options(ADDRESSES, watch=True)
def list_addresses(place: Place, view: View) -> None:
    """Show the addresses of a node.

    \b
    Example: understudy address list --sort -size_bytes
    """
    view.repeat(lambda: view.rows(ADDRESSES, items(place, "addresses")))


@address.command()
@active_node_options
@click.argument("name")
@json_option
def show(place: Place, name: str, as_json: bool) -> None:
    """Show all figures of address NAME, and its queues and diverts.

    \b
    Example: understudy address show orders
    """
    found = item(place, "addresses", name)
    found["bindings"] = items(place, "bindings", f"address={name}")
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    page = Page()
    texts = figure_texts(Address, found, grouped=page.is_terminal)
    texts["bindings"] = ", ".join(f"{each['kind']} {each['name']}" for each in found["bindings"]) or "-"
    page.figures(texts, title=name)


_types = click.option(
    "--type", "types", type=click.Choice(["anycast", "multicast"]), multiple=True, help="Routing type; repeatable."
)


@address.command()
@active_node_options
@click.argument("name")
@_types
def create(place: Place, name: str, types: tuple[str, ...]) -> None:
    """Create address NAME; without --type it is multicast.

    \b
    Example: understudy address create news --type multicast
    """
    invoke(place, "broker", "createAddress", name, ",".join(types or ("multicast",)).upper())
    echo(f"address {name} created")


@address.command()
@active_node_options
@click.argument("name")
@_types
def update(place: Place, name: str, types: tuple[str, ...]) -> None:
    """Replace the routing types of address NAME.

    \b
    Example: understudy address update news --type multicast --type anycast
    """
    if not types:
        raise click.UsageError("give --type at least once")
    invoke(place, "broker", "updateAddress", name, ",".join(types).upper())
    echo(f"address {name} changed")


@address.command()
@active_node_options
@click.argument("name")
@click.option("--queues", is_flag=True, help="Delete its queues with their messages first.")
@yes_option
def delete(place: Place, name: str, queues: bool, yes: bool) -> None:
    """Delete address NAME.

    \b
    Example: understudy address delete news --queues

    Exit codes: 0 deleted; 1 refused or not confirmed; 2 no terminal and no --yes; 3 not active or not reachable.
    """
    found = item(place, "addresses", name)
    if queues and found["queue_count"]:
        held = f"{counted(found['queue_count'], 'queue')} and {counted(found['message_count'], 'message')}"
        confirm(f"Delete address {name} with {held}?", yes=yes)
    invoke(place, "broker", "deleteAddress", name, queues)
    echo(f"address {name} deleted")


@address.command()
@active_node_options
@click.argument("name")
@yes_option
def purge(place: Place, name: str, yes: bool) -> None:
    """Remove the messages of all queues of address NAME.

    \b
    Example: understudy address purge news --yes
    """
    count = item(place, "addresses", name)["message_count"]
    if count:
        confirm(f"Remove {counted(count, 'message')} of address {name} from its queues?", yes=yes)
    echo(f"{counted(invoke(place, f'address.{name}', 'purge'), 'message')} removed")


@address.command()
@active_node_options
@click.argument("name")
@click.option("--persist", is_flag=True, help="The pause survives a restart and a failover.")
def pause(place: Place, name: str, persist: bool) -> None:
    """Pause the queues of address NAME, later ones included.

    \b
    Example: understudy address pause news
    """
    invoke(place, f"address.{name}", "pause", persist)
    echo(f"address {name} paused")


@address.command()
@active_node_options
@click.argument("name")
def resume(place: Place, name: str) -> None:
    """End the pause of address NAME and of all its queues.

    \b
    Example: understudy address resume news
    """
    invoke(place, f"address.{name}", "resume")
    echo(f"address {name} resumed")


@address.command()
@active_node_options
@click.argument("name")
def block(place: Place, name: str) -> None:
    """Give producers of address NAME no credits until `unblock` or a restart.

    \b
    Example: understudy address block orders
    """
    invoke(place, f"address.{name}", "block")
    echo(f"address {name} blocked")


@address.command()
@active_node_options
@click.argument("name")
def unblock(place: Place, name: str) -> None:
    """Give producers of address NAME credits again.

    \b
    Example: understudy address unblock orders
    """
    invoke(place, f"address.{name}", "unblock")
    echo(f"address {name} unblocked")
