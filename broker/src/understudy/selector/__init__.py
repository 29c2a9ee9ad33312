"""Message selectors: the SQL-92 subset of JMS, compiled to closures over a ``Message``.

Grammar, lowest precedence first: OR; AND; NOT; = <> IS [NOT] NULL; < <= > >= [NOT] BETWEEN, IN,
LIKE; + -; * / %; unary + - NOT; literal, identifier, parentheses. Logic has three values: a condition that
depends on an absent property is unknown, and a message is selected if the result is true (JMS 2.0 s. 3.8.1).
Identifiers name properties, but those of Artemis filters (AMQPriority, AMQUserID ..., manual
"Filter Expressions") and of JMS (JMSPriority ...) read the header. The prefixes
``hyphenated_props:`` and ``convert_string_expressions:`` have the meaning described there.

Where JMS and Artemis' code differ JMS holds: NOT binds weaker than a comparison, comparing values
of different types is false with <> too, and only numbers have an order. Whole numbers are exact.

Not here: XPATH and XQUERY, which are refused. No text of a user ever reaches ``eval`` or ``re``;
length, depth and the number of operands and operators are limited, and LIKE looks at every character of a
property once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from understudy.errors import InvalidSelector
from understudy.limits import SELECTOR_CHARACTERS_MAX, SELECTOR_STEPS_MAX
from understudy.message import Message
from understudy.selector.equalities import NO_EQUALITIES, Equalities
from understudy.selector.evaluation import Evaluate
from understudy.selector.parser import Parser
from understudy.selector.tokens import tokenize
from understudy.selector.work import WORK

#: Compiled selectors in the cache.
CACHE_MAX: Final = 512
#: Steps counted for reading a message, in addition to those of the selector.
STEPS_OF_A_LOOK: Final = 4
_UNLIMITED: Final = 1 << 62


class Selector:
    """A compiled selector. Immutable; equal texts give the same object while it is cached."""

    __slots__ = ("_evaluate", "equalities", "steps", "text")

    def __init__(self, text: str, evaluate: Evaluate, steps: int, equalities: Equalities = NO_EQUALITIES) -> None:
        self.text = text
        self._evaluate = evaluate
        self.steps = steps
        """Cost of evaluating the selector for a message, without the characters read by LIKE (``work``)."""
        self.equalities = equalities

    def matches(self, message: Message) -> bool:
        """Whether the message is selected. Unknown counts as false. The work is counted (``work``)."""
        WORK.steps += self.steps
        return self._evaluate(message) is True

    def __repr__(self) -> str:
        return f"<Selector {self.text!r}>"


@lru_cache(maxsize=CACHE_MAX)
def parse_selector(text: str, *, stored: bool = False) -> Selector:
    """The selector of a text.

    Args:
        text: The expression.
        stored: Whether it was accepted before and is read from the store: the limit of steps does not apply.

    Raises:
        InvalidSelector: syntax error, or a limit is exceeded; names the position, counted in characters from 1.
    """
    if len(text) > SELECTOR_CHARACTERS_MAX:
        raise InvalidSelector(f"selector of {len(text)} characters, limit {SELECTOR_CHARACTERS_MAX}")
    start, hyphens, convert = _prefixes(text)
    parser = Parser(tokenize(text, start, hyphens), convert, _UNLIMITED if stored else SELECTOR_STEPS_MAX)
    evaluate = parser.parse()
    return Selector(text, evaluate, STEPS_OF_A_LOOK + parser.steps, parser.equalities)


def _prefixes(text: str) -> tuple[int, bool, bool]:
    """Start of the expression, and whether hyphens and string conversion are on."""
    start, hyphens, convert = 0, False, False
    while True:
        for prefix in ("hyphenated_props:", "no_hyphenated_props:"):
            if text.startswith(prefix, start):
                start, hyphens = start + len(prefix), prefix[0] == "h"
                break
        else:
            for prefix in ("convert_string_expressions:", "no_convert_string_expressions:"):
                if text.startswith(prefix, start):
                    start, convert = start + len(prefix), prefix[0] == "c"
                    break
            else:
                return start, hyphens, convert
