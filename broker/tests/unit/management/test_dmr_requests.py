"""The HTTP form of the management CLI: requests in JSON and in paths, and the answers to them."""

from __future__ import annotations

import json
from decimal import Decimal
from urllib.parse import quote

import pytest

from support.document_lines import LINES, Line
from understudy.errors import ConfigError
from understudy.management.dmr.conditions import CONDITION_CHARACTERS_MAX, found_at, holds
from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.operations import Outcome
from understudy.management.dmr.requests import Request, failure, parse_get, parse_request, request_json, success
from understudy.management.dmr.resources import Effect
from understudy.management.dmr.text import format_value, parse_value
from understudy.management.dmr.values import Long, from_json, to_json

ADDRESS = [{"subsystem": "messaging-activemq"}, {"server": "default"}]
SERVER = (("subsystem", "messaging-activemq"), ("server", "default"))


def test_a_request_names_operation_address_parameters_and_headers() -> None:
    found = parse_request(
        {
            "operation": "write-attribute",
            "address": ADDRESS,
            "name": "a",
            "value": 5,
            "operation-headers": {"allow-data-move": True},
            "json.pretty": 1,
        }
    )
    assert found == Request(
        (Operation(SERVER, "write-attribute", {"name": "a", "value": 5}, {"allow-data-move": "true"}),), pretty=True
    )
    flat = parse_request({"operation": "read-resource", "address": ["subsystem", "messaging-activemq", "server", "a"]})
    assert flat.operations[0].address == (SERVER[0], ("server", "a"))


def test_a_composite_has_steps() -> None:
    step = {"operation": "read-resource", "address": ADDRESS}
    found = parse_request({"operation": "composite", "address": [], "steps": [step, step]})
    assert (found.composite, len(found.operations)) == (True, 2)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "no JSON object"),
        ({}, "'operation' is no text"),
        ({"operation": "a", "address": "x"}, "'address' is no list"),
        ({"operation": "a", "address": ["x"]}, "'address' is no list"),
        ({"operation": "a", "address": [{"x": 1}]}, "'address' is no list"),
        ({"operation": "a", "operation-headers": 1}, "'operation-headers' is no object"),
        ({"operation": "composite", "steps": []}, "'steps' is no list of 1 to"),
        ({"operation": "composite", "steps": [1]}, "step-1: 'operation' is no text"),
        ({"operation": "composite", "steps": [{"operation": "reload"}]}, "step-1: reload cannot be a step"),
        ({"operation": "a", "x": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}, "nested"),
    ],
)
def test_a_wrong_request_is_an_error_that_names_the_member(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_request(value)


def test_a_path_is_a_read() -> None:
    found = parse_get(
        "/subsystem/messaging-activemq/server/default",
        [("operation", "attribute"), ("name", "a b"), ("include-defaults", ""), ("operation-header-x", "1")],
    )
    assert found.operations == (
        Operation(SERVER, "read-attribute", {"name": "a b", "include-defaults": True}, {"x": "1"}),
    )
    assert parse_get("", [("json.pretty", "")]) == Request((Operation((), "read-resource"),), pretty=True)
    assert parse_get("/a/b%2Fc", []).operations[0].address == (("a", "b/c"),)


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line.number))
def test_a_line_of_the_documents_is_the_same_request_over_http(line: Line) -> None:
    operation = line.parsed()
    body = json.loads(json.dumps(request_json([operation], composite=False)))
    assert parse_request(body) == Request((operation,))
    path = "/".join(part for step in operation.address for part in step)
    if operation.name == "read-resource":
        assert parse_get(f"/{quote(path)}", [("operation", "resource")]) == Request((operation,))
    else:
        with pytest.raises(ConfigError, match="is not possible with GET"):
            parse_get(f"/{quote(path)}", [("operation", operation.name)])


@pytest.mark.parametrize("operation", ["write-attribute", "add", "read-resource", "reload"])
def test_a_path_never_changes_anything(operation: str) -> None:
    with pytest.raises(ConfigError, match="is not possible with GET"):
        parse_get("/a/b", [("operation", operation)])
    with pytest.raises(ConfigError, match="ends with the type 'a'"):
        parse_get("/a", [])


def test_answers() -> None:
    one = Request((Operation(SERVER, "add"),))
    assert success(one, [Outcome(None, (), Effect.LIVE)]) == {"outcome": "success"}
    assert success(one, [Outcome([1])]) == {"outcome": "success", "result": [1]}
    assert success(one, [Outcome(None, (), Effect.RELOAD)])["response-headers"] == {
        "operation-requires-reload": True,
        "process-state": "reload-required",
    }
    assert failure("why") == {"outcome": "failed", "failure-description": "why", "rolled-back": True}
    (text,) = failure("why", 2)["failure-description"].items()  # type: ignore[union-attr]  # an object
    assert text[1] == {"Operation step-2": "why"}


def test_values_in_json_keep_bytes_and_lose_the_kinds_of_numbers() -> None:
    assert to_json({"a": Long(5), "b": Decimal("1.5"), "c": b"\x01", "d": [None, True]}) == {
        "a": 5,
        "b": 1.5,
        "c": {"BYTES_VALUE": "AQ=="},
        "d": [None, True],
    }
    assert from_json({"BYTES_VALUE": "AQ=="}) == b"\x01"
    assert from_json({"EXPRESSION_VALUE": "${a}"}) == "${a}"
    with pytest.raises(ConfigError, match="not base64"):
        from_json({"BYTES_VALUE": "?"})


def test_short_lists_and_objects_are_on_one_line() -> None:
    assert format_value({"a": ["netty"]}) == '{"a" => ["netty"]}'
    assert format_value([]) == "[]"
    assert parse_value('("a" => 30000L)') == {"a": 30000}
    assert parse_value("bytes { 0x01, 0xff }") == b"\x01\xff"


@pytest.mark.parametrize(
    "text", ["", "{", '{"a"}', '{"a" = 1}', "[1 2]", "1 2", "maybe", "[" * 40, "9" * 30, "big decimal ."]
)
def test_a_wrong_text_is_an_error_that_names_the_character(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^character \d+: "):
        parse_value(text)


ANSWER = {"outcome": "success", "result": {"value": 5, "name": "a-b", "flag": True, "none": None}}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("outcome == success", True),
        ("outcome != success", False),
        ("result.value >= 5 && result.value < 6", True),
        ("result.value > 5 || result.name == a-b", True),
        ("(outcome == failed || result.flag == true) && result.name ~= a.*", True),
        ('result.name == "a-b"', True),
        ("result.none == undefined", True),
        ("result.missing == undefined", True),
        ("result.missing > 1", False),
        ("result.name ~= b", False),
    ],
)
def test_conditions(condition: str, expected: bool) -> None:
    assert holds(condition, ANSWER) is expected


@pytest.mark.parametrize(
    "condition", ["", "outcome", "outcome ==", "== a", "(outcome == a", "a == b c", "result.name > 1", "a ~= ["]
)
def test_a_wrong_condition_is_an_error(condition: str) -> None:
    with pytest.raises(ConfigError):
        holds(condition, ANSWER)
    with pytest.raises(ConfigError, match="limit"):
        holds("a" * (CONDITION_CHARACTERS_MAX + 1), ANSWER)


def test_a_path_leads_into_an_answer() -> None:
    assert found_at(ANSWER, "result.value") == 5
    assert found_at(ANSWER, "result.value.further") is None
