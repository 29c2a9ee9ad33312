"""``understudy send``: send a message, or several, and wait for the confirmation of each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.messages.load import connection_options, read_password
from understudy.cli.terminal import echo
from understudy.client import sync
from understudy.errors import ConfigError
from understudy.units import parse_duration_ms

#: Types of a body.
TYPES: Final = ("text", "bytes", "json", "map")


@click.command()
@connection_options
@click.argument("address")
@click.argument("body", required=False, metavar="[TEXT|-|@FILE]")
@click.option("--type", "kind", type=click.Choice(TYPES), default="text", show_default=True, help="Type of the body.")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of the message; numbers, true and false have these types, and NAME:=TEXT is always a text.",
)
@click.option(
    "--routing",
    type=click.Choice(["anycast", "multicast"]),
    help="Kind of the queues that get it; default: as the address has them, and anycast for a new one.",
)
@click.option("--ttl", metavar="DURATION", help="The message expires after this time: 500ms, 30s, 5m, 2h or 7d.")
@click.option("--delay", metavar="DURATION", help="The message is delivered after this time.")
@click.option("--priority", type=click.IntRange(0, 9), default=4, show_default=True, help="Higher ones come first.")
@click.option("--correlation-id", help="Joins a request and its answer.")
@click.option("--reply-to", help="Address for an answer.")
@click.option("--group", help="Message group: its messages go to one consumer, in order.")
@click.option("--non-durable", is_flag=True, help="The message need not survive the broker.")
@click.option("--count", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="Send it so often.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def send(
    url: str,
    user: str | None,
    password_file: Path | None,
    address: str,
    body: str | None,
    kind: str,
    properties: tuple[str, ...],
    routing: str | None,
    ttl: str | None,
    delay: str | None,
    priority: int,
    correlation_id: str | None,
    reply_to: str | None,
    group: str | None,
    non_durable: bool,
    count: int,
    as_json: bool,
) -> None:
    """Send TEXT to ADDRESS, or the bytes of FILE (@FILE), or of the standard input (-, and without TEXT in a pipe).

    A file with --type bytes is streamed, whatever its size. A map is a JSON object with flat values.

    \b
    Example: understudy send orders "two chairs" --property region=north --priority 7

    Exit codes: 0 confirmed, 1 refused, 2 usage, 3 broker unreachable, 4 no failover in time.
    """
    content = _content(body, kind)
    options: dict[str, Any] = {
        "properties": dict(_property(each) for each in properties),
        "ttl_s": None if ttl is None else _duration(ttl, "--ttl"),
        "delay_s": None if delay is None else _duration(delay, "--delay"),
        "priority": priority,
        "correlation_id": correlation_id,
        "reply_to": reply_to,
        "group_id": group,
        "durable": not non_durable,
    }
    if kind == "json":
        options["json"] = content
        content = None
    with sync.connect(url, user, read_password(password_file)) as connection, connection.session() as session:
        kinds = _routing(session, address) if routing is None else routing
        with session.producer(address, routing=kinds) as producer:
            for _ in range(count):
                producer.send(content, **options)
        if as_json:
            echo(json.dumps({"address": address, "sent": count}))
        else:
            echo(f"{count} message{'' if count == 1 else 's'} sent to {address}", err=True)


def _routing(session: sync.Session, address: str) -> str | None:
    """All queues of an address that has some; else a queue of its own is created, unless the address is multicast."""
    found = session.query_address(address.partition("::")[0])
    if found.exists and not found.queue_names and not getattr(found, "supports_anycast", True):
        echo(f"{address} is a multicast address without queues: there is no subscriber to get the message", err=True)
    if found.exists and (found.queue_names or not getattr(found, "supports_anycast", True)):
        return None
    return "anycast"


def _content(body: str | None, kind: str) -> Any:
    """The body of the options. Raises ConfigError, UsageError."""
    if body is None:
        if sys.stdin.isatty():
            raise click.UsageError("give a TEXT, @FILE, or - for the standard input")
        body = "-"
    file: Path | None = None
    if body == "-":
        data: bytes | None = sys.stdin.buffer.read()
    elif body.startswith("@"):
        file, data = Path(body[1:]), None
        if not file.is_file():
            raise ConfigError("is no file", file=str(file), hint="a text that begins with @ comes from the input: -")
    else:
        data = body.encode(errors="surrogateescape")
    if kind == "bytes":
        return file if data is None else data
    try:
        raw = file.read_bytes() if data is None and file is not None else data or b""
        text = raw.decode()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from error
    except UnicodeDecodeError:
        raise ConfigError("the body is no text in UTF-8", hint="--type bytes sends it as it is") from None
    if kind == "text":
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the body is no JSON: {error}") from None
    if kind == "map" and not isinstance(found, dict):
        raise ConfigError("the body of a map is a JSON object")
    return found


def _property(text: str) -> tuple[str, Any]:
    """Name and value of ``NAME=VALUE`` or ``NAME:=TEXT``."""
    name, separator, value = text.partition("=")
    if not separator or not name.rstrip(":"):
        raise click.UsageError(f"--property {text!r}: NAME=VALUE is wanted")
    if name.endswith(":"):
        return name[:-1], value
    if value in ("true", "false"):
        return name, value == "true"
    for number in (int, float):
        try:
            return name, number(value)
        except ValueError:
            continue
    return name, value


def _duration(text: str, option: str) -> float:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None
