"""The kinds of resources and attributes of the management CLI, and values between both notations.

Defaults and kinds of values come from ``config.schema.schema``. Not here: the resources themselves (``resources``).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Final

from understudy.config.schema.grammar import Attribute as XmlAttribute
from understudy.config.schema.grammar import Element
from understudy.config.schema.grammar import parse_value as parse_xml_value
from understudy.config.schema.schema import element_at
from understudy.dataclass import dataclass
from understudy.errors import ManagementError
from understudy.management.dmr.values import Long, Value
from understudy.texts import masked_url

#: The element of the server ``default``.
CORE: Final = "core"
#: Digits before and after the point of a decimal number.
DECIMAL_DIGITS_MAX: Final = 30


class Type(Enum):
    """Type of an attribute, with the name that descriptions have."""

    BOOLEAN = "BOOLEAN"
    INT = "INT"
    LONG = "LONG"
    DECIMAL = "BIG_DECIMAL"
    STRING = "STRING"
    LIST = "LIST"


class Effect(Enum):
    """When a written value is used, with the name that descriptions have."""

    LIVE = "no-services"
    RELOAD = "all-services"


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a resource, and its place in broker.xml."""

    name: str
    type: Type
    element: str = ""
    """Path below the element of the resource, ``@name`` for an attribute of XML; empty: the text of that element."""
    aliases: tuple[str, ...] = ()
    required: bool = False
    secret: bool = False
    """A value that is not shown."""
    url: bool = False
    """A value whose passwords are not shown."""
    unserved: str | None = None
    """Why a value is refused, and what to use; None: the attribute can be written."""
    runtime: bool = False
    """The value is a fact of the running node and not part of the configuration."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the aliases."""
        return (self.name, *self.aliases)

    def converted(self, value: Value) -> str | tuple[str, ...]:
        """The text of a value in broker.xml; of a list the texts of its entries.

        Raises:
            ManagementError: the value has another type.
        """
        if self.type is Type.LIST:
            entries = value if isinstance(value, list | tuple) else [value]
            if any(not isinstance(each, str) or not each for each in entries):
                raise self._wrong(value)
            return tuple(str(each) for each in entries)
        if isinstance(value, str) and "${" in value:
            return value
        return self._text(value)

    def _text(self, value: Value) -> str:
        if isinstance(value, list | tuple | dict | bytes) or value is None:
            raise self._wrong(value)
        text = str(value).strip()
        if self.type is Type.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self._wrong(value)
            return text.lower()
        if isinstance(value, bool):
            raise self._wrong(value)
        if self.type in (Type.INT, Type.LONG):
            digits = text.removesuffix("L").removesuffix("l")
            if not digits.removeprefix("-").isdecimal() or not digits.isascii():
                raise self._wrong(value)
            return digits
        if self.type is Type.DECIMAL:
            return self._decimal(text, value)
        return str(value)

    def _decimal(self, text: str, value: Value) -> str:
        try:
            number = Decimal(text)
        except InvalidOperation:
            raise self._wrong(value) from None
        # written without an exponent, a number of a billion digits is a short text
        if not number.is_finite() or abs(number.adjusted()) > DECIMAL_DIGITS_MAX:
            raise self._wrong(value)
        return format(number, "f")

    def _wrong(self, value: Value) -> ManagementError:
        kind = type(value).__name__ if not isinstance(value, str) else repr(value)
        return ManagementError(f"WFLYCTL0097: Wrong type for '{self.name}': {self.type.value} expected, not {kind}")

    def shown(self, value: object) -> Value:
        """A value of the checked document, or a default, as a value of the type."""
        if value is None or self.secret:
            return None if value is None else "***"
        if self.type is Type.LONG:
            return Long(str(value))
        if self.type is Type.DECIMAL:
            return Decimal(str(value))
        if self.type is Type.INT:
            return int(str(value))
        if self.type is Type.BOOLEAN:
            return bool(value)
        return masked_url(str(value)) if self.url else str(value)


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A type of resources below a server."""

    type: str
    """The first part of the step of an address: ``ha-policy``."""
    name: str | None
    """The only name of such a resource; None: each has a name of its own."""
    element: str
    """Path of the element below that of the server."""
    doc: str
    attributes: tuple[Attribute, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other names of a resource that has only one."""
    type_aliases: tuple[str, ...] = ()
    key: str = "name"
    """The attribute of XML that has the name of the resource."""
    fixed: bool = False
    """The resource always exists: it can be neither added nor removed."""
    alternatives: bool = False
    """A server has at most one resource of the type."""
    effect: Effect = Effect.RELOAD
    mark: str = ""
    """The attribute of XML that tells resources of the type from those of another one with the same element; with a
    ``!`` in front, the one that they do not have.
    """
    one_of: tuple[str, ...] = ()
    """Attributes of which a resource has at least one."""
    top: bool = False
    """The element is beside ``core``, and not in a server."""

    def attribute(self, name: str) -> Attribute:
        """The attribute of a name or alias. Raises ManagementError: there is none."""
        for each in self.attributes:
            if name in each.names:
                return each
        raise ManagementError(f"WFLYCTL0201: Unknown attribute '{name}'", hint=", ".join(self.attribute_names))

    @property
    def attribute_names(self) -> list[str]:
        """Names of the attributes, sorted."""
        return sorted(each.name for each in self.attributes)

    def row(self, attribute: Attribute) -> Element | XmlAttribute:
        """The row of the schema that an attribute is. Raises KeyError: there is none."""
        path, at, name = attribute.element.rpartition("@")
        around = "" if self.top else CORE
        row = element_at("/".join(part for part in (around, self.element, path.rstrip("/") if at else "") if part))
        if not attribute.element:
            return row
        if at:
            return next(each for each in row.attributes if each.name == name)
        return element_at("/".join(part for part in (around, self.element, attribute.element) if part))

    def marks(self, attributes: Mapping[str, object]) -> bool:
        """Whether an element with these attributes of XML is a resource of the type."""
        name = self.mark.removeprefix("!")
        return not name or (name in attributes) != self.mark.startswith("!")

    def default(self, attribute: Attribute) -> Value:
        """The value of an attribute that is not given, as the schema has it; None: there is none."""
        if attribute.runtime or attribute.unserved or attribute.type is Type.LIST:
            return None
        row = self.row(attribute)
        return None if row.default in (None, "") else attribute.shown(parse_xml_value(row.default, row))
