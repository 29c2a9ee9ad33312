"""A selector bound to its text, as bindings and consumers use it."""

from __future__ import annotations

from understudy.limits import EXCLUDED_MESSAGES_MAX
from understudy.message import Message
from understudy.selector import Selector, parse_selector
from understudy.selector.equalities import NO_EQUALITIES, incomplete


class Filter:
    """Which messages a binding or a consumer takes."""

    __slots__ = ("_selector", "equalities", "text")

    def __init__(self, text: str, *, stored: bool = False) -> None:
        """See ``parse_selector``; raises InvalidSelector."""
        self.text = text
        self._selector: Selector = parse_selector(text, stored=stored)
        self.equalities = self._selector.equalities

    @property
    def steps(self) -> int:
        """Cost of evaluating the filter on a message (``selector.work``)."""
        return self._selector.steps

    def matches(self, message: Message) -> bool:
        """Whether the filter lets a message through."""
        return self._selector.matches(message)


class ExcludingFilter(Filter):
    """The filter of a consumer, if any, without single messages."""

    __slots__ = ("_excluded", "_inner")

    def __init__(self, inner: Filter | None) -> None:
        self.text = inner.text if inner is not None else ""
        self.equalities = incomplete(inner.equalities) if inner is not None else NO_EQUALITIES
        self._inner = inner
        self._excluded: dict[int, None] = {}

    def exclude(self, message_id: int) -> None:
        """Exclude a message; beyond ``EXCLUDED_MESSAGES_MAX`` the exclusion made first is forgotten."""
        self._excluded[message_id] = None
        if len(self._excluded) > EXCLUDED_MESSAGES_MAX:
            del self._excluded[next(iter(self._excluded))]

    def clear(self) -> None:
        """Exclude no message any more."""
        self._excluded.clear()

    @property
    def steps(self) -> int:
        """Cost of looking at a message (``selector.work``)."""
        return 1 + (self._inner.steps if self._inner is not None else 0)

    def matches(self, message: Message) -> bool:
        """Whether the message is not excluded and matches the filter."""
        return message.message_id not in self._excluded and (self._inner is None or self._inner.matches(message))


def parse_filter(text: str | None, *, stored: bool = False) -> Filter | None:
    """Parse the filter of a queue or consumer; None for no filter or a blank one.

    Args:
        text: A selector.
        stored: Whether it comes from the log, so it was accepted before.

    Raises:
        InvalidSelector: the text is no selector.
    """
    if text is None or not text.strip():
        return None
    return Filter(text.strip(), stored=stored)
