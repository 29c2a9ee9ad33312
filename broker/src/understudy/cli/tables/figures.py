"""Columns from the model of management: meaning and kind of a figure are declared there, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from understudy.cli.tables.columns import Column, Kind, Row
from understudy.management.model.figure import base_types, figures

_KINDS: Final = {"bytes": Kind.BYTES, "ms": Kind.DURATION}


def figure_column(
    model: type[Struct],
    name: str,
    title: str = "",
    *,
    kind: Kind | None = None,
    value: Callable[[Row], object] | None = None,
    optional: bool = False,
    shown: bool = True,
) -> Column:
    """The column of a field of the model.

    Args:
        model: Kind of the rows.
        name: Name of the field.
        title: Heading, if it is not the name.
        kind: Kind of the values, if it does not follow from the field: a sentence.
        value: Makes another value from the row.
        optional: Whether the column is left out where the terminal has no space.
        shown: Whether the column is shown without ``--columns``.
    """
    figure = figures(model)[name]
    if kind is None:
        numbers = base_types(figure.type) & {int, float}
        number = Kind.ID if name == "id" or name.endswith("_id") else Kind.NUMBER
        kind = _KINDS.get(figure.unit or "", number) if numbers else Kind.NAME
    return Column(name, kind, figure.doc, title, value, optional, shown)


def figure_texts(model: type[Struct], row: Row, *, grouped: bool) -> dict[str, str]:
    """The text of each figure of one object, by its name for people.

    Args:
        grouped: Whether thousands are separated: for people, not for programs that read the output.
    """
    columns = [figure_column(model, name) for name in figures(model)]
    return {each.heading: each.text(row, grouped=grouped) for each in columns}


def with_others(model: type[Struct], *columns: Column) -> tuple[Column, ...]:
    """The columns, and those of the other fields of the model, which are shown when they are named."""
    named = {each.name for each in columns}
    others = (figure_column(model, name, shown=False) for name in figures(model) if name not in named)
    return *columns, *others
