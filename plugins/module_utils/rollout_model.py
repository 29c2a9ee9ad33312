# SPDX-License-Identifier: Apache-2.0
"""Records that the plan of a roll is made from, and the plan. Frozen; ``rollout.py`` decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Phase, Record, aim_of, found

UPDATE, RESTART, ROLLBACK = KINDS = ("update", "restart", "rollback")
PAIR, GROUP, ALL = SCOPES = ("pair", "group", "all")
FAIL_BACK, KEEP = SERVING_BACKUPS = ("failback", "keep")
TOGETHER, SWITCHOVER = ROLL_ORDERS = ("together", "switchover")

PHASES = (
    "bring_back",
    "preflight",
    "fail_back",
    "begin",
    "stop_backups",
    "stop_primaries",
    "switch",
    "apply",
    "start_primaries",
    "start_backups",
    "finish",
)
"""Phases of a wave in their order; each ends on all hosts of the wave before the next begins."""

SHARED_STORE, REPLICATION, COLOCATED, VOTES = "shared_store", "replication", "colocated_", "votes"
PRIMARY, BACKUP = "primary", "backup"


class Refused(Exception):
    """The roll cannot begin; ``reasons`` has one line for each node or pair that is in the way."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


@dataclass(frozen=True)
class Saved:
    """The release and configuration from before the last roll that changed a node."""

    roll: str
    release: str
    spent: bool
    """Whether a rollback has used it."""


@dataclass(frozen=True)
class Node:
    """One node: its place in the topology, its live state, and what its host remembers."""

    name: str
    pair: str = ""
    policy: str = "primary_only"
    role: str = PRIMARY
    group: str = ""
    coordination: str = ""
    """Not empty in a pair of equal primaries."""
    lock_manager: str = ""
    failback: bool = False
    """Whether its pair gives the service back to the primary as soon as that is in sync."""
    roll_order: str = TOGETHER
    start_gate: str = "ready"
    """State that a start of the node ends in while its pair is whole."""
    backup_request: bool = False
    """Whether a colocated node asks another one to host its backup."""
    reachable: bool = True
    """Whether Ansible reaches the host."""
    deployed: bool = True
    running: bool = True
    state: str = "active"
    ready: bool = True
    reason: str = ""
    node_id: str = ""
    """Node id of the data that the node serves or follows; empty if it does neither."""
    partner: str = ""
    """``ADDRESS:PORT`` of the partner that it sees; empty without one."""
    advertised: str = ""
    """``ADDRESS:PORT`` that it advertises."""
    hosted: bool = False
    """Whether another node hosts the backup of this colocated node."""
    release: str = ""
    pending: tuple[str, ...] = ()
    """Differences between the running broker and the staged release and configuration."""
    record: Record | None = None
    saved: Saved | None = None

    @property
    def unit(self) -> str:
        return self.pair or self.name

    @property
    def colocated(self) -> bool:
        return self.policy.startswith(COLOCATED)

    @property
    def phase(self) -> Phase:
        """How far the node is in an unfinished roll, by its record and by whether it runs."""
        return Phase.IDLE if self.record is None else found(self.record.phase, running=self.running)

    @property
    def in_place(self) -> bool:
        """The roll has not touched its process."""
        return self.phase in (Phase.IDLE, Phase.BEGUN, Phase.DONE, Phase.RESTORED)


@dataclass(frozen=True)
class Order:
    """What is asked for."""

    kind: str
    roll: str
    """Name of a new roll; a resumed one keeps its own."""
    target: str = ""
    """Release of an update."""
    scope: str = PAIR
    canary: str = ""
    """Pair or node of the first wave; empty for the first by name."""
    serving_backup: str = FAIL_BACK

    @property
    def aim(self) -> tuple[str, ...]:
        return aim_of(self.kind, self.target)


@dataclass(frozen=True)
class Wave:
    """Units that go through the phases together; hosts by phase."""

    name: str
    units: tuple[str, ...]
    phases: Mapping[str, tuple[str, ...]]
    gates: Mapping[str, str]
    """State that each host must reach after its start."""
    serving: tuple[str, ...]
    """Hosts that serve when the first one is stopped, or did when the wave was interrupted."""
    leading: tuple[str, ...] = ()
    """Hosts that start first."""
    resumed: bool = False
    switches: Mapping[str, str] = field(default_factory=dict)
    """The node that takes over, by the active node that hands its service over to it."""

    @property
    def interruption(self) -> str:
        """How long clients of the wave are without service."""
        if self.phases["stop_primaries"]:
            return "from the stop of the primaries to their start"
        returns = [name for name in self.phases["switch"] if self.gates[name] == "active"]
        if returns:
            return "two switches of at most 1 s each: the primary takes the service back (broker_failback)"
        if self.phases["switch"]:
            return "one switch of at most 1 s"
        if any(self.gates[name] == "active" for name in self.phases["start_backups"]):
            return "one switch of at most 1 s: the primary takes the service back (broker_failback)"
        if self.phases["start_primaries"]:
            return "until the primaries have started"
        return "none"

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.phases["finish"]

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "units": list(self.units),
            "hosts": list(self.hosts),
            "phases": [{"phase": phase, "hosts": list(self.phases[phase])} for phase in PHASES if self.phases[phase]],
            "gates": dict(self.gates),
            "serving": list(self.serving),
            "leading": list(self.leading),
            "resumed": self.resumed,
            "switches": dict(self.switches),
            "interruption": self.interruption,
        }


@dataclass(frozen=True)
class Plan:
    """The waves of a roll in their order; none if there is nothing to do."""

    roll: str
    kind: str
    target: str
    waves: tuple[Wave, ...]
    unchanged: tuple[str, ...] = ()
    """Pairs and nodes that the roll leaves alone."""
    undoes: str = ""
    """The roll that a rollback undoes."""

    def lines(self) -> list[str]:
        """The plan for operators: a line for each wave, and one for each phase in it."""
        aim = f" to {self.target}" if self.target else f" of the roll {self.undoes}" if self.undoes else ""
        text = [f"{self.kind}{aim}, roll {self.roll}: {len(self.waves)} waves"]
        for number, wave in enumerate(self.waves, 1):
            note = "interrupted before" if wave.resumed else "canary" if number == 1 else ""
            text.append(f"wave {number}: {wave.name}" + (f" ({note})" if note else ""))
            for phase in PHASES:
                hosts = [f"{name}{self._until(wave, phase, name)}" for name in wave.phases[phase]]
                if hosts:
                    text.append(f"  {phase.replace('_', ' ')}: {', '.join(hosts)}")
            text.append(f"  without service: {wave.interruption}")
        if self.unchanged:
            text.append(f"left alone: {', '.join(self.unchanged)}")
        return text

    @staticmethod
    def _until(wave: Wave, phase: str, name: str) -> str:
        if phase == "switch":
            return f" (to {wave.switches[name]})"
        return f" (until {wave.gates[name]})" if phase in ("start_primaries", "start_backups") else ""

    def as_dict(self) -> dict[str, object]:
        return {
            "roll": self.roll,
            "kind": self.kind,
            "target": self.target,
            "waves": [wave.as_dict() for wave in self.waves],
            "unchanged": list(self.unchanged),
            "undoes": self.undoes,
        }
