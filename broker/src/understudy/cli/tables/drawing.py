"""Tables and figures on a terminal, or as plain lines where there is none.

On a terminal a table fits its width, and thousands are separated. Where there is none, each row is one line with every
name whole, and a number is its digits. Rich writes both: it knows terminals, colours and the widths of characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from understudy.cli.tables.columns import Column, Kind, Row
from understudy.cli.tables.console import console
from understudy.cli.tables.layout import GAP, layout, padded, shortened
from understudy.texts import printable


class Page:
    """Output of a command: tables, figures and lines."""

    def __init__(self, file: TextIO | None = None, width: int | None = None) -> None:
        """Args:
        file: Instead of standard output.
        width: Cells of a line of the terminal that shows the file later; None: the file itself is asked.
        """
        self._is_terminal = width is not None
        self._console = console(file=file, width=width)
        self._ellipsis = "~" if self._console.options.ascii_only else "…"

    @property
    def is_terminal(self) -> bool:
        """Whether the output is a terminal."""
        return self._is_terminal or self._console.file.isatty()

    def clear(self) -> None:
        """Begin at the top again; an empty line where there is no terminal."""
        if self.is_terminal:
            self._console.clear()
        else:
            self.line()

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line; one that is longer than the terminal is not divided here."""
        self._out(printable(text), style or None)

    def sentence(self, text: str, style: str = "") -> None:
        """Print a text of any length; on a terminal it is divided between words."""
        self._out("\n".join(self._wrapped(printable(text), self._width)), style or None)

    def table(
        self,
        columns: Sequence[Column],
        rows: Sequence[Row],
        *,
        title: str = "",
        style_of: Mapping[int, str] | None = None,
        all_columns: bool = False,
    ) -> list[str]:
        """Print a table.

        Args:
            columns: Columns in their order.
            rows: Values.
            title: Line above it.
            style_of: Styles of rows by their indices.
            all_columns: Whether optional columns are shown in any case.

        Returns:
            Names of optional columns that had no space.
        """
        cells = [[each.heading for each in columns]]
        cells += [[each.text(row, grouped=self.is_terminal) for each in columns] for row in rows]
        if all_columns:
            columns = [replace(each, optional=False) for each in columns]
        placed = layout(columns, cells, self._width)
        if title:
            self.sentence(title, "bold")
        styles = {0: "bold"} | {index + 1: style for index, style in (style_of or {}).items()}
        same = list[str]()
        style = styles.get(0)
        for number, row in enumerate(cells):
            # lines of one style are written together, which is much faster
            if styles.get(number) != style:
                self._out("\n".join(same), style)
                same, style = [], styles.get(number)
            parts = [self._lines(columns[index], row[index], width) for index, width in placed]
            for line in zip_longest(*parts, fillvalue=""):
                shown = [
                    padded(text, width, right=columns[index].kind.is_number)
                    for text, (index, width) in zip(line, placed, strict=True)
                ]
                same.append((" " * GAP).join(shown).rstrip())
        self._out("\n".join(same), style)
        visible = {index for index, _ in placed}
        return [each.name for index, each in enumerate(columns) if index not in visible]

    def figures(self, figures: Mapping[str, str], *, title: str = "", styles: Mapping[str, str] | None = None) -> None:
        """Print names with their values, one below the other; a long value is continued on the next line.

        Args:
            figures: Values by names; a name may begin with spaces.
            title: Line above them.
            styles: Styles of values, by name.
        """
        if title:
            self.sentence(title, "bold")
        names = max((cell_len(printable(name)) for name in figures), default=0)
        room = None if self._width is None else max(1, self._width - names - GAP)
        for name, value in figures.items():
            heading = padded(printable(name), names + GAP)
            for line in self._wrapped(printable(value), room):
                self._console.out(heading, style="bold", highlight=False, end="")
                self._out(line, (styles or {}).get(name))
                heading = " " * (names + GAP)

    @property
    def _width(self) -> int | None:
        return self._console.width if self.is_terminal else None

    def _lines(self, column: Column, text: str, width: int) -> list[str]:
        """The text of a cell in its width."""
        if column.kind is Kind.TEXT:
            return self._wrapped(text, width)
        return [shortened(text, width, self._ellipsis)]

    def _wrapped(self, text: str, width: int | None) -> list[str]:
        """The lines of a sentence, divided between words where they fit."""
        if width is None or cell_len(text) <= width:
            return [text]
        return [line.plain.rstrip() for line in Text(text).wrap(self._console, width, overflow="fold")]

    def _out(self, line: str, style: str | None) -> None:
        self._console.out(line, style=style, highlight=False)
