"""Pages of rows: filters, order, and options that cannot be understood."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import Any

import pytest

from support.slices import finish
from understudy.errors import ManagementError
from understudy.management.doors.artemis import Column
from understudy.management.doors.listing import PageRequest, page_of
from understudy.management.model.queues import Queue
from understudy.management.snapshot.rows import Rows

ROWS: list[dict[str, object]] = [
    {"name": f"q{number}", "messageCount": number, "durable": number % 2 == 0, "filter": ""} for number in range(12)
]


COLUMNS = {name: Column(name, lambda value: value) for name in ROWS[0]}


def shown(rows: list[dict[str, object]], *request: Any, **more: bool) -> Any:
    readers = {name: itemgetter(name) for name in ROWS[0]}
    return json.loads(finish(page_of(Rows(Queue, rows, readers), COLUMNS, PageRequest(*request), **more)))


def names(options: str | None = None, page: int = -1, size: int = -1) -> tuple[list[str], int]:
    answer = shown(ROWS, options, page, size)
    return [row["name"] for row in answer["data"]], answer["count"]


def options(**given: Any) -> str:
    return json.dumps({"field": "", "operation": "", "value": "", **given})


@pytest.mark.parametrize("nothing", [None, "", "  ", options()])
def test_without_options_everything_by_name(nothing: str | None) -> None:
    found, count = names(nothing)
    assert count == 12
    assert found == sorted(f"q{number}" for number in range(12))


@pytest.mark.parametrize(
    ("field", "operation", "value", "expected"),
    [
        ("name", "CONTAINS", "q1", ["q1", "q10", "q11"]),
        ("NAME", "EQUALS", "q1", ["q1"]),
        ("name", "NOT_CONTAINS", "q", []),
        ("messageCount", "GREATER_THAN", "9", ["q10", "q11"]),
        ("MESSAGE_COUNT", "LESS_THAN", "2", ["q0", "q1"]),
        ("messageCount", "EQUALS", "3", ["q3"]),
        ("messageCount", "CONTAINS", "3", []),
        ("messageCount", "GREATER_THAN", "many", []),
        ("name", "GREATER_THAN", "q5", []),
        ("durable", "EQUALS", "true", ["q0", "q10", "q2", "q4", "q6", "q8"]),
        ("filter", "NOT_EQUALS", "", []),
    ],
)
def test_filters(field: str, operation: str, value: str, expected: list[str]) -> None:
    found, count = names(options(field=field, operation=operation, value=value))
    assert found == expected
    assert count == len(expected)


def test_order_and_pages() -> None:
    by_count = options(sortColumn="messageCount", sortOrder="desc")
    assert names(by_count, 1, 3) == (["q11", "q10", "q9"], 12)
    assert names(by_count, 4, 3) == (["q2", "q1", "q0"], 12)
    assert names(by_count, 5, 3) == ([], 12)
    assert names(by_count, 1, 0) == ([], 12)


def test_values_are_texts_as_artemis_has_them() -> None:
    answer = shown(ROWS[:1], None, 1, 1)
    assert answer["data"] == [{"name": "q0", "messageCount": "0", "durable": "true", "filter": ""}]
    answer = shown(ROWS[:1], None, 1, 1, texts=False)
    assert answer["data"] == ROWS[:1]


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        "7",
        "[" * 100_000,
        options(operation="LIKE", field="name"),
        options(field="secret", operation="EQUALS"),
    ],
)
def test_options_that_cannot_be_understood(bad: str) -> None:
    with pytest.raises(ManagementError):
        names(bad)


@pytest.mark.parametrize(("page", "size"), [(-2, 5), (1, -2)])
def test_pages_that_do_not_exist(page: int, size: int) -> None:
    with pytest.raises(ManagementError, match="pages count from 1"):
        names(None, page, size)
