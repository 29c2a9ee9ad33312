"""Declared state machines: an Enum of states and a complete table of transitions; other events are errors.

A machine subclasses ``Machine`` and gives ``TABLE``: for every (state, event) pair a target state
with the function to call, or ``IGNORED`` or ``ILLEGAL``. A pair that is missing is an error when the
class is made. ``TABLE`` stands at the end of the class body because it refers to functions of the class,
so that a reader or a tool can follow an event to the code that handles it. ``diagram`` draws the table
as Mermaid; ``docs/build/machines/`` is generated from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from understudy.dataclass import dataclass
from understudy.errors import MachineError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Refusal(Enum):
    """Table entry of a pair that causes no transition."""

    IGNORED = "ignored"
    ILLEGAL = "illegal"


IGNORED: Final = Refusal.IGNORED
ILLEGAL: Final = Refusal.ILLEGAL


@dataclass(frozen=True, slots=True)
class To(Generic[S]):
    """A transition: the next state and the function to call."""

    target: S
    """State after the event; set before the function is called."""
    action: Callable[..., None] | None = None
    """Called with the machine and the payload of the event, usually a method of the class; None when there is
    nothing to do. A method of the same name in a subclass does not replace it.
    """


class Machine(Generic[S, E]):
    """Base of every declared machine: checks the table when the class is made, and runs it."""

    STATES: ClassVar[type[Enum]]
    EVENTS: ClassVar[type[Enum]]
    INITIAL: ClassVar[Enum]
    TABLE: ClassVar[Mapping[tuple[Any, Any], To[Any] | Refusal]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "TABLE" not in cls.__dict__:
            return
        pairs = {(state, event) for state in cls.STATES for event in cls.EVENTS}
        missing, alien = pairs - cls.TABLE.keys(), cls.TABLE.keys() - pairs
        if missing or alien:
            raise TypeError(f"{cls.__name__}: missing {sorted(map(str, missing))}, unknown {sorted(map(str, alien))}")
        for entry in cls.TABLE.values():
            if isinstance(entry, To) and entry.action is not None and not callable(entry.action):
                raise TypeError(f"{cls.__name__}: the action {entry.action!r} is not a function")

    def __init__(self) -> None:
        self._state: S = cast(S, self.INITIAL)

    @property
    def state(self) -> S:
        """The present state."""
        return self._state

    def fire(self, event: E, *payload: object) -> None:
        """Take the event: set the state, then call the action with the machine and ``payload``.

        Raises:
            MachineError: the pair is illegal.
        """
        origin = self._state
        entry = self.TABLE[(origin, event)]
        if isinstance(entry, To):
            target = self._state = entry.target
            if origin is not target:
                self.state_changed(origin, target, event)
            if entry.action is not None:
                entry.action(self, *payload)
        elif entry is ILLEGAL:
            raise MachineError(f"{type(self).__name__}: {event.name} in {origin.name}")

    def state_changed(self, origin: S, target: S, event: E) -> None:
        """Hook for logging and tests; called between the change and the action."""

    @classmethod
    def diagram(cls) -> str:
        """The table as a Mermaid state diagram, illegal and ignored pairs as lists below it."""
        lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {cls.INITIAL.name}"]
        for (state, event), entry in cls.TABLE.items():
            if isinstance(entry, To):
                label = f"{event.name} / {entry.action.__name__}" if entry.action is not None else event.name
                lines.append(f"    {state.name} --> {entry.target.name}: {label}")
        lines.append("```")
        for refusal in Refusal:
            pairs = [f"{s.name} × {e.name}" for (s, e), entry in cls.TABLE.items() if entry is refusal]
            if pairs:
                lines += ["", f"{refusal.value.capitalize()}: {', '.join(pairs)}."]
        return "\n".join(lines) + "\n"


def table(
    states: type[S], events: type[E], entries: Mapping[tuple[S, E], To[S] | Refusal], *, otherwise: Mapping[E, Refusal]
) -> dict[tuple[S, E], To[S] | Refusal]:
    """A complete table from its transitions plus one explicit refusal per event.

    ``otherwise`` must contain every event that some state leaves open: whether it is ignored or illegal is
    stated explicitly, never a default.
    """
    full: dict[tuple[S, E], To[S] | Refusal] = {}
    for state in states:
        for event in events:
            if (state, event) in entries:
                full[state, event] = entries[state, event]
            elif event in otherwise:
                full[state, event] = otherwise[event]
    return full
