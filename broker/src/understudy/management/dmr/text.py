"""The notation of values in the CLI: ``{"outcome" => "success", "result" => [1, 30000L, undefined]}``.

The printed form has the line breaks of the documents: an object or a list with more than one entry is on several lines,
with four spaces for each level. Numbers have no sign of addition; strings escape quotes and backslashes only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

from understudy.errors import ConfigError
from understudy.management.dmr.values import DEPTH_MAX, Long, Value

_INDENT: Final = "    "
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<arrow>=>)
    |(?P<mark>[\[\]{},()])
    |big\s+decimal\s+(?P<decimal>[0-9Ee.+-]+)
    |(?P<bytes>bytes\s*\{[\s0-9A-Fa-fx,]*\})
    |(?P<number>-?[0-9]+)(?P<long>L?)(?![0-9A-Za-z_.])
    |(?P<word>[A-Za-z]+))""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_WORDS: Final = {"undefined": None, "true": True, "false": False}
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_BYTE: Final = re.compile(r"0x[0-9A-Fa-f]{1,2}")


def format_value(value: Value, level: int = 0) -> str:
    """The text of a value; lines after its first are indented for a value at a level."""
    if isinstance(value, Mapping):
        entries = [f"{_quoted(name)} => {format_value(each, level + 1)}" for name, each in value.items()]
        return _block("{", "}", entries, level)
    if isinstance(value, list | tuple):
        return _block("[", "]", [format_value(each, level + 1) for each in value], level)
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Long):
        return f"{int(value)}L"
    if isinstance(value, Decimal):
        return f"big decimal {value}"
    if isinstance(value, bytes):
        return f"bytes {{ {', '.join(f'0x{each:02x}' for each in value)} }}"
    return _quoted(value) if isinstance(value, str) else str(value)


def _block(opening: str, closing: str, entries: list[str], level: int) -> str:
    """Entries on lines of their own, or a single one on the line of its brackets."""
    if len(entries) < 2:
        return f"{opening}{''.join(entries)}{closing}"
    outer = _INDENT * level
    return f"{opening}\n" + ",\n".join(f"{outer}{_INDENT}{each}" for each in entries) + f"\n{outer}{closing}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse_value(text: str) -> Value:
    """The value of a text.

    Raises:
        ConfigError: the text is no value, or is nested too deeply; the message names the character.
    """
    reader = _Reader(text)
    value = reader.value(0)
    if text[reader.position :].strip():
        raise reader.error("text after the value")
    return value


class _Reader:
    """Reader of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0

    def value(self, depth: int) -> Value:
        if depth > DEPTH_MAX:
            raise self.error(f"nested more than {DEPTH_MAX} times")
        token = self._next("a value")
        if token["string"] is not None:
            return _ESCAPED.sub(r"\1", token["string"][1:-1])
        if token["decimal"] is not None:
            return self._decimal(token["decimal"])
        if token["bytes"] is not None:
            return bytes(int(each, 16) for each in _BYTE.findall(token["bytes"]))
        if token["number"] is not None:
            return self._number(token["number"], is_long=bool(token["long"]))
        if token["word"] in _WORDS:
            return _WORDS[token["word"]]
        if token["mark"] == "[":
            return self._list(depth)
        if token["mark"] in ("{", "("):
            return self._object(depth, "}" if token["mark"] == "{" else ")")
        raise self.error("no value", token.start())

    def error(self, message: str, position: int | None = None) -> ConfigError:
        """An error at a character, counted from 1."""
        return ConfigError(message, path=f"character {(self.position if position is None else position) + 1}")

    def _next(self, wanted: str) -> re.Match[str]:
        match = _TOKEN.match(self._text, self.position)
        if match is None:
            raise self.error(f"{wanted} is expected")
        self.position = match.end()
        return match

    def _decimal(self, text: str) -> Decimal:
        try:
            found = Decimal(text)
        except InvalidOperation:
            raise self.error(f"{text} is no decimal number") from None
        return found

    def _number(self, text: str, *, is_long: bool) -> int:
        if len(text) > 20:
            raise self.error(f"a number of {len(text)} digits")
        return Long(text) if is_long else int(text)

    def _list(self, depth: int) -> Value:
        found: list[Value] = []
        while not self._closed("]", found):
            found.append(self.value(depth + 1))
        return found

    def _object(self, depth: int, closing: str) -> Value:
        found: dict[str, Value] = {}
        while not self._closed(closing, found):
            name = self._next("a name in quotes")
            if name["string"] is None or self._next("=>")["arrow"] is None:
                raise self.error('"name" => value is expected', name.start())
            found[_ESCAPED.sub(r"\1", name["string"][1:-1])] = self.value(depth + 1)
        return found

    def _closed(self, closing: str, found: list[Value] | dict[str, Value]) -> bool:
        """Whether the list or object ends here; otherwise the next entry follows."""
        match = _TOKEN.match(self._text, self.position)
        if match is not None and match["mark"] == closing:
            self.position = match.end()
            return True
        if found and self._next(f", or {closing}")["mark"] != ",":
            raise self.error(f", or {closing} is expected")
        return False
