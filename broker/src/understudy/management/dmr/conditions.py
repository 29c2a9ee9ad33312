"""Conditions of ``if`` in scripts: ``(outcome != success && result.max-hops >= 2)``, evaluated on an answer.

A word on the left of a comparison is a path in the answer; the right side is a value. Texts are compared as they are
shown; ``<`` and ``>`` compare numbers, and ``~=`` is a regular expression that the whole text has to match.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from understudy.errors import ConfigError
from understudy.management.dmr.values import Value

#: Longest condition. Characters.
CONDITION_CHARACTERS_MAX: Final = 1_000
_TOKEN: Final = re.compile(r'\s*(?:(&&|\|\||==|!=|>=|<=|~=|>|<|\(|\))|"((?:[^"\\]|\\.)*)"|([^\s()&|=!<>~"]+))')
_COMPARISONS: Final = ("==", "!=", ">=", "<=", "~=", ">", "<")


def holds(condition: str, answer: Value) -> bool:
    """Whether a condition holds for an answer.

    Raises:
        ConfigError: the condition cannot be read, or compares texts by size.
    """
    if len(condition) > CONDITION_CHARACTERS_MAX:
        raise ConfigError(f"a condition of {len(condition)} characters, limit {CONDITION_CHARACTERS_MAX}")
    reader = _Reader(condition, answer)
    found = reader.either()
    if reader.rest():
        raise ConfigError(f"{condition!r}: {reader.rest()!r} is not expected")
    return found


def found_at(answer: Value, path: str) -> Value:
    """The value at a path such as ``result.value``; None: there is none."""
    for name in path.split("."):
        if not isinstance(answer, Mapping):
            return None
        answer = answer.get(name)
    return answer


class _Reader:
    """Reader of one condition."""

    def __init__(self, text: str, answer: Value) -> None:
        self._text = text
        self._answer = answer
        self._at = 0

    def rest(self) -> str:
        """The text that is not read yet."""
        return self._text[self._at :].strip()

    def either(self) -> bool:
        """Conditions with ``||`` between them."""
        found = self._both()
        while self._take("||"):
            found = self._both() or found
        return found

    def _both(self) -> bool:
        found = self._one()
        while self._take("&&"):
            found = self._one() and found
        return found

    def _one(self) -> bool:
        if self._take("("):
            found = self.either()
            if not self._take(")"):
                raise ConfigError(f"{self._text!r}: ')' is expected")
            return found
        left = found_at(self._answer, self._word("a path such as outcome"))
        sign = self._sign()
        return _compare(left, sign, self._word("a value"))

    def _sign(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[1] not in _COMPARISONS:
            raise ConfigError(f"{self._text!r}: one of {' '.join(_COMPARISONS)} is expected")
        self._at = match.end()
        return match[1]

    def _word(self, wanted: str) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[1] is not None:
            raise ConfigError(f"{self._text!r}: {wanted} is expected")
        self._at = match.end()
        return str(match[3]) if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])

    def _take(self, sign: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[1] != sign:
            return False
        self._at = match.end()
        return True


def _compare(left: Value, sign: str, right: str) -> bool:
    text = _shown(left)
    if sign in ("==", "!="):
        return (text == right) is (sign == "==")
    if sign == "~=":
        try:
            return re.fullmatch(right, text) is not None
        except re.error as error:
            raise ConfigError(f"{right!r} is no regular expression: {error}") from None
    if left is None:
        return False
    try:
        one, other = float(text), float(right)
    except ValueError:
        raise ConfigError(f"{text!r} {sign} {right!r}: only numbers are compared by size") from None
    return {">": one > other, "<": one < other, ">=": one >= other, "<=": one <= other}[sign]


def _shown(value: Value) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
