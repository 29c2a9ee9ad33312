"""Rows of table ``changes``: what adds to a queue and takes from it, in one pass over the log.

Not here: which of the changes are in effect at the end (``live``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from understudy.spark.journal.decode import AcknowledgementRows, Block, MessageRows, Rows
from understudy.store.log.records import RecordType

ADD: Final = "add"
ACKNOWLEDGE: Final = "acknowledge"
COMMIT: Final = "commit"
REMOVE: Final = "remove queue"


def change_columns(block: Block) -> dict[str, pa.Array]:
    """The columns of the changes in one block, in the order add, acknowledge, commit, remove queue.

    Raises:
        JournalCorrupt: a record that cannot be.
    """
    rows: list[tuple[str, Rows, tuple[str, ...]]] = [
        (ADD, MessageRows(block, {}, {}, (RecordType.MESSAGE_ADD,)), ("queue_id", "message_id", "transaction_id")),
        (ACKNOWLEDGE, AcknowledgementRows(block, {}), ("queue_id", "message_id", "transaction_id")),
    ]
    parts = [
        {"change": pa.repeat(pa.scalar(change), len(each))}
        | {name: each.column(name) for name in (*names, "directory", "sequence")}
        for change, each, names in rows
    ]
    for change, kind, name in (
        (COMMIT, RecordType.TX_COMMIT, "transaction_id"),
        (REMOVE, RecordType.QUEUE_REMOVE, "queue_id"),
    ):
        place = Rows(block, *block.select(kind))
        parts.append(
            {"change": pa.repeat(pa.scalar(change), len(place)), name: block.little(place.starts, 24, 8)}
            | {each: place.column(each) for each in ("directory", "sequence")}
        )
    kinds = {"directory": pa.string(), "change": pa.string()}
    return {
        name: pa.concat_arrays(
            [
                part[name] if name in part else pa.nulls(len(part["change"]), kinds.get(name, pa.int64()))
                for part in parts
            ]
        )
        for name in ("directory", "sequence", "change", "queue_id", "message_id", "transaction_id")
    }


def changes_of_references(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a snapshot (``snapshots.reference_rows``) as changes."""
    return [row | {"change": ACKNOWLEDGE if row["acknowledged"] else ADD} for row in rows]
