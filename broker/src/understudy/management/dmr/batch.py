"""Several operations as one: all of them count, or none (ADR 0169).

Each operation sees the tree that those before it have made. Not here: the check of the result by the reader of the
broker, and writing it (``runtime.files.configuration_change``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from understudy.config.edit.changes import Target
from understudy.config.edit.overlay import Override
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.operations import Operations, Outcome

Overrides = tuple[Override, ...]
"""The states of an overlay, in their order."""


@dataclass(frozen=True, slots=True)
class Change:
    """The operations of a batch, with the states that they ask for."""

    outcomes: tuple[Outcome, ...]
    """The outcome of each operation."""
    states: Overrides
    """States of places of broker.xml, in the order of the operations."""


class StepFailed(BrokerError):
    """The failure of one operation of a batch."""

    code = "management-step"

    def __init__(self, number: int, error: BrokerError) -> None:
        """Args:
        number: The number of the operation, from 1.
        error: The reason.
        """
        super().__init__(str(error))
        self.number = number


def change(
    operations: Sequence[Operation],
    overrides: Overrides,
    reach: Callable[[Sequence[Target]], Operations],
    stamp: Callable[[Operation], tuple[str, str, str]],
) -> Change:
    """Carry out operations one after the other on a configuration.

    Args:
        operations: At least one.
        overrides: The overlay before them, with states that wait.
        reach: Brings broker.xml to further states, beginning with those of the overlay, and gives the operations on
            its tree. Raises ConfigError.
        stamp: Time, user and line of an operation, for its states.

    Raises:
        StepFailed: an operation cannot be carried out.
    """
    outcomes, states = list[Outcome](), list[Override]()
    now = reach([each.target for each in overrides])
    for number, operation in enumerate(operations, 1):
        try:
            outcome = now.carry_out(operation)
            if outcome.targets:
                states += [Override(target, *stamp(operation)) for target in outcome.targets]
                now = reach(outcome.targets)
        except BrokerError as error:
            raise StepFailed(number, error) from error
        outcomes.append(outcome)
    return Change(tuple(outcomes), tuple(states))
