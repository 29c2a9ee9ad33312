"""The tables of operations as values of the model."""

from __future__ import annotations

from functools import cache

from msgspec.json import schema

from understudy.management.model import operations as model
from understudy.management.operations.resources import CONTROLS
from understudy.management.operations.table import Operation, type_text
from understudy.terms import Permission


@cache
def declared() -> tuple[model.Operation, ...]:
    """All operations of all resources, as values of the model."""
    return tuple(_declared(kind.operations.kind, row) for kind in CONTROLS for row in kind.operations.rows)


def _declared(kind: str, row: Operation) -> model.Operation:
    return model.Operation(
        id=f"{kind}.{row.signature}",
        resource=kind,
        name=row.name,
        attribute=row.attribute,
        parameters=[
            model.Parameter(name=each.name, type=each.kind.value, nullable=each.nullable) for each in row.parameters
        ],
        result=type_text(row.result),
        schema=None if row.result is None else schema(row.result, schema_hook=_any_value),
        permission="view" if row.permission() is Permission.VIEW else "edit",
        effect=row.effect.value,
        doc=row.doc,
    )


def _any_value(kind: type) -> dict[str, object]:
    """The schema of ``object`` in a type of a result."""
    return {"description": "Any value."}
