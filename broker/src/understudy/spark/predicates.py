"""Filters that Spark pushes down, applied to whole segments and to single rows.

Spark hands over a conjunction of comparisons of one column with a literal. All of them are used to skip segments, those
of cheap columns also to drop rows before their bodies are copied; Spark applies every filter again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from understudy.spark.log_plan import Piece

#: Columns whose filters drop rows in the source.
CHEAP: Final = frozenset(
    {"sequence", "type", "kind", "message_id", "transaction_id", "address_id", "address", "queue_id", "queue",
     "timestamp", "expiration", "priority", "moved"}
)  # fmt: skip
_COMPARISONS: Final = {
    EqualTo: pc.equal,
    EqualNullSafe: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}


def column_of(filter_: Any) -> str | None:
    """The column of a filter that can be used here; None for others."""
    attribute: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(attribute) != 1:
        return None
    if isinstance(filter_, In):
        return attribute[0] if filter_.value and None not in filter_.value else None
    known = type(filter_) in _COMPARISONS or isinstance(filter_, StringStartsWith)
    return attribute[0] if known and filter_.value is not None else None


def may_match(piece: Piece, filters: Iterable[Filter]) -> bool:
    """Whether a segment may have rows for which all filters are true."""
    return all(_may_match(piece, each) for each in filters)


def _may_match(piece: Piece, filter_: Filter) -> bool:
    column = column_of(filter_)
    bounds: tuple[Any, Any]
    if column == "epoch":
        bounds = piece.epoch, piece.epoch
    elif column == "segment":
        bounds = piece.number, piece.number
    elif column == "sequence":
        bounds = piece.first_sequence or None, piece.last_sequence or None
    elif column == "node_id":
        bounds = piece.node_id, piece.node_id
    elif column == "logged_from" and piece.first_ms:
        bounds = _instant(piece.first_ms), _instant(piece.first_ms)
    elif column == "logged_until" and piece.sealed_ms:
        bounds = _instant(piece.sealed_ms), _instant(piece.sealed_ms)
    else:
        return True
    return _overlaps(filter_, *bounds)


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _overlaps(filter_: Any, low: Any, high: Any) -> bool:
    """Whether some value from ``low`` to ``high`` satisfies a filter; None is no bound."""
    if isinstance(filter_, In):
        return any((low is None or low <= each) and (high is None or each <= high) for each in filter_.value)
    value = filter_.value
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    if isinstance(filter_, (EqualTo, EqualNullSafe)):
        return (low is None or low <= value) and (high is None or value <= high)
    if isinstance(filter_, GreaterThan):
        return high is None or bool(high > value)
    if isinstance(filter_, GreaterThanOrEqual):
        return high is None or bool(high >= value)
    if isinstance(filter_, LessThan):
        return low is None or bool(low < value)
    if isinstance(filter_, LessThanOrEqual):
        return low is None or bool(low <= value)
    return True


def mask_of(filter_: Any, values: pa.Array) -> pa.Array:
    """A mask that says for each value whether the filter is true of it; null counts as false."""
    if isinstance(filter_, In):
        return pc.is_in(values, _literals(filter_.value, values.type))
    if isinstance(filter_, StringStartsWith):
        return pc.fill_null(pc.starts_with(values, filter_.value), False)
    literal = _literals([filter_.value], values.type)[0]
    return pc.fill_null(_COMPARISONS[type(filter_)](values, literal), False)


def _literals(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    found = [
        each.replace(tzinfo=UTC) if isinstance(each, datetime) and each.tzinfo is None else each for each in values
    ]
    return pa.array(found, kind)
