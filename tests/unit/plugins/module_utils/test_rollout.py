"""Goal: no plan takes a pair out of service longer than its own wave, touches another wave, or leaves a node half-way.

Method: Hypothesis draws inventories and live states; a model of the cluster carries the phases of the plan out, with an
interruption at any step, and the invariants are looked at after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.rollout import make_plan
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import (
    PHASES,
    Node,
    Order,
    Plan,
    Refused,
    Saved,
    Wave,
)
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Event, Phase, Record, found, step
from hypothesis import given
from hypothesis import strategies as st

TARGET = "2.0-bbb"
ORDER = Order("update", "20260101T000000Z", TARGET)


def pair(name: str, policy: str = "shared_store", backups: int = 1, **both: object) -> list[Node]:
    """A pair in service whose primary is active."""
    shared: dict[str, object] = {"pair": name, "policy": policy, "release": "1.0-aaa", "pending": ("release",), **both}
    primary = Node(f"{name}_1", **shared)  # type: ignore[arg-type]
    others = [Node(f"{name}_{n + 2}", **shared, role="backup", state="passive") for n in range(backups)]  # type: ignore[arg-type]
    return [primary, *others]


def single(name: str, policy: str = "primary_only", **own: object) -> Node:
    return Node(name, policy=policy, release="1.0-aaa", pending=("release",), **own)  # type: ignore[arg-type]


def change(nodes: list[Node], name: str, **values: object) -> list[Node]:
    return [replace(node, **values) if node.name == name else node for node in nodes]  # type: ignore[arg-type]


def hosts(wave: Wave) -> dict[str, list[str]]:
    return {phase: list(wave.phases[phase]) for phase in PHASES if wave.phases[phase]}


def refusal(nodes: list[Node], order: Order = ORDER, within: list[str] | None = None) -> str:
    with pytest.raises(Refused) as caught:
        make_plan(nodes, order, within)
    return str(caught.value)


def record(phase: Phase, *, served: bool = False, target: str = TARGET, kind: str = "update") -> Record:
    return Record("20250101T000000Z", kind, target, "east", phase, served)


# --- one pair ------------------------------------------------------------------------------------


def test_backups_stop_before_primaries_which_start_before_them() -> None:
    (wave,) = make_plan(pair("east"), ORDER).waves
    assert hosts(wave) == {
        "preflight": ["east_1", "east_2"],
        "begin": ["east_1", "east_2"],
        "stop_backups": ["east_2"],
        "stop_primaries": ["east_1"],
        "apply": ["east_1", "east_2"],
        "start_primaries": ["east_1"],
        "start_backups": ["east_2"],
        "finish": ["east_1", "east_2"],
    }
    assert wave.gates == {"east_1": "active", "east_2": "passive"}
    assert wave.serving == ("east_1",)


def swapped(**both: object) -> list[Node]:
    """A pair whose configured backup serves."""
    nodes = change(pair("east", **both), "east_1", state="passive")  # type: ignore[arg-type]
    return change(nodes, "east_2", state="active")


def test_backup_that_serves_is_failed_back_first() -> None:
    (wave,) = make_plan(swapped(), ORDER).waves
    assert wave.phases["fail_back"] == ("east_2",)
    assert wave.phases["stop_backups"] == ("east_2",)
    assert wave.phases["stop_primaries"] == ("east_1",)


def test_backup_that_is_kept_serving_stops_last_and_the_primary_starts_first() -> None:
    (wave,) = make_plan(swapped(), replace(ORDER, serving_backup="keep")).waves
    assert wave.phases["fail_back"] == ()
    assert wave.phases["stop_backups"] == ("east_1",)
    assert wave.phases["stop_primaries"] == ("east_2",)
    assert wave.phases["start_primaries"] == ("east_1",)
    assert wave.serving == ("east_2",)


def test_replicated_backup_cannot_be_kept_serving() -> None:
    assert "east_2 of pair east serves" in refusal(swapped(policy="replication"), replace(ORDER, serving_backup="keep"))


def test_of_equal_primaries_the_one_that_serves_stops_last_and_starts_first() -> None:
    nodes = change(swapped(policy="replication", coordination="id"), "east_2", role="primary")
    (wave,) = make_plan(nodes, ORDER).waves
    assert wave.phases["fail_back"] == ()
    assert wave.phases["stop_primaries"] == wave.phases["start_primaries"] == ("east_2",)


def test_only_the_backup_stops_when_only_the_backup_changes() -> None:
    (wave,) = make_plan(change(pair("east"), "east_1", pending=()), ORDER).waves
    assert wave.hosts == ("east_2",)
    assert wave.phases["start_backups"] == ("east_2",)


def test_passive_primary_alone_is_gated_as_passive() -> None:
    nodes = change(swapped(), "east_2", pending=())
    (wave,) = make_plan(nodes, replace(ORDER, serving_backup="keep")).waves
    assert wave.hosts == ("east_1",)
    assert wave.gates == {"east_1": "passive"}


def test_further_backups_need_only_be_in_line() -> None:
    (wave,) = make_plan(pair("east", backups=2), ORDER).waves
    assert wave.gates == {"east_1": "active", "east_2": "ready", "east_3": "ready"}


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("east_1", {"state": "passive"}, "no node of pair east is active: east_1 is passive; east_2 is passive"),
        ("east_2", {"state": "active"}, "east_1 and east_2 of pair east are both active"),
        (
            "east_2",
            {"ready": False, "reason": "a lag of 9 bytes"},
            "east_2 is passive (a lag of 9 bytes) of pair",
        ),
        (
            "east_2",
            {"running": False, "state": "stopped", "ready": False},
            "east_2 is stopped of pair east, not i",
        ),
        ("east_2", {"deployed": False, "running": False, "ready": False}, "nothing is deployed on east_2 of pair east"),
        ("east_2", {"reachable": False, "pending": ()}, "east_2 cannot be reached by Ansible"),
    ],
)
def test_refusal_names_the_node(name: str, values: dict[str, object], words: str) -> None:
    assert words in refusal(change(pair("east"), name, **values))


def test_pairs_that_have_exchanged_their_backups_are_refused() -> None:
    east, west = pair("east", "replication"), pair("west", "replication")
    nodes = [
        replace(east[0], node_id="E", advertised="10.0.0.1:1", partner="10.0.1.2:1"),
        replace(east[1], node_id="W", advertised="10.0.0.2:1", partner="10.0.1.1:1"),
        replace(west[0], node_id="W", advertised="10.0.1.1:1", partner="10.0.0.2:1"),
        replace(west[1], node_id="E", advertised="10.0.1.2:1", partner="10.0.0.1:1"),
    ]
    said = refusal(nodes)
    assert "east_1 and east_2 of pair east have the stores of two node ids (E and W)" in said
    assert "west_2 has 10.0.0.1:1 as its partner, which is no other node of pair west (10.0.1.1:1)" in said


def test_a_pair_whose_nodes_belong_together_is_planned() -> None:
    east = pair("east", "replication")
    nodes = [
        replace(east[0], node_id="E", advertised="10.0.0.1:1", partner="10.0.0.2:1"),
        replace(east[1], node_id="E", advertised="10.0.0.2:1", partner="10.0.0.1:1"),
    ]
    assert make_plan(nodes, ORDER).waves


def test_limit_that_cuts_a_pair_is_refused() -> None:
    assert "east_2 is not within --limit, but east_1 of pair east is" in refusal(pair("east"), within=["east_1"])


def test_limit_to_a_pair_leaves_the_others_alone() -> None:
    plan = make_plan([*pair("east"), *pair("west")], ORDER, ["west_1", "west_2"])
    assert [wave.name for wave in plan.waves] == ["west"]


def test_unknown_canary_is_refused() -> None:
    assert "the canary north is no pair" in refusal(pair("east"), replace(ORDER, canary="north"))


def test_colocated_node_without_a_hosted_backup_is_refused() -> None:
    node = single("d1", "colocated_shared_store", backup_request=True)
    assert "d1 is served by no backup on another node" in refusal([node])
    assert make_plan([replace(node, hosted=True)], ORDER).waves


# --- resume --------------------------------------------------------------------------------------


def test_interrupted_wave_is_continued_before_any_other() -> None:
    east = pair("east")
    east = change(east, "east_2", running=False, state="stopped", ready=False, record=record(Phase.STOPPED))
    east = change(east, "east_1", running=False, state="stopped", ready=False, record=record(Phase.BEGUN, served=True))
    plan = make_plan([*pair("a"), *east], ORDER)
    assert plan.roll == "20250101T000000Z"
    assert [(wave.name, wave.resumed) for wave in plan.waves] == [("east", True), ("a", False)]
    assert hosts(plan.waves[0]) == {
        "begin": ["east_1", "east_2"],
        "apply": ["east_1", "east_2"],
        "start_primaries": ["east_1"],
        "start_backups": ["east_2"],
        "finish": ["east_1", "east_2"],
    }


def test_started_primary_is_not_stopped_again() -> None:
    east = change(pair("east"), "east_1", record=record(Phase.STARTED, served=True), pending=())
    east = change(east, "east_2", running=False, state="stopped", ready=False, record=record(Phase.APPLIED))
    (wave,) = make_plan(east, ORDER).waves
    assert hosts(wave) == {
        "begin": ["east_1", "east_2"],
        "start_backups": ["east_2"],
        "finish": ["east_1", "east_2"],
    }


def test_record_of_another_target_is_refused_once_a_node_is_stopped() -> None:
    down = {"running": False, "state": "stopped", "ready": False}
    east = change(pair("east"), "east_2", **down, record=record(Phase.STOPPED, target="3.0-ccc"))
    assert "east_2 is stopped in the unfinished roll 20250101T000000Z (update to 3.0-ccc)" in refusal(east)
    begun = change(pair("east"), "east_2", record=record(Phase.BEGUN, target="3.0-ccc"))
    assert make_plan(begun, ORDER).roll == ORDER.roll


def test_rollback_takes_over_an_unfinished_update() -> None:
    saved = Saved("20250101T000000Z", "1.0-aaa", spent=False)
    east = change(pair("east"), "east_1", record=record(Phase.STARTED, served=True), saved=saved)
    down = {"running": False, "state": "stopped", "ready": False}
    east = change(east, "east_2", **down, record=record(Phase.APPLIED), saved=saved)
    plan = make_plan([*east, *pair("west")], Order("rollback", "20260101T000000Z"))
    assert plan.undoes == "20250101T000000Z"
    (wave,) = plan.waves
    assert wave.phases["stop_primaries"] == ("east_1",)
    assert wave.phases["apply"] == ("east_1", "east_2")


def test_rollback_undoes_the_last_roll_only() -> None:
    old, new = Saved("20240101T000000Z", "0.9", spent=False), Saved("20250101T000000Z", "1.0", spent=False)
    nodes = [single("a", saved=old), single("b", saved=new)]
    order = Order("rollback", "20260101T000000Z")
    assert [wave.name for wave in make_plan(nodes, order).waves] == ["b"]
    spent = [nodes[0], replace(nodes[1], saved=replace(new, spent=True))]
    assert make_plan(spent, order).waves == ()


# --- properties ----------------------------------------------------------------------------------


@st.composite
def units(draw: st.DrawFn, name: str) -> list[Node]:
    """A unit in service, in any role, of which any nodes are to be changed."""
    kind = draw(st.sampled_from(["pair", "pair", "replication", "peers", "votes", "single", "colocated"]))
    group = draw(st.sampled_from(["", "g", "h"]))
    if kind == "single":
        nodes = [single(name, group=group)]
    elif kind == "colocated":
        nodes = [single(name, "colocated_replication", backup_request=True, hosted=True, group=group)]
    else:
        policy = "shared_store" if kind == "pair" else "replication"
        backups = draw(st.integers(1, 2))
        manager = "votes" if kind == "votes" else "witness"
        order = draw(st.sampled_from(["together", "together", "switchover"]))
        nodes = pair(name, policy, backups, group=group, lock_manager=manager, roll_order=order)
        serving = draw(st.integers(0, backups))
        nodes = [replace(n, state="active" if at == serving else "passive") for at, n in enumerate(nodes)]
        if kind == "peers":
            nodes = [replace(node, role="primary", coordination="id") for node in nodes]
    pending = draw(st.lists(st.booleans(), min_size=len(nodes), max_size=len(nodes)))
    return [
        replace(n, pending=n.pending if p else (), release="1" if p else "2")
        for n, p in zip(nodes, pending, strict=True)
    ]


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    names = draw(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=5, unique=True))
    return [node for name in names for node in draw(units(name))]


orders = st.builds(
    Order,
    st.just("update"),
    st.just("20260101T000000Z"),
    st.just("2"),
    st.sampled_from(["pair", "group", "all"]),
    st.just(""),
    st.sampled_from(["failback", "keep"]),
)


@dataclass
class Cluster:
    """A model of the hosts: carries phases out, as the playbook does."""

    nodes: dict[str, Node]
    touched: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, nodes: list[Node]) -> Cluster:
        return cls({node.name: node for node in nodes})

    def set(self, name: str, **values: object) -> None:
        self.nodes[name] = replace(self.nodes[name], **values)  # type: ignore[arg-type]

    def others(self, name: str) -> list[Node]:
        return [n for n in self.nodes.values() if n.unit == self.nodes[name].unit and n.name != name]

    def record(self, name: str, event: Event) -> None:
        known = self.nodes[name].record
        assert known is not None
        self.set(name, record=replace(known, phase=step(known.phase, event)))

    def act(self, plan: Plan, wave: Wave, phase: str, name: str) -> None:
        """One phase on one host; refuses what a broker could not do."""
        node = self.nodes[name]
        partner_active = any(other.running and other.state == "active" for other in self.others(name))
        self.touched.add(name)
        if phase == "preflight":
            assert node.running
            assert node.ready
        elif phase == "fail_back":
            (primary,) = (other for other in self.others(name) if other.role == "primary")
            assert primary.running
            self.set(name, state="passive")
            self.set(primary.name, state="active")
        elif phase == "begin":
            at = Phase.IDLE if node.record is None else found(node.record.phase, running=node.running)
            fresh = Record(plan.roll, plan.kind, plan.target, wave.name, at, name in wave.serving)
            self.set(name, record=replace(fresh, phase=step(at, Event.BEGIN)))
        elif phase in ("stop_backups", "stop_primaries"):
            if node.state == "active":
                assert not any(other.running for other in self.others(name)), "its partner would take over"
            self.set(name, running=False, state="stopped", ready=False)
            self.record(name, Event.STOP)
        elif phase == "switch":
            taker = self.nodes[wave.switches[name]]
            assert node.state == "active"
            assert taker.running
            assert taker.ready
            assert taker.release == plan.target, "the partner has had its wave"
            self.set(name, running=False, state="stopped", ready=False)
            self.set(taker.name, state="active")
            self.record(name, Event.STOP)
        elif phase == "apply":
            assert not node.running, "a running broker must not find another file"
            self.set(name, release=plan.target, pending=())
            self.record(name, Event.APPLY)
        elif phase in ("start_primaries", "start_backups"):
            gate = wave.gates[name]
            if phase == "start_primaries":
                assert not partner_active
                assert gate == "active"
            else:
                assert partner_active, "a backup that starts first would only wait"
                assert gate in ("passive", "ready")
            self.set(name, running=True, ready=True, state="active" if phase == "start_primaries" else "passive")
            self.record(name, Event.START)
        else:
            self.record(name, Event.FINISH)

    def check(self, wave: Wave) -> None:
        for unit in {node.unit for node in self.nodes.values()}:
            members = [node for node in self.nodes.values() if node.unit == unit]
            active = [node for node in members if node.running and node.state == "active"]
            assert len(active) <= 1
            if unit not in wave.units:
                assert len(active) == 1
                assert all(node.running and node.ready for node in members)


def steps(plan: Plan) -> list[tuple[Wave, str, str]]:
    return [(wave, phase, name) for wave in plan.waves for phase in PHASES for name in wave.phases[phase]]


def planned(nodes: list[Node], order: Order) -> Plan | None:
    """The plan; None for a replicated backup that is to be kept serving."""
    try:
        return make_plan(nodes, order)
    except Refused as refused:
        if order.serving_backup != "keep" or "serves as a replicated backup" not in refused.reasons[0]:
            raise
        return None


@given(clusters(), orders)
def test_plan_ends_with_every_node_at_the_target_and_every_state_between_is_legal(
    nodes: list[Node], order: Order
) -> None:
    plan = planned(nodes, order)
    if plan is None:
        return
    cluster = Cluster.of(nodes)
    for wave, phase, name in steps(plan):
        assert cluster.nodes[name].unit in wave.units
        cluster.act(plan, wave, phase, name)
        cluster.check(wave)
    assert all(node.release == "2" and node.running and node.ready for node in cluster.nodes.values())
    unchanged = {node.name for node in nodes if all(not n.pending for n in nodes if n.unit == node.unit)}
    assert not cluster.touched & unchanged
    assert make_plan(cluster.nodes.values(), order).waves == ()


@given(clusters(), orders, st.data())
def test_interrupted_roll_is_continued_to_the_same_end(nodes: list[Node], order: Order, data: st.DataObject) -> None:
    cluster = Cluster.of(nodes)
    for _run in range(4):
        plan = planned(list(cluster.nodes.values()), order)
        if plan is None or not plan.waves:
            break
        todo = steps(plan)
        last = data.draw(st.integers(0, len(todo)))
        for wave, phase, name in todo[:last]:
            cluster.act(plan, wave, phase, name)
            cluster.check(wave)
    plan = planned(list(cluster.nodes.values()), order)
    if plan is None:
        return
    for wave, phase, name in steps(plan):
        cluster.act(plan, wave, phase, name)
        cluster.check(wave)
    assert all(node.release == "2" and node.running and node.ready for node in cluster.nodes.values())
    assert all(node.record is None or node.record.phase is Phase.DONE for node in cluster.nodes.values())


@given(clusters(), orders)
def test_first_wave_is_one_unit_and_single_units_stay_single(nodes: list[Node], order: Order) -> None:
    plan = planned(nodes, order)
    if plan is None or not plan.waves:
        return
    assert len(plan.waves[0].units) == 1
    assert plan.waves[0].units[0] == min(unit for wave in plan.waves for unit in wave.units)
    for wave in plan.waves:
        members = [node for node in nodes if node.unit in wave.units]
        if any(node.colocated or (node.lock_manager == "votes" and node.policy == "replication") for node in members):
            assert len(wave.units) == 1
    names = [name for wave in plan.waves for name in wave.hosts]
    assert len(names) == len(set(names))


@given(clusters(), st.sampled_from(["update", "rollback"]))
def test_converged_cluster_has_an_empty_plan(nodes: list[Node], kind: str) -> None:
    converged = [replace(node, pending=()) for node in nodes]
    assert make_plan(converged, Order(kind, "20260101T000000Z", "2" if kind == "update" else "")).waves == ()


@pytest.mark.parametrize("policy", ["shared_store", "replication"])
@pytest.mark.parametrize("failback", [True, False])
@pytest.mark.parametrize("kind", ["restart", "update"])
def test_after_a_planned_switch_a_roll_starts_the_former_active_node_first(
    policy: str, failback: bool, kind: str
) -> None:
    nodes = change(pair("east", policy, failback=failback), "east_1", running=False, state="stopped", ready=False)
    nodes = change(nodes, "east_2", state="active")
    (wave,) = make_plan(nodes, replace(ORDER, kind=kind)).waves
    phases = hosts(wave)
    assert list(phases)[:2] == ["bring_back", "preflight"]
    assert phases["bring_back"] == ["east_1"]
    # with broker_failback the backup yields by itself
    assert phases.get("fail_back", []) == ([] if failback else ["east_2"])
    assert (phases["stop_primaries"], phases["stop_backups"]) == (["east_1"], ["east_2"])
    assert wave.serving == wave.leading == ("east_1",)


def test_a_backup_that_serves_and_shall_stay_so_needs_its_primary() -> None:
    nodes = change(pair("east"), "east_1", running=False, state="stopped", ready=False)
    nodes = change(nodes, "east_2", state="active")
    assert "east_1 is stopped of pair east, not in sync" in refusal(nodes, replace(ORDER, serving_backup="keep"))


@pytest.mark.parametrize("kind", ["update", "restart"])
def test_hosts_without_a_deployment_are_named_although_nothing_differs(kind: str) -> None:
    nodes = [replace(node, deployed=False, running=False, pending=()) for node in pair("east")]
    told = refusal(nodes, replace(ORDER, kind=kind))
    for name in ("east_1", "east_2"):
        assert f"nothing is deployed on {name} of pair east; run site first" in told


@given(clusters(), st.data())
def test_broken_unit_is_refused_and_names_its_node(nodes: list[Node], data: st.DataObject) -> None:
    changed = [node for node in nodes if node.pending]
    if not changed:
        return
    victim = data.draw(st.sampled_from(changed))
    broken = change(nodes, victim.name, running=False, state="stopped", ready=False)
    order = Order("update", "20260101T000000Z", "2")
    backup_serves = any(n.pair == victim.pair != "" and n.role == "backup" and n.state == "active" for n in nodes)
    if victim.role == "primary" and victim.coordination == "" and victim.roll_order == "together" and backup_serves:
        # as a planned switch leaves it: started again, and then failed back to
        assert any(victim.name in wave.phases["bring_back"] for wave in make_plan(broken, order).waves)
    else:
        assert victim.name in refusal(broken, order)


# --- switchover ------------------------------------------------------------------------------------


def switching(name: str = "east", policy: str = "replication", **both: object) -> list[Node]:
    """A pair in service whose nodes go one after the other; without failback unless ``both`` says otherwise."""
    return pair(name, policy, roll_order="switchover", release="2.0-aaa", **both)  # type: ignore[arg-type]


SWITCH = replace(ORDER, target="2.1-bbb")


def test_the_passive_node_goes_first_and_the_active_one_hands_its_service_over() -> None:
    passive, active = make_plan(switching(), SWITCH).waves
    assert hosts(passive) == {
        "preflight": ["east_2"],
        "begin": ["east_2"],
        "stop_backups": ["east_2"],
        "apply": ["east_2"],
        "start_backups": ["east_2"],
        "finish": ["east_2"],
    }
    assert (passive.interruption, passive.serving, passive.switches) == ("none", (), {})
    assert hosts(active) == {
        "preflight": ["east_1"],
        "begin": ["east_1"],
        "switch": ["east_1"],
        "apply": ["east_1"],
        "start_backups": ["east_1"],
        "finish": ["east_1"],
    }
    assert active.switches == {"east_1": "east_2"}
    assert active.interruption == "one switch of at most 1 s"


def test_a_primary_with_failback_takes_the_service_back() -> None:
    nodes = change(change(switching(), "east_1", start_gate="active"), "east_2", start_gate="passive")
    passive, active = make_plan(nodes, SWITCH).waves
    assert (passive.gates, active.gates) == ({"east_2": "passive"}, {"east_1": "active"})
    assert active.interruption.startswith("two switches of at most 1 s each")


def test_a_switchover_starts_from_where_the_pair_is() -> None:
    nodes = change(change(switching(), "east_1", state="passive"), "east_2", state="active")
    passive, active = make_plan(nodes, SWITCH).waves
    assert (passive.hosts, active.hosts) == (("east_1",), ("east_2",))
    assert active.switches == {"east_2": "east_1"}


def test_the_plan_says_the_interruption_of_each_wave() -> None:
    lines = make_plan([*switching(), *pair("west", release="2.0-aaa")], SWITCH).lines()
    assert [line.strip() for line in lines if "without service" in line] == [
        "without service: none",
        "without service: one switch of at most 1 s",
        "without service: from the stop of the primaries to their start",
    ]
    assert "  switch: east_1 (to east_2)" in lines


@pytest.mark.parametrize("policy", ["replication", "shared_store"])
def test_releases_that_do_not_link_are_refused(policy: str) -> None:
    nodes = pair("east", policy, roll_order="switchover", release="0.0.9-aaa")
    said = refusal(nodes, replace(ORDER, target="0.2.0-bbb"))
    assert "pair east cannot be rolled by switchover: nodes of 0.0.9-aaa and 0.2.0-bbb do not link" in said
    assert "set broker_roll_order to together" in said
    (wave,) = make_plan(
        [replace(node, roll_order="together") for node in nodes], replace(ORDER, target="0.2.0-bbb")
    ).waves
    assert wave.phases["stop_primaries"] == ("east_1",)


def test_a_rollback_over_the_border_is_refused_too() -> None:
    saved = Saved("20250101T000000Z", "0.0.9-aaa", spent=False)
    nodes = pair("east", "replication", roll_order="switchover", release="0.2.0-bbb", pending=(), saved=saved)
    assert "do not link" in refusal(nodes, Order("rollback", "20260101T000000Z"))


def test_an_interrupted_first_half_goes_on_and_the_second_half_follows() -> None:
    nodes = change(
        switching(),
        "east_2",
        running=False,
        ready=False,
        state="stopped",
        record=record(Phase.STOPPED, target="2.1-bbb"),
    )
    passive, active = make_plan(nodes, SWITCH).waves
    assert passive.resumed
    assert hosts(passive) == {
        "begin": ["east_2"],
        "apply": ["east_2"],
        "start_backups": ["east_2"],
        "finish": ["east_2"],
    }
    assert not active.resumed
    assert active.phases["preflight"] == active.phases["switch"] == ("east_1",)
    assert active.switches == {"east_1": "east_2"}


def test_an_interrupted_second_half_goes_on_without_another_switch() -> None:
    nodes = change(switching(), "east_2", state="active", release="2.1-bbb", pending=())
    down = record(Phase.STOPPED, served=True, target="2.1-bbb")
    nodes = change(nodes, "east_1", running=False, ready=False, state="stopped", record=down)
    (wave,) = make_plan(nodes, SWITCH).waves
    assert hosts(wave) == {"begin": ["east_1"], "apply": ["east_1"], "start_backups": ["east_1"], "finish": ["east_1"]}
    assert (wave.phases["switch"], wave.resumed) == ((), True)


def test_a_half_is_not_resumed_while_no_node_serves() -> None:
    nodes = change(switching(), "east_2", running=False, ready=False, state="stopped", release="2.1-bbb", pending=())
    down = record(Phase.STOPPED, served=True, target="2.1-bbb")
    nodes = change(nodes, "east_1", running=False, ready=False, state="stopped", record=down)
    assert "no node of pair east is active" in refusal(nodes, SWITCH)


def test_a_pair_that_is_not_whole_and_a_single_node_are_not_switched() -> None:
    nodes = change(switching(), "east_2", ready=False, reason="a lag of 9 bytes")
    assert "east_2 is passive (a lag of 9 bytes) of pair east, not in sync" in refusal(nodes, SWITCH)
    (wave,) = make_plan([single("alone", roll_order="switchover")], SWITCH).waves
    assert wave.phases["stop_primaries"] == ("alone",)


def test_only_the_passive_node_differs() -> None:
    (wave,) = make_plan(change(switching(), "east_1", pending=()), SWITCH).waves
    assert (wave.hosts, wave.phases["switch"]) == (("east_2",), ())
