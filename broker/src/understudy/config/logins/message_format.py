"""Texts with places for arguments, in the syntax of ``java.text.MessageFormat``: ``(uid={0})``.

Arguments are put in as they are, once: braces in an argument are no places. Two apostrophes are one; text between
single apostrophes is literal.
"""

from __future__ import annotations

import re
from typing import Final

from understudy.dataclass import dataclass

_PART: Final = re.compile(r"''|'(?P<literal>[^']*)(?:'|$)|\{(?P<place>[^{}]*)\}|(?P<brace>[{}])|(?P<text>[^'{}]+)")


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """A text in parts: literal ones, and numbers of arguments."""

    parts: tuple[str | int, ...]

    @staticmethod
    def parse(text: str, arguments: int) -> MessageFormat:
        """The parts of a text.

        Args:
            text: A format in the syntax above.
            arguments: How many arguments there are.

        Raises:
            ValueError: a brace without its counterpart, or a place for an argument that does not exist.
        """
        parts: list[str | int] = []
        for match in _PART.finditer(text):
            place = match["place"]
            if match["brace"] is not None:
                raise ValueError(f"a single {match['brace']!r}; in apostrophes it is literal")
            if place is None:
                literal = match["literal"]
                parts.append(match["text"] or ("'" if literal is None else literal))
            elif place.isascii() and place.isdigit() and int(place) < arguments:
                parts.append(int(place))
            else:
                allowed = " and ".join(f"{{{number}}}" for number in range(arguments))
                raise ValueError(f"there is no argument {{{place}}}, only {allowed}")
        return MessageFormat(tuple(parts))

    def fill(self, *arguments: str) -> str:
        """The text with the arguments in their places."""
        return "".join(arguments[part] if isinstance(part, int) else part for part in self.parts)
