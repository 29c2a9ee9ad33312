"""Lines of scripts: continued lines are joined, and blocks of ``if``, ``try`` and ``for`` are collected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.texts import reason_of

_ENDS: Final = {"if": "end-if", "try": "end-try", "for": "done"}
#: Words that divide a block.
_PARTS: Final = {"if": ("else",), "try": ("catch", "finally"), "for": ()}
#: Lines of one block.
BLOCK_LINES_MAX: Final = 10_000
#: Blocks that are in one another.
BLOCK_DEPTH_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a script, with the lines of each part."""

    word: str
    """``if``, ``try`` or ``for``."""
    head: str
    """The rest of the first line."""
    parts: dict[str, list[str]]
    """Lines of each part, by the word that begins it."""


def lines_of(file: Path) -> list[str]:
    """The lines of a script. Raises ConfigError: it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {reason_of(error)}", file=str(file)) from error


class Counted(Iterator[str]):
    """Lines, and the number of the one that was read last."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Args:
        lines: Lines of a script.
        """
        self._lines = iter(lines)
        self.number = 0

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        return line


def joined(lines: Iterable[str]) -> Iterator[str]:
    """Lines without their ends; a line that ends with a backslash continues on the next one."""
    current = ""
    for line in lines:
        text = line.rstrip("\r\n")
        if text.endswith("\\") and not text.endswith("\\\\"):
            current += text[:-1]
            continue
        yield current + text
        current = ""
    if current:
        yield current


def split_commands(text: str) -> list[str]:
    """Commands with commas between them; commas in brackets and quotes are part of a command."""
    found, start, depth, quoted = list[str](), 0, 0, False
    for at, character in enumerate(text):
        if character == '"' and text[at - 1 : at] != "\\":
            quoted = not quoted
        elif not quoted and character in "([{":
            depth += 1
        elif not quoted and character in ")]}":
            depth -= 1
        elif not quoted and depth <= 0 and character == ",":
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]


def first_word(line: str) -> str:
    """The first word of a line; empty for an empty line."""
    words = line.split(None, 1)
    return words[0] if words else ""


def is_block(line: str) -> bool:
    """Whether a line begins a block."""
    return first_word(line) in _ENDS


def collect(line: str, lines: Iterator[str]) -> Block:
    """The block that begins with a line. Raises ConfigError: its end is missing, or its parts are in disorder."""
    word = first_word(line)
    head = line.strip().removeprefix(word)
    parts: dict[str, list[str]] = {word: []}
    part, inner, count = word, list[str](), 0
    for each in lines:
        count += 1
        if count > BLOCK_LINES_MAX:
            raise ConfigError(f"a block of more than {BLOCK_LINES_MAX} lines")
        found = first_word(each)
        if not inner and found == _ENDS[word]:
            return Block(word, head.strip(), parts)
        if not inner and found in _PARTS[word]:
            if found in parts or "finally" in parts:
                raise ConfigError(f"{found} is not expected in this place of {word!r}")
            parts[found] = []
            part = found
            continue
        if found in _ENDS:
            inner.append(_ENDS[found])
            if len(inner) >= BLOCK_DEPTH_MAX:
                raise ConfigError(f"{found}: more than {BLOCK_DEPTH_MAX} blocks in one another")
        elif inner and found == inner[-1]:
            inner.pop()
        parts[part].append(each)
    raise ConfigError(f"{_ENDS[word]} is missing after {line.strip()!r}")
