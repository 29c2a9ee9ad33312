"""Random JMS selectors, and messages' properties for them to be about.

Comparisons are well typed but for texts that are no selectors at all: where types are mixed JMS and Artemis are known
to differ (``exclusions``).
"""

from __future__ import annotations

import random

from interop.differential.steps import Typed
from understudy.properties import BOOLEAN, BYTE, BYTES, DOUBLE, FLOAT, INT, LONG, NULL, SHORT, STRING

_NUMBERS = ("i", "l", "d", "f", "missing")
_TEXTS = ("t", "u")
_NAMES = (*_NUMBERS, *_TEXTS, "y", "h", "n", "b", "z", "x")
_WORDS = ("", "a", "ab", "abc", "a_c", "a%c", "A", "it's", "5", "ä", "a\\c", "true")
_HEADERS = ("AMQPriority", "AMQDurable", "AMQSize", "JMSType", "AMQExpiration", "AMQTimestamp")


def properties(draw: random.Random) -> tuple[tuple[str, Typed], ...]:
    """Some of the properties that selectors ask about."""
    every: dict[str, Typed] = {
        "i": (INT, draw.choice((-1, 0, 1, 2, 5, 7))),
        "l": (LONG, draw.choice((-5, 0, 1, 5, 2**40))),
        "d": (DOUBLE, draw.choice((-0.5, 0.25, 1.0, 1.5, 5.0, 2.5e10))),
        "f": (FLOAT, draw.choice((0.5, 1.0, 5.0))),
        "y": (BYTE, draw.choice((-1, 0, 1, 5))),
        "h": (SHORT, draw.choice((0, 1, 5, 300))),
        "t": (STRING, draw.choice(_WORDS)),
        "u": (STRING, draw.choice(_WORDS)),
        "b": (BOOLEAN, draw.random() < 0.5),
        "z": (NULL, None),
        "x": (BYTES, b"ab"),
        "n": draw.choice(((INT, 3), (STRING, "3"), (BOOLEAN, True), (DOUBLE, 3.0))),
    }
    return tuple((key, value) for key, value in every.items() if draw.random() < 0.6)


def sound_selector(draw: random.Random) -> str:
    """A small condition that is a selector."""
    return draw.choice(_CONDITIONS[:-1])(draw)


def selector(draw: random.Random, depth: int = 3) -> str:
    """A condition; now and then a text that is none."""
    kind = draw.random()
    if depth > 0 and kind < 0.4:
        first, second = selector(draw, depth - 1), selector(draw, depth - 1)
        return f"({first}) {draw.choice(('AND', 'OR', 'and', 'or'))} ({second})"
    if depth > 0 and kind < 0.5:
        return f"NOT ({selector(draw, depth - 1)})"
    return draw.choice(_CONDITIONS)(draw)


def _number(draw: random.Random, depth: int = 1) -> str:
    kind = draw.random()
    if depth > 0 and kind < 0.3:
        if draw.random() < 0.4:
            return f"({_number(draw, depth - 1)} {draw.choice('/%')} {draw.choice(('1', '2', '2.5', '-1', '3L'))})"
        return f"({_number(draw, depth - 1)} {draw.choice('+-*')} {_number(draw, depth - 1)})"
    if depth > 0 and kind < 0.36:
        return f"-{draw.choice(_NUMBERS)}"
    if kind < 0.65:
        return draw.choice(_NUMBERS)
    return _literal(draw)


def _string(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def _compare(draw: random.Random) -> str:
    """One side is never absent (``exclusions.MIXED_COMPARISONS``)."""
    if draw.random() < 0.3:
        return f"{_literal(draw)} {draw.choice(('<', '<=', '>', '>='))} {_number(draw)}"
    return f"{_number(draw)} {draw.choice(('=', '<>', '<', '<=', '>', '>='))} {_literal(draw)}"


def _literal(draw: random.Random) -> str:
    return draw.choice(("0", "1", "5", "2.5", "1.0", "-1", "1e1", "0x10", "07", "5L", ".5", "1099511627776", "2 * 2.5"))


def _compare_text(draw: random.Random) -> str:
    return f"{draw.choice(_TEXTS)} {draw.choice(('=', '<>'))} {_string(draw.choice(_WORDS))}"


def _compare_small(draw: random.Random) -> str:
    """Byte and short, which compare with wider numbers to their right (``exclusions``)."""
    return f"{draw.choice(('y', 'h'))} {draw.choice(('=', '<', '>='))} {draw.choice(('0', '5', '2.5'))}"


def _null(draw: random.Random) -> str:
    return f"{draw.choice(_NAMES)} IS {draw.choice(('', 'NOT '))}NULL"


def _between(draw: random.Random) -> str:
    return f"{_number(draw, 0)} {draw.choice(('', 'NOT '))}BETWEEN {_number(draw, 0)} AND {_number(draw, 0)}"


def _in(draw: random.Random) -> str:
    words = ", ".join(_string(word) for word in draw.sample(_WORDS, draw.randint(1, 3)))
    return f"{draw.choice(_NAMES)} {draw.choice(('', 'NOT '))}IN ({words})"


def _like(draw: random.Random) -> str:
    pattern = "".join(draw.choice(("a", "b", "c", "%", "_", "\\_", "\\%", "A")) for _ in range(draw.randint(0, 4)))
    escape = " ESCAPE '\\'" if "\\" in pattern else ""
    return f"{draw.choice((*_TEXTS, 'n'))} {draw.choice(('', 'NOT '))}LIKE {_string(pattern)}{escape}"


def _boolean(draw: random.Random) -> str:
    return draw.choice(("b", "b = TRUE", "b <> TRUE", "NOT b", "TRUE", "FALSE", "missing", "b = FALSE", "z", "x"))


def _header(draw: random.Random) -> str:
    name = draw.choice(_HEADERS)
    if name == "AMQDurable":
        return f"AMQDurable = {draw.choice(_DURABILITIES)}"
    return f"{name} {draw.choice(('=', '<>', '<', '>'))} {draw.choice(('4', '0', '9', '100'))}"


def _broken(draw: random.Random) -> str:
    return draw.choice(_BROKEN)


#: Texts that are mostly no selectors.
_BROKEN = (
    *("", "i =", "= 5", "(i = 1", "i = 'a", "i BETWEEN 1", "t LIKE 5", "t LIKE 'a' ESCAPE 'ab'", "i IN ()"),
    *("i IN (1, 2)", "1", "'a'", "NOT", "i == 1", "i != 1", "t LIKE u", "i = 1 AND", "true and 1 = 1", "i = 1;"),
    *("5 IN ('a')", "hyphen-ated = 1", '"i" = 1', "[i] = 1", "i in (1)", "HYPHENATED_PROPS:a-b = 1"),
    *("convert_string_expressions:n = 3", "no_convert_string_expressions:n=3"),
)
_DURABILITIES = (_string("DURABLE"), _string("NON_DURABLE"))
_CONDITIONS = (
    *(_compare, _compare, _compare_text, _compare_text, _compare_small, _null, _between, _in, _like, _like),
    *(_boolean, _boolean, _header, _broken),
)
