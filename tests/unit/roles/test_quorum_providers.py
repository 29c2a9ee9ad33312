"""Goal: three witnesses and an ensemble of ZooKeeper are configured from the inventory alone.

Method: templates and tasks of the role broker_quorum are rendered with its variables.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.understudy.broker.plugins.module_utils.witness import place_of, spelled
from understudy.cli.node.witness import witness

ROLE = Path(__file__).resolve().parents[3] / "roles" / "broker_quorum"
PLAYBOOK = ROLE.parents[1] / "playbooks" / "witness.yml"
MEMBERS = ["10.0.0.3:61619", "10.0.0.4:61619", "10.0.0.5:61619"]


def rendered(template: object, **inputs: object) -> object:
    """A template of the role with its variables."""
    variables: dict[str, object] = {"inventory_hostname": "quorum-1", "role_path": str(ROLE)}
    for name in ("defaults", "vars"):
        variables.update(yaml.safe_load((ROLE / name / "main.yml").read_text()))
    variables.update(inputs)
    templar = Templar(DataLoader(), {name: _trusted(value) for name, value in variables.items()})
    return templar.template(_trusted(template))


def _trusted(value: object) -> object:
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, list):
        return [_trusted(each) for each in value]
    return value


def tasks(name: str) -> list[dict[str, object]]:
    """Tasks of a file, those of blocks included."""
    found: list[dict[str, object]] = []
    for task in yaml.safe_load((ROLE / "tasks" / name).read_text()):
        found += task.get("block", [task])
    return found


def arguments(name: str, command: str) -> list[str]:
    """Arguments of the task that runs ``understudy witness COMMAND``."""
    lists = [task["ansible.builtin.command"]["argv"] for task in tasks(name) if "ansible.builtin.command" in task]  # type: ignore[index]
    (argv,) = [each for each in lists if isinstance(each, list) and command in each]
    return [str(rendered(each, broker_quorum_members=MEMBERS, broker_quorum_replace=MEMBERS[1])) for each in argv]


def test_the_command_line_accepts_the_commands_of_a_group() -> None:
    for command in ("form", "replace"):
        program, group, name, *rest = arguments("witness_group.yml", command)
        assert (program, group, name) == ("/opt/understudy/current/bin/understudy", "witness", command)
        given = witness.commands[command].make_context(command, rest).params
        assert given["members"] == ",".join(MEMBERS)
        assert given.get("new", MEMBERS[1]) == MEMBERS[1]


def test_a_witness_without_state_joins_only_on_request() -> None:
    (refusal,) = [task for task in tasks("witness_group.yml") if task["name"] == "Refuse a member without state"]
    assert refusal["ansible.builtin.assert"]["that"] == "broker_quorum_replace | length > 0"  # type: ignore[index]


def test_the_configuration_of_zookeeper_names_every_server() -> None:
    servers = {3: "10.0.0.5", 1: "10.0.0.3", 2: "2001:db8::4"}
    text = str(
        rendered(
            (ROLE / "templates" / "zoo.cfg.j2").read_text(),
            broker_quorum_zookeeper_servers=servers,
            broker_quorum_zookeeper_id=2,
        )
    )
    settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert settings["server.1"] == "10.0.0.3:2888:3888"
    assert settings["server.2"] == "[2001:db8::4]:2888:3888"
    assert settings["server.3"] == "10.0.0.5:2888:3888"
    assert settings["dataDir"] == "/var/lib/zookeeper"
    assert settings["clientPort"] == "2181"


def test_the_playbook_changes_one_host_after_the_other() -> None:
    check, look, first, second = yaml.safe_load(PLAYBOOK.read_text())
    assert check["any_errors_fatal"] is True
    assert "serial" not in check
    assert look["name"] == "Witness | Look at rolls"
    assert first["serial"] == 1
    assert first["any_errors_fatal"] is True
    assert second["tasks"][0]["ansible.builtin.include_role"]["tasks_from"] == "group"


def test_a_member_is_known_by_the_place_that_answers_name() -> None:
    """A roll compares both, so an address of IPv6 has its brackets in each."""
    assert rendered("{{ __broker_quorum_place }}", broker_quorum_listen=MEMBERS[:1]) == MEMBERS[0]
    servers = {1: "10.0.0.3", 2: "2001:db8::4", 3: "10.0.0.5"}
    given = {"broker_quorum_provider": "zookeeper", "broker_quorum_zookeeper_servers": servers}
    places = ["10.0.0.3:2181", "[2001:db8::4]:2181", "10.0.0.5:2181"]
    assert rendered("{{ __broker_quorum_group }}", **given) == places
    for number, place in enumerate(places, 1):
        assert rendered("{{ __broker_quorum_place }}", **given, broker_quorum_zookeeper_id=number) == place
        assert spelled(place_of(place, 2181)) == place
