"""The journal source without a running Spark: its reader is called as Spark calls it. And the plain reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import types as t

from understudy.message import Message
from understudy.runtime.base.disk import RealDisk
from understudy.spark.journal import tables
from understudy.spark.journal.log_plan import parse_options
from understudy.spark.journal.reader import JournalReader
from understudy.spark.journal.tables import conditions_as_text
from understudy.store.log.records import AcknowledgeRecord, MessageRecord, MoveRecord
from understudy.tools.inspect import LoggedRecord, read_log

_TYPES: dict[str, t.DataType] = {
    "string": t.StringType(), "bigint": t.LongType(), "int": t.IntegerType(), "smallint": t.ShortType(),
    "tinyint": t.ByteType(), "boolean": t.BooleanType(), "binary": t.BinaryType(), "timestamp": t.TimestampType(),
    "map<string,string>": t.MapType(t.StringType(), t.StringType()), "array<tinyint>": t.ArrayType(t.ByteType()),
}  # fmt: skip

Row = dict[str, Any]


def read_table(
    directories: str | Sequence[str],
    table: str,
    columns: Sequence[str] | None = None,
    where: Sequence[tuple[str, str, Any]] = (),
    **options: str,
) -> list[Row]:
    """The rows of a table, in the order of the log."""
    paths = [directories] if isinstance(directories, str) else list(directories)
    given = {"paths": "[" + ",".join(f'"{path}"' for path in paths) + "]", "table": table, **options}
    if where:
        given["where"] = conditions_as_text(where)
    known = tables.TABLES[table]
    schema = t.StructType([t.StructField(name, _TYPES[known[name]]) for name in columns or known])
    reader = JournalReader(parse_options(given), schema)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def plain_records(directory: str) -> Iterator[LoggedRecord]:
    """Every record, decoded one by one."""
    return read_log(RealDisk(), directory)


def plain_messages(directory: str) -> list[Row]:
    """Rows of table ``messages`` by records read one by one; without names of bindings."""
    found = []
    for logged in plain_records(directory):
        record = logged.record
        if not isinstance(record, (MessageRecord, MoveRecord)):
            continue
        message = Message.decode(record.encoded)
        found += [
            {
                "epoch": logged.epoch,
                "sequence": logged.frame.sequence,
                "segment": logged.number,
                "offset": logged.frame.offset,
                "length": logged.frame.length,
                "message_id": record.message_id,
                "moved": isinstance(record, MoveRecord),
                "queue_id": queue_id,
                "transaction_id": (isinstance(record, MessageRecord) and record.tx_id) or None,
                "priority": message.priority,
                "type": message.type,
                "durable": message.durable,
                "user_id": message.user_id,
                "size": len(record.encoded),
                "body": message.body,
                "timestamp": message.timestamp or None,
            }
            for queue_id in record.queue_ids
        ]
    return found


def plain_acknowledgements(directory: str) -> list[Row]:
    """The same of table ``acknowledgements``."""
    return [
        {
            "sequence": logged.frame.sequence,
            "queue_id": logged.record.queue_id,
            "transaction_id": logged.record.tx_id or None,
            "message_id": message_id,
        }
        for logged in plain_records(directory)
        if isinstance(logged.record, AcknowledgeRecord)
        for message_id in logged.record.message_ids
    ]
