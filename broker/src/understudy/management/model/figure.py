"""Declaration of the fields of the model: meaning, unit, name in Artemis and name of the metric, beside the field."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from understudy.dataclass import dataclass

#: A number that is not negative.
Natural = Annotated[int, Meta(ge=0)]


class Item(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all values of the model."""


def figure(
    doc: str,
    unit: str | None = None,
    *,
    artemis: str | None = None,
    metric: str | None = None,
    total: str | None = None,
    label: str | None = None,
) -> Meta:
    """Metadata of a field, for ``Annotated``.

    Args:
        doc: The meaning, a sentence or a noun phrase.
        unit: Unit of a number, such as ``ms`` or ``bytes``; a wall time has the unit ``ms since 1970``.
        artemis: Name of the value in Artemis' lists.
        metric: Name of the metric that is a gauge. One that ends in ``_seconds`` is divided from milliseconds.
        total: Name of the metric that is a counter, without ``_total``.
        label: Name of the label whose values are the keys of a field that is a dict of numbers.
    """
    extra = {"unit": unit, "artemis": artemis, "metric": metric, "total": total, "label": label}
    return Meta(
        description=doc,
        extra=extra,
        extra_json_schema=None if unit is None else {"x-unit": unit},
    )


@dataclass(frozen=True, slots=True)
class Figure:
    """Declaration of one field of the model."""

    name: str
    type: Any
    """The annotated type without its metadata."""
    doc: str
    unit: str | None
    artemis: str | None
    metric: str | None
    total: str | None
    label: str | None


@cache
def figures(kind: type[Struct]) -> dict[str, Figure]:
    """The declarations of the fields of a kind of values, by name and in their order.

    Raises:
        TypeError: a field is not declared with ``figure`` or ``count``.
    """
    hints = get_type_hints(kind, include_extras=True)
    return {name: _figure(kind, name, hints[name]) for name in kind.__struct_fields__}


def _figure(kind: type[Struct], name: str, hint: object) -> Figure:
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    for meta in metadata:
        if isinstance(meta, Meta) and meta.description and meta.extra is not None:
            return Figure(name, get_args(hint)[0], meta.description, **meta.extra)
    raise TypeError(f"{kind.__name__}.{name} has no declaration: Annotated[…, figure(…)]")


def base_types(annotation: object) -> frozenset[type]:
    """The types that a value of an annotation may have: of ``Natural | None`` these are int and NoneType."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return base_types(get_args(annotation)[0])
    if origin is Literal:
        return frozenset(map(type, get_args(annotation)))
    if origin in (Union, UnionType):
        return frozenset[type]().union(*map(base_types, get_args(annotation)))
    return frozenset({origin if isinstance(origin, type) else annotation})  # type: ignore[arg-type]  # a type
