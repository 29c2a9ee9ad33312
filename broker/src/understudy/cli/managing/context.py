"""``understudy context`` and ``completion``: settings of the command line for its user."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
from click.shell_completion import get_completion_class

from understudy.cli.managing.contexts import VARIABLE, contexts_file, read_contexts, write_contexts
from understudy.cli.tables import Column, Kind, Table, View, view_options
from understudy.cli.terminal import Commands, echo
from understudy.errors import ConfigError
from understudy.texts import has_login, masked_url

CONTEXTS: Final = Table(
    "contexts",
    (
        Column("name", Kind.NAME, "Name of the context.", title="context"),
        Column("used", Kind.NAME, "Whether commands use it."),
        Column("nodes", Kind.NAME, "Management URLs or instance directories of the nodes."),
        Column("broker", Kind.NAME, "URL for clients."),
        Column("user", Kind.NAME, "User of clients."),
        Column("secrets", Kind.NAME, "Secrets that the file has; they are not shown."),
    ),
)


@click.group(cls=Commands)
def context() -> None:
    """Name nodes with their addresses and logins, so that commands need no options for them."""


@context.command()
@click.argument("name")
@click.option(
    "--management",
    multiple=True,
    help="Management URL of a node, such as http://127.0.0.1:8161; repeat it for the other node of a pair, or "
    "separate both by a comma.",
)
@click.option(
    "--instance",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Instance directory on this host, instead of a URL; repeatable.",
)
@click.option(
    "--token-file",
    "token_files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File with the token to store; one for all URLs, or one for each.",
)
@click.option("--broker", help="URL for clients, such as tcp://127.0.0.1:61616.")
@click.option("--user", help="User of clients.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File with the password to store.",
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Certificates that https management URLs are checked with.",
)
@click.option("--use/--no-use", default=True, show_default=True, help="Use it from now on.")
def add(
    name: str,
    management: tuple[str, ...],
    instance: tuple[Path, ...],
    token_files: tuple[Path, ...],
    broker: str | None,
    user: str | None,
    password_file: Path | None,
    ca: Path | None,
    use: bool,
) -> None:
    """Add the context NAME, or replace it. Secrets are stored in a file with mode 0600.

    With the nodes of a pair, commands ask the active one, whichever it is at the time.

    \b
    Example: understudy context add east --management http://a:8161 --management http://b:8161 --token-file token
    """
    management = tuple(url for given in management for url in given.split(","))
    for url in (*management, *filter(None, [broker])):
        if has_login(url):
            raise ConfigError(f"{masked_url(url)!r} has a login: give --user and --password-file")
    for url in management:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigError(f"--management {url!r} is no http or https URL; --broker is the URL for clients")
    given: dict[str, Any] = {
        "nodes": [*_nodes(management, token_files), *({"instance": str(each.resolve())} for each in instance)],
        "broker": broker,
        "user": user,
        "password": None if password_file is None else password_file.read_text().split("\n", 1)[0],
        "ca": None if ca is None else str(ca.resolve()),
    }
    found = read_contexts(os.environ)
    found["contexts"][name] = {key: value for key, value in given.items() if value is not None}
    if use:
        found["used"] = name
    write_contexts(os.environ, found)
    echo(f"context {name} written to {contexts_file(os.environ)}{', and used from now on' if use else ''}")


def _nodes(urls: Sequence[str], token_files: Sequence[Path]) -> list[dict[str, str]]:
    """The nodes of URLs, with their tokens. Raises UsageError: there are more or fewer tokens than URLs."""
    tokens = [each.read_text(encoding="utf-8").strip() for each in token_files]
    if len(tokens) == 1:
        tokens *= len(urls)
    if len(tokens) not in (0, len(urls)) or (token_files and not urls):
        raise click.UsageError(
            f"{len(token_files)} --token-file for {len(urls)} --management: give one, or one for each"
        )
    if not tokens:
        return [{"management": url} for url in urls]
    return [{"management": url, "token": token} for url, token in zip(urls, tokens, strict=True)]


@context.command("use")
@click.argument("name", required=False)
@click.option("--none", is_flag=True, help="Use no context.")
def use_context(name: str | None, none: bool) -> None:
    """Use the context NAME from now on. The variable UNDERSTUDY_CONTEXT names another one for a shell.

    \b
    Example: understudy context use east
    """
    if (name is None) != none:
        raise click.UsageError("give NAME or --none")
    found = read_contexts(os.environ)
    if name is not None and name not in found["contexts"]:
        raise ConfigError(f"there is no context {name!r}", hint="`understudy context list` shows them")
    write_contexts(os.environ, found | {"used": name})
    echo("no context is used" if name is None else f"context {name} is used")


@context.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove the context NAME with its secrets.

    \b
    Example: understudy context remove east
    """
    found = read_contexts(os.environ)
    if found["contexts"].pop(name, None) is None:
        raise ConfigError(f"there is no context {name!r}")
    write_contexts(os.environ, found | {"used": None if found["used"] == name else found["used"]})
    echo(f"context {name} removed")


@context.command("list")
@view_options(CONTEXTS)
def list_contexts(view: View) -> None:
    """Show the contexts without their secrets.

    \b
    Example: understudy context list
    """
    found = read_contexts(os.environ)
    used = os.environ.get(VARIABLE) or found["used"]
    rows = [
        {
            "name": name,
            "used": name == used,
            "nodes": [node.get("management") or node["instance"] for node in each["nodes"]],
            "broker": each.get("broker"),
            "user": each.get("user"),
            "secrets": [
                *(["token"] if any("token" in node for node in each["nodes"]) else []),
                *(["password"] if "password" in each else []),
            ],
        }
        for name, each in sorted(found["contexts"].items())
    ]
    view.rows(CONTEXTS, rows)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion of commands and options for a shell, to be evaluated by it.

    \b
    Example: understudy completion bash > ~/.local/share/bash-completion/completions/understudy
    """
    from understudy.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    echo(kind(cli, {}, "understudy", "_UNDERSTUDY_COMPLETE").source())
