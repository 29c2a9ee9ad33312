"""``understudy browse``: look at the messages of a queue without taking them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from understudy.cli.load import LEDGER_NUMBER, LEDGER_PRODUCER, connected, connection_options, read_password, run
from understudy.cli.report import console
from understudy.client import aio
from understudy.client.consumer_state import ReceivedMessage
from understudy.client.url import parse_url
from understudy.errors import BrokerError
from understudy.message import MessageType

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
        "body_bytes": len(received.body) if received.stream is None else received.stream.size_bytes,
        "properties": {
            key: value.hex() if isinstance(value, bytes) else value for key, value in message.properties.items()
        },
        "preview": _preview(received),
    }
    producer, number = message.properties.get(LEDGER_PRODUCER), message.properties.get(LEDGER_NUMBER)
    if isinstance(producer, str) and isinstance(number, int):
        found["producer"] = producer
        found["number"] = number
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
            text = received.body[:_PREVIEW].hex()
    else:
        text = received.body[:_PREVIEW].decode("latin-1")
    return "".join(each if each.isprintable() else "." for each in text[:_PREVIEW])


async def _browse(
    url: str,
    user: str | None,
    password: str | None,
    queue: str,
    filter_text: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    rows: list[dict[str, Any]] = []

    async def use(connection: aio.Connection) -> None:
        session = await connection.session()
        browser = await session.browser(queue, filter=filter_text)
        if limit == 0:
            return
        messages = browser.__aiter__()
        try:
            count = 0
            async for received in messages:
                count += 1
                if as_json:
                    click.echo(json.dumps(describe(received)))
                else:
                    rows.append(describe(received))
                if count == limit:
                    break
        finally:
            await messages.aclose()

    await connected(parse_url(url), user, password, use)
    if not as_json:
        _print_table(queue, rows)


def _print_table(queue: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=Text(f"{queue}: {len(rows):,} messages"))
    for name in ("id", "type", "durable", "priority", "sent", "bytes", "body"):
        table.add_column(name, overflow="fold")
    for row in rows:
        sent = datetime.fromtimestamp(row["timestamp"] / 1000, UTC).isoformat(timespec="milliseconds")
        cells = (
            str(row["message_id"]),
            row["type"],
            "yes" if row["durable"] else "no",
            str(row["priority"]),
            sent if row["timestamp"] else "",
            f"{row['body_bytes']:,}",
            row["preview"],
        )
        table.add_row(*(Text(cell) for cell in cells))
    console().print(table)


@click.command()
@connection_options
@click.option("--queue", required=True, help="Queue to look at.")
@click.option("--filter", "filter_text", help="Selector; only matching messages.")
@click.option("--limit", type=click.IntRange(min=0), help="At most this many messages.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per message and line.")
def browse(
    url: str,
    user: str | None,
    password_file: Path | None,
    queue: str,
    filter_text: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show the messages of a queue; they stay in it.

    Exit codes: 0 done, 1 no such queue, 2 usage, 3 nobody there.
    """
    password = read_password(password_file)
    run(lambda: _browse(url, user, password, queue, filter_text, limit, as_json))
