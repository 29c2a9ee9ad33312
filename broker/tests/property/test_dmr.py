"""Round trips of the notations of the management CLI, and random text, which gives documented errors only."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.config.edit import Clear, Ensure, Set
from understudy.config.edit.overlay import Override, format_overlay, parse_overlay
from understudy.errors import ConfigError
from understudy.management.dmr.grammar import Operation, parse_line
from understudy.management.dmr.requests import parse_request, request_json
from understudy.management.dmr.text import format_value, parse_value
from understudy.management.dmr.values import Long, from_json, to_json

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
CHARACTERS = st.characters(codec="utf-8", exclude_categories=("Cs",))
TEXTS = st.text(CHARACTERS, max_size=12)
STEPS = st.tuples(NAMES, TEXTS.filter(lambda text: text not in ("", "*")))
NESTED = st.recursive(
    TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OPERATIONS = st.builds(
    Operation,
    st.lists(STEPS, max_size=3).map(tuple),
    NAMES,
    st.dictionaries(NAMES, st.booleans() | NESTED, max_size=3),
    st.dictionaries(NAMES, TEXTS, max_size=2),
)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | NUMBERS.map(Long)
    | st.decimals(allow_nan=False, allow_infinity=False, places=4)
    | TEXTS
    | st.binary(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@given(OPERATIONS)
def test_an_operation_is_printed_as_a_line_that_parses_as_the_same(operation: Operation) -> None:
    assert parse_line(str(operation)) == operation


@given(OPERATIONS.filter(lambda each: not {"operation", "address", "steps"} & set(each.arguments)))
def test_an_operation_in_json_is_the_same(operation: Operation) -> None:
    if operation.name != "composite":
        assert parse_request(request_json([operation], composite=False)).operations == (operation,)


@given(VALUES)
def test_a_value_is_printed_as_a_text_that_parses_as_the_same(value: object) -> None:
    found = parse_value(format_value(value))  # type: ignore[arg-type]  # a value
    assert found == value
    assert format_value(found) == format_value(value)  # type: ignore[arg-type]  # with the same kinds of numbers


@given(VALUES)
def test_a_value_in_json_is_the_same_but_for_the_kinds_of_numbers(value: object) -> None:
    def plain(each: object) -> object:
        if isinstance(each, dict):
            return {name: plain(one) for name, one in each.items()}
        if isinstance(each, list):
            return [plain(one) for one in each]
        return float(each) if isinstance(each, Decimal) else each

    assert plain(from_json(to_json(value))) == plain(value)  # type: ignore[arg-type]  # a value


@settings(max_examples=300)
@given(st.text(CHARACTERS, max_size=60) | st.text('/:=(){}[],;"\\$!#. ab>', max_size=30))
def test_random_text_gives_documented_errors_only(text: str) -> None:
    for read in (parse_line, parse_value):
        try:
            read(text)
        except ConfigError:
            continue


PATHS = st.from_regex(r"core(/[a-z]{1,6}){1,3}", fullmatch=True)
TARGETS = st.builds(Set, PATHS, TEXTS) | st.builds(Ensure, PATHS) | st.builds(Clear, PATHS)


@given(st.lists(st.builds(Override, TARGETS, TEXTS, TEXTS, TEXTS), max_size=6))
def test_an_overlay_is_written_as_bytes_that_read_as_the_same(overrides: list[Override]) -> None:
    assert parse_overlay(format_overlay(overrides), "f") == tuple(overrides)


@given(st.binary(max_size=80))
def test_random_bytes_are_no_overlay(data: bytes) -> None:
    try:
        assert parse_overlay(data, "f") == ()
    except ConfigError:
        return
