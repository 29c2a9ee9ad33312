"""Lines that commands print, without control characters of names, and the help of groups of commands. Tables are in
``tables``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import click

from understudy.texts import printable_lines

#: Characters of the first sentence of a command's help that are shown: all of any.
_WHOLE_SENTENCE: Final = 1000
#: Similar names in an error.
_NAMED_MAX: Final = 3


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text.

    Args:
        text: One or more lines. JSON passes unchanged, because it escapes such characters itself.
        err: To standard error.
        nl: Whether a line end follows.
    """
    click.echo(printable_lines(str(text)), err=err, nl=nl)


class Commands(click.Group):
    """A group whose help shows the first sentence of each command whole, and whose errors name similar commands."""

    sections: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Title of a section of the help to the names of its commands; commands in none come last."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names.

        Raises:
            click.UsageError: there is none; the error names similar ones.
        """
        name = args[0]
        names = self.list_commands(ctx)
        if name in names or name[:1] == "-":
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name.lower(), names, n=_NAMED_MAX, cutoff=0.55)
        near = near or [each for each in names if name and each.startswith(name.lower())][:_NAMED_MAX]
        text = f"there is no command {name[:100]!r}"
        if near:
            text += f"; did you mean {' or '.join(near)}?"
        raise click.UsageError(text, ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the first sentence of its help, in sections."""
        known = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = {
            name: command.get_short_help_str(_WHOLE_SENTENCE)
            for name, command in known.items()
            if command is not None and not command.hidden
        }
        sections = {title: [name for name in names if name in rows] for title, names in self.sections.items()}
        placed = {name for names in sections.values() for name in names}
        sections["Other commands" if placed else "Commands"] = [name for name in rows if name not in placed]
        width = max(map(len, rows), default=0)
        for title, names in sections.items():
            if names:
                with formatter.section(title):
                    formatter.write_dl([(f"{name:{width}}", rows[name]) for name in names])
