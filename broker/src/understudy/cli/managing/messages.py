"""``understudy message``: look at messages of a queue, and move, copy, retry, expire or delete some of them."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final, TypeVar

import click

from understudy.cli.managing.confirming import confirm, dry_run_option, yes_option
from understudy.cli.managing.places import PAGE_ITEMS, active_node_options, invoke, item, quoted
from understudy.cli.node.status import Place
from understudy.cli.tables import Column, Kind, Row, Table, View, figure_column, json_option, view_options, with_others
from understudy.cli.terminal import Commands, echo
from understudy.dataclass import dataclass
from understudy.errors import MessageNotFound
from understudy.management.model.queues import Message
from understudy.texts import counted, printable

F = TypeVar("F", bound=Callable[..., Any])

#: Names of the types of bodies.
_TYPES: Final = {0: "default", 2: "object", 3: "text", 4: "bytes", 5: "map", 6: "stream"}
#: Messages that a list shows unless more are asked for.
LIST_MAX: Final = 100
#: Places of a message that was in another queue before.
ORIGIN_QUEUE: Final = "_AMQ_ORIG_QUEUE"
ORIGIN_ADDRESS: Final = "_AMQ_ORIG_ADDRESS"

MESSAGES: Final = Table(
    "messages",
    with_others(
        Message,
        figure_column(Message, "message_id", "id"),
        figure_column(Message, "type", kind=Kind.NAME, value=lambda row: _TYPES.get(row["type"], str(row["type"]))),
        figure_column(Message, "priority", optional=True),
        figure_column(Message, "size_bytes", "size"),
        Column("origin", Kind.NAME, "Queue or address that the message was in before.", value=lambda row: origin(row)),
        figure_column(Message, "text", "text", kind=Kind.NAME),
    ),
)


def origin(row: Row) -> str | None:
    """The queue, else the address, that a moved, expired or dead message was in before."""
    found = row["properties"].get(ORIGIN_QUEUE) or row["properties"].get(ORIGIN_ADDRESS)
    return None if found is None else str(found)


def waiting_messages(place: Place, queue: str, selector: str | None, limit: int | None) -> Iterator[dict[str, Any]]:
    """The waiting messages of a queue that match, the next one first."""
    number, shown = 1, 0
    while True:
        query = {"page": number, "size": PAGE_ITEMS}
        if selector is not None:
            query["filter"] = selector  # type: ignore[assignment]  # a text among numbers
        path = f"/api/v1/queues/{quoted(queue)}/messages?{urllib.parse.urlencode(query)}"
        found = place.ask(path)["items"]
        for each in found:
            if shown == limit:
                return
            shown += 1
            yield each
        if len(found) < PAGE_ITEMS:
            return
        number += 1


@click.group(cls=Commands)
def message() -> None:
    """Look at messages of a queue, and move, copy, retry, expire or delete some of them."""


@message.command("list")
@active_node_options
@click.argument("queue")
@click.option("--selector", help="Only messages that match this selector.")
@click.option("--limit", type=click.IntRange(min=1), default=LIST_MAX, show_default=True, help="At most so many.")
@view_options(MESSAGES, watch=True)
def list_messages(place: Place, queue: str, selector: str | None, limit: int, view: View) -> None:
    """Show waiting messages of QUEUE, the next one first. Scheduled ones and those in delivery are not shown.

    \b
    Example: understudy message list DLQ --selector "_AMQ_ORIG_QUEUE = 'orders'"
    """
    view.repeat(lambda: view.rows(MESSAGES, list(waiting_messages(place, queue, selector, limit))))


@message.command()
@active_node_options
@click.argument("queue")
@click.argument("message_id", type=click.IntRange(min=0), metavar="ID")
@json_option
def show(place: Place, queue: str, message_id: int, as_json: bool) -> None:
    """Show the message ID of QUEUE with its header, properties and text.

    \b
    Example: understudy message show orders 1099511628806

    Exit codes: 0 shown; 1 no such queue, or the message does not wait in it; 3 not active or not reachable.
    """
    for found in waiting_messages(place, queue, None, None):
        if found["message_id"] == message_id:
            break
    else:
        raise MessageNotFound(f"message {message_id} does not wait in queue {queue}")
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        if name == "properties":
            for key, each in value.items():
                echo(printable(f"  {key} = {each}"))
        elif name == "type":
            echo(f"type: {_TYPES.get(value, value)}")
        else:
            echo(printable(f"{name.replace('_', ' ')}: {'-' if value is None else value}"))


@dataclass(frozen=True, slots=True)
class Choice:
    """The messages that an operation is about."""

    queue: str
    ids: tuple[int, ...]
    selector: str | None
    """Selector of the messages; None with ids, or for all messages."""

    @property
    def resource(self) -> str:
        """The resource of the queue."""
        return f"queue.{self.queue}"

    def count(self, place: Place) -> int:
        """Messages of the queue that are chosen now."""
        if self.ids:
            wanted = set(self.ids)
            return sum(each["message_id"] in wanted for each in waiting_messages(place, self.queue, None, None))
        return int(invoke(place, self.resource, "countMessages", self.selector))

    def ids_of(self, place: Place) -> Iterator[int]:
        """Ids of the messages that are chosen."""
        if self.ids:
            yield from self.ids
        else:
            yield from [each["message_id"] for each in waiting_messages(place, self.queue, self.selector, None)]


def choice_options(command: F) -> F:
    """``QUEUE``, ``--id``, ``--selector`` and ``--all``; the command gets a ``Choice``."""

    @wraps(command)
    def chosen(queue: str, ids: tuple[int, ...], selector: str | None, everything: bool, **options: Any) -> Any:
        if sum((bool(ids), selector is not None, everything)) != 1:
            raise click.UsageError("choose messages: give one of --id, --selector and --all")
        return command(choice=Choice(queue, ids, selector), **options)

    for option in (
        yes_option,
        dry_run_option,
        click.option("--all", "everything", is_flag=True, help="All messages that wait in the queue."),
        click.option("--selector", help="Messages that match this selector."),
        click.option("--id", "ids", type=click.IntRange(min=0), multiple=True, help="The message of this id."),
        click.argument("queue"),
    ):
        chosen = option(chosen)
    return chosen  # type: ignore[return-value]  # click adds options to the function and returns it


def _carry_out(
    place: Place, choice: Choice, words: tuple[str, str], many: Callable[[], int], one: Callable[[int], bool], *,
    dry_run: bool, yes: bool,
) -> None:  # fmt: skip
    """Count, ask and act.

    Args:
        words: The question, and the end, about messages.
    """
    verb, done = words
    if dry_run:
        echo(f"{counted(choice.count(place), 'message')} would be {done}")
        return
    if not choice.ids:
        count = choice.count(place)
        if count:
            confirm(f"{verb} {counted(count, 'message')} of queue {choice.queue}?", yes=yes)
    acted = sum(map(one, choice.ids)) if choice.ids else many()
    echo(f"{counted(acted, 'message')} {done}")
    if choice.ids and acted < len(choice.ids):
        raise MessageNotFound(f"{len(choice.ids) - acted} of the ids do not wait in queue {choice.queue}")


@message.command()
@active_node_options
@choice_options
@click.argument("target")
@click.option("--reject-duplicates", is_flag=True, help="Refuse a message whose duplicate id the target has seen.")
def move(place: Place, choice: Choice, target: str, reject_duplicates: bool, dry_run: bool, yes: bool) -> None:
    """Move messages of QUEUE to the queue TARGET, and nowhere else.

    \b
    Example: understudy message move DLQ parked --selector "_AMQ_ORIG_QUEUE = 'orders'" --dry-run

    Exit codes: 0 moved; 1 refused or not confirmed; 2 usage; 3 not active or not reachable.
    """
    resource = choice.resource
    if dry_run:
        item(place, "queues", target)  # refused as the move itself would be
    _carry_out(
        place, choice, (f"Move to {target}", f"moved to {target}"),
        lambda: invoke(place, resource, "moveMessages", choice.selector, target, reject_duplicates),
        lambda each: invoke(place, resource, "moveMessage", each, target, reject_duplicates), dry_run=dry_run, yes=yes,
    )  # fmt: skip


@message.command()
@active_node_options
@choice_options
@click.argument("target")
def copy(place: Place, choice: Choice, target: str, dry_run: bool, yes: bool) -> None:
    """Copy messages of QUEUE to the queue TARGET.

    \b
    Example: understudy message copy orders audit --all --dry-run

    Exit codes: 0 copied; 1 refused or not confirmed; 2 usage; 3 not active or not reachable.
    """

    def one(message_id: int) -> bool:
        return bool(invoke(place, choice.resource, "copyMessage", message_id, target))

    if dry_run:
        item(place, "queues", target)  # refused as the copy itself would be
    _carry_out(
        place, choice, (f"Copy to {target}", f"copied to {target}"),
        lambda: sum(map(one, choice.ids_of(place))), one, dry_run=dry_run, yes=yes,
    )  # fmt: skip


def _simple(name: str, verb: str, done: str, operations: tuple[str, str], doc: str) -> None:
    """A command that calls an operation for all that match, or one for each id."""

    def command(place: Place, choice: Choice, dry_run: bool, yes: bool) -> None:
        many, one = operations
        _carry_out(
            place, choice, (verb, done),
            lambda: invoke(place, choice.resource, many, choice.selector),
            lambda each: invoke(place, choice.resource, one, each), dry_run=dry_run, yes=yes,
        )  # fmt: skip

    command.__doc__ = (
        doc + "\n\nExit codes: 0 done; 1 refused or not confirmed; 2 usage; 3 not active or not reachable."
    )
    message.command(name)(active_node_options(choice_options(command)))


_simple(
    "retry", "Retry", "returned to where they came from", ("retryMessages", "retryMessage"),
    "Return messages of QUEUE to their origin. `understudy dlq retry` does it at a rate.\n\n"
    "\b\nExample: understudy message retry DLQ --id 1099511628806",
)  # fmt: skip
_simple(
    "delete",
    "Delete",
    "deleted",
    ("removeMessages", "removeMessage"),
    "Delete messages of QUEUE.\n\n\b\nExample: understudy message delete orders --selector \"colour = 'red'\"",
)
_simple(
    "expire",
    "Expire",
    "expired",
    ("expireMessages", "expireMessage"),
    "Expire messages of QUEUE: they go to its expiry address.\n\n\b\nExample: understudy message expire orders --all",
)
_simple(
    "dead-letter", "Dead-letter", "sent to the dead letter address",
    ("sendMessagesToDeadLetterAddress", "sendMessageToDeadLetterAddress"),
    "Send messages of QUEUE to its dead letter address.\n\n\b\nExample: understudy message dead-letter orders --id 17",
)  # fmt: skip
