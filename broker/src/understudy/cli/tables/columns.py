"""Declared tables: columns with name, title, kind and meaning, and the text of a value in one.

Not here: widths (``layout``) and output (``drawing``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.texts import printable
from understudy.units import format_bytes, format_duration_ms

#: One row: a JSON object, perhaps with further keys.
Row = Mapping[str, Any]

#: A cell without a value.
ABSENT: Final = "-"


class Kind(Enum):
    """Kind of the values of a column. A number, id, size or duration is never cut."""

    NUMBER = "number"
    ID = "id"
    """A number that names something; without separators, so that it can be given to another command."""
    NAME = "name"
    """A name, address or state; shortened in the middle where the terminal is narrow."""
    TEXT = "text"
    """A sentence; continued on the next line where the terminal is narrow."""
    BYTES = "bytes"
    DURATION = "duration"
    """A number of milliseconds."""

    @property
    def is_number(self) -> bool:
        """Whether values are aligned at their right end and keep their width."""
        return self in (Kind.NUMBER, Kind.ID, Kind.BYTES, Kind.DURATION)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    """Name in ``--columns``, ``--sort`` and ``--filter``; also the key of the value in a row."""
    kind: Kind
    doc: str
    """Meaning, for the help of the command."""
    title: str = ""
    """Heading of the column, if it is not the name."""
    value: Callable[[Row], object] | None = None
    """Makes the value from the row, where that has no such key."""
    optional: bool = False
    """Left out where the terminal has no space for all columns."""
    shown: bool = True
    """Whether the column is shown without ``--columns``."""

    @property
    def heading(self) -> str:
        """Text above the column."""
        return self.title or self.name.replace("_", " ")

    def of(self, row: Row) -> object:
        """The value of a row; None if it has none."""
        return row.get(self.name) if self.value is None else self.value(row)

    def text(self, row: Row, *, grouped: bool) -> str:
        """The value of a row on one line, without control characters.

        Args:
            grouped: Whether thousands are separated: for people, not for programs that read the output.
        """
        value = self.of(row)
        if value is None:
            return ABSENT
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, (int, float)):
            if self.kind is Kind.BYTES:
                return format_bytes(int(value))
            if self.kind is Kind.DURATION:
                return format_duration_ms(int(value))
            return f"{value:,}" if grouped and self.kind is not Kind.ID else str(value)
        if isinstance(value, (list, tuple)):
            return printable(", ".join(map(str, value))) or ABSENT
        return printable(str(value))


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a command prints."""

    name: str
    """Name in the option ``--table`` of a command with several tables."""
    columns: tuple[Column, ...]
    title: str = ""
    """Line above the table; a command may give another one."""

    def column(self, name: str) -> Column:
        """The column of a name; ``-`` and ``_`` are the same. KeyError if there is none."""
        wanted = name.strip().replace("-", "_")
        for each in self.columns:
            if each.name == wanted:
                return each
        raise KeyError(name.strip())
