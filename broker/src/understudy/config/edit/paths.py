"""Places in broker.xml: ``core/acceptors/acceptor[@name='artemis']``, as errors of the reader name them.

A step is the name of an element, perhaps with a condition: an attribute (``[@name='a']``), the text (``[.='a']``) or
the number among its like (``[2]``). The last step may be an attribute (``@name``).
"""

from __future__ import annotations

import re
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError

_STEP: Final = re.compile(
    r"""(?P<name>[A-Za-z_][\w.-]*)
    (?:\[\s*(?:@(?P<attribute>[A-Za-z_][\w.-]*)\s*=\s*(?P<value>'[^']*'|"[^"]*")
    |\.\s*=\s*(?P<text>'[^']*'|"[^"]*")
    |(?P<number>[1-9][0-9]{0,5}))\s*\])?""",
    re.VERBOSE | re.ASCII,
)
_ATTRIBUTE: Final = re.compile(r"@([A-Za-z_][\w.-]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a path, which selects an element."""

    name: str
    key: tuple[str, str] | None = None
    """Name and value of the attribute that selects among equal elements."""
    text: str | None = None
    """Text of the element."""
    number: int | None = None
    """Number among the elements of this name, from 1 on."""

    def __str__(self) -> str:
        if self.key is not None:
            return f"{self.name}[@{self.key[0]}={_quoted(self.key[1])}]"
        if self.text is not None:
            return f"{self.name}[.={_quoted(self.text)}]"
        return self.name if self.number is None else f"{self.name}[{self.number}]"


@dataclass(frozen=True, slots=True)
class Path:
    """A place in a document."""

    steps: tuple[Step, ...]
    attribute: str | None = None
    """The attribute of the element; None: the element itself."""

    def __str__(self) -> str:
        steps = [str(step) for step in self.steps]
        return "/".join(steps if self.attribute is None else [*steps, f"@{self.attribute}"])


def parse_path(text: str) -> Path:
    """The path of a text. Raises ConfigError: it is none."""
    steps, position, rest = list[Step](), 0, text.strip().strip("/")
    while position < len(rest):
        attribute = _ATTRIBUTE.fullmatch(rest, position)
        if attribute is not None and steps:
            return Path(tuple(steps), attribute[1])
        match = _STEP.match(rest, position)
        end = len(rest) if match is None else match.end()
        if match is None or (end < len(rest) and rest[end] != "/") or end == len(rest) - 1:
            raise ConfigError(f"{rest[position:]!r} is no step of a path", path=text, hint="core/a/b[@name='c']/@d")
        steps.append(_step(match))
        position = end + 1
    if not steps:
        raise ConfigError("the path is empty", path=text, hint="core/a/b[@name='c']/@d")
    return Path(tuple(steps))


def _step(match: re.Match[str]) -> Step:
    key = None if match["attribute"] is None else (match["attribute"], match["value"][1:-1])
    text = None if match["text"] is None else match["text"][1:-1]
    return Step(match["name"], key, text, None if match["number"] is None else int(match["number"]))


def _quoted(value: str) -> str:
    return f'"{value}"' if "'" in value else f"'{value}'"
