"""Archives without Spark: the expected messages by records read one by one, and the messages of the Parquet files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow.parquet as pq
from tests.support.journals import plain_records

from understudy.message import BODY_END_BIAS, LARGE_BODY_BYTES, LargeBody, Message
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.records import (
    AcknowledgeRecord,
    AddressRecord,
    CheckpointRecord,
    CommitRecord,
    MessageRecord,
    MoveRecord,
    QueueRecord,
)
from understudy.store.snapshots.snapshot import read_snapshot
from understudy.tools.log_copy import LogCopy

Key = tuple[str, int, bytes]
"""Node id, message id, encoded message."""


@dataclass
class Expected:
    """Messages of some journals."""

    confirmed: dict[Key, set[str | None]] = field(default_factory=dict)
    """Addresses of each confirmed message by its key; several, because a copy may know another address."""
    queues: dict[Key, set[str]] = field(default_factory=dict)
    unconfirmed: set[Key] = field(default_factory=set)


def expected_messages(directories: Sequence[str], after: int = 0) -> Expected:
    """The rules of docs/use/pipeline.md in the plainest way.

    Args:
        directories: Journals.
        after: Earlier messages count only if the snapshot has them: sequence where the first run of a reader begins.
    """
    found = Expected()
    for directory in directories:
        _add(found, directory, after)
    found.unconfirmed -= found.confirmed.keys()
    return found


def _add(found: Expected, directory: str, after: int) -> None:
    plain = list(plain_records(directory))
    copy = LogCopy(RealDisk(), directory)
    commits = {each.record.tx_id for each in plain if isinstance(each.record, CommitRecord)}
    proved = {i for each in plain if isinstance(each.record, AcknowledgeRecord) for i in each.record.message_ids}
    addresses: dict[int, str] = {}
    queues: dict[int, str] = {}
    held: set[int] = set()
    if copy.base is not None:
        file = RealDisk().open(f"{directory}/{copy.base.name}", read_only=True)
        _, state = read_snapshot(file, copy.base.name)
        file.close()
        addresses |= {each.address_id: each.name for each in state.addresses.values()}
        queues |= {each.queue_id: each.name for each in state.queues.values()}
        held |= {one.message_id for queue in state.references.values() for one in queue.references()}
        for transaction in state.transactions.values():
            held |= {message_id for _, message_id in transaction.acknowledges}
            if transaction.tx_id in commits:
                held |= {reference.message_id for _, reference in transaction.adds}
        proved |= held
    for each in plain:
        items = each.record.items if isinstance(each.record, CheckpointRecord) else [each.record]
        for item in items:
            if isinstance(item, AddressRecord):
                addresses[item.address_id] = item.name
            elif isinstance(item, QueueRecord):
                queues[item.queue_id] = item.name
    for each in plain:
        record = each.record
        if not isinstance(record, (MessageRecord, MoveRecord)):
            continue
        if each.frame.sequence <= after and record.message_id not in held:
            continue
        key = (str(copy.node_id), record.message_id, record.encoded)
        alone = isinstance(record, MessageRecord) and (not record.tx_id or record.tx_id in commits)
        if alone or record.message_id in proved:
            own = Message.decode(record.encoded).address
            # a decoded move does not say the id of its address: it is one of all, or without a binding its own
            every = {own, *addresses.values()}
            names = {addresses.get(record.address_id, own)} if isinstance(record, MessageRecord) else every
            found.confirmed.setdefault(key, set()).update(names)
        else:
            found.unconfirmed.add(key)
        found.queues.setdefault(key, set()).update(queues[each] for each in record.queue_ids if each in queues)


# --- the files --------------------------------------------------------------------------------------------------------


def archived_rows(archive: Path) -> list[dict[str, Any]]:
    """The rows of the published files, read without Spark, each with ``date``, ``address_key`` and ``file``."""
    rows = []
    for path in sorted((archive / "data").resolve().rglob("*.parquet")):
        _, date, key, _ = str(path).rsplit("/", 3)
        place = {"date": date.removeprefix("date="), "address_key": key.removeprefix("address_key="), "file": path}
        rows += [row | place for row in pq.ParquetFile(path).read().to_pylist()]
    return rows


def encoded_of(row: dict[str, Any]) -> bytes:
    """The message as the journal has it."""
    if row["body_state"] == "inline":
        body = row["body"]
    else:
        body = LargeBody(row["large_file_id"], row["large_size"], row["large_crc"]).encode()
        assert len(body) == LARGE_BODY_BYTES
    found: bytes = (len(body) + BODY_END_BIAS).to_bytes(4, "big") + body + row["header"]
    return found


def check_rows(rows: Iterable[dict[str, Any]], expected: Expected) -> None:
    """The archive has each confirmed message once, and nothing else; and its columns say what the message says."""
    rows = list(rows)
    keys = [(row["node_id"], row["message_id"], encoded_of(row)) for row in rows]
    assert len(set(keys)) == len(keys)
    assert set(keys) == set(expected.confirmed)
    for key, row in zip(keys, rows, strict=True):
        message = Message.decode(key[2])
        assert row["address"] in expected.confirmed[key]
        assert (row["priority"], row["type"], row["durable"]) == (message.priority, message.type, message.durable)
        assert row["user_id"] == message.user_id
        assert set(row["queues"]) <= expected.queues[key]
        assert row["address_key"] == plain_key(row["address"])
        sent = datetime.fromtimestamp(message.timestamp / 1000, UTC) if message.timestamp else None
        assert row["timestamp"] == sent
        assert row["date"] == ("__HIVE_DEFAULT_PARTITION__" if sent is None else sent.date().isoformat())
        if row["body_state"] == "inline":
            assert row["body"] == message.body
        elif row["body_state"] == "file":
            assert (len(row["body"]), crc32(row["body"])) == (row["large_size"], row["large_crc"])
        else:
            assert row["body"] is None


def plain_key(address: str | None) -> str:
    """Directory of an address, without Spark."""
    text = address or ""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return re.sub("[^A-Za-z0-9._]", "_", text)[:40] + "-" + digest
