"""Goal: rollout, rollout_step and failover do one step each, record it, and change nothing in check mode."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.process import ProcessTable
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Phase, Record
from ansible_collections.understudy.broker.plugins.modules import (
    drain,
    failover,
    instance,
    node_info,
    release,
    rollout,
    rollout_hold,
    rollout_step,
    units,
)

OLD, NEW = "1.0-aaa", "2.0-bbb"
ROLL = "20260101T000000Z"
PLAN = {"roll": ROLL, "kind": "update", "target": NEW, "undoes": ""}


def node(name: str, role: str, state: str, **live: Any) -> dict[str, object]:
    service = {"running": True, "kept": True}
    broker = {"state": state, "ready": True, "reason": ""}
    inventory = {"pair": "east", "ha_policy": "shared_store", "ha_role": role}
    return {
        "name": name,
        "inventory": inventory,
        "live": {"deployed": True, "service": service, "broker": broker, "release": OLD, **live},
    }


def pair() -> list[dict[str, object]]:
    return [node("a1", "primary", "active"), node("a2", "backup", "passive")]


def test_plan_has_phases_and_a_text_for_operators(run_module: Any) -> None:
    nodes = [{**each, "pending": ["etc/broker.xml"]} for each in pair()]
    result = run_module(rollout, kind="update", roll=ROLL, target=NEW, nodes=nodes)
    assert not result["changed"]
    (wave,) = result["plan"]["waves"]
    assert wave["serving"] == wave["leading"] == ["a1"]
    assert wave["phases"][2] == {"phase": "stop_backups", "hosts": ["a2"]}
    assert result["lines"][:2] == [f"update to {NEW}, roll {ROLL}: 1 waves", "wave 1: east (canary)"]
    assert "  start primaries: a1 (until active)" in result["lines"]


def test_release_that_is_in_place_and_not_run_yet_is_a_difference(run_module: Any) -> None:
    nodes = [node("a1", "primary", "active", running_release=NEW), node("a2", "backup", "passive")]
    result = run_module(rollout, kind="update", roll=ROLL, target=OLD, nodes=nodes)
    assert [wave["name"] for wave in result["plan"]["waves"]] == ["east"]


def test_converged_pair_is_left_alone(run_module: Any) -> None:
    result = run_module(rollout, kind="update", roll=ROLL, target=OLD, nodes=pair())
    assert result["plan"]["waves"] == []
    assert result["plan"]["unchanged"] == ["east"]


def test_refusal_says_that_nothing_was_stopped(run_module: Any) -> None:
    nodes = [pair()[0], {**pair()[1], "live": {"unreachable": True, "msg": "timed out"}}]
    result = run_module(rollout, kind="restart", roll=ROLL, nodes=nodes)
    assert result["failed"]
    assert "The restart is refused, and nothing was stopped:\na2 cannot be reached by Ansible" in result["msg"]


def test_host_outside_of_the_limit_is_not_judged(run_module: Any) -> None:
    nodes = [pair()[0], {"name": "a2", "inventory": {"pair": "east"}}]
    result = run_module(rollout, kind="restart", roll=ROLL, nodes=nodes)
    assert result["refused"] == ["a2 is not within --limit, but a1 of pair east is; give both"]


@pytest.mark.parametrize(("written", "waves"), [(ROLL, []), ("another", ["w"])])
def test_a_resumed_restart_leaves_the_quorum_alone(run_module: Any, written: str, waves: list[str]) -> None:
    record = Record(written, "restart", "", "east", Phase.BEGUN if written == ROLL else Phase.DONE, served=True)
    nodes = [node("a1", "primary", "active", rollout={"record": record.as_dict()}), pair()[1]]
    witness = {"name": "w", "place": "10.0.0.9:61619", "answering": ["10.0.0.9:61619"]}
    plan = run_module(rollout, kind="restart", roll=ROLL, nodes=nodes, quorum=[witness])["plan"]
    assert [wave["host"] for wave in plan["quorum"]] == waves
    assert [wave["name"] for wave in plan["waves"]] == ["east"]


def other_run() -> dict[str, object]:
    """A run of Ansible on another machine."""
    process = {"pid": 77, "start_ticks": 1, "boot_id": "another"}
    return {"controller": "other", "process": process, "namespace": "pid:[1]"}


def test_a_roll_that_another_run_carries_out_is_not_begun(run_module: Any) -> None:
    hold = {"roll": "r", "holder": other_run(), "renewed_ms": 1, "kind": "update", "target": NEW}
    nodes = [node("a1", "primary", "active", rollout={"hold": hold, "hold_age_s": 30}), pair()[1]]
    result = run_module(rollout, kind="restart", roll=ROLL, nodes=nodes)
    assert result["refused"] == [result["msg"].partition("\n")[2]]
    assert "a1 is in the roll r, which process 77 on other carries out (last step 30 s ago)" in result["msg"]
    plan = run_module(rollout, kind="restart", roll=ROLL, nodes=nodes, take_over=True)["plan"]
    assert plan["over"] == [hold]
    assert plan["holder"]["process"]["pid"] > 1


# --- rollout_step --------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path, management: Any) -> Path:
    """A stopped instance with two releases, of which the older one is current, and a staged broker.xml."""
    for name in (OLD, NEW):
        (tmp_path / "releases" / name).mkdir(parents=True)
        (tmp_path / "releases" / name / ".complete").touch()
    (tmp_path / "current").symlink_to(f"releases/{OLD}")
    for name in ("etc", "run", "log"):
        (tmp_path / name).mkdir()
    token = tmp_path / "etc/management.token"
    token.write_text("right\n")
    token.chmod(0o600)
    definition = {
        "name": "a1",
        "backend": "process",
        "unit": "",
        "user": "",
        "command": ["true"],
        "supervisor": ["true"],
        "management_url": management.url,
        "token_file": str(token),
    }
    (tmp_path / "etc/service.json").write_text(json.dumps(definition))
    (tmp_path / "etc/broker.xml").write_text("old\n")
    (tmp_path / "etc/broker.xml.staged").write_text("new\n")
    return tmp_path


def run(host: Path, running: bool = True) -> None:
    """Record this very test process as the broker, or none."""
    record = host / "run/supervisor.json"
    record.unlink(missing_ok=True)
    if running:
        identity = ProcessTable().identify(os.getpid())
        assert identity is not None
        own = {"pid": identity.pid, "start_ticks": identity.start_ticks, "boot_id": identity.boot_id}
        record.write_text(json.dumps({"broker": own, "supervisor": own}))


def look(host: Path, run_module: Any) -> Any:
    return run_module(node_info, directory=str(host), root=str(host))


def take(run_module: Any, host: Path, step: str, **more: Any) -> Any:
    return run_module(rollout_step, directory=str(host), root=str(host), step=step, **{"plan": PLAN, **more})


def content(host: Path) -> tuple[str, str]:
    """The release and broker.xml in place."""
    return os.readlink(host / "current").removeprefix("releases/"), (host / "etc/broker.xml").read_text().strip()


def updated(run_module: Any, host: Path) -> None:
    run(host)
    assert take(run_module, host, "begin", wave="east", served=True)["phase"] == "begun"
    run(host, running=False)
    assert take(run_module, host, "apply")["phase"] == "applied"
    run(host)


def test_update_is_applied_while_the_broker_is_down_and_kept_for_a_rollback(host: Path, run_module: Any) -> None:
    updated(run_module, host)
    assert content(host) == (NEW, "new")
    assert not (host / "etc/broker.xml.staged").exists()
    assert take(run_module, host, "finish")["phase"] == "done"
    assert not take(run_module, host, "finish")["changed"]
    seen = look(host, run_module)["rollout"]
    assert seen["record"]["phase"] == "done"
    assert seen["record"]["served"]
    assert seen["saved"] == {"roll": ROLL, "release": OLD, "spent": False}
    saved = host / "rollout/before/management.token"
    assert saved.stat().st_mode & 0o777 == 0o600


def test_running_broker_is_not_given_other_files(host: Path, run_module: Any) -> None:
    run(host)
    take(run_module, host, "begin")
    for step in ("apply", "restore"):
        assert f"{step}: the broker runs; stop it first" in take(run_module, host, step)["msg"]
    assert content(host) == (OLD, "old")


def test_users_and_roles_come_with_the_update_and_go_back_with_its_wave(host: Path, run_module: Any) -> None:
    users = host / "etc/artemis-users.properties"
    users.write_text("shop=old")
    (host / "etc/artemis-users.properties.staged").write_text("shop=new")
    updated(run_module, host)
    assert users.read_text() == "shop=new"
    take(run_module, host, "finish")
    run(host, running=False)
    take(run_module, host, "restore")
    assert users.read_text() == "shop=old"


def test_rollback_leaves_users_and_roles_alone(host: Path, run_module: Any) -> None:
    users = host / "etc/artemis-users.properties"
    users.write_text("shop=old")
    (host / "etc/artemis-users.properties.staged").write_text("shop=new")
    updated(run_module, host)
    take(run_module, host, "finish")
    plan = {"roll": "20260202T000000Z", "kind": "rollback", "target": "", "undoes": ROLL}
    take(run_module, host, "begin", plan=plan)
    run(host, running=False)
    take(run_module, host, "apply", plan=plan)
    assert content(host) == (OLD, "old")
    assert users.read_text() == "shop=new", "a password that was withdrawn does not come back"


def test_failed_roll_is_restored_as_it_was(host: Path, run_module: Any) -> None:
    updated(run_module, host)
    (host / "etc/witness-secret").write_text("of the new configuration\n")
    run(host, running=False)
    assert take(run_module, host, "restore")["phase"] == "restoring"
    assert content(host) == (OLD, "old")
    assert not (host / "etc/witness-secret").exists()
    run(host)
    assert take(run_module, host, "restart")["phase"] == "restored"
    seen = look(host, run_module)["rollout"]
    assert (seen["record"]["phase"], seen["saved"]) == ("restored", None)


def test_finished_node_is_restored_when_another_one_of_its_wave_fails(host: Path, run_module: Any) -> None:
    updated(run_module, host)
    take(run_module, host, "finish")
    run(host, running=False)
    assert take(run_module, host, "restore")["phase"] == "restoring"
    assert content(host) == (OLD, "old")
    run(host)
    take(run_module, host, "restart")
    assert look(host, run_module)["rollout"]["saved"] is None


def test_resumed_roll_does_not_save_what_it_has_applied(host: Path, run_module: Any) -> None:
    updated(run_module, host)
    run(host, running=False)
    assert take(run_module, host, "begin")["phase"] == "applied"
    assert take(run_module, host, "restore")["phase"] == "restoring"
    assert content(host) == (OLD, "old")


def test_rollback_puts_the_former_generation_in_place_once(host: Path, run_module: Any) -> None:
    updated(run_module, host)
    take(run_module, host, "finish")
    plan = {"roll": "20260202T000000Z", "kind": "rollback", "target": "", "undoes": ROLL}
    take(run_module, host, "begin", plan=plan)
    run(host, running=False)
    assert take(run_module, host, "apply", plan=plan)["release"] == OLD
    assert content(host) == (OLD, "old")
    run(host)
    take(run_module, host, "finish", plan=plan)
    assert look(host, run_module)["rollout"]["saved"]["spent"] is True


def test_rollback_takes_over_an_interrupted_update(host: Path, run_module: Any) -> None:
    updated(run_module, host)
    run(host, running=False)
    assert look(host, run_module)["rollout"]["saved"] == {"roll": ROLL, "release": OLD, "spent": False}
    plan = {"roll": "20260202T000000Z", "kind": "rollback", "target": "", "undoes": ROLL}
    assert take(run_module, host, "begin", plan=plan)["phase"] == "stopped"
    take(run_module, host, "apply", plan=plan)
    assert content(host) == (OLD, "old")


def test_a_node_that_an_undone_update_had_not_begun_with_has_nothing_staged_any_more(
    host: Path, run_module: Any
) -> None:
    """The staged file was found by the next run of ``site``, which then had something to change."""
    run(host)
    assert take(run_module, host, "unstage", check_mode=True)["changed"] is True
    assert (host / "etc/broker.xml.staged").exists()
    assert take(run_module, host, "unstage")["changed"] is True
    assert take(run_module, host, "unstage")["changed"] is False
    assert not (host / "etc/broker.xml.staged").exists()
    assert content(host) == (OLD, "old")
    assert not (host / "rollout/record.json").exists()


def test_restart_saves_and_replaces_nothing(host: Path, run_module: Any) -> None:
    plan = {"roll": ROLL, "kind": "restart", "target": ""}
    run(host)
    take(run_module, host, "begin", plan=plan)
    run(host, running=False)
    take(run_module, host, "apply", plan=plan)
    run(host)
    take(run_module, host, "finish", plan=plan)
    assert content(host) == (OLD, "old")
    assert sorted(path.name for path in (host / "rollout").iterdir()) == ["record.json"]


def test_check_mode_changes_nothing(host: Path, run_module: Any) -> None:
    assert take(run_module, host, "begin", check_mode=True)["changed"]
    assert not (host / "rollout").exists()


def test_release_that_is_gone_is_named(host: Path, run_module: Any) -> None:
    run(host, running=False)
    take(run_module, host, "begin", plan={**PLAN, "target": "3.0-ccc"})
    assert "release 3.0-ccc is not completely installed" in take(run_module, host, "apply")["msg"]
    assert content(host) == (OLD, "old")


def test_step_before_the_begin_is_refused(host: Path, run_module: Any) -> None:
    assert "apply is no step for a node that is idle" in take(run_module, host, "apply")["msg"]


# --- failover ------------------------------------------------------------------------------------


def switch(run_module: Any, host: Path, direction: str, **more: Any) -> Any:
    return run_module(failover, directory=str(host), direction=direction, timeout_s=0, **more)


def test_backup_yields_and_a_second_call_does_nothing(host: Path, run_module: Any, management: Any) -> None:
    run(host)
    result = switch(run_module, host, "failback")
    assert (result["changed"], result["state"]) == (True, "passive")
    assert "/api/v1/invoke broker failback" in management.asked
    assert not switch(run_module, host, "failback")["changed"]


def test_failover_needs_a_partner(host: Path, run_module: Any, management: Any) -> None:
    run(host)
    assert "a1 knows no partner" in switch(run_module, host, "failover")["msg"]
    management.peer = {"role": "backup", "connector": "a2"}
    assert switch(run_module, host, "failover")["changed"]
    assert "/api/v1/invoke broker forceFailover" in management.asked


def test_refusal_of_the_broker_is_shown(host: Path, run_module: Any, management: Any) -> None:
    run(host)
    management.refuses = "the primary does not wait"
    assert "a1 refuses the failback: the primary does not wait" in switch(run_module, host, "failback")["msg"]


def test_node_that_does_not_let_go_fails_the_switch(host: Path, run_module: Any, management: Any) -> None:
    run(host)
    management.becomes = "active"
    result = switch(run_module, host, "failback")
    assert result["failed"]
    assert "a1 is still active after 0 s" in result["msg"]


def test_failover_begins_at_the_active_node(host: Path, run_module: Any, management: Any) -> None:
    run(host)
    management.state = "passive"
    assert "a1 is passive, not active" in switch(run_module, host, "failover")["msg"]


def test_check_mode_asks_for_nothing(host: Path, run_module: Any, management: Any) -> None:
    run(host)
    assert switch(run_module, host, "failback", check_mode=True)["changed"]
    assert not [question for question in management.asked if "invoke" in question]


def test_the_backup_of_a_stopped_store_is_activated_once(host: Path, run_module: Any, management: Any) -> None:
    run(host)
    management.state, management.becomes = "passive", "active"
    assert switch(run_module, host, "activate", check_mode=True)["changed"]
    assert management.state == "passive"
    result = switch(run_module, host, "activate")
    assert (result["changed"], result["state"]) == (True, "active")
    assert "/api/v1/node/activate" in management.asked
    assert not switch(run_module, host, "activate")["changed"]


def test_a_backup_that_does_not_activate_says_why(host: Path, run_module: Any, management: Any) -> None:
    run(host)
    management.state, management.refuses = "passive", "its store was not stopped cleanly"
    message = switch(run_module, host, "activate")["msg"]
    assert message == "a1 is still passive after 0 s: it refuses to activate: its store was not stopped cleanly"


def test_a_node_that_is_stopped_cannot_be_activated(host: Path, run_module: Any) -> None:
    assert "a1 is stopped, not passive" in switch(run_module, host, "activate")["msg"]


@pytest.mark.parametrize("request_state", ["HOSTED", "ASKING"])
def test_node_info_says_whether_its_backup_is_hosted(
    host: Path, run_module: Any, management: Any, request_state: str
) -> None:
    run(host)
    management.colocated = {"request": request_state}
    result = run_module(node_info, directory=str(host), hosted=True)
    assert result["hosted"] is (request_state == "HOSTED")
    assert not run_module(node_info, directory=str(host))["hosted"]


# --- rollout_hold --------------------------------------------------------------------------------


def held_plan(run_module: Any) -> dict[str, object]:
    plan = run_module(rollout, kind="update", roll=ROLL, target=NEW, nodes=pair())["plan"]
    return {**PLAN, "holder": plan["holder"], "over": plan["over"]}


def test_steps_are_taken_by_the_run_that_holds_the_node(host: Path, run_module: Any) -> None:
    plan = held_plan(run_module)
    run(host)
    refused = take(run_module, host, "begin", wave="east", served=True, plan=plan)
    assert "not held by this run any more but by no run" in refused["msg"]
    held = run_module(rollout_hold, directory=str(host), node="a1", plan=plan)
    assert (held["held"], held["changed"]) == (True, False)
    assert look(host, run_module)["rollout"]["hold"]["holder"] == plan["holder"]
    assert take(run_module, host, "begin", wave="east", served=True, plan=plan)["phase"] == "begun"
    other = {**plan, "holder": other_run()}
    assert "a1 is in the roll" in run_module(rollout_hold, directory=str(host), node="a1", plan=other)["msg"]
    taken = {**other, "over": [look(host, run_module)["rollout"]["hold"]]}
    assert run_module(rollout_hold, directory=str(host), node="a1", plan=taken)["held"]
    run(host, running=False)
    assert "but by process 77 on other" in take(run_module, host, "apply", plan=plan)["msg"]
    assert content(host) == (OLD, "old")
    released = run_module(rollout_hold, directory=str(host), node="a1", plan=plan, state="released")
    assert not released["held"]
    assert look(host, run_module)["rollout"]["hold"] is not None, "that of another run stays"
    run_module(rollout_hold, directory=str(host), node="a1", plan=taken, state="released")
    assert look(host, run_module)["rollout"]["hold"] is None


def test_nothing_is_held_in_check_mode(host: Path, run_module: Any) -> None:
    result = run_module(rollout_hold, directory=str(host), node="a1", plan=held_plan(run_module), check_mode=True)
    assert (result["held"], result["changed"]) == (False, False)
    assert not (host / "rollout").exists()


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (instance, {"state": "stopped"}),
        (instance, {"state": "started", "timeout_s": 0}),
        (failover, {"direction": "failover", "timeout_s": 0}),
        (drain, {"timeout_s": 0}),
    ],
)
def test_a_node_that_a_roll_holds_is_left_alone_by_all_others(
    host: Path, run_module: Any, module: Any, arguments: dict[str, object]
) -> None:
    plan = {**held_plan(run_module), "holder": other_run()}
    run_module(rollout_hold, directory=str(host), node="a1", plan=plan)
    run(host)
    refused = run_module(module, directory=str(host), **arguments)
    assert refused["failed"]
    assert "a1 is in the roll 20260101T000000Z, which process 77 on other carries out" in refused["msg"]
    assert refused["msg"].endswith("or set ignore_hold: true (-e broker_ignore_hold=true)")
    run(host, running=False)
    for allowed in ({"holder": other_run()}, {"ignore_hold": True}, {"check_mode": True}):
        result = run_module(module, directory=str(host), **arguments, **allowed)
        assert "is in the roll" not in result.get("msg", ""), allowed


def test_release_and_units_of_a_node_that_a_roll_holds_are_left_alone(host: Path, run_module: Any) -> None:
    plan = {**held_plan(run_module), "holder": other_run()}
    run_module(rollout_hold, directory=str(host), node="a1", plan=plan)
    given = {"root": str(host), "release": NEW, "python_version": "3.11"}
    assert "is in the roll" in run_module(release, held_instance=str(host), **given)["msg"]
    assert "is in the roll" in run_module(units, held_instance=str(host), units=[{"name": "x.service"}])["msg"]
    assert content(host)[0] == OLD
    assert run_module(release, held_instance=str(host), ignore_hold=True, **given)["changed"]
    assert content(host)[0] == NEW
