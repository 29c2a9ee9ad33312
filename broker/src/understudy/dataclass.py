"""``dataclass`` of the standard library, whose classes are made in about half the time.

Python 3.11 compiles each generated method on its own, up to six for a class, which took half of the time to start a
broker (ADR 0108). Here ``__eq__``, ``__hash__`` and ``__repr__`` are closures and functions that all classes share;
only ``__init__`` and what makes a class frozen are compiled. Instances behave the same.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import dataclass as _standard

    def dataclass(cls=None, /, *, eq=True, repr=True, order=False, unsafe_hash=False, frozen=False, **options):  # noqa: A002  # its names
        """See ``dataclasses.dataclass``."""

        def make(written):
            if order or unsafe_hash:
                return _standard(
                    written, eq=eq, repr=repr, order=order, unsafe_hash=unsafe_hash, frozen=frozen, **options
                )
            made = _standard(written, eq=False, repr=False, frozen=frozen, **options)
            if repr and "__repr__" not in written.__dict__:
                made.__repr__ = _repr
            if eq:
                _compare_by_fields(made, written.__dict__, frozen)
            return made

        return make if cls is None else make(cls)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _compare_by_fields(made: Any, written: Any, frozen: bool) -> None:
    """Give a class ``__eq__`` and ``__hash__`` by its fields, unless its body has them; as ``dataclasses`` decides."""
    compared = tuple(each for each in fields(made) if each.compare)
    values = _getter(each.name for each in compared)

    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    has_equal = "__eq__" in written
    if not has_equal:
        made.__eq__ = equal
    # Python itself sets the hash of a class to None if its body has only __eq__
    if "__hash__" in written and not (written["__hash__"] is None and has_equal):
        return
    if not frozen:
        made.__hash__ = None
        return
    hashed = tuple(each for each in fields(made) if (each.compare if each.hash is None else each.hash))
    keys = values if hashed == compared else _getter(each.name for each in hashed)
    made.__hash__ = lambda self: hash(keys(self))


def _getter(names: Any) -> Any:
    """A function that gives the values of fields; attrgetter needs one name at least."""
    found = tuple(names)
    return attrgetter(*found) if found else lambda _: ()
