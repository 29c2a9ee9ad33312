"""Conditions of ``--filter``, and the order of ``--sort``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Final

import click

from understudy.cli.tables.columns import Column, Kind, Row, Table
from understudy.units import parse_bytes, parse_duration_ms

#: Whether a row is wanted.
Condition = Callable[[Row], bool]

_CONDITION: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_ORDERED: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def parse_condition(text: str, table: Table) -> Condition:
    """The condition of an option.

    Raises:
        KeyError: there is no such column.
        UsageError: the value is no number, size or duration.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        return lambda row: any(text in each.text(row, grouped=False) for each in table.columns)
    name, sign, value = match.groups()
    column = table.column(name)
    if sign in ("=", "!="):
        pattern = re.compile(".*".join(map(re.escape, value.split("*"))), re.DOTALL)
        return lambda row: _equals(column, row, pattern) is (sign == "=")
    try:
        limit = _number(column, value)
    except ValueError as error:
        raise click.UsageError(f"--filter {text!r}: {error}") from None
    compare = _ORDERED[sign]
    return lambda row: _is_number(found := column.of(row)) and compare(float(str(found)), limit)


def sort_key(value: object) -> tuple[int, float, str]:
    """Order of values: nothing, then numbers by size, then names."""
    if value is None:
        return 0, 0, ""
    return (1, float(str(value)), "") if _is_number(value) else (2, 0, str(value))


def _equals(column: Column, row: Row, pattern: re.Pattern[str]) -> bool:
    """Whether the value has the pattern, as it is shown or as it is in JSON."""
    value = column.of(row)
    shown = column.text(row, grouped=False)
    return any(pattern.fullmatch(each) for each in (shown, "" if value is None else str(value)))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(column: Column, text: str) -> float:
    """A number; a size such as ``10MiB`` or a duration such as ``5s`` where the column has such values."""
    if column.kind is Kind.BYTES:
        return parse_bytes(text)
    if column.kind is Kind.DURATION:
        return parse_duration_ms(text)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
