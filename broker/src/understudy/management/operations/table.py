"""Operations of a managed resource as declared tables, without reflection.

An operation has a name, typed parameters, a description and a function. Several operations may have the same name and
different parameters, as in Artemis; of those that accept the given values, the first is called. An
attribute is an operation of the form ``getX()`` or ``isX()``, with the name ``X`` (artemis-core s. 10.1).

Not here: the operations themselves (``*_control``), the permissions to call them (``invocation``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from enum import Enum
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from understudy.config.model import Configuration
from understudy.dataclass import dataclass
from understudy.errors import OperationNotFound
from understudy.terms import Permission

#: The default of view-permission-method-match-pattern: operations whose names match need the permission to view only.
DEFAULT_VIEWS: Final = re.compile(Configuration().view_permission_method_match_pattern)
#: Characters of an unknown name that are compared.
_COMPARED: Final = 100
_INT_MAX: Final = 2**31
_LONG_MAX: Final = 2**63


class Kind(Enum):
    """Type of a parameter, by its Java name."""

    STRING = "String"
    INT = "int"
    LONG = "long"
    BOOLEAN = "boolean"
    DOUBLE = "double"
    MAP = "Map"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation."""

    name: str
    kind: Kind
    nullable: bool = False

    def takes(self, value: object) -> bool:
        """Whether a JSON value has the type of the parameter."""
        if value is None:
            return self.nullable
        kind = self.kind
        if kind is Kind.STRING:
            return isinstance(value, str)
        if kind is Kind.BOOLEAN:
            return isinstance(value, bool)
        if kind is Kind.MAP:
            return isinstance(value, dict)
        if kind is Kind.DOUBLE:
            return isinstance(value, int | float) and not isinstance(value, bool)
        limit = _INT_MAX if kind is Kind.INT else _LONG_MAX
        return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}{' or null' if self.nullable else ''}"


def text(name: str, *, nullable: bool = False) -> Parameter:
    """A parameter of type String."""
    return Parameter(name, Kind.STRING, nullable)


def integer(name: str, *, nullable: bool = False) -> Parameter:
    """A parameter of type int."""
    return Parameter(name, Kind.INT, nullable)


def long(name: str, *, nullable: bool = False) -> Parameter:
    """A parameter of type long."""
    return Parameter(name, Kind.LONG, nullable)


def decimal(name: str) -> Parameter:
    """A parameter of type double."""
    return Parameter(name, Kind.DOUBLE)


def flag(name: str, *, nullable: bool = False) -> Parameter:
    """A parameter of type boolean."""
    return Parameter(name, Kind.BOOLEAN, nullable)


def mapping(name: str) -> Parameter:
    """A parameter of type Map."""
    return Parameter(name, Kind.MAP, nullable=True)


class Effect(Enum):
    """When an operation takes effect."""

    NONE = "none"
    """The operation reads, and changes nothing."""
    LIVE = "live"
    """At once, and the node goes on serving."""
    RESTART = "restart"
    """The node gives up its active role: clients connect anew, to another node or after its next activation."""


#: The result of an operation is that of its function.
FROM_CALL: Final = object()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation or attribute, a row of a table."""

    name: str
    call: Callable[..., object]
    """Called with the control and the parameters; returns the result, or a generator that is run in
    slices and returns it at its end."""
    doc: str
    parameters: tuple[Parameter, ...] = ()
    returns: Any = FROM_CALL
    """Type of the result; ``FROM_CALL``: as the function is annotated."""
    changes: Effect | None = None
    """Effect of the operation; None: one that requires the permission to edit takes effect at once."""

    @property
    def result(self) -> Any:
        """Type of the result: ``int``, ``str | None``, ``list[str]``; None: it has none."""
        found = self.returns
        if found is FROM_CALL:
            found = get_type_hints(self.call)["return"]
        return _without_steps(found)

    @property
    def effect(self) -> Effect:
        """When the operation takes effect."""
        if self.changes is not None:
            return self.changes
        return Effect.NONE if self.permission() is Permission.VIEW else Effect.LIVE

    def permission(self, views: re.Pattern[str] = DEFAULT_VIEWS) -> Permission:
        """The permission that is required with ``management-message-rbac``.

        Args:
            views: Names of operations that require only the view permission (view-permission-method-match-pattern).
        """
        return Permission.VIEW if views.fullmatch(self.name) else Permission.EDIT

    @property
    def attribute(self) -> str | None:
        """Name of the attribute that it reads; None if it is not a getter."""
        if self.parameters:
            return None
        for prefix in ("get", "is"):
            rest = self.name.removeprefix(prefix)
            if rest != self.name and rest[:1].isupper():
                return rest
        return None

    @property
    def signature(self) -> str:
        """``name(String queue, int limit)``."""
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    def takes(self, values: Sequence[object]) -> bool:
        """Whether the parameters accept these JSON values."""
        return len(values) == len(self.parameters) and all(
            parameter.takes(value) for parameter, value in zip(self.parameters, values, strict=True)
        )


def operation(
    name: str,
    call: Callable[..., Any],
    doc: str,
    *parameters: Parameter,
    returns: Any = FROM_CALL,
    changes: Effect | None = None,
) -> Operation:
    """A row of a table.

    Args:
        name: Name of the operation.
        call: Function that is called; a lambda needs ``returns``.
        doc: A sentence for the documentation.
        parameters: Parameters in their order.
        returns: Type of the result, if the function is not annotated with it.
        changes: When it takes effect; None: at once if it requires the permission to edit, else it changes nothing.
    """
    return Operation(name, call, doc, parameters, returns, changes)


def _without_steps(annotation: Any) -> Any:
    """The type of a result that may be found in slices: of ``int | Generator[None, None, int]`` it is ``int``."""
    if get_origin(annotation) is Generator:
        return get_args(annotation)[2]
    if get_origin(annotation) in (Union, UnionType):
        found = dict.fromkeys(map(_without_steps, get_args(annotation)))
        return next(iter(found)) if len(found) == 1 else annotation
    return None if annotation is type(None) else annotation


_TEXTS: Final[dict[Any, str]] = {
    None: "nothing", str: "text", int: "integer", float: "number", bool: "boolean", object: "any value",
}  # fmt: skip


def type_text(annotation: Any) -> str:
    """A type of a result in words: ``integer``, ``text or null``, ``list of text``."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        given = [type_text(each) for each in arguments if each is not type(None)]
        return " or ".join([*given, "null"] if type(None) in arguments else given)
    if origin in (list, tuple):
        return f"list of {type_text(arguments[0])}" if origin is list else "list"
    return "object" if origin is dict else _TEXTS[annotation]


class Operations:
    """Table of the operations of one kind of resource."""

    def __init__(self, kind: str, doc: str, rows: Sequence[Operation]) -> None:
        """Args:
        kind: First part of the resource's name: ``broker``, ``queue`` …
        doc: One sentence on the resource.
        rows: The operations, in the order in which they are documented.
        """
        self.kind = kind
        self.doc = doc
        self.rows = tuple(rows)
        self._by_name: dict[str, list[Operation]] = {}
        self._attributes: dict[str, Operation] = {}
        for row in rows:
            self._by_name.setdefault(row.name, []).append(row)
            if row.attribute is not None:
                self._attributes[row.attribute] = row

    def find(self, name: str, values: Sequence[object]) -> Operation:
        """The operation with this name that accepts these values.

        Raises:
            OperationNotFound: there is none; the text lists the forms that exist.
        """
        rows = self._by_name.get(name)
        if rows is None:
            raise OperationNotFound(f"no operation {name!r} on {self.kind}{_nearest(name, self._by_name)}")
        for row in rows:
            if row.takes(values):
                return row
        offered = ", ".join(row.signature for row in rows)
        given = ", ".join(type(value).__name__ if value is not None else "null" for value in values)
        raise OperationNotFound(f"operation {name!r} does not take ({given}): {offered}")

    def find_attribute(self, name: str) -> Operation:
        """The getter of an attribute, whose name may begin with a lower-case letter. Raises OperationNotFound."""
        row = self._attributes.get(name[:1].upper() + name[1:])
        if row is None:
            raise OperationNotFound(f"no attribute {name!r} on {self.kind}{_nearest(name, self._attributes)}")
        return row


def _nearest(name: str, known: Iterable[str]) -> str:
    """The known names that are like an unknown one, for an error."""
    # the name of a client may be long, and the search would be, too
    near = difflib.get_close_matches(name[:_COMPARED], known, n=3)
    return f": there is {', '.join(near)}" if near else ""
