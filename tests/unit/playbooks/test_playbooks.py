"""Goal: a play reaches each host the way the inventory says, and puts no password into a command line."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
FILES = sorted(path for path in PLAYBOOKS.rglob("*.yml") if "vars" not in path.parts)
ON_A_NODE = ("ansible.builtin.command", "understudy.broker.instance", "understudy.broker.gate", "ansible.builtin.file")


def tasks(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every task, also those of plays and blocks."""
    for entry in entries:
        nested = [entry[key] for key in ("tasks", "block", "rescue", "always") if key in entry]
        for group in nested:
            assert isinstance(group, list)
            yield from tasks(group)
        if not nested:
            yield entry


def load(path: Path) -> list[dict[str, Any]]:
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, list)
    return content


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_play_or_task_sets_a_connection(path: Path) -> None:
    """A keyword wins over a delegated host without ansible_connection, so its tasks would run on the controller."""
    for entry in [*load(path), *tasks(load(path))]:
        assert "connection" not in entry, entry.get("name")


def in_plays(entries: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every task of a file of plays, with its play."""
    for play in entries:
        if "hosts" in play:
            for task in tasks([play]):
                yield play, task


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_ignored_host_ends_no_play(path: Path) -> None:
    """A play whose errors are fatal ends without a word at a host that is ignored, unless the task says otherwise."""
    for play, task in in_plays(load(path)):
        ignores = task.get("ignore_unreachable", play.get("ignore_unreachable"))
        if not ignores or task.get("ignore_errors"):
            continue
        assert task.get("any_errors_fatal", play.get("any_errors_fatal", False)) is False, task["name"]
        assert not task.get("run_once"), f"{task['name']}: a task that runs once needs ignore_errors"


ROLE_TASKS = sorted((PLAYBOOKS.parent / "roles").glob("*/tasks/**/*.yml"))


@pytest.mark.parametrize("path", ROLE_TASKS, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_an_ignored_host_ends_no_play_that_uses_a_role(path: Path) -> None:
    for task in tasks(load(path)):
        if task.get("ignore_unreachable"):
            assert task.get("ignore_errors") or task.get("any_errors_fatal") is False, task["name"]


DRILLS = sorted([*PLAYBOOKS.glob("drill*.yml"), *(PLAYBOOKS / "tasks").rglob("*.yml")])
DRILL_VARIABLES = sorted((PLAYBOOKS / "vars").glob("drill*.yml"))


@pytest.mark.parametrize("path", DRILLS, ids=lambda path: path.name)
def test_what_the_drill_does_to_a_node_is_delegated_to_it(path: Path) -> None:
    for task in tasks(load(path)):
        if any(module in task for module in ON_A_NODE) and task.get("become") is not False:
            assert "delegate_to" in task, task["name"]


def test_what_the_drill_does_on_the_controller_needs_no_root() -> None:
    for task in tasks(load(PLAYBOOKS / "tasks/drill.yml")):
        if "delegate_to" not in task and any("command" in key or "copy" in key for key in task):
            assert task["become"] is False, task["name"]


def test_a_password_reaches_the_clients_as_a_file() -> None:
    for path in DRILL_VARIABLES:
        for name, value in yaml.safe_load(path.read_text()).items():
            assert "drill_password " not in str(value).partition(" if ")[0], name
    secret = [task for path in DRILLS for task in tasks(load(path)) if "drill_password }}" in str(task)]
    assert secret
    assert all(task.get("no_log") is True for task in secret)


def inputs(path: Path) -> dict[str, Any]:
    (play,) = load(path)
    found = play["vars"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("drill_*.yml")), ids=lambda path: path.name)
def test_every_drill_has_the_inputs_of_the_drill_of_a_pair(path: Path) -> None:
    """And the same defaults, but for those that the drill itself is about."""
    pair, found = inputs(PLAYBOOKS / "drill.yml"), inputs(path)
    own = {"drill_rounds", "drill_messages", "drill_report_file", "drill_idle_timeout_s"}
    assert set(pair) - set(found) <= {"drill_pair_name"}
    assert set(found) - set(pair) <= {"drill_backlog", "drill_node"}
    for name in set(pair) & set(found) - own:
        assert found[name] == pair[name], name


def test_clients_of_a_drill_use_the_protocol_that_is_asked_for() -> None:
    found = {task["name"].partition(",")[0]: str(task) for task in tasks(load(PLAYBOOKS / "tasks/drill_round.yml"))}
    for who in ("consumer", "producer"):
        assert (
            f"item.url | understudy.broker.client_url(drill_{who}_protocol, drill_trusted)"
            in found[f"Start the {who}s"]
        )


def test_every_client_of_a_drill_trusts_the_file_of_its_own_host() -> None:
    """The URL of a node names a file on that node's host; nodes with different directories have different ones."""
    texts = [str(task) for path in DRILLS for task in tasks(load(path))]
    with_url = [text for text in texts if "--url=" in text]
    assert len(with_url) == 5
    assert all("drill_trusted" in text for text in with_url)


@pytest.mark.parametrize("path", DRILL_VARIABLES, ids=lambda path: path.name)
def test_every_event_of_a_drill_has_its_tasks(path: Path) -> None:
    event = yaml.safe_load(path.read_text()).get("drill_event")
    if path.name != "drill.yml":
        assert (PLAYBOOKS / f"tasks/events/{event}.yml").exists()
        assert (PLAYBOOKS / f"tasks/events/{event}_begin.yml").exists()


def test_a_planned_stop_of_all_nodes_stops_the_serving_ones_last() -> None:
    """A passive node would take over from a node that is stopped before it (failover-on-shutdown, replication)."""
    _look, first, last = load(PLAYBOOKS / "stop.yml")
    stops = [[task for task in tasks([play]) if "understudy.broker.instance" in task] for play in (first, last)]
    assert [len(each) for each in stops] == [1, 1]
    assert stops[0][0]["when"] == "stop_seen.broker.state != 'active'"
    assert "when" not in stops[1][0]


def test_what_playbooks_write_into_the_present_directory_is_not_packed_into_the_collection() -> None:
    ignored = yaml.safe_load((PLAYBOOKS.parent / "galaxy.yml").read_text())["build_ignore"]
    text = "".join(path.read_text() for path in PLAYBOOKS.rglob("*.yml"))
    written = set(re.findall(r"lookup\('ansible.builtin.env', 'PWD'\) }}/([^/\"]+)", text))
    written |= {"drill-ledgers"}
    assert {"drill-report.json", "support"} <= written
    for name in written:
        assert any(fnmatch.fnmatch(name, each) for each in ignored), name


GUARDED = (
    "stop",
    "uninstall",
    "add_node",
    "drain_node",
    "rotate_tls",
    "restore_store",
    "replace_host",
    "tasks/switch_look",
)
"""Playbooks that look for rolls themselves; site does so by the role broker, and witness and drills ask other hosts."""


@pytest.mark.parametrize("name", GUARDED)
def test_what_starts_stops_or_installs_looks_for_rolls_before_anything_else_acts(name: str) -> None:
    looks, acts = [], []
    for number, task in enumerate(tasks(load(PLAYBOOKS / f"{name}.yml"))):
        included = task.get("ansible.builtin.include_role", {})
        assert isinstance(included, dict)
        if included.get("name") == "understudy.broker.broker_topology":
            continue
        if included.get("tasks_from") == "roll":
            looks.append(number)
        elif included or any(f"understudy.broker.{module}" in task for module in ("instance", "failover", "drain")):
            acts.append(number)
    assert looks
    assert all(looks[0] < number for number in acts)


def test_a_drill_looks_for_rolls_before_it_begins() -> None:
    found = [
        (task.get("ansible.builtin.include_role") or {}).get("tasks_from") or task.get("ansible.builtin.include_tasks")
        for task in tasks(load(PLAYBOOKS / "tasks/drill.yml"))
    ]
    assert found.index("roll_refuse") < found.index("drill_round.yml")


def test_failover_and_failback_look_for_rolls() -> None:
    for name in ("failover", "failback"):
        text = (PLAYBOOKS / f"{name}.yml").read_text()
        assert text.index("tasks/switch_look.yml") < text.index("understudy.broker.failover:")


def test_every_module_that_acts_on_a_node_is_told_of_the_override() -> None:
    """A roll gives its own hold; an operator gives broker_ignore_hold."""
    for path in FILES:
        if path.name.startswith("drill") or "events" in path.parts or "drill" in path.name:
            continue
        for task in tasks(load(path)):
            for module in ("instance", "failover", "drain"):
                given = task.get(f"understudy.broker.{module}")
                if isinstance(given, dict):
                    assert given.get("holder") or given.get("ignore_hold"), f"{path.name}: {task['name']}"


def test_health_goes_on_without_hosts_that_cannot_be_reached() -> None:
    (play,) = load(PLAYBOOKS / "health.yml")
    assert "any_errors_fatal" not in play
    for task in tasks([play]):
        if any(key.startswith("understudy.broker.") for key in task) or "ansible.builtin.command" in task:
            assert task["ignore_unreachable"] is True, task["name"]


ALWAYS_THERE = ("broker", "localhost")
"""Groups and hosts of every inventory."""
OWN_GROUP = ("clients.yml", "monitoring.yml", "pipeline.yml", "witness.yml")
"""Playbooks for one optional group, in which a warning that there is none is in place."""


@pytest.mark.parametrize("path", [each for each in FILES if each.name not in OWN_GROUP], ids=lambda path: path.name)
def test_a_play_for_a_group_that_need_not_be_there_warns_of_nothing(path: Path) -> None:
    """Ansible warns of a name that is no group ("Could not match supplied host pattern") in each such run."""
    for play in load(path):
        if "hosts" in play and play["hosts"] not in ALWAYS_THERE:
            assert "in groups else '!all'" in str(play["hosts"]) or "intersect(groups)" in str(play["hosts"])


def test_a_replaced_node_is_told_which_store_it_copies_before_it_starts_and_one_node_serves_in_the_end() -> None:
    plays = yaml.safe_load((PLAYBOOKS / "replace_host.yml").read_text())
    tasks = [task for play in plays for task in play["tasks"]]
    commands = [str(task.get("ansible.builtin.command", "")) for task in tasks]
    (named,) = (number for number, command in enumerate(commands) if "'--copy-of', replace_node_id" in command)
    (started,) = (number for number, task in enumerate(tasks) if "understudy.broker.instance" in task)
    assert named < started
    assert "node.ha_policy == 'replication'" in tasks[named]["when"]
    (expected,) = (task for task in tasks if task["name"] == "Expect one node that serves, and one store")
    assert tasks.index(expected) > started
    assert len(expected["ansible.builtin.assert"]["that"]) == 2
