"""Filtered, sorted pages of rows: the options in JSON of ``listQueues`` and similar operations.

``{"field", "operation", "value", "sortField" or "sortColumn", "sortOrder"}``, as the Artemis console
and command line send them. Pages count from 1; a page or page size of -1 means everything. Numbers
compare as numbers; CONTAINS is for text only, GREATER_THAN and LESS_THAN for numbers only, as in
Artemis. Fields are named by their JSON name or its upper-case form (``messageCount``, ``MESSAGE_COUNT``).

Invariant: a row is a mapping of JSON names to plain values; a value that is written as text in the answer
(``as_text``) is still compared by its type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ManagementError
from understudy.management.json_text import parse_json

Row = Mapping[str, object]

OPERATIONS: Final = ("CONTAINS", "NOT_CONTAINS", "EQUALS", "NOT_EQUALS", "GREATER_THAN", "LESS_THAN")


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


def accepts(options: Options, row: Row) -> bool:
    """Whether a row passes the filter."""
    if not options.field or not options.operation:
        return True
    return _COMPARE[options.operation](row[options.field], options.value)


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
    rows: Iterable[Row],
    options: str | None,
    page: int,
    page_size: int,
    fields: Iterable[str],
    *,
    sort: str = "name",
    texts: bool = True,
) -> str:
    """The answer: ``{"data": [...], "count": n}``, where n is the number of rows that pass the filter.

    Args:
        rows: All rows.
        options: The options in JSON.
        page: Number of the page, from 1.
        page_size: Rows of a page.
        fields: Names that every row has.
        sort: Default field for sorting.
        texts: Write every value as text, as Artemis does for queues and addresses.

    Raises:
        ManagementError: invalid options or page.
    """
    if page < -1 or page_size < -1:
        raise ManagementError(f"page {page} of {page_size}: pages count from 1, -1 = everything")
    chosen = parse_options(options, fields, sort)
    found = [row for row in rows if accepts(chosen, row)]
    found.sort(key=lambda row: _sort_key(row[chosen.sort_field]), reverse=chosen.descending)
    count = len(found)
    if page == 0:
        # a page before the first is empty, as in Artemis
        found = []
    elif page > 0 and page_size >= 0:
        found = found[(page - 1) * page_size : page * page_size]
    return to_json({"data": [as_text(row) for row in found] if texts else found, "count": count})


def _sort_key(value: object) -> tuple[int, int, str]:
    if isinstance(value, int):
        return (0, value, "")
    return (1, 0, _text(value))


def as_text(row: Row) -> dict[str, object]:
    """The row with every value as text, as in the views of Artemis."""
    return {name: _text(value) for name, value in row.items()}


def to_json(value: object) -> str:
    """Compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
