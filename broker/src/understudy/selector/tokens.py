"""The tokens of a selector: signs, keywords, strings, numbers and identifiers with their positions.

Literals are those of Java (JMS 2.0 s. 3.8.1.1); comments are skipped, as Artemis does. Not here: the grammar
(``parser``).
"""

from __future__ import annotations

import math
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import InvalidSelector

INTEGER_MAX: Final = 2**63
"""Largest integer of a token: one more than the largest long, so that the smallest long can be written."""

_KEYWORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "LIKE", "ESCAPE", "IN", "IS", "TRUE", "FALSE", "NULL", "XPATH", "XQUERY")
)
_SIGNS: Final = ("<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",")
_DIGITS: Final = frozenset("0123456789")
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a selector."""

    kind: str
    """A sign, a keyword in capitals, or ``string``, ``number``, ``identifier``, ``end``."""
    value: str | int | float
    position: int
    """Index of the token's first character, from 0."""


def invalid(message: str, position: int) -> InvalidSelector:
    """An error at a position of the selector; ``position`` counts from 0, the message from 1."""
    return InvalidSelector(f"selector: {message} at position {position + 1}")


def tokenize(text: str, start: int, hyphens: bool) -> list[Token]:
    """The tokens of ``text[start:]``, followed by one of kind ``end``.

    Raises:
        InvalidSelector: an unexpected character or a malformed literal.
    """
    tokens: list[Token] = []
    offset, end = start, len(text)
    while offset < end:
        character = text[offset]
        if character in " \t\r\n\f":
            offset += 1
        elif text.startswith("/*", offset):
            close = text.find("*/", offset + 2)
            if close < 0:
                raise invalid("comment without an end", offset)
            offset = close + 2
        elif text.startswith("--", offset) and (line_end := _line_end(text, offset)) >= 0:
            offset = line_end
        elif character in "'\"":
            value, stop = _quoted(text, offset)
            tokens.append(Token("string" if character == "'" else "identifier", value, offset))
            offset = stop
        elif character in _DIGITS or (character == "." and text[offset + 1 : offset + 2] in _DIGITS):
            number, stop = _number(text, offset)
            tokens.append(Token("number", number, offset))
            offset = stop
        elif character.isalpha() or character in "_$":
            stop = _word_end(text, offset, hyphens)
            word = text[offset:stop]
            keyword = word.upper() if word.isascii() else word
            kind = keyword if keyword in _KEYWORDS else "identifier"
            tokens.append(Token(kind, word, offset))
            offset = stop
        else:
            sign = next((sign for sign in _SIGNS if text.startswith(sign, offset)), None)
            if sign is None:
                raise invalid(f"unexpected {character!r}", offset)
            tokens.append(Token(sign, sign, offset))
            offset += len(sign)
    tokens.append(Token("end", "the end", end))
    return tokens


def _line_end(text: str, offset: int) -> int:
    """Offset after the line of a ``--`` comment; -1 without a line end, where ``--`` is two minus signs."""
    ends = [found for sign in "\r\n" if (found := text.find(sign, offset)) >= 0]
    return min(ends) + 1 if ends else -1


def _quoted(text: str, offset: int) -> tuple[str, int]:
    """A string or quoted identifier with doubled quotes replaced by one, and the offset after it."""
    quote, parts, start = text[offset], list[str](), offset + 1
    while True:
        close = text.find(quote, start)
        if close < 0:
            raise invalid("string without an end", offset)
        parts.append(text[start:close])
        if text[close + 1 : close + 2] != quote:
            value = quote.join(parts)
            if quote == '"' and not value:
                raise invalid("empty identifier", offset)
            return value, close + 1
        start = close + 2


def _word_end(text: str, offset: int, hyphens: bool) -> int:
    end = len(text)
    while offset < end and (text[offset].isalnum() or text[offset] in "_$" or (hyphens and text[offset] == "-")):
        offset += 1
    return offset


def _skip(text: str, offset: int, characters: frozenset[str]) -> int:
    while offset < len(text) and text[offset] in characters:
        offset += 1
    return offset


def _number(text: str, offset: int) -> tuple[int | float, int]:
    """A Java number literal and the offset after it."""
    value: int | float
    if text[offset : offset + 2] in ("0x", "0X"):
        stop = _skip(text, offset + 2, _HEX_DIGITS)
        digits, base = text[offset + 2 : stop], 16
        stop = _integer_suffix(text, stop)
    else:
        stop = _skip(text, offset, _DIGITS)
        fraction = _float_end(text, stop)
        if fraction > stop:
            value = float(text[offset:fraction])
            if math.isinf(value):
                raise invalid("number too large", offset)
            stop = fraction + (text[fraction : fraction + 1] in ("d", "D", "f", "F"))
            return _ended(text, offset, stop, value)
        digits = text[offset:stop]
        base = 8 if len(digits) > 1 and digits[0] == "0" else 10
        stop = _integer_suffix(text, stop)
    if len(digits) > 30:
        raise invalid("number too large", offset)
    try:
        value = int(digits, base)
    except ValueError:
        raise invalid("no number", offset) from None
    if value > INTEGER_MAX:
        raise invalid("number too large", offset)
    return _ended(text, offset, stop, value)


def _integer_suffix(text: str, stop: int) -> int:
    return stop + (text[stop : stop + 1] in ("l", "L"))


def _float_end(text: str, stop: int) -> int:
    """Offset after a fraction and an exponent that start at ``stop``; ``stop`` if there are none."""
    if text[stop : stop + 1] == ".":
        stop = _skip(text, stop + 1, _DIGITS)
    if text[stop : stop + 1] in ("e", "E"):
        first = stop + 1 + (text[stop + 1 : stop + 2] in ("+", "-"))
        behind = _skip(text, first, _DIGITS)
        if behind > first:
            stop = behind
    return stop


def _ended(text: str, offset: int, stop: int, value: int | float) -> tuple[int | float, int]:
    if stop < len(text) and (text[stop].isalnum() or text[stop] in "_$."):
        raise invalid("no number", offset)
    return value, stop
