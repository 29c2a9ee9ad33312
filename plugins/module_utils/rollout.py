# SPDX-License-Identifier: Apache-2.0
"""The plan of a roll: topology, live state of every node and records of the hosts become waves of phases.

Pure: no Ansible, no files, no network. ``make_plan`` returns the waves in order, or raises ``Refused`` with every
reason, each of which names a node. A wave is a number of units; a unit is a pair, or a node without one. The serving
node of a pair is the active one, whatever its configured role is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.understudy.broker.plugins.module_utils.pairs import Member, crossed
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import (
    ALL,
    BACKUP,
    FAIL_BACK,
    GROUP,
    PHASES,
    PRIMARY,
    REPLICATION,
    RESTART,
    ROLLBACK,
    SHARED_STORE,
    SWITCHOVER,
    UPDATE,
    VOTES,
    Node,
    Order,
    Plan,
    Refused,
    Wave,
)
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Event, Phase, step
from ansible_collections.understudy.broker.plugins.module_utils.rollout_versions import why_not_together


@dataclass
class _Unit:
    """A pair or a single node, with the nodes that the roll changes."""

    name: str
    members: tuple[Node, ...]
    changed: tuple[Node, ...] = ()
    serving: tuple[Node, ...] = ()
    fails_back: bool = False
    returning: tuple[Node, ...] = ()
    """Primaries that a planned switch has stopped; they are started before their backup yields."""
    reasons: list[str] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        """An earlier run has stopped a node of it."""
        return any(not node.in_place for node in self.members)

    @property
    def alone(self) -> bool:
        """Whether the unit is a wave of its own whatever the scope: others answer for it, or vote, while it is down."""
        return any(
            node.colocated or (node.policy == REPLICATION and node.lock_manager == VOTES) for node in self.members
        )

    @property
    def switches(self) -> bool:
        """Whether the nodes go one after the other, and the service is handed over in between."""
        return (
            len(self.members) > 1
            and not self.members[0].colocated
            and all(node.roll_order == SWITCHOVER for node in self.members)
        )

    @property
    def group(self) -> str:
        return self.members[0].group


def make_plan(nodes: Iterable[Node], order: Order, within: Iterable[str] | None = None) -> Plan:
    """The plan of a roll.

    Args:
        nodes: every node of the inventory.
        order: what is asked for.
        within: names of the hosts that this run may touch (``--limit``); None for all.

    Raises:
        Refused: with the reasons.
    """
    members = tuple(_take_over(node, order) for node in sorted(nodes, key=lambda node: node.name))
    allowed = {node.name for node in members} if within is None else set(within)
    seen = tuple(node for node in members if node.name in allowed)
    roll = _roll(seen, order)
    latest = _latest(seen)
    units = [_judge(_Unit(name, group), order, (roll, latest), allowed) for name, group in _by_unit(members, allowed)]
    touched = [unit for unit in units if unit.changed]
    # What a node does that cannot be reached is not known.
    known = [unit for unit in units if all(node.reachable for node in unit.members)]
    reasons = [reason for unit in known for reason in unit.reasons]
    unreachable = [f"{node.name} cannot be reached by Ansible" for node in seen if not node.reachable]
    if order.canary and order.canary not in {unit.name for unit in units}:
        reasons.append(f"the canary {order.canary} is no pair and no node without a pair: {_list(units)}")
    if unreachable or reasons:
        raise Refused([*unreachable, *reasons])
    waves = tuple(_waves(touched, order, roll, seen))
    unchanged = tuple(unit.name for unit in units if not unit.changed)
    return Plan(roll, order.kind, order.target, waves, unchanged, latest if order.kind == ROLLBACK else "")


def _list(units: Sequence[_Unit]) -> str:
    return ", ".join(unit.name for unit in units)


def _by_unit(members: Sequence[Node], allowed: set[str]) -> list[tuple[str, tuple[Node, ...]]]:
    units: dict[str, list[Node]] = defaultdict(list)
    for node in members:
        units[node.unit].append(node)
    return [(name, tuple(group)) for name, group in sorted(units.items()) if any(n.name in allowed for n in group)]


def _roll(seen: Sequence[Node], order: Order) -> str:
    """The name of the unfinished roll with this aim, or of a new one."""
    own = [node.record for node in seen if node.record is not None and node.record.unfinished]
    return max((record.roll for record in own if record.aim == order.aim), default=order.roll)


def _take_over(node: Node, order: Order) -> Node:
    """The node without, or with the superseded, record of an unfinished roll with another aim.

    Raises:
        Refused: only a rollback may take over a node that such a roll has stopped.
    """
    record = node.record
    if record is None or not record.unfinished or record.aim == order.aim:
        return node
    if node.in_place:
        return replace(node, record=None)
    if order.kind != ROLLBACK:
        reason = (
            f"{node.name} is {node.phase.value} in the unfinished roll {record.roll} ({' to '.join(record.aim)}), and "
            f"this is the {' to '.join(order.aim)}; finish that roll with the same command, or undo it with rollback"
        )
        raise Refused([reason])
    return replace(node, record=replace(record, phase=step(record.phase, Event.SUPERSEDE)))


def _latest(seen: Iterable[Node]) -> str:
    """The last roll that changed nodes and was not undone while it ran."""
    return max((node.saved.roll for node in seen if node.saved is not None), default="")


def _judge(unit: _Unit, order: Order, rolls: tuple[str, str], allowed: set[str]) -> _Unit:
    """Which nodes change, which serve, and what is in the way.

    Args:
        unit: the unit, of which only the members are known.
        order: what is asked for.
        rolls: this roll, and the one that a rollback undoes.
        allowed: hosts that this run may touch.
    """
    absent = [node for node in unit.members if node.name in allowed and node.reachable and not node.deployed]
    if absent and order.kind != ROLLBACK:
        unit.reasons += [_missing(node) for node in absent]
        return unit
    changed = tuple(node for node in unit.members if node.name in allowed and _changes(node, order, *rolls))
    if not changed:
        return unit
    unit.changed = changed
    outside = [node.name for node in unit.members if node.name not in allowed]
    if outside:
        unit.reasons.append(
            f"{outside[0]} is not within --limit, but {changed[0].name} of pair {unit.name} is; give both"
        )
        return unit
    active = tuple(node for node in unit.members if node.running and node.state == "active")
    if len(active) > 1:
        unit.reasons.append(f"{active[0].name} and {active[1].name} of pair {unit.name} are both active")
    if unit.switches:
        unit.serving = active
        unit.reasons += _unfit_to_switch(unit, order)
        return unit
    if unit.begun:
        unit.serving = active or tuple(n for n in unit.members if n.record is not None and n.record.served)
        if not unit.serving:
            unit.reasons.append(f"no record of {_names(unit.members)} says which node served; start one with site")
        stops = [node for node in changed if node in unit.serving and node.phase in (Phase.BEGUN, Phase.RESTORING)]
    else:
        unit.serving = active
        unit.returning = _returning(unit, order)
        unit.reasons += _unfit(unit) or _fail_back(unit, order)
        stops = [node for node in changed if node in unit.serving or unit.fails_back]
    if stops:
        # a partner that goes on running would take over from the node that stops
        unit.changed = unit.members
    return unit


def _unfit_to_switch(unit: _Unit, order: Order) -> list[str]:
    """Why the nodes of a pair cannot go one after the other."""
    if not unit.begun:
        reasons = _unfit(unit)
    elif not unit.serving:
        said = "; ".join(_says(node) for node in unit.members)
        reasons = [
            f"no node of pair {unit.name} is active: {said}; bring the one into service that served last, with site"
        ]
    else:
        reasons = _crossed(unit)
    for node in unit.changed:
        wanted = _wanted(node, order)
        problem = next((why for other in unit.members if (why := why_not_together(other.release, wanted))), "")
        if problem:
            reasons.append(
                f"pair {unit.name} cannot be rolled by switchover: {problem}; set broker_roll_order to together for it"
            )
            break
    return reasons


def _wanted(node: Node, order: Order) -> str:
    """The release that a node gets."""
    if order.kind == UPDATE and order.target:
        return order.target
    if order.kind == ROLLBACK and node.saved is not None:
        return node.saved.release
    return node.release


def _is_done(node: Node, roll: str) -> bool:
    return node.record is not None and node.record.roll == roll and node.record.phase is Phase.DONE


def _changes(node: Node, order: Order, roll: str, latest: str) -> bool:
    if node.record is not None and node.record.unfinished:
        return True
    if order.kind == UPDATE:
        return bool(node.pending)
    if order.kind == RESTART:
        return not _is_done(node, roll)
    return node.saved is not None and node.saved.roll == latest and not node.saved.spent


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(node.name for node in nodes)


def _says(node: Node) -> str:
    state = "stopped" if not node.running else node.state
    return f"{node.name} is {state}" + (f" ({node.reason})" if node.reason else "")


def _unfit(unit: _Unit) -> list[str]:
    """Why a unit that no roll has begun with cannot be taken down."""
    where = f" of pair {unit.name}" if unit.members[0].pair else ""
    absent = [node for node in unit.members if not node.deployed]
    if absent:
        return [_missing(node) for node in absent]
    if not unit.serving:
        said = "; ".join(_says(node) for node in unit.members)
        return [f"no node{where or ' of ' + unit.name} is active: {said}; bring it into service with site first"]
    reasons = []
    for node in unit.members:
        if node in unit.returning:
            continue
        if not node.ready or not node.running:
            task = "not ready" if node in unit.serving else "not in sync"
            reasons.append(f"{_says(node)}{where}, {task}; wait or repair it first (playbook health)")
        elif node.colocated and node.backup_request and not node.hosted:
            reasons.append(f"{node.name} is served by no backup on another node; wait until one is hosted")
    return [*reasons, *_crossed(unit)]


def _missing(node: Node) -> str:
    where = f" of pair {node.pair}" if node.pair else ""
    return (
        f"nothing is deployed on {node.name}{where}; run site first, or add_node for a new member of a cluster that "
        "runs, or leave it out with --limit"
    )


def _returning(unit: _Unit, order: Order) -> tuple[Node, ...]:
    """Primaries of a pair whose backup serves after a planned switch, and which are down since."""
    serves = [node for node in unit.serving if node.role == BACKUP and node.ready]
    if order.serving_backup != FAIL_BACK or len(unit.serving) != 1 or not serves or unit.members[0].coordination:
        return ()
    return tuple(node for node in unit.members if node.role == PRIMARY and node.reachable and not node.running)


def _crossed(unit: _Unit) -> list[str]:
    """Why the nodes of a pair are not a pair: a roll would give the stores of two pairs to each other's nodes."""
    members = []
    for node in unit.members:
        partners = tuple(other.advertised for other in unit.members if other is not node)
        members.append(Member(node.name, node.pair, node.node_id, node.partner, partners if all(partners) else ()))
    return [
        f"{reason}; bring the nodes of the pair together first (docs/operate/replication.md)"
        for reason in crossed(members)
    ]


def _fail_back(unit: _Unit, order: Order) -> list[str]:
    """Decide about a configured backup that serves."""
    serving = next((node for node in unit.serving if node.role == BACKUP), None)
    if serving is None or len(unit.serving) > 1 or unit.members[0].coordination:
        return []
    if order.serving_backup == FAIL_BACK:
        unit.fails_back = True
    elif serving.policy == REPLICATION:
        reason = (
            f"{serving.name} of pair {unit.name} serves as a replicated backup, which does not serve again by itself "
            "after a stop; fail it back first (rolling_serving_backup: failback)"
        )
        return [reason]
    return []


def _waves(units: Sequence[_Unit], order: Order, roll: str, seen: Sequence[Node]) -> Iterator[Wave]:
    """The interrupted wave, then the canary unless one is done, then the rest by scope."""
    begun = [unit for unit in units if unit.begun]
    rest = [unit for unit in units if not unit.begun]
    together = [unit for unit in begun if not unit.alone]
    for group in ([together] if together else []) + [[unit] for unit in begun if unit.alone]:
        yield from _stages(group, resumed=True)
    proved = any(_is_done(node, roll) for node in seen)
    if rest and not begun and not proved:
        canary = next((unit for unit in rest if unit.name == order.canary), rest[0])
        rest.remove(canary)
        yield from _stages([canary])
    batches: dict[str, list[_Unit]] = {}
    for unit in rest:
        key = f"unit {unit.name}"
        if order.scope == ALL and not unit.alone:
            key = "all"
        elif order.scope == GROUP and unit.group and not unit.alone:
            key = f"group {unit.group}"
        batches.setdefault(key, []).append(unit)
    for batch in batches.values():
        yield from _stages(batch)


def _stages(units: Sequence[_Unit], *, resumed: bool = False) -> Iterator[Wave]:
    """The waves of units that go together: one, or with a switchover one for each half of the pairs."""
    together = [unit for unit in units if not unit.switches]
    switching = [unit for unit in units if unit.switches]
    if together:
        yield _wave(together, resumed=resumed)
    for served in (False, True):
        halves = {unit.name: [node for node in unit.changed if (node in unit.serving) is served] for unit in switching}
        touched = [unit for unit in switching if halves[unit.name]]
        if touched:
            begun = any(not node.in_place for unit in touched for node in halves[unit.name])
            yield _half(touched, halves, resumed=resumed and begun)


def _half(units: Sequence[_Unit], halves: dict[str, list[Node]], *, resumed: bool) -> Wave:
    """The wave of the passive nodes of some pairs, or of their active ones, which hand their service over first."""
    phases: dict[str, list[str]] = {phase: [] for phase in PHASES}
    gates: dict[str, str] = {}
    switches: dict[str, str] = {}
    for unit in units:
        for node in halves[unit.name]:
            at = node.phase if node.record is not None and node.record.unfinished else Phase.BEGUN
            runs = at in (Phase.BEGUN, Phase.RESTORING)
            gates[node.name] = _gate_of_half(unit, node, returns=node in unit.serving or not runs)
            phases["begin"].append(node.name)
            phases["finish"].append(node.name)
            if node.in_place:
                phases["preflight"].append(node.name)
            if runs and node in unit.serving:
                phases["switch"].append(node.name)
                switches[node.name] = _successor(unit, node)
            elif runs:
                phases["stop_backups"].append(node.name)
            if runs or at is Phase.STOPPED:
                phases["apply"].append(node.name)
            if at is not Phase.STARTED:
                phases["start_backups"].append(node.name)
    return Wave(
        name=", ".join(unit.name for unit in units) + (" (switch)" if phases["switch"] else " (passive nodes)"),
        units=tuple(unit.name for unit in units),
        phases={phase: tuple(hosts) for phase, hosts in phases.items()},
        gates=gates,
        serving=tuple(switches),
        resumed=resumed,
        switches=switches,
    )


def _successor(unit: _Unit, node: Node) -> str:
    """The node that takes over: one that is in sync, or will be when the passive nodes have had their wave."""
    others = [other for other in unit.members if other is not node]
    return min(others, key=lambda other: not other.ready).name


def _gate_of_half(unit: _Unit, node: Node, *, returns: bool) -> str:
    """The state that a node of a switchover reaches after its start.

    Args:
        unit: Pair of the node.
        node: Node that starts.
        returns: Whether the node served before, so that with failback it takes the service back.
    """
    if len(unit.members) > 2:
        return "active" if returns and node.start_gate == "active" else "ready"
    return node.start_gate if returns or node.start_gate == "passive" else "ready"


def _wave(units: Sequence[_Unit], *, resumed: bool = False) -> Wave:
    phases: dict[str, list[str]] = {phase: [] for phase in PHASES}
    gates: dict[str, str] = {}
    for unit in units:
        last_to_stop, first_to_start = _leaders(unit)
        for node in unit.changed:
            at = node.phase if unit.begun and node.record is not None and node.record.unfinished else Phase.BEGUN
            starts = "start_primaries" if node in first_to_start else "start_backups"
            gates[node.name] = _gate(unit, node in first_to_start)
            phases["begin"].append(node.name)
            phases["finish"].append(node.name)
            if not unit.begun:
                phases["preflight"].append(node.name)
            if at in (Phase.BEGUN, Phase.RESTORING):
                phases["stop_primaries" if node in last_to_stop else "stop_backups"].append(node.name)
            if at in (Phase.BEGUN, Phase.RESTORING, Phase.STOPPED):
                phases["apply"].append(node.name)
            if at is not Phase.STARTED:
                phases[starts].append(node.name)
        phases["bring_back"] += [node.name for node in unit.returning]
        if unit.fails_back and not any(node.failback for node in unit.returning):
            phases["fail_back"] += [node.name for node in unit.serving]
    return Wave(
        name=", ".join(unit.name for unit in units),
        units=tuple(unit.name for unit in units),
        phases={phase: tuple(hosts) for phase, hosts in phases.items()},
        gates=gates,
        serving=tuple(node.name for unit in units for node in _leaders(unit)[0]),
        leading=tuple(node.name for unit in units for node in _leaders(unit)[1] if node in unit.changed),
        resumed=resumed,
    )


def _gate(unit: _Unit, leads: bool) -> str:
    if leads:
        return "active"
    # only one backup follows; further ones are in line
    return "passive" if len(unit.members) == 2 else "ready"


def _leaders(unit: _Unit) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The node that stops last, which serves, and the node that starts first.

    On a shared store the configured primary starts first, because every node has the newest data and a backup waits for
    a primary. With replication the node that served last has the newest data.
    """
    primaries = tuple(node for node in unit.members if node.role == PRIMARY)
    if unit.fails_back:
        return primaries, primaries
    stays = all(node not in unit.changed for node in unit.serving)
    if unit.members[0].policy == SHARED_STORE and not stays:
        return unit.serving, primaries
    return unit.serving, unit.serving
