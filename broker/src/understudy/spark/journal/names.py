"""Bindings of a log: the rows of table ``bindings``, and names by id for the other tables.

Bindings are rare among the records, and any segment may have one. ``kernel.skim_records`` finds them without decoding
messages; segments are read by several threads, because the native kernel works without the interpreter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt
from understudy.kernel.log import skim_records
from understudy.ports import Disk
from understudy.runtime.base.disk import RealDisk
from understudy.spark.journal.blocks import read_blocks
from understudy.spark.journal.decode import Block, clean
from understudy.spark.journal.log_plan import LogPlan, Mode, Piece, read_small_state
from understudy.store.log.records import (
    HEADER,
    HEADER_BYTES,
    AddressRecord,
    AddressRemoveRecord,
    CheckpointRecord,
    QueueRecord,
    QueueRemoveRecord,
    RecordType,
    decode,
)
from understudy.store.setting_record import SettingRecord

_BINDINGS: Final = frozenset(
    {
        RecordType.CHECKPOINT,
        RecordType.ADDRESS_ADD,
        RecordType.ADDRESS_REMOVE,
        RecordType.QUEUE_ADD,
        RecordType.QUEUE_REMOVE,
        RecordType.SETTING,
    }
)
_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class Names:
    """Names of addresses and queues by id."""

    addresses: dict[int, str] = field(default_factory=dict)
    queues: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BindingRecord:
    """A record about bindings, with its place."""

    piece: Piece
    offset: int
    length: int
    sequence: int
    record: Any


def binding_records(disk: Disk, piece: Piece, mode: Mode) -> Iterator[BindingRecord]:
    """The binding records of a segment, in order.

    Raises:
        JournalCorrupt: in mode FAIL, for damage; names file and offset.
    """
    for block in read_blocks(disk, piece, mode):
        if not isinstance(block, Block):
            continue
        _, _, steps = skim_records(block.data.to_pybytes(), block.origin)
        for _, _, others in steps:
            for offset, raw in others:
                if raw[20] in _BINDINGS:
                    yield _decoded(piece, offset, raw)


def _decoded(piece: Piece, offset: int, raw: bytes) -> BindingRecord:
    _, length, sequence, _, kind, flags, _ = HEADER.unpack_from(raw)
    try:
        record = decode(kind, flags, raw[HEADER_BYTES:])
    except ValueError as error:
        raise JournalCorrupt(str(error), file=piece.path, offset=offset) from error
    return BindingRecord(piece, offset, length, sequence, record)


def read_names(plans: Sequence[LogPlan], mode: Mode) -> dict[str, Names]:
    """Names by id, for each directory; also of bindings that were removed later."""
    disk = RealDisk()
    found: dict[str, Names] = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        for plan in plans:
            names = found[plan.directory] = Names()
            if plan.retention is not None:
                found[plan.retention] = names
            if plan.snapshot is not None:
                state = read_small_state(disk, plan.directory, plan.snapshot)
                names.addresses.update({each.address_id: clean(each.name) for each in state.addresses.values()})
                names.queues.update({each.queue_id: clean(each.name) for each in state.queues.values()})
            for records in pool.map(lambda piece: list(binding_records(disk, piece, mode)), plan.pieces):
                for each in records:
                    note_names(names, each.record)
    return found


def piece_bindings(disk: Disk, piece: Piece) -> list[object]:
    """The binding records of a segment, decoded. Raises JournalCorrupt."""
    return [each.record for each in binding_records(disk, piece, Mode.FAIL)]


def note_names(names: Names, record: object) -> None:
    """Note the names that a binding record has."""
    if isinstance(record, AddressRecord):
        names.addresses[record.address_id] = clean(record.name)
    elif isinstance(record, QueueRecord):
        names.queues[record.queue_id] = clean(record.name)
    elif isinstance(record, CheckpointRecord):
        for item in record.items:
            note_names(names, item)


# --- table bindings -------------------------------------------------------------------------------------------------


def binding_rows(found: BindingRecord) -> Iterator[dict[str, Any]]:
    """Rows of one record: one row, or one for each item of a CHECKPOINT."""
    piece = found.piece
    place = {
        "directory": piece.directory,
        "node_id": piece.node_id,
        "epoch": piece.epoch,
        "sequence": found.sequence,
        "segment": piece.number,
        "file": piece.name,
        "offset": found.offset,
        "length": found.length,
        "logged_from": 1000 * piece.first_ms or None,
        "logged_until": 1000 * piece.sealed_ms or None,
    }
    if isinstance(found.record, CheckpointRecord):
        for item in found.record.items:
            yield from (place | row for row in _item_rows(item, "checkpoint"))
    else:
        yield from (place | row for row in _item_rows(found.record, "log"))


def snapshot_rows(disk: Disk, plan: LogPlan) -> Iterator[dict[str, Any]]:
    """The bindings in the snapshot with which a log begins; their sequence is that of the snapshot."""
    if plan.snapshot is None:
        return
    state = read_small_state(disk, plan.directory, plan.snapshot)
    place = {"directory": plan.directory, "node_id": plan.node_id, "epoch": state.epoch, "file": plan.snapshot}
    for items in (state.addresses, state.queues, state.settings):
        for item in items.values():
            yield from (place | row for row in _item_rows(item, "snapshot"))


def _item_rows(item: Any, source: str) -> Iterator[dict[str, Any]]:
    if isinstance(item, AddressRecord):
        yield {
            "source": source, "kind": "address", "removed": False, "id": item.address_id, "name": clean(item.name),
            "routing_types": list(item.routing_types), "settings": _json(item.settings),
        }  # fmt: skip
    elif isinstance(item, QueueRecord):
        selector = None if item.filter is None else clean(item.filter)
        yield {
            "source": source, "kind": "queue", "removed": False, "id": item.queue_id, "name": clean(item.name),
            "address_id": item.address_id, "routing_types": [item.routing_type], "filter": selector,
            "durable": item.durable, "settings": _json(item.settings),
        }  # fmt: skip
    elif isinstance(item, AddressRemoveRecord):
        yield {"source": source, "kind": "address", "removed": True, "id": item.address_id}
    elif isinstance(item, QueueRemoveRecord):
        yield {"source": source, "kind": "queue", "removed": True, "id": item.queue_id}
    elif isinstance(item, SettingRecord):
        values = None if item.values is None else _json(item.values)
        yield {
            "source": source, "kind": f"{item.scope.value} setting", "removed": item.values is None,
            "name": clean(item.match), "settings": values,
        }  # fmt: skip


def _json(values: Any) -> str:
    return json.dumps(dict(values), sort_keys=True)
