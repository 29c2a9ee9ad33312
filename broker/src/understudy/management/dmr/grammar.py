"""The lines of the management CLI: ``/subsystem=messaging-activemq/server=default:read-resource(recursive=true){a=b}``.

A line is an operation, a command or a comment. White space between separators means nothing; quotes keep separators,
and a backslash keeps the next character. Bare text stays text: its type is that of the attribute for which it is given.
Not here: the meaning of addresses and operations (``resources``, ``operations``), and commands (the command line).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.management.dmr.values import DEPTH_MAX, Value

Address = tuple[tuple[str, str], ...]
"""Steps from the root, each a type and a name."""

#: Longest line read. Characters.
LINE_CHARACTERS_MAX: Final = 65_536
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
#: Texts that are printed without quotes: in addresses, and as values.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_@#$*+%.-]+")
_PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9_@#$*+%.:/-]+")


class LineError(ConfigError):
    """A line that cannot be read; ``column`` counts characters from 1."""

    def __init__(self, message: str, column: int, *, hint: str | None = None) -> None:
        super().__init__(message, path=f"column {column}", hint=hint)
        self.column = column


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on a resource."""

    address: Address
    name: str
    arguments: Mapping[str, Value] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = ",".join(_argument(name, value) for name, value in self.arguments.items())
        headers = ";".join(f"{name}={_text(value, _PLAIN_VALUE)}" for name, value in self.headers.items())
        text = f"{format_address(self.address)}:{self.name}"
        return text + (f"({arguments})" if arguments else "") + (f"{{{headers}}}" if headers else "")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the CLI itself, such as ``cd`` or ``batch``."""

    name: str
    arguments: tuple[str, ...] = ()
    rest: str = ""
    """Everything after the name as it was written."""


def format_address(address: Address) -> str:
    """The text of an address: ``/`` for the root."""
    return "/" + "/".join(f"{kind}={_text(name, _PLAIN_NAME)}" for kind, name in address)


def parse_line(text: str, node: Address = ()) -> Operation | Command | None:
    """An operation or a command; None: the line is empty or a comment.

    Args:
        text: The line, without the end of the line.
        node: The current node, where an address without a leading slash starts.

    Raises:
        LineError: the line cannot be read; it names the column.
    """
    if len(text) > LINE_CHARACTERS_MAX:
        raise LineError(f"{len(text)} characters, limit {LINE_CHARACTERS_MAX}", LINE_CHARACTERS_MAX)
    stripped = text.strip()
    if not stripped or stripped.startswith("#"):
        return None
    if _is_operation(stripped):
        return _Parser(text, node).operation()
    name, *following = stripped.split(None, 1)
    rest = "".join(following)
    return Command(name, split_words(rest, len(stripped) - len(rest) + 1), rest)


def parse_address(text: str, node: Address = ()) -> Address:
    """The address of a text such as the argument of ``cd``. Raises LineError."""
    parser = _Parser(text, node)
    address = parser.address()
    if not parser.at_end():
        raise parser.error("text after the address")
    return address


def split_words(text: str, column: int = 1) -> tuple[str, ...]:
    """The words of a text, with quotes and backslashes as in a line. Raises LineError: a quote is not closed."""
    found, current, quoted = list[str](), list[str](), False
    written = False
    characters = iter(text)
    for character in characters:
        if character == "\\":
            current.append(next(characters, "\\"))
            written = True
        elif character == '"':
            quoted, written = not quoted, True
        elif character.isspace() and not quoted:
            if written:
                found.append("".join(current))
            current, written = [], False
        else:
            current.append(character)
            written = True
    if quoted:
        raise LineError("a quote is not closed", column + text.rindex('"'))
    if written:
        found.append("".join(current))
    return tuple(found)


def _is_operation(text: str) -> bool:
    if text[0] in "/:." or text.startswith("./"):
        return True
    word = re.match(r"[A-Za-z_][A-Za-z0-9_.-]*\s*=", text)
    return word is not None and ":" in text


def _argument(name: str, value: Value) -> str:
    if value is True:
        return name
    return f"!{name}" if value is False else f"{name}={_value(value)}"


def _value(value: Value) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_text(name, _PLAIN_NAME)}={_value(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text("undefined" if value is None else str(value), _PLAIN_VALUE)


def _text(text: str, plain: re.Pattern[str]) -> str:
    if plain.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Parser:
    """Parser of one line."""

    def __init__(self, text: str, node: Address) -> None:
        self._text = text
        self._node = node
        self._at = 0

    def error(self, message: str, at: int | None = None, *, hint: str | None = None) -> LineError:
        """An error at the present character or at a given one."""
        return LineError(message, (self._at if at is None else at) + 1, hint=hint)

    def at_end(self) -> bool:
        """Whether only white space is left."""
        self._space()
        return self._at >= len(self._text)

    def operation(self) -> Operation:
        address = self.address()
        if not self._take(":"):
            raise self.error("':' and the name of an operation are expected")
        name = self._name("the name of an operation")
        arguments: dict[str, Value] = {}
        if self._take("("):
            arguments = self._arguments()
        headers: dict[str, str] = {}
        if self._take("{"):
            headers = self._headers()
        if not self.at_end():
            raise self.error("text after the operation")
        return Operation(address, name, arguments, headers)

    def address(self) -> Address:
        steps = list(self._node)
        self._space()
        if self._text.startswith("./", self._at):
            self._at += 2
        elif self._take("/"):
            steps = []
        while not self.at_end() and self._peek() != ":":
            self._step(steps)
            if self._peek() == ":" or self.at_end():
                break
            if not self._take("/"):
                raise self.error("'/', ':' or the end of the address is expected")
        return tuple(steps)

    def _step(self, steps: list[tuple[str, str]]) -> None:
        start = self._at
        if self._text.startswith("..", self._at):
            self._at += 2
            if not steps:
                raise self.error("the root has no parent", start)
            steps.pop()
            return
        kind = self._name("the type of a resource")
        if not self._take("="):
            raise self.error("'=' and the name of a resource are expected")
        name = self._bare("/:")
        if name == "*":
            raise self.error("an address with * is not supported", start, hint="name one resource")
        if not name:
            raise self.error("the name of a resource is empty")
        steps.append((kind, name))

    def _arguments(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        while not self._take(")"):
            if found and not self._take(","):
                raise self.error("',' or ')' is expected")
            self._space()
            start = self._at
            negated = self._take("!")
            name = self._name("the name of a parameter")
            if name in found:
                raise self.error(f"parameter {name!r} is given twice", start)
            if negated:
                found[name] = False
            else:
                found[name] = self._value(",)", 0) if self._take("=") else True
        return found

    def _headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while not self._take("}"):
            if found and not self._take(";"):
                raise self.error("';' or '}' is expected")
            self._space()
            start = self._at
            name = self._name("the name of a header")
            if name in found:
                raise self.error(f"header {name!r} is given twice", start)
            found[name] = self._bare(";}") if self._take("=") else "true"
        return found

    def _value(self, ends: str, depth: int) -> Value:
        if depth > DEPTH_MAX:
            raise self.error(f"a value is nested more than {DEPTH_MAX} times")
        self._space()
        if self._take("["):
            return self._list(depth)
        if self._take("{"):
            return self._object("}", depth)
        if self._take("("):
            return self._object(")", depth)
        return self._bare(ends)

    def _list(self, depth: int) -> Value:
        found: list[Value] = []
        while not self._take("]"):
            if found and not self._take(","):
                raise self.error("',' or ']' is expected")
            found.append(self._value(",]", depth + 1))
        return found

    def _object(self, closing: str, depth: int) -> Value:
        found: dict[str, Value] = {}
        while not self._take(closing):
            if found and not self._take(","):
                raise self.error(f"',' or {closing!r} is expected")
            start = self._at
            name = self._bare("=," + closing)
            if not self._take("="):
                raise self.error("'=' or '=>' and a value are expected")
            self._take(">")
            if name in found:
                raise self.error(f"{name!r} is given twice", start)
            found[name] = self._value("," + closing, depth + 1)
        return found

    # --- characters ------------------------------------------------------------------------------

    def _space(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _peek(self) -> str:
        self._space()
        return self._text[self._at : self._at + 1]

    def _take(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _name(self, wanted: str) -> str:
        self._space()
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise self.error(f"{wanted} is expected")
        self._at = match.end()
        return match[0]

    def _bare(self, ends: str) -> str:
        """Text up to one of the characters; quotes, backslashes and ``${...}`` keep them."""
        self._space()
        found, kept = list[str](), 0
        text = self._text
        while self._at < len(text) and text[self._at] not in ends:
            character = text[self._at]
            if character == '"':
                found += self._quoted()
                kept = len(found)
            elif text.startswith("${", self._at):
                found += self._expression()
                kept = len(found)
            elif character == "\\":
                if self._at + 1 >= len(text):
                    raise self.error("nothing follows the backslash")
                found.append(text[self._at + 1])
                kept = len(found)
                self._at += 2
            else:
                found.append(character)
                self._at += 1
        while len(found) > kept and found[-1].isspace():
            found.pop()
        return "".join(found)

    def _quoted(self) -> str:
        start = self._at
        self._at += 1
        found = list[str]()
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == '"':
                self._at += 1
                return "".join(found)
            if character == "\\" and self._at + 1 < len(self._text):
                self._at += 1
                character = self._text[self._at]
            found.append(character)
            self._at += 1
        raise self.error("a quote is not closed", start)

    def _expression(self) -> str:
        end = self._text.find("}", self._at)
        if end < 0:
            raise self.error("an expression is not closed", hint="${name} or ${name:default}")
        found = self._text[self._at : end + 1]
        self._at = end + 1
        return found
