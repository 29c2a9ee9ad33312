"""Goal: the plays of a roll carry out the phases of the plan in its order, and a failure cannot be overrun.

Method: read the YAML and compare it with the phases and inputs of the plan.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import KINDS, PHASES
from ansible_collections.understudy.broker.plugins.modules.rollout_step import STEPS

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
ROLLS = {"rolling_update": "update", "rolling_restart": "restart", "rollback": "rollback"}


def load(name: str) -> list[dict[str, Any]]:
    content = yaml.safe_load((PLAYBOOKS / name).read_text())
    assert isinstance(content, list)
    return content


def wave() -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The play of the waves, and its block."""
    play = load("rolling/waves.yml")[0]
    (block,) = (task for task in play["tasks"] if "block" in task)
    return play, block


def test_every_play_of_a_roll_ends_with_the_first_failure() -> None:
    for name in ("rolling/look.yml", "rolling/quorum.yml", "rolling/waves.yml", "failover.yml", "failback.yml"):
        for play in load(name):
            assert play["any_errors_fatal"] is True, play["name"]


def test_every_node_is_held_before_the_first_wave_and_released_after_the_last_one() -> None:
    plan, release = load("rolling/look.yml")[-1], load("rolling/waves.yml")[1]
    for play, state in ((plan, "held"), (release, "released")):
        assert play["hosts"] == "broker"
        hold = next(task for task in play["tasks"] if "understudy.broker.rollout_hold" in task)
        assert hold["understudy.broker.rollout_hold"].get("state", "held") == state


def test_a_roll_ends_with_the_releases_of_all_nodes_and_an_update_or_rollback_fails_if_they_differ() -> None:
    verify = load("rolling/waves.yml")[-1]
    assert verify["hosts"] == "broker"
    *asked, refusal = verify["tasks"]
    assert "understudy.broker.node_info" in asked[0]
    assert refusal["ansible.builtin.assert"]["that"] == "rolling_drift | length == 0"
    assert refusal["when"] == "rolling_kind != 'restart'"
    found = yaml.safe_load((PLAYBOOKS / "vars/rolling.yml").read_text())["rolling_drift"]
    assert asked[0]["register"] in found
    assert "understudy.broker.release_drift" in found


def test_every_step_names_its_run() -> None:
    text = (PLAYBOOKS / "rolling/waves.yml").read_text()
    steps = [task for task in text.split("- name: ") if "understudy.broker.rollout_step" in task]
    assert len(steps) == len(STEPS)
    assert all("plan:" in task for task in steps)


def test_a_rollback_removes_what_the_undone_update_has_staged_before_it_lets_the_nodes_go() -> None:
    end = load("rolling/waves.yml")[1]["tasks"]
    steps = [task.get("understudy.broker.rollout_step", {}).get("step", "") for task in end]
    holds = ["understudy.broker.rollout_hold" in task for task in end]
    assert steps.index("unstage") < holds.index(True)
    assert "rolling_kind == 'rollback'" in end[steps.index("unstage")]["when"]


def test_phases_come_in_the_order_of_the_plan() -> None:
    text = (PLAYBOOKS / "rolling/waves.yml").read_text().partition("rescue:")[0]
    found = re.findall(r"when: \"'(\w+)' in rolling_phases\"|step: (begin|finish)", text)
    phases = [phase or step for phase, step in found]
    assert list(dict.fromkeys(phases)) == list(PHASES)


def test_restore_stops_before_it_puts_back_and_starts_after_it() -> None:
    names = [str(task["name"]) for task in wave()[1]["rescue"]]
    assert [name.removeprefix("Restore | ") for name in names] == [
        "Remember the reason",
        "Look at what the wave has done to the node",
        "Stop backups",
        "Stop primaries",
        "Put the former release and configuration back",
        "Start primaries",
        "Remember whether the node serves again",
        "Start backups",
        "Let backups of lost primaries serve",
        "Record it",
        "Remember how it ended",
        "Fail with the reason",
    ]
    assert "ansible.builtin.fail" in wave()[1]["rescue"][-1], "a rescue that ends well lets the next wave begin"


def test_a_host_that_cannot_be_restored_keeps_no_other_from_it() -> None:
    """A failure or a lost host would end the restoring of the whole wave with ``any_errors_fatal``."""
    for task in wave()[1]["rescue"]:
        if any(name.startswith("understudy.broker.") for name in task):
            assert task["ignore_errors"] is task["ignore_unreachable"] is True, task["name"]
            assert task["register"] in (PLAYBOOKS / "vars/rolling.yml").read_text(), task["name"]


def test_preflight_is_outside_of_the_block_that_is_restored() -> None:
    play = wave()[0]
    tasks = play["tasks"]
    assert isinstance(tasks, list)
    assert all("block" not in task for task in tasks[:-1])
    assert "block" in tasks[-1]


def test_every_step_of_the_module_is_used() -> None:
    assert set(re.findall(r"step: (\w+)", (PLAYBOOKS / "rolling/waves.yml").read_text())) == set(STEPS)


@pytest.mark.parametrize(("name", "kind"), ROLLS.items())
def test_rolls_have_the_same_inputs_and_defaults(name: str, kind: str) -> None:
    look, *others, waves = load(f"{name}.yml")
    inputs = look["vars"]
    assert isinstance(inputs, dict)
    assert all(each["vars"] == inputs for each in (*others, waves))
    assert inputs.pop("rolling_kind") == kind
    update = load("rolling_update.yml")[0]["vars"]
    assert isinstance(update, dict)
    update.pop("rolling_kind")
    assert inputs == update


@pytest.mark.parametrize("name", ROLLS)
def test_the_quorum_is_rolled_before_the_nodes_and_by_no_rollback(name: str) -> None:
    imported = [str(each["ansible.builtin.import_playbook"]) for each in load(f"{name}.yml")]
    between = [] if name == "rollback" else ["rolling/quorum.yml"]
    assert imported == ["rolling/look.yml", *between, "rolling/waves.yml"]


def test_hosts_of_the_quorum_are_taken_one_at_a_time_and_each_waits_for_the_whole() -> None:
    (play,) = load("rolling/quorum.yml")
    assert (play["serial"], play["any_errors_fatal"]) == (1, True)
    tasks = play["tasks"]
    assert isinstance(tasks, list)
    assert tasks[-1]["ansible.builtin.include_role"]["tasks_from"] == "whole"
    assert "when" not in tasks[-1]


def test_plan_has_the_inputs_of_a_roll_and_carries_nothing_out() -> None:
    (look,) = load("plan.yml")
    inputs, update = look["vars"], load("rolling_update.yml")[0]["vars"]
    assert isinstance(inputs, dict)
    assert isinstance(update, dict)
    assert inputs.pop("rolling_dry_run") is True
    assert inputs == {key: value for key, value in update.items() if key != "rolling_preflight_timeout_s"}
    assert set(ROLLS.values()) == set(KINDS)
