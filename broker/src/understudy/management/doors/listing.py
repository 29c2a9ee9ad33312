"""Filtered, sorted pages of rows: the options in JSON of ``listQueues`` and similar operations.

``{"field", "operation", "value", "sortField" or "sortColumn", "sortOrder"}``, as the Artemis console
and command line send them. Pages count from 1; a page or page size of -1 means everything. Numbers
compare as numbers; CONTAINS is for text only, GREATER_THAN and LESS_THAN for numbers only, as in
Artemis. Fields are named by their JSON name or its upper-case form (``messageCount``, ``MESSAGE_COUNT``).

Invariant: a row is a mapping of JSON names to plain values; a value that is written as text in the answer
(``as_text``) is still compared by its type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import ManagementError
from understudy.management.doors.artemis import Column
from understudy.management.json_text import parse_json, to_json
from understudy.management.snapshot.rows import STEP_ITEMS, Rows, select

Row = Mapping[str, object]

OPERATIONS: Final = ("CONTAINS", "NOT_CONTAINS", "EQUALS", "NOT_EQUALS", "GREATER_THAN", "LESS_THAN")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page that a client asks for."""

    options: str | None
    """Filter and order, in JSON."""
    page: int
    """Number of the page, from 1."""
    size: int
    """Rows of a page."""


@dataclass(frozen=True, slots=True)
class Options:
    """Parsed options; an empty text means that an option is not given."""

    field: str = ""
    operation: str = ""
    value: str = ""
    sort_field: str = ""
    descending: bool = False


def parse_options(text: str | None, fields: Iterable[str], default_sort: str) -> Options:
    """Parse options in JSON; null or blank means no options.

    Raises:
        ManagementError: not a JSON object of strings, or it names an unknown field or operation.
    """
    if text is None or not text.strip():
        return Options(sort_field=default_sort)
    try:
        given = parse_json(text)
    except ValueError as error:
        raise ManagementError(f"the options cannot be used: {error}") from error
    if not isinstance(given, dict):
        raise ManagementError("the options are not a JSON object")
    texts = {key: value for key, value in given.items() if isinstance(value, str)}
    operation = texts.get("operation", "")
    if operation and operation not in OPERATIONS:
        raise ManagementError(f"unknown filter operation {operation!r}: {', '.join(OPERATIONS)}")
    known = {_plain(name): name for name in fields}
    sort = texts.get("sortColumn") or texts.get("sortField") or ""
    return Options(
        _field(known, texts.get("field", "")),
        operation,
        texts.get("value", ""),
        _field(known, sort) if sort and "sortOrder" in texts else default_sort,
        texts.get("sortOrder", "asc").lower() == "desc",
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _field(known: Mapping[str, str], name: str) -> str:
    if not name:
        return ""
    found = known.get(_plain(name))
    if found is None:
        raise ManagementError(f"unknown field {name!r}: {', '.join(sorted(known.values()))}")
    return found


def _equals(value: object, wanted: str) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) == wanted.strip()
    return _text(value) == wanted


def _contains(value: object, wanted: str) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return False
    return wanted in _text(value)


def _ordered(better: Callable[[int, int], bool]) -> Callable[[object, str], bool]:
    def compare(value: object, wanted: str) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        try:
            return better(value, int(wanted))
        except ValueError:
            return False

    return compare


_COMPARE: Final[Mapping[str, Callable[[object, str], bool]]] = {
    "CONTAINS": _contains,
    "NOT_CONTAINS": lambda value, wanted: not _contains(value, wanted),
    "EQUALS": _equals,
    "NOT_EQUALS": lambda value, wanted: not _equals(value, wanted),
    "GREATER_THAN": _ordered(lambda value, wanted: value > wanted),
    "LESS_THAN": _ordered(lambda value, wanted: value < wanted),
}


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def page_of(
    rows: Rows[Any],
    columns: Mapping[str, Column],
    request: PageRequest,
    *,
    sort: str = "name",
    texts: bool = True,
) -> Generator[None, None, str]:
    """The answer: ``{"data": [...], "count": n}``, where n is the number of rows that pass the filter.

    Args:
        rows: All rows.
        columns: The columns of the list.
        request: The wanted page.
        sort: Default column for sorting.
        texts: Write every value as text, as Artemis does for queues and addresses.

    Raises:
        ManagementError: invalid options or page.
    """
    page, size = request.page, request.size
    if page < -1 or size < -1:
        raise ManagementError(f"page {page} of {size}: pages count from 1, -1 = everything")
    chosen = parse_options(request.options, columns, sort)
    return _page_of(rows, columns, request, chosen, texts=texts)


def _page_of(
    rows: Rows[Any], columns: Mapping[str, Column], request: PageRequest, chosen: Options, *, texts: bool
) -> Generator[None, None, str]:
    start, count = 0, None
    if request.page == 0:
        # a page before the first is empty, as in Artemis
        count = 0
    elif request.page > 0 and request.size >= 0:
        start, count = (request.page - 1) * request.size, request.size
    wanted = None
    if chosen.field and chosen.operation:
        compare, filtered = _COMPARE[chosen.operation], columns[chosen.field]
        wanted = lambda source: compare(filtered.read(rows, source), chosen.value)  # noqa: E731  # None or this
    key = columns[chosen.sort_field]
    found, total = yield from select(
        rows.sources,
        wanted,
        lambda source: key.read(rows, source),
        descending=chosen.descending,
        start=start,
        count=count,
    )
    written: list[str] = []
    for number, source in enumerate(found):
        if number and not number % STEP_ITEMS:
            yield
        row = {name: column.read(rows, source) for name, column in columns.items()}
        written.append(to_json(as_text(row) if texts else row))
    return '{"data":[' + ",".join(written) + f'],"count":{total}}}'


def as_text(row: Row) -> dict[str, object]:
    """The row with every value as text, as in the views of Artemis."""
    return {name: _text(value) for name, value in row.items()}
