"""Goal: node_info, instance and gate speak Ansible's language: facts, changed, failures with a reason, check mode."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.process import ProcessTable
from ansible_collections.understudy.broker.plugins.modules import gate, instance, node_info


@pytest.fixture
def deployed(tmp_path: Path, management: Any) -> Path:
    """An instance that is not running, whose management is the miniature one."""
    for name in ("etc", "run", "log"):
        (tmp_path / name).mkdir()
    (tmp_path / "etc/management.token").write_text("right\n")
    definition = {
        "name": "east-1",
        "backend": "process",
        "unit": "",
        "user": "",
        "command": ["true"],
        "supervisor": ["true"],
        "management_url": management.url,
        "token_file": str(tmp_path / "etc/management.token"),
        "restart": {"delay_min_s": 1, "delay_max_s": 1, "reset_after_s": 1},
    }
    (tmp_path / "etc/service.json").write_text(json.dumps(definition))
    return tmp_path


@pytest.fixture
def running(deployed: Path) -> Path:
    """The same, recorded as run by this very test process."""
    identity = ProcessTable().identify(os.getpid())
    assert identity is not None
    own = {"pid": identity.pid, "start_ticks": identity.start_ticks, "boot_id": identity.boot_id}
    (deployed / "run/supervisor.json").write_text(json.dumps({"broker": own, "supervisor": own, "restarts": 2}))
    return deployed


def test_an_empty_host_is_an_answer(tmp_path: Path, run_module: Any) -> None:
    result = run_module(node_info, directory=str(tmp_path), root=str(tmp_path))
    assert not result["changed"]
    assert not result["deployed"]
    assert result["broker"]["state"] == "not deployed"
    assert result["releases"] == []


def test_a_stopped_broker_is_an_answer_and_is_not_asked(deployed: Path, run_module: Any, management: Any) -> None:
    result = run_module(node_info, directory=str(deployed))
    assert result["deployed"]
    assert result["broker"]["state"] == "stopped"
    assert management.asked == []


def test_a_running_broker_tells_of_itself(running: Path, run_module: Any) -> None:
    result = run_module(node_info, directory=str(running))
    assert result["service"] == {
        "backend": "process",
        "running": True,
        "kept": True,
        "pid": os.getpid(),
        "restarts": 2,
        "held": False,
        "last_exit": "",
    }
    assert result["broker"]["state"] == "active"
    assert result["broker"]["node"]["name"] == "east-1"


def test_without_root_a_module_says_what_to_set(
    deployed: Path, run_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exists(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", exists)
    for module, arguments in (
        (node_info, {"directory": str(deployed)}),
        (instance, {"directory": str(deployed), "state": "started"}),
        (gate, {"condition": "active", "nodes": [{"name": "a", "directory": str(deployed)}]}),
    ):
        assert "set ansible_become: true" in str(run_module(module, **arguments)["msg"])


def test_the_user_is_told(deployed: Path, run_module: Any) -> None:
    assert run_module(node_info, directory=str(deployed))["user_id"] == os.geteuid()


def test_the_account_of_a_user_and_paths_are_told_where_they_exist(tmp_path: Path, run_module: Any) -> None:
    missing = str(tmp_path / "missing")
    result = run_module(node_info, directory=missing, user="root", look_at=[str(tmp_path), missing])
    assert (result["account"]["uid"], result["account"]["gid"], result["account"]["group"]) == (0, 0, "root")
    assert result["present"] == [str(tmp_path)]
    result = run_module(node_info, directory=missing, user="no-such-user")
    assert (result["account"], result["present"]) == ({}, [])


def test_a_gate_that_fails_shows_the_log_of_the_node(running: Path, run_module: Any) -> None:
    (running / "log/understudy.log").write_text("first\nlast words\n")
    nodes = [{"name": "a", "directory": str(running)}]
    result = run_module(gate, condition="passive_following", nodes=nodes, timeout_s=0)
    assert str(result["msg"]).endswith("a:\nThe last lines of log/understudy.log:\nfirst\nlast words")
    assert "last words" not in json.dumps(run_module(gate, condition="active", nodes=nodes, timeout_s=0))


def test_a_broken_definition_fails_with_its_path(deployed: Path, run_module: Any) -> None:
    (deployed / "etc/service.json").write_text("{}")
    for module, arguments in ((node_info, {}), (instance, {"state": "started"})):
        result = run_module(module, directory=str(deployed), **arguments)
        assert result["failed"]
        assert "service.json is no service definition" in result["msg"]


def test_what_runs_already_is_not_started(running: Path, run_module: Any) -> None:
    result = run_module(instance, directory=str(running), state="started", wait_for="active")
    assert not result["changed"]
    assert result["acted_at_ms"] is None
    assert result["broker"]["state"] == "active"


def test_a_gate_that_is_not_met_fails_and_says_what_the_broker_is(running: Path, run_module: Any) -> None:
    result = run_module(instance, directory=str(running), state="started", wait_for="passive", timeout_s=0)
    assert result["failed"]
    assert result["msg"] == "east-1: not passive within 0 s: the broker says active"


@pytest.mark.parametrize(
    ("state", "changed"), [("stopped", True), ("killed", True), ("restarted", True), ("started", False)]
)
def test_check_mode_changes_nothing(running: Path, run_module: Any, state: str, changed: bool) -> None:
    result = run_module(instance, check_mode=True, directory=str(running), state=state)
    assert result["changed"] is changed
    assert not (running / "run/hold").exists()


@pytest.mark.parametrize(
    ("state", "failed"), [("stopped", False), ("killed", False), ("started", True), ("restarted", True)]
)
def test_where_nothing_is_deployed_only_down_is_reached(
    tmp_path: Path, run_module: Any, state: str, failed: bool
) -> None:
    result = run_module(instance, directory=str(tmp_path), state=state)
    assert result.get("failed", False) is failed
    assert not result.get("changed", False)
    preview = run_module(instance, check_mode=True, directory=str(tmp_path), state=state)
    assert preview["changed"] is failed


def test_a_gate_over_an_instance(running: Path, run_module: Any) -> None:
    result = run_module(gate, condition="active", nodes=[{"name": "a", "directory": str(running)}], timeout_s=0)
    assert result["met"]
    assert not result["changed"]
    assert result["states"]["a"]["state"] == "active"


def test_a_gate_over_a_url(management: Any, tmp_path: Path, run_module: Any) -> None:
    token = tmp_path / "token"
    token.write_text("right")
    node = {"name": "a", "url": management.url, "token_file": str(token)}
    management.state, management.ready = "passive", False
    result = run_module(gate, condition="active", nodes=[node], timeout_s=0)
    assert result["failed"]
    assert result["missing"] == ["a is passive, not active and ready"]
    preview = run_module(gate, check_mode=True, condition="active", nodes=[node], timeout_s=60)
    assert not preview.get("failed", False)
    assert not preview["met"]


def test_a_gate_over_what_was_observed_is_judged_once(run_module: Any) -> None:
    nodes = [
        {"name": name, "pair": "east", "observed": {"state": state, "ready": True, "reachable": True, "node": {}}}
        for name, state in (("a", "active"), ("b", "active"))
    ]
    result = run_module(gate, condition="one_active_per_pair", nodes=nodes, timeout_s=60)
    assert result["failed"]
    assert "pair east has 2 active nodes" in result["msg"]
    assert result["elapsed_ms"] < 60_000, "it waited for what cannot change"


@pytest.mark.parametrize(
    "nodes", [[], [{"name": "a"}], [{"name": "a", "url": "http://127.0.0.1:1"}], [{"name": "a", "observed": {"x": 1}}]]
)
def test_a_gate_over_nothing_fails(nodes: list[dict[str, object]], run_module: Any) -> None:
    assert run_module(gate, condition="active", nodes=nodes, timeout_s=0)["failed"]
