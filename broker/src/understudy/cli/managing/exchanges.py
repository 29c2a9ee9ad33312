"""``understudy exchange``: look at exchanges of AMQP 0-9-1, create, bind, unbind and delete them."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from understudy.cli.managing.confirming import confirm, yes_option
from understudy.cli.managing.places import active_node_options, invoke, item, items
from understudy.cli.node.status import Place
from understudy.cli.tables import Page, Table, View, figure_column, figure_texts, json_option, view_options, with_others
from understudy.cli.terminal import Commands, echo
from understudy.errors import ManagementError
from understudy.management.model.exchanges import Exchange, ExchangeBinding
from understudy.texts import counted

EXCHANGES: Final = Table(
    "exchanges",
    with_others(
        Exchange,
        figure_column(Exchange, "name", "exchange"),
        figure_column(Exchange, "type"),
        figure_column(Exchange, "durable"),
        figure_column(Exchange, "binding_count", "bindings"),
        figure_column(Exchange, "messages_in", "in"),
        figure_column(Exchange, "messages_unrouted", "unrouted"),
        figure_column(Exchange, "alternate", optional=True),
    ),
)
BINDINGS: Final = Table(
    "exchange-bindings",
    with_others(
        ExchangeBinding,
        figure_column(ExchangeBinding, "source"),
        figure_column(ExchangeBinding, "destination_type", "to"),
        figure_column(ExchangeBinding, "destination"),
        figure_column(ExchangeBinding, "routing_key", "key"),
        figure_column(ExchangeBinding, "arguments", optional=True),
        figure_column(ExchangeBinding, "durable", optional=True),
        figure_column(ExchangeBinding, "id"),
    ),
)
TYPES: Final = ("direct", "fanout", "topic", "headers")


@click.group(cls=Commands)
def exchange() -> None:
    """Look at exchanges of AMQP 0-9-1, create, bind, unbind and delete them."""


@exchange.command("list")
@active_node_options
@view_options(EXCHANGES, watch=True)
def list_exchanges(place: Place, view: View) -> None:
    """Show the exchanges of a node. Those that every virtual host has are there once they are used.

    \b
    Example: understudy exchange list --sort -messages_in
    """
    view.repeat(lambda: view.rows(EXCHANGES, items(place, "exchanges")))


@exchange.command("bindings")
@active_node_options
@click.option("--source", help="Only those that lead from this exchange.")
@click.option("--destination", help="Only those that lead to this queue or exchange.")
@view_options(BINDINGS, watch=True)
def list_bindings(place: Place, source: str | None, destination: str | None, view: View) -> None:
    """Show the bindings of exchanges.

    \b
    Example: understudy exchange bindings --destination orders
    """
    conditions = [f"{name}={value}" for name, value in (("source", source), ("destination", destination)) if value]
    view.repeat(lambda: view.rows(BINDINGS, items(place, "exchange-bindings", *conditions)))


@exchange.command()
@active_node_options
@click.argument("name")
@json_option
def show(place: Place, name: str, as_json: bool) -> None:
    """Show all figures of exchange NAME, and its bindings.

    \b
    Example: understudy exchange show logs

    Exit codes: 0 shown; 1 no such exchange; 3 not active or not reachable.
    """
    found = item(place, "exchanges", name)
    found["bindings"] = items(place, "exchange-bindings", f"source={name}")
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    page = Page()
    texts = figure_texts(Exchange, found, grouped=page.is_terminal)
    texts["bindings"] = ", ".join(_binding_text(each) for each in found["bindings"]) or "-"
    page.figures(texts, title=name)


def _binding_text(binding: dict[str, Any]) -> str:
    key = f" key {binding['routing_key']}" if binding["routing_key"] else ""
    return f"{binding['destination_type']} {binding['destination']}{key}"


@exchange.command()
@active_node_options
@click.argument("name")
@click.option("--type", "kind", type=click.Choice(TYPES), default="direct", show_default=True, help="Type.")
@click.option("--non-durable", is_flag=True, help="The exchange ends with the broker.")
@click.option("--auto-delete", is_flag=True, help="The exchange is deleted with its last binding.")
@click.option("--internal", is_flag=True, help="Clients may not publish to it; other exchanges lead to it.")
@click.option("--alternate", help="Exchange that gets messages for which no binding matches.")
def create(
    place: Place, name: str, kind: str, non_durable: bool, auto_delete: bool, internal: bool, alternate: str | None
) -> None:
    """Create exchange NAME; one that exists must have the same properties.

    \b
    Example: understudy exchange create logs --type topic

    Exit codes: 0 created, or it exists; 1 refused, with the reason; 3 not active or not reachable.
    """
    invoke(place, "broker", "createExchange", name, kind, not non_durable, auto_delete, internal, alternate)
    echo(f"exchange {name} created")


@exchange.command()
@active_node_options
@click.argument("name")
@click.option("--if-unused", is_flag=True, help="Only if no binding leads from it.")
@yes_option
def delete(place: Place, name: str, if_unused: bool, yes: bool) -> None:
    """Delete exchange NAME with its bindings.

    \b
    Example: understudy exchange delete logs --if-unused

    Exit codes: 0 deleted; 1 refused or not confirmed; 2 no terminal and no --yes; 3 not active or not reachable.
    """
    count = item(place, "exchanges", name)["binding_count"]
    if count and not if_unused:
        confirm(f"Delete exchange {name} with {counted(count, 'binding')}?", yes=yes)
    invoke(place, "broker", "deleteExchange", name, if_unused)
    echo(f"exchange {name} deleted")


_key_option = click.option("--key", default="", help="Routing key, or pattern of a topic exchange; default: empty.")
_exchange_option = click.option("--exchange", "is_exchange", is_flag=True, help="DESTINATION is an exchange.")


def _destination_type(is_exchange: bool) -> str:
    return "exchange" if is_exchange else "queue"


@exchange.command()
@active_node_options
@click.argument("source")
@click.argument("destination")
@_key_option
@_exchange_option
@click.option("--arguments", default="{}", help='Arguments as a JSON object, such as {"x-match": "any", "type": "a"}.')
def bind(place: Place, source: str, destination: str, key: str, is_exchange: bool, arguments: str) -> None:
    """Let messages of exchange SOURCE go to queue DESTINATION, or to an exchange.

    \b
    Example: understudy exchange bind logs audit --key "audit.#"

    Exit codes: 0 bound; 1 refused, with the reason; 2 arguments that are no JSON object; 3 not active or not
    reachable.
    """
    try:
        table = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--arguments is no JSON: {error}") from error
    if not isinstance(table, dict):
        raise click.UsageError("--arguments is no JSON object")
    kind = _destination_type(is_exchange)
    found = invoke(place, "broker", "createExchangeBinding", source, destination, kind, key, table)
    echo(f"exchange {source} bound to {kind} {destination}: binding {found}")


@exchange.command()
@active_node_options
@click.argument("source")
@click.argument("destination")
@_key_option
@_exchange_option
@click.option("--id", "identifier", help="Id of the binding, if several differ only in their arguments.")
def unbind(place: Place, source: str, destination: str, key: str, is_exchange: bool, identifier: str | None) -> None:
    """Remove the binding of exchange SOURCE to queue DESTINATION, or to an exchange.

    \b
    Example: understudy exchange unbind logs audit --key "audit.#"

    Exit codes: 0 removed; 1 there is none, or there are several; 3 not active or not reachable.
    """
    kind = _destination_type(is_exchange)
    wanted = {"source": source, "destination": destination, "destination_type": kind, "routing_key": key}
    if identifier is not None:
        wanted["id"] = identifier
    found = items(place, "exchange-bindings", *(f"{name}={value}" for name, value in wanted.items()))
    if not found:
        raise ManagementError(f"exchange {source!r} has no binding to {kind} {destination!r} with the key {key!r}")
    if len(found) > 1:
        ids = ", ".join(each["id"] for each in found)
        raise ManagementError(f"{len(found)} bindings differ in their arguments: give --id with one of {ids}")
    invoke(place, "broker", "deleteExchangeBinding", found[0]["id"])
    echo(f"binding {found[0]['id']} removed")
