"""LIKE patterns by example; the property test compares them with a naive matcher."""

from __future__ import annotations

import pytest

from understudy.selector.like import LikePattern


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "fits"),
    [
        ("", "", "", True),
        ("", "", "a", False),
        ("%", "", "", True),
        ("%%", "", "any", True),
        ("_", "", "", False),
        ("_", "", "a", True),
        ("_", "", "\n", True),
        ("12%3", "", "123", True),
        ("12%3", "", "12993", True),
        ("12%3", "", "1234", False),
        ("l_se", "", "lose", True),
        ("l_se", "", "loose", False),
        ("%ab%ab%", "", "xabab", True),
        ("%ab%ab%", "", "xaba", False),
        ("ab%ba", "", "aba", False),
        ("%a_c%", "", "abababc", True),
        ("%a_c%d", "", "abcd", True),
        ("%a_c%d", "", "abdd", False),
        (r"\_%", "\\", "_foo", True),
        (r"\_%", "\\", "bar", False),
        (r"100\%", "\\", "100%", True),
        (r"a\\b", "\\", r"a\b", True),
        (r"a\b", "\\", r"a\b", True),
        ("a\\", "\\", "a\\", True),
        ("a%", "a", "a%", False),
        ("a%", "a", "%", True),
        (".*", "", ".*", True),
        (".*", "", "abc", False),
        ("[a-c]", "", "b", False),
    ],
)
def test_examples(pattern: str, escape: str, text: str, fits: bool) -> None:
    assert LikePattern(pattern, escape).matches(text) is fits


def test_the_worst_pattern_takes_time_in_proportion() -> None:
    """A pattern on which backtracking would never end is answered."""
    pattern = LikePattern("%" + "_a%" * 500 + "b")
    assert not pattern.matches("a" * 20_000)
