"""Lines that commands print: none with a control character of a name. Tables are in ``tables``."""

from __future__ import annotations

import click

from understudy.texts import printable_lines


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text.

    Args:
        text: One or more lines. JSON passes unchanged, because it escapes such characters itself.
        err: To standard error.
        nl: With a line end after it.
    """
    click.echo(printable_lines(str(text)), err=err, nl=nl)
