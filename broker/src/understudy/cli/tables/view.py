"""Options of commands that print tables: JSON, columns, order, conditions and repetition.

A command declares its tables (``columns``), has the decorator ``view_options`` and gives its rows to the ``View`` that
the decorator hands to it.
"""

from __future__ import annotations

import difflib
import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Final, TypeVar

import click

from understudy.cli.tables.columns import Column, Row, Table
from understudy.cli.tables.conditions import Condition, parse_condition, sort_key
from understudy.cli.tables.drawing import Page
from understudy.cli.terminal import echo
from understudy.dataclass import dataclass
from understudy.errors import Unreachable

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Period of ``--watch`` without a number.
_WATCH_S: Final = "2"

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


@dataclass(frozen=True, slots=True)
class View:
    """The chosen form of the output of a command."""

    as_json: bool = False
    columns: tuple[str, ...] | None = None
    """Names of the wanted columns; None: all that have space. ``all`` is every one."""
    order: tuple[str, ...] = ()
    """Names of columns to sort by; with ``-`` in front, the greatest first."""
    conditions: tuple[Condition, ...] = ()
    watch_s: float | None = None
    table: str | None = None
    """The only table that is wanted."""
    pause: Callable[[float], None] = time.sleep
    output: Page | None = None
    """Page that is written instead of standard output."""

    @property
    def page(self) -> Page:
        """Page that is written."""
        return Page() if self.output is None else self.output

    def rows(
        self,
        table: Table,
        rows: Sequence[Row],
        *,
        shape: Callable[[list[Row]], object] | None = None,
        title: str | None = None,
        style: Callable[[Row], str] | None = None,
        lines: bool = False,
        limit: int | None = None,
    ) -> None:
        """Print the rows that are wanted, in their order.

        Args:
            table: The declaration of the rows.
            rows: All of them.
            shape: The JSON value around the rows; None: it is a list of them.
            title: Line above the table; None: its own.
            style: Style of a row.
            lines: Whether JSON is one object per line instead of a list.
            limit: Number of rows that are shown at most, after they are in their order; None: all.
        """
        chosen = self._chosen(table, rows)[:limit]
        if self.as_json:
            found = chosen if self.columns is None else [self._object(table, row) for row in chosen]
            if lines:
                for each in found:
                    echo(json.dumps(each))
            else:
                self.value(found if shape is None else shape(list(found)))
            return
        styles = {} if style is None else {number: style(row) for number, row in enumerate(chosen)}
        above = table.title if title is None else title
        columns = self._columns(table)
        hidden = self.page.table(columns, chosen, title=above, style_of=styles, all_columns=self.columns is not None)
        # a page that is drawn again and again has no place for it
        if hidden and self.output is None:
            echo(f"no space for {', '.join(hidden)}: give --columns, or a wider terminal", err=True)

    def value(self, found: object) -> None:
        """Print a JSON value; on one line where it is repeated."""
        echo(json.dumps(found, indent=2 if self.watch_s is None else None))

    def figures(self, figures: Mapping[str, str], *, title: str = "", styles: Mapping[str, str] | None = None) -> None:
        """Print names with their values."""
        self.page.figures(figures, title=title, styles=styles)

    def repeat(self, show: Callable[[], T]) -> T | None:
        """Show once, or with ``--watch`` until the user interrupts.

        Args:
            show: Asks for the values and prints them. While a node does not answer, ``--watch`` says so and goes on.

        Returns:
            What the last call returned; None if it failed.
        """
        if self.watch_s is None:
            return show()
        found: T | None = None
        try:
            while True:
                if not self.as_json:
                    self.page.clear()
                try:
                    found = show()
                except Unreachable as error:
                    found = None
                    echo(f"understudy: {error}", err=True)
                self.pause(self.watch_s)
        except KeyboardInterrupt:
            return found

    def _chosen(self, table: Table, rows: Sequence[Row]) -> list[Row]:
        chosen = [row for row in rows if all(holds(row) for holds in self.conditions)]
        for name in reversed(self.order):
            column = table.column(name.removeprefix("-"))
            chosen.sort(key=partial(_place_in, column), reverse=name.startswith("-"))
        return chosen

    def _columns(self, table: Table) -> tuple[Column, ...]:
        if self.columns is None:
            return tuple(each for each in table.columns if each.shown)
        if self.columns == ("all",):
            return table.columns
        return tuple(table.column(name) for name in self.columns)

    def _object(self, table: Table, row: Row) -> dict[str, object]:
        return {column.name: column.of(row) for column in self._columns(table)}


def view_options(*tables: Table, watch: bool = False, conditions: bool = True) -> Callable[[F], F]:
    """The options of a command that prints tables or figures; the command gets a ``View`` as the argument ``view``.

    Args:
        tables: All that it can print; none if it prints figures only. With several there is an option that chooses one.
        watch: Whether its values change while it runs.
        conditions: Whether there is a ``--filter``; a command that has its own gives False.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def with_view(*args: Any, **options: Any) -> Any:
            return command(*args, view=_view(tables, options), **options)

        for option in reversed(_options(tables, watch=watch, conditions=conditions)):
            with_view = option(with_view)
        with_view.__doc__ = "\n\n".join([inspect.cleandoc(command.__doc__ or ""), *_help(tables)])
        # decorators around this one copy it, so a command knows its tables
        with_view.__dict__["tables"] = tables
        return with_view  # type: ignore[return-value]  # click adds options to the function and returns it

    return decorate


def _options(tables: Sequence[Table], *, watch: bool, conditions: bool) -> list[Callable[..., Any]]:
    options: list[Callable[..., Any]] = []
    if watch:
        kind = click.FloatRange(0.1, 3600)
        options.append(
            click.option(
                "--watch", is_flag=False, flag_value=_WATCH_S, type=kind, metavar="[SECONDS]",
                help=f"Repeat until interrupted; every {_WATCH_S} s without a number.",
            )
        )  # fmt: skip
    if not tables:
        return [*options, json_option]
    if len(tables) > 1:
        names = click.Choice([each.name for each in tables])
        options.append(click.option("--table", type=names, help="Only this one; --columns, --sort, --filter need it."))
    options += [
        click.option("--columns", metavar="NAMES", help="Only these columns, as in name,state; all: every column."),
        click.option("--sort", metavar="NAMES", help="Sort by these columns; -NAME: the greatest first."),
    ]
    if conditions:
        text = "Only rows with NAME=VALUE (* is any text), NAME!=VALUE, NAME>NUMBER, NAME<NUMBER or TEXT; repeatable."
        options.append(click.option("--filter", "filters", metavar="CONDITION", multiple=True, help=text))
    return [*options, json_option]


def _help(tables: Sequence[Table]) -> Iterator[str]:
    """Paragraphs of the help that name the columns of the tables."""
    for table in tables:
        title = f"Columns of {table.name}:" if len(tables) > 1 else "Columns:"
        width = max(len(each.name) for each in table.columns)
        yield "\n".join(["\b", title, *(f"  {each.name:{width}}  {each.doc}" for each in table.columns)])


def _view(tables: Sequence[Table], options: dict[str, Any]) -> View:
    """The view of the options, which are taken out of ``options``. Raises UsageError: a column does not exist."""
    chosen, columns, order = options.pop("table", None), options.pop("columns", None), options.pop("sort", None)
    filters = options.pop("filters", ())
    wanted = [each for each in tables if chosen in (None, each.name)]
    if len(wanted) > 1 and (columns not in (None, "all") or order or filters):
        raise click.UsageError(f"--columns, --sort and --filter need --table: {', '.join(e.name for e in tables)}")
    try:
        return View(
            as_json=options.pop("as_json"),
            columns=_columns(columns, wanted),
            order=_order(order, wanted),
            conditions=tuple(parse_condition(each, wanted[0]) for each in filters),
            watch_s=options.pop("watch", None),
            table=chosen,
        )
    except KeyError as error:
        name, known = error.args[0], [each.name for each in wanted[0].columns]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise click.UsageError(f"there is no column {name!r}: {hint}") from None


def _columns(text: str | None, tables: Sequence[Table]) -> tuple[str, ...] | None:
    """Names of the wanted columns; None: those that have space. Raises KeyError: there is none of a name."""
    if text is None or text == "all":
        return None if text is None else (text,)
    return tuple(tables[0].column(name).name for name in text.split(","))


def _order(text: str | None, tables: Sequence[Table]) -> tuple[str, ...]:
    """Names of columns to sort by, ``-`` in front of those with the greatest first. Raises KeyError."""
    names = [] if text is None else [name.strip() for name in text.split(",")]
    return tuple(f"{name[: name.startswith('-')]}{tables[0].column(name.removeprefix('-')).name}" for name in names)


def _place_in(column: Column, row: Row) -> tuple[int, float, str]:
    """The place of a row in the order of a column."""
    return sort_key(column.of(row))
