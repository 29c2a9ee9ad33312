"""``understudy receive``: show the messages of a queue and acknowledge each after it was shown."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.messages.load import connection_options, read_password
from understudy.cli.terminal import echo
from understudy.client import sync
from understudy.texts import printable

#: Bytes of a body that are shown unless --whole is given.
SHOWN_BYTES_MAX: Final = 10_000


@click.command()
@connection_options
@click.argument("queue")
@click.option("--filter", "filter_text", help="Selector; only matching messages.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("--follow", is_flag=True, help="Wait for further messages until interrupted.")
@click.option("--no-ack", is_flag=True, help="Leave the messages in the queue.")
@click.option("--body", "only_body", is_flag=True, help="Print bodies only, each followed by a line end.")
@click.option("--whole", is_flag=True, help="Print bodies of any length.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message and line.")
def receive(
    url: str,
    user: str | None,
    password_file: Path | None,
    queue: str,
    filter_text: str | None,
    count: int | None,
    follow: bool,
    no_ack: bool,
    only_body: bool,
    whole: bool,
    as_json: bool,
) -> None:
    """Show the messages of QUEUE, the next one first. Each is acknowledged after it was shown.

    Without --follow it ends when no message waits. A message that was shown and not yet acknowledged when the command
    is interrupted comes again.

    \b
    Example: understudy receive orders --follow --json

    Exit codes: 0 done, 1 refused or fewer messages than --count, 2 usage, 3 broker unreachable.
    """
    if follow and no_ack:
        raise click.UsageError("--no-ack looks at the waiting messages once; --follow takes them")
    shown = 0
    limit = None if whole else SHOWN_BYTES_MAX
    with (
        sync.connect(url, user, read_password(password_file)) as connection,
        connection.session("individual") as session,
    ):
        for received in _messages(session, queue, filter_text, follow=follow, no_ack=no_ack):
            if as_json:
                echo(json.dumps(describe(received)))
            elif only_body:
                echo(_text(received, None))
            else:
                echo(_head(received))
                for line in _text(received, limit).splitlines() or [""]:
                    echo(f"  {line}")
            if not no_ack:
                received.ack()
            shown += 1
            if shown == count:
                break
    if not as_json and not only_body:
        left = "left in the queue" if no_ack else "acknowledged"
        echo(f"{shown} message{'' if shown == 1 else 's'} shown and {left}", err=True)
    if count is not None and shown < count:
        raise SystemExit(1)


def _messages(
    session: sync.Session, queue: str, filter_text: str | None, *, follow: bool, no_ack: bool
) -> Iterator[sync.Received]:
    """The messages, until no more wait, or until an interrupt."""
    if no_ack:
        yield from session.browser(queue, filter=filter_text)
        return
    consumer = session.consumer(queue, filter=filter_text, auto_create=follow)
    try:
        while True:
            received = consumer.receive() if follow else consumer.receive_nowait()
            if received is None:
                return
            yield received
    except KeyboardInterrupt:
        return


def describe(received: sync.Received) -> dict[str, Any]:
    """The JSON object of a message."""
    kind, content = _content(received)
    moment = received.timestamp
    return {
        "message_id": received.message_id,
        "address": received.address,
        "type": kind,
        "content": content,
        "properties": {name: _plain(value) for name, value in received.properties.items()},
        "priority": received.priority,
        "durable": received.durable,
        "timestamp": None if moment is None else moment.isoformat(timespec="milliseconds"),
        "expires_at": None if received.expires_at is None else received.expires_at.isoformat(timespec="milliseconds"),
        "reply_to": received.reply_to,
        "correlation_id": _plain(received.correlation_id),
        "group_id": received.group_id,
        "delivery_count": received.delivery_count,
    }


def _content(received: sync.Received) -> tuple[str, Any]:
    """Type and value of the body, as JSON has it; bytes are Base64."""
    kind = getattr(received.type, "name", str(received.type)).lower()
    content: Any = received.read_content()
    if isinstance(content, bytes | bytearray | memoryview):
        return kind, base64.b64encode(bytes(content)).decode()
    return kind, content if content is None or isinstance(content, str) else _plain(content)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _head(received: sync.Received) -> str:
    """The line above a body."""
    kind = getattr(received.type, "name", str(received.type)).lower()
    facts = [f"message {received.message_id}", kind]
    if received.timestamp is not None:
        facts.append(received.timestamp.isoformat(" ", timespec="milliseconds"))
    if received.priority != 4:
        facts.append(f"priority {received.priority}")
    if received.delivery_count > 1:
        facts.append(f"delivery {received.delivery_count}")
    if received.reply_to is not None:
        facts.append(f"reply to {received.reply_to}")
    facts += [f"{name}={_plain(value)}" for name, value in received.properties.items() if not name.startswith("_")]
    return printable(", ".join(facts))


def _text(received: sync.Received, limit: int | None) -> str:
    """The body as text; bytes that are no text in UTF-8 are hexadecimal."""
    content: Any = received.read_content()
    if isinstance(content, bytes | bytearray | memoryview):
        try:
            text = bytes(content).decode()
        except UnicodeDecodeError:
            text = bytes(content).hex()
    elif isinstance(content, str):
        text = content
    else:
        text = "" if content is None else json.dumps(_plain(content))
    if limit is not None and len(text) > limit:
        return f"{text[:limit]}\n… {len(text) - limit:,} further characters: --whole shows them"
    return text
