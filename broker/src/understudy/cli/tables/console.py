"""Consoles of rich for tables and progress: no control character of a name, and no markup in it, has an effect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from understudy.texts import printable_lines


class SafeConsole(Console):
    """A console that replaces control characters in everything that it shows."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object as segments. Segments of control codes are those of the console itself."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)


def console(*, err: bool = False, file: TextIO | None = None, width: int | None = None) -> Console:
    """A console for standard output, standard error (``err``) or a file.

    Args:
        width: Cells of a line of the terminal that shows the file later; None: that of the file.
    """
    terminal = None if width is None else True
    return SafeConsole(stderr=err, file=file, width=width, force_terminal=terminal, highlight=False, markup=False)
