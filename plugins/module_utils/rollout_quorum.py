# SPDX-License-Identifier: Apache-2.0
"""The part of a roll that concerns witnesses, or servers of ZooKeeper: one host after the other, never two at once.

Pure: ``rollout.py`` plans the nodes, and the playbooks carry both out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import RESTART, ROLLBACK, Refused


@dataclass(frozen=True)
class Member:
    """One host of the group broker_quorum."""

    name: str
    place: str
    """``HOST:PORT`` by which the other members and the nodes know it."""
    members: tuple[str, ...] = ()
    """Places of the whole group; empty for a single witness."""
    answering: tuple[str, ...] = ()
    """Places that answer this host."""
    pending: tuple[str, ...] = ()
    """Differences between the running service and the inventory."""
    reachable: bool = True

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Member:
        """The member of an entry of the option ``quorum`` of the module rollout."""
        lists = {key: tuple(_texts(given.get(key))) for key in ("members", "answering", "pending")}
        reachable = given.get("reachable") is not False
        return cls(str(given["name"]), str(given.get("place") or ""), reachable=reachable, **lists)

    @property
    def answers(self) -> bool:
        return self.place in self.answering


@dataclass(frozen=True)
class QuorumWave:
    """One host, and the places that must answer before the next wave begins."""

    host: str
    pending: tuple[str, ...]
    whole: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        return {"host": self.host, "pending": list(self.pending), "whole": list(self.whole)}

    def line(self) -> str:
        """The wave for operators."""
        until = f"all {len(self.whole)} members answer" if len(self.whole) > 1 else "it answers"
        why = f": {', '.join(self.pending)}" if self.pending else ""
        return f"{self.host} (until {until}){why}"


def quorum_waves(members: Iterable[Member], kind: str, *, resumed: bool = False) -> tuple[QuorumWave, ...]:
    """A wave for each host that the roll changes; those that do not answer come first, because others depend on them.

    Args:
        members: hosts of the run.
        kind: of the roll. A rollback changes none, because every release of a witness serves every release of a node.
        resumed: whether an earlier run of this roll has begun with a node. The waves of the quorum were over then, so
            that a restart repeats none. A node of the wave that was cut off may have no partner meanwhile, and would
            stop serving without its witness.

    Raises:
        Refused: a host cannot be reached, or a group would lose its majority.
    """
    restarts = kind == RESTART and not resumed
    chosen = [] if kind == ROLLBACK else [each for each in members if restarts or each.pending]
    reasons = [f"{each.name}: the host of the quorum cannot be reached" for each in chosen if not each.reachable]
    reasons += [reason for each in chosen if each.reachable for reason in _lost_majority(each)]
    if reasons:
        raise Refused(reasons)
    ordered = sorted(chosen, key=lambda each: (each.answers, each.name))
    return tuple(QuorumWave(each.name, each.pending, each.members or (each.place,)) for each in ordered)


def _lost_majority(member: Member) -> Iterable[str]:
    """Why the group would have no majority while the member is restarted."""
    group = set(member.members)
    left = len(group & set(member.answering) - {member.place})
    if not group or not member.answers or 2 * left > len(group):
        return
    silent = ", ".join(sorted(group - set(member.answering))) or "none"
    yield (
        f"{member.name}: without it {left} of {len(group)} members of the quorum answer, which is no majority "
        f"(silent: {silent}); start these first (playbook witness)"
    )


def quorum_lines(waves: Sequence[QuorumWave]) -> list[str]:
    """The waves for operators, before those of the nodes."""
    return [f"quorum {number}: {wave.line()}" for number, wave in enumerate(waves, 1)]


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, (list, tuple)) else []
