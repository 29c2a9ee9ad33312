"""How Python's cyclic garbage collector is set in a server process.

What the hot path makes (messages, references, tuples that wait) has no cycles: reference counts free it. The collector
only has to find what closed connections and errors leave behind, yet with its defaults it walks everything every few
hundred messages: half of the broker's time with 100,000 messages in memory (ADR 0015). So what start-up made is left
out for good, and the rest is looked at seldom. Not here: measuring memory.
"""

from __future__ import annotations

import gc
from typing import Final

#: Net new objects before the youngest are looked at; a walk of that many takes one or two milliseconds.
YOUNGEST: Final = 50_000
#: Walks of a younger generation per walk of the next.
MIDDLE: Final = 20
OLDEST: Final = 50


def settle() -> None:
    """Once, when start-up is over: what exists now stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNGEST, MIDDLE, OLDEST)
