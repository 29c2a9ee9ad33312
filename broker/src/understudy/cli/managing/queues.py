"""``understudy queue``: create, change, pause, purge and delete queues. Looks at them are in ``cli.messages.queue``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from understudy.cli.managing.confirming import confirm, dry_run_option, yes_option
from understudy.cli.managing.places import active_node_options, invoke, item, items
from understudy.cli.messages.queue import queue, stat
from understudy.cli.node.status import Place
from understudy.cli.tables import Page, figure_texts, json_option
from understudy.cli.terminal import echo
from understudy.management.model.queues import Queue
from understudy.texts import counted

F = TypeVar("F", bound=Callable[..., Any])

# the name of Artemis is `stat`
queue.add_command(stat, "list")


@queue.command()
@active_node_options
@click.argument("name")
@json_option
def show(place: Place, name: str, as_json: bool) -> None:
    """Show all settings and counters of queue NAME.

    \b
    Example: understudy queue show orders

    Exit codes: 0 shown; 1 no such queue; 3 not active or not reachable.
    """
    found = item(place, "queues", name)
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    page = Page()
    page.figures(figure_texts(Queue, found, grouped=page.is_terminal), title=name)


def _settings(command: F) -> F:
    """Options of the settings that may be changed, and are given at the creation."""
    for option in (
        click.option("--ring-size", type=int, help="Keep the newest messages only, so many; -1: no limit."),
        click.option("--delay-before-dispatch", type=int, help="Longest wait for these consumers in ms; -1: no limit."),
        click.option("--consumers-before-dispatch", type=int, help="Deliver once there are so many consumers."),
        click.option("--group-buckets", type=int, help="Buckets of message groups; -1: a consumer for each group."),
        click.option("--group-rebalance/--no-group-rebalance", default=None, help="A new consumer divides the groups."),
        click.option("--non-destructive/--destructive", default=None, help="Messages stay after their delivery."),
        click.option("--exclusive/--not-exclusive", default=None, help="One consumer at a time gets all messages."),
        click.option("--purge-on-no-consumers/--keep-on-no-consumers", default=None,
                     help="Purge the queue when its last consumer is closed."),
        click.option("--max-consumers", type=int, help="Most consumers; -1: no limit."),
        click.option("--filter", "filter_string", help="Selector of the messages that the queue takes."),
    ):  # fmt: skip
        command = option(command)
    return command


def _configuration(name: str, given: dict[str, Any]) -> str:
    """The JSON of ``createQueue`` and ``updateQueue``; options that were not given are left out."""
    wanted = {key.replace("_", "-"): value for key, value in given.items() if value is not None}
    return json.dumps({"name": name, **wanted})


@queue.command()
@active_node_options
@click.argument("name")
@click.option("--address", help="Address of the queue; default: NAME. It is created if it does not exist.")
@click.option("--multicast", is_flag=True, help="The queue gets a copy of each message; default: anycast.")
@click.option("--non-durable", is_flag=True, help="The queue ends with the broker.")
@click.option("--last-value-key", help="Property whose newest message replaces the older ones.")
@click.option("--if-missing", is_flag=True, help="An existing queue of that name is no error.")
@_settings
def create(
    place: Place, name: str, address: str | None, multicast: bool, non_durable: bool, if_missing: bool, **settings: Any
) -> None:
    """Create queue NAME. With --if-missing a queue of that name stays as it is.

    \b
    Example: understudy queue create orders --max-consumers 4 --if-missing

    Exit codes: 0 created, or there already with --if-missing; 1 refused, with the reason; 3 not active or not
    reachable.
    """
    given = {
        "address": address or name,
        "routing_type": "MULTICAST" if multicast else "ANYCAST",
        "durable": not non_durable,
        **settings,
    }
    if settings["last_value_key"] is not None:
        given["last_value"] = True
    if if_missing:
        for present in items(place, "queues", f"name={name}"):
            echo(_kept(present, given))
            return
    invoke(place, "broker", "createQueue", _configuration(name, given), if_missing)
    echo(f"queue {name} created")


def _kept(present: dict[str, Any], given: dict[str, Any]) -> str:
    """The line about a queue that was there already, with the settings that differ from those that were given."""
    differing = list[str]()
    for key, wanted in given.items():
        field = "filter" if key == "filter_string" else key
        there = present[field]
        # the answers of a node have null for no limit and for no filter
        if wanted is not None and there != wanted and not (there is None and wanted in (-1, "")):
            differing.append(f"{field.replace('_', '-')} is {there}, not {wanted}")
    text = f"queue {present['name']} is there already and stays as it is"
    return text if not differing else f"{text}: {', '.join(differing)}"


@queue.command()
@active_node_options
@click.argument("name")
@click.option("--enable/--disable", "enabled", default=None, help="Whether messages are routed to the queue.")
@_settings
def update(place: Place, name: str, enabled: bool | None, **settings: Any) -> None:
    """Change settings of queue NAME; options that are not given stay.

    \b
    Example: understudy queue update orders --max-consumers 8

    Exit codes: 0 changed; 1 refused, with the reason; 2 no option; 3 not active or not reachable.
    """
    given = {"enabled": enabled, **settings}
    if all(value is None for value in given.values()):
        raise click.UsageError("give at least one setting")
    invoke(place, "broker", "updateQueue", _configuration(name, given))
    echo(f"queue {name} changed")


@queue.command()
@active_node_options
@click.argument("name")
@click.option("--disconnect", is_flag=True, help="Close its consumers first; without it they prevent the deletion.")
@yes_option
def delete(place: Place, name: str, disconnect: bool, yes: bool) -> None:
    """Delete queue NAME with its messages.

    \b
    Example: understudy queue delete orders --disconnect

    Exit codes: 0 deleted; 1 refused or not confirmed; 2 no terminal and no --yes; 3 not active or not reachable.
    """
    count = item(place, "queues", name)["message_count"]
    if count:
        confirm(f"Delete queue {name} with {counted(count, 'message')}?", yes=yes)
    invoke(place, "broker", "destroyQueue", name, disconnect)
    echo(f"queue {name} deleted, {counted(count, 'message')} with it")


@queue.command()
@active_node_options
@click.argument("name")
@dry_run_option
@yes_option
def purge(place: Place, name: str, dry_run: bool, yes: bool) -> None:
    """Remove all messages of queue NAME that are not being delivered.

    \b
    Example: understudy queue purge orders --dry-run

    Exit codes: 0 removed; 1 refused or not confirmed; 2 no terminal and no --yes; 3 not active or not reachable.
    """
    found = item(place, "queues", name)
    count = found["message_count"] - found["delivering_count"]
    if dry_run:
        echo(f"{counted(count, 'message')} would be removed")
        return
    if count:
        confirm(f"Remove {counted(count, 'message')} of queue {name}?", yes=yes)
    echo(f"{counted(invoke(place, f'queue.{name}', 'removeAllMessages'), 'message')} removed")


@queue.command()
@active_node_options
@click.argument("name")
@click.option("--persist", is_flag=True, help="The pause survives a restart and a failover.")
def pause(place: Place, name: str, persist: bool) -> None:
    """Pause deliveries of queue NAME; it goes on taking messages.

    \b
    Example: understudy queue pause orders --persist
    """
    invoke(place, f"queue.{name}", "pause", persist)
    echo(f"queue {name} paused{'' if persist else ' until it is resumed or the broker restarts'}")


@queue.command()
@active_node_options
@click.argument("name")
def resume(place: Place, name: str) -> None:
    """Resume deliveries of queue NAME.

    \b
    Example: understudy queue resume orders
    """
    invoke(place, f"queue.{name}", "resume")
    echo(f"queue {name} resumed")
