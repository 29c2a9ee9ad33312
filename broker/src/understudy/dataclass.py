"""``dataclass`` of the standard library, whose classes are made in a third of the time.

Python 3.11 compiles each generated method on its own, up to six for a class, which took half of the time to start a
broker (ADR 0108, 0222). Here ``__eq__``, ``__hash__``, ``__repr__`` and what makes a class frozen are closures and
functions that all classes share, and ``__init__`` is compiled when a class has its first instance, which most classes
never have in a process. Instances behave the same.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from sys import modules
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import dataclass as _standard

    def dataclass(cls=None, /, *, eq=True, repr=True, order=False, unsafe_hash=False, frozen=False, **options):  # noqa: A002  # its names
        """See ``dataclasses.dataclass``."""

        def make(written):
            if order or unsafe_hash or options.keys() - {"slots"}:
                return _standard(
                    written, eq=eq, repr=repr, order=order, unsafe_hash=unsafe_hash, frozen=frozen, **options
                )
            made = _standard(written, init=False, eq=False, repr=False, **options)
            if "__init__" not in written.__dict__:
                made.__init__ = _Initialiser(made, frozen)
            if frozen:
                _freeze(made)
            if repr and "__repr__" not in written.__dict__:
                made.__repr__ = _repr
            if eq:
                _compare_by_fields(made, written.__dict__, frozen)
            return made

        return make if cls is None else make(cls)


class _Factory:
    """Default of a parameter whose value is made for each instance."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _Initialiser:
    """``__init__`` of a class until it is looked up for the first time, by an instance or by ``inspect``."""

    __slots__ = ("_frozen", "_made")

    def __init__(self, made: Any, frozen: bool) -> None:
        self._made = made
        self._frozen = frozen

    def __get__(self, instance: object, owner: Any) -> Any:
        self._made.__init__ = compiled = _compiled(self._made, self._frozen)
        return compiled.__get__(instance, owner)


def _compiled(made: Any, frozen: bool) -> Any:
    """The ``__init__`` that ``dataclasses`` would write; frozen fields are set by the descriptors of their slots."""
    known: dict[str, Any] = {"_absent": _FACTORY, "_set_any": object.__setattr__}
    parameters = []
    lines = []
    for number, each in enumerate(fields(made)):
        value = name = each.name
        if each.default_factory is not MISSING:
            known[f"_new_{number}"] = each.default_factory
            value = f"_new_{number}() if {name} is _absent else {name}" if each.init else f"_new_{number}()"
            parameters += [f"{name}=_absent"] * each.init
        elif each.default is not MISSING:
            known[f"_default_{number}"] = each.default
            value = name if each.init else f"_default_{number}"
            parameters += [f"{name}=_default_{number}"] * each.init
        elif each.init:
            parameters.append(name)
        else:
            continue
        if not frozen:
            lines.append(f"  self.{name} = {value}")
        elif isinstance(slot := getattr(made, name, None), MemberDescriptorType):
            known[f"_set_{number}"] = slot.__set__
            lines.append(f"  _set_{number}(self, {value})")
        else:
            lines.append(f"  _set_any(self, {name!r}, {value})")
    if hasattr(made, "__post_init__"):
        lines.append("  self.__post_init__()")
    made_by = [f"def make({', '.join(known)}):", f" def __init__({', '.join(['self', *parameters])}):", *lines]
    found: dict[str, Any] = {}
    names = vars(modules[made.__module__]) if made.__module__ in modules else {}
    exec("\n".join([*made_by, "  return None", " return __init__"]), names, found)
    initialiser = found["make"](**known)
    initialiser.__qualname__ = f"{made.__qualname__}.__init__"
    initialiser.__annotations__ = {**{each.name: each.type for each in fields(made) if each.init}, "return": None}
    return initialiser


def _freeze(made: Any) -> None:
    """Let no instance of a class be changed, and let those with slots be copied and pickled."""
    names = frozenset(each.name for each in fields(made))

    def refuse_change(self: Any, name: str, value: object) -> None:
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def refuse_deletion(self: Any, name: str) -> None:
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    made.__setattr__ = refuse_change
    made.__delattr__ = refuse_deletion
    if "__slots__" in made.__dict__:
        made.__getstate__ = _state
        made.__setstate__ = _set_state


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


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
