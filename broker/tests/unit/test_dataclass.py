"""``understudy.dataclass`` beside ``dataclasses``: the same classes made by both behave the same."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from understudy.dataclass import dataclass

OPTIONS: list[dict[str, Any]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"eq": False, "slots": True},
    {"repr": False},
    {"frozen": True, "slots": True, "order": True},
    {"unsafe_hash": True},
    {"slots": True, "kw_only": True},
]


def plain() -> type:
    class Plain:
        number: int
        text: str = "a"
        hidden: int = field(default=0, repr=False)
        ignored: int = field(default=0, compare=False)
        unhashed: tuple[int, ...] = field(default=(), hash=False)

    return Plain


def without_fields() -> type:
    class Nothing:
        pass

    return Nothing


def with_values_of_its_own() -> type:
    class Counted:
        number: int
        kept: list[int] = field(default_factory=list)
        made: dict[str, int] = field(default_factory=dict, init=False)
        total: int = field(default=7, init=False)

    return Counted


def with_names_of_the_initialiser() -> type:
    class Named:
        number: int = 0
        absent: int = 1
        set_any: tuple[int, ...] = field(default_factory=tuple)
        make: int = 2

    return Named


def with_a_step_afterwards() -> type:
    class Checked:
        number: int = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "number", self.number + 10)

    return Checked


def with_own_methods() -> type:
    class Own:
        number: int = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.number % 2 == other.number % 2

        def __repr__(self) -> str:
            return "own"

    return Own


def with_own_hash() -> type:
    class Own:
        number: int = 0

        def __hash__(self) -> int:
            return 7

    return Own


def of_one_field() -> type:
    class One:
        number: int = 0

    return One


BODIES = [
    plain, without_fields, with_values_of_its_own, with_a_step_afterwards, with_own_methods, with_own_hash,
    of_one_field, with_names_of_the_initialiser,
]  # fmt: skip


def outcome(call: Callable[[], object]) -> object:
    """The value of a call, or the type and text of its error."""
    try:
        return call()
    except (TypeError, AttributeError, KeyError) as error:
        return type(error), re.sub("0x[0-9a-f]+", "", str(error))


def set_number(instance: Any) -> None:
    instance.number = 2


def described(made: Any) -> list[object]:
    """Texts, comparisons, hashes and errors of three instances of a class."""
    values: list[dict[str, int]] = [{"number": 1}, {"number": 1}, {"number": 3}]
    known = {each.name for each in dataclasses.fields(made)}
    one, same, other = (made(**{name: value for name, value in each.items() if name in known}) for each in values)
    changed = dataclasses.replace(one, ignored=1, unhashed=(1,)) if "ignored" in known else one
    return [
        re.sub("0x[0-9a-f]+", "", repr(one)),
        one == same, one == other, one == changed, one != other, one == 1, one == 1,
        outcome(lambda: hash(one) == hash(same)), outcome(lambda: hash(one) == hash(other)),
        outcome(lambda: hash(changed) == hash(one)),
        outcome(lambda: {one: 1}[same] if hash(one) == hash(same) else None),
        outcome(lambda: one < other),
        copy.copy(one) == one,
        dataclasses.asdict(one),
        # a class of the standard library with slots and without fields names a class in its place that is gone
        outcome(lambda: set_number(one)) if known else None,
        outcome(lambda: delattr(one, "number")) if known else None,
        outcome(lambda: made(1, 2, 3, 4, 5, 6)), outcome(lambda: made(unknown=1)),
        outcome(lambda: re.sub("0x[0-9a-f]+", "", repr(made()))),
        str(inspect.signature(made)), made.__init__.__qualname__,
        made.__match_args__, made.__hash__ is None,
    ]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("body", BODIES)
def test_both_behave_the_same(body: Callable[[], type], options: dict[str, Any]) -> None:
    found, expected = (
        outcome(lambda decorate=decorate: described(decorate(**options)(body())))  # type: ignore[misc]
        for decorate in (dataclass, dataclasses.dataclass)
    )
    assert found == expected


def test_a_class_equals_neither_its_subclass_nor_a_class_with_the_same_fields() -> None:
    @dataclass(frozen=True, slots=True)
    class One:
        number: int

    @dataclass(frozen=True, slots=True)
    class Two(One):
        further: int = 0

    @dataclass(frozen=True, slots=True)
    class Three:
        number: int

    assert One(1) != Two(1)
    assert One(1) != Three(1)  # type: ignore[comparison-overlap]
    assert repr(Two(1)).endswith("Two(number=1, further=0)")
    assert Two(1) == Two(1, 0)
    assert Two(1) != Two(1, 1)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Cannot be changed."""

    number: int
    further: tuple[int, ...] = ()


@dataclass(slots=True)
class Node:
    """Refers to itself."""

    next: Node | None = None


@dataclass
class Bare:
    """Made without options."""

    number: int = 1


def test_a_cycle_is_shown_once() -> None:
    node = Node()
    node.next = node
    assert repr(node) == "Node(next=...)"


def test_used_without_options_and_pickled() -> None:
    assert Bare() == Bare(1)
    assert pickle.loads(pickle.dumps(Node(Node()))) == Node(Node())


def test_a_frozen_class_is_copied_and_pickled() -> None:
    fixed = Fixed(1, (2,))
    assert pickle.loads(pickle.dumps(fixed)) == copy.deepcopy(fixed) == fixed


def test_the_initialiser_is_compiled_for_the_first_instance_and_kept() -> None:
    @dataclass(frozen=True, slots=True)
    class Late:
        number: int

    assert not inspect.isfunction(Late.__dict__["__init__"])
    assert Late(1).number == 1
    compiled = Late.__dict__["__init__"]
    assert inspect.isfunction(compiled)
    assert Late(2).number == 2
    assert Late.__dict__["__init__"] is compiled


def test_a_subclass_uses_the_initialiser_of_its_base_until_it_has_its_own() -> None:
    @dataclass(slots=True)
    class Base:
        number: int = 1

    class Plain(Base):
        pass

    @dataclass(slots=True)
    class Further(Base):
        text: str = "a"

    assert Plain(3).number == 3
    assert (Further(4, "b").number, Further(4, "b").text) == (4, "b")
