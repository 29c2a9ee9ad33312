"""``understudy browse``: show the messages of a queue without consuming them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.messages.load import (
    LedgerFile,
    body_digest,
    connected,
    connection_options,
    default_identity,
    identity_of,
    now_ms,
    origin_of,
    read_password,
    run,
)
from understudy.cli.tables import Column, Kind, Row, Table, View, view_options
from understudy.cli.terminal import echo
from understudy.client import aio
from understudy.client.core.consumer.state import ReceivedMessage
from understudy.client.core.url.parsing import parse_url
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ledger import ReceivedCopy
from understudy.message import MessageType
from understudy.texts import counted

#: Characters of a body shown.
_PREVIEW: Final = 60


def describe(received: ReceivedMessage) -> dict[str, Any]:
    """One message as a JSON object; ``producer`` and ``number`` if ``produce`` made it, so that
    ``ledger check --remaining-file`` reads the lines.
    """
    message = received.message
    found: dict[str, Any] = {
        "message_id": message.message_id,
        "address": message.address,
        "type": _type_name(message.type),
        "durable": message.durable,
        "priority": message.priority,
        "timestamp": message.timestamp,
        "expiration": message.expiration,
        "body_bytes": len(message.body) if received.stream is None else received.stream.size_bytes,
        "properties": {
            key: value.hex() if isinstance(value, bytes) else value for key, value in message.properties.items()
        },
        "preview": _preview(received),
    }
    identity = identity_of(received)
    if identity is not None:
        found["producer"], found["number"] = identity
    return found


def _type_name(kind: int) -> str:
    try:
        return MessageType(kind).name.lower()
    except ValueError:
        return str(kind)


def _preview(received: ReceivedMessage) -> str:
    if received.stream is not None:
        return "(large)"
    if received.message.type == MessageType.TEXT:
        try:
            text = received.text or ""
        except BrokerError:
            text = received.message.body[:_PREVIEW].hex()
    else:
        text = received.message.body[:_PREVIEW].decode("latin-1")
    return "".join(each if each.isprintable() else "." for each in text[:_PREVIEW])


@dataclass(frozen=True)
class _Selection:
    """The messages to show."""

    queue: str
    filter_text: str | None
    """A selector; None: all messages of the queue."""
    limit: int | None
    """Most messages to show; None: no limit."""


async def _browse(
    url: str,
    user: str | None,
    password: str | None,
    selection: _Selection,
    view: View,
    ledger: LedgerFile,
) -> bool:
    """Whether the ledger, if there is one, now says that the queue was seen completely."""
    rows: list[dict[str, Any]] = []
    whole = True
    queue, limit = selection.queue, selection.limit
    # messages are written one by one, unless all of them are needed for an order
    lines = view.as_json and view.columns is None and not view.order

    async def use(connection: aio.Connection) -> None:
        nonlocal whole
        session = await connection.session()
        asked_ms, observer = now_ms(), default_identity("browser")
        browser = await session.browser(queue, filter=selection.filter_text)
        if limit == 0:
            return
        messages = browser.__aiter__()
        try:
            count = 0
            async for received in messages:
                count += 1
                _note_remaining(ledger, received, queue, observer, asked_ms)
                if lines:
                    echo(json.dumps(describe(received)))
                else:
                    rows.append(describe(received))
                if count == limit:
                    break
        finally:
            await messages.aclose()
        if ledger.rows is not None:
            answer = await session.query_queue(queue)
            whole = answer.message_count == count
            if whole:
                ledger.rows.drained(answer.address or queue, asked_ms, consumer=observer, queue=queue)
            else:
                echo(
                    f"understudy: {queue} has {counted(answer.message_count, 'message')} and showed {count:,}: others"
                    " are in delivery or scheduled, so the ledger does not say that the queue was seen completely",
                    err=True,
                )

    await connected(parse_url(url), user, password, use)
    if not lines:
        view.rows(MESSAGES, rows, title=f"{queue}: {counted(len(rows), 'message')}", lines=True)
    return whole


def _note_remaining(ledger: LedgerFile, received: ReceivedMessage, queue: str, observer: str, at_ms: int) -> None:
    identity = identity_of(received)
    if ledger.rows is not None and identity is not None:
        ledger.rows.remaining(
            *identity,
            received.message.address or "",
            at_ms,
            ReceivedCopy(observer, queue, received.message_id, body_digest(received), origin_of(received)),
        )


MESSAGES: Final = Table(
    "messages",
    (
        Column("message_id", Kind.ID, "Id of the message.", title="id"),
        Column("type", Kind.NAME, "Kind of its body."),
        Column("durable", Kind.NAME, "Whether it outlives a restart."),
        Column("priority", Kind.NUMBER, "0 to 9."),
        Column("timestamp", Kind.NAME, "When it was sent.", title="sent", value=lambda row: _sent(row)),
        Column("body_bytes", Kind.BYTES, "Size of its body.", title="bytes"),
        Column("preview", Kind.NAME, "Beginning of its body.", title="body"),
    ),
)


def _sent(row: Row) -> str | None:
    if not row["timestamp"]:
        return None
    return datetime.fromtimestamp(row["timestamp"] / 1000, UTC).isoformat(timespec="milliseconds")


@click.command()
@connection_options
@click.option("--queue", required=True, help="Queue to look at.")
@click.option("--filter", "filter_text", help="Selector; only matching messages.")
@click.option("--limit", type=click.IntRange(min=0), help="At most this many messages.")
@view_options(MESSAGES, conditions=False)
@click.option(
    "--ledger", "ledger_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Append a row for each message, and one that says that the queue was seen completely.",
)  # fmt: skip
def browse(
    url: str,
    user: str | None,
    password_file: Path | None,
    queue: str,
    filter_text: str | None,
    limit: int | None,
    ledger_file: Path | None,
    view: View,
) -> None:
    """Show the messages of a queue; they stay in it. JSON is one object per message and line.

    \b
    Example: understudy browse --queue orders --filter "region = 'north'" --limit 20

    Exit codes: 0 done, 1 no such queue or --ledger could not see the whole queue, 2 usage, 3 no broker reached.
    """
    if ledger_file is not None and (filter_text is not None or limit is not None):
        raise click.UsageError("--ledger needs the whole queue: give neither --filter nor --limit")
    password = read_password(password_file)
    with LedgerFile(ledger_file) as ledger:
        whole = run(lambda: _browse(url, user, password, _Selection(queue, filter_text, limit), view, ledger))
    if not whole:
        raise SystemExit(1)
