"""Conditions of option ``where``, applied to whole segments and to single rows before bodies are copied."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from understudy.spark.journal.log_plan import Piece
from understudy.spark.journal.tables import Condition

_COMPARISONS: Final = {
    "=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


def may_match(piece: Piece, conditions: Iterable[Condition]) -> bool:
    """Whether a segment may have rows for which all conditions are true."""
    return all(_may_match(piece, each) for each in conditions)


def _may_match(piece: Piece, condition: Condition) -> bool:
    column = condition.column
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
    return _overlaps(condition, *bounds)


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _overlaps(condition: Condition, low: Any, high: Any) -> bool:
    """Whether some value from ``low`` to ``high`` satisfies a condition; None is no bound."""
    operator, value = condition.operator, condition.value
    if operator == "in":
        return any((low is None or low <= each) and (high is None or each <= high) for each in value)
    if operator == "=":
        return (low is None or low <= value) and (high is None or value <= high)
    if operator == ">":
        return high is None or bool(high > value)
    if operator == ">=":
        return high is None or bool(high >= value)
    if operator == "<":
        return low is None or bool(low < value)
    if operator == "<=":
        return low is None or bool(low <= value)
    return True


def mask_of(condition: Condition, values: pa.Array) -> pa.Array:
    """A mask that says for each value whether the condition is true of it; null counts as false."""
    if condition.operator == "in":
        return pc.is_in(values, pa.array(list(condition.value), values.type))
    if condition.operator == "starts with":
        return pc.fill_null(pc.starts_with(values, condition.value), False)
    literal = pa.array([condition.value], values.type)[0]
    return pc.fill_null(_COMPARISONS[condition.operator](values, literal), False)
