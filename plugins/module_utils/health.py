# SPDX-License-Identifier: Apache-2.0
"""The report of the playbook health: every node, every pair with who may take over, and what is to be done.

Pure. Hosts that Ansible does not reach are rows of the report like the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.understudy.broker.plugins.module_utils.management import NodeState
from ansible_collections.understudy.broker.plugins.module_utils.pairs import Member, crossed
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Record

UNREACHABLE, UNREADABLE, NOT_DEPLOYED = "host unreachable", "unreadable", "not deployed"
STOPPED, SILENT = "stopped", "unreachable"
CLOCK_MAX_S = 1.0
"""Clocks of a pair that differ by more are reported: messages expire by the clock of the node that serves."""


@dataclass(frozen=True)
class Row:
    """One node as the run has found it."""

    name: str
    pair: str
    role: str
    """Configured role."""
    policy: str
    directory: str
    state: str
    """The state that the broker reports, or ``host unreachable``."""
    ready: bool = False
    following: bool = False
    reason: str = ""
    node_id: str = ""
    partner: str = ""
    partners: tuple[str, ...] = ()
    release: str = ""
    """The release in place."""
    running_release: str = ""
    roll_phase: str = ""
    """The phase of the node in an unfinished roll, by its record and by whether the node runs; empty: none."""
    without_lock_manager: str = ""
    """Why the active node runs without its lock manager; empty if it has it."""
    witness: str = ""
    """The answer of the witness to this node in words; empty where the pair has none."""
    witness_answers: bool = True
    clock_s: tuple[float, float] | None = None
    """Least and greatest difference from the clock of the controller that the times of the question allow."""
    overrides: int = 0
    """Changes of the management CLI that count instead of broker.xml."""
    pending: tuple[str, ...] = ()
    """Elements of the configuration that the node uses after a restart or a reload only."""
    silent: tuple[str, ...] = ()
    """Advertised addresses of other active members that did not answer from this host."""

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "pair": self.pair,
            "role": self.role,
            "state": self.state,
            "ready": self.ready,
            "following": self.following,
            "reason": self.reason,
            "node_id": self.node_id,
            "peer": self.partner,
            "release": self.release,
            "running_release": self.running_release,
            "roll_phase": self.roll_phase,
            "without_lock_manager": self.without_lock_manager,
            "witness": self.witness,
            "clock_off_s": None if self.clock_s is None else list(self.clock_s),
            "silent_members": list(self.silent),
            "overrides": self.overrides,
            "pending": list(self.pending),
        }

    def line(self) -> str:
        """The node for operators."""
        if self.state in (UNREACHABLE, NOT_DEPLOYED):
            told = self.state
        else:
            told = f"{self.state}, {'ready' if self.ready else 'NOT READY'}"
        parts = [
            f"{self.name}: {told}, configured as {self.role} of pair {self.pair or 'none'}",
            f"release {self.running_release or self.release or 'none'}" if self.state != UNREACHABLE else "",
            f"node id {self.node_id}" if self.node_id else "",
            f"peer {self.partner}" if self.partner else "",
            f"witness {self.witness}" if self.witness else "",
            f"in a roll: {self.roll_phase}" if self.roll_phase else "",
            f"changes of the management CLI override broker.xml ({self.overrides})" if self.overrides else "",
            f"used after a restart or reload: {', '.join(self.pending)}" if self.pending else "",
            self.reason,
        ]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Pair:
    """A pair, or a node without one."""

    name: str
    nodes: tuple[str, ...]
    active: tuple[str, ...]
    may_take_over: tuple[str, ...]
    whole: bool
    sentence: str

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "nodes": list(self.nodes),
            "active": list(self.active),
            "may_take_over": list(self.may_take_over),
            "whole": self.whole,
            "sentence": self.sentence,
        }


@dataclass(frozen=True)
class Report:
    """All that the run knows."""

    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]
    problems: tuple[str, ...]
    """A sentence for each, beside those of pairs that are not whole."""
    rolls: Mapping[str, object] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        return not self.problems and all(pair.whole for pair in self.pairs)

    def lines(self) -> list[str]:
        """The report for operators; a sentence for each pair comes last."""
        return [*(row.line() for row in self.rows), *self.problems, *(pair.sentence for pair in self.pairs)]

    def as_dict(self) -> dict[str, object]:
        return {
            "format": 1,
            "healthy": self.healthy,
            "nodes": [row.as_dict() for row in self.rows],
            "pairs": [pair.as_dict() for pair in self.pairs],
            "problems": list(self.problems),
            "roll_under_way": _texts(self.rolls, "under_way"),
            "roll_unfinished": _texts(self.rolls, "unfinished"),
            "lines": self.lines(),
        }


def report(
    results: Mapping[str, Mapping[str, object]], topology: Mapping[str, object], rolls: Mapping[str, object]
) -> Report:
    """The report of a run.

    Args:
        results: for each node the result of ``node_info``, with ``asked_ms`` and ``answered_ms`` of the controller, and
            the results ``witness`` of the question to the witness and ``endpoints`` of ``endpoints_info``.
        topology: ``nodes`` of the topology, by name.
        rolls: the verdict about rolls (``roll_guard``).
    """
    rows = tuple(_row(name, results.get(name, {}), _mapping(topology, name)) for name in sorted(topology))
    units: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        units[row.pair or row.name].append(row)
    members = [Member(row.name, row.pair, row.node_id, row.partner, row.partners) for row in rows]
    problems = [
        *_texts(rolls, "under_way"),
        *_texts(rolls, "unfinished"),
        *(f"{reason}." for reason in crossed(members)),
        *(f"{text}." for text in drift(results)),
        *(f"{row.name} runs without its lock manager: {why}." for row in rows if (why := row.without_lock_manager)),
        *(f"{row.name} gets no answer from its witness: {row.witness}." for row in rows if not row.witness_answers),
        *(
            f"From {row.name} these members do not answer at the address that they advertise: {'; '.join(row.silent)}. "
            "Check broker_advertise_address, broker_interfaces and the firewalls."
            for row in rows
            if row.silent
        ),
        *(text for group in units.values() for text in _clocks(group)),
    ]
    pairs = tuple(_judge(name, group) for name, group in sorted(units.items()))
    return Report(rows, pairs, tuple(problems), rolls)


def drift(results: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Why the nodes do not have one release: a text for releases that differ, and one for each that is not run yet."""
    runs: dict[str, list[str]] = defaultdict(list)
    waiting = []
    for name, result in sorted(results.items()):
        if result.get("deployed") is not True:
            continue
        release, running = str(result.get("release") or ""), str(result.get("running_release") or "")
        runs[running or release].append(name)
        if running and release and running != release:
            waiting.append(f"{name} runs the release {running}, and {release} is in place for its next start")
    if len(runs) > 1:
        told = "; ".join(f"{release or 'none'}: {', '.join(names)}" for release, names in sorted(runs.items()))
        waiting.insert(0, f"The nodes have different releases ({told})")
    return waiting


def _row(name: str, result: Mapping[str, object], inventory: Mapping[str, object]) -> Row:
    row = Row(
        name,
        pair=str(inventory.get("pair") or ""),
        role=str(inventory.get("ha_role") or ""),
        policy=str(inventory.get("ha_policy") or ""),
        directory=str(inventory.get("instance_directory") or ""),
        state=UNREACHABLE,
    )
    if "deployed" not in result:
        why = " ".join(str(result.get("msg") or "Ansible has no answer of it").split())
        return replace(row, reason=why)
    if result.get("failed") is True:
        return replace(row, state=UNREADABLE, reason=" ".join(str(result.get("msg") or "no message").split()))
    state = NodeState.from_dict({"node": {}, **_mapping(result, "broker")})
    record = Record.from_result(name, result)
    manager = _mapping(_mapping(state.node, "ha"), "without_lock_manager")
    witness, endpoints = _mapping(result, "witness"), _mapping(result, "endpoints")
    partners = inventory.get("partners")
    return replace(
        row,
        state=state.state if result.get("deployed") is True else NOT_DEPLOYED,
        ready=state.ready,
        following=state.following,
        reason=state.reason,
        node_id=state.serves_as,
        partner=state.partner,
        partners=tuple(map(str, partners)) if isinstance(partners, list) else (),
        release=str(result.get("release") or ""),
        running_release=str(result.get("running_release") or ""),
        roll_phase=record.phase.value if record is not None and record.unfinished else "",
        without_lock_manager=str(manager.get("reason") or ""),
        witness=_witness_text(witness),
        witness_answers=not witness or witness.get("rc") == 0,
        clock_s=_clock(result),
        overrides=int(str(state.node.get("overrides") or 0)),
        pending=tuple(_texts(state.node, "pending")),
        silent=(*_texts(endpoints, "refused"), *_texts(endpoints, "silent")),
    )


def _witness_text(answer: Mapping[str, object]) -> str:
    if not answer:
        return ""
    if answer.get("rc") == 0:
        return "answers"
    said = str(answer.get("stderr") or answer.get("stdout") or answer.get("msg") or "")
    return " ".join(said.split()) or f"exit code {answer.get('rc')}"


def _clock(result: Mapping[str, object]) -> tuple[float, float] | None:
    clock, asked, answered = (result.get(key) for key in ("clock_ms", "asked_ms", "answered_ms"))
    if not isinstance(clock, int) or asked is None or answered is None:
        return None
    return (clock - float(str(answered))) / 1000, (clock - float(str(asked))) / 1000


def _clocks(group: Sequence[Row]) -> list[str]:
    """Clocks of a pair that cannot be within the limit, whatever the times of the questions."""
    known = [(row, row.clock_s) for row in group if row.clock_s is not None]
    found = []
    for number, (first, (low, high)) in enumerate(known):
        for other, (other_low, other_high) in known[number + 1 :]:
            apart_s = max(low - other_high, other_low - high)
            if apart_s > CLOCK_MAX_S:
                found.append(
                    f"The clocks of {first.name} and {other.name} differ by at least {apart_s:.1f} s: let both follow "
                    "the same time server."
                )
    return found


def _judge(name: str, group: Sequence[Row]) -> Pair:
    active = [row for row in group if row.state == "active"]
    heirs = [row for row in group if row.state == "passive" and row.ready]
    whole = len(active) == 1 and active[0].ready and len(heirs) == len(group) - 1
    title = f"Pair {name}" if group[0].pair else f"Node {name}"
    if len(active) > 1:
        told = f"{_names(active)} serve at the same time. Stop all but one at once (docs/build/reliability.md)."
    elif active:
        told = _served(active[0], heirs, [row for row in group if row not in (*active, *heirs)], group)
    else:
        told = _unserved(heirs, [row for row in group if row not in heirs])
    return Pair(name, _tuple(group), _tuple(active), _tuple(heirs), whole, f"{title}: {told}")


def _served(active: Row, heirs: Sequence[Row], others: Sequence[Row], group: Sequence[Row]) -> str:
    serves = f"{active.name} serves" + ("" if active.ready else f" and is not ready ({active.reason})")
    if len(group) == 1:
        return f"{serves}; it has no partner that takes over."
    if not others:
        rolled = any(row.roll_phase for row in group)
        step = "Resume or undo the roll as said above." if rolled else "Nothing is to be done."
        return f"{serves}, and {_names(heirs)} may take over. {step}"
    may = f"{_names(heirs)} may take over" if heirs else "NO NODE MAY TAKE OVER"
    return f"{serves}, and {may}. {' '.join(_remedy(row, active) for row in others)}"


def _unserved(heirs: Sequence[Row], others: Sequence[Row]) -> str:
    rest = " ".join(_remedy(row, None) for row in others)
    if not heirs:
        return f"NO NODE SERVES, and none may take over. {rest}"
    heir = heirs[0]
    if heir.policy == "shared_store":
        way = (
            f"It does so by itself when the lock of the store is free. After a clean stop of the primary it waits: "
            f"`understudy activate --instance {heir.directory}` on {heir.name} lets it serve."
        )
    else:
        way = "It does so by itself when its lock manager, or the vote, allows it; bring that back first if it is away."
    return f"NO NODE SERVES; {_names(heirs)} may take over. {way} {rest}".rstrip()


def _remedy(row: Row, active: Row | None) -> str:
    """What is wrong with one node, and the next step."""
    reason = f" ({row.reason})" if row.reason else ""
    if row.roll_phase:
        return f"{row.name} is {row.state} in an unfinished roll ({row.roll_phase}): resume or undo it as said above."
    if row.state == UNREACHABLE:
        serves = "" if active else " It may still serve: look at it before another node is activated."
        return f"{row.name} cannot be reached by Ansible{reason}: repair the host or the way to it.{serves}"
    if row.state == UNREADABLE:
        return f"The state of {row.name} cannot be read{reason}."
    if row.state == NOT_DEPLOYED:
        return f"Nothing is deployed on {row.name}: run site."
    if row.state == STOPPED:
        if active is not None and active.role == "backup" and row.role == "primary":
            return f"{row.name} is stopped{reason}: failback starts it and gives the service back."
        return f"{row.name} is stopped{reason}: start it with site."
    if row.state == SILENT:
        return f"{row.name} runs and does not answer{reason}: look at its log (support_bundle)."
    if row.state == "passive":
        return f"{row.name} is not in sync{reason}: wait, or look at its log."
    return f"{row.name} is {row.state}{reason}: wait, or look at its log."


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(row.name for row in rows)


def _tuple(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(row.name for row in rows)


def _mapping(given: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = given.get(key)
    return value if isinstance(value, Mapping) else {}


def _texts(given: Mapping[str, object], key: str) -> list[str]:
    value = given.get(key)
    return [str(each) for each in value] if isinstance(value, (list, tuple)) else []
