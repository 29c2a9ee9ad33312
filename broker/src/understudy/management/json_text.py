"""JSON of requests to the management, over HTTP and in messages: strict, so that operations get values of JSON only.

``json`` of Python accepts more than RFC 8259: NaN and infinities, numbers of any length, lone surrogates, and of equal
names the last one. Each of these would fail later, in an operation, as an internal error, or have another meaning
than the client intended.
"""

from __future__ import annotations

import json
import math
from typing import Final

_INTEGER_LIMIT: Final = 2**63
#: Characters of an unusable text that an error shows.
_SHOWN: Final = 40


def parse_json(text: str | bytes) -> object:
    """The value of a JSON text.

    Args:
        text: A text, or bytes in UTF-8, UTF-16 or UTF-32.

    Raises:
        ValueError: it is not JSON, is nested too deeply, has a name twice in one object, a number beyond 64 bits, or a
            text that is not Unicode.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        text.encode()
        value: object = json.loads(
            text, parse_constant=_constant, parse_int=_integer, parse_float=_number, object_pairs_hook=_object
        )
    except UnicodeError as error:
        raise ValueError("the JSON is not valid Unicode") from error
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from error
    # an escape in a text can be half of a character
    if "\\u" in text:
        _check_texts(value)
    return value


def _constant(name: str) -> object:
    raise ValueError(f"not valid JSON: {name} is no number")


def _integer(digits: str) -> int:
    # twenty characters hold every number of 64 bits with its sign
    value = int(digits) if len(digits) <= 20 else _INTEGER_LIMIT
    if not -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
        raise ValueError(f"the number {digits[:_SHOWN]} has more than 64 bits")
    return value


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:_SHOWN]} is too large")
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the name {name[:_SHOWN]!r} occurs twice in one object")
            seen.add(name)
    return found


def _check_texts(value: object) -> None:
    """Raise UnicodeError, which is a ValueError, for a text with half of a character. Not recursive."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            try:
                each.encode()
            except UnicodeError as error:
                raise ValueError(f"the text {each[:_SHOWN]!a} is not valid Unicode") from error
        elif isinstance(each, dict):
            waiting += each.keys()
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def to_json(value: object) -> str:
    """Encode a value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
