"""Entries of a Java properties file, each with the place of its value, so that single values can be replaced.

An entry is ``key = value``, ``key: value`` or ``key value``; lines that begin with ``#`` or ``!`` are comments. A
backslash at the end of a line continues it, and one before a character, or ``\\uXXXX``, stands for that character. A
key that has ``=`` or ``:`` after it may contain spaces, other than in Java, where the first space would end it.

Source: the format of ``java.util.Properties``, in which Artemis keeps users and roles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|\r?\n[ \t\f]*|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a properties file."""

    line: int
    """Number of the entry's first line, from 1."""
    key: str
    value: str
    start: int
    """Index of the first character of the value in the text, and of the first one after it."""
    end: int
    begin: int
    """Index of the first character of the key in the text."""


def entries(text: str, file: str) -> Iterator[Entry]:
    """The entries of a properties file in their order.

    Args:
        text: Contents of the file.
        file: Name of the file, for errors.

    Raises:
        ConfigError: a line without a key or without a value, or a key that comes twice; names file and line.
    """
    seen: dict[str, int] = {}
    for line, start, end in _logical_lines(text):
        raw = text[start:end]
        sign, after = _separator(raw)
        key, value = _unescaped(raw[:sign].rstrip()), _unescaped(raw[after:].strip())
        if not key or sign == len(raw):
            raise ConfigError("no 'name = value'", file=file, line=line)
        if key in seen:
            raise ConfigError(f"{key!r} is repeated, first on line {seen[key]}", file=file, line=line)
        seen[key] = line
        padding = len(raw[after:]) - len(raw[after:].lstrip())
        yield Entry(line, key, value, start + after + padding, start + len(raw.rstrip()), start)


def replaced(text: str, file: str, values: Mapping[str, str | None]) -> str:
    """The text with other values for some keys; comments, order and every other entry stay as they are.

    Args:
        text: Contents of a properties file.
        file: Name of the file, for errors.
        values: New value of each key; None: the entry is removed. Keys without an entry get one at the end.

    Raises:
        ConfigError: see ``entries``.
    """
    parts: list[str] = []
    end = 0
    missing = {key: value for key, value in values.items() if value is not None}
    for entry in entries(text, file):
        if entry.key not in values:
            continue
        value = values[entry.key]
        if value is None:
            parts.append(text[end : text.rfind("\n", 0, entry.begin) + 1])
            after = text.find("\n", entry.end)
            end = len(text) if after < 0 else after + 1
        else:
            del missing[entry.key]
            parts += text[end : entry.start], _escaped_value(value)
            end = entry.end
    parts.append(text[end:])
    kept = "".join(parts)
    if missing and kept and not kept.endswith("\n"):
        kept += "\n"
    return kept + "".join(f"{_escaped_key(key)} = {_escaped_value(value)}\n" for key, value in missing.items())


def _escaped_key(key: str) -> str:
    """A key in which no character ends it or begins a comment."""
    return re.sub(r"([\\=: \t\f#!])", r"\\\1", key)


def _escaped_value(value: str) -> str:
    return value.replace("\\", "\\\\")


def _logical_lines(text: str) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of each line that is neither empty nor a comment, together with its continuations."""
    place = number = 0
    lines = text.splitlines(keepends=True)
    while number < len(lines):
        first, start = number + 1, place
        line = lines[number]
        place, number = place + len(line), number + 1
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        while _continues(line) and number < len(lines):
            line = lines[number]
            place, number = place + len(line), number + 1
        start += len(text[start:place]) - len(text[start:place].lstrip())
        yield first, start, place - (len(line) - len(line.rstrip("\r\n")))


def _continues(line: str) -> bool:
    bare = line.rstrip("\r\n")
    return (len(bare) - len(bare.rstrip("\\"))) % 2 == 1


def _separator(raw: str) -> tuple[int, int]:
    """Index at which the key ends, and at which the value may begin."""
    space: int | None = None
    index = 0
    while index < len(raw):
        character = raw[index]
        if character == "\\":
            index += 2
            continue
        if character in "=:":
            return index, index + 1
        if character in " \t\f" and space is None:
            space = index
        index += 1
    return (len(raw), len(raw)) if space is None else (space, space + 1)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: _character(found[1]), text)


def _character(escape: str) -> str:
    if escape[0] == "u" and len(escape) == 5:
        return chr(int(escape[1:], 16))
    if escape[0] in "\r\n":
        return ""
    return _ESCAPES.get(escape, escape)
