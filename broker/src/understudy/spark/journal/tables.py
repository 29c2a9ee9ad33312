"""Columns of the tables that the journal source has (docs/use/pipeline.md): names, Spark types, and conditions of rows.

Imports neither pyspark nor pyarrow, so that a command can check its options before Spark is started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from understudy.dataclass import dataclass
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


# --- conditions of option where ------------------------------------------------------------------------------------
# They are a part of a frame: Spark 4.3 keeps the reader that it planned last, with the filters that it gave to it, for
# all scans of one frame (ADR 0129).

#: Columns that are known before a body is copied.
CHEAP: Final = frozenset(
    {"node_id", "epoch", "segment", "sequence", "logged_from", "logged_until", "type", "kind", "message_id",
     "transaction_id", "address_id", "address", "queue_id", "queue", "timestamp", "expiration", "priority", "moved"}
)  # fmt: skip
OPERATORS: Final = ("=", "<", "<=", ">", ">=", "in", "starts with")
_INTEGERS: Final = {"bigint": 63, "int": 31, "smallint": 15, "tinyint": 7}
_TABLES: Final = ("records", "messages", "acknowledgements")


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column with a value; a null in the column never satisfies it."""

    column: str
    operator: str
    """Operator of the condition, one of ``OPERATORS``."""
    value: Any
    """Text, number, boolean or moment, as the column has it; of ``in`` a tuple of them."""


def conditions_as_text(conditions: Iterable[Sequence[Any]]) -> str:
    """The value of option ``where`` for triples of column, operator and value."""
    return json.dumps([list(each) for each in conditions], default=_plain)


def _plain(value: object) -> str | list[Any]:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise ConfigError(f"option where: {value!r} is no value to compare with")


def parse_conditions(text: str | None, table: str) -> tuple[Condition, ...]:
    """The conditions of option ``where``; none without it.

    Raises:
        ConfigError: the text is no list of conditions, or the table has no such column, or a value is of another type.
    """
    if text is None:
        return ()
    if table not in _TABLES:
        raise ConfigError(f"option where: table {table} has no conditions", hint=f"tables: {', '.join(_TABLES)}")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, list) and len(each) == 3 for each in found):
        raise ConfigError(
            f"option where: {text!r} is no list of conditions", hint='[["sequence", ">", 100], ["queue", "in", ["a"]]]'
        )
    return tuple(_condition(table, *each) for each in found)


def _condition(table: str, column: Any, operator: Any, value: Any) -> Condition:
    kind = TABLES[table].get(column) if isinstance(column, str) and column in CHEAP else None
    if kind is None:
        usable = ", ".join(sorted(CHEAP & set(TABLES[table])))
        raise ConfigError(f"option where: table {table} has no conditions for {column!r}", hint=f"columns: {usable}")
    if operator not in OPERATORS:
        raise ConfigError(f"option where: {operator!r} is no operator", hint=f"operators: {', '.join(OPERATORS)}")
    if operator == "starts with" and kind != "string":
        raise ConfigError(f"option where: column {column} is {kind}, and only texts start with something")
    if operator == "in":
        if not isinstance(value, list):
            raise ConfigError(f"option where: {value!r} is no list of values for column {column}")
        return Condition(column, operator, tuple(_value(column, kind, each) for each in value))
    return Condition(column, operator, _value(column, kind, value))


def _value(column: str, kind: str, value: Any) -> Any:
    if kind == "timestamp" and isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None:
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if kind in _INTEGERS and is_integer and -(1 << _INTEGERS[kind]) <= value < 1 << _INTEGERS[kind]:
        return value
    if (kind == "string" and isinstance(value, str)) or (kind == "boolean" and isinstance(value, bool)):
        return value
    raise ConfigError(f"option where: column {column} is {kind}, which {value!r} is not")
