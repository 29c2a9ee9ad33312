"""Tokens: kinds, values and positions."""

from __future__ import annotations

import pytest

from understudy.errors import InvalidSelector
from understudy.selector.tokens import INTEGER_MAX, tokenize


def kinds(text: str, *, hyphens: bool = False) -> list[str]:
    return [token.kind for token in tokenize(text, 0, hyphens)][:-1]


def test_signs_take_the_longest() -> None:
    signs = "<> <= >= = < > + - * / % ( ) ,"
    assert kinds(signs) == signs.split()
    assert kinds("<=>") == ["<=", ">"]


def test_keywords_in_any_case() -> None:
    assert kinds("not And OR nothing") == ["NOT", "AND", "OR", "identifier"]


def test_positions_count_from_the_start_of_the_text() -> None:
    assert [(token.value, token.position) for token in tokenize("xx:a = 1", 3, False)] == [
        ("a", 3),
        ("=", 5),
        (1, 7),
        ("the end", 8),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("00", 0), ("017", 15), ("0x1F", 31), ("0XffL", 255), ("12l", 12), ("1.", 1.0), (".5", 0.5),
     ("1e3", 1000.0), ("1E+3", 1000.0), ("1.5e-1F", 0.15), ("9223372036854775808", INTEGER_MAX)],
)  # fmt: skip
def test_numbers(text: str, value: float) -> None:
    token, _ = tokenize(text, 0, False)
    assert token.value == value
    assert type(token.value) is type(value)


@pytest.mark.parametrize("text", ["08", "0x", "0xg", "1e5x", "1.2.3", "5a", "9223372036854775809", "1e400", "1_0"])
def test_no_numbers(text: str) -> None:
    with pytest.raises(InvalidSelector, match="at position 1"):
        tokenize(text, 0, False)


def test_an_exponent_without_digits_is_refused() -> None:
    with pytest.raises(InvalidSelector, match="no number"):
        tokenize("1e+", 0, False)


def test_strings_and_quoted_identifiers() -> None:
    first, second, _ = tokenize("'a''b' \"c\"\"-d\"", 0, False)
    assert (first.kind, first.value) == ("string", "a'b")
    assert (second.kind, second.value) == ("identifier", 'c"-d')


def test_hyphens_belong_to_a_name_only_with_the_prefix() -> None:
    assert kinds("a-b") == ["identifier", "-", "identifier"]
    assert kinds("a-b", hyphens=True) == ["identifier"]


def test_comments() -> None:
    assert kinds("a /* b */ c -- d\n e") == ["identifier"] * 3
    assert kinds("a -- b\r e") == ["identifier"] * 2
    assert kinds("a--1") == ["identifier", "-", "-", "number"]
