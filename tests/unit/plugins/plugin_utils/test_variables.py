"""Goal: one row of the table is all that a variable needs: it is read, judged, rendered and documented from there."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest
import yaml
from ansible_collections.understudy.broker.plugins.module_utils.store import subdirectories
from ansible_collections.understudy.broker.plugins.plugin_utils import elements, topology, variables
from ansible_collections.understudy.broker.plugins.plugin_utils.render import broker_xml
from ansible_collections.understudy.broker.plugins.plugin_utils.variables import (
    NOT_YET,
    SCOPES,
    Unusable,
    Variable,
    table,
)

CORE = "{urn:activemq:core}"

NEW_ROW = """
- name: broker_example_retries
  type: int
  default: 12
  minimum: -1
  maximum: 100
  scope: pair
  since: 0.3.0
  xml: [ha-policy/shared-store/backup/quorum/vote-retries]
  description: How often a vote is repeated.
"""

HOSTS: dict[str, dict[str, object]] = {
    name: {
        "broker_ha_policy": "shared_store",
        "broker_ha_role": role,
        "broker_pair": "p",
        "broker_advertise_address": address,
        "broker_store_directory": "/srv/p",
    }
    for name, role, address in (("a", "primary", "10.0.0.1"), ("b", "backup", "10.0.0.2"))
}


@pytest.fixture
def with_new_row(monkeypatch: pytest.MonkeyPatch) -> variables.Table:
    """The table with one row more."""
    content = yaml.safe_load((variables.Path(variables.__file__).with_name("variables.yml")).read_text())
    content["roles"]["broker"]["sections"][-1]["variables"] += yaml.safe_load(NEW_ROW)
    changed = variables.parse(yaml.safe_dump(content))
    for module in (topology, elements):
        monkeypatch.setattr(module, "table", lambda: changed)
    return changed


def test_a_new_row_is_read_judged_rendered_and_documented(with_new_row: variables.Table) -> None:
    built = topology.build_topology(HOSTS, HOSTS)
    assert built.faults == ()
    nodes: Any = built.as_dict()["nodes"]
    assert nodes["b"]["core"]["ha-policy"]["shared-store"]["backup"]["quorum"] == {"vote-retries": 12}
    assert "quorum" not in str(nodes["a"]["core"])
    changed = {**HOSTS, "b": {**HOSTS["b"], "broker_example_retries": 7}}
    (fault,) = topology.build_topology(HOSTS, changed).faults
    assert str(fault) == "b: broker_example_retries: is 7 but 12 at a; the nodes of pair 'p' must agree"
    wrong = {**HOSTS, "b": {**HOSTS["b"], "broker_example_retries": 700}}
    (fault,) = topology.build_topology(HOSTS, wrong).faults
    assert str(fault) == "b: broker_example_retries: is '700'; give a whole number from -1 to 100"
    texts = dict(variables.files(with_new_row))
    assert "broker_example_retries: 12\n" in texts["roles/broker/defaults/main.yml"]
    options = yaml.safe_load(texts["roles/broker/meta/argument_specs.yml"])["argument_specs"]["main"]["options"]
    assert options["broker_example_retries"]["version_added"] == "0.3.0"
    assert "| `broker_example_retries` | int | `12` | pair |" in texts["docs/operate/variables.md"]


@pytest.mark.parametrize("failback", [True, False])
@pytest.mark.parametrize("hand_over", [True, False])
def test_what_was_judged_is_rendered(failback: bool, hand_over: bool) -> None:
    given = {"broker_failback": failback, "broker_failover_on_shutdown": str(hand_over), "broker_port": "7000"}
    hosts = {name: {**values, **given} for name, values in HOSTS.items()}
    nodes: Any = topology.build_topology(hosts, hosts).as_dict()["nodes"]
    for role, name in (("primary", "a"), ("backup", "b")):
        text = broker_xml({"core": nodes[name]["core"]}).text
        policy = ET.fromstring(text.encode()).find(f".//{CORE}ha-policy/{CORE}shared-store/{CORE}{role}")
        assert policy is not None
        settings = {each.tag.removeprefix(CORE): each.text for each in policy}
        assert settings.pop("failover-on-shutdown") == str(hand_over).lower()
        expected = {} if role == "primary" else {"allow-failback": str(failback).lower(), "restart-backup": "true"}
        assert settings == expected


def test_the_directories_are_those_that_the_module_makes() -> None:
    made = {f"{noun}-directory": str(path) for noun, path in subdirectories(variables.Path("/srv/p")).items()}
    assert {name: f"/srv/p/{directory}" for name, directory in elements.DIRECTORIES.items()} == made


def test_rows_are_whole() -> None:
    names = [each.name for role in table().roles.values() for section in role.sections for each in section[1]]
    shared = {"broker_config_extra"}
    assert sorted(set(names) | shared) == sorted(set(names))
    assert [name for name in names if names.count(name) > 1 and name not in shared] == []
    for role in table().roles.values():
        for variable in role.variables:
            assert variable.scope in SCOPES, variable.name
            assert variable.type in ("str", "int", "float", "bool", "path", "list", "dict"), variable.name
            assert (variable.type == "list") is bool(variable.elements), variable.name
            assert not (variable.required and variable.default is not None), variable.name
            if not variable.required and variable.scope != "host" and "{{" not in str(variable.default):
                assert variable.read(variable.default) == variable.default, variable.name
    for new in table().renamed.values():
        assert new in names or " " in new


def test_an_unknown_field_of_a_row_is_an_error() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        Variable.from_row({"name": "x", "type": "str", "description": "x", "scope": "host", "nonsense": 1})


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("broker_config_cluster_connection", {}, "is a former name; set broker_cluster_connection instead"),
        ("broker_security_drill_user", "x", "is a former name; set broker_drill_user instead"),
        ("broker_install_root", "/x", "is set by the role broker; set broker_root instead"),
        ("broker_service_apply", True, "is set by the role broker; remove it"),
    ],
)
def test_former_reserved_and_inner_names_are_refused(name: str, value: object, problem: str) -> None:
    hosts = {**HOSTS, "b": {**HOSTS["b"], name: value}}
    (fault,) = topology.build_topology(hosts, hosts).faults
    assert str(fault) == f"b: {name}: {problem}"


def test_reserved_names_are_documented_and_not_declared() -> None:
    reserved = [each for section in table().roles["broker"].sections for each in section[1] if each.since == NOT_YET]
    texts = dict(variables.files(table()))
    for variable in reserved:
        assert variable.name in texts["docs/operate/variables.md"]
        assert variable.name not in texts["roles/broker/defaults/main.yml"]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("broker_connectors", "x", "is a str; give a list"),
        ("broker_connectors", ["x"], r"has at \[0\] a str; give a mapping"),
        ("broker_connectors", [{"port": 1}], r"lacks 'name' at \[0\]"),
        (
            "broker_connectors",
            [{"name": "a", "address": "b", "prot": 1}],
            r"has 'prot' at \[0\]; give only name, address, port",
        ),
        ("broker_connector_parameters", [1], "is a list; give a mapping"),
        ("broker_port", True, "is 'True'; give a port from 1 to 65535"),
        ("broker_port_offset", -1, "is '-1'; give a whole number from 0 to 65534"),
        ("broker_root", "x", "is 'x'; give an absolute path"),
        ("broker_failback", "perhaps", "is 'perhaps'; give true or false"),
        ("broker_ha_role", "x", "is 'x'; give one of primary, backup"),
    ],
)
def test_values_of_the_wrong_type_are_unusable(name: str, value: object, problem: str) -> None:
    variable = next(each for each in table().topology if each.name == name)
    with pytest.raises(Unusable, match=problem):
        variable.read(value)
