"""Lines of a ledger as columns.

A chunk of lines that are all rows beyond doubt is parsed by Arrow as a whole. Any other chunk goes line by line through
``understudy.ledger.parse``, which decides what a row is and why not. Arrow says only that a chunk has a wrong line, not
which one, and it accepts a few lines that the reference refuses: ``_fields_together`` says what makes a chunk doubtful.
"""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from understudy.errors import LedgerDamaged
from understudy.ledger import DELIVERY_COUNT_MAX, INTEGER_MAX, REPLACEMENT, TIME_MS_MAX, VERSION, Kind, parse

_TEXTS: Final = ("kind", "producer", "address", "consumer", "queue", "transaction", "origin", "node", "node_id")
#: Integer fields of a line with their least and their largest value.
_INTEGERS: Final = {
    "number": (0, INTEGER_MAX),
    "at_ms": (0, TIME_MS_MAX),
    "message_id": (0, INTEGER_MAX),
    "delivery_count": (0, DELIVERY_COUNT_MAX),
    "digest": (0, INTEGER_MAX),
    "version": (1, VERSION),
    "epoch": (0, INTEGER_MAX),
}
#: Bytes of a blank line, and around the object of a line.
BLANKS: Final = b" \t\r\n"
_REQUIRED: Final = frozenset({"kind", "producer", "number", "address", "at_ms"})
_DEFAULTS: Final[dict[str, Any]] = {"durable": True, "version": 1}
_FIELDS: Final = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        *((name, pa.int64()) for name in _INTEGERS),
        ("durable", pa.bool_()),
    ]
)
_KINDS: Final = pa.array([kind.value for kind in Kind])
#: Columns of ``parse_lines``: the ordinal of a line, its text if it is no row, the fields of its row, and whether it is
#: none.
LINES: Final = pa.schema([("ordinal", pa.int64()), ("value", pa.string()), *_FIELDS, ("bad", pa.bool_())])

_OPTIONS: Final = pyarrow.json.ParseOptions(
    explicit_schema=_FIELDS, newlines_in_values=False, unexpected_field_behavior="ignore"
)


def parse_lines(data: bytes, ordinal: int) -> pa.RecordBatch:
    """The lines that are not blank, with the fields of each line's row.

    Args:
        data: Whole lines; only the last one may be without its end.
        ordinal: Ordinal of the first byte; that of a line is the ordinal of its first byte.
    """
    lines = pc.split_pattern(pa.array([data.removesuffix(b"\n")], pa.binary()), b"\n").values
    lengths = pc.add(pc.cast(pc.binary_length(lines), pa.int64()), 1)
    ordinals = pc.add(pc.subtract(pc.cumulative_sum(lengths), lengths), ordinal)
    fields = _fields_together(data, len(lines))
    if fields is None:
        return _parse_each(lines, ordinals)
    nothing, good = pa.nulls(len(lines), pa.string()), pa.repeat(pa.scalar(False), len(lines))
    return pa.RecordBatch.from_arrays([ordinals, nothing, *fields, good], schema=LINES)


def _fields_together(data: bytes, count: int) -> list[pa.Array] | None:
    """The fields of lines that are all rows; None if that is not certain."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    # for Arrow null is a value of any type; it would ignore objects, arrays and NaN in fields that a row does not have,
    # and a byte order mark in front of the first line
    if text.count("{") != count or any(each in text for each in ("null", "[", "NaN", "Inf", "\ufeff", REPLACEMENT)):
        return None
    try:
        table = pyarrow.json.read_json(
            io.BytesIO(data), pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1), _OPTIONS
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != count:
        return None
    found = {field.name: _filled(table.column(field.name), field) for field in _FIELDS}
    return list(found.values()) if _is_valid(found) else None


def _filled(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """An array of the values of a field, with its default for lines that lack it."""
    array = column.combine_chunks()
    if not array.null_count or field.name in _REQUIRED:
        return array
    default = _DEFAULTS.get(field.name, "" if pa.types.is_string(field.type) else 0)
    return pc.fill_null(array, pa.scalar(default, field.type))


def _is_valid(found: dict[str, pa.Array]) -> bool:
    if any(found[name].null_count for name in _REQUIRED) or not pc.all(pc.is_in(found["kind"], _KINDS)).as_py():
        return False
    for name, (least, largest) in _INTEGERS.items():
        bounds = pc.min_max(found[name]).as_py()
        if bounds["min"] < least or bounds["max"] > largest:
            return False
    return True


def _parse_each(lines: pa.BinaryArray, ordinals: pa.Int64Array) -> pa.RecordBatch:
    """Columns of the lines that the plain Python judge has to judge one by one."""
    found: list[dict[str, Any]] = []
    for line, ordinal in zip(lines.to_pylist(), ordinals.to_pylist(), strict=True):
        if not line.strip(BLANKS):
            continue
        text = line.decode(errors="replace")
        try:
            row = parse(text)
        except LedgerDamaged:
            found.append({"ordinal": ordinal, "value": text, "bad": True})
        else:
            fields = {field.name: _plain(getattr(row, field.name)) for field in _FIELDS}
            found.append({"ordinal": ordinal, "bad": False, **fields})
    return pa.RecordBatch.from_pylist(found, schema=LINES)


def _plain(value: Any) -> Any:
    """A value as Arrow takes it; half of a surrogate pair, which JSON can name, is no text in UTF-8."""
    if isinstance(value, Kind):
        return value.value
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
