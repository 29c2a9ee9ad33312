"""The messages that queues held in the end, as ``understudy browse --json`` prints them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from understudy.errors import LedgerDamaged


def read_remaining(lines: Iterable[str], file: str = "<remaining>") -> frozenset[tuple[str, int]]:
    """(producer, number) of every line; other keys are ignored, so browsed messages and ledger rows do alike.

    Raises:
        LedgerDamaged: a line has no such keys; names file and line.
    """
    found = set()
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            fields = json.loads(text)
            producer, number = fields["producer"], fields["number"]
            if type(producer) is not str or type(number) is not int:
                raise ValueError("producer is a text and number an integer")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise LedgerDamaged(
                f"no remaining message: {error}",
                file=file,
                line=line,
                hint='one JSON object a line with "producer" and "number"',
            ) from None
        found.add((producer, number))
    return frozenset(found)
