"""The table of operations: look-up by name and parameters, and the errors of unknown requests."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import pytest

from understudy.errors import ManagementError
from understudy.management.operations.declared import declared
from understudy.management.operations.table import (
    FROM_CALL,
    Operations,
    flag,
    integer,
    long,
    mapping,
    operation,
    text,
    type_text,
)
from understudy.terms import Permission

ROWS = Operations(
    "thing",
    "A thing.",
    [
        operation("getSize", lambda control: 1, "Size."),
        operation("isPaused", lambda control: False, "Paused."),
        operation("getout", lambda control: None, "No attribute: it goes on with a small letter."),
        operation("move", lambda control, name: "text", "By name.", text("name")),
        operation("move", lambda control, number: "int", "By number.", integer("number")),
        operation("move", lambda control, name, force: "both", "Both.", text("name", nullable=True), flag("force")),
        operation("touch", lambda control, number, values: "", "Long and map.", long("number"), mapping("values")),
    ],
)


@pytest.mark.parametrize(
    ("values", "expected"),
    [(["a"], "text"), ([3], "int"), (["a", True], "both"), ([None, False], "both")],
)
def test_overloads_go_by_number_and_type(values: list[object], expected: str) -> None:
    assert ROWS.find("move", values).call(None, *values) == expected


@pytest.mark.parametrize("values", [[], [None], [True], [1.5], ["a", 1], ["a", None], [2**31], [[1]]])
def test_the_error_of_wrong_parameters_lists_the_forms(values: list[object]) -> None:
    with pytest.raises(ManagementError, match=r"'move' does not take .*move\(String name\), move\(int number\)"):
        ROWS.find("move", values)


def test_long_and_map() -> None:
    assert ROWS.find("touch", [2**31, None])
    assert ROWS.find("touch", [-(2**63), {"a": "b"}])
    with pytest.raises(ManagementError):
        ROWS.find("touch", [2**63, {}])


@pytest.mark.parametrize("name", ["remove", "__init__", "find", "", "moveX"])
def test_an_unknown_operation_is_named(name: str) -> None:
    with pytest.raises(ManagementError, match=f"no operation {name!r} on thing"):
        ROWS.find(name, [])


def test_attributes_are_getters_without_parameters() -> None:
    assert ROWS.find_attribute("Size").name == "getSize"
    assert ROWS.find_attribute("size").name == "getSize"
    assert ROWS.find_attribute("Paused").name == "isPaused"
    for name in ("Out", "out", "move", "", "getSize"):
        with pytest.raises(ManagementError, match="no attribute"):
            ROWS.find_attribute(name)


def test_reading_operations_need_view_and_all_others_edit() -> None:
    assert ROWS.find("getSize", []).permission() is Permission.VIEW
    assert ROWS.find("isPaused", []).permission() is Permission.VIEW
    assert ROWS.find("move", ["a"]).permission() is Permission.EDIT


def test_which_operations_are_views_is_configurable() -> None:
    views = re.compile("move|get.*")
    assert ROWS.find("move", ["a"]).permission(views) is Permission.VIEW
    assert ROWS.find("isPaused", []).permission(views) is Permission.EDIT


def in_slices() -> Generator[None, None, int]:
    yield
    return 1


def either(text: str) -> int | Generator[None, None, int]:
    return 1 if text else in_slices()


@pytest.mark.parametrize(
    ("call", "returns", "words"),
    [
        (in_slices, FROM_CALL, "integer"),
        (either, FROM_CALL, "integer"),
        (lambda control: None, None, "nothing"),
        (lambda control: "x", str | None, "text or null"),
        (lambda control: [], list[str], "list of text"),
        (lambda control: {}, dict[str, int], "object"),
    ],
)
def test_the_type_of_a_result_is_declared_or_that_of_the_function(call: Any, returns: Any, words: str) -> None:
    assert type_text(operation("x", call, "X.", returns=returns).result) == words


def test_every_operation_declares_its_result_its_permission_and_its_effect() -> None:
    found = declared()
    assert len({each.id for each in found}) == len(found) > 300
    for each in found:
        assert (each.effect == "none") is (each.permission == "view"), each.id
        assert (each.schema is None) is (each.result == "nothing"), each.id
    restarts = {each.name for each in found if each.effect == "restart"}
    assert restarts == {"forceFailover", "failback", "scaleDown"}
