"""The commands of the command line, found by walking it."""

from __future__ import annotations

from collections.abc import Iterator

import click


def leaves(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Each command with the words that call it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, f"{path} {name}".strip())
