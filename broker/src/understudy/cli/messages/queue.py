"""``understudy queue``: the queues of a node, their counters, why messages wait in them, and the end of that wait for
damaged messages of a pair.
"""

from __future__ import annotations

import json
from typing import Any, Final

import click

from understudy.cli.managing.places import active_node_options, invoke, item, quoted
from understudy.cli.node.status import Place
from understudy.cli.tables import Row, Table, View, figure_column, json_option, view_options, with_others
from understudy.cli.terminal import Commands, echo
from understudy.management.model.queues import Queue
from understudy.texts import counted, printable


@click.group(cls=Commands)
def queue() -> None:
    """Look at queues and at messages that wait in them."""


QUEUES: Final = Table(
    "queues",
    with_others(
        Queue,
        figure_column(Queue, "name", "queue"),
        figure_column(Queue, "address"),
        figure_column(Queue, "routing_type", "type", value=lambda row: _kind(row)),
        figure_column(Queue, "message_count", "messages"),
        figure_column(Queue, "delivering_count", "delivering"),
        figure_column(Queue, "consumer_count", "consumers"),
        figure_column(Queue, "messages_added", "added", optional=True),
        figure_column(Queue, "messages_acknowledged", "acknowledged", optional=True),
        figure_column(Queue, "messages_expired", "expired", optional=True),
        figure_column(Queue, "messages_killed", "killed", optional=True),
        figure_column(Queue, "spilled_count", "spilled", optional=True),
    ),
)


def _kind(row: Row) -> str:
    return str(row["routing_type"]).lower() + ("" if row["durable"] else ", not durable")


@queue.command("stat")
@active_node_options
@click.option("--name", help="Only this queue; exit code 1 when there is none.")
@view_options(QUEUES, watch=True)
def stat(place: Place, name: str | None, view: View) -> None:
    """Show the queues of a node and their counters.

    \b
    Example: understudy queue stat --sort -message_count --filter 'message_count>0' --watch
    """

    def show() -> None:
        queues = place.ask("/api/v1/node")["queues"] if name is None else [item(place, "queues", name)]
        view.rows(QUEUES, queues)

    view.repeat(show)


@queue.command("explain")
@active_node_options
@click.argument("name")
@click.option("--message", "message_id", type=click.IntRange(min=0), help="Only the message of this id.")
@json_option
def explain(
    place: Place,
    name: str,
    message_id: int | None,
    as_json: bool,
) -> None:
    """Say why the messages of queue NAME wait, or one of them.

    \b
    Example: understudy queue explain orders

    Exit codes: 0 shown; 1 no such queue or message; 3 not reachable.
    """
    one = "" if message_id is None else f"/messages/{message_id}"
    path = f"/api/v1/queues/{quoted(name)}{one}/explain"
    found: dict[str, Any] = place.ask(path)
    if as_json:
        echo(json.dumps(found, indent=2))
    elif message_id is not None:
        _show_message(found)
    else:
        _show_queue(found)


@queue.command("quarantine-damaged")
@active_node_options
@click.option("--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
@json_option
def quarantine_damaged(place: Place, yes: bool, as_json: bool) -> None:
    """Move damaged messages that wait for the other node of a pair to the quarantine.

    For the case that the other node or its data is lost for good. Such a message waits until a replica is in sync, at
    most other-copy-wait, because the copy of the other node may be intact; in the quarantine it waits no longer. Each
    entry names queue, message and file. Nothing is asked and nothing changes if no message waits.

    Example: understudy queue quarantine-damaged --instance /srv/broker --yes

    Exit codes: 0 moved, or no message waits; 1 not confirmed; 3 the node is not active or not reachable.
    """
    waiting = int(invoke(place, "broker", "getMessagesWaitingForOtherNodeCount"))
    if waiting and not yes:
        echo(f"waiting for the copy of the other node: {counted(waiting, 'damaged message')}", err=True)
        click.confirm("Move them to the quarantine?", abort=True, err=True)
    moved = int(invoke(place, "broker", "quarantineMessagesWaitingForOtherNode")) if waiting else 0
    echo(json.dumps({"moved": moved}) if as_json else f"moved to the quarantine: {counted(moved, 'message')}")


def _show_queue(found: dict[str, Any]) -> None:
    counts = ", ".join(f"{found[key]} {key}" for key in ("waiting", "scheduled", "delivering"))
    echo(printable(f"queue {found['queue']}: {counted(found['message_count'], 'message')} ({counts})"))
    _show_reasons(found["reasons"])
    for each in found["transactions"]:
        kind = "prepared" if each["prepared"] else "open"
        counts = f"{each['sends']} sent, {each['acknowledges']} acknowledged"
        echo(printable(f"  transaction {each['name']}, {kind}: {counts}"))
    if found["first"] is not None:
        _show_message(found["first"])


def _show_message(found: dict[str, Any]) -> None:
    echo(printable(f"message {found['message_id']}, {found['place']}"))
    _show_reasons(found["reasons"])


def _show_reasons(reasons: list[dict[str, Any]]) -> None:
    for each in reasons:
        echo(printable(f"  {each['code']}: {each['text']}"))
