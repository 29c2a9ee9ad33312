# SPDX-License-Identifier: Apache-2.0
"""Rolls that other playbooks must not cross: one that is carried out now, and one that ended before its last wave.

Pure, except for the processes of this machine, which say whether the run that holds a node has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.understudy.broker.plugins.module_utils.process import ProcessTable
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import LEASE_S, Hold, Holder
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import RESTART, ROLLBACK, UPDATE
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Phase, Record

PLAYBOOKS: Mapping[str, str] = {UPDATE: "rolling_update", RESTART: "rolling_restart", ROLLBACK: "rollback"}
"""The playbook that carries out, and resumes, a roll of each kind."""
IGNORE = "-e broker_ignore_hold=true"


@dataclass(frozen=True)
class RollState:
    """What one host remembers of the last roll of its node."""

    name: str
    hold: Hold | None = None
    age_s: int = 0
    """Seconds since the last step of the run that holds it."""
    record: Record | None = None

    @classmethod
    def from_result(cls, name: str, result: Mapping[str, object]) -> RollState | None:
        """The state in a result of ``node_info``; None if the host did not answer.

        Raises:
            ValueError: the record or the hold cannot be read.
        """
        if result.get("unreachable") is True or "deployed" not in result:
            return None
        rollout = result.get("rollout")
        if not isinstance(rollout, Mapping):
            return cls(name)
        hold = rollout.get("hold")
        return cls(
            name,
            Hold.from_dict(hold) if isinstance(hold, Mapping) else None,
            int(rollout.get("hold_age_s") or 0),
            Record.from_result(name, result),
        )

    def in_roll(self, roll: str) -> bool:
        """Whether the roll has changed the node, and was not undone there."""
        record = self.record
        return record is not None and record.roll == roll and record.phase not in (Phase.IDLE, Phase.RESTORED)


@dataclass(frozen=True)
class Verdict:
    """Rolls in the way, and nodes whose hold means nothing any more."""

    under_way: tuple[str, ...] = ()
    """A sentence for each roll that a run carries out now."""
    unfinished: tuple[str, ...] = ()
    """A sentence for each roll that ended before its last wave, with the commands that end it."""
    leftover: tuple[str, ...] = ()
    """Nodes held by a run that has ended and has left nothing changed."""

    @property
    def refusals(self) -> tuple[str, ...]:
        return (*self.under_way, *self.unfinished)

    def as_dict(self) -> dict[str, object]:
        return {
            "under_way": list(self.under_way),
            "unfinished": list(self.unfinished),
            "refusals": list(self.refusals),
            "leftover": list(self.leftover),
        }


def judge(states: Sequence[RollState], here: Holder, table: ProcessTable, *, complete: bool) -> Verdict:
    """Which rolls are in the way.

    Args:
        states: of every host that answered.
        here: the present run.
        table: processes of this machine.
        complete: whether every node of the inventory is among them. A hold of a run that has ended is in the way unless
            all nodes show that its roll has changed nothing, or has released another node in the end.
    """
    live: dict[Hold, list[RollState]] = {}
    over: list[RollState] = []
    for state in states:
        hold = state.hold
        if hold is None or hold.holder == here:
            continue
        if state.age_s >= LEASE_S or hold.holder.has_ended(table, here):
            over.append(state)
        else:
            key = next((known for known in live if (known.roll, known.holder) == (hold.roll, hold.holder)), hold)
            live.setdefault(key, []).append(state)
    running = {hold.roll for hold in live}
    cut_off = {
        state.hold.roll
        for state in over
        if state.hold is not None and _left_changes(state.hold.roll, states, complete=complete)
    }
    stopped = {state.record.roll for state in states if state.record is not None and state.record.unfinished}
    own = {state.hold.roll for state in states if state.hold is not None and state.hold.holder == here}
    rolls = sorted((stopped | cut_off) - running - own)
    return Verdict(
        tuple(_under_way(hold, held) for hold, held in live.items()),
        tuple(_unfinished(roll, states) for roll in rolls),
        tuple(state.name for state in over if state.hold is not None and state.hold.roll not in cut_off | stopped),
    )


def _left_changes(roll: str, states: Iterable[RollState], *, complete: bool) -> bool:
    known = [state for state in states if state.in_roll(roll)]
    if any(state.hold is None for state in known):
        return False  # a roll releases nodes only when all of its waves are done
    return bool(known) or not complete


def _names(states: Iterable[RollState]) -> str:
    return ", ".join(state.name for state in states)


def _under_way(hold: Hold, held: Sequence[RollState]) -> str:
    age_s = max(0, min(state.age_s for state in held))
    left_s = max(1, LEASE_S - age_s)
    return (
        f"The {hold.aim} (roll {hold.roll}) is carried out by {hold.holder} on {_names(held)}, last step {age_s} s ago:"
        f" wait for its end. If that run has ended, this is seen after {left_s} s, and on {hold.holder.controller} at"
        f" once; then resume it with {_command(hold.kind)}."
    )


def _unfinished(roll: str, states: Sequence[RollState]) -> str:
    records = [state.record for state in states if state.record is not None and state.record.roll == roll]
    holds = [state.hold for state in states if state.hold is not None and state.hold.roll == roll]
    aim, kind = (records[0].title, records[0].kind) if records else (holds[0].aim, holds[0].kind)
    phases: dict[str, list[RollState]] = {}
    for state in states:
        if state.record is not None and state.record.roll == roll:
            phases.setdefault(state.record.phase.value, []).append(state)
    told = "; ".join(f"{phase}: {_names(found)}" for phase, found in phases.items()) or "none of these nodes was in it"
    undo = "" if kind == ROLLBACK else f", or undo it with {_command(ROLLBACK)}"
    return f"The {aim} (roll {roll}) has not finished ({told}). Resume it with {_command(kind)}{undo}."


def _command(kind: str) -> str:
    playbook = PLAYBOOKS.get(kind)
    return f"ansible-playbook -i INVENTORY understudy.broker.{playbook}" if playbook else "the same playbook"
