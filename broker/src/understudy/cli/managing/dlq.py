"""``understudy dlq``: dead and expired messages by their origin and cause, and their return at a rate."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from understudy.cli.managing.confirming import confirm, dry_run_option, yes_option
from understudy.cli.managing.messages import ORIGIN_ADDRESS, ORIGIN_QUEUE, waiting_messages
from understudy.cli.managing.places import active_node_options, invoke, items
from understudy.cli.node.status import Place
from understudy.cli.tables import Column, Kind, Table, View, view_options
from understudy.cli.terminal import Commands, echo
from understudy.errors import ManagementError
from understudy.management.operations.queue_messages import RETRIES
from understudy.texts import counted

#: Names of the settings that name addresses of such messages.
_SETTINGS: Final = ("deadLetterAddress", "expiryAddress")
#: Property of a message that has expired.
_EXPIRED: Final = "_AMQ_ACTUAL_EXPIRY"
#: Number of returned messages after which the queue is searched for one that has come back.
_LOOK_AFTER: Final = 20

GROUPS: Final = Table(
    "groups",
    (
        Column("queue", Kind.NAME, "Queue that the messages wait in."),
        Column("origin", Kind.NAME, "Queue or address that they come from."),
        Column(
            "cause", Kind.NAME, "expired, or undelivered: too many delivery attempts, or sent there by an operator."
        ),
        Column("messages", Kind.NUMBER, "Messages of the group."),
        Column("retried", Kind.NUMBER, "Messages of them that `dlq retry` has returned before."),
        Column("oldest_id", Kind.ID, "Id of the first one.", title="first id"),
    ),
)


@click.group(cls=Commands)
def dlq() -> None:
    """Look at dead and expired messages by origin and cause, and return them to where they came from."""


def dead_letter_queues(place: Place) -> list[str]:
    """Queues of the addresses that address settings name for dead and expired messages."""
    settings = items(place, "settings", "kind=address")
    addresses = {str(each["values"][name]) for each in settings for name in _SETTINGS if each["values"].get(name)}
    return [each["name"] for each in items(place, "queues") if each["address"] in addresses]


def _cause(properties: dict[str, Any]) -> str:
    return "expired" if _EXPIRED in properties else "undelivered"


def _origin(properties: dict[str, Any]) -> str:
    return str(properties.get(ORIGIN_QUEUE) or properties.get(ORIGIN_ADDRESS) or "unknown")


@dlq.command("list")
@active_node_options
@click.option("--queue", "queues", multiple=True, help="Only this queue; default: those that address settings name.")
@view_options(GROUPS, watch=True)
def list_groups(place: Place, queues: tuple[str, ...], view: View) -> None:
    """Show dead and expired messages in groups of one origin and cause.

    \b
    Example: understudy dlq list --sort -messages
    """
    view.repeat(lambda: view.rows(GROUPS, list(_groups(place, queues or dead_letter_queues(place)))))


def _groups(place: Place, queues: tuple[str, ...] | list[str]) -> Iterator[dict[str, Any]]:
    for queue in queues:
        counts, retried = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        first: dict[tuple[str, str], int] = {}
        for each in waiting_messages(place, queue, None, None):
            properties = each["properties"]
            key = (_origin(properties), _cause(properties))
            counts[key] += 1
            retried[key] += RETRIES in properties
            first.setdefault(key, each["message_id"])
        for key, count in counts.items():
            yield {
                "queue": queue, "origin": key[0], "cause": key[1], "messages": count, "retried": retried[key],
                "oldest_id": first[key],
            }  # fmt: skip


@dlq.command()
@active_node_options
@click.argument("queue", default="DLQ")
@click.option("--origin", help="Only messages of this queue or address.")
@click.option("--selector", help="Only messages that match this selector.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True, help="Messages per second."
)
@click.option(
    "--delay",
    "delay_s",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Seconds until a returned message is delivered.",
)
@click.option("--again", is_flag=True, help="Also messages that were retried before and have come back.")
@dry_run_option
@yes_option
def retry(
    place: Place,
    queue: str,
    origin: str | None,
    selector: str | None,
    limit: int | None,
    rate: float,
    delay_s: float,
    again: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Return messages of QUEUE to where they came from, one after the other, at a rate.

    Each is marked with the property _UNDERSTUDY_RETRIES, which counts its retries. Messages with this mark are left out
    unless --again is given. The command stops when a message that it has returned is back in QUEUE: its cause is not
    removed yet.

    \b
    Example: understudy dlq retry DLQ --origin orders --rate 5 --delay 10

    Messages without an origin stay, such as those of a dead letter exchange of AMQP 0-9-1: see `message move`.

    Exit codes: 0 returned; 1 one came back, was refused, or not confirmed, or some stay as they have no origin any
    more; 2 usage; 3 not active or not reachable.
    """
    fitting = [
        each
        for each in waiting_messages(place, queue, selector, None)
        if (origin is None or _origin(each["properties"]) == origin) and (again or RETRIES not in each["properties"])
    ]
    chosen = [each["message_id"] for each in fitting if ORIGIN_ADDRESS in each["properties"]][:limit]
    unknown = len(fitting) - sum(ORIGIN_ADDRESS in each["properties"] for each in fitting)
    stays = f", {counted(unknown, 'message')} without an origin left (see `understudy message move`)" if unknown else ""
    if dry_run:
        echo(f"{counted(len(chosen), 'message')} would be returned{stays}")
        return
    if chosen:
        confirm(f"Return {counted(len(chosen), 'message')} of queue {queue}?", yes=yes)
    returned = _return(place, queue, chosen, rate, int(delay_s * 1000))
    if returned < len(chosen):
        raise ManagementError(
            f"{counted(returned, 'message')} returned, {len(chosen) - returned} stay in {queue}{stays}",
            hint="their queue or address is gone: create it, or use `understudy message move`",
        )
    echo(f"{counted(returned, 'message')} returned{stays}")


def _return(
    place: Place, queue: str, chosen: list[int], rate: float, delay_ms: int,
    pause: Callable[[float], None] = time.sleep,
) -> int:  # fmt: skip
    """Return messages one by one. Raises ManagementError: one has come back."""
    known = {each["message_id"] for each in waiting_messages(place, queue, f"{RETRIES} > 0", None)}
    returned = 0
    for number, message_id in enumerate(chosen, 1):
        returned += bool(invoke(place, f"queue.{queue}", "retryMessage", message_id, delay_ms))
        pause(1 / rate)
        if number % _LOOK_AFTER == 0 or number == len(chosen):
            back = [
                each for each in waiting_messages(place, queue, f"{RETRIES} > 0", None)
                if each["message_id"] not in known
            ]  # fmt: skip
            if back:
                origins = ", ".join(sorted({_origin(each["properties"]) for each in back}))
                raise ManagementError(
                    f"{counted(returned, 'message')} returned, and {len(back)} of them came back to {queue}"
                    f" (from {origins}): {len(chosen) - number} were left",
                    hint="remove the cause, then try again with --again",
                )
    return returned
