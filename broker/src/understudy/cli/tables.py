"""Consoles of rich for tables and progress: no control character of a name, and no markup in it, has an effect."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from understudy.texts import printable_lines

#: Columns of a table when the output is not a terminal: a pipe folds nothing.
PIPE_WIDTH: Final = 200


class SafeConsole(Console):
    """A console that replaces control characters in everything that it shows."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object as segments. Segments of control codes are those of the console itself."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)


def console(*, err: bool = False, file: TextIO | None = None, pipe_width: int = PIPE_WIDTH) -> Console:
    """A console as wide as its terminal, or wide where there is none.

    Args:
        file: Instead of standard output.
        pipe_width: Columns where there is no terminal.
    """
    if err:
        return SafeConsole(stderr=True, markup=False, highlight=False)
    output = sys.stdout if file is None else file
    return SafeConsole(file=file, width=None if output.isatty() else pipe_width, highlight=False, markup=False)
