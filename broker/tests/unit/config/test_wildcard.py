"""Wildcard matches: the examples of the manual, and Artemis' order of specificity."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.wildcards import Wildcards, check_match, fits, is_wild, matches, prefix_of, specificity


@pytest.mark.parametrize(
    ("match", "address", "fits"),
    [
        ("news.europe.#", "news.europe", True),
        ("news.europe.#", "news.europe.sport", True),
        ("news.europe.#", "news.europe.politics.regional", True),
        ("news.europe.#", "news.usa", False),
        ("news.europe.#", "news.europes", False),
        ("news.europe.#", "entertainment", False),
        ("news.*", "news.europe", True),
        ("news.*", "news.europe.sport", False),
        ("news.*", "news", False),
        ("news.*.sport", "news.usa.sport", True),
        ("news.*.sport", "news.europe.politics", False),
        ("#", "", True),
        ("#", "anything.at.all", True),
        ("*", "one", True),
        ("*", "one.two", False),
        ("*.#", "one", True),
        ("a.b", "a.b", True),
        ("a.b", "axb", False),
        ("$sys.#", "$sys.x", True),
        ("#.sport", "sport", True),
        ("#.sport", "news.europe.sport", True),
        ("#.sport", "news.sport.europe", False),
        ("news.#.sport", "news.sport", True),
        ("news.#.sport", "news.europe.uk.sport", True),
        ("news.#.sport", "news", False),
        ("news.#.news", "news", False),
        ("a.#.*", "a", False),
        ("a.#.*.d", "a.b.c.d", True),
        ("#.b.#", "a.b.c", True),
        ("#.b.#", "a.c", False),
        ("#.b.*.#.d", "a.b.c.d", True),
        ("#.b.*.#.d", "a.b.d", False),
        ("#.a.b.#.c", "a.c.a.b.c", True),
        ("#.#.#", "", True),
    ],
)
def test_the_manuals_examples(match: str, address: str, fits: bool) -> None:
    assert matches(match, address) is fits


def test_many_wildcards_cost_no_more_than_the_product_of_both_lengths() -> None:
    assert not matches(".".join(["#", "a"] * 200 + ["b"]), ".".join(["a"] * 2_000))


@pytest.mark.parametrize(
    ("match", "address", "fit"),
    [
        ("foo*", "foobar", True),
        ("foo*", "foo", False),
        ("foo*", "foo.x", False),
        ("foo#", "foo", True),
        ("foo#", "foo.x", True),
        ("foo#", "foobar", False),
        ("a.b*", "a.bcd", True),
        ("a.b*", "a.b.c", False),
        ("*-in.#", "orders-in.eu", True),
        ("*.", "a.", True),
        ("a.*", "a.", False),
        ("#", "", True),
    ],
)
def test_wildcards_in_words_of_settings(match: str, address: str, fit: bool) -> None:
    assert fits(match, address) is fit


@given(st.text(st.sampled_from("ab.*"), max_size=8), st.booleans(), st.text(st.sampled_from("ab."), max_size=10))
def test_settings_fit_as_the_pattern_of_artemis(match: str, any_words: bool, address: str) -> None:
    pattern = match.replace(".", "\\.").replace("*", "[^.]+")
    if any_words:
        match, pattern = f"{match}#", f"{pattern.removesuffix(chr(92) + '.')}(\\..+)*"
    expected = match == "#" or re.fullmatch(pattern, address) is not None
    assert fits(match, address) is expected
    if expected:
        assert address.startswith(prefix_of(match))


def test_other_signs() -> None:
    signs = Wildcards(delimiter="/", any_words=">", single_word="+")
    assert matches("a/+/c/>", "a/b/c/d/e", signs)
    assert not matches("a/+/c", "a/b.c", signs)
    assert matches("a.*", "a.*", signs)
    assert is_wild("a/+", signs)
    assert not is_wild("a.*", signs)


def test_the_most_specific_comes_first() -> None:
    order = ["a.b.c", "a.b.*", "a.*.c", "*.b.c", "*.*.*", "a.b.c.#", "a.b.#", "a.#", "*.#", "#"]
    assert all(matches(match, "a.b.c") for match in order)
    assert sorted(order[5:] + order[:5], key=specificity) == order


def test_specificity_is_a_total_order() -> None:
    assert specificity("ab.#") != specificity("ac.#")
    assert sorted(["*.b.#", "a.b.#"], key=specificity) == ["a.b.#", "*.b.#"]


@pytest.mark.parametrize("match", ["", "#.a", "a.#.b", "a#b", "##"])
def test_a_match_that_cannot_be_meant(match: str) -> None:
    assert check_match(match) is not None


@pytest.mark.parametrize(
    "match", ["#", "*", "a", "a.*.b", "a.#", "*.#", "activemq.management.#", "a b", "a#", "a.b*", "*a.b"]
)
def test_a_match_that_can(match: str) -> None:
    assert check_match(match) is None


@pytest.mark.parametrize(("match", "wild"), [("a.b", False), ("a.*", True), ("#", True), ("a*", False), ("", False)])
def test_is_wild(match: str, wild: bool) -> None:
    assert is_wild(match) is wild
