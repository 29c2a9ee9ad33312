"""Versions of the format of a log (docs/build/journal-format.md s. 2.1, ADR 0088).

The header of a segment or snapshot states the lowest version that a reader must know; a reader refuses a higher one
than ``FORMAT_VERSION``. A log begins with the first version. It gets a later one when the first record is written
that needs it (``store.log_format``): in a new segment, so that an older node reads everything before it.

1. What every version reads.
2. SETTING records of scale-down, message groups, bridges and named readers.
3. SETTING records of connectors.
4. SETTING records of XA branches that a scale-down moved.
5. SETTING records of stores of other nodes, whose messages have moved here.
6. SETTING records of exchanges of AMQP 0-9-1 and of their bindings.
7. SETTING records of client sessions of AMQP 0-9-1, and duplicate ids that are numbers of their publishes.
"""

from __future__ import annotations

from typing import Final

FORMAT_VERSION_FIRST: Final = 1
#: Newest version that this Understudy reads.
FORMAT_VERSION: Final = 7
