"""Comparisons ``property = literal`` that a message must meet to be selected: the terms of a conjunction.

A queue finds messages by them in an index of the values (``routing.queues.value_index``) without evaluating a selector
for each message. Texts and numbers only, compared as ``evaluation.equals`` does: values of Python of these types are
equal exactly if the selector says so. Not here: comparisons that convert strings, headers, TRUE and FALSE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from understudy.dataclass import dataclass

#: Comparisons of a selector that are used.
_TERMS_MAX: Final = 4

Literal = int | float | str


@dataclass(frozen=True, slots=True)
class Equalities:
    """Comparisons that are all true for a message that is selected; none if ``names`` is empty."""

    names: tuple[bytes, ...] = ()
    """Names of the properties in UTF-16, each once."""
    values: tuple[Literal, ...] = ()
    """The literal for each name."""
    complete: bool = False
    """Whether every message for which they are true is selected."""


NO_EQUALITIES: Final = Equalities()


def equality_of(property_name: str, value: object) -> Equalities:
    """The comparison of a property with a literal, if it is one.

    Args:
        property_name: Empty: neither side is a property.
        value: The other side; None if that is no literal.
    """
    if not property_name or isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return NO_EQUALITIES
    return Equalities((property_name.encode("utf-16-le", "surrogatepass"),), (value,), complete=True)


def all_of(parts: Sequence[Equalities]) -> Equalities:
    """The comparisons of all parts of a conjunction. Of several for one property the first is used."""
    found: dict[bytes, Literal] = {}
    complete = True
    for part in parts:
        complete = complete and part.complete
        for name, value in zip(part.names, part.values, strict=True):
            if name in found or len(found) >= _TERMS_MAX:
                complete = False
            else:
                found[name] = value
    return Equalities(tuple(found), tuple(found.values()), complete) if found else NO_EQUALITIES


def incomplete(equalities: Equalities) -> Equalities:
    """The same comparisons of a selector that takes fewer messages than those for which they are true."""
    return replace(equalities, complete=False)
