"""Operations of the management CLI on the files of a configuration: read, or changed as a whole (ADR 0170).

Not here: the operations (``management.dmr``), and the running node (``runtime.management.configuration_cli``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from understudy.config.edit import Target
from understudy.config.edit.overlay import extended
from understudy.dataclass import dataclass
from understudy.management.dmr.batch import Change, Overrides, change
from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.operations import Facts, Operations, Outcome, masked, validates_only
from understudy.management.dmr.parameters import READS
from understudy.management.dmr.tree import Tree
from understudy.management.dmr.values import to_json
from understudy.runtime.files.configuration_file import ConfigurationFile
from understudy.runtime.files.overlay_file import overlay_writer, read_overlay, write_overlay

log = logging.getLogger(__name__)


def carry_out(source: ConfigurationFile, operations: Sequence[Operation], facts: Facts, user: str) -> Done:
    """Carry out operations as one, and write the overlay. Each change is a line in the log.

    Operations with the header ``validate-only`` are judged like others, and nothing is written.

    Args:
        source: The files.
        operations: The operations, of which all count or none.
        facts: The running node.
        user: The login that asks, with its address.

    Raises:
        StepFailed: an operation cannot be carried out.
        ConfigError: the reader of the broker refuses the result, or the overlay cannot be written.
    """
    if all(each.name in READS for each in operations):
        return Done(_carried_out(source, operations, facts, user, read_overlay(source.config)).outcomes)
    if validates_only(operations):
        before = read_overlay(source.config)
        made = _carried_out(source, operations, facts, user, before)
        if made.states:
            # a rehearsal sends all its lines together: each of them may wait, as it may when it is sent alone
            extended(before, made.states, lambda each: source.load(overrides=each), may_wait=True)
        return Done(made.outcomes)
    with overlay_writer(source.config):
        before = read_overlay(source.config)
        made = _carried_out(source, operations, facts, user, before)
        if not made.states:
            return Done(made.outcomes)
        overrides, waits_for = extended(
            before, made.states, lambda each: source.load(overrides=each), may_wait=len(operations) == 1
        )
        write_overlay(source.config, overrides)
    for operation, outcome in zip(operations, made.outcomes, strict=True):
        if outcome.effect is not None:
            shown = {"user": user, "operation": str(masked(operation)), "old": to_json(outcome.old)}
            log.info("configuration changed by the management CLI", extra=shown)
    return Done(made.outcomes, written=True, waits_for=None if waits_for is None else str(waits_for))


@dataclass(frozen=True, slots=True)
class Done:
    """Result of operations."""

    outcomes: tuple[Outcome, ...]
    """The outcome of each operation."""
    written: bool = False
    """Whether the overlay was written."""
    waits_for: str | None = None
    """The missing element, for which the change waits; None: it counts."""


def _carried_out(
    source: ConfigurationFile, operations: Sequence[Operation], facts: Facts, user: str, overrides: Overrides
) -> Change:
    time = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    files = WorkingFiles(source, facts)
    return change(
        operations,
        overrides,
        files.reach,
        lambda operation: (time, user, str(masked(operation))),
    )


class WorkingFiles:
    """The files of a configuration in memory while operations are carried out."""

    def __init__(self, source: ConfigurationFile, facts: Facts) -> None:
        """Begin with the files as they are, without their overlay. Raises ConfigError: they cannot be read."""
        self._source = source
        self._facts = facts
        self._merged = source.merged(())

    def reach(self, targets: Sequence[Target]) -> Operations:
        """Bring the files to further states; the operations on their tree. Raises ConfigError."""
        self._merged = self._source.reached(self._merged, targets)
        return Operations(Tree(self._source.nodes(self._merged)), self._facts)
