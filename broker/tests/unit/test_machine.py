"""Declared machines: complete tables, loud refusals, diagrams."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

import pytest

from understudy.errors import MachineError
from understudy.machine import IGNORED, ILLEGAL, Machine, Refusal, To, table


class Door(Enum):
    OPEN = "open"
    SHUT = "shut"
    LOCKED = "locked"


class Act(Enum):
    OPEN = "open"
    SHUT = "shut"
    LOCK = "lock"


class DoorMachine(Machine[Door, Act]):
    STATES = Door
    EVENTS = Act
    INITIAL = Door.SHUT

    def __init__(self) -> None:
        super().__init__()
        self.log: list[object] = []

    def swing(self, *payload: object) -> None:
        self.log.append((self.state, *payload))

    def rattle(self) -> None:
        self.log.append("rattle")

    def state_changed(self, origin: Door, target: Door, event: Act) -> None:
        self.log.append((origin, target, event))

    ENTRIES: ClassVar[dict[tuple[Door, Act], To[Door] | Refusal]] = {
        (Door.OPEN, Act.OPEN): IGNORED,
        (Door.OPEN, Act.SHUT): To(Door.SHUT, swing),
        (Door.SHUT, Act.OPEN): To(Door.OPEN, swing),
        (Door.SHUT, Act.SHUT): IGNORED,
        (Door.SHUT, Act.LOCK): To(Door.LOCKED),
        (Door.LOCKED, Act.LOCK): To(Door.LOCKED, rattle),
    }
    TABLE = table(Door, Act, ENTRIES, otherwise={Act.OPEN: ILLEGAL, Act.SHUT: ILLEGAL, Act.LOCK: ILLEGAL})


ENTRIES, TABLE = DoorMachine.ENTRIES, DoorMachine.TABLE


def test_transitions_set_the_state_then_tell_then_act() -> None:
    door = DoorMachine()
    assert door.state is Door.SHUT
    door.fire(Act.OPEN, "gently", 5)
    assert door.state is Door.OPEN
    assert door.log == [(Door.SHUT, Door.OPEN, Act.OPEN), (Door.OPEN, "gently", 5)]


def test_a_self_transition_acts_without_a_change() -> None:
    door = DoorMachine()
    door.fire(Act.LOCK)
    door.log.clear()
    door.fire(Act.LOCK)
    assert door.log == ["rattle"]


def test_ignored_is_nothing_and_illegal_is_loud() -> None:
    door = DoorMachine()
    door.fire(Act.SHUT)
    assert (door.state, door.log) == (Door.SHUT, [])
    door.fire(Act.LOCK)
    with pytest.raises(MachineError, match="DoorMachine: OPEN in LOCKED"):
        door.fire(Act.OPEN)
    assert door.state is Door.LOCKED


def test_machines_do_not_share_their_state() -> None:
    first, second = DoorMachine(), DoorMachine()
    first.fire(Act.OPEN)
    assert (first.state, second.state) == (Door.OPEN, Door.SHUT)


def test_a_forgotten_pair_cannot_exist() -> None:
    incomplete = {key: entry for key, entry in TABLE.items() if key != (Door.OPEN, Act.LOCK)}
    with pytest.raises(TypeError, match=r"missing .*Door.OPEN.*Act.LOCK"):
        type("Incomplete", (DoorMachine,), {"TABLE": incomplete})
    with pytest.raises(TypeError, match="unknown"):
        type("Alien", (DoorMachine,), {"TABLE": {**TABLE, (Act.OPEN, Door.OPEN): IGNORED}})


def test_an_action_is_a_function() -> None:
    named: Any = "swing"
    with pytest.raises(TypeError, match="the action 'swing' is not a function"):
        type("Named", (DoorMachine,), {"TABLE": {**TABLE, (Door.OPEN, Act.SHUT): To(Door.SHUT, named)}})


def test_an_action_may_be_a_function_outside_the_class() -> None:
    def slam(door: DoorMachine, how: str) -> None:
        door.log.append(("slam", how))

    entries = {**TABLE, (Door.OPEN, Act.SHUT): To(Door.SHUT, slam)}
    slammed: Any = type("Slam", (DoorMachine,), {"TABLE": entries})()
    slammed.fire(Act.OPEN)
    slammed.fire(Act.SHUT, "loudly")
    assert slammed.log[-1] == ("slam", "loudly")
    assert "OPEN --> SHUT: SHUT / slam" in slammed.diagram()


def test_a_subclass_without_a_table_keeps_its_base_s() -> None:
    class Sub(DoorMachine):
        pass

    sub = Sub()
    sub.fire(Act.OPEN)
    assert sub.state is Door.OPEN


def test_refusals_are_never_defaulted() -> None:
    partial = table(Door, Act, ENTRIES, otherwise={Act.OPEN: ILLEGAL})
    assert (Door.OPEN, Act.LOCK) not in partial
    assert partial[Door.LOCKED, Act.OPEN] is ILLEGAL
    with pytest.raises(TypeError, match="missing"):
        type("Partial", (DoorMachine,), {"TABLE": partial})


def test_diagram() -> None:
    assert DoorMachine.diagram() == (
        "```mermaid\n"
        "stateDiagram-v2\n"
        "    [*] --> SHUT\n"
        "    OPEN --> SHUT: SHUT / swing\n"
        "    SHUT --> OPEN: OPEN / swing\n"
        "    SHUT --> LOCKED: LOCK\n"
        "    LOCKED --> LOCKED: LOCK / rattle\n"
        "```\n"
        "\n"
        "Ignored: OPEN × OPEN, SHUT × SHUT.\n"
        "\n"
        "Illegal: OPEN × LOCK, LOCKED × OPEN, LOCKED × SHUT.\n"
    )
