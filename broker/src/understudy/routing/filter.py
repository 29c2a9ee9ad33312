"""A selector bound to its text, as bindings and consumers use it."""

from __future__ import annotations

from understudy.message import Message
from understudy.selector import Selector, parse_selector


class Filter:
    """Which messages a binding or a consumer takes."""

    __slots__ = ("_selector", "text")

    def __init__(self, text: str, *, stored: bool = False) -> None:
        """See ``parse_selector``; raises InvalidSelector."""
        self.text = text
        self._selector: Selector = parse_selector(text, stored=stored)

    @property
    def steps(self) -> int:
        """What looking at a message costs (``selector.work``)."""
        return self._selector.steps

    def matches(self, message: Message) -> bool:
        return self._selector.matches(message)


def parse_filter(text: str | None, *, stored: bool = False) -> Filter | None:
    """None for no filter or a blank one.

    Args:
        text: A selector.
        stored: It comes from the log, so it was accepted before.

    Raises:
        InvalidSelector: the text is no selector.
    """
    if text is None or not text.strip():
        return None
    return Filter(text.strip(), stored=stored)
