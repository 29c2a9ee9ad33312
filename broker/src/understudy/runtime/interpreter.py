"""How the Python interpreter is set in a server process: its collector of cycles and its change of threads.

What the hot path makes (messages, references, tuples that wait) has no cycles: reference counts free it. The collector
only has to find what closed connections and errors leave behind, yet with its defaults it walks everything every few
hundred messages: half of the broker's time with 100,000 messages in memory. So what start-up made is left out for good,
and the rest is looked at seldom.

The journal's thread needs the interpreter for a moment when a sync has ended, and a busy loop gives it up by default
only every 5 ms: longer than the sync. Figures: ADR 0015. Not here: measuring memory.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

#: Net new objects before the youngest are looked at; a walk of that many takes one or two milliseconds.
YOUNGEST: Final = 50_000
#: Walks of a younger generation per walk of the next.
MIDDLE: Final = 20
OLDEST: Final = 50
#: How long a thread that wants to run waits for the one that runs.
SWITCH_SECONDS: Final = 0.0001


def settle() -> None:
    """Once, when start-up is over: what exists now stays."""
    keep_what_exists()
    gc.set_threshold(YOUNGEST, MIDDLE, OLDEST)
    sys.setswitchinterval(SWITCH_SECONDS)


def keep_what_exists() -> None:
    """The collector does not look at it any more, garbage included: looking for that first would hold
    everybody up, and there is little.
    """
    gc.freeze()
