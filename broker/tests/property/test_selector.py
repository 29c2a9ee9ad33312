"""Selectors against a naive evaluator over the same syntax tree, and against any text at all.

Goal: the compiled closures and the precedence of the parser are right for every combination, and
no text can do anything but be refused. Method: trees are drawn, written down with as few
parentheses as the grammar needs, compiled, and compared with a recursive evaluation that shares no
code with the package.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import InvalidSelector
from understudy.message import Message
from understudy.selector import parse_selector
from understudy.selector.like import LikePattern

Tree = tuple[Any, ...]

NAMES = ["a", "b", "c", "absent"]
TEXTS = st.text("ab%_\\'", max_size=4)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, -1.5, 2.0]), TEXTS, st.just(b"ab")
)
PROPERTIES = st.fixed_dictionaries({"a": VALUES, "b": VALUES, "c": VALUES})

NUMBERS: st.SearchStrategy[Tree] = st.recursive(
    st.one_of(
        st.tuples(st.just("number"), st.one_of(st.integers(0, 9), st.sampled_from([0.5, 1.25]))),
        st.tuples(st.just("name"), st.sampled_from(NAMES)),
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*/%"), inner, inner),
        st.tuples(st.just("negate"), inner),
    ),
    max_leaves=6,
)
NAME = st.tuples(st.just("name"), st.sampled_from(NAMES))
OPERANDS = st.one_of(NUMBERS, st.tuples(st.just("string"), TEXTS))
CONDITIONS: st.SearchStrategy[Tree] = st.one_of(
    NAME,
    st.tuples(st.just("boolean"), st.booleans()),
    st.tuples(st.sampled_from(["=", "<>"]), OPERANDS, OPERANDS),
    st.tuples(st.sampled_from(["<", "<=", ">", ">="]), NUMBERS, NUMBERS),
    st.tuples(st.sampled_from(["is null", "is not null"]), OPERANDS),
    st.tuples(st.sampled_from(["between", "not between"]), NUMBERS, NUMBERS, NUMBERS),
    st.tuples(st.sampled_from(["in", "not in"]), NAME, st.lists(TEXTS, min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["like", "not like"]), NAME, TEXTS, st.sampled_from(["", "\\", "a"])),
)
SELECTORS: st.SearchStrategy[Tree] = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["=", "<>"]), inner, inner),
    ),
    max_leaves=8,
)

LEVEL = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(["=", "<>", "is null", "is not null"], 4),
    **dict.fromkeys(["<", "<=", ">", ">=", "between", "not between", "in", "not in", "like", "not like"], 5),
    **dict.fromkeys(["+", "-"], 6),
    **dict.fromkeys(["*", "/", "%"], 7),
    "negate": 8,
}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def written(tree: Tree, minimum: int = 0) -> str:
    """The tree as text, in parentheses only where it binds weaker than ``minimum``."""
    kind = tree[0]
    level = LEVEL.get(kind, 9)
    if kind == "number":
        text = repr(tree[1])
    elif kind == "name":
        text = tree[1]
    elif kind == "string":
        text = quoted(tree[1])
    elif kind == "boolean":
        text = str(tree[1]).upper()
    elif kind == "not":
        text = f"NOT {written(tree[1], 3)}"
    elif kind == "negate":
        text = f"- {written(tree[1], 8)}"
    elif kind in ("is null", "is not null"):
        text = f"{written(tree[1], 4)} {kind.upper()}"
    elif kind in ("between", "not between"):
        text = f"{written(tree[1], 5)} {kind.upper()} {written(tree[2], 6)} AND {written(tree[3], 6)}"
    elif kind in ("in", "not in"):
        text = f"{written(tree[1], 5)} {kind} ({', '.join(map(quoted, tree[2]))})"
    elif kind in ("like", "not like"):
        escape = f" ESCAPE {quoted(tree[3])}" if tree[3] else ""
        text = f"{written(tree[1], 5)} {kind.upper()} {quoted(tree[2])}{escape}"
    else:
        text = f"{written(tree[1], level)} {kind.upper()} {written(tree[2], level + 1)}"
    return f"({text})" if level < minimum else text


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def like(pattern: str, escape: str, text: str) -> bool:
    """LIKE by trying everything."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == escape and rest[:1] in ("%", "_", escape) and rest:
        return text[:1] == rest[0] and like(rest[1:], escape, text[1:])
    if first == "%":
        return any(like(rest, escape, text[start:]) for start in range(len(text) + 1))
    return bool(text) and first in ("_", text[0]) and like(rest, escape, text[1:])


def naive(tree: Tree, properties: dict[str, Any]) -> Any:
    """The value of a tree as JMS has it; None is unknown."""
    kind = tree[0]
    if kind in ("number", "string", "boolean"):
        return tree[1]
    if kind == "name":
        return properties.get(tree[1])
    if kind in ("and", "or", "not"):
        return logic(kind, [condition(part, properties) for part in tree[1:]])
    if kind in ("is null", "is not null"):
        return (naive(tree[1], properties) is None) == (kind == "is null")
    if kind.startswith("not "):
        return logic("not", [naive((kind.removeprefix("not "), *tree[1:]), properties)])
    if kind == "between":
        return logic("and", [naive((">=", *tree[1:3]), properties), naive(("<=", tree[1], tree[3]), properties)])
    value = naive(tree[1], properties)
    if kind == "in":
        return value in tree[2] if isinstance(value, str) else None
    if kind == "like":
        return None if value is None else isinstance(value, str) and like(tree[2], tree[3], value)
    if kind == "negate":
        return -value if is_number(value) else None
    other = naive(tree[2], properties)
    if kind in "+-*/%":
        return arithmetic(kind, value, other) if is_number(value) and is_number(other) else None
    if value is None or other is None:
        return None
    if kind in ("=", "<>"):
        alike = (is_number(value) and is_number(other)) or type(value) is type(other)
        return alike and (value == other) == (kind == "=")
    if not (is_number(value) and is_number(other)):
        return False
    return {"<": value < other, "<=": value <= other, ">": value > other, ">=": value >= other}[kind]


def condition(tree: Tree, properties: dict[str, Any]) -> Any:
    """A tree where true, false or unknown is wanted."""
    value = naive(tree, properties)
    return None if value is None else value is True


def logic(kind: str, values: list[Any]) -> Any:
    if kind == "not":
        return None if values[0] is None else not values[0]
    decisive = kind == "or"
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def arithmetic(kind: str, one: float, two: float) -> float:
    if kind in ("/", "%") and two == 0:
        if kind == "%" or one == 0 or math.isnan(one):
            return math.nan
        return math.copysign(math.inf, one) * math.copysign(1.0, two)
    if kind == "%":
        return math.nan if math.isinf(one) else math.fmod(one, two)
    return {"+": lambda: one + two, "-": lambda: one - two, "*": lambda: one * two, "/": lambda: one / two}[kind]()


@given(SELECTORS, PROPERTIES)
def test_a_selector_selects_what_the_naive_evaluation_selects(tree: Tree, properties: dict[str, Any]) -> None:
    text = written(tree)
    assert parse_selector(text).matches(Message(properties=dict(properties))) is (
        condition(tree, properties) is True
    ), text


@given(NUMBERS, PROPERTIES)
def test_numbers_are_computed_alike(tree: Tree, properties: dict[str, Any]) -> None:
    value = naive(tree, properties)
    selector = parse_selector(f"{written(tree, 5)} IS NULL")
    assert selector.matches(Message(properties=dict(properties))) is (value is None)


@given(st.text("ab%_\\", max_size=8), st.sampled_from(["", "\\", "a", "%", "_"]), st.text("ab%_\\", max_size=10))
def test_like_is_the_naive_like(pattern: str, escape: str, text: str) -> None:
    assert LikePattern(pattern, escape).matches(text) is like(pattern, escape, text)


WORDS = """<> <= NOT AND OR IS NULL IN LIKE ESCAPE BETWEEN TRUE a b 'x' 'a%' 1 2.5 0x1 1e3 -- /* */ $ é
    convert_string_expressions:"""
FRAGMENTS = st.sampled_from([*"()=<>+-*/%,.'\"", *WORDS.split(), "\n", " "])
MESSAGE = Message(properties={"a": "x", "b": 2})


@given(
    st.one_of(st.text(max_size=60), st.lists(FRAGMENTS, max_size=25).map(" ".join), st.lists(FRAGMENTS).map("".join))
)
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidSelector):
        assert parse_selector(text).matches(MESSAGE) in (True, False)
