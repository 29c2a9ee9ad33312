"""Paths as arguments and options of commands."""

from __future__ import annotations

import os
from typing import Any

import click

from understudy.errors import ConfigError
from understudy.local_paths import local_path


class LocalPath(click.Path):
    """A path on this host, or a ``file:`` URL of one; URLs of other schemes are refused (exit code 2)."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path, checked."""
        if isinstance(value, str):
            try:
                value = local_path(value, "it is a URL")
            except ConfigError as error:
                self.fail(str(error).removeprefix("it is a URL: "), param, ctx)
        return super().convert(value, param, ctx)


def with_local_paths(command: click.Command) -> click.Command:
    """The command, whose parameters of type ``click.Path``, and those of its subcommands, take local paths only."""
    for parameter in command.params:
        if isinstance(parameter.type, click.Path) and not isinstance(parameter.type, LocalPath):
            parameter.type = _local(parameter.type)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_local_paths(each)
    return command


def _local(given: click.Path) -> LocalPath:
    options: dict[str, Any] = {
        name: getattr(given, name)
        for name in ("exists", "file_okay", "dir_okay", "writable", "readable", "resolve_path", "allow_dash")
    }
    return LocalPath(**options, executable=given.executable, path_type=given.type)
