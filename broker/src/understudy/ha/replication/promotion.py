"""The record of a promotion: by order of an administrator, data that may be old counts as the newest (ADR 0059).

Kept in the file ``promotions.json`` of the lock directory, newest last, so that the divergence of two copies can be
explained later. Not here: the promotion itself (``Authority.promote``), and writing the file
(``runtime.node.promotions``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt

FILE_NAME: Final = "promotions.json"
#: Records kept; the oldest are left out.
RECORDS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Promotion:
    """One promotion of a replica to the active node."""

    node_id: str
    before: int | None
    """Activation sequence of the data before; None: it had none."""
    newest_known: int | None
    """Highest sequence that was known at that time; None: only the other node knows."""
    sequence: int
    """Sequence of the data from then on."""
    wall_ms: int = 0
    """Time at which the promotion was recorded, epoch milliseconds."""


def encode(records: Sequence[Promotion]) -> bytes:
    """Content of the file with these records."""
    return json.dumps([asdict(each) for each in records[-RECORDS_MAX:]], indent=1).encode() + b"\n"


def decode(data: bytes, file: str) -> list[Promotion]:
    """The records of the file. Raises JournalCorrupt: the bytes are no file of promotions."""
    try:
        records: Any = json.loads(data)
        return [Promotion(**each) for each in records]
    except (ValueError, TypeError) as error:
        raise JournalCorrupt(f"is no list of promotions: {error}", file=file, offset=0) from error
