"""How much work selectors have done: a count of steps that only rises, read where the time of the loop is divided.

A step is about one operand or operator of an expression, or one character of a text that LIKE looks at one by one:
some tenths of a microsecond. Differences mean something, the count itself does not.
"""

from __future__ import annotations

from typing import Final


class Work:
    """Steps done by all selectors of this process."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


WORK: Final = Work()
