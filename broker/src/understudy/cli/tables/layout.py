"""Widths of the columns of a table on a terminal: numbers keep theirs, names are shortened in the middle, sentences are
continued on the next line, and optional columns are left out last.

Widths are cells of the terminal: a wide character takes two. Not here: colours and output (``drawing``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len

from understudy.cli.tables.columns import Column, Kind

#: Cells between two columns.
GAP: Final = 2
#: A column of names has at least this width before an optional column is shown beside it.
_COMFORTABLE: Final = {Kind.NAME: 16, Kind.TEXT: 24}
#: Least width of a shortened name, and of a sentence on several lines.
_LEAST: Final = {Kind.NAME: 8, Kind.TEXT: 16}


def layout(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None) -> list[tuple[int, int]]:
    """Divide the width of a line among columns.

    Args:
        cells: Headings, then the texts of each row.
        width: Cells of a line; None: as many as the longest texts take, where there is no terminal.

    Returns:
        The shown columns by their indices, each with its width in cells. A line is longer than ``width`` only if the
        numbers and the shortest names do not fit.
    """
    natural = [max(cell_len(row[index]) for row in cells) for index in range(len(columns))]
    shown = list(range(len(columns)))
    if width is None:
        return list(enumerate(natural))
    while _total([_floor(columns[index], natural[index], _COMFORTABLE) for index in shown]) > width:
        optional = [index for index in shown if columns[index].optional]
        if not optional:
            break
        shown.remove(optional[-1])
    widths = _shrunk([columns[index] for index in shown], [natural[index] for index in shown], width)
    return list(zip(shown, widths, strict=True))


def shortened(text: str, width: int, ellipsis: str = "…") -> str:
    """The text in at most ``width`` cells: ``ellipsis``, which has one cell, replaces the characters in the middle."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return ellipsis[:width]
    tail = _fitting(reversed(text), (width - 1) // 2)[::-1]
    head = _fitting(text, width - 1 - cell_len(tail))
    return f"{head}{ellipsis}{tail}"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces after it, or before it if ``right``, so that it takes ``width`` cells."""
    spaces = " " * (width - cell_len(text))
    return spaces + text if right else text + spaces


def _fitting(characters: Iterable[str], width: int) -> str:
    """The first characters, up to a width."""
    taken, cells = list[str](), 0
    for each in characters:
        cells += cell_len(each)
        if cells > width:
            break
        taken.append(each)
    return "".join(taken)


def _floor(column: Column, natural: int, least: dict[Kind, int]) -> int:
    """Width below which a column is not shrunk. Numbers and headings keep theirs."""
    if column.kind.is_number:
        return natural
    return min(natural, max(least[column.kind], cell_len(column.heading)))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * max(0, len(widths) - 1)


def _shrunk(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """Widths after the widest column gave way as often as needed."""
    widths = list(natural)
    floors = [_floor(column, cells, _LEAST) for column, cells in zip(columns, natural, strict=True)]
    while (excess := _total(widths) - width) > 0:
        elastic = [index for index, cells in enumerate(widths) if cells > floors[index]]
        if not elastic:
            break
        widest = max(elastic, key=lambda index: widths[index])
        others = [widths[index] for index in elastic if index != widest]
        # down to the next narrower column, so that both give way alike afterwards
        step = max(1, widths[widest] - max(others, default=0))
        widths[widest] = max(floors[widest], widths[widest] - min(step, excess))
    return widths
