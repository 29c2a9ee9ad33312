"""Columns of the tables that the journal source has (docs/pipeline.md): names, Spark types and meanings.

Imports neither pyspark nor pyarrow, so that a command can check its options before Spark is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from understudy.errors import ConfigError

#: Columns of every table, in front of its own: where a record lies.
_PLACE: Final = {
    "directory": "string",
    "node_id": "string",
    "epoch": "bigint",
    "sequence": "bigint",
    "segment": "bigint",
    "file": "string",
    "offset": "bigint",
    "length": "int",
    "logged_from": "timestamp",
    "logged_until": "timestamp",
}

#: Columns by table. The types are those of Spark's DDL.
TABLES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "records": {
            **_PLACE,
            "batch": "bigint",
            "type": "smallint",
            "kind": "string",
            "flags": "smallint",
            "transaction_id": "bigint",
            "payload": "binary",
            "damage": "string",
        },
        "messages": {
            **_PLACE,
            "message_id": "bigint",
            "transaction_id": "bigint",
            "moved": "boolean",
            "address_id": "bigint",
            "address": "string",
            "queue_id": "bigint",
            "queue": "string",
            "timestamp": "timestamp",
            "expiration": "timestamp",
            "scheduled": "timestamp",
            "priority": "tinyint",
            "durable": "boolean",
            "type": "tinyint",
            "large": "boolean",
            "size": "int",
            "user_id": "binary",
            "duplicate_id": "binary",
            "producer": "string",
            "properties": "map<string,string>",
            "body": "binary",
            "text": "string",
            "encoded": "binary",
            "header": "binary",
        },
        "acknowledgements": {
            **_PLACE,
            "queue_id": "bigint",
            "queue": "string",
            "transaction_id": "bigint",
            "message_id": "bigint",
        },
        "changes": {
            "directory": "string",
            "sequence": "bigint",
            "change": "string",
            "queue_id": "bigint",
            "message_id": "bigint",
            "transaction_id": "bigint",
        },
        "references": {
            **_PLACE,
            "queue_id": "bigint",
            "message_id": "bigint",
            "transaction_id": "bigint",
            "acknowledged": "boolean",
            "size": "int",
            "priority": "tinyint",
            "delivery_count": "int",
            "expiration": "timestamp",
            "scheduled": "timestamp",
            "large_file_id": "bigint",
        },
        "bindings": {
            **_PLACE,
            "source": "string",
            "kind": "string",
            "removed": "boolean",
            "id": "bigint",
            "name": "string",
            "address_id": "bigint",
            "routing_types": "array<tinyint>",
            "filter": "string",
            "durable": "boolean",
            "settings": "string",
        },
    }
)


def ddl(table: str, columns: str | None = None) -> str:
    """The schema of a table in Spark's DDL.

    Args:
        columns: Names separated by commas; None for all columns.

    Raises:
        ConfigError: there is no such table or column.
    """
    known = TABLES.get(table)
    if known is None:
        raise ConfigError(f"no table {table!r}", hint=f"tables: {', '.join(TABLES)}")
    names = list(known) if columns is None else [each.strip() for each in columns.split(",")]
    for name in names:
        if name not in known:
            raise ConfigError(f"table {table} has no column {name!r}", hint=f"columns: {', '.join(known)}")
    return ", ".join(f"`{name}` {known[name]}" for name in names)
