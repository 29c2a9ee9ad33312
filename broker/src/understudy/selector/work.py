"""Counter of the work of selectors; the event loop reads it to divide its time.

A step is about one operand or operator of an expression, or one character of a text that LIKE examines:
some tenths of a microsecond. Only differences of the counter have a meaning.
"""

from __future__ import annotations

from typing import Final


class Work:
    """Steps done by all selectors of this process."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


WORK: Final = Work()
