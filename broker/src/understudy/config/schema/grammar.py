"""Rows of the configuration schema: elements, attributes, kinds of values and their support.

Not here: the rows themselves (``schema`` and its tables), reading a document
(``document``), and the meaning of values (``reader``, ``model``). Invariant: a row is immutable and
complete, so the documentation, the checks and the defaults have one source.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field, replace
from enum import Enum
from typing import Final

from understudy.dataclass import dataclass
from understudy.units import parse_bytes, parse_duration_ms

Value = bool | int | float | str

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class Kind(Enum):
    """Kind of a value."""

    CONTAINER = "elements"
    TEXT = "text"
    PATH = "path"
    BOOLEAN = "true or false"
    INTEGER = "integer"
    LONG = "long integer"
    DECIMAL = "number"
    BYTES = "bytes (K, M, G)"
    MILLISECONDS = "milliseconds"
    SECONDS = "seconds"
    NANOSECONDS = "nanoseconds"
    PERCENT = "percent"
    CHOICE = "one of"


class Support(Enum):
    """Support of an element in this version; all except ``IMPLEMENTED`` are reported."""

    IMPLEMENTED = "yes"
    NOT_YET = "not yet"
    """The element is checked, then ignored with a warning."""
    NO_EFFECT = "no effect"
    """Tunes something that this broker does not have; a warning says why."""
    REFUSED = "refused"
    """Ignoring it would be unsafe, so a value other than the default is an error."""


_UNIT_SUFFIXES: Final = {
    Kind.BYTES: "_bytes",
    Kind.MILLISECONDS: "_ms",
    Kind.SECONDS: "_seconds",
    Kind.NANOSECONDS: "_ns",
    Kind.PERCENT: "_percent",
}


def field_name(name: str, kind: Kind) -> str:
    """Name of the dataclass field for an element or attribute: underscores, unit last."""
    stem = name.lower().replace("-", "_")
    suffix = _UNIT_SUFFIXES.get(kind, "")
    return stem if suffix and stem.endswith(suffix) else stem + suffix


@dataclass(frozen=True, slots=True)
class Attribute:
    """Declaration of one attribute of an element."""

    name: str
    kind: Kind
    doc: str
    default: str | None = None
    required: bool = False
    minimum: int = -1
    maximum: int = LONG_MAX
    choices: tuple[str, ...] = ()
    support: Support = Support.IMPLEMENTED
    may_be_empty: bool = False
    """A required attribute may have an empty value."""

    @property
    def field(self) -> str:
        """Name of the dataclass field it fills."""
        return field_name(self.name, self.kind)


@dataclass(frozen=True, slots=True)
class Element:
    """Declaration of one element; a ``CONTAINER`` has children, any other kind has text."""

    name: str
    kind: Kind
    doc: str
    default: str | None = None
    """Value of an absent element; None if there is none."""
    support: Support = Support.IMPLEMENTED
    note: str = ""
    """Reason for which the element has no effect or is refused."""
    aliases: tuple[str, ...] = ()
    """Older names, accepted and never written."""
    attributes: tuple[Attribute, ...] = ()
    children: tuple[Element, ...] = ()
    repeated: bool = False
    required: bool = False
    minimum: int = -1
    maximum: int = LONG_MAX
    raised_to: int | None = None
    """Smaller values from ``minimum`` on are raised to this one, with a warning; None: all values are used."""
    choices: tuple[str, ...] = ()
    by_name: dict[str, Element] = field(init=False, repr=False, compare=False)
    """Children by canonical and alternative names."""

    def __post_init__(self) -> None:
        index = {name: child for child in self.children for name in (child.name, *child.aliases)}
        if len(index) != sum(1 + len(child.aliases) for child in self.children):
            raise ValueError(f"schema: two children of {self.name!r} share a name")
        object.__setattr__(self, "by_name", index)

    @property
    def field(self) -> str:
        """Name of the dataclass field it fills."""
        return field_name(self.name, self.kind)

    def walk(self, path: str = "") -> Iterator[tuple[str, Element]]:
        """This element and all elements in it, each with its path, in document order."""
        here = f"{path}/{self.name}" if path else self.name
        yield here, self
        for child in self.children:
            yield from child.walk(here)

    def with_support(self, support: Support, note: str = "") -> Element:
        """A copy in which this element and all elements in it have this support."""
        children = tuple(child.with_support(support) for child in self.children)
        return replace(self, support=support, note=note, children=children)


def parse_value(text: str, row: Element | Attribute) -> Value:
    """The value of ``text`` as the row's kind.

    Raises:
        ValueError: invalid text; the message names the expected form.
    """
    kind = row.kind
    if kind in (Kind.TEXT, Kind.PATH):
        return text
    text = text.strip()
    if kind is Kind.BOOLEAN:
        return _parse_boolean(text)
    if kind is Kind.CHOICE:
        if text not in row.choices:
            raise ValueError(f"{text!r} is not one of {', '.join(row.choices)}")
        return text
    if kind is Kind.DECIMAL:
        return _parse_decimal(text)
    number = _parse_number(text, kind)
    if not row.minimum <= number <= row.maximum:
        raise ValueError(f"{number} is outside {row.minimum} to {row.maximum}")
    return number


def _parse_boolean(text: str) -> bool:
    word = text.lower()
    if word not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word == "true"


def _parse_decimal(text: str) -> float:
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!r} is no number")
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{text!r} is no number from 0 up")
    return number


def _parse_number(text: str, kind: Kind) -> int:
    if kind is Kind.BYTES:
        return parse_bytes(text)
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdigit() and len(digits) <= 19:
        return int(text)
    if kind is Kind.MILLISECONDS:
        return parse_duration_ms(text)
    raise ValueError(f"{text!r} is no {kind.value if kind is Kind.INTEGER else 'integer'}")


def container(
    name: str,
    doc: str,
    *children: Element,
    attributes: tuple[Attribute, ...] = (),
    repeated: bool = False,
    required: bool = False,
    aliases: tuple[str, ...] = (),
) -> Element:
    """A row for an element that contains others."""
    return Element(
        name,
        Kind.CONTAINER,
        doc,
        children=children,
        attributes=attributes,
        repeated=repeated,
        required=required,
        aliases=aliases,
    )


def row(
    name: str,
    kind: Kind,
    default: str | None,
    doc: str,
    *,
    aliases: tuple[str, ...] = (),
    attributes: tuple[Attribute, ...] = (),
    repeated: bool = False,
    required: bool = False,
    minimum: int = -1,
    maximum: int | None = None,
    raised_to: int | None = None,
    choices: tuple[str, ...] = (),
) -> Element:
    """A row for an element with a value."""
    if maximum is None:
        maximum = INT_MAX if kind is Kind.INTEGER else LONG_MAX
    return Element(
        name,
        kind,
        doc,
        default,
        aliases=aliases,
        attributes=attributes,
        repeated=repeated,
        required=required,
        minimum=minimum,
        maximum=maximum,
        raised_to=raised_to,
        choices=choices,
    )


def named(doc: str, name: str = "name") -> Attribute:
    """The required attribute that names an entry of a list."""
    return Attribute(name, Kind.TEXT, doc, required=True)


def not_yet(*rows: Element) -> tuple[Element, ...]:
    """The rows, marked as ignored with a warning in this version."""
    return tuple(each.with_support(Support.NOT_YET) for each in rows)


def no_effect(why: str, *rows: Element) -> tuple[Element, ...]:
    """The rows, marked as settings for something that this broker does not have."""
    return tuple(each.with_support(Support.NO_EFFECT, why) for each in rows)


def refused(why: str, *rows: Element) -> tuple[Element, ...]:
    """The rows, marked as refused if they have a value other than the default."""
    return tuple(each.with_support(Support.REFUSED, why) for each in rows)
